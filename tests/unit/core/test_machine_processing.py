"""The machine's decisions before a commit: planning and processing, one promise a test."""

from __future__ import annotations

import pytest

from tests.kit.machines import Hand, chain, plan, ready, started
from txtopo.core.events import (
    AttemptNotBegun,
    Cancel,
    Checkpointed,
    Cut,
    CutFailed,
    End,
    HaltRequired,
    Mirror,
    OrdersSeen,
    PlansCut,
    Process,
    Prove,
    RecordEnd,
    ZooKeeperSeen,
)
from txtopo.core.state import Phase
from txtopo.core.values import Order, TransactionAttempt
from txtopo.errors import InvariantBroken


class TestPlanning:
    def test_the_first_thing_is_to_cut_from_the_first_unplanned_txid(self) -> None:
        hand = Hand(last_txid=7, plans=chain(8, 9))

        hand.tick()

        assert [cut.first_txid for cut in hand.of(Cut)] == [10]

    def test_no_more_than_the_pending_maximum_is_planned(self) -> None:
        hand = Hand(spout_pending_max=3, workers=1)
        hand.tick()

        hand.plans(*chain(1, 3))

        assert hand.of(Cut) == []

    @pytest.mark.parametrize(
        ("planned", "pending_max", "counts"),
        [(30, 45, []), (30, 46, [16]), (16, 17, [1]), (17, 18, [])],
        ids=["little room", "room for enough", "little left to process", "enough left to process"],
    )
    def test_while_enough_waits_to_be_processed_plans_are_made_by_the_dozen(
        self, planned: int, pending_max: int, counts: list[int]
    ) -> None:
        """Each cut is a write to ZooKeeper; one after every commit would cost as much as the commits."""
        hand = Hand(plans=chain(1, planned), spout_pending_max=pending_max, workers=1)

        hand.tick()

        assert [cut.count for cut in hand.of(Cut)] == counts

    def test_an_empty_cut_is_repeated_after_the_poll_interval(self) -> None:
        hand = Hand(spout_poll_s=0.5)
        hand.tick()
        hand.plans()

        early, late = hand.tick(0.4), hand.tick(0.2)

        assert early == []
        assert [type(action) for action in late] == [Cut]

    @pytest.mark.parametrize(("ready_in_s", "pause_s"), [(0.2, 0.2), (9.0, 0.5), (0.0, 0.01), (-1.0, 0.01)])
    def test_a_source_that_knows_when_it_has_input_is_asked_then(self, ready_in_s: float, pause_s: float) -> None:
        """Not later than any other source, and never without a pause."""
        hand = Hand(spout_poll_s=0.5)
        hand.tick()
        hand.tell(PlansCut(plans=(), exhausted=False, ready_in_s=ready_in_s))

        early, late = hand.tick(pause_s * 0.9), hand.tick(pause_s * 0.2)

        assert early == []
        assert [type(action) for action in late] == [Cut]

    def test_a_plan_that_leaves_a_hole_is_a_broken_invariant(self) -> None:
        """Txids are contiguous (I2)."""
        hand = Hand()
        hand.tick()

        with pytest.raises(InvariantBroken, match="does not follow"):
            hand.plans(plan(2))

    def test_nothing_is_planned_while_zookeeper_is_suspended(self) -> None:
        """On SUSPENDED stop planning (Z5)."""
        hand = Hand()

        hand.tell(ZooKeeperSeen(suspended=True))
        suspended = hand.of(Cut)
        hand.tell(ZooKeeperSeen(suspended=False))

        assert suspended == []
        assert len(hand.of(Cut)) == 1

    def test_a_cut_that_failed_is_tried_again_with_backoff(self) -> None:
        hand = Hand(workers=0)
        hand.tick()

        hand.tell(CutFailed(store="zookeeper", message="away"))
        at_once = hand.of(Cut)
        hand.tick(1.0)

        assert at_once == []
        assert [cut.first_txid for cut in hand.of(Cut)] == [1]

    def test_batches_before_one_that_cannot_be_planned_are_still_committed(self) -> None:
        hand = ready(1)

        hand.tell(HaltRequired(reason="no column", txid=2, planning=True))
        before = hand.of(End)
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))

        assert before == []
        assert [(end.kind, end.txid) for end in hand.of(End)] == [("halted", 2)]


