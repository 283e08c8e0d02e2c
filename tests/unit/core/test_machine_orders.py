"""The machine's part in operators' orders: retry, skip, redrive, recompute, replan; and the policy for poison. One
promise a test.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.machines import Hand, chain, plan, ready, redo_in, started
from txtopo.core.events import (
    Answer,
    Cancel,
    Checkpoint,
    Checkpointed,
    Commit,
    CommitEnded,
    CommitQuarantine,
    Cut,
    CutFailed,
    CutRedo,
    End,
    Mirror,
    OrdersSeen,
    Process,
    RecordEnd,
    RedoCut,
    Store,
)
from txtopo.core.state import Phase
from txtopo.core.values import Aborted, Failure, Order, OrderKind, TransactionAttempt, Unknown


def order(hand: Hand, kind: OrderKind, *txids: int, order_id: int = 5, **more: Any) -> None:
    """The leader hears of an order."""
    hand.tell(OrdersSeen(orders=(Order(order_id=order_id, kind=kind, txids=txids, **more),)))


def poisoned(**rules: Any) -> Hand:
    """Batch 1 is through, batch 2 has used up its only attempt, batch 3 waits behind it."""
    hand = ready(3, attempts_max=1, workers=1, **rules)
    hand.succeed(1)
    hand.fail(2, 0, "data")
    return hand


def halted(**rules: Any) -> Hand:
    """As `poisoned`, with batch 1 not committed yet, so that the halt still waits for it."""
    hand = poisoned(**rules)
    assert hand.state.halting is not None
    return hand


class TestRetry:
    def test_a_retried_batch_gets_its_attempts_again_and_the_halt_is_called_off(self) -> None:
        """Every failed, uncommitted batch again, with its stored metadata."""
        hand = halted()

        order(hand, "retry", 2)

        assert hand.state.halting is None
        assert started(hand) == ["2:1"]

    def test_the_order_is_answered_once_its_batch_is_committed(self) -> None:
        hand = halted()
        order(hand, "retry", 2)
        hand.succeed(2, 1)
        hand.mirrored(2)
        hand.committed(1)

        hand.committed(2)

        (answer,) = hand.of(Answer)
        assert (answer.order_id, answer.state, answer.answer) == (5, "done", "batch 2 is committed")
        assert answer.action is not None
        assert answer.action.command == "retry"

    def test_a_batch_that_fails_again_refuses_the_order_in_its_words(self) -> None:
        hand = halted()
        order(hand, "retry", 2)

        hand.fail(2, 1, "data")

        (answer,) = hand.of(Answer)
        assert answer.state == "refused"
        assert "failed again" in answer.answer
        assert "boom" in answer.answer
        assert answer.action is None

    def test_a_retry_of_what_is_committed_is_done_and_one_of_what_is_not_planned_is_refused(self) -> None:
        hand = Hand(last_txid=4)
        hand.tick()

        order(hand, "retry", 3, order_id=1)
        committed = hand.of(Answer)
        order(hand, "retry", 9, order_id=2)
        unknown = hand.of(Answer)

        assert [(a.state, a.answer) for a in committed] == [("done", "batch 3 is in the ledger already")]
        assert [(a.state, a.answer) for a in unknown] == [("refused", "batch 9 is not planned")]

    def test_hearing_of_an_order_twice_changes_nothing(self) -> None:
        hand = halted()
        order(hand, "retry", 2)

        order(hand, "retry", 2)

        assert hand.actions == []


class TestSkip:
    def test_a_skipped_batch_is_quarantined_in_its_place_and_the_next_one_commits(self) -> None:
        """R14: a ledger row in sequence, never an absence."""
        hand = halted()

        order(hand, "skip", 2, reason="empty on purpose")
        hand.mirrored(1)
        hand.committed(1)
        hand.mirrored(2)

        (action,) = hand.of(CommitQuarantine)
        assert (action.plan.txid, action.quarantine.reason, action.quarantine.order_id) == (2, "empty on purpose", 5)
        assert action.quarantine.attempt == TransactionAttempt(2, 0)
        assert hand.of(Commit) == []

    def test_the_order_is_answered_when_the_quarantine_is_in_the_ledger(self) -> None:
        hand = halted()
        order(hand, "skip", 2, reason="no")
        hand.mirrored(2)
        hand.committed(1)

        hand.committed(2)

        assert [(a.state, a.answer) for a in hand.of(Answer)] == [("done", "batch 2 is quarantined")]

    def test_a_batch_in_processing_is_cancelled_first(self) -> None:
        hand = ready(1)

        order(hand, "skip", 1, reason="no")

        assert [c.attempt for c in hand.of(Cancel)] == [TransactionAttempt(1, 0)]
        assert [(r.attempt, r.state) for r in hand.of(RecordEnd)] == [(TransactionAttempt(1, 0), "cancelled")]
        assert hand.state.batches[1].phase is Phase.QUARANTINED

    def test_a_skipped_batch_never_runs_when_the_order_is_there_at_takeover(self) -> None:
        hand = Hand(plans=chain(1, 1))

        order(hand, "skip", 1, reason="ends its process")

        assert hand.of(Process) == []

    def test_a_commit_under_way_is_not_disturbed_and_the_order_says_that_it_came_too_late(self) -> None:
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)
        order(hand, "skip", 1, reason="no")
        assert hand.state.batches[1].phase is Phase.COMMITTING

        hand.committed(1)

        assert [(a.state, a.answer) for a in hand.of(Answer)] == [
            ("refused", "batch 1 was committed before the order came")
        ]

    def test_an_unknown_outcome_is_resolved_before_the_batch_is_condemned(self) -> None:
        """R7: nobody may decide about a batch whose COMMIT may have happened."""
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)
        order(hand, "skip", 1, reason="no")

        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="cut"),)))
        unsure = hand.state.batches[1]
        hand.tell(
            CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="infrastructure", message="did not happen")),))
        )

        assert unsure.quarantine is None
        assert hand.state.batches[1].phase is Phase.QUARANTINED

    def test_a_quarantine_that_was_aborted_is_tried_again(self) -> None:
        hand = ready(1)
        order(hand, "skip", 1, reason="no")
        hand.mirrored(1)
        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="infrastructure", message="deadlock")),)))

        hand.tick(20)

        assert [action.plan.txid for action in hand.of(CommitQuarantine)] == [1]

    def test_an_order_carried_out_by_a_leader_that_died_before_it_answered_is_done(self) -> None:
        """An order that a leader had begun when it died is carried out once."""
        hand = Hand(last_txid=4)
        hand.tick()

        order(hand, "skip", 4, acted=True, order_id=1)
        before = hand.of(Answer)
        order(hand, "skip", 3, order_id=2)
        other = hand.of(Answer)

        assert [(a.state, a.answer) for a in before] == [("done", "batch 4 is quarantined")]
        assert [(a.state, a.answer) for a in other] == [("refused", "batch 3 is in the ledger already")]


class TestPoison:
    def test_by_default_a_batch_whose_attempts_are_used_up_halts_the_topology(self) -> None:
        hand = poisoned()

        hand.mirrored(1)
        hand.committed(1)

        assert [end.kind for end in hand.of(End)] in ([], ["halted"])
        assert hand.of(CommitQuarantine) == []

    def test_quarantine_batch_keeps_its_place_and_goes_on(self) -> None:
        """R14: with on_poison="quarantine_batch" neighbours are committed in order."""
        hand = poisoned(on_poison="quarantine_batch")
        hand.proven(2)
        hand.mirrored(1)
        hand.committed(1)
        hand.succeed(3)
        hand.mirrored(3)

        (action,) = hand.of(CommitQuarantine)
        hand.committed(2)

        assert action.quarantine.reason == "1 attempt failed: boom"
        assert action.quarantine.attempt == TransactionAttempt(2, 0)
        assert [item.plan.txid for commit in hand.of(Commit) for item in commit.items] == [3]
        assert hand.state.quarantined == 1

    def test_infrastructure_failures_never_quarantine(self) -> None:
        """A store away, a deadlock, a lost executor never use up attempts."""
        hand = ready(1, attempts_max=1, on_poison="quarantine_batch")

        for attempt in range(20):
            hand.fail(1, attempt, "infrastructure")
            hand.tick(60)

        assert hand.state.batches[1].quarantine is None

    def test_a_suspect_that_ran_alone_three_times_is_quarantined_too(self) -> None:
        hand = ready(1, on_poison="quarantine_batch")

        for attempt in range(4):
            hand.fail(1, attempt, "suspect")
            hand.tick(60)
        hand.proven(1)

        quarantine = hand.state.batches[1].quarantine
        assert quarantine is not None
        assert "no verdict from 3 attempts that ran alone" in quarantine.reason


class TestRedo:
    def test_a_redo_is_planned_at_the_end_of_the_order_before_new_input(self) -> None:
        hand = Hand(last_txid=7)
        order(hand, "redrive", 3)

        (cut,) = hand.of(CutRedo)

        assert (cut.first_txid, redo_in(cut).txid, redo_in(cut).kind) == (8, 3, "redrive")
        assert hand.of(Cut) == []

    def test_the_batches_of_a_recompute_are_planned_one_after_the_other(self) -> None:
        hand = Hand(last_txid=7)
        order(hand, "recompute", 3, 5)
        (first,) = hand.of(CutRedo)

        hand.tell(RedoCut(redo=first.redo, plan=plan(8)))

        (second,) = hand.of(CutRedo)
        assert (second.first_txid, redo_in(second).txid) == (9, 5)

    def test_the_order_is_answered_when_the_last_of_them_is_committed(self) -> None:
        hand = Hand(last_txid=7, plans=())
        order(hand, "recompute", 3)
        hand.tell(RedoCut(redo=hand.of(CutRedo)[0].redo, plan=plan(8)))
        hand.succeed(8)
        hand.mirrored(8)

        hand.committed(8)

        assert [(a.state, a.answer) for a in hand.of(Answer)] == [("done", "batch 3 is redone as batch 8")]

    def test_what_is_redone_already_is_said_and_not_done_again(self) -> None:
        """Twice commits once."""
        hand = Hand(last_txid=7)
        order(hand, "redrive", 3)

        hand.tell(RedoCut(redo=hand.of(CutRedo)[0].redo, by=6))

        assert [(a.state, a.answer) for a in hand.of(Answer)] == [("done", "batch 3 was redone already, as batch 6")]

    def test_a_redo_that_an_earlier_leader_planned_is_waited_for(self) -> None:
        hand = Hand(last_txid=7, plans=chain(8, 8))
        order(hand, "redrive", 3)

        hand.tell(RedoCut(redo=hand.of(CutRedo)[0].redo, by=8))

        assert hand.of(Answer) == []
        assert hand.state.orders[5].waiting == {8: 3}

    def test_an_order_is_done_only_if_all_of_it_came_out_well(self) -> None:
        """Exit code 1 where one of several batches failed again, whatever became of the others."""
        hand = Hand(last_txid=7)
        order(hand, "recompute", 3, 5)
        hand.tell(RedoCut(redo=hand.of(CutRedo)[0].redo, by=6))

        hand.tell(RedoCut(redo=hand.of(CutRedo)[0].redo, refused="no"))

        assert [(a.state, a.answer) for a in hand.of(Answer)] == [
            ("refused", "batch 3 was redone already, as batch 6; no")
        ]

    def test_what_may_not_be_redone_refuses_the_order(self) -> None:
        hand = Hand(last_txid=7)
        order(hand, "redrive", 3)

        hand.tell(RedoCut(redo=hand.of(CutRedo)[0].redo, refused="batch 3 is not quarantined"))

        assert [(a.state, a.answer) for a in hand.of(Answer)] == [("refused", "batch 3 is not quarantined")]

    def test_a_redo_that_could_not_be_planned_now_is_tried_again(self) -> None:
        hand = Hand(last_txid=7)
        order(hand, "redrive", 3)
        hand.tell(CutFailed(store="zookeeper", message="away"))

        hand.tick(60)

        assert [redo_in(cut).txid for cut in hand.of(CutRedo)] == [3]

    def test_uncommitted_redos_are_named_so_that_none_is_planned_twice(self) -> None:
        hand = Hand(last_txid=7)
        order(hand, "recompute", 3, 5)
        first = hand.of(CutRedo)[0].redo
        redo = plan(8)

        hand.tell(RedoCut(redo=first, plan=type(redo)(**{**vars(redo), "kind": "redo", "redo_of": 3, "order_id": 5})))

        assert hand.of(CutRedo)[0].open_redos == ((3, 8, 5),)


def test_results_that_a_halt_leaves_uncommitted_are_no_suspects_of_the_next_leader() -> None:
    """An attempt without an end ran when its driver died; one that was processed well did not, and need not run alone."""  # noqa: E501
    hand = ready(3, attempts_max=1)
    hand.succeed(1)
    hand.succeed(3)
    hand.fail(2, 0, "data")
    hand.plans()
    hand.mirrored(1)
    hand.committed(1)

    hand.tell(Checkpointed(last_txid=1, keep_from=1))

    ended = [(str(action.attempt), action.state) for action in hand.everything if isinstance(action, RecordEnd)]
    assert ended == [("2:0", "failed"), ("3:0", "cancelled")]


class TestReplan:
    def test_a_replan_ends_the_lead_between_two_commits(self) -> None:
        """R3: plans are dropped only under a new epoch."""
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)
        order(hand, "replan", reason="wrong schema")
        hand.plans()
        assert hand.of(End) == []

        hand.committed(1)

        assert [end.kind for end in hand.of(End)] == ["replan"]


class TestWithoutNewInput:
    def test_nothing_is_cut_and_the_run_ends_when_planned_batches_and_orders_are_done(self) -> None:
        hand = Hand(cut=False, plans=chain(1, 1))
        order(hand, "redrive", 1)
        assert hand.of(Cut) == []
        hand.tell(RedoCut(redo=hand.of(CutRedo)[0].redo, refused="no"))
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)
        checkpoint = hand.of(Checkpoint)

        hand.tell(Checkpointed(last_txid=1, keep_from=1))

        assert len(checkpoint) == 1
        (end,) = hand.of(End)
        assert (end.kind, end.reason) == (
            "stopped",
            "what was planned or ordered is done; new input was not looked for",
        )

    @pytest.mark.parametrize("store", ["source", "zookeeper"])
    def test_a_run_does_not_finish_while_a_redo_that_was_ordered_could_not_be_planned_yet(self, store: Store) -> None:
        """The input is at its end and every batch committed, and the order is owed all the same."""
        hand = Hand(7, cut=False)
        order(hand, "redrive", 3)
        first = [redo_in(cut).txid for cut in hand.of(CutRedo)]
        hand.tell(Checkpointed(last_txid=7, keep_from=1))

        hand.tell(CutFailed(store=store, message="away"))

        assert (first, hand.state.ended, hand.of(CutRedo)) == ([3], None, [])
        hand.tick(31)
        assert [redo_in(cut).txid for cut in hand.of(CutRedo)] == [3]

    def test_a_run_does_not_end_while_an_order_is_open(self) -> None:
        hand = Hand(cut=False)

        order(hand, "redrive", 1)
        hand.tick(60)

        assert hand.state.ended is None

    def test_ids_of_attempts_never_go_back_for_a_txid_that_is_planned_anew(self) -> None:
        """Attempt ids only grow, also when the plan that they were made with was dropped."""
        hand = Hand(next_attempts={1: 3})
        hand.tick()

        hand.plans(plan(1))

        assert started(hand) == ["1:3"]


def test_mirroring_takes_a_quarantined_batch_along() -> None:
    """R9: a quarantined batch has its plan in Postgres before its ledger row."""
    hand = ready(2, workers=1)

    order(hand, "skip", 1, reason="no")

    assert [[p.txid for p in action.plans] for action in hand.of(Mirror)] == [[1]]
