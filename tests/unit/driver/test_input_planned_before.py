"""Input of opaque batches that was planned before and is to be planned again: no run ends well without it, whatever the
source says meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, Tuple
from txtopo.core.events import End
from txtopo.core.health import health_of
from txtopo.core.limits import SOURCE_AWAY_MAX_S, SOURCE_TRIES_MAX
from txtopo.core.state import Rules, State
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, Halted
from txtopo.ports import Executor
from txtopo.spouts import NOTHING, OpaquePartitionedTransactionalSpout
from txtopo.testing import TopologyHarness
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import Killed, SimulatedDriver, SimulatedStores

AWAY, READY = "away", "ready"


class Broker:
    """Partitions of numbers, a few to a batch; some of it is away at times."""

    def __init__(self, *counts: int, size: int = 2) -> None:
        self.counts = list(counts)
        self.size = size
        self.away: set[int] = set()
        self.is_ready = True
        self.asked_ready = 0


class Log(OpaquePartitionedTransactionalSpout):
    outputs = ["partition int", "n bigint"]

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def is_ready(self) -> bool:
        self.broker.asked_ready += 1
        return self.broker.is_ready

    def number_of_partitions(self) -> int:
        return len(self.broker.counts)

    def next_range(self, partition: int, last: Any) -> Any:
        start, broker = 0 if last is None else last[1], self.broker
        if partition in broker.away or start >= broker.counts[partition]:
            return NOTHING
        return [start, min(start + broker.size, broker.counts[partition])]

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        return ((partition, n) for n in range(*metadata))

    def __deepcopy__(self, memo: Any) -> Log:
        return self  # the broker is one for all


def topology_of(broker: Broker) -> Topology:
    builder = TopologyBuilder("log")
    builder.set_spout("log", Log(broker))
    totals = CountCommitter(table="public.log", keys=["partition", "n"], count="times")
    builder.set_committer_bolt("totals", totals).shuffle_grouping("log")
    return builder.build()


def failing(fail: Callable[[TransactionAttempt], None]) -> Callable[[Topology, bytes], Executor]:
    return lambda topology, code: InProcessExecutor(topology, code, faults=fail)


class Night:
    """A run with `--once` on a broker, on stores that outlive it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.stores = SimulatedStores()
        self.said: list[str] = []

    def run(
        self,
        fail: Callable[[TransactionAttempt], None] = lambda attempt: None,
        watch: Callable[[State], None] = lambda state: None,
        cut: bool = True,
        **rules: Any,
    ) -> End:
        driver = SimulatedDriver(
            topology=topology_of(self.broker),
            stores=self.stores,
            rules=Rules(workers=1, wave_bytes_max=0, **rules),
            make_executor=failing(fail),
            said=self.said,
            watch=watch,
            cut=cut,
        )
        return driver.run()

    @property
    def counted(self) -> list[tuple[int, int]]:
        """(partition, number) of all that is counted; each once, or this raises."""
        rows = self.stores.postgres.tables.get("public.log", {})
        assert all(int(values[0]) == 1 for values in rows.values()), rows
        return sorted((int(key[0]), int(key[1])) for key in rows)

    @property
    def ledger(self) -> list[tuple[int, str, int | None]]:
        rows = self.stores.postgres.topologies["log"].ledger
        return [(txid, row.state, row.read) for txid, row in sorted(rows.items()) if txid]


def fail_once(txid: int, then: Callable[[], None] = lambda: None) -> Callable[[TransactionAttempt], None]:
    def fail(attempt: TransactionAttempt) -> None:
        if attempt == (txid, 0):
            then()
            raise BatchDataError("no", component="log")

    return fail


def test_a_source_that_is_not_ready_is_asked_for_what_was_planned_before() -> None:
    """Storm replays a txid whose metadata is stored without asking `isReady`: a maintenance window begins when batch 3
    of 5 fails.
    """
    night = Night(Broker(10))

    def close() -> None:
        night.broker.is_ready = False

    end = night.run(fail_once(3, close))

    assert (end.kind, night.counted) == ("finished", [(0, n) for n in range(10)])


def test_a_batch_that_always_fails_uses_up_its_attempts_though_the_source_is_not_ready() -> None:
    night = Night(Broker(10))

    def poison(attempt: TransactionAttempt) -> None:
        if attempt.txid == 3:
            night.broker.is_ready = False
            raise BatchDataError("poison", component="log")

    end = night.run(poison, attempts_max=3)

    assert (end.kind, end.txid, len(night.ledger)) == ("halted", 3, 2)
    assert "3 attempts failed" in end.reason


