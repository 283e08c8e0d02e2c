"""Opaque batches in the machine: what a failure takes with it, what is pinned, what is counted on, and what operators'
orders mean for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import Hand, chain, plan, started
from txtopo.core.events import (
    Answer,
    AttemptNotBegun,
    Cancel,
    Commit,
    CommitEnded,
    Cut,
    CutFailed,
    CutRedo,
    End,
    HaltRequired,
    Mirror,
    MirrorFailed,
    OrdersSeen,
    PlansCut,
    Process,
    RecordEnd,
)
from txtopo.core.health import health_of
from txtopo.core.plan import Plan
from txtopo.core.state import Phase
from txtopo.core.values import Aborted, Failure, Order, OrderKind, TransactionAttempt
from txtopo.errors import InvariantBroken


class OpaqueHand(Hand):
    """A hand whose cuts chain, and are numbered by their attempts, as a planner's are."""

    def __init__(self, count: int = 0, **settings: Any) -> None:
        again = settings.get("next_attempts", {}).keys() - {one.txid for one in settings.get("plans", ())}
        super().__init__(opaque=True, **{"spout_pending_max": 6, "owed": frozenset(again), **settings})
        self.known: dict[int, Plan] = {one.txid: one for one in settings.get("plans", ())}
        self.tick()
        if count:
            self.cut(count)

    def made(self, count: int, **changes: Any) -> tuple[Plan, ...]:
        """What a planner would give for the cut that is asked for."""
        cut = [action for action in self.everything if isinstance(action, Cut | CutRedo)][-1]
        plans: list[Plan] = []
        for txid in range(cut.first_txid, cut.first_txid + count):
            before = plans[-1] if plans else self.known.get(txid - 1)
            cut_id = cut.attempts.get(txid, 0)
            made = plan(txid, before.digest if before else b"before", path=f"/{txid}/{cut_id}")
            plans.append(replace(made, cut=cut_id, **changes))
        self.known |= {one.txid: one for one in plans}
        return tuple(plans)

    def cut(self, count: int, **settings: Any) -> list[Any]:
        """The cut that is under way gives so many plans."""
        return self.tell(PlansCut(plans=self.made(count), exhausted=settings.get("exhausted", False)))

    @property
    def last_cut(self) -> tuple[int, Mapping[int, int]]:
        """Where the last cut that was asked for begins, with the ids that it is to use."""
        cut = [action for action in self.everything if isinstance(action, Cut)][-1]
        return cut.first_txid, cut.attempts

    def order(self, kind: OrderKind, *txids: int, order_id: int = 5) -> list[Any]:
        """An operator's order."""
        return self.tell(OrdersSeen(orders=(Order(order_id=order_id, kind=kind, txids=txids, reason="no"),)))

    def recut(self, count: int) -> list[Any]:
        """The backoff is over, and the cut is made."""
        self.tell(PlansCut(plans=(), exhausted=False)) if self.state.cutting else None
        self.tick(100)
        return self.cut(count)

    @property
    def answers(self) -> list[tuple[str, str]]:
        return [(one.state, one.answer) for one in self.everything if isinstance(one, Answer)]


def three(**settings: Any) -> OpaqueHand:
    """1 to 3 in processing, no cut under way."""
    return OpaqueHand(3, **{"spout_pending_max": 3, "workers": 3, **settings})


