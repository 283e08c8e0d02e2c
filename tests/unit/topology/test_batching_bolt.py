"""A bolt that gathers tuples in groups: by ticks where tuples are fed, at the end of the batch in a batch."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, run_tuples
from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import Stream, Tuple
from txtopo.errors import Halted
from txtopo.spouts import NOTHING, PartitionedTransactionalSpout
from txtopo.testing import TopologyHarness
from txtopo.testing.feeding import FeederSpout, FeederTopology
from txtopo.topology.batching_bolt import BatchingBolt, is_tick
from txtopo.topology.tuple_bolts import OutputCollector

CASE = ((14, (1, 2, 3)), (15, (4, 5, 6)), None, (16, (7, 8, 9)), None)
"""PY-04: tuples by id, and ticks."""


class Recording(BatchingBolt):
    """Tells what it processed, and what it acked and failed."""

    outputs: ClassVar[Sequence[str | Stream]] = ("tuples bigint",)
    raises_on: ClassVar[Hashable] = object()

    def prepare(self, config: Mapping[str, Any], context: Any, collector: OutputCollector) -> None:
        self.told: list[tuple[str, Any]] = []
        super().prepare(config, context, Listening(collector, self.told))

    def process_batch(self, key: Hashable, tuples: Sequence[Tuple]) -> None:
        self.told.append(("process", (key, [tup["id"] for tup in tuples])))
        if key == self.raises_on:
            raise ArithmeticError(key)
        self.emit([len(tuples)])


class Listening:
    """A collector that is listened to."""

    def __init__(self, collector: Any, told: list[tuple[str, Any]]) -> None:
        self._told = told
        self.emit, self.emit_direct, self.reset_timeout = collector.emit, collector.emit_direct, collector.reset_timeout
        self._collector = collector

    def ack(self, tup: Tuple) -> None:
        self._told.append(("ack", "tick" if is_tick(tup) else tup["id"]))
        self._collector.ack(tup)

    def fail(self, tup: Tuple) -> None:
        self._told.append(("fail", tup["id"]))
        self._collector.fail(tup)


class ByParity(Recording):
    """Groups by whether the sum of the values is odd."""

    def group_key(self, tup: Tuple) -> Hashable:
        total: int = sum(tup[name] for name in "abc")
        return total % 2


def fed(bolt: BatchingBolt) -> FeederTopology:
    builder = TopologyBuilder("fed")
    builder.set_spout("s", FeederSpout("id int, a int, b int, c int"))
    builder.set_bolt("batching", bolt, "s")
    builder.set_committer_bolt("counts", CountCommitter("counts", ["tuples"]), "batching")
    return FeederTopology(builder.build())


def run(bolt: Recording) -> FeederTopology:
    """PY-04's tuples and ticks."""
    feeder = fed(bolt)
    for item in CASE:
        if item is None:
            feeder.tick("batching")
        else:
            feeder.feed("s", [item[0], *item[1]], item[0])
    return feeder


def told(feeder: FeederTopology, *what: str) -> list[Any]:
    """What the running bolt told of."""
    bolt = feeder.bolt("batching")
    assert isinstance(bolt, Recording)
    return [value for name, value in bolt.told if name in what]


def test_one_group_is_processed_on_the_second_tick() -> None:
    """PY-04: ticks_between_batches 1: it is the second tick that exceeds it. Without a group key all tuples are one
    group; with auto-ack all are acked.
    """
    feeder = run(Recording())

    assert told(feeder, "process") == [(None, [14, 15, 16])]
    assert told(feeder, "ack") == ["tick", "tick", 14, 15, 16]
    assert feeder.acked == [14, 15, 16]


def test_groups_are_processed_one_by_one() -> None:
    """PY-04: group key = parity of the sum."""
    feeder = run(ByParity())

    assert told(feeder, "process", "ack") == ["tick", "tick", (0, [14, 16]), 14, 16, (1, [15]), 15]
    assert feeder.arrived("counts") == [(2,), (1,)]


def test_without_auto_ack_only_ticks_are_acked() -> None:
    """PY-04: auto-ack off: only the 2 ticks are acked."""

    class ByHand(ByParity):
        auto_ack = False

    feeder = run(ByHand())

    assert told(feeder, "process") == [(0, [14, 16]), (1, [15])]
    assert told(feeder, "ack") == ["tick", "tick"]
    assert (feeder.acked, feeder.pending("s")) == ([], 3)


@pytest.mark.parametrize(("anchored", "messages"), [(True, (14, 15, 16)), (False, ())])
def test_what_a_group_emits_is_anchored_on_all_of_it(anchored: bool, messages: tuple[int, ...]) -> None:
    """auto_anchor, as in pystorm."""

    class Anchoring(Recording):
        auto_anchor = anchored

    assert run(Anchoring()).emissions[-1].messages == messages


@pytest.mark.parametrize(("fails", "failed"), [(True, [15]), (False, [])])
def test_what_is_held_fails_with_the_group_that_raises(fails: bool, failed: list[int]) -> None:
    """auto_fail: groups that were processed before stay acked; the exception goes on, and nothing is held afterwards."""  # noqa: E501

    class Raising(ByParity):
        raises_on = 1
        auto_fail = fails

    feeder = fed(Raising())
    for item in CASE:
        if item is not None:
            feeder.feed("s", [item[0], *item[1]], item[0])
    feeder.tick("batching")
    with pytest.raises(ArithmeticError):
        feeder.tick("batching")

    assert (feeder.acked, feeder.failed) == ([14, 16], failed)
    feeder.finish_batch()
    assert len(told(feeder, "process")) == 2


