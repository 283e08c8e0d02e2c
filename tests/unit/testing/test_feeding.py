"""Tuples that are held across feeds, and time: Storm's ack API, tuple by tuple, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import (
    OutputCollector,
    RichBolt,
    Stream,
    TopologyContext,
    Tuple,
)
from txtopo.testing.feeding import DEFAULTS, FeederSpout, FeederTopology

Execute = Callable[[Any, Tuple], None]
T10 = {"topology.message.timeout.secs": 10}


class Rich(RichBolt):
    """A bolt that keeps its collector."""

    outputs: ClassVar[Sequence[str | Stream]] = ("n bigint",)

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        self.context = context
        self.collector = collector
        self.held: list[Tuple] = []


class Brancher(Rich):
    """Emits so many tuples for each, and acks it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def execute(self, tup: Tuple) -> None:
        for _ in range(self.count):
            self.collector.emit(tup.values, anchors=[tup])
        self.collector.ack(tup)


class Gatherer(Rich):
    """Emits one tuple for so many, anchored on all of them, and acks them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if len(self.held) == self.count:
            self.collector.emit([len(self.held)], anchors=self.held)
            for held in self.held:
                self.collector.ack(held)
            self.held.clear()


class Sink(Rich):
    """Emits nothing; what it does with a tuple is a function."""

    outputs = ()

    def __init__(self, does: Execute) -> None:
        self.does = does

    def execute(self, tup: Tuple) -> None:
        self.does(self, tup)


def counted(builder: TopologyBuilder, source: str) -> Topology:
    """The topology, with something to keep."""
    builder.set_committer_bolt("counts", CountCommitter("counts", ["n"]), source)
    return builder.build()


def started(*spouts: str, **more: Any) -> TopologyBuilder:
    builder = TopologyBuilder("fed", **more)
    for spout in spouts or ("s",):
        builder.set_spout(spout, FeederSpout("n bigint"))
    return builder


def with_sink(does: Execute, settings: Mapping[str, Any] | None = None) -> FeederTopology:
    """One spout, one bolt that holds tuples, and a committer beside it."""
    builder = started()
    builder.set_bolt("sink", Sink(does), "s")
    return FeederTopology(counted(builder, "s"), settings)


def acked_since(feeder: FeederTopology, seen: dict[str, int], spout: str) -> int:
    """How many were acked since the last call."""
    count = len(feeder.acked_of(spout))
    new, seen[spout] = count - seen.get(spout, 0), count
    return new


def test_trees_that_meet_in_a_tuple_are_acked_together() -> None:
    """AK-01: three spouts, branchers of 2, 4 and 1, an aggregator of 3 whose output is anchored on all three, a
    brancher of 2.
    """
    builder = started("s1", "s2", "s3")
    for number, branches in ((1, 2), (2, 4), (3, 1)):
        builder.set_bolt(f"b{number}", Brancher(branches), f"s{number}")
    builder.set_bolt("gather", Gatherer(3), ["b1", "b2", "b3"])
    builder.set_bolt("last", Brancher(2), "gather")
    feeder = FeederTopology(counted(builder, "last"))
    seen: dict[str, int] = {}

    feeder.feed("s1", [1], "a")
    assert acked_since(feeder, seen, "s1") == 0
    feeder.feed("s2", [1], "b")
    assert (acked_since(feeder, seen, "s1"), acked_since(feeder, seen, "s2")) == (1, 1)
    feeder.feed("s1", [1], "c")
    assert acked_since(feeder, seen, "s1") == 0
    feeder.feed("s1", [1], "d")
    assert acked_since(feeder, seen, "s1") == 1
    feeder.feed("s3", [1], "e")
    assert (acked_since(feeder, seen, "s1"), acked_since(feeder, seen, "s3")) == (0, 0)
    assert (feeder.acked_of("s1"), feeder.failed, feeder.pending("s3")) == (["a", "c"], [], 1)
    assert len(feeder.arrived("counts")) == 6


def test_a_tree_that_branches_and_meets_again_is_acked_when_both_ways_are_done() -> None:
    """AK-02: a spout, two identity bolts, an aggregator of 4: two feeds, 0 acks, then 2."""
    builder = started()
    for name in ("left", "right"):
        builder.set_bolt(name, Brancher(1), "s")
    builder.set_bolt("gather", Gatherer(4), ["left", "right"])
    feeder = FeederTopology(counted(builder, "gather"))

    feeder.feed("s", [1], "a")
    assert feeder.acked == []
    feeder.feed("s", [2], "b")
    assert feeder.acked == ["a", "b"]


def every_other(bolt: Any, tup: Tuple) -> None:
    bolt.held.append(tup)
    if len(bolt.held) % 2:
        bolt.collector.ack(tup)


def test_a_tuple_that_is_never_acked_fails_by_its_timeout() -> None:
    """AK-04: timeout 10 s, every other tuple acked: after 9 s nothing failed, 12 s later the second did."""
    feeder = with_sink(every_other, T10)
    for message, value in (("a", 1), ("b", 2), ("c", 3)):
        feeder.feed("s", [value], message)

    feeder.advance(9)
    assert (feeder.acked, feeder.failed) == (["a", "c"], [])
    feeder.advance(12)
    assert (feeder.acked, feeder.failed_of("s"), feeder.now) == (["a", "c"], ["b"], 21)


def test_without_timeouts_a_tuple_waits_for_ever() -> None:
    """AK-04: with timeouts disabled the second never fails."""
    feeder = with_sink(every_other, {**T10, "topology.enable.message.timeouts": False})
    feeder.feed("s", [1], "a")
    feeder.feed("s", [2], "b")

    feeder.advance(10_000)

    assert (feeder.acked, feeder.failed, feeder.pending("s")) == (["a"], [], 1)


def resetting(bolt: Any, tup: Tuple) -> None:
    """Keeps the first, resets its time on each later one; acks the third and fourth, at the fifth that one and the
    first.
    """
    bolt.held.append(tup)
    number = len(bolt.held)
    if number == 1:
        return
    bolt.collector.reset_timeout(bolt.held[0])
    if number in (3, 4):
        bolt.collector.ack(tup)
    if number == 5:
        bolt.collector.ack(bolt.held[0])
        bolt.collector.ack(tup)


def test_a_reset_gives_a_tree_more_time() -> None:
    """AK-05: 1 and 2 at 0 s, 3 at 9 s, 4 at 18 s; at 20 s 2 has failed; 5 acks itself and 1, which never failed."""
    feeder = with_sink(resetting, T10)
    for number in (1, 2):
        feeder.feed("s", [number], number)
    feeder.advance(9)
    feeder.feed("s", [3], 3)
    feeder.advance(9)
    feeder.feed("s", [4], 4)
    before = list(feeder.failed)
    feeder.advance(2)
    feeder.feed("s", [5], 5)

    assert (before, feeder.failed) == ([], [2])
    assert feeder.acked == [3, 4, 1, 5]


def test_without_ackers_a_message_is_acked_right_away() -> None:
    """AK-08 (i): ackers 0: acked at the emit, what bolts ack and fail is heard by nobody, `topology.max.spout.pending`
    bounds nothing.
    """

    def fails(bolt: Any, tup: Tuple) -> None:
        bolt.collector.fail(tup)
        bolt.collector.reset_timeout(tup)

    feeder = with_sink(fails, {"topology.acker.executors": 0, "topology.max.spout.pending": 1})
    assert feeder.feed("s", [1], "a")
    assert feeder.feed("s", [2], "b")
    feeder.advance(100)

    assert (feeder.acked, feeder.failed, feeder.pending("s")) == (["a", "b"], [], 0)


def test_none_is_how_storm_writes_not_given() -> None:
    """A setting that is None has its default: one acker, 30 s, no bound."""
    none = dict.fromkeys(DEFAULTS)
    feeder = with_sink(every_other, none)

    assert [feeder.feed("s", [number], number) for number in (1, 2, 3, 4)] == [True] * 4
    feeder.advance(59)
    assert (feeder.acked, feeder.failed) == ([1, 3], [])
    feeder.advance(1)
    assert feeder.failed == [2, 4]


def test_acking_off_is_no_ackers() -> None:
    """`acking="off"` of a topology is Storm's ackers 0."""
    builder = started(acking="off")
    builder.set_bolt("sink", Sink(lambda bolt, tup: bolt.collector.fail(tup)), "s")
    feeder = FeederTopology(counted(builder, "s"))

    feeder.feed("s", [1], "a")

    assert (feeder.acked, feeder.failed) == (["a"], [])


