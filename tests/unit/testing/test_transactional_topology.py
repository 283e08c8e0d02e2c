"""STORM.md's integration run of a transactional topology (TT-01 to TT-07), phase by phase, on the harness; and of one
with an opaque spout (TT-09 (i)).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from txtopo import TopologyBuilder
from txtopo.bolts import (
    BasicBolt,
    BasicOutputCollector,
    BatchBolt,
    BatchCommitter,
    BatchOutputCollector,
    CommitCollector,
    CommitTransaction,
    TopologyContext,
    Tuple,
)
from txtopo.core.values import FailureKind, TransactionAttempt
from txtopo.spouts.opaque import OpaquePartitionedTransactionalSpout
from txtopo.spouts.partitioned import NOTHING, PartitionedTransactionalSpout
from txtopo.testing.harness import TopologyHarness
from txtopo.topology.components import Topology

SOURCE: list[list[tuple[str, int]]] = []
"""Partitions that grow while the topology runs."""


class Partitions(PartitionedTransactionalSpout):
    """At most two tuples a partition and batch; a batch is planned whenever one may be, also an empty one."""

    outputs = ["word string", "amount bigint"]
    empty_batches = True
    batches = 99

    def number_of_partitions(self) -> int:
        return len(SOURCE)

    def next_range(self, partition: int, last: Any) -> Any:
        start = last["end"] if last else 0
        end = min(start + 2, len(SOURCE[partition]))
        # The tuples are in the metadata, so that tasks in other processes emit what is in this test's hands.
        return {"end": end, "tuples": SOURCE[partition][start:end]} if end > start else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        yield from metadata["tuples"]


class Identity(BasicBolt):
    outputs = ["word string", "amount bigint"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tup.values)


class GlobalCount(BatchBolt):
    """Tuples of a batch."""

    outputs = ["n bigint"]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.n = collector, 0

    def execute(self, tup: Tuple) -> None:
        self.n += 1

    def finish_batch(self) -> None:
        self.collector.emit((self.n,))


class Sink(BasicBolt):
    """Reads and emits nothing: a topology names a reader for every component."""

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        pass


class KeyedSum(BatchBolt):
    """Sum of the amounts of a word in a batch."""

    outputs = ["word string", "total bigint"]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.sums = collector, Counter[str]()

    def execute(self, tup: Tuple) -> None:
        self.sums[tup["word"]] += tup["amount"]

    def finish_batch(self) -> None:
        for word, total in self.sums.items():
            self.collector.emit((word, total))


class CommittedGlobalCount(BatchCommitter):
    """Tuples of a batch, told in the commit phase."""

    outputs = ["n bigint"]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        collector.emit((len(rows),))


class CommittedSink(BatchCommitter):
    """Reads what was told, and keeps nothing."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        pass


class CommittedKeyedCount(BatchCommitter):
    """Tuples of a key in a batch, told in the commit phase."""

    outputs = ["word string", "n bigint"]
    result = ["word string"]

    def execute(self, tup: Tuple) -> None:
        self.collector.emit((tup["word"],))

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for word, n in Counter(row["word"] for row in rows).items():
            collector.emit((word, n))


def topology() -> Topology:
    """The topology of Storm's test-transactional-topology."""
    builder = TopologyBuilder("tt")
    builder.set_spout("spout", Partitions(), parallelism_hint=2)
    for name in ("id1", "id2"):
        builder.set_bolt(name, Identity(), parallelism_hint=3).shuffle_grouping("spout")
    builder.set_bolt("global", GlobalCount(), parallelism_hint=1).global_grouping("spout")
    builder.set_bolt("sink", Sink()).global_grouping("global")
    builder.set_committer_bolt("gcommit", CommittedGlobalCount(), parallelism_hint=1).global_grouping("spout")
    builder.set_bolt("sum", KeyedSum(), parallelism_hint=2).fields_grouping("id1", ["word"])
    builder.set_committer_bolt("count", CommittedKeyedCount(), parallelism_hint=2).fields_grouping("id2", ["word"])
    count2 = builder.set_committer_bolt("count2", CommittedKeyedCount(), parallelism_hint=3)
    count2.fields_grouping("sum", ["word"]).fields_grouping("count", ["word"])
    return builder.build()


