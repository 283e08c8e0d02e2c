"""Bolts that persist what they read: each batch its own rows, whatever Spark keeps or evicts, and nothing stays behind."""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import FIELDS, ListSpout, assignment, list_topology, row
from tests.kit.tuple_topologies import Keep, Large, PlacedRows
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Processed
from txtopo.spark import jobs
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames import frame_jobs
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology

pytestmark = pytest.mark.spark
PARTS = [[row("a", 1), row("b", 1)], [row("c", 2)]]


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    """Makes started executors on the shared session, closed at the end."""
    with executors_on(spark_session) as make:
        yield make


def persist(frame: DataFrame) -> DataFrame:
    """A bolt."""
    return frame.persist()


def persist_then_raise(frame: DataFrame) -> DataFrame:
    """A bolt that works on empty input only."""
    if frame.persist().count() > 0:
        raise ValueError("not today")
    return frame


def is_all_let_go(spark: SparkSession) -> bool:
    """Is nothing persisted any more, by Spark's own books?"""
    manager: Any = spark._jsparkSession.sharedState().cacheManager()
    return bool(manager.isEmpty()) and spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def test_each_batch_sees_its_own_rows_and_nothing_stays(
    started: Callable[[Topology], SparkExecutor], spark_session: SparkSession
) -> None:
    """Two batches have equal plans, and Spark answers equal plans with what it holds: not those of two batches."""
    executor = started(list_topology(persist))
    batches = [[[row("a")]], [[row("b")], [row("b")]], [[row("c")], [row("d")]], [[row("e")]], [[row("f")], [row("f")]]]

    for txid, parts in enumerate(batches, 1):
        (outcome,) = executor.process([assignment(txid, *parts)])

        assert isinstance(outcome, Processed), outcome
        names = [part[0][0] for part in parts]
        assert outcome.results[0].rows.to_pydict()["name"] == sorted(set(names))
        assert outcome.read == len(names)
        assert is_all_let_go(spark_session), txid


def test_a_bolt_that_persists_and_raises_leaves_nothing(
    started: Callable[[Topology], SparkExecutor], spark_session: SparkSession
) -> None:
    executor = started(list_topology(persist_then_raise))

    (outcome,) = executor.process([assignment(1, *PARTS)])

    assert not isinstance(outcome, Processed)
    assert "not today" in outcome.failure.message
    assert is_all_let_go(spark_session)


def test_bolts_beside_tuple_bolts_may_persist_too(
    started: Callable[[Topology], SparkExecutor], spark_session: SparkSession
) -> None:
    builder = TopologyBuilder("mixed_persist")
    builder.set_spout("source", PlacedRows())
    builder.set_bolt(
        "kept",
        lambda frame: frame.selectExpr("text AS word", "amount").persist(),
        inputs="source",
        fields="word string, amount int",
        rows="same",
    )
    builder.set_bolt("large", Large()).shuffle_grouping("kept")
    builder.set_committer_bolt("all", CountCommitter("all_words", ["word"])).fields_grouping("kept", ["word"])
    builder.set_committer_bolt("rows", Keep()).shuffle_grouping("large")
    executor = started(builder.build())

    for txid in (1, 2):
        (outcome,) = executor.process([assignment(txid, [[f"w{txid}", 9]], [["v", 1]])])

        assert isinstance(outcome, Processed), outcome
        assert outcome.results[0].rows.to_pydict()["word"] == ["v", f"w{txid}"]
        assert is_all_let_go(spark_session)


@pytest.mark.parametrize("evict", [False, True], ids=["kept", "evicted"])
def test_what_is_evicted_between_two_jobs_is_read_again_and_counts_once(
    started: Callable[[Topology], SparkExecutor],
    spark_session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    evict: bool,
) -> None:
    """Blocks that Spark drops from its cache are made again by running the source again: no number may be inflated by
    that (K2, K4).
    """
    builder = TopologyBuilder("fan")
    builder.set_spout("source", ListSpout())
    builder.set_bolt("kept", persist, inputs="source", fields=FIELDS, rows="same")
    builder.set_bolt("same", lambda frame: frame.select("*"), inputs="kept", fields=FIELDS, rows="same")
    # Committers of one stream would read it in one job.
    for name, key, stream in (("by_name", "name", "kept"), ("by_amount", "amount", "same")):
        builder.set_committer_bolt(name, CountCommitter(name, [key], count="n")).fields_grouping(stream, [key])
    executor = started(builder.build())
    evicted: list[int] = []
    collect = jobs.collect_batches

    def collect_and_evict(frame: DataFrame) -> Any:
        found = collect(frame)
        evicted.append(drop_blocks(spark_session) if evict else 0)
        return found

    monkeypatch.setattr(frame_jobs, "collect_batches", collect_and_evict)
    reports: list[int] = []
    take = executor._reports.take

    def note_and_take(run: str) -> Any:
        reports.append(executor._reports.received(run))
        return take(run)

    monkeypatch.setattr(executor._reports, "take", note_and_take)

    (outcome,) = executor.process([assignment(1, *PARTS)])

    assert isinstance(outcome, Processed), outcome
    assert (max(reports), evicted) == ((4, [1, 0]) if evict else (2, [0, 0])), (
        "reports of two parts; DataFrames dropped"
    )
    assert outcome.read == 3
    assert [result.arrived for result in outcome.results] == [3, 3]
    assert [result.rows.to_pydict()["n"] for result in outcome.results] == [[1, 1, 1], [2, 1]]
    assert [(edge.sent, edge.received) for edge in outcome.edges] == [(3, 3)] * len(outcome.edges)
    assert is_all_let_go(spark_session)


def drop_blocks(spark: SparkSession) -> int:
    """Drop every cached block, as Spark does itself where memory is short. Returns of how many DataFrames there were
    any.
    """
    cached = list(spark.sparkContext._jsc.getPersistentRDDs().values())
    for rdd in cached:
        rdd.unpersist(True)
    return len(cached)
