"""Spouts of a user's own under the real planner, machine, runner and commit, on memory stores: driven to the end,
killed at every crash point.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.spouts.test_acked_spout import Broker, Queue, Retrying
from tests.unit.spouts.test_partitioned_spout import OpaqueWords, Words
from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, Tuple
from txtopo.core.state import Rules
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.spouts.acked_spout import SpoutOutputCollector
from txtopo.testing.harness import TopologyHarness
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores
from txtopo.topology.components import Spout, SpoutContext

PARTITIONS = [
    ["cat", "dog", "chicken", "cat", "dog", "apple"],
    ["cat", "dog", "apple", "banana"],
    ["cat", "cat", "cat", "cat", "cat", "dog", "dog", "dog", "dog"],
]
COUNTS = {"cat": 8, "dog": 7, "apple": 2, "chicken": 1, "banana": 1}


class Three:
    """At most three words of each partition a batch."""

    def next_range(self: Any, partition: int, last: Any) -> Any:
        from txtopo.spouts.partitioned import NOTHING

        start = 0 if last is None else last[1]
        end = min(start + 3, len(self.source[partition]))
        return (start, end) if end > start else NOTHING


class ThreeWords(Three, Words):
    pass


class ThreeOpaqueWords(Three, OpaqueWords):
    pass


def counting(spout: Spout) -> Topology:
    """Words by their counts."""
    promised: Any = "exactly_once" if spout.kind in ("transactional", "opaque") else spout.kind
    builder = TopologyBuilder("words", guarantee=promised)
    builder.set_spout("words", spout)
    counter = CountCommitter(table="word_counts", keys=["word"], count="n")
    builder.set_committer_bolt("counts", counter).fields_grouping("words", ["word"])
    return builder.build()


def counts(stores: SimulatedStores) -> dict[str, int]:
    return {key[0]: row[0] for key, row in stores.postgres.tables.get("public.word_counts", {}).items()}


@pytest.mark.parametrize("spout", [ThreeWords, ThreeOpaqueWords])
def test_three_partitions_are_counted_to_the_end(spout: type[Words]) -> None:
    """TT-09 (ii): batch sizes 9, 7, 3, global count 19; cat 8, dog 7, apple 2, chicken 1, banana 1; five words below
    ten.
    """
    stores = SimulatedStores()

    end = SimulatedDriver(topology=counting(spout(*PARTITIONS)), stores=stores).run()

    assert end.kind == "finished", end.reason
    read = [row.read for txid, row in sorted(stores.postgres.topologies["words"].ledger.items()) if txid]
    assert (read, sum(filter(None, read))) == ([9, 7, 3], 19)
    assert counts(stores) == COUNTS
    assert sum(1 for count in COUNTS.values() if count < 10) == 5


@pytest.mark.parametrize("spout", [ThreeWords, ThreeOpaqueWords])
def test_a_driver_killed_anywhere_leaves_every_word_counted_once(spout: type[Words]) -> None:
    """R3, R12: ranges are decided before anything is emitted, and every range begins where that of the batch before
    ends.
    """
    for nth in range(1, 60):
        stores = SimulatedStores()
        topology = counting(spout(*PARTITIONS))
        with KillAt(nth) as kill:
            try:
                SimulatedDriver(topology=topology, stores=stores, seed=nth).run()
            except Killed:
                pass
        if kill.killed_at is None:
            break
        end = SimulatedDriver(topology=topology, stores=stores, seed=nth + 1).run()
        assert (end.kind, counts(stores)) == ("finished", COUNTS), f"killed at {kill.killed_at}, the {nth}-th time"
    assert nth > 10


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_opaque_batch_that_fails_is_cut_again_and_so_are_all_behind_it(failing: int) -> None:
    """Content of a txid may change on a retry: nothing is skipped, and nothing is in two successful batches."""
    spout = ThreeOpaqueWords(*([*words] for words in PARTITIONS))
    seen: list[TransactionAttempt] = []

    def fail_once(attempt: TransactionAttempt) -> None:
        if attempt not in seen:
            seen.append(attempt)
        if attempt == TransactionAttempt(failing, 0):
            # What the broker keeps has changed when the batch is cut again: a partition is shorter, one is new.
            if len(spout.source) == 3:
                spout.source.append(["elk"])
                del spout.source[2][-1]
            raise BatchDataError("fell over", component="words")

    stores = SimulatedStores()
    driver = SimulatedDriver(topology=counting(spout), stores=stores)
    driver.make_executor = lambda topology, code: InProcessExecutor(topology, code, faults=fail_once)
    end = driver.run()

    assert end.kind == "finished", end.reason
    assert TransactionAttempt(failing, 1) in seen
    assert counts(stores) == {**COUNTS, "dog": COUNTS["dog"] - 1, "elk": 1}


class Redelivering:
    """A broker: what is not acked is given again to whoever connects next. An ack of what is not counted yet is written
    down as a lie.
    """

    def __init__(self, stores: SimulatedStores, messages: dict[str, str]) -> None:
        self.stores = stores
        self.messages = dict(messages)
        self.acked: list[str] = []
        self.lies: list[str] = []

    def acknowledge(self, message_id: str) -> None:
        if self.messages[message_id] not in counts(self.stores):
            self.lies.append(message_id)
        self.acked.append(message_id)


class Subscriber(Queue):
    """Reads the broker from the start of what is not acked."""

    broker: Any

    def open(self, config: Any, context: SpoutContext) -> None:
        self.unread = [one for one in self.broker.messages if one not in self.broker.acked]

    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        if self.unread:
            message_id = self.unread.pop(0)
            collector.emit([self.broker.messages[message_id]], message_id)

    def ack(self, message_id: Any) -> None:
        self.broker.acknowledge(message_id)


def test_every_message_is_acked_and_none_before_its_commit() -> None:
    """At-least-once: wherever the driver is killed, each message is counted and acked, and acked only once it is in the
    table.
    """
    messages = {f"m{number}": f"word{number}" for number in range(5)}
    for nth in range(1, 60):
        stores = SimulatedStores()
        broker: Any = Redelivering(stores, messages)
        topology = counting(Subscriber(broker))
        with KillAt(nth) as kill:
            try:
                SimulatedDriver(topology=topology, stores=stores, seed=nth).run()
            except Killed:
                pass
        if kill.killed_at is not None:
            end = SimulatedDriver(topology=topology, stores=stores, seed=nth + 1).run()
            assert end.kind == "finished", end.reason
        assert (set(broker.acked), broker.lies) == (set(messages), []), f"killed at {kill.killed_at}, the {nth}-th time"
        assert set(counts(stores)) == set(messages.values())
        assert min(counts(stores).values()) >= 1
        if kill.killed_at is None:
            break
    assert sorted(broker.acked) == sorted(messages)
    assert nth > 10


def test_a_commit_whose_reply_was_lost_is_told_once_it_is_resolved() -> None:
    """R7: nothing is acked while the outcome is unknown; resolved, the batch's messages are acked as those of any
    other.
    """
    for how in ("lost", "aborted"):
        stores = SimulatedStores()
        broker: Any = Redelivering(stores, {"m1": "word1", "m2": "word2", "m3": "word3"})
        stores.postgres.fail_next_commit(how)

        end = SimulatedDriver(topology=counting(Subscriber(broker)), stores=stores).run()

        assert (end.kind, sorted(broker.acked), broker.lies) == ("finished", ["m1", "m2", "m3"], []), how


def test_a_message_of_a_quarantined_batch_is_emitted_again() -> None:
    """R14, PY-06: quarantine fails the messages; a reliable spout emits them again, in a batch of their own txid,
    before the run ends.
    """
    broker = Broker(("m1", ["a"]), ("m2", ["b"]), ("m3", ["c"]))

    def fail_first(attempt: TransactionAttempt) -> None:
        if attempt.txid == 1:
            raise BatchDataError("fell over", component="words")

    stores = SimulatedStores()
    rules = Rules(workers=3, on_poison="quarantine_batch", attempts_max=1)
    driver = SimulatedDriver(topology=counting(Retrying(broker)), stores=stores, rules=rules)
    driver.make_executor = lambda topology, code: InProcessExecutor(topology, code, faults=fail_first)
    end = driver.run()

    assert end.kind == "finished", end.reason
    ledger = stores.postgres.topologies["words"].ledger
    assert [ledger[txid].state for txid in (1, 2, 3)] == ["quarantined", "applied", "applied"]
    assert counts(stores) == {"a": 1, "b": 1, "c": 1}


class Passing(BasicBolt):
    """A tuple bolt that hands everything on."""

    outputs = ["word string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tup.values)


def test_spouts_of_two_kinds_share_the_txid() -> None:
    """Each batch has what the ready spouts gave; the end comes when both are at theirs, and messages are acked with
    their batches.
    """
    broker = Broker(*((f"m{number}", ["elk"]) for number in range(7)))
    builder = TopologyBuilder("both", guarantee="at_least_once")
    builder.set_spout("words", ThreeWords(*PARTITIONS))
    builder.set_spout("queue", Queue(broker))
    bolt = builder.set_bolt("passing", Passing(), parallelism_hint=2)
    bolt.shuffle_grouping("words")
    bolt.shuffle_grouping("queue")
    counter = CountCommitter(table="word_counts", keys=["word"], count="n")
    builder.set_committer_bolt("counts", counter).fields_grouping("passing", ["word"])

    with TopologyHarness(builder.build()) as harness:
        end = harness.run()

    assert end is not None
    assert end.kind == "finished"
    assert [batch.read for batch in harness.batches] == [9 + 2, 7 + 2, 3 + 2, 1]
    assert {key[0]: row[0] for key, row in harness.table("word_counts").items()} == {**COUNTS, "elk": 7}
    assert broker.told == [("ack", f"m{number}") for number in range(7)]