def test_ticks_come_from_the_clock() -> None:
    """`topology.tick.tuple.freq.secs` of the component: a tick every 5 s; with 2 ticks between batches every third tick
    processes.
    """

    class Ticking(Recording):
        config: ClassVar[Mapping[str, Any]] = {"topology.tick.tuple.freq.secs": 5}
        ticks_between_batches = 2

    feeder = fed(Ticking())
    feeder.feed("s", [1, 0, 0, 0], 1)
    feeder.advance(14.9)
    before = list(feeder.acked)
    feeder.advance(0.1)
    feeder.feed("s", [2, 0, 0, 0], 2)
    feeder.advance(10)

    assert (before, feeder.acked, told(feeder, "ack")) == ([], [1], ["tick", "tick", "tick", 1, "tick", "tick"])
    feeder.advance(5)
    assert feeder.acked == [1, 2]


def test_ticks_without_tuples_process_nothing_and_are_counted() -> None:
    """As in pystorm: the first tick after a tuple then processes it, if enough were there before."""
    feeder = fed(Recording())
    for _ in range(3):
        feeder.tick("batching")
    feeder.feed("s", [1, 0, 0, 0], 1)
    feeder.tick("batching")

    assert told(feeder, "process") == [(None, [1])]


def test_the_end_of_a_batch_processes_what_is_left() -> None:
    """In a batch of txtopo no clock decides what is processed together."""
    feeder = fed(ByParity())
    for number in (1, 2, 3):
        feeder.feed("s", [number, number, 0, 0], number)
    assert (feeder.acked, feeder.emitted("batching")) == ([], [])

    feeder.finish_batch()

    assert (feeder.acked, feeder.emitted("batching")) == ([1, 3, 2], [(2,), (1,)])


@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_a_batch_processes_each_task_s_groups_when_all_its_tuples_have_come(acking: Any) -> None:
    """The same bolt in the runtime of batches: no tick comes, and with acking by tuple every tree is complete."""
    builder = TopologyBuilder("batched", acking=acking)
    builder.set_spout("s", RowsSpout("id int, a int, b int, c int"))
    builder.set_bolt("batching", ByParity(), "s")
    builder.set_committer_bolt("kept", Keeping(), "batching")

    ran = run_tuples(builder.build(), {"s": [[(14, 1, 2, 3), (15, 4, 5, 6)], [(16, 7, 8, 9)]]})

    assert ran.failure is None
    assert ran.rows("kept") == [(2,), (1,)]
    assert (None if ran.acks is None else (ran.acks.roots, ran.acks.complete)) == (
        None if acking == "batch" else (3, True)
    )


class Picky(BatchingBolt):
    """One group to a word; cannot do bad ones."""

    outputs: ClassVar[Sequence[str | Stream]] = ("word string", "n bigint")

    def group_key(self, tup: Tuple) -> Hashable:
        word: str = tup["word"]
        return word

    def process_batch(self, key: Hashable, tuples: Sequence[Tuple]) -> None:
        if str(key).startswith("bad"):
            raise ArithmeticError(f"cannot do {key}")
        self.emit((key, len(tuples)))


class Listed(PartitionedTransactionalSpout):
    """Words, in one batch."""

    outputs = ("word string",)

    def number_of_partitions(self) -> int:
        return 1

    def next_range(self, partition: int, last: Any) -> Any:
        return NOTHING if last else {"all": True}

    def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Any:
        return [(word,) for word in ("a", "bad", "b", "worse", "bad", "bad too", "a")]


def picky(acking: Any) -> Topology:
    builder = TopologyBuilder("picky", acking=acking)
    builder.set_spout("words", Listed())
    builder.set_bolt("picky", Picky()).shuffle_grouping("words")
    counts = CountCommitter("counts", ["word"], sums=["n"])
    builder.set_committer_bolt("counts", counts).fields_grouping("picky", ["word"])
    return builder.build()


@pytest.mark.parametrize("acking", ["batch", "tuple", "off"])
def test_the_tuples_of_a_group_that_raises_are_left_out_and_no_others(acking: Any) -> None:
    """Groups behind it are processed all the same, so that one run tells of all that fail."""
    with TopologyHarness(picky(acking), on_poison="dead_letter_rows", attempts_max=1) as harness:
        if acking == "off":
            # Then `fail` does nothing, and an error at the end of a batch belongs to no tuple.
            with pytest.raises(Halted, match=r"test_batching_bolt\.py:\d+: ArithmeticError: cannot do bad"):
                harness.run()
            return
        harness.run()

        assert {key[0]: row[1] for key, row in harness.table("counts").items()} == {"a": 2, "b": 1, "worse": 1}
        assert [
            (letter.position, letter.reason.partition("ArithmeticError: ")[2]) for letter in harness.dead_letters
        ] == [
            ("partition 0 tuple 2", "cannot do bad; on word='bad'"),
            ("partition 0 tuple 5", "cannot do bad; on word='bad'"),
            ("partition 0 tuple 6", "cannot do bad too; on word='bad too'"),
        ]


@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_the_error_of_a_group_is_told_with_its_line_and_a_tuple(acking: Any) -> None:
    """`fail` in an `except` is because of what is being handled."""
    with TopologyHarness(picky(acking), attempts_max=1) as harness, pytest.raises(Halted) as caught:
        harness.run()

    assert re.search(
        r"test_batching_bolt\.py:\d+: ArithmeticError: cannot do bad; on word='bad'; on partition 0 tuple 2$",
        str(caught.value),
    )
