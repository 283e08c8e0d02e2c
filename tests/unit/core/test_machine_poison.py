"""The machine's decisions about a batch that fails for good: whose fault it is, one promise a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import Hand, chain, failed, processed, ready, started
from txtopo.core.events import (
    AttemptEnded,
    AttemptNotBegun,
    Checkpointed,
    CommitEnded,
    CommitQuarantine,
    End,
    HaltRequired,
    MirrorFailed,
    OrdersSeen,
    PostgresAnswered,
    Process,
    Prove,
    RecordEnd,
    ResolveFailed,
    StopWanted,
)
from txtopo.core.limits import COMMIT_TRIES_MAX
from txtopo.core.remedies import RUN_AGAIN
from txtopo.core.state import Phase
from txtopo.core.values import Aborted, Failed, Failure, Order, TransactionAttempt, Unknown
from txtopo.errors import Patience


def broken(count: int = 3, txid: int = 2, **rules: Any) -> Hand:
    """Batch 1 waits for its mirror, batch `txid` has used up its attempts, what it is about is not proven yet."""
    hand = ready(count, workers=count, attempts_max=1, on_poison="quarantine_batch", **rules)
    hand.succeed(1)
    hand.fail(txid, 0, "data")
    return hand


class TestNobodysFault:
    def halted(self, **rules: Any) -> Hand:
        """The first attempt of batch 2 fails although no batch is at fault."""
        hand = ready(3, workers=3, **rules)
        failure = Failure(kind="halt", message="no module named helper", next_command="ship it")
        hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(2, 0), failure=failure)))
        return hand

    @pytest.mark.parametrize("policy", ["halt", "quarantine_batch", "dead_letter_rows"])
    def test_a_failure_that_is_no_batchs_fault_halts_at_once_behind_the_batches_below(self, policy: str) -> None:
        """W2: not counted, not tried again, never left out; what lies below is committed first."""
        hand = self.halted(on_poison=policy)

        assert [(one.state, one.failure.kind) for one in hand.of(RecordEnd)] == [("failed", "halt")]
        assert (hand.of(End), hand.of(Process), hand.state.batches[2].data_failures) == ([], [], 0)
        hand.tick(60)
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))
        (end,) = [one for one in hand.everything if isinstance(one, End)]
        assert (end.kind, end.txid, end.next_command) == ("halted", 2, "ship it")
        assert end.reason == "batch 2 of t failed, and no batch is at fault: no module named helper"

    def test_a_retry_calls_the_halt_off(self) -> None:
        hand = self.halted()

        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="retry", txids=(2,)),)))

        assert started(hand) == ["2:1"]


class TestProof:
    def test_before_a_batch_is_left_out_its_step_is_tried_on_what_is_good(self) -> None:
        """W4: one proof, and no quarantine before it has ended."""
        hand = broken()

        assert [(one.plan.txid, one.attempt, one.step) for one in hand.of(Prove)] == [
            (2, TransactionAttempt(2, 0), "processing")
        ]
        assert hand.state.batches[2].phase is Phase.PROVING
        assert (hand.tick(60), hand.state.batches[2].quarantine) == ([], None)

    def test_what_passes_without_the_batch_is_the_batchs_own_fault(self) -> None:
        hand = broken()

        hand.proven(2)
        hand.mirrored(1)
        hand.committed(1)
        hand.mirrored(2)

        assert [action.plan.txid for action in hand.of(CommitQuarantine)] == [2]

    @pytest.mark.parametrize("kind", ["data", "suspect", "halt"])
    def test_what_fails_without_a_row_of_the_batch_halts_the_topology(self, kind: Any) -> None:
        """No batch is left out over what would fail in every batch."""
        hand = broken()

        hand.proven(2, Failure(kind=kind, message="parse: no module named helper", component="parse"))
        hand.mirrored(1)
        hand.committed(1)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))

        (end,) = [one for one in hand.everything if isinstance(one, End)]
        assert (end.kind, end.txid, end.next_command) == ("halted", 2, RUN_AGAIN)
        assert "failed in parse, and no batch is at fault: parse: no module named helper (the same" in end.reason
        assert "(the same processing over no rows" in end.reason
        assert not [one for one in hand.everything if isinstance(one, CommitQuarantine)]

    def test_a_proof_without_an_end_is_tried_again(self) -> None:
        """An executor that is away proves nothing."""
        hand = broken()

        hand.proven(2, Failure(kind="infrastructure", message="executor lost"))
        early = hand.of(Prove)
        hand.tick(60)

        assert (early, [one.plan.txid for one in hand.of(Prove)]) == ([], [2])

    def test_a_proof_of_a_batch_that_is_not_there_any_more_proves_nothing(self) -> None:
        hand = broken()

        assert hand.proven(9) == []
        assert hand.state.batches[2].phase is Phase.PROVING

    def test_one_proof_at_a_time_and_none_above_a_halt(self) -> None:
        hand = ready(4, workers=4, attempts_max=1, on_poison="quarantine_batch")
        for txid in (4, 3, 2):
            hand.fail(txid, 0, "data")

        hand.proven(4)
        after = [one.plan.txid for one in hand.of(Prove)]
        hand.proven(2, Failure(kind="data", message="x"))

        assert (after, hand.of(Prove), hand.state.batches[3].phase) == ([2], [], Phase.PROVING)

    def test_a_halt_above_all_that_is_planned_breaks_no_rule_and_waits_for_nothing(self) -> None:
        """Where planning halts far above, the batches that are there are processed, proven and committed, and then it
        is at its end.
        """
        hand = ready(4, workers=2, wave_bytes_max=1000, attempts_max=1, on_poison="quarantine_batch")
        hand.tell(HaltRequired(reason="no column", txid=9, planning=True))

        hand.fail(1, 0, "data")
        proving = [one.plan.txid for one in hand.of(Prove)]
        hand.proven(1)
        hand.mirrored(1)
        hand.committed(1)
        for txid in (2, 3, 4):
            applied(hand, txid)
        hand.tell(Checkpointed(last_txid=4, keep_from=1))

        assert proving == [1]
        assert [(end.kind, end.txid) for end in hand.of(End)] == [("halted", 9)]

    def test_a_failed_commit_is_proven_by_a_commit(self) -> None:
        hand = ready(1, attempts_max=1, on_poison="quarantine_batch")
        hand.succeed(1)
        hand.mirrored(1)

        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="data", message="does not fit")),)))

        assert [one.step for one in hand.of(Prove)] == ["commit"]

    def test_an_order_overtakes_a_proof(self) -> None:
        """Skipped meanwhile, or tried again: what the proof says then changes nothing."""
        skipped, again = broken(), broken()
        skipped.tell(OrdersSeen(orders=(Order(order_id=1, kind="skip", txids=(2,)),)))
        again.tell(OrdersSeen(orders=(Order(order_id=1, kind="retry", txids=(2,)),)))

        for hand in (skipped, again):
            hand.proven(2, Failure(kind="data", message="x"))

        quarantine = skipped.state.batches[2].quarantine
        assert quarantine is not None and quarantine.order_id == 1
        assert (again.state.batches[2].phase, again.state.halting) == (Phase.PROCESSING, None)

    def test_a_stop_does_not_wait_for_a_proof(self) -> None:
        hand = Hand(plans=chain(1, 1), cut=False, attempts_max=1, on_poison="quarantine_batch")
        hand.tick()
        hand.fail(1, 0, "data")

        hand.tell(StopWanted(at_once=False, reason="enough"))

        assert [end.kind for end in hand.of(End)] == ["stopped"]


def committing(**rules: Any) -> Hand:
    """Batch 1 is being committed."""
    hand = ready(1, **rules)
    hand.succeed(1)
    hand.mirrored(1)
    return hand


def aborted(hand: Hand, patience: Patience, *, heartbeat: bool = True) -> None:
    """The commit under way is aborted through trouble of the store; then a heartbeat goes through, and it is tried
    again.
    """
    failure = Failure(kind="infrastructure", message="no space left on device")
    hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=failure, patience=patience),)))
    if hand.state.ended is None and heartbeat:
        hand.tell(PostgresAnswered())
    if hand.state.ended is None and hand.state.halting is None:
        hand.tick(31)


class TestNothingWaitsForEver:
    @pytest.mark.parametrize(("patience", "most"), [("store", COMMIT_TRIES_MAX), ("once", 2)])
    def test_a_commit_that_fails_again_and_again_while_postgres_answers_halts(
        self, patience: Patience, most: int
    ) -> None:
        """W5: with its words, and not as a failure of the batch."""
        hand = committing(on_poison="quarantine_batch", postgres_away_max_s=1e9)

        for _ in range(most - 1):
            aborted(hand, patience)
        before = hand.state.halting
        aborted(hand, patience)

        halting = hand.state.halting or hand.state.ended
        assert before is None and halting is not None
        assert f"its commit failed {most} times, and Postgres answers: no space left on device" in halting.reason
        assert next(one.failure.kind for one in hand.everything if isinstance(one, RecordEnd)) == "halt"

    def test_a_lock_is_waited_for_without_a_bound(self) -> None:
        hand = committing(postgres_away_max_s=1e9)

        for _ in range(5 * COMMIT_TRIES_MAX):
            aborted(hand, "lock")

        assert (hand.state.halting, hand.state.ended, hand.state.committing) == (None, None, True)

    def test_a_postgres_that_is_away_uses_up_no_tries(self) -> None:
        """R16 sees to that: another driver may reach it."""
        hand = committing(postgres_away_max_s=1e9)

        for _ in range(5 * COMMIT_TRIES_MAX):
            aborted(hand, "store", heartbeat=False)

        assert (hand.state.halting, hand.state.ended) == (None, None)

    def test_a_statement_that_takes_too_long_three_times_is_the_batchs_own_failure(self) -> None:
        hand = committing(attempts_max=1, on_poison="quarantine_batch", postgres_away_max_s=1e9)

        for _ in range(3):
            aborted(hand, "time")

        assert [one.failure.kind for one in hand.everything if isinstance(one, RecordEnd)] == ["data"]
        assert hand.state.batches[1].phase is Phase.PROVING

    def test_a_quarantine_that_cannot_be_written_halts(self) -> None:
        """Nothing of it can be tried again, whoever ordered it."""
        hand = ready(1, postgres_away_max_s=1e9)
        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="skip", txids=(1,)),)))
        hand.mirrored(1)

        for _ in range(COMMIT_TRIES_MAX):
            aborted(hand, "store")

        assert [end.kind for end in hand.everything if isinstance(end, End)] == ["halted"]

    def test_a_commit_whose_outcome_is_never_known_halts(self) -> None:
        """R7: the next leader looks again, before anything else is committed."""
        hand = committing(postgres_away_max_s=1e9)
        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="no answer"),)))

        for _ in range(COMMIT_TRIES_MAX):
            hand.tell(ResolveFailed(message="too many clients"))
            hand.tell(PostgresAnswered())
            hand.tick(31)

        assert [end.kind for end in hand.everything if isinstance(end, End)] == ["halted"]

    def test_a_plan_that_cannot_be_mirrored_halts(self) -> None:
        hand = ready(1, postgres_away_max_s=1e9)
        hand.succeed(1)

        for _ in range(COMMIT_TRIES_MAX):
            hand.tell(MirrorFailed(message="no space left"))
            hand.tell(PostgresAnswered())
            hand.tick(31)

        (end,) = [one for one in hand.everything if isinstance(one, End)]
        assert (end.kind, end.txid) == ("halted", 1)
        assert "its plan could not be mirrored 20 times, and Postgres answers: no space left" in end.reason

    def test_an_attempt_that_cannot_begin_halts(self) -> None:
        hand = Hand(plans=chain(1, 1), cut=False, postgres_away_max_s=1e9)
        hand.tick()

        for number in range(COMMIT_TRIES_MAX):
            hand.tell(AttemptNotBegun(attempt=TransactionAttempt(1, number), store="postgres", message="no space left"))
            hand.tell(PostgresAnswered())
            hand.tick(31)

        (end,) = [one for one in hand.everything if isinstance(one, End)]
        assert "no attempt could begin, 20 times, and Postgres answers: no space left" in end.reason

    def test_a_proof_that_never_ends_halts(self) -> None:
        """W4 too."""
        hand = ready(1, attempts_max=1, on_poison="quarantine_batch")
        hand.fail(1, 0, "data")
        for _ in range(COMMIT_TRIES_MAX):
            hand.proven(1, Failure(kind="infrastructure", message="executor lost"))
            hand.tick(31)

        assert "whether it is at fault could not be found out, 20 times: executor lost" in str(hand.everything)


def in_order(hand: Hand, txid: int) -> None:
    """Mirror and commit, if it comes to that."""
    if hand.state.mirroring:
        hand.mirrored(txid)
    if hand.state.committing:
        hand.committed(txid)


def applied(hand: Hand, txid: int, read: int = 1) -> None:
    """A batch is committed."""
    done = replace(processed(txid, hand.state.batches[txid].attempt), read=read)
    hand.tell(AttemptEnded(outcome=done))
    in_order(hand, txid)


class TestRecordsTakenOut:
    @pytest.mark.parametrize("where", ["whole", "commit"])
    def test_where_taking_records_out_cannot_help_there_is_no_further_attempt(self, where: str) -> None:
        """`dead_letter_rows`: too many rejected records, or rows that the table refuses, would be the same again."""
        hand = ready(1, attempts_max=1, on_poison="dead_letter_rows")
        failure = Failure(kind="data", message="99 of 300 records rejected", of_whole=where == "whole")
        if where == "commit":
            hand.succeed(1)
            hand.mirrored(1)
            hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=failure),)))
        else:
            hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(1, 0), failure=failure)))

        assert hand.state.halting is not None
        assert (hand.state.batches[1].dead_letter, hand.of(Process)) == (False, [])


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (Failure(kind="data", message="a.py:7: ValueError: bad 'x'", component="b"), "data in b"),
        (Failure(kind="data", message="KeyError: 'x'", component="b"), "data in b"),
        (Failure(kind="data", message="12 rows are gone", component="b", position="f.csv:3"), "data in b"),
        (Failure(kind="suspect", message="it died"), "suspect"),
        (Failure(kind="data", message="x", cause="23514 in b at positive"), "23514 in b at positive"),
    ],
    ids=["a line", "a class", "neither", "no component", "its own"],
)
def test_a_failure_is_remembered_with_its_cause_never_with_its_values(failure: Failure, cause: str) -> None:
    """W7: equal causes are told by component, kind of error and place."""
    hand = Hand(plans=chain(1, 1))
    hand.tick()

    hand.tell(AttemptEnded(outcome=Failed(attempt=failed(1, 0, "data").attempt, failure=failure)))

    assert [one.failure.cause for one in hand.of(RecordEnd)] == [cause]
