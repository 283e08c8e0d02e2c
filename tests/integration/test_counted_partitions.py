"""Partitions are counted of the very rows that are aggregated, on a real local session: whatever Spark leaves out of a
plan, and without running it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import FIELDS, ListSpout, assignment, list_topology, row
from tests.kit.tuple_topologies import FrameRows, Large
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.plan import Metadata
from txtopo.core.values import Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spark.executor import SparkExecutor
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import BasicBolt

pytestmark = pytest.mark.spark
PARTS = [[row(f"k{at % 3}", part * 100 + at) for at in range(20)] for part in range(8)]


@pytest.fixture(params=["false", "true"], ids=["planned once", "adaptive"])
def started(
    spark_session: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Callable[[Topology], SparkExecutor]]:
    spark_session.conf.set("spark.sql.adaptive.enabled", request.param)
    spark_session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    with executors_on(spark_session) as make:
        yield make
    spark_session.conf.set("spark.sql.adaptive.enabled", "false")
    spark_session.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def with_window(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "row_number() over (partition by name order by amount) as number")


def with_join(frame: DataFrame) -> DataFrame:
    return frame.join(frame.groupBy("name").agg(F.max("amount").alias("most")), "name", "left")


def totals(outcome: Outcome, count: str = "n") -> dict[Any, int]:
    assert isinstance(outcome, Processed), outcome
    return {found["name"]: found[count] for found in outcome.results[0].rows.to_pylist()}


class Passing(BasicBolt):
    outputs = ("name string",)

    def execute(self, tup: Tuple, collector: Any) -> None:
        collector.emit((tup["name"],))


@pytest.mark.parametrize("bolt", [with_window, with_join])
def test_a_column_that_nobody_reads_may_take_its_exchange_with_it(
    started: Callable[[Topology], SparkExecutor], bolt: Any
) -> None:
    """Spark leaves window and join out of what is counted, which then has the partitions of the spout: all 160 rows
    arrive.
    """
    executor = started(list_topology(bolt, rows="same"))

    (outcome,) = executor.process([assignment(1, *PARTS)])

    assert totals(outcome) == {"k0": 56, "k1": 56, "k2": 48}
    assert isinstance(outcome, Processed) and outcome.results[0].arrived == 160


class Touching(FrameRows):
    """Gives a DataFrame behind a shuffle; each task before it leaves a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = str(folder)

    def frame(self, spark: Any, metadata: Metadata) -> Any:
        folder = self.folder

        def touch(batches: Any) -> Any:
            import uuid

            (Path(folder) / uuid.uuid4().hex).touch()
            yield from batches

        numbers = spark.range(0, metadata["count"], 1, 4)
        grouped = numbers.mapInArrow(touch, numbers.schema).groupBy((F.col("id") % 5).alias("id")).count()
        return grouped.selectExpr("concat('w', id) AS word", "CAST(count AS int) AS amount", "id")


@pytest.mark.parametrize("kind", ["DataFrames", "tuples"])
def test_the_stages_of_a_spouts_dataframe_are_not_run_to_count_its_partitions(
    started: Callable[[Topology], SparkExecutor], tmp_path: Path, kind: str
) -> None:
    builder = TopologyBuilder("touching")
    builder.set_spout("numbers", Touching(tmp_path))
    if kind == "tuples":
        builder.set_bolt("large", Large()).shuffle_grouping("numbers")
    committer = CountCommitter("touched", ["word"], count="n", sums={"amount": "sum"})
    source = "large" if kind == "tuples" else "numbers"
    builder.set_committer_bolt("words", committer).fields_grouping(source, ["word"])
    executor = started(builder.build())
    before = len(list(tmp_path.iterdir()))

    (outcome,) = executor.process([Assignment(attempt=TransactionAttempt(1, 0), metadata={"numbers": {"count": 50}})])

    assert isinstance(outcome, Processed), outcome
    rows = outcome.results[0].rows.to_pylist()
    assert [(found["word"], found["n"], int(found["sum"])) for found in rows] == [(f"w{at}", 1, 10) for at in range(5)]
    assert len(list(tmp_path.iterdir())) - before == 4, "four tasks, each once"


def test_a_dataframe_bolt_among_tuples_may_make_columns_that_it_does_not_declare(
    started: Callable[[Topology], SparkExecutor],
) -> None:
    builder = TopologyBuilder("undeclared")
    builder.set_spout("source", ListSpout())
    builder.set_bolt("bolt1", with_window, inputs="source", fields=FIELDS, rows="same")
    committer = CountCommitter("counts", ["name"], count="n")
    builder.set_bolt("large", Passing()).shuffle_grouping("bolt1")
    builder.set_committer_bolt("counter", committer).fields_grouping("large", ["name"])

    (outcome,) = started(builder.build()).process([assignment(1, *PARTS)])

    assert totals(outcome) == {"k0": 56, "k1": 56, "k2": 48}


def test_a_dataframe_bolt_among_tuples_may_keep_no_row_at_all(started: Callable[[Topology], SparkExecutor]) -> None:
    """What is before it is left out of Spark's plan, and read and counted all the same: a spout, and tuple bolts."""
    builder = TopologyBuilder("nothing")
    builder.set_spout("source", ListSpout())
    builder.set_bolt("bad", lambda frame: frame.where("false"), inputs="source", fields=FIELDS)
    builder.set_bolt("names", Passing()).shuffle_grouping("source")
    builder.set_bolt("none", lambda frame: frame.limit(0), inputs="names", fields="name string")
    builder.set_bolt("large", Passing()).shuffle_grouping("bad").shuffle_grouping("none")
    builder.set_committer_bolt("counter", CountCommitter("counts", ["name"], count="n")).fields_grouping(
        "large", ["name"]
    )

    (outcome,) = started(builder.build()).process([assignment(1, *PARTS)])

    assert totals(outcome) == {}
    assert isinstance(outcome, Processed) and outcome.read == 160