class TestFailure:
    def test_a_failed_batch_discards_the_work_of_all_later_ones(self) -> None:
        """A failed attempt of n discards the attempts of all later txids."""
        hand = three()
        hand.succeed(2)

        hand.fail(1, 0, "data")

        ended = {(str(end.attempt), end.state) for end in hand.of(RecordEnd)}
        assert ended == {("1:0", "failed"), ("2:0", "cancelled"), ("3:0", "cancelled")}
        assert [str(cancel.attempt) for cancel in hand.of(Cancel)] == ["3:0"]
        assert dict(hand.state.batches) == {}
        assert hand.state.held_bytes == 0

    def test_earlier_batches_are_left_alone(self) -> None:
        hand = three()
        hand.succeed(1)

        hand.fail(2, 0, "infrastructure")

        assert [str(b.transaction_attempt) for b in hand.state.batches.values()] == ["1:0"]
        assert hand.state.batches[1].phase is Phase.PROCESSED

    def test_it_is_cut_again_after_its_backoff_with_ids_that_were_never_used(self) -> None:
        hand = three()

        hand.fail(2, 0, "data")
        at_once = hand.of(Cut)
        hand.tick(100)

        (cut,) = hand.of(Cut)
        assert at_once == []
        assert (cut.first_txid, dict(cut.attempts)) == (2, {2: 1, 3: 1})
        hand.cut(2)
        assert started(hand) == ["2:1", "3:1"]

    def test_a_result_of_a_discarded_attempt_is_not_used(self) -> None:
        hand = three()
        hand.fail(1, 0, "data")
        hand.recut(3)

        hand.succeed(2, 0)

        assert hand.state.batches[2].phase is not Phase.PROCESSED
        assert hand.state.running == {TransactionAttempt(n, 1) for n in (1, 2, 3)} | {TransactionAttempt(3, 0)}

    def test_an_attempt_that_could_not_begin_is_cut_again_too(self) -> None:
        """Whether it had begun the stores do not know."""
        hand = three()

        hand.tell(AttemptNotBegun(attempt=TransactionAttempt(2, 0), store="postgres", message="away"))

        assert sorted(hand.state.batches) == [1]
        assert hand.state.next_attempts == {2: 1, 3: 1}

    def test_an_attempt_without_progress_is_cut_again_and_runs_alone(self) -> None:
        hand = three(message_timeout_s=5)
        hand.tick(1, {TransactionAttempt(n, 0): 1 for n in (1, 3)})
        hand.tick(4.5, {TransactionAttempt(n, 0): 2 for n in (1, 3)})

        assert sorted(hand.state.batches) == [1]
        hand.succeed(1)
        hand.recut(2)
        assert started(hand) == ["2:1"]
        assert [process.alone for process in hand.of(Process)] == [True]

    def test_failures_are_counted_over_all_cuts(self) -> None:
        """Failure counts of n survive the re-cut: at `attempts_max` the policy decides."""
        hand = three(attempts_max=2)
        hand.fail(1, 0, "data")
        hand.recut(3)

        hand.fail(1, 1, "data")

        assert [end.kind for end in hand.of(End)] == ["halted"]
        assert "2 attempts failed" in hand.of(End)[0].reason

    def test_the_failures_of_a_later_batch_survive_that_of_an_earlier_one(self) -> None:
        hand = three(attempts_max=2)
        hand.fail(3, 0, "data")
        hand.fail(2, 0, "infrastructure")
        hand.recut(2)

        assert [hand.state.batches[n].data_failures for n in (2, 3)] == [0, 1]
        assert [hand.state.batches[n].other_failures for n in (2, 3)] == [1, 0]

    def test_dead_letters_survive_the_new_cut(self) -> None:
        hand = three(attempts_max=1, on_poison="dead_letter_rows")
        hand.fail(1, 0, "data")

        hand.recut(1)

        (process,) = hand.of(Process)
        assert (process.dead_letter, str(process.attempts[0][0])) == (True, "1:1")

    def test_a_halt_over_a_later_batch_is_void_when_an_earlier_one_is_cut_again(self) -> None:
        """What it halted over will be another batch."""
        hand = three(attempts_max=1, workers=3)
        hand.fail(3, 0, "data")
        assert hand.state.halting is not None

        hand.fail(1, 0, "infrastructure")

        assert hand.state.halting is None
        hand.tick(100)
        assert hand.last_cut == (1, {1: 1, 2: 1, 3: 1})

    def test_a_source_that_was_at_its_end_is_asked_again(self) -> None:
        hand = OpaqueHand(2, spout_pending_max=3, workers=2)
        hand.plans(exhausted=True)

        hand.fail(1, 0, "data")
        hand.tick(100)

        assert hand.last_cut == (1, {1: 1, 2: 1})

    def test_health_names_the_batch_that_is_to_be_cut_again(self) -> None:
        """A topology that fails for ever is not running."""
        hand = OpaqueHand(1, spout_pending_max=1, message_timeout_s=10)
        hand.fail(1, 0, "infrastructure")
        hand.tick(0.0)
        hand.now += 11

        health = health_of(hand.state, hand.now)

        assert health.state == "stalled"
        assert health.waiting == {"txid": 1, "attempt": 1, "phase": "to be cut again", "for_s": 11.0}
        assert "boom" in (health.problem or "")

    def test_time_goes_on_counting_while_a_batch_waits_to_be_cut_again(self) -> None:
        hand = OpaqueHand(1, spout_pending_max=1)
        hand.fail(1, 0, "infrastructure")
        before = hand.state.moved_at

        hand.tick(0.01)

        assert hand.state.moved_at == before


