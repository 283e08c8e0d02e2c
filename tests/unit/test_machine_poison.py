"""The machine's decisions about a batch that fails for good: whose fault it is, one promise a test."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.machines import Hand, chain, failed, ready, started
from txtopo.core.events import (
    AttemptEnded,
    Checkpointed,
    CommitEnded,
    CommitQuarantine,
    End,
    Process,
    Prove,
    RecordEnd,
    RequestsSeen,
    StopRequested,
)
from txtopo.core.state import Phase
from txtopo.core.values import Aborted, Failed, Failure, Request, TransactionAttempt


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

        hand.tell(RequestsSeen(requests=(Request(request_id=1, kind="retry", txids=(2,)),)))

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
        assert (end.kind, end.txid) == ("halted", 2)
        assert "no batch is at fault: parse: no module named helper (the same processing over no rows" in end.reason
        assert not [one for one in hand.everything if isinstance(one, CommitQuarantine)]

    def test_a_proof_without_an_end_is_tried_again(self) -> None:
        """An executor that is away proves nothing."""
        hand = broken()

        hand.proven(2, Failure(kind="infrastructure", message="executor lost"))
        early = hand.of(Prove)
        hand.tick(60)

        assert (early, [one.plan.txid for one in hand.of(Prove)]) == ([], [2])

    def test_one_proof_at_a_time_and_none_above_a_halt(self) -> None:
        hand = ready(4, workers=4, attempts_max=1, on_poison="quarantine_batch")
        for txid in (4, 3, 2):
            hand.fail(txid, 0, "data")

        hand.proven(4)
        after = [one.plan.txid for one in hand.of(Prove)]
        hand.proven(2, Failure(kind="data", message="x"))

        assert (after, hand.of(Prove), hand.state.batches[3].phase) == ([2], [], Phase.PROVING)

    def test_a_failed_commit_is_proven_by_a_commit(self) -> None:
        hand = ready(1, attempts_max=1, on_poison="quarantine_batch")
        hand.succeed(1)
        hand.mirrored(1)

        hand.tell(CommitEnded(outcome=Aborted(txid=1, failure=Failure(kind="data", message="does not fit"))))

        assert [one.step for one in hand.of(Prove)] == ["commit"]

    def test_an_order_overtakes_a_proof(self) -> None:
        """Skipped meanwhile, or tried again: what the proof says then changes nothing."""
        skipped, again = broken(), broken()
        skipped.tell(RequestsSeen(requests=(Request(request_id=1, kind="skip", txids=(2,)),)))
        again.tell(RequestsSeen(requests=(Request(request_id=1, kind="retry", txids=(2,)),)))

        for hand in (skipped, again):
            hand.proven(2, Failure(kind="data", message="x"))

        quarantine = skipped.state.batches[2].quarantine
        assert quarantine is not None and quarantine.request_id == 1
        assert (again.state.batches[2].phase, again.state.halting) == (Phase.PROCESSING, None)

    def test_a_stop_does_not_wait_for_a_proof(self) -> None:
        hand = Hand(plans=chain(1, 1), cut=False, attempts_max=1, on_poison="quarantine_batch")
        hand.tick()
        hand.fail(1, 0, "data")

        hand.tell(StopRequested(at_once=False, reason="enough"))

        assert [end.kind for end in hand.of(End)] == ["stopped"]


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (Failure(kind="data", message="a.py:7: ValueError: bad 'x'", component="b"), "ValueError in b at a.py:7"),
        (Failure(kind="data", message="KeyError: 'x'", component="b"), "KeyError in b"),
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
