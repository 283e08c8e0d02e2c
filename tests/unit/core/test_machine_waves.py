"""Waves: how many batches a worker takes at once, which of them may share, when a worker is free again; and dead
letters as the last resort.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import Hand, chain
from txtopo.core import limits
from txtopo.core.events import AttemptNotBegun, Cancel, OrdersSeen, PlansCut, Process, WavesRefused
from txtopo.core.state import Phase
from txtopo.core.values import Order, TransactionAttempt

LARGE = 1 << 40


def waves(hand: Hand) -> list[list[int]]:
    """Txids of the waves that the last event started."""
    return [[attempt.txid for attempt, _ in process.attempts] for process in hand.of(Process)]


def planned(count: int, *, size: int = 0, waved: int = 1000, **rules: Any) -> Hand:
    """So many batches planned at once; `waved` of them were processed in waves before."""
    hand = Hand(**{"wave_bytes_max": LARGE, **rules})
    hand.state = replace(hand.state, waved=waved)
    hand.tick()
    plans = chain(1, count)
    hand.tell(PlansCut(plans=plans, exhausted=False, sizes={one.txid: size for one in plans} if size else {}))
    return hand


def more(hand: Hand, count: int, size: int) -> None:
    """So many batches more are planned, behind those that are."""
    first = hand.state.next_txid
    plans = chain(first, first + count - 1, hand.state.batches[first - 1].plan.digest)
    hand.tell(PlansCut(plans=plans, exhausted=False, sizes={one.txid: size for one in plans}))


class TestSize:
    def test_what_is_ready_is_spread_over_the_idle_workers(self) -> None:
        """No more than leaves work for the other idle workers."""
        assert waves(planned(8, workers=4)) == [[1, 2], [3, 4], [5, 6], [7, 8]]

    def test_what_does_not_divide_evenly_goes_to_the_first(self) -> None:
        assert waves(planned(7, workers=3)) == [[1, 2, 3], [4, 5], [6, 7]]

    def test_by_default_large_files_run_in_a_job_each(self) -> None:
        """Two of them in one job would be planned anew each time, with an exchange, and keep the last core waiting."""
        hand = planned(8, workers=4, size=30_000_000, wave_bytes_max=limits.WAVE_BYTES_MAX)

        assert waves(hand) == [[1], [2], [3], [4]]

    def test_nothing_waits_to_fill_a_wave(self) -> None:
        assert waves(planned(3, workers=4)) == [[1], [2], [3]]

    def test_only_idle_workers_count(self) -> None:
        """Of two workers one is busy: the other takes all that is ready."""
        hand = planned(1, workers=2)
        hand.plans(*chain(2, 5, hand.state.batches[1].plan.digest))

        assert waves(hand) == [[2, 3, 4, 5]]

    def test_a_wave_has_at_most_so_many_batches(self) -> None:
        assert waves(planned(9, workers=1, wave_txids_max=4)) == [[1, 2, 3, 4]]

    def test_a_wave_has_at_most_so_many_bytes(self) -> None:
        assert waves(planned(9, workers=1, size=100, wave_bytes_max=350)) == [[1, 2, 3]]

    def test_a_batch_that_is_larger_than_a_wave_runs_by_itself(self) -> None:
        assert waves(planned(3, workers=1, size=100, wave_bytes_max=50)) == [[1]]

    def test_without_bytes_there_are_no_waves(self) -> None:
        assert waves(planned(9, workers=2, wave_bytes_max=0)) == [[1], [2]]

    @pytest.mark.parametrize(("waved", "size"), [(0, 2), (1, 16), (17, 16), (18, 64)])
    def test_waves_grow_with_what_was_processed_in_waves(self, waved: int, size: int) -> None:
        """The first is compared with lone runs, and first results are not to wait for many."""
        assert [len(wave) for wave in waves(planned(100, workers=1, waved=waved))] == [size]

    def test_growth_never_exceeds_the_setting(self) -> None:
        assert [len(wave) for wave in waves(planned(100, workers=1, waved=1, wave_txids_max=5))] == [5]

    def test_batches_that_were_in_a_wave_are_counted_and_lone_ones_are_not(self) -> None:
        hand = planned(4, workers=2, waved=0, wave_txids_max=2)
        assert waves(hand) == [[1, 2], [3]]
        for txid in (1, 2, 3, 4):
            hand.succeed(txid)

        assert hand.state.waved == 2

    def test_what_is_too_small_for_two_jobs_is_not_split(self) -> None:
        """A second job would take longer to start than the first needs for all of it."""
        small = limits.WAVE_SMALL_BYTES // 8

        assert waves(planned(8, workers=4, size=small)) == [[1, 2, 3, 4, 5, 6, 7, 8]]
        assert waves(planned(12, workers=4, size=small)) == [[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12]]
        assert [len(wave) for wave in waves(planned(40, workers=4, size=1))] == [16, 16, 8]
        assert waves(planned(8, workers=4, size=8 * small + 1)) == [[1, 2], [3, 4], [5, 6], [7, 8]]


class TestFirst:
    def test_while_the_first_is_compared_small_batches_wait(self) -> None:
        """Moments later they share jobs of their own; beside it they would only slow it down."""
        hand = planned(40, workers=3, waved=0, size=1000)
        assert waves(hand) == [[1, 2]]

        hand.succeed(1)  # its outcomes come together, when it has been compared

        assert waves(hand) == [list(range(3, 19)), list(range(19, 35))]

    def test_large_batches_are_not_processed_twice_for_it(self) -> None:
        """They run alone, all workers at once; the first small ones are compared."""
        size = limits.FIRST_WAVE_BYTES_MAX // 2
        assert waves(planned(4, workers=3, waved=0, size=size)) == [[1, 2], [3], [4]]
        assert waves(planned(4, workers=3, waved=0, size=size + 1)) == [[1], [2], [3]]

        hand = planned(4, workers=3, waved=0, size=2 * size)
        assert waves(hand) == [[1], [2], [3]]
        more(hand, 2, 1000)
        for txid in (1, 2, 3, 4):
            hand.succeed(txid)
        assert hand.state.waved == 0
        everything = [[one.txid for one, _ in each.attempts] for each in hand.everything if isinstance(each, Process)]
        assert everything[3:] == [[4], [5, 6]]

    def test_a_first_wave_is_no_larger_than_the_setting(self) -> None:
        assert waves(planned(4, workers=1, waved=0, size=100, wave_bytes_max=150)) == [[1]]

    def test_those_that_shared_the_end_of_a_driver_are_not_limited_by_it(self) -> None:
        """They run at once, however large they are, before anything else."""
        once = frozenset({1, 2})
        hand = Hand(plans=chain(1, 2), suspects={1: 0, 2: 0}, suspects_once=once, workers=3, wave_bytes_max=LARGE)
        large = {txid: replace(batch, source_bytes=1 << 30) for txid, batch in hand.state.batches.items()}
        hand.state = replace(hand.state, batches=large)

        hand.tick()

        assert waves(hand) == [[1, 2]]

    @pytest.mark.parametrize("size", [0, limits.WAVE_SMALL_BYTES + 1], ids=["not known", "large"])
    def test_others_run_alone_beside_it(self, size: int) -> None:
        """The comparison may take as long as they do: no worker stands idle for it, and nothing else is compared."""
        assert waves(planned(40, workers=3, waved=0, size=size)) == [[1, 2], [3], [4]]

    def test_only_small_ones_wait(self) -> None:
        """A large one behind them starts at once."""
        hand = planned(4, workers=3, waved=0, size=1000)

        more(hand, 1, limits.WAVE_SMALL_BYTES + 1)

        assert waves(hand) == [[5]]

    def test_a_first_wave_that_comes_to_nothing_holds_nobody_up(self) -> None:
        hand = planned(4, workers=2, waved=0, size=1000)
        hand.fail(1, 0, "data")
        hand.fail(2, 0, "data")

        assert waves(hand) == [[3, 4]]


class TestGathering:
    """Where a wave's worth of results waits for its turn to commit, nobody waits for the next job: it may as well be a
    full one.
    """

    def gathering(self, ready: int, *, planned_more: int = 1, size: int = 1000, **rules: Any) -> Hand:
        hand = planned(ready, workers=1, wave_txids_max=4, spout_pending_max=1000, size=1000, **rules)
        for txid in range(1, ready + 1):
            hand.succeed(txid)
        more(hand, planned_more, size)
        return hand

    def test_a_wave_that_is_not_full_waits_for_more(self) -> None:
        assert waves(self.gathering(4)) == []

    def test_a_full_one_starts(self) -> None:
        assert waves(self.gathering(4, planned_more=4)) == [[5, 6, 7, 8]]

    def test_it_starts_once_fewer_results_wait(self) -> None:
        hand = self.gathering(4)
        assert waves(hand) == []
        hand.mirrored(4)

        hand.committed(1)

        assert waves(hand) == [[5]]

    def test_it_starts_where_results_wait_for_a_batch_that_is_not_processed(self) -> None:
        """A hole in the order: whatever waits behind it cannot commit."""
        hand = planned(6, workers=2, wave_txids_max=3, spout_pending_max=1000, size=1000)
        for txid in (2, 3, 4, 5, 6):
            hand.succeed(txid)

        more(hand, 1, 1000)

        assert waves(hand) == [[7]]

    @pytest.mark.parametrize("plans", [(), None], ids=["nothing new", "the end"])
    def test_it_starts_where_the_source_has_no_more(self, plans: Any) -> None:
        hand = self.gathering(4)

        hand.tell(PlansCut(plans=(), exhausted=plans is None))

        assert waves(hand) == [[5]]

    @pytest.mark.parametrize("size", [0, limits.WAVE_SMALL_BYTES + 1], ids=["not known", "large"])
    def test_batches_that_gain_nothing_by_it_do_not_wait(self, size: int) -> None:
        assert waves(self.gathering(4, size=size)) == [[5]]

    def test_one_that_is_tried_again_does_not_wait_with_the_others(self) -> None:
        hand = planned(6, workers=2, wave_txids_max=2, spout_pending_max=1000, size=1000)
        for txid in (1, 2, 3, 4):
            hand.succeed(txid)
        hand.fail(5, 0, "infrastructure")
        hand.succeed(6)
        more(hand, 1, 1000)
        assert waves(hand) == []

        hand.tick(60)

        assert waves(hand) == [[5]]

    def test_batches_that_share_with_none_do_not_wait(self) -> None:
        assert waves(self.gathering(4, wave_bytes_max=0)) == [[5]]

    def test_a_wave_is_a_run_of_attempts_in_txid_order_with_their_plans(self) -> None:
        hand = planned(3, workers=1)

        (process,) = hand.of(Process)

        assert [(str(a), plan.txid) for a, plan in process.attempts] == [("1:0", 1), ("2:0", 2), ("3:0", 3)]
        assert (process.alone, process.dead_letter) == (False, False)

    def test_nothing_behind_a_halt_is_in_a_wave(self) -> None:
        hand = planned(4, workers=1, attempts_max=1, wave_txids_max=2, on_poison="halt")
        hand.fail(2, 0, "data")
        hand.succeed(1)

        assert hand.of(Process) == []


class TestSharing:
    @pytest.mark.parametrize("kind", ["data", "infrastructure"])
    def test_a_failed_batch_never_shares_again(self, kind: Any) -> None:
        """Only runs of its own tell what is wrong with it."""
        hand = planned(4, workers=1)
        for txid in (1, 3, 4):
            hand.succeed(txid)
        hand.plans(*chain(5, 6, hand.state.batches[4].plan.digest))

        hand.fail(2, 0, kind)
        others = waves(hand)
        hand.tick(60)
        hand.succeed(5)
        hand.succeed(6)

        assert others == [[5, 6]]
        assert waves(hand) == [[2]]

    def test_a_failed_batch_that_is_ready_beside_others_does_not_take_them_along(self) -> None:
        hand = planned(1, workers=1)
        hand.fail(1, 0, "data")
        hand.tick(60)
        hand.fail(1, 1, "data")
        hand.plans(*chain(2, 3, hand.state.batches[1].plan.digest))
        hand.succeed(2)
        hand.now += 60
        hand.plans(*chain(4, 5, hand.state.batches[3].plan.digest)) if hand.state.cutting else None
        hand.succeed(3)

        assert waves(hand)[0] == [1]

    def test_those_that_could_not_begin_share_again(self) -> None:
        """A store was away: nothing of theirs has failed, and after it they are as many as before."""
        hand = planned(2, workers=1)
        for txid in (1, 2):
            hand.tell(AttemptNotBegun(attempt=TransactionAttempt(txid, 0), store="postgres", message="away"))

        hand.tick(20)

        assert waves(hand) == [[1, 2]]

    def test_one_whose_source_could_not_be_read_does_not_share(self) -> None:
        """It would fail the wave of others again and again, until its file is there."""
        hand = planned(2, workers=1)
        hand.fail(1, 0, "infrastructure")
        more(hand, 2, 0)
        hand.tick(20)

        hand.succeed(2)

        assert waves(hand) == [[1]]

    def test_batches_that_may_share_leave_out_one_that_may_not(self) -> None:
        hand = planned(3, workers=1)
        hand.succeed(1)
        hand.succeed(2)
        hand.fail(3, 0, "data")
        hand.tick(0.0)
        hand.plans(*chain(4, 5, hand.state.batches[3].plan.digest))

        assert waves(hand) == [[4, 5]]

    def test_a_batch_that_an_order_forgave_shares_with_none_that_failed(self) -> None:
        hand = planned(3, workers=1)
        hand.fail(1, 0, "data")
        hand.fail(3, 0, "data")
        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="retry", txids=(1,)),)))
        hand.now += 60

        hand.succeed(2)

        assert waves(hand) == [[1]]

    def test_a_batch_that_an_order_forgave_takes_none_behind_a_halt_along(self) -> None:
        hand = planned(4, workers=1, wave_txids_max=2, attempts_max=1)
        hand.fail(1, 0, "infrastructure")
        hand.fail(2, 0, "data")

        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="retry", txids=(1,)),)))

        assert waves(hand) == [[1]]

    def test_a_suspect_of_the_leader_before_shares_with_none(self) -> None:
        hand = Hand(plans=chain(1, 3), suspects={1: 0}, workers=1, wave_bytes_max=LARGE)

        hand.tick()

        assert waves(hand) == [[1]]

    def test_suspects_of_one_death_run_in_a_wave_of_their_like_with_nothing_beside_it(self) -> None:
        """What a driver's death leaves behind by the hundred need not run one by one."""
        hand = Hand(
            plans=chain(1, 6),
            suspects={1: 0, 2: 0, 3: 1, 4: 0},
            suspects_once=frozenset({1, 2, 4}),
            workers=3,
            wave_bytes_max=LARGE,
        )
        hand.state = replace(hand.state, waved=1000)
        hand.tick()

        (process,) = hand.of(Process)

        assert (waves(hand), process.alone) == ([[1, 2, 4]], False)
        assert [hand.state.batches[txid].runs_alone for txid in (1, 2, 4)] == [0, 0, 0]

    def test_a_suspect_whose_wave_ends_without_a_verdict_too_runs_alone(self) -> None:
        """So that the one that ends its process is found, after one wave more."""
        hand = Hand(
            plans=chain(1, 2), suspects={1: 0, 2: 0}, suspects_once=frozenset({1, 2}), workers=3, wave_bytes_max=LARGE
        )
        hand.tick()
        for txid in (1, 2):
            hand.fail(txid, 0, "suspect")
        hand.tick(60)

        (process,) = hand.of(Process)

        assert (waves(hand), process.alone) == ([[1]], True)

    def test_a_suspect_of_one_death_that_has_no_like_runs_alone_and_counts_it(self) -> None:
        hand = Hand(plans=chain(1, 3), suspects={1: 0}, suspects_once=frozenset({1}), workers=3, wave_bytes_max=LARGE)

        hand.tick()

        (process,) = hand.of(Process)
        assert (waves(hand), process.alone, hand.state.batches[1].runs_alone) == ([[1]], True, 1)

    def test_a_suspect_runs_alone_with_nothing_beside_it(self) -> None:
        hand = planned(3, workers=2, wave_txids_max=3)
        for txid in (1, 2, 3):
            if txid != 2:
                hand.succeed(txid)
        hand.fail(2, 0, "suspect")
        hand.tick(60)

        (process,) = hand.of(Process)

        assert (waves(hand), process.alone) == ([[2]], True)
        hand.plans(*chain(4, 6, hand.state.batches[3].plan.digest))
        assert hand.of(Process) == []

    def test_a_batch_in_backoff_is_not_in_the_wave_of_others(self) -> None:
        hand = planned(2, workers=1, wave_txids_max=1)
        hand.fail(1, 0, "infrastructure")

        assert waves(hand) == [[2]]

    def test_an_executor_that_refuses_waves_gets_none(self) -> None:
        hand = planned(8, workers=1, wave_txids_max=2)
        hand.tell(WavesRefused(reason="bolt b depends on other rows"))
        assert hand.state.one_by_one == "bolt b depends on other rows"
        hand.succeed(1)

        hand.succeed(2)

        assert waves(hand) == [[3]]