def test_a_message_that_nobody_reads_is_acked() -> None:
    """AK-08 (ii): no subscriber."""
    read = counted(started(), "s")
    alone = Topology(name="alone", spouts=read.spouts, bolts=(), committers=())

    feeder = FeederTopology(alone)
    feeder.feed("s", [1], "a")

    assert (feeder.acked, feeder.emissions[0].to) == (["a"], ())


def test_a_tuple_without_message_id_is_neither_acked_nor_failed_nor_pending() -> None:
    """AK-08 (iii): an unreliable emit, also one that its bolt fails."""
    feeder = with_sink(lambda bolt, tup: bolt.collector.fail(tup), {**T10, "topology.max.spout.pending": 1})

    assert feeder.feed("s", [1])
    assert feeder.feed("s", [2])
    feeder.advance(100)

    assert (feeder.acked, feeder.failed, feeder.pending("s")) == ([], [], 0)
    assert feeder.arrived("sink") == [(1,), (2,)]


def test_a_spout_waits_while_too_many_tuples_are_not_answered() -> None:
    """STORM.md 5: `topology.max.spout.pending`: nextTuple is not called at the limit; an answer or a timeout lets it go
    on, in order.
    """
    feeder = with_sink(lambda bolt, tup: bolt.held.append(tup), {**T10, "topology.max.spout.pending": 2})

    assert [feeder.feed("s", [number], number) for number in (1, 2, 3, 4)] == [True, True, False, False]
    assert (feeder.pending("s"), feeder.waiting("s"), feeder.arrived("sink")) == (2, 2, [(1,), (2,)])
    feeder.advance(20)
    assert (feeder.failed, feeder.waiting("s"), feeder.arrived("sink")) == ([1, 2], 0, [(1,), (2,), (3,), (4,)])


