"""What a topology declares of its fields, on a real local session: `not null` at spouts and at functions over
DataFrames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.fix_spark import executors_on, frame_jobs
from tests.kit.list_spout import ListSpout, assignment, row
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.plan import Metadata
from txtopo.core.values import Failed, Processed
from txtopo.spark.executor import SparkExecutor
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally, Topology

pytestmark = pytest.mark.spark

EVERY_TYPE: Mapping[str, Any] = {
    "string": "s",
    "binary": b"b",
    "boolean": True,
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "bigint": 4,
    "float": 0.5,
    "double": 1.5,
    "decimal(38,2)": Decimal("1.50"),
    "date": date(2024, 5, 6),
    "timestamp": datetime(2024, 5, 6, tzinfo=UTC),
    "timestamp_ntz": datetime(2024, 5, 6),
}


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    with executors_on(spark_session) as make:
        yield make


class EveryTypeSpout(ListSpout):
    """A row for each that the metadata holds, with a value of every type and its own word."""

    def __init__(self) -> None:
        typed = (f"f{at} {kind} not null" for at, kind in enumerate(EVERY_TYPE))
        super().__init__(", ".join(["word string", *typed]))

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        tally.read += len(part["rows"])
        values = [part["rows"], *([value] * len(part["rows"]) for value in EVERY_TYPE.values())]
        schema = arrow_schema(self.fields)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema=schema
        )


def counted(keys: list[str], function: Any = None, fields: str = "", spout: ListSpout | None = None) -> Topology:
    builder = TopologyBuilder("declared")
    builder.set_spout("source", spout or EveryTypeSpout())
    if function is not None:
        builder.set_bolt("bolt1", function, inputs="source", fields=fields)
    source = "source" if function is None else "bolt1"
    builder.set_committer_bolt("counter", CountCommitter("counts", keys, count="n")).fields_grouping(source, keys)
    return builder.build()


@pytest.mark.parametrize(
    "bolt",
    [(None, ""), (lambda frame: frame.select("word"), "word string")],
    ids=["no bolt", "a bolt that drops them"],
)
def test_not_null_fields_of_every_type_that_nothing_reads_are_no_trouble(
    started: Callable[[Topology], SparkExecutor], bolt: tuple[Any, str]
) -> None:
    """They are not carried to the JVM, and the JVM relies on it that they are never NULL."""
    executor = started(counted(["word"], *bolt))
    reusable = frame_jobs(executor).reusable
    assert reusable is not None
    assert reusable.needed == {"source": ["word"]}

    outcomes = executor.process([assignment(1, ["a", "b", "a"]), assignment(2, ["c"])])

    assert [outcome.results[0].rows.to_pylist() for outcome in outcomes if isinstance(outcome, Processed)] == [
        [{"word": "a", "n": 2}, {"word": "b", "n": 1}],
        [{"word": "c", "n": 1}],
    ], outcomes


def without_x(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("nullif(name, 'x') name", "amount")


def without_x_by_python(frame: DataFrame) -> DataFrame:
    drop = F.udf(lambda name: None if name == "x" else name, "string")
    return frame.select(drop("name").alias("name"), "amount")


NOT_NULL = "name string not null, amount int"


@pytest.mark.parametrize("function", [without_x, without_x_by_python])
def test_a_null_in_a_not_null_field_of_a_function_fails_its_batch_alone(
    started: Callable[[Topology], SparkExecutor], function: Any
) -> None:
    """Promise: NULL in a `not null` field fails the batch, naming bolt, field and row, in a wave as alone."""
    executor = started(counted(["name"], function, NOT_NULL, ListSpout()))
    assert executor.one_by_one is None

    first = executor.process([assignment(1, [row("a")]), assignment(2, [row("b")])])
    found = executor.process(
        [assignment(3, [row("a")]), assignment(4, [row("b"), row("x")]), assignment(5, [row("c")])]
    )

    assert all(isinstance(outcome, Processed) for outcome in first), first
    assert [type(outcome) for outcome in found] == [Processed, Failed, Processed]
    assert isinstance(found[1], Failed)
    failure = found[1].failure
    assert (failure.kind, failure.component) == ("data", "bolt1")
    assert "bolt bolt1: field name is NULL, but it is declared NOT NULL" in failure.message
    assert failure.message.endswith("on tuple 2 of part 1 of source: name='x'")


def test_a_field_that_nothing_reads_costs_nothing_and_one_that_cannot_be_null_is_not_looked_at(
    started: Callable[[Topology], SparkExecutor],
) -> None:
    """The look is part of the plan, so that Spark leaves out what it can."""
    unread = started(counted(["amount"], without_x, NOT_NULL, ListSpout()))
    assert isinstance(unread.process([assignment(1, [row("x")])])[0], Processed)
    reusable = frame_jobs(unread).reusable
    assert reusable is not None and reusable.needed == {"source": ["amount"]}

    sure = started(counted(["word"], lambda d: d.selectExpr("coalesce(word, '') word"), "word string not null"))
    plan = frame_jobs(sure).reusable
    assert plan is not None
    assert "raise_error" not in str(plan.compiled.counted[0].stream._jdf.queryExecution().analyzed().toString())
