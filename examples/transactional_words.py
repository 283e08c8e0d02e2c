"""How many words come how often: txtopo run examples/transactional_words.py:topology --once

Storm's TransactionalWords. `count` adds to its own table and tells, in the commit phase, what each count is now
and was before. What reads it is
downstream of a committer, so it runs in the commit phase, too: an ordinary bolt finds the buckets of both counts, and a
counting committer keeps how
many words each bucket has. All of it happens exactly once a batch, in one database transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txtopo import CountCommitter, TopologyBuilder, TransactionAttempt
from txtopo.bolts import (
    BasicBolt,
    BasicOutputCollector,
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
BUCKET_SIZE = 10
"""Bucket 0 has the words that came 1 to 9 times, bucket 1 those that came 10 to 19 times."""


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


class KeyedCountUpdater(BatchCommitter):
    """Adds up how often each word came, and emits each count that changed."""

    result = ["word string", "more bigint"]
    outputs = ["word string", "n bigint", "before bigint"]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector
        self.counts = Counter[str]()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup["word"]] += 1

    def finish_batch(self) -> None:
        for word, more in self.counts.items():
            self.collector.emit((word, more))

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS word_counts (word text PRIMARY KEY, n bigint NOT NULL)")
        for row in rows:
            [(n,)] = transaction.execute(
                "INSERT INTO word_counts VALUES (%s, %s) ON CONFLICT (word) DO UPDATE SET n = word_counts.n + "
                "excluded.n RETURNING n",
                (row["word"], row["more"]),
            )
            collector.emit((row["word"], n, n - row["more"]))


class Bucketize(BasicBolt):
    """A word that comes into another bucket is one more there, and one less where it was."""

    outputs = ["bucket bigint", "words bigint"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        now, before = tup["n"] // BUCKET_SIZE, tup["before"] // BUCKET_SIZE
        is_new = tup["before"] == 0
        if is_new or now != before:
            collector.emit((now, 1))
            if not is_new:
                collector.emit((before, -1))


builder = TopologyBuilder("transactional_words")
builder.set_spout("words", Words())
counts = builder.set_committer_bolt("count", KeyedCountUpdater(), parallelism_hint=5)
counts.fields_grouping("words", ["word"])
builder.set_bolt("bucketize", Bucketize(), parallelism_hint=5).none_grouping("count")
buckets = CountCommitter("buckets", ["bucket"], count="changes", sums=["words"])
builder.set_committer_bolt("buckets", buckets, parallelism_hint=5).fields_grouping("bucketize", ["bucket"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