def test_a_source_that_gives_nothing_for_it_is_waited_for_and_then_the_run_halts() -> None:
    """A broker that goes away at night is no success: the run names the batch, the partition and the next command."""
    night = Night(Broker(10))

    def vanish() -> None:
        night.broker.away = {0}

    began = night.stores.clock.now
    end = night.run(fail_once(3, vanish))

    assert (end.kind, end.txid) == ("halted", 3)
    assert "batch 3 of log was planned before and is not committed" in end.reason
    assert "log: partition 0 gave input for batch 3, which is to be planned again, and gives nothing now" in end.reason
    assert end.next_command is not None
    assert "txtopo skip log 3 --reason" in end.next_command
    assert SOURCE_AWAY_MAX_S <= night.stores.clock.now - began <= 2 * SOURCE_AWAY_MAX_S
    assert sum("cannot be read" in line for line in night.said) == 1
    fence = night.stores.postgres.topologies["log"].fence
    assert fence.last_txid == 2
    again = night.run()
    assert (again.kind, again.txid) == ("halted", 3)

    night.broker.away = set()
    assert night.run().kind == "finished"
    assert night.counted == [(0, n) for n in range(10)]


def test_a_source_that_comes_back_in_time_is_no_halt() -> None:
    night = Night(Broker(10))

    def vanish() -> None:
        night.broker.away = {0}

    def come_back(state: State) -> None:
        if state.cut_failures >= 3:
            night.broker.away = set()

    end = night.run(fail_once(3, vanish), come_back)

    assert (end.kind, night.counted) == ("finished", [(0, n) for n in range(10)])


def test_one_partition_that_is_away_holds_up_no_other_and_is_not_forgotten() -> None:
    """The batch is planned again without it. The run still does not end well, nor does the next, until the partition
    gives what it gave before.
    """
    night = Night(Broker(6, 6))

    def vanish() -> None:
        night.broker.away = {1}

    end = night.run(fail_once(2, vanish))

    assert end.kind == "halted"
    assert "log: partition 1 gave input for a batch that was planned again, and nothing since" in end.reason
    assert night.counted == [*((0, n) for n in range(6)), (1, 0), (1, 1)]
    assert night.run().kind == "halted"

    night.broker.away = set()
    assert night.run().kind == "finished"
    assert night.counted == [(partition, n) for partition in (0, 1) for n in range(6)]


def test_a_partition_that_is_counted_no_more_is_missed_too() -> None:
    """`number_of_partitions` may count only brokers that answer."""
    night = Night(Broker(6, 6))

    def vanish() -> None:
        del night.broker.counts[1]

    assert night.run(fail_once(2, vanish)).kind == "halted"

    night.broker.counts.append(6)
    assert night.run().kind == "finished"
    assert night.counted == [(partition, n) for partition in (0, 1) for n in range(6)]


@pytest.mark.parametrize("behind", [0, 4])
def test_an_emitter_that_keeps_failing_while_the_source_gives_ranges_ends_the_run(behind: int) -> None:
    """What it gave is planned again after each try, so the tries are counted over all cuts; and batches behind it, read
    each time anew, prove nothing.
    """
    night = Night(Broker(6 + behind))

    def refuse(attempt: TransactionAttempt) -> None:
        if attempt.txid == 3:
            raise TimeoutError("the broker does not answer")

    end = night.run(refuse)

    assert (end.kind, end.txid, len(night.ledger)) == ("halted", 3, 2)
    assert "no batch is at fault: TimeoutError: the broker does not answer (20 times in a row" in end.reason
    assert sum("batch 3 attempt" in line for line in night.said) == SOURCE_TRIES_MAX - 1
    assert night.run().kind == "finished"
    assert night.counted == [(0, n) for n in range(6 + behind)]


def test_a_run_without_an_end_says_in_status_what_it_waits_for_while_a_range_cannot_be_read() -> None:
    """Between two tries too, when its batch waits to be cut again; and it goes on by itself."""
    night = Night(Broker(10))
    seen: list[str | None] = []

    def refuse(attempt: TransactionAttempt) -> None:
        if attempt.txid == 3 and attempt.attempt <= 2 * SOURCE_TRIES_MAX:
            raise TimeoutError("the broker does not answer")

    def watch(state: State) -> None:
        if state.last_txid == 2 and state.read and 3 in state.owed and state.carried.keys() >= {3}:
            seen.append(health_of(state, night.stores.clock.now).problem)
        if state.last_txid == 5:
            raise Killed

    with pytest.raises(Killed):
        SimulatedDriver(
            topology=topology_of(night.broker),
            stores=night.stores,
            rules=Rules(workers=1, wave_bytes_max=0),
            once=False,
            make_executor=failing(refuse),
            watch=watch,
        ).run()

    words = "the source of batch 3: TimeoutError: the broker does not answer (tried"
    assert seen and all(problem is not None and words in problem for problem in seen)
    assert night.counted == [(0, n) for n in range(10)]