@contextmanager
def started(**settings: Any) -> Iterator[TopologyHarness]:
    """The run at its start, two batches at a time, every phase held."""
    SOURCE[:] = [
        [("dog", 3), ("cat", 4), ("apple", 1), ("dog", 3)],
        [("cat", 1), ("mango", 4)],
        [("happy", 11), ("mango", 2), ("zebra", 1)],
    ]
    with TopologyHarness(topology(), by_hand=True, once=False, spout_pending_max=2, **settings) as harness:
        harness.run()
        yield harness


@pytest.fixture
def run() -> Iterator[TopologyHarness]:
    """See `started`."""
    with started() as harness:
        yield harness


def words(harness: TopologyHarness, component: str, txid: int) -> dict[str, int]:
    return dict(harness.values(component, txid=txid))


def test_the_run_of_storms_transactional_topology(run: TopologyHarness) -> None:
    """TT-01 to TT-07: one continuing run; commits go strictly in order, processing does not wait for them, empty
    batches run and commit.
    """
    play(run)


def play(run: TopologyHarness) -> None:
    """The run, step by step."""
    # TT-01: both batches process; no committer has told anything.
    assert words(run, "sum", 1) == {"dog": 3, "cat": 5, "mango": 6, "happy": 11}
    assert words(run, "sum", 2) == {"apple": 1, "dog": 3, "zebra": 1}
    assert [run.values("global", txid=txid) for txid in (1, 2)] == [[(6,)], [(3,)]]
    assert run.values("count") == run.values("count2") == run.values("gcommit") == []

    # TT-02: processing of 1 is released: its committers run, and nothing else does.
    run.release_processing(1)
    assert words(run, "count", 1) == {"dog": 1, "cat": 2, "mango": 2, "happy": 1}
    assert words(run, "count2", 1) == {"dog": 2, "cat": 2, "mango": 2, "happy": 2}
    assert run.values("gcommit") == [(6,)]
    assert (len(run.emitted("global")), run.held_commits) == (2, [1])

    # TT-03: the source grows by a partition; batch 3 has four, and nothing commits.
    for partition, more in enumerate(
        [[("a", 1), ("b", 2), ("c", 3)], [("d", 4), ("c", 1)], [("a", 2), ("e", 7), ("c", 11)]]
    ):
        SOURCE[partition].extend(more)
    SOURCE.append([("a", 2)])
    run.release_commit(1)
    assert words(run, "sum", 3) == {"a": 5, "b": 2, "d": 4, "c": 1, "e": 7}
    assert run.values("global", txid=3) == [(7,)]
    assert len(run.values("gcommit")) == 1

    # TT-04: processing of 3 and then of 2 is released: only 2 commits.
    run.release_processing(3, 2)
    assert words(run, "count", 2) == {"apple": 1, "dog": 1, "zebra": 1}
    assert words(run, "count2", 2) == {"apple": 2, "dog": 2, "zebra": 2}
    assert run.values("gcommit") == [(6,), (3,)]
    assert run.values("count", txid=3) == []

    # TT-06: with the commit of 2 known, 3 commits and 4 is processed.
    run.release_commit(2)
    assert words(run, "count", 3) == {"a": 3, "b": 1, "d": 1, "c": 1, "e": 1}
    assert words(run, "count2", 3) == {"a": 2, "b": 2, "d": 2, "c": 2, "e": 2}
    assert run.values("gcommit")[-1] == (7,)
    assert (words(run, "sum", 4), run.values("global", txid=4)) == ({"c": 14}, [(2,)])

    # TT-07: no more data: empty batches run and commit like any other.
    run.release_commit(3)
    run.release_processing(4)
    assert (words(run, "count", 4), words(run, "count2", 4)) == ({"c": 2}, {"c": 2})
    assert (run.values("gcommit", txid=4), run.values("global", txid=5)) == ([(2,)], [(0,)])
    run.release_commit(4)
    run.release_processing(5)
    assert (run.values("gcommit", txid=5), run.values("global", txid=6)) == ([(0,)], [(0,)])
    assert [batch.txid for batch in run.batches] == [1, 2, 3, 4, 5]


def test_a_failed_processing_changes_nothing_but_the_attempt(run: TopologyHarness) -> None:
    """TT: a phase that fails by hand is done again with a new attempt of the same content; later batches keep what they
    have.
    """
    run.fail_processing(1)
    assert run.held_processing == {1: 1, 2: 0}
    assert sorted(run.values("spout", txid=1)[:6]) == sorted(run.values("spout", txid=1)[6:])

    run.release_processing(2, 1)
    run.release_commit(1)

    assert [(batch.txid, batch.attempt) for batch in run.batches] == [(1, 1), (2, 0)]


