"""Every kind of bolt and grouping under a FeederTopology, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.testing.test_feeding import Execute, Sink, counted, started
from txtopo import CountCommitter, TopologyBuilder
from txtopo.bolts import (
    ArrowBolt,
    ArrowOutputCollector,
    BasicBolt,
    BasicOutputCollector,
    BatchBolt,
    BatchOutputCollector,
    FailedException,
    Stream,
    TopologyContext,
    Tuple,
)
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, TopologyError
from txtopo.testing.feeding import FeederSpout, FeederTopology

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