class TestWorkers:
    def test_a_worker_is_busy_until_the_last_attempt_of_its_wave_has_ended(self) -> None:
        hand = planned(8, workers=2, wave_txids_max=2)
        assert waves(hand) == [[1, 2], [3, 4]]

        hand.succeed(1)
        first = waves(hand)
        hand.succeed(2)

        assert (first, waves(hand)) == ([], [[5, 6]])

    def test_attempts_that_failed_free_it_too(self) -> None:
        hand = planned(8, workers=1, wave_txids_max=2)
        hand.fail(1, 0, "data")

        hand.succeed(2)

        assert waves(hand) == [[3, 4]]

    def test_a_cancelled_attempt_does_not_keep_it(self) -> None:
        hand = planned(8, workers=1, wave_txids_max=2)
        hand.succeed(2)

        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="skip", txids=(1,), reason="no"),)))

        assert [str(cancel.attempt) for cancel in hand.of(Cancel)] == ["1:0"]
        assert waves(hand) == [[3, 4]]

    def test_each_attempt_of_a_wave_has_an_outcome_of_its_own(self) -> None:
        hand = planned(3, workers=1)

        hand.succeed(3)
        hand.fail(1, 0, "data")
        hand.succeed(2)

        assert [hand.state.batches[n].phase for n in (1, 2, 3)] == [Phase.PLANNED, Phase.PROCESSED, Phase.PROCESSED]

    def test_each_attempt_of_a_wave_has_progress_of_its_own(self) -> None:
        hand = planned(2, workers=1, message_timeout_s=5)
        hand.tick(3, {TransactionAttempt(1, 0): 1})

        hand.tick(3, {TransactionAttempt(1, 0): 1})

        assert [str(cancel.attempt) for cancel in hand.of(Cancel)] == ["2:0"]

    def test_held_results_stop_new_waves_but_never_the_batch_whose_turn_it_is(self) -> None:
        hand = planned(4, workers=1, wave_txids_max=2, results_bytes_max=100)
        hand.succeed(2, size=200)

        hand.fail(1, 0, "infrastructure")
        hand.tick(20)

        assert waves(hand) == [[1]]