def test_input_that_comes_in_fewer_batches_this_time_leaves_empty_ones() -> None:
    """Batch 3 takes all that 3, 4 and 5 had: the source shows what they began with to whoever asks from there, so that
    nothing is missing.
    """
    night = Night(Broker(10))

    def larger() -> None:
        night.broker.size = 100

    end = night.run(fail_once(3, larger))

    assert end.kind == "finished"
    assert night.ledger == [
        (1, "applied", 2),
        (2, "applied", 2),
        (3, "applied", 6),
        (4, "applied", 0),
        (5, "applied", 0),
    ]
    assert night.counted == [(0, n) for n in range(10)]


def test_input_that_is_gone_for_good_is_skipped_by_an_order() -> None:
    """The way out that the halt names: the batch is planned empty and quarantined. What the source has later is counted
    in later batches.
    """
    night = Night(Broker(6))

    def vanish() -> None:
        night.broker.away = {0}

    assert night.run(fail_once(3, vanish)).txid == 3
    order = night.stores.postgres.ask("log", "skip", (3,), "retention")

    end = night.run(cut=False)

    assert (end.kind, night.stores.postgres.orders[order][1].state) == ("stopped", "done")
    assert night.ledger[2:] == [(3, "quarantined", None)]
    night.broker.away = set()
    assert night.run().kind == "finished"
    assert night.counted == [(0, n) for n in range(6)]


def test_a_source_that_cannot_be_read_is_waited_for_only_so_long_where_the_run_has_an_end() -> None:
    class Down(Log):
        def next_range(self, partition: int, last: Any) -> Any:
            if last is not None:
                raise OSError("connection refused")
            return super().next_range(partition, last)

    night = Night(Broker(6))
    builder = TopologyBuilder("log")
    builder.set_spout("log", Down(night.broker))
    totals = CountCommitter(table="public.log", keys=["partition", "n"], count="times")
    builder.set_committer_bolt("totals", totals).shuffle_grouping("log")

    end = SimulatedDriver(topology=builder.build(), stores=night.stores, rules=Rules(workers=1)).run()

    assert (end.kind, end.txid, len(night.ledger)) == ("halted", 2, 1)
    assert "batch 2 of log cannot be planned" in end.reason
    assert "connection refused" in end.reason


@pytest.mark.parametrize("seed", range(12))
def test_a_moody_broker_never_makes_a_run_end_well_without_its_input(seed: int) -> None:
    """Any partition is away at times, the source is not ready at others, ranges have other sizes and attempts fail: who
    ends well has counted all that was planned before, and once the broker is well all is counted once.
    """
    chance = random.Random(seed)
    night = Night(Broker(9, 7, 5))

    def moody(attempt: TransactionAttempt) -> None:
        broker = night.broker
        broker.size = chance.randint(1, 4)
        broker.is_ready = chance.random() < 0.6
        broker.away = {partition for partition in range(3) if chance.random() < 0.3}
        if chance.random() < 0.4:
            raise BatchDataError("no", component="log")

    planned: set[tuple[int, int]] = set()

    def note(state: State) -> None:
        for batch in state.batches.values():
            for partition, entry in enumerate(batch.plan.metadata["log"]["partitions"]):
                planned.update((partition, n) for n in range(*entry.get("range", (0, 0))))

    ends = []
    for _ in range(6):
        ends.append(night.run(moody, note, attempts_max=1000).kind)
        if ends[-1] == "finished":
            assert planned <= set(night.counted)
    night.broker.away, night.broker.is_ready = set(), True
    end = night.run()
    assert end.kind == "finished", end
    assert night.counted == [(partition, n) for partition, count in enumerate((9, 7, 5)) for n in range(count)]


def test_the_harness_waits_for_a_source_as_long_as_a_run_and_raises() -> None:
    broker = Broker(10)

    class Raising(BasicBolt):
        outputs = ["partition int", "n bigint"]

        def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
            if tup["n"] == 4:
                broker.away = {0}
                raise ValueError("once")
            collector.emit(tup.values)

    builder = TopologyBuilder("log")
    builder.set_spout("log", Log(broker))
    builder.set_bolt("raising", Raising()).shuffle_grouping("log")
    totals = CountCommitter(table="public.log", keys=["partition", "n"], count="times")
    builder.set_committer_bolt("totals", totals).shuffle_grouping("raising")

    with TopologyHarness(builder.build()) as harness, pytest.raises(Halted, match="partition 0 gave input for batch 3"):
        harness.run()