def test_a_refused_commit_is_done_again_with_the_same_results(run: TopologyHarness) -> None:
    """TT: a commit that the database refuses leaves nothing, and its batch commits later from the results it has."""
    run.fail_commit()
    run.release_processing(1)
    run.release_commit(1)

    assert [(batch.txid, batch.attempt) for batch in run.batches] == [(1, 0)]
    assert run.values("gcommit", txid=1) == [(6,)]


@pytest.mark.parametrize(("kind", "attempt"), [("data", 1), ("infrastructure", 0)])
def test_a_batch_whose_commit_fails_commits_after_its_retry_and_before_the_next(
    run: TopologyHarness, kind: FailureKind, attempt: int
) -> None:
    """TT-05: the commit of 1 fails while 2 is processed: nothing of 1 is committed, and 2 waits. Rows that do not fit
    mean a new attempt, a store that is away means the same.
    """
    run.fail_commit(1, kind=kind)
    run.release_processing(2, 1)
    if kind == "data":
        assert (run.values("gcommit"), run.batches, run.held_processing) == ([], [], {1: 1})
        run.release_processing(1)
    assert (run.values("gcommit"), run.held_commits) == ([(6,)], [1])

    run.release_commit(1)

    assert [(batch.txid, batch.attempt) for batch in run.batches] == [(1, attempt), (2, 0)]
    assert run.values("gcommit", txid=1) == [(6,)]
    assert run.held_commits == [2]
    with pytest.raises(KeyError, match="the commit of batch 2 has happened"):
        run.fail_commit(2)


class OpaqueWords(OpaquePartitionedTransactionalSpout, Partitions):
    """Partitions that are cut anew for each attempt."""

    outputs = ["word string"]
    empty_batches = False

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        for word, _ in super().emit_partition_batch(attempt, partition, metadata):
            yield (word,)


def opaque_topology() -> Topology:
    """The topology of Storm's test-opaque-transactional-topology."""
    builder = TopologyBuilder("opaque")
    builder.set_spout("spout", OpaqueWords())
    builder.set_committer_bolt("count", CommittedKeyedCount(), parallelism_hint=2).fields_grouping("spout", ["word"])
    builder.set_committer_bolt("sink", CommittedSink()).global_grouping("count")
    return builder.build()


@pytest.fixture
def opaque_run() -> Iterator[TopologyHarness]:
    """An opaque run at its start, two batches at a time, every phase held."""
    SOURCE[:] = [[(word, 1) for word in ("dog", "cat", "apple", "dog")]]
    with TopologyHarness(opaque_topology(), by_hand=True, spout_pending_max=2) as harness:
        harness.run()
        yield harness


def test_the_run_of_storms_opaque_topology(opaque_run: TopologyHarness) -> None:
    """TT-09 (i): p0 dog cat apple dog, take 2: nothing before commit; {1: dog 1, cat 1}, then {2: apple 1, dog 1}."""
    run = opaque_run
    assert run.values("spout") == [("dog",), ("cat",), ("apple",), ("dog",)]
    assert run.values("count") == []

    run.release_processing(2)
    assert run.values("count") == [], "only the lowest txid may commit"
    run.release_processing(1)
    assert (words(run, "count", 1), run.held_commits) == ({"dog": 1, "cat": 1}, [1])
    assert run.values("count", txid=2) == []

    run.release_commit(1)
    assert words(run, "count", 2) == {"apple": 1, "dog": 1}
    run.release_commit(2)
    assert [(batch.txid, batch.attempt) for batch in run.batches] == [(1, 0), (2, 0)]


def test_an_opaque_batch_that_fails_by_hand_is_cut_again_with_all_behind_it(opaque_run: TopologyHarness) -> None:
    """CO-03, TT-09: the failed batch and the later one have new attempts of new content: no word is skipped, none is in
    two.
    """
    run = opaque_run
    SOURCE[0][1:2] = []  # what the broker keeps has changed: one word is gone

    run.fail_processing(1)
    assert run.held_processing[1] == 1
    assert run.values("spout", txid=1)[2:] == [("dog",), ("apple",)]

    while run.end is None:
        run.release_processing(*run.held_processing)
        run.release_commit(*run.held_commits)
    assert [(word, n) for word, n in run.values("count")] == [("apple", 1), ("dog", 1), ("dog", 1)]
    assert [batch.read for batch in run.batches] == [2, 1]
    assert run.batches[1].attempt > 0, "the finished processing of the later batch was discarded"
