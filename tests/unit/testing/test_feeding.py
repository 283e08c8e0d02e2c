"""Tuples that are held across feeds, and time: Storm's ack API, tuple by tuple, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import (
    ArrowBolt,
    ArrowOutputCollector,
    BasicBolt,
    BasicOutputCollector,
    BatchBolt,
    BatchOutputCollector,
    FailedException,
    OutputCollector,
    RichBolt,
    Stream,
    TopologyContext,
    Tuple,
)
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, TopologyError
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


# ----------------------------------------------------------------------------------------------------------------------


class Splitter(BasicBolt):
    """n copies of n; refuses 13."""

    outputs = ("n bigint", Stream("why string", name="refused"))

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        self.context = context

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        if tup["n"] == 13:
            collector.emit(["13"], stream="refused")
            raise FailedException("13")
        if tup["n"] < 0:
            raise ArithmeticError("below 0")
        for _ in range(tup["n"]):
            collector.emit([tup["n"]])


class Total(BatchBolt):
    """The sum, at the end; fails at 7."""

    outputs = ("n bigint",)

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.total = collector, 0

    def execute(self, tup: Tuple) -> None:
        if tup["n"] == 7:
            raise FailedException("7")
        self.total += tup["n"]

    def finish_batch(self) -> None:
        self.collector.emit([self.total])


class Doubler(ArrowBolt):
    """Twice the number, anchored or not."""

    outputs = ("n bigint",)

    def execute(self, batch: pa.RecordBatch, collector: ArrowOutputCollector) -> None:
        doubled = pa.record_batch([pa.array([2 * value for value in batch["n"].to_pylist()])], names=["n"])
        collector.emit_batch(doubled, anchors=pa.array([0] * doubled.num_rows))

    def finish_batch(self, collector: ArrowOutputCollector) -> None:
        collector.emit_batch(pa.record_batch([pa.array([-1])], names=["n"]))


def one_bolt(bolt: Any, settings: Mapping[str, Any] | None = None) -> FeederTopology:
    builder = started()
    builder.set_bolt("bolt", bolt, "s")
    return FeederTopology(counted(builder, "bolt"), settings)


def test_a_basic_bolt_anchors_and_acks_by_itself() -> None:
    """Storm's IBasicBolt: FailedException fails the tuple; anything else ends the worker, here the test."""
    builder = started()
    builder.set_bolt("bolt", Splitter(), "s")
    builder.set_bolt("sink", Sink(lambda bolt, tup: None)).shuffle_grouping("bolt", stream="refused")
    feeder = FeederTopology(counted(builder, "bolt"))

    feeder.feed("s", [3], "a")
    feeder.feed("s", [13], "b")
    with pytest.raises(ArithmeticError):
        feeder.feed("s", [-1], "c")

    assert (feeder.acked, feeder.failed) == (["a"], ["b"])
    assert (feeder.emitted("bolt"), feeder.emitted("bolt", "refused")) == ([(3,)] * 3, [("13",)])
    assert [item.messages for item in feeder.emissions if item.component == "bolt"] == [("a",)] * 3 + [("b",)]


def test_a_batch_bolt_is_finished_by_hand() -> None:
    """A BatchBolt acks what it has taken in; what it emits at the end belongs to no tree."""
    feeder = one_bolt(Total())
    for number in (1, 2, 7):
        feeder.feed("s", [number], number)
    assert (feeder.acked, feeder.failed, feeder.emitted("bolt")) == ([1, 2], [7], [])

    feeder.finish_batch()

    assert feeder.arrived("counts") == [(3,)]
    assert feeder.emissions[-1].messages == ()


def test_an_arrow_bolt_gets_batches_of_one_row() -> None:
    """An ArrowBolt takes part as any other: its anchors name the row that it was given."""
    feeder = one_bolt(Doubler())
    feeder.feed("s", [4], "a")
    feeder.finish_batch()

    assert (feeder.acked, feeder.arrived("counts")) == (["a"], [(8,), (-1,)])
    assert [item.messages for item in feeder.emissions] == [("a",), ("a",), ()]


def test_bolts_know_where_they_stand_and_have_their_own_settings() -> None:
    """TopologyContext: ids of tasks from 1, the same in every run; a component's own settings are over the topology's."""  # noqa: E501
    builder = started(config={"a": 1, "b": 1})
    bolt = Splitter()
    bolt.config = {"b": 2}  # type: ignore[misc]
    builder.set_bolt("bolt", bolt, "s", parallelism_hint=2)
    feeder = FeederTopology(counted(builder, "bolt"), {"c": 3})

    context = feeder.bolt("bolt", 1).context  # type: ignore[attr-defined]

    assert (context.task_id, context.task_index, list(context.tasks["counts"])) == (2, 1, [3])
    assert [context.config[name] for name in "abc"] == [1, 2, 3]
    assert feeder.bolt("bolt") is not bolt


# ----------------------------------------------------------------------------------------------------------------------


