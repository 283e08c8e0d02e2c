"""One topology with every kind of bolt, grouping and committer, over an opaque spout whose tuples are in its metadata."""  # noqa: E501

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from txtopo import CountCommitter, TopologyBuilder
from txtopo.core.fields import Fields
from txtopo.core.values import Failure, TransactionAttempt
from txtopo.spouts.opaque import OpaquePartitionedTransactionalSpout
from txtopo.spouts.partitioned import NOTHING
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector, CommitTransaction
from txtopo.topology.components import Topology
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, BatchBolt, CustomStreamGrouping, RichBolt

WORD = ("word string", "amount int")
PLAIN = ("shuffle", "none", "local_or_shuffle", "local_first", "load_aware", "global", "all")
"""Groupings without parameters."""


class Texts(OpaquePartitionedTransactionalSpout):
    """Two texts of each partition a batch."""

    outputs: ClassVar[Sequence[str]] = ("text string", "amount int")

    def __init__(self, *partitions: Sequence[tuple[str | None, int | None]]) -> None:
        self.partitions = partitions

    def number_of_partitions(self) -> int:
        return len(self.partitions)

    def next_range(self, partition: int, last: Any) -> Any:
        start = last["end"] if last else 0
        tuples = self.partitions[partition][start : start + 2]
        return {"end": start + len(tuples), "tuples": tuples} if tuples else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        yield from metadata["tuples"]


class Split(BasicBolt):
    """A text becomes its words; long ones go on a stream of their own, and by name to a task of `direct`."""

    outputs: ClassVar[Sequence[Any]] = (
        *WORD,
        Stream(", ".join(WORD), name="long"),
        Stream(", ".join(WORD), name="named", direct=True),
    )

    def prepare(self, config: Any, context: Any) -> None:
        self.tasks = context.tasks["direct"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        for word in (tup["text"] or "").split():
            if word == "bad":
                raise ValueError(f"cannot split {tup['text']!r}")
            collector.emit((word, tup["amount"]))
            if len(word) > 4:
                collector.emit((word, tup["amount"]), stream="long")
                collector.emit_direct(self.tasks[len(word) % len(self.tasks)], (word, None), stream="named")


class Pass(BasicBolt):
    """Hands everything on: the task ids of its emissions tell how tuples were spread."""

    outputs: ClassVar[Sequence[str]] = WORD

    def execute(self, tup: Tuple, collector: Any) -> None:
        collector.emit(tup.values)


class Pairs(RichBolt):
    """Holds every tuple until another one comes, and emits both as one that is anchored on both; the last may stay
    alone, without an anchor.
    """

    outputs: ClassVar[Sequence[str]] = WORD

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector, self.held = collector, list[Tuple]()

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if len(self.held) == 2:
            one, two = self.held
            self.collector.emit((f"{one['word']}+{two['word']}", 2), anchors=[one, two, one])
            self._let_go()

    def finish_batch(self) -> None:
        for tup in self.held:
            self.collector.emit((tup["word"], 1))
        self._let_go()

    def _let_go(self) -> None:
        for tup in self.held:
            self.collector.ack(tup)
        self.held = []


class Doubled(ArrowBolt):
    """Amounts times two, NULL where there is none."""

    outputs: ClassVar[Sequence[str]] = WORD

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        amounts = pc.multiply(batch.column("amount"), pa.scalar(2, pa.int32()))
        rows = pa.array(range(batch.num_rows), pa.int64())
        collector.emit_batch(pa.record_batch({"word": batch.column("word"), "amount": amounts}), anchors=rows)


class Count(BatchBolt):
    """How often each word came to this task, at the end of the batch; a task without any says so."""

    outputs: ClassVar[Sequence[str]] = ("word string", "amount int", "task int")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.index, self.counts = collector, context.task_index, Counter[str]()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup["word"]] += 1

    def finish_batch(self) -> None:
        for word, n in self.counts.items() or [("", 0)]:
            self.collector.emit((word, n, self.index))


