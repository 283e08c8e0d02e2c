"""The settings that results depend on, where a user's function changes them: put back, named, and never in the way of
an exact sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import ListSpout, assignment, list_topology, row
from txtopo.bolts import BasicBolt, Tuple
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Failed, Processed
from txtopo.errors import BatchDataError
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames import aggregate
from txtopo.spark.frames.aggregate import count_frame
from txtopo.spark.jobs import collect_batches
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology

pytestmark = pytest.mark.spark

ANSI = "spark.sql.ansi.enabled"
KEYWORDS = "spark.sql.ansi.enforceReservedKeywords"
LARGE = "9" * 36


class Passing(BasicBolt):
    """Passes each tuple on."""

    outputs = ("`select` string", "`user` int")

    def execute(self, tup: Tuple, collector: Any) -> None:
        collector.emit(tup.values)


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    with executors_on(spark_session) as make:
        yield make


@pytest.fixture
def not_ansi(spark_session: SparkSession) -> Iterator[SparkSession]:
    spark_session.conf.set(ANSI, "false")
    yield spark_session
    spark_session.conf.set(ANSI, "true")


def lenient(frame: DataFrame) -> DataFrame:
    frame.sparkSession.conf.set(ANSI, "false")
    return frame


@pytest.mark.parametrize("place", ["alone", "before others"])
def test_a_bolt_that_changes_a_setting_that_results_depend_on_is_named(
    started: Callable[[Topology], SparkExecutor], spark_session: SparkSession, place: str
) -> None:
    """Promise: sums are exact or an error, whatever a bolt does to the session; and the next topology finds it as it
    was.
    """
    bolts = [lenient] if place == "alone" else [lenient, lambda frame: frame]

    with pytest.raises(BatchDataError) as caught:
        started(list_topology(*bolts, sums=["price"]))

    assert str(caught.value).startswith(
        "bolt1 changes the Spark session: spark.sql.ansi.enabled was false instead of true, and results depend on it"
    )
    assert caught.value.component == "bolt1"
    assert spark_session.conf.get(ANSI) == "true"


def test_a_bolt_that_does_so_later_fails_its_batch(
    started: Callable[[Topology], SparkExecutor], spark_session: SparkSession
) -> None:
    """Every time a bolt is called, not only at the start; also where it raises of itself then."""
    todo: list[Callable[[DataFrame], DataFrame]] = []

    def changing(frame: DataFrame) -> DataFrame:
        return todo[0](frame.repartition(2)) if todo else frame.repartition(2)

    def raising(frame: DataFrame) -> DataFrame:
        lenient(frame)
        raise ValueError("no")

    executor = started(list_topology(changing, sums=["price"]))
    batch = assignment(1, [row("x", price=LARGE)])
    found = []
    for function in (lenient, raising):
        todo[:] = [function]
        (outcome,) = executor.process([batch])
        assert isinstance(outcome, Failed)
        found.append((outcome.failure.kind, outcome.failure.component, outcome.failure.message))
        assert spark_session.conf.get(ANSI) == "true"
    todo.clear()

    assert found[0][:2] == found[1][:2] == ("data", "bolt1")
    assert "spark.sql.ansi.enabled was false" in found[0][2]
    assert "ValueError: no" in found[1][2]
    assert isinstance(executor.process([batch])[0], Processed)


@pytest.mark.parametrize("partitions_max", [16, 0], ids=["bounds in the groups", "rows of totals"])
def test_a_sum_that_overflows_is_an_error_also_in_a_session_that_would_hide_it(
    not_ansi: SparkSession, monkeypatch: pytest.MonkeyPatch, partitions_max: int
) -> None:
    """0 stands for no value at all, never for one that is too large."""
    monkeypatch.setattr(aggregate, "PARTITIONS_MAX", partitions_max)
    rows: list[tuple[str, Any, Any]] = [
        ("x", Decimal(LARGE), 1),
        ("y", None, None),
        ("z", Decimal("1.5"), None),
        ("z", None, 2),
    ]

    def summed(times: int) -> list[dict[str, Any]]:
        frame = not_ansi.createDataFrame(rows, "name string, price decimal(38,2), amount int").coalesce(1)
        more = frame.withColumn("again", F.explode(F.sequence(F.lit(1), F.lit(times))))
        job = count_frame([_committer()], more, counting=True)
        ((result,),) = job.results(collect_batches(job.frame), 1)
        return list(result.rows.to_pylist())

    assert [tuple(found.values()) for found in summed(1)] == [
        ("x", 1, Decimal(LARGE), 1),
        ("y", 1, 0, 0),
        ("z", 2, Decimal("1.50"), 2),
    ]
    with pytest.raises(Exception, match="a sum has more than 38 digits"):
        summed(101)


def _committer() -> Any:
    builder = TopologyBuilder("sums")
    builder.set_spout("source", ListSpout())
    committer = CountCommitter("counts", ["name"], count="n", sums={"price": "p", "amount": "a"})
    builder.set_committer_bolt("counter", committer).fields_grouping("source", ["name"])
    return builder.build().committers[0]


@pytest.fixture
def strict_keywords(spark_session: SparkSession) -> Iterator[None]:
    spark_session.conf.set(KEYWORDS, "true")
    yield
    spark_session.conf.unset(KEYWORDS)


@pytest.mark.usefixtures("strict_keywords")
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("tuples", [False, True], ids=["DataFrames", "tuples"])
def test_names_that_a_session_takes_for_keywords_are_names(
    started: Callable[[Topology], SparkExecutor], parts: int, tuples: bool
) -> None:
    """A session of the user's own may reserve what ANSI reserves: fields may be called so, and txtopo's own columns
    are.
    """
    builder = TopologyBuilder("keywords")
    builder.set_spout("source", ListSpout("`select` string, `user` int not null"))
    if tuples:
        builder.set_bolt("bolt", Passing(), parallelism_hint=2).fields_grouping("source", ["select"])
    else:
        builder.set_bolt(
            "bolt", lambda frame: frame.where("`user` > 0"), inputs="source", fields="`select` string, `user` int"
        )
    committer = CountCommitter("counts", ["select"], count="order", sums={"user": "group"})
    builder.set_committer_bolt("counter", committer).fields_grouping("bolt", ["select"])

    outcome = started(builder.build()).process([assignment(1, *[[["a", 1], ["b", 2]]] * parts)])[0]

    assert isinstance(outcome, Processed), outcome
    assert [tuple(found.values()) for found in outcome.results[0].rows.to_pylist()] == [
        ("a", parts, parts),
        ("b", parts, 2 * parts),
    ]
