"""Aggregates on Spark: counted in the tasks of the spout, behind a bolt, over many partitions, and in this process give
the same rows; they are those that plain Python finds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.contracts.committer_contract import FIELDS, any_tuple, rebuilt
from tests.contracts.executor_contract import CODE_HASH, plan_batches
from tests.kit.fix_spark import executors_on
from txtopo import AggregateCommitter, CountCommitter, FileSpout, TopologyBuilder
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spark.executor import SparkExecutor
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology

pytestmark = pytest.mark.spark
MEASURES = ("pieces", "price", "name", "sold", "paid", "big")


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[..., SparkExecutor]]:
    """Makes started executors on the shared session, closed at the end."""
    with executors_on(spark_session) as make:
        yield make


def same(files: DataFrame) -> DataFrame:
    return files.selectExpr("*")


def spread(files: DataFrame) -> DataFrame:
    """More partitions than groups have bounds for."""
    return files.repartition(20)


def topology_of(folder: Path, bolt: Callable[[DataFrame], DataFrame] | None) -> Topology:
    builder = TopologyBuilder("sales")
    builder.set_spout("files", FileSpout(folder, FIELDS.ddl, settled_s=0, null_values=["\\N"]))
    source = "files"
    if bolt is not None:
        builder.set_bolt("bolt", bolt, inputs="files", fields=FIELDS.ddl)
        source = "bolt"
    every = AggregateCommitter(
        "sales",
        ["shop", "day"],
        sums={"pieces": "pieces", "price": "taken"},
        averages={"price": "price_avg"},
        mins={name: f"{name}_min" for name in MEASURES},
        maxs={name: f"{name}_max" for name in MEASURES},
    )
    builder.set_committer_bolt("sales", every).fields_grouping(source, ["shop", "day"])
    other = AggregateCommitter("days", ["day"], mins={"pieces": "low"}, averages=["big"])
    builder.set_committer_bolt("days", other).fields_grouping(source, ["day"])
    builder.set_committer_bolt("shops", CountCommitter("shops", ["shop"])).fields_grouping(source, ["shop"])
    return builder.build()


def spelled(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def write(folder: Path, number: int, rows: int) -> list[dict[str, Any]]:
    chance = random.Random(number)
    tuples = [any_tuple(chance) for _ in range(rows)]
    lines = [",".join(spelled(one[name]) for name in FIELDS.names) for one in tuples]
    (folder / f"{number}.csv").write_text("\n".join([",".join(FIELDS.names), *lines]) + "\n", encoding="utf-8")
    return tuples


@pytest.mark.parametrize("bolt", [None, same, spread], ids=["in the spout", "behind a bolt", "many partitions"])
def test_aggregates_are_those_of_plain_python_wherever_they_are_counted(
    started: Callable[..., SparkExecutor], tmp_path: Path, bolt: Callable[[DataFrame], DataFrame] | None
) -> None:
    """One wave of three batches, three committers in one job."""
    batches = [write(tmp_path, number, rows) for number, rows in enumerate([400, 1, 37])]
    topology = topology_of(tmp_path, bolt)
    wave = [
        Assignment(attempt=TransactionAttempt(txid, 0), metadata=found)
        for txid, found in enumerate(plan_batches(topology), 1)
    ]

    outcomes = list(started(topology).process(wave))
    here = None if bolt is not None else list(InProcessExecutor(topology, CODE_HASH).process(wave))

    assert len(outcomes) == len(batches)
    for at, (outcome, tuples) in enumerate(zip(outcomes, batches, strict=True)):
        assert isinstance(outcome, Processed), outcome
        sales, days, shops = outcome.results
        found = {
            tuple(row[:2]): tuple(row[2:]) for row in zip(*(c.to_pylist() for c in sales.rows.columns), strict=True)
        }
        assert found == rebuilt(tuples, averages=True)
        assert sales.rows.schema.field("price_min").type == sales.rows.schema.field("price_max").type
        by_day: dict[Any, list[dict[str, Any]]] = {}
        for one in tuples:
            by_day.setdefault(one["day"], []).append(one)
        for row in days.rows.to_pylist():
            group = by_day.pop(row["day"])
            bigs = [one["big"] for one in group if one["big"] is not None]
            low = min((one["pieces"] for one in group if one["pieces"] is not None), default=None)
            assert (row["count"], row["low"], row["big_sum"], row["big_count"]) == (
                len(group),
                low,
                sum(bigs),
                len(bigs),
            )
        assert not by_day
        assert sum(shops.rows.column("count").to_pylist()) == len(tuples)
        if here is not None:
            theirs = here[at]
            assert isinstance(theirs, Processed)
            assert [
                one.rows.equals(other.rows) for one, other in zip(outcome.results, theirs.results, strict=True)
            ] == [True] * 3