class Lengths(CustomStreamGrouping):
    """Short words to all tasks, empty ones to none, others by length."""

    def prepare(self, source: str, stream: str, fields: Fields, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return self.targets if len(values[0]) < 2 else [self.targets[len(values[0]) % len(self.targets)]]


class Tell(BatchCommitter):
    """Its rows as they came; tells how many in the commit phase."""

    outputs: ClassVar[Sequence[str]] = ("n bigint",)

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        transaction.execute("INSERT INTO told VALUES (%s)", [[tuple(row.values) for row in rows]])
        collector.emit((len(rows),))


class Named(BatchCommitter):
    """Emits its rows as they came."""

    outputs: ClassVar[Sequence[str]] = WORD

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            collector.emit(row.values)


class Told(BatchCommitter):
    """Downstream of another committer, and of bolts that are."""

    result: ClassVar[Sequence[str]] = ("n bigint",)

    def execute(self, tup: Tuple) -> None:
        self.collector.emit((tup["n"] if tup.component == "told" else tup["amount"],))

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        transaction.execute("INSERT INTO heard VALUES (%s)", [row["n"] for row in rows])


def zoo(*partitions: Sequence[tuple[str | None, int | None]], **settings: Any) -> Topology:
    """texts -> split -> a bolt of each kind and behind each grouping -> counted, and told in the commit phase."""
    builder = TopologyBuilder("zoo", **settings)
    builder.set_spout("texts", Texts(*partitions))
    builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("texts")
    for grouping in PLAIN:
        bolt = builder.set_bolt(f"by_{grouping}", Pass(), parallelism_hint=3)
        getattr(bolt, f"{grouping}_grouping")("split")
    builder.set_bolt("by_fields", Pass(), parallelism_hint=3).fields_grouping("split", ["word"])
    builder.set_bolt("by_key", Pass(), parallelism_hint=3).partial_key_grouping("split", ["word"])
    builder.set_bolt("by_custom", Pass(), parallelism_hint=3).custom_grouping("split", Lengths())
    builder.set_bolt("direct", Pass(), parallelism_hint=3).direct_grouping("split", stream="named")
    pairs = builder.set_bolt("pairs", Pairs(), parallelism_hint=2)
    pairs.fields_grouping("by_fields", ["word"]).shuffle_grouping("split", stream="long")
    builder.set_bolt("doubled", Doubled(), parallelism_hint=2).local_or_shuffle_grouping("by_shuffle")
    counted = builder.set_bolt("counted", Count(), parallelism_hint=4)
    for source in ("pairs", "doubled", "direct", "by_key"):
        counted.fields_grouping(source, ["word"])
    words = CountCommitter("words", ["word"], count="n", sums={"amount": "total"})
    builder.set_committer_bolt("words", words, parallelism_hint=2).fields_grouping("counted", ["word"])
    told = builder.set_committer_bolt("told", Tell(), parallelism_hint=2)
    told.fields_grouping("doubled", ["word"])
    for grouping in (*PLAIN[1:], "custom"):
        told.shuffle_grouping(f"by_{grouping}")
    after = builder.set_bolt("after", Pass(), parallelism_hint=3)
    after.fields_grouping("named", ["word"]).all_grouping("doubled").custom_grouping("split", Lengths(), stream="long")
    builder.set_bolt("after_pairs", Pairs(), parallelism_hint=2).shuffle_grouping("after")
    builder.set_bolt("after_doubled", Doubled(), parallelism_hint=3).local_or_shuffle_grouping("after")
    counted_after = builder.set_bolt("counted_after", Count(), parallelism_hint=2)
    counted_after.fields_grouping("after_pairs", ["word"]).fields_grouping("after_doubled", ["word"])
    builder.set_committer_bolt("named", Named()).partial_key_grouping("doubled", ["word"])
    words_after = CountCommitter("words_after", ["word", "task"], count="n", sums={"amount": "total"})
    builder.set_committer_bolt("words_after", words_after, parallelism_hint=2).shuffle_grouping("counted_after")
    heard = builder.set_committer_bolt("heard", Told(), parallelism_hint=2)
    heard.global_grouping("told").shuffle_grouping("counted_after").shuffle_grouping("counted")
    return builder.build()


def streams() -> Sequence[tuple[str, str]]:
    """Everything that is emitted in it."""
    bolts = [
        "texts",
        "split",
        *(f"by_{name}" for name in (*PLAIN, "fields", "key", "custom")),
        "direct",
        "pairs",
        "doubled",
        "counted",
        "told",
        "named",
        "after",
        "after_pairs",
        "after_doubled",
        "counted_after",
    ]
    return [*((name, "default") for name in bolts), ("split", "long"), ("split", "named")]


def everything(harness: Any) -> Mapping[str, Any]:
    """All that a harness shows of a run of it."""
    rows = harness.stores.postgres.topologies["zoo"]
    return {
        **{f"{name}:{stream}": harness.emitted(name, stream) for name, stream in streams()},
        "batches": harness.batches,
        "words": harness.table("words"),
        "words after": harness.table("words_after"),
        "edges": {batch.txid: harness.edges(batch.txid) for batch in harness.batches},
        "executed": [(one.txid, one.committer, one.parameters) for one in harness.stores.postgres.executed],
        "attempts": {key: (row.state, _words(row.failure)) for key, row in rows.attempts.items()},
        "dead letters": harness.dead_letters,
        "ledger": {txid: (row.state, row.counts, row.edges) for txid, row in rows.ledger.items()},
    }


def _words(failure: Failure | None) -> Any:
    """A traceback shows who called the bolt, which is another one on Spark."""
    return failure and (failure.kind, failure.component, failure.position, failure.message)