class TestCutUnderWay:
    """A cut that follows a discarded plan may give anything: none of it is used."""

    def stale(self) -> OpaqueHand:
        hand = OpaqueHand(2, workers=2)
        assert hand.state.cutting
        stale = hand.made(2)
        hand.fail(1, 0, "data")
        hand.plans(*stale)
        return hand

    def test_its_plans_are_dropped_and_their_ids_are_used_up(self) -> None:
        """Create-only: their nodes are there for ever."""
        hand = self.stale()

        assert dict(hand.state.batches) == {}
        assert dict(hand.state.next_attempts) == {1: 1, 2: 1, 3: 1, 4: 1}
        assert hand.state.owed == {1, 2, 3, 4}, "planned once, so no run has finished without them"
        hand.tick(100)
        assert hand.last_cut == (1, {1: 1, 2: 1, 3: 1, 4: 1})

    @pytest.mark.parametrize(
        "event",
        [
            CutFailed(store="zookeeper", message="away"),
            HaltRequired(reason="no batch", txid=3, planning=True),
            PlansCut(plans=(), exhausted=True),
        ],
        ids=["failed", "cannot be a batch", "at its end"],
    )
    def test_nor_does_its_end_mean_anything(self, event: Any) -> None:
        hand = OpaqueHand(2, workers=2)
        hand.fail(1, 0, "data")

        hand.tell(event)

        assert (hand.state.halting, hand.state.exhausted, hand.state.cutting) == (None, False, False)
        hand.tick(100)
        assert hand.last_cut[0] == 1

    def test_no_second_cut_begins_before_it_has_ended(self) -> None:
        hand = OpaqueHand(2, workers=2)
        hand.fail(1, 0, "data")

        hand.tick(100)

        assert hand.of(Cut) == []

    def test_a_plan_that_does_not_follow_the_one_before_is_never_taken(self) -> None:
        """R12: a stale plan whose previous digest does not match may never be processed or mirrored."""
        hand = OpaqueHand(1, workers=2)

        with pytest.raises(InvariantBroken, match="does not follow the plan before"):
            hand.plans(plan(2, b"an earlier cut of 1"))

    def test_nor_one_that_does_not_follow_what_was_committed(self) -> None:
        hand = OpaqueHand(1, spout_pending_max=1)
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)

        with pytest.raises(InvariantBroken, match="does not follow the plan before"):
            hand.plans(plan(2, b"an earlier cut of 1"))

    def test_a_plan_with_an_id_that_was_used_is_never_taken(self) -> None:
        hand = three()
        hand.fail(1, 0, "data")
        hand.tick(100)

        with pytest.raises(InvariantBroken, match="first that was never made"):
            hand.plans(plan(1))