class TestProcessing:
    def test_several_attempts_process_at_once_lowest_txid_first(self) -> None:
        hand = ready(5, workers=3)

        assert started(hand) == ["1:0", "2:0", "3:0"]

    def test_a_free_worker_takes_the_next_batch(self) -> None:
        hand = ready(5, workers=3)

        hand.succeed(2)

        assert started(hand) == ["4:0"]

    def test_a_failure_gets_a_new_attempt_after_backoff(self) -> None:
        hand = ready(1)

        hand.fail(1, 0, "data")
        at_once = started(hand)
        hand.tick(1.0)

        assert at_once == []
        assert started(hand) == ["1:1"]

    def test_a_failure_leaves_later_batches_alone(self) -> None:
        """A failed attempt of an immutable plan discards nothing."""
        hand = ready(2)
        hand.succeed(2)

        hand.fail(1, 0, "data")

        assert hand.state.batches[2].phase is Phase.PROCESSED

    def test_a_failed_attempt_is_recorded(self) -> None:
        hand = ready(1)

        hand.fail(1, 0, "data")

        assert [(end.attempt, end.state, end.failure.kind) for end in hand.of(RecordEnd)] == [
            (TransactionAttempt(1, 0), "failed", "data")
        ]

    def test_data_failures_halt_at_the_maximum(self) -> None:
        hand = ready(1, attempts_max=2)
        hand.fail(1, 0, "data")
        hand.tick(1.0)

        hand.fail(1, 1, "data")

        assert [(end.kind, end.txid, end.next_command) for end in hand.of(End)] == [("halted", 1, "txtopo show t 1")]
        assert "2 attempts failed" in hand.of(End)[0].reason

    def test_batches_below_a_failed_one_are_committed_before_the_halt(self) -> None:
        hand = ready(3, attempts_max=1, workers=3)

        hand.fail(2, 0, "data")
        early = hand.of(End)
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))

        assert early == []
        assert [(end.kind, end.txid) for end in hand.of(End)] == [("halted", 2)]
        assert [cancel.attempt.txid for cancel in hand.of(Cancel)] == [3]

    def test_the_lowest_failed_batch_is_the_one_that_halts(self) -> None:
        hand = ready(3, attempts_max=1, workers=3)
        hand.fail(3, 0, "data")

        hand.fail(1, 0, "data")

        assert [end.txid for end in hand.of(End)] == [1]

    def test_infrastructure_failures_never_count(self) -> None:
        """Infrastructure errors never quarantine (K8)."""
        hand = ready(1, attempts_max=1)

        for attempt in range(20):
            hand.fail(1, attempt, "infrastructure")
            hand.tick(31.0)

        assert started(hand) == ["1:20"]

    def test_a_suspect_runs_with_nothing_beside_it(self) -> None:
        hand = ready(4, workers=2)
        hand.fail(1, 0, "suspect")
        beside = hand.tick(1.0)
        hand.succeed(2)
        alone = hand.of(Process)
        beside_it = hand.tick(1.0)
        hand.succeed(1, 1)

        assert beside == []
        assert [(str(action.attempts[0][0]), action.alone) for action in alone] == [("1:1", True)]
        assert beside_it == []
        assert started(hand) == ["3:0", "4:0"]

    def test_a_suspect_that_ends_its_process_three_times_alone_halts(self) -> None:
        """Without this a segfault in a bolt is an endless loop."""
        hand = ready(1)
        hand.fail(1, 0, "suspect")
        for attempt in (1, 2):
            hand.tick(31.0)
            assert hand.of(Process)[0].alone
            hand.fail(1, attempt, "suspect")
            assert hand.of(End) == []
        hand.tick(31.0)

        hand.fail(1, 3, "suspect")

        assert "no verdict from 3 attempts that ran alone" in hand.of(End)[0].reason

    def test_a_batch_that_ended_its_driver_three_times_alone_halts_the_next_one(self) -> None:
        """Processed or in its turn: whoever starts the driver again would do so for ever. Those beyond it only waited."""  # noqa: E501
        hand = Hand(plans=chain(1, 3), suspects={1: 3, 2: 5, 3: 0}, next_attempts={1: 4, 2: 6}, workers=3)
        hand.tick()

        assert hand.of(Process) == []
        (end,) = hand.of(End)
        assert "batch 1 of t: no verdict from 3 attempts that ran alone: each ended with its driver" in end.reason
        assert end.next_command is not None and end.next_command.endswith("else txtopo retry t 1")

        hand = Hand(plans=chain(1, 3), suspects={2: 5}, next_attempts={2: 6}, workers=3)
        hand.tick()
        hand.succeed(1)
        assert started(hand) == ["2:6"] and hand.of(Process)[0].alone
        hand.fail(2, 6, "suspect")
        assert hand.state.halting is not None and hand.state.halting.txid == 2

    def test_a_batch_that_ended_its_driver_is_left_out_or_tried_again_as_ordered(self) -> None:
        hand = Hand(plans=chain(1, 3), suspects={1: 3}, next_attempts={1: 4}, on_poison="quarantine_batch")
        hand.tick()
        assert [action.plan.txid for action in hand.of(Prove)] == [1]

        hand = Hand(plans=chain(1, 3), suspects={1: 3}, next_attempts={1: 4})
        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="retry", txids=(1,)),)))
        assert started(hand) == ["1:4"]
        hand.succeed(1, 4)
        assert hand.state.batches[1].phase is Phase.PROCESSED

    def test_a_suspect_found_at_takeover_runs_alone(self) -> None:
        hand = Hand(plans=chain(1, 3), suspects={2: 0}, workers=3)
        hand.tick()
        first = started(hand)
        hand.succeed(1)
        second = hand.of(Process)

        hand.succeed(2)

        assert first == ["1:0"]
        assert [(action.attempts[0][0].txid, action.alone) for action in second] == [(2, True)]
        assert started(hand) == ["3:0"]

    def test_an_outcome_of_a_stale_attempt_changes_nothing(self) -> None:
        """Compare the attempt first, ignore stale ones."""
        hand = ready(1)
        hand.fail(1, 0, "data")
        hand.tick(1.0)

        hand.succeed(1, 0)

        assert hand.state.batches[1].phase is Phase.PROCESSING
        assert hand.of(Mirror) == []

    def test_an_attempt_without_progress_is_given_up_as_a_suspect(self) -> None:
        hand = ready(1, message_timeout_s=300)
        attempt = TransactionAttempt(1, 0)
        hand.tick(299, {attempt: 1})
        patient = hand.of(Cancel)
        hand.tick(299, {attempt: 2})
        hand.tick(299, {attempt: 2})

        hand.tick(2, {attempt: 2})

        assert patient == []
        assert [cancel.attempt for cancel in hand.of(Cancel)] == [attempt]
        assert hand.state.batches[1].suspect

    def test_a_new_attempt_does_not_wait_for_one_that_never_comes_back(self) -> None:
        hand = ready(1, message_timeout_s=10, workers=1)
        hand.tick(11)

        hand.tick(1.0)

        assert started(hand) == ["1:1"]

    def test_attempt_ids_never_go_back_when_a_store_was_away_at_the_begin(self) -> None:
        hand = ready(1)

        hand.tell(AttemptNotBegun(attempt=TransactionAttempt(1, 0), store="postgres", message="away"))
        hand.tick(1.0)

        assert started(hand) == ["1:1"]

    def test_full_memory_stops_all_but_the_batch_whose_turn_it_is(self) -> None:
        hand = ready(4, workers=2, results_bytes_max=1000)
        hand.succeed(2, size=2000)
        held = started(hand)

        hand.fail(1, 0, "infrastructure")
        hand.tick(1.0)

        assert held == []
        assert started(hand) == ["1:1"]
