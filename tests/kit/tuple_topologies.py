"""Topologies of tuple bolts for tests on Spark: levels, fan-out, a diamond and two committers, over rows that the
metadata holds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kit.list_spout import ListSpout, leak, wait_for_twin
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.plan import Metadata
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Position, Topology
from txtopo.topology.spark_types import RowsPromise
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import BasicBolt, BatchBolt, RichBolt

ROW = "text string, amount int"


class PlacedRows(ListSpout):
    """Knows the positions of its tuples: row 1 of part 2 stands at `part-2.txt:1`."""

    def __init__(self) -> None:
        super().__init__(ROW)

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        at = metadata["parts"].index(part["rows"])
        return Position(position=f"part-{at + 1}.txt:{number + 1}", raw=str(part["rows"][number]))


class Split(BasicBolt):
    """A text becomes its words. Some words are instructions to misbehave."""

    outputs = ("word string", "amount int")

    def execute(self, tup: Tuple, collector: Any) -> None:
        for word in tup["text"].split():
            misbehave(word)
            collector.emit((word, tup["amount"]))


class Count(BatchBolt):
    """Counts words, and tells at the end of the batch."""

    outputs = ("word string", "n bigint")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup["word"]] += 1

    def finish_batch(self) -> None:
        for word, n in self.counts.items():
            self.collector.emit((word, n))


class Large(BasicBolt):
    """Lets words with a large amount pass; a negative amount is an error."""

    outputs = ("word string", "amount int")

    def execute(self, tup: Tuple, collector: Any) -> None:
        if tup["amount"] < 0:
            raise ValueError(f"no such amount: {tup['amount']}")
        if tup["amount"] > 5:
            collector.emit(tup.values)


class Join(BatchBolt):
    """Both sides of the diamond: how often a word came, and how often with a large amount."""

    outputs = ("word string", "n bigint", "large bigint")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector
        self.counts: dict[str, int] = {}
        self.large: Counter[str] = Counter()

    def execute(self, tup: Tuple) -> None:
        if tup.component == "count":
            self.counts[tup["word"]] = tup["n"]
        else:
            self.large[tup["word"]] += 1

    def finish_batch(self) -> None:
        for word, n in self.counts.items():
            self.collector.emit((word, n, self.large[word]))


class Forgetful(RichBolt):
    """Passes tuples on, and forgets to ack those with amount 13; fails those with 14."""

    outputs = ("word string", "amount int")

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.collector.emit(tup.values, anchors=[tup])
        if tup["amount"] == 14:
            self.collector.fail(tup)
        elif tup["amount"] != 13:
            self.collector.ack(tup)


class FrameRows(ListSpout):
    """Gives the numbers below `metadata["count"]` as a DataFrame of Spark's own; below 0 one that lacks a field."""

    emits_frame = True

    def __init__(self) -> None:
        super().__init__("word string, amount int")

    def frame(self, spark: Any, metadata: Metadata) -> Any:
        if metadata["count"] < 0:
            return spark.range(1).selectExpr("'w' AS word")
        numbers = spark.range(0, metadata["count"], 1, 3)
        return numbers.selectExpr("concat('w', id % 2) AS word", "CAST(id AS int) AS amount", "id AS other")


class Keep(BatchCommitter):
    """Its rows are the tuples as they came."""

    def commit(self, transaction: Any, rows: Any, collector: Any) -> int | None:
        return None


def misbehave(word: str) -> None:
    """`die-once:FILE` ends the worker the first time, `die` each time; `wait:FOLDER` says that it runs, and waits for
    the file `go`.

    `twin:FOLDER` says that it runs, and waits until it runs a second time beside the first. `full` finds no memory; for
    `leak:FOLDER` see `leak`.
    """
    import time

    what, _, where = word.partition(":")
    match what:
        case "die":
            os._exit(9)
        case "full":
            raise MemoryError
        case "leak":
            leak(Path(where))
        case "die-once" if not Path(where).exists():
            Path(where).touch()
            os._exit(9)
        case "wait":
            (Path(where) / f"pid-{os.getpid()}").touch()
            deadline = time.monotonic() + 60
            while not (Path(where) / "go").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        case "twin":
            wait_for_twin(Path(where))


def diamond(name: str = "diamond", **settings: Any) -> Topology:
    """rows -> split -> count and large -> join -> words (counted); large -> kept (as they came)."""
    builder = TopologyBuilder(name, **settings)
    builder.set_spout("source", PlacedRows())
    builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("source")
    builder.set_bolt("count", Count(), parallelism_hint=3).fields_grouping("split", ["word"])
    builder.set_bolt("large", Large(), parallelism_hint=2).shuffle_grouping("split")
    join = builder.set_bolt("join", Join(), parallelism_hint=2)
    join.fields_grouping("count", ["word"]).fields_grouping("large", ["word"])
    words = CountCommitter("words", ["word"], count="batches", sums={"n": "n", "large": "large"})
    builder.set_committer_bolt("words", words, parallelism_hint=2).fields_grouping("join", ["word"])
    builder.set_committer_bolt("kept", Keep(), parallelism_hint=2).fields_grouping("large", ["word"])
    return builder.build()


def tracked() -> Topology:
    """rows -> split -> forgetful -> kept, with every tuple tracked."""
    builder = TopologyBuilder("tracked", acking="tuple")
    builder.set_spout("source", PlacedRows())
    builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("source")
    builder.set_bolt("forgetful", Forgetful(), parallelism_hint=2).fields_grouping("split", ["word"])
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("forgetful")
    return builder.build()


def framed() -> Topology:
    """A DataFrame of Spark's own, straight to a tuple bolt and a committer, beside another spout."""
    builder = TopologyBuilder("framed")
    builder.set_spout("numbers", FrameRows())
    builder.set_spout("source", PlacedRows())
    builder.set_bolt("split", Split()).shuffle_grouping("source")
    large = builder.set_bolt("large", Large(), parallelism_hint=2)
    large.fields_grouping("numbers", ["word"]).fields_grouping("split", ["word"])
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("large")
    return builder.build()


def mixed(rows: RowsPromise = "fewer") -> Topology:
    """rows -> clean (DataFrame) -> split -> both (DataFrame, reads split and rows) -> words (counted), and -> large ->
    after.
    """
    builder = TopologyBuilder("mixed")
    builder.set_spout("source", PlacedRows())
    builder.set_bolt("clean", _clean, inputs="source", fields=ROW, rows=rows)
    builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("clean")
    builder.set_bolt("both", _both, inputs=["split", "source"], fields="word string, amount int")
    builder.set_bolt("large", Large(), parallelism_hint=2).fields_grouping("both", ["word"])
    words = CountCommitter("words", ["word"], count="n", sums={"amount": "amount"})
    builder.set_committer_bolt("words", words).fields_grouping("both", ["word"])
    builder.set_committer_bolt("after", Keep()).shuffle_grouping("large")
    return builder.build()


def _clean(source: Any) -> Any:
    return source.filter("amount <> 3")


def _both(split: Any, source: Any) -> Any:
    return split.unionByName(source.selectExpr("concat('all ', text) AS word", "amount"))
