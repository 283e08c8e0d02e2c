"""How many words there ever were, and how often each: txtopo run examples/global_count.py:topology --once

Storm's TransactionalGlobalCount and TransactionalWords. The first of its two committers is custom code: what it
does through `transaction` happens
exactly once a batch, together with what the other one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txtopo import CountCommitter, TopologyBuilder, TransactionAttempt
from txtopo.bolts import (
    BatchBolt,
    BatchCommitter,
    BatchOutputCollector,
    CommitCollector,
    CommitTransaction,
    TopologyContext,
    Tuple,
)
from txtopo.spouts import NOTHING, PartitionedTransactionalSpout

PARTITIONS = [
    ["cat", "dog", "chicken", "cat", "dog", "apple"],
    ["cat", "dog", "apple", "banana"],
    ["cat", "cat", "cat", "cat", "cat", "dog", "dog", "dog", "dog"],
]
TAKEN = 3
"""Tuples of a partition in one batch."""


class Words(PartitionedTransactionalSpout):
    """The words of three partitions, three of each at a time."""

    outputs = ["word string"]

    def number_of_partitions(self) -> int:
        return len(PARTITIONS)

    def next_range(self, partition: int, last: Any) -> Any:
        start = last["end"] if last else 0
        end = min(start + TAKEN, len(PARTITIONS[partition]))
        return {"start": start, "end": end} if end > start else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[tuple[str]]:
        for word in PARTITIONS[partition][metadata["start"] : metadata["end"]]:
            yield (word,)


class BatchCount(BatchBolt):
    """Counts the tuples of its share of a batch."""

    outputs = ["n bigint"]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector
        self.n = 0

    def execute(self, tup: Tuple) -> None:
        self.n += 1

    def finish_batch(self) -> None:
        self.collector.emit((self.n,))


class UpdateGlobalCount(BatchCommitter):
    """Adds the counts of a batch to the one row of a table of the user."""

    result = ["n bigint"]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int:
        transaction.execute("CREATE TABLE IF NOT EXISTS global_count (id int PRIMARY KEY, n bigint NOT NULL)")
        transaction.execute(
            "INSERT INTO global_count VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET n = global_count.n + excluded.n",
            (sum(row["n"] for row in rows),),
        )
        return len(rows)


builder = TopologyBuilder("global_count")
builder.set_spout("words", Words())
builder.set_bolt("partial", BatchCount(), parallelism_hint=3).none_grouping("words")
builder.set_committer_bolt("total", UpdateGlobalCount()).global_grouping("partial")
by_word = CountCommitter("global_words", ["word"], count="n")
builder.set_committer_bolt("by_word", by_word).fields_grouping("words", ["word"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