def test_groupings_are_those_of_a_batch() -> None:
    """Fields grouping by content; all gives every task a copy, each an edge of the tree."""
    builder = started()
    hold: Execute = lambda bolt, tup: bolt.held.append(tup)  # noqa: E731
    builder.set_bolt("fields", Sink(hold), parallelism_hint=3).fields_grouping("s", "n")
    builder.set_bolt("all", Sink(hold), parallelism_hint=3).all_grouping("s")
    feeder = FeederTopology(counted(builder, "s"))
    for number in (1, 2, 3, 1, 2, 3):
        feeder.feed("s", [number], number)

    by_task: Sequence[Any] = [feeder.bolt("fields", task) for task in range(3)]
    keys = [{tup["n"] for tup in bolt.held} for bolt in by_task]
    assert sum(len(found) for found in keys) == 3
    assert all(len(bolt.held) == 2 * len(found) for bolt, found in zip(by_task, keys, strict=True))
    assert [len(feeder.bolt("all", task).held) for task in range(3)] == [6, 6, 6]  # type: ignore[attr-defined]
    assert all(len(item.to) == 5 for item in feeder.emissions)


class Director(BasicBolt):
    """Emits to the task that it is told."""

    outputs = (Stream("n bigint", name="to", direct=True), Stream("n bigint", name="plain"))

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        {
            1: lambda: collector.emit_direct(3, [1], stream="to"),
            2: lambda: collector.emit([1], stream="to"),
            3: lambda: collector.emit_direct(3, [1], stream="plain"),
            4: lambda: collector.emit_direct(4, [1], stream="to"),
            5: lambda: collector.emit([1], stream="nowhere"),
            6: lambda: collector.emit(["one"], stream="plain"),
        }[tup["n"]]()


@pytest.mark.parametrize(
    ("number", "refused", "words"),
    [
        (2, ValueError, "'to' of bolt is direct: name the task with emit_direct"),
        (3, ValueError, "'plain' of bolt is not declared direct: use emit"),
        (4, ValueError, "task 4 does not read stream 'to' of bolt directly"),
        (5, ValueError, "bolt declares no stream 'nowhere'; its streams: to, plain"),
        (6, BatchDataError, "field n: 'one' \\(str\\) is no bigint"),
    ],
)
def test_what_a_batch_refuses_is_refused_here(number: int, refused: type[Exception], words: str) -> None:
    """One set of rules for streams and values."""
    builder = started()
    builder.set_bolt("bolt", Director(), "s")
    builder.set_bolt("named", Sink(lambda bolt, tup: bolt.collector.ack(tup)), parallelism_hint=2).direct_grouping(
        "bolt", stream="to"
    )
    builder.set_committer_bolt("counts", CountCommitter("counts", ["n"])).shuffle_grouping("bolt", stream="plain")
    feeder = FeederTopology(builder.build())

    feeder.feed("s", [1], "a")
    with pytest.raises(refused, match=words):
        feeder.feed("s", [number], "b")

    assert (feeder.acked, feeder.emissions[1].to, feeder.emissions[1].task) == (["a"], (3,), 1)


def test_values_are_as_a_batch_would_hold_them() -> None:
    """A bolt sees here what it sees in a batch: values have been through their declared types."""
    builder = TopologyBuilder("fed")
    builder.set_spout("s", FeederSpout("n decimal(10,2)"))
    builder.set_bolt("sink", Sink(lambda bolt, tup: None), "s")
    feeder = FeederTopology(counted(builder, "s"))
    feeder.feed("s", [Decimal("1.5")])

    assert str(feeder.arrived("sink")[0][0]) == "1.50"
    with pytest.raises(BatchDataError, match="emitted 2 values"):
        feeder.feed("s", [1, 2])


def test_what_cannot_be_fed_is_said() -> None:
    """An error names what there is."""
    feeder = one_bolt(Doubler())
    for spout, task in (("x", 0), ("s", 1)):
        with pytest.raises(ValueError, match="its spouts: s"):
            feeder.feed(spout, [1], task=task)
    with pytest.raises(ValueError, match="its bolts and committers: bolt, counts"):
        feeder.arrived("s")
    with pytest.raises(ValueError, match="is a committer"):
        feeder.bolt("counts")
    with pytest.raises(ValueError, match="does not go back"):
        feeder.advance(-1)
    builder = started()
    builder.set_bolt("frame", lambda frame: frame, "s", fields="n bigint")
    with pytest.raises(TopologyError, match="only tuple bolts can be fed"):
        FeederTopology(counted(builder, "frame"))


def test_each_task_of_a_spout_has_its_own_bound() -> None:
    """STORM.md 5: un-acked roots per spout task."""
    builder = TopologyBuilder("fed")
    builder.set_spout("s", FeederSpout("n bigint"), parallelism_hint=2)
    builder.set_bolt("sink", Sink(lambda bolt, tup: bolt.held.append(tup)), "s")
    feeder = FeederTopology(counted(builder, "s"), {"topology.max.spout.pending": 1})

    assert [feeder.feed("s", [1], number, task=task) for number, task in enumerate((0, 1, 0, 1))] == [
        True,
        True,
        False,
        False,
    ]
    assert (feeder.waiting("s", task=0), feeder.waiting("s", task=1)) == (1, 1)


def test_bolts_are_cleaned_up_at_the_end() -> None:
    """Storm's cleanup."""
    cleaned: list[int] = []

    class Cleaned(Splitter):
        def cleanup(self) -> None:
            cleaned.append(self.context.task_id)

        def __deepcopy__(self, memo: Any) -> Cleaned:
            return Cleaned()

    builder = started()
    builder.set_bolt("bolt", Cleaned(), parallelism_hint=2).shuffle_grouping("s")
    builder.set_bolt("sink", Sink(lambda bolt, tup: None)).shuffle_grouping("bolt", stream="refused")
    with FeederTopology(counted(builder, "bolt")):
        pass

    assert cleaned == [1, 2]