class TestMirror:
    def test_only_the_lowest_is_mirrored(self) -> None:
        """R9: an opaque plan only as last+1, and only once it is processed."""
        hand = three()
        hand.succeed(2)
        assert hand.of(Mirror) == []

        hand.succeed(1)

        assert [[one.txid for one in mirror.plans] for mirror in hand.of(Mirror)] == [[1]]
        hand.mirrored(1)
        assert (len(hand.of(Commit)), hand.of(Mirror)) == (1, [])
        hand.committed(1)
        assert [[one.txid for one in mirror.plans] for mirror in hand.of(Mirror)] == [[2]]

    @pytest.mark.parametrize("answered", [True, False])
    def test_what_is_mirrored_or_may_be_is_never_cut_again(self, answered: bool) -> None:
        """The mirror pins the winner; its reply may be lost and the row be there."""
        hand = three(postgres_away_max_s=1e9)
        hand.succeed(1)
        pinned = hand.known[1]
        hand.mirrored(1) if answered else hand.tell(MirrorFailed(message="no reply"))
        hand.tick(100)
        hand.mirrored(1) if not answered else None

        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="data", message="overflow")),)))
        hand.tick(100)

        assert hand.state.batches[1].plan == pinned
        assert [
            str(a)
            for process in hand.everything
            if isinstance(process, Process)
            for a, p in process.attempts
            if p == pinned
        ] == ["1:0", "1:1"]

    def test_a_failed_commit_discards_what_is_finished_behind_it(self) -> None:
        hand = three()
        for txid in (1, 2, 3):
            hand.succeed(txid)
        hand.mirrored(1)

        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="data", message="overflow")),)))

        assert sorted(hand.state.batches) == [1]
        assert hand.last_cut == (2, {2: 1, 3: 1})

    def test_a_refusal_of_the_server_fails_no_attempt(self) -> None:
        """Aborted by the store: the same results are used again."""
        hand = three()
        for txid in (1, 2):
            hand.succeed(txid)
        hand.mirrored(1)

        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="infrastructure", message="deadlock")),)))

        assert sorted(hand.state.batches) == [1, 2, 3]

    def test_plans_found_at_takeover_are_pinned(self) -> None:
        hand = OpaqueHand(plans=(plan(1),), next_attempts={1: 2}, workers=1)

        hand.fail(1, 2, "data")

        assert hand.state.batches[1].attempt == 3

    def test_a_failure_discards_nothing_that_is_pinned(self) -> None:
        """P7: where Postgres lost several commits, all their plans are pinned."""
        hand = OpaqueHand(plans=chain(1, 2), next_attempts={1: 1, 2: 1}, workers=2)
        hand.cut(1)

        hand.fail(1, 1, "data")

        assert sorted(hand.state.batches) == [1, 2]
        assert [str(end.attempt) for end in hand.of(RecordEnd)] == ["1:1"]


class TestTakeover:
    def test_what_was_running_unmirrored_is_a_suspect_when_it_is_cut_again(self) -> None:
        """A bolt that ends its process is found although its batch is cut again each time."""
        hand = OpaqueHand(suspects={1: 2}, next_attempts={1: 3}, workers=2)
        hand.cut(2)

        assert started(hand) == ["1:3"]
        assert hand.state.batches[1].runs_alone == 3
        hand.fail(1, 3, "suspect")
        assert [end.kind for end in hand.of(End)] == ["halted"]

    def test_without_new_input_what_was_cut_before_is_cut_again(self) -> None:
        """`txtopo retry` plans nothing new, but opaque batches that were planned once are not to be forgotten."""
        hand = OpaqueHand(cut=False, next_attempts={1: 1, 2: 4}, spout_pending_max=9)

        (cut,) = [action for action in hand.everything if isinstance(action, Cut)]
        assert (cut.first_txid, cut.count, dict(cut.attempts)) == (1, 2, {1: 1, 2: 4})
        hand.cut(2)
        assert hand.of(Cut) == []

    def test_without_new_input_and_without_old_the_run_is_at_its_end(self) -> None:
        hand = OpaqueHand(cut=False)

        (end,) = [end for end in hand.everything if isinstance(end, End)]
        assert (end.kind, end.reason) == (
            "stopped",
            "what was planned or ordered is done; new input was not looked for",
        )