@pytest.mark.parametrize("ackers", [1, 3])
def test_a_failed_tuple_fails_every_tree_that_it_is_in(ackers: int) -> None:
    """STORM.md 5: several anchors: the tuple belongs to all their trees, whichever ackers have them."""
    builder = started()
    builder.set_bolt("gather", Gatherer(3), "s")
    builder.set_bolt("sink", Sink(lambda bolt, tup: bolt.collector.fail(tup)), "gather")
    feeder = FeederTopology(counted(builder, "s"), {"topology.acker.executors": ackers})
    for message in ("a", "b", "c", "d"):
        feeder.feed("s", [1], message)

    assert (sorted(map(str, feeder.failed)), feeder.acked, feeder.pending("s")) == (["a", "b", "c"], [], 1)
    assert feeder.emissions[3].component == "gather"
    assert feeder.emissions[3].messages == ("a", "b", "c")


def test_the_same_anchor_twice_and_two_anchors_of_one_tree_are_legal() -> None:
    """STORM.md 5: same anchor listed twice is legal; self-anchoring: two tuples of one tree as anchors of a third."""

    class Twice(Rich):
        def execute(self, tup: Tuple) -> None:
            self.collector.emit([1], anchors=[tup, tup])
            self.collector.emit([2], anchors=tup)  # type: ignore[arg-type]  # one tuple will do
            self.collector.ack(tup)

    builder = started()
    builder.set_bolt("twice", Twice(), "s")
    builder.set_bolt("gather", Gatherer(2), "twice")
    feeder = FeederTopology(counted(builder, "gather"))
    feeder.feed("s", [1], "a")

    assert (feeder.acked, feeder.arrived("counts")) == (["a"], [(2,)])


def test_an_unanchored_tuple_belongs_to_no_tree() -> None:
    """STORM.md 5: what is emitted without anchors may fail without harm."""

    class Loose(Rich):
        def execute(self, tup: Tuple) -> None:
            self.collector.emit([1])
            self.collector.ack(tup)

    builder = started()
    builder.set_bolt("loose", Loose(), "s")
    builder.set_bolt("sink", Sink(lambda bolt, tup: bolt.collector.fail(tup)), "loose")
    feeder = FeederTopology(counted(builder, "s"))
    feeder.feed("s", [1], "a")

    assert (feeder.acked, feeder.failed, feeder.arrived("sink")) == (["a"], [], [(1,)])


def test_an_answer_after_the_timeout_is_ignored() -> None:
    """STORM.md 5: a later ack is ignored."""

    def late(bolt: Any, tup: Tuple) -> None:
        bolt.held.append(tup)
        if len(bolt.held) == 2:
            bolt.collector.ack(bolt.held[0])

    feeder = with_sink(late, T10)
    feeder.feed("s", [1], "a")
    feeder.advance(20)
    feeder.feed("s", [2])

    assert (feeder.acked, feeder.failed) == ([], ["a"])
