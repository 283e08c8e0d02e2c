"""Orders of the operator about opaque batches, which may be cut again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.kit.machines import redo_in, started
from tests.unit.core.test_machine_opaque import OpaqueHand, three
from txtopo.core.events import (
    Cancel,
    CommitQuarantine,
    Cut,
    CutFailed,
    CutRedo,
    Mirror,
    RedoCut,
)
from txtopo.core.state import Phase


class TestOrders:
    def halted(self, **settings: Any) -> OpaqueHand:
        """1 is processed, 2 has used up its attempts, 3 went with it."""
        hand = three(attempts_max=1, **settings)
        hand.succeed(1)
        hand.fail(2, 0, "data")
        assert hand.state.halting is not None
        return hand

    def test_retry_cuts_the_failed_batch_again_at_once(self) -> None:
        hand = self.halted()

        hand.order("retry")

        assert hand.last_cut == (2, {2: 1, 3: 1})
        hand.cut(2)
        assert hand.state.batches[2].data_failures == 0
        assert started(hand) == ["2:1", "3:1"]

    def test_retry_is_answered_when_the_batch_is_committed(self) -> None:
        hand = self.halted()
        hand.order("retry", 2)
        hand.cut(2)
        hand.succeed(2, 1)
        for txid in (1, 2):
            hand.mirrored(txid)
            hand.committed(txid)

        assert hand.answers == [("done", "batch 2 is committed")]

    def test_skip_quarantines_the_new_cut_in_its_place_and_it_never_runs(self) -> None:
        hand = self.halted()

        hand.order("skip", 2)
        hand.cut(2)

        assert started(hand) == ["3:1"]
        assert hand.state.batches[2].phase is Phase.QUARANTINED
        hand.mirrored(1)
        hand.committed(1)
        assert [[one.txid for one in mirror.plans] for mirror in hand.of(Mirror)] == [[2]]
        hand.mirrored(2)
        (action,) = hand.of(CommitQuarantine)
        assert action.plan == hand.known[2]

    def test_what_follows_a_skipped_batch_stays(self) -> None:
        """Later ones are cut from its metadata, which does not change any more."""
        hand = three()

        hand.order("skip", 2)

        assert sorted(hand.state.batches) == [1, 2, 3]
        assert [str(cancel.attempt) for cancel in hand.of(Cancel)] == ["2:0"]

    def test_a_skip_outlives_a_new_cut_of_its_batch(self) -> None:
        hand = three()
        hand.order("skip", 2)

        hand.fail(1, 0, "data")
        hand.recut(3)

        assert started(hand) == ["1:1", "3:1"]
        assert hand.state.batches[2].phase is Phase.QUARANTINED

    def test_an_order_about_a_batch_that_is_to_be_cut_again_waits_for_it(self) -> None:
        """Whatever the source says: what was planned before is not at its end before it is committed."""
        hand = three(once=True)
        hand.order("skip", 3)
        hand.fail(1, 0, "data")
        hand.tick(100)
        hand.cut(2)
        for txid in (1, 2):
            hand.succeed(txid, 1)
            hand.mirrored(txid)
            hand.committed(txid)

        hand.plans(exhausted=True)
        hand.tick(100)

        assert (hand.answers, hand.state.ended, hand.last_cut) == ([], None, (3, {3: 1}))
        assert hand.of(Cut)[0].given_up == {3}
        hand.cut(1)
        assert hand.state.batches[3].phase is Phase.QUARANTINED

    def test_orders_about_what_was_never_cut_are_refused_as_ever(self) -> None:
        hand = OpaqueHand(1, spout_pending_max=1)

        hand.order("skip", 4)

        assert hand.answers == [("refused", "batch 4 is not planned")]

    def test_a_quarantine_by_policy_leaves_later_batches_alone_and_is_pinned_in_its_turn(self) -> None:
        """At `attempts_max` the policy decides as for others: its plan is fixed, so what follows it is too."""
        hand = three(attempts_max=1, on_poison="quarantine_batch")

        hand.fail(2, 0, "data")
        hand.proven(2)

        assert sorted(hand.state.batches) == [1, 2, 3]
        assert hand.of(Mirror) == []
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)
        assert [[one.txid for one in mirror.plans] for mirror in hand.of(Mirror)] == [[2]]

    def redriven(self) -> OpaqueHand:
        """Batch 1 runs, batch 2 redoes one."""
        hand = OpaqueHand(1, spout_pending_max=3, workers=3)
        hand.plans()
        hand.order("redrive", 1)
        hand.tick(100)
        redo = hand.of(CutRedo)[0].redo
        hand.tell(RedoCut(redo=redo, plan=hand.made(1, redo_of=1, kind="redo", order_id=5)[0]))
        assert sorted(hand.state.batches) == [1, 2]
        return hand

    def test_a_redo_that_fails_keeps_its_plan(self) -> None:
        """A redo brings back exactly what it redoes: it is not cut again."""
        hand = self.redriven()

        hand.fail(2, 0, "data")
        hand.tick(100)

        assert started(hand) == ["2:1"]

    def test_a_redo_that_is_discarded_is_planned_again_behind_the_input_that_failed(self) -> None:
        hand = self.redriven()
        hand.plans()

        hand.fail(1, 0, "data")
        hand.tick(100)

        assert (hand.of(CutRedo), hand.last_cut) == ([], (1, {1: 1, 2: 1}))
        hand.cut(1)
        (cut,) = hand.of(CutRedo)
        assert (cut.first_txid, redo_in(cut).txid, dict(cut.attempts)) == (2, 1, {2: 1})

    def test_a_redo_never_takes_the_txid_of_input_that_was_planned_before(self) -> None:
        """Its input would have no txid any more, and nobody would miss it."""
        hand = self.redriven()
        hand.plans()
        hand.fail(1, 0, "data")
        hand.tick(100)
        hand.tell(CutFailed(store="source", message="away"))

        hand.tick(100)

        assert (hand.of(CutRedo), hand.last_cut) == ([], (1, {1: 1, 2: 1}))

    def test_a_redo_never_takes_the_place_of_a_batch_that_is_to_be_skipped(self) -> None:
        hand = self.redriven()
        hand.plans()
        hand.order("skip", 1, order_id=6)
        hand.state = replace(hand.state, batches={}, next_attempts={1: 1, 2: 1}, owed=frozenset({1}))

        hand.order("redrive", 9, order_id=7)
        hand.tick(100)

        assert [action for action in hand.everything if isinstance(action, CutRedo)][1:] == []
        assert hand.last_cut == (1, {1: 1, 2: 1})
