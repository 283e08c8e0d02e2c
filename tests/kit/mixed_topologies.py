"""Topologies that mix functions over DataFrames and tuple bolts, for tests on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.kit.list_spout import ListSpout
from tests.kit.tuple_topologies import ROW, Keep, Large, PlacedRows, Split
from txtopo.committers.count_committer import CountCommitter
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.tuple_bolts import ArrowBolt, BatchBolt

WORD = "word string, amount int"


class Sizes(ArrowBolt):
    """Tells the record batches that it gets: how many rows, the first and the last word."""

    outputs = ("rows bigint", "first string", "last string", "task int")

    def prepare(self, config: Any, context: Any) -> None:
        self.task = context.task_index

    def execute(self, batch: Any, collector: Any) -> None:
        words = batch["word"].to_pylist()
        found = [[batch.num_rows], [words[0]], [words[-1]], [self.task]]
        collector.emit_batch(pa.RecordBatch.from_arrays(found, ["rows", "first", "last", "task"]), anchors=[0])


class Stamp(BatchBolt):
    """Says which attempt it was made for, and how many words it got."""

    outputs = ("txid bigint", "attempt bigint", "n bigint")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.attempt, self.n = collector, attempt, 0

    def execute(self, tup: Any) -> None:
        self.n += 1

    def finish_batch(self) -> None:
        self.collector.emit((self.attempt.txid, self.attempt.attempt, self.n))


def row_by_row(
    name: str = "row_by_row",
    *,
    first: Callable[[Any], Any] | None = None,
    loud: Callable[[Any], Any] | None = None,
) -> Topology:
    """rows -> clean (DataFrame) -> split -> loud (DataFrame) -> sizes -> shape, large -> kept and stamp -> stamps;
    clean -> long (DataFrame) -> words (counted). Each function treats each row by itself.
    """
    builder = TopologyBuilder(name)
    builder.set_spout("source", PlacedRows())
    builder.set_bolt("clean", first or clean, inputs="source", fields=ROW)
    builder.set_bolt("long", long, inputs="clean", fields=WORD)
    builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("clean")
    builder.set_bolt("loud", loud or shout, inputs="split", fields=WORD)
    builder.set_bolt("sizes", Sizes(), parallelism_hint=2).shuffle_grouping("loud")
    builder.set_bolt("large", Large(), parallelism_hint=2).fields_grouping("loud", ["word"])
    builder.set_bolt("stamp", Stamp(), parallelism_hint=2).shuffle_grouping("loud")
    words = CountCommitter("words", ["word"], count="n", sums={"amount": "amount"})
    builder.set_committer_bolt("words", words).fields_grouping("long", ["word"])
    builder.set_committer_bolt("shape", Keep(), parallelism_hint=2).shuffle_grouping("sizes")
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("large")
    builder.set_committer_bolt("stamps", Keep()).shuffle_grouping("stamp")
    return builder.build()


def short(name: str, first: Callable[[Any], Any], *, acking: Any = "batch") -> Topology:
    """rows -> clean (a function over DataFrames) -> split -> kept."""
    builder = TopologyBuilder(name, acking=acking)
    builder.set_spout("source", PlacedRows())
    builder.set_bolt("clean", first, inputs="source", fields=ROW)
    builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("clean")
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("split")
    return builder.build()


def clean(frame: Any) -> Any:
    return frame.filter("amount <> 3").selectExpr("lower(text) AS text", "amount")


def long(frame: Any) -> Any:
    return frame.selectExpr("explode(split(text, ' ')) AS word", "amount").filter("length(word) > 1")


def shout(frame: Any) -> Any:
    return frame.selectExpr("upper(word) AS word", "amount").filter("word <> 'B'")


def averaged(frame: Any) -> Any:
    """Depends on other rows."""
    return frame.groupBy("word").agg({"amount": "max"}).toDF("word", "amount")


def hidden_field() -> Topology:
    """Its spout has a field with the name of the hidden column."""
    builder = TopologyBuilder("hidden_field")
    builder.set_spout("source", ListSpout("`$run` string, amount int"))
    builder.set_bolt("same", lambda frame: frame, inputs="source", fields="`$run` string, amount int")
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("same")
    return builder.build()
