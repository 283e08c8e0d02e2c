"""Aggregates on Spark: counted in the tasks of the spout, behind a bolt, over many partitions, and in this process give
the same rows; they are those that plain Python finds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from tests.contracts.committer_contract import FIELDS, any_tuple, rebuilt
from tests.contracts.executor_contract import CODE_HASH, plan_batches
from tests.kit.fix_spark import executors_on
from tests.kit.sessions import GAP, history, sessions_of
from txtopo import AggregateCommitter, CountCommitter, FileSpout, TopologyBuilder
from txtopo.audit.recount import _days
from txtopo.core.fields import parse_fields
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.errors import ConfigurationError
from txtopo.ports import Assignment
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames.aggregate import _key
from txtopo.spark.session.time_zones import check_zones
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology
from txtopo.topology.event_windows import KeySource
from txtopo.tuples.aggregate_batches import key_values

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
    by_time = AggregateCommitter("times", [], window="90 minutes", time="sold", maxs={"sold": "latest"})
    builder.set_committer_bolt("times", by_time).shuffle_grouping(source)
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


def test_a_window_begins_where_the_tasks_and_spark_say(spark_session: SparkSession) -> None:
    """Before 1970, at the edges, in the first and last year, without a zone, and of NULL."""
    moments = [datetime(1, 1, 9), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1), None]
    moments += [datetime(2026, 3, 29, 1, 30), datetime(2026, 3, 29, 1, 29, 59, 999_999), datetime(9999, 12, 31, 23)]
    fields = parse_fields("zoned timestamp, plain timestamp_ntz")
    rows = [(None if one is None else one.replace(tzinfo=UTC), one) for one in moments]
    table = pa.Table.from_arrays(
        [
            pa.array(values, kind)
            for values, kind in zip(zip(*rows, strict=True), arrow_schema(fields).types, strict=True)
        ],
        schema=arrow_schema(fields),
    )
    sources = [KeySource(name, width * 1_000_000) for name in fields.names for width in (1, 90 * 60, 7 * 86_400)]
    frame = spark_session.createDataFrame(table)
    found = frame.select(*(_key(one, fields).alias(f"c{at}") for at, one in enumerate(sources))).toArrow()
    for at, one in enumerate(sources):
        here = key_values(one, table.column(one.field))
        assert found.column(at).cast(here.type).to_pylist() == here.to_pylist()
        for value, start in zip(table.column(one.field).to_pylist(), here.to_pylist(), strict=True):
            assert (value is None) == (start is None)
            if value is not None:
                assert timedelta(0) <= value - start < timedelta(microseconds=one.width_us)
                since = start - datetime(1970, 1, 1, tzinfo=start.tzinfo)
                assert since % timedelta(microseconds=one.width_us) == timedelta(0)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/St_Johns", "Africa/Casablanca", "Asia/Beirut", "Pacific/Apia"]
)
def test_a_local_day_is_the_same_for_the_tasks_spark_and_the_audit(spark_session: SparkSession, zone: str) -> None:
    """On days of 23 and 25 hours, on a day that was left out, after 2037, and of NULL."""
    chance = random.Random(1)
    rules, first = ZoneInfo(zone), datetime(1890, 1, 1, tzinfo=UTC)
    moments = [first + timedelta(hours=chance.uniform(0, 24 * 365 * 200)) for _ in range(3000)]
    moments += [datetime(2026, month, 29, hour, 30, tzinfo=UTC) for month in (3, 10) for hour in range(24)]
    array = pa.array([*moments, None], pa.timestamp("us", "UTC"))
    fields = parse_fields("at timestamp")
    frame = spark_session.createDataFrame(pa.table({"at": array}))
    for days in (1, 7):
        source = KeySource("at", days * 86_400_000_000, zone=zone)
        here = key_values(source, array)
        found = frame.select(_key(source, fields).alias("start")).toArrow().column(0).cast(here.type)
        assert found.to_pylist() == here.to_pylist() == [_days(one, source.width_us, zone) for one in [*moments, None]]
        for moment, start in zip(moments, here.to_pylist(), strict=False):
            assert timedelta(0) <= moment.astimezone(rules).replace(tzinfo=None) - start < timedelta(days=days)


def test_rules_of_a_zone_that_differ_are_refused(spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row would be in one day for the tasks, and in another for Spark."""
    builder = TopologyBuilder("days")
    builder.set_spout("files", FileSpout("days", "at timestamp"))
    days = AggregateCommitter("days", [], window="1 day", zone="Asia/Tokyo", time="at")
    builder.set_committer_bolt("days", days).shuffle_grouping("files")
    topology = builder.build()
    check_zones(spark_session, topology)
    monkeypatch.setattr("txtopo.spark.session.time_zones.local_moments", lambda moments, _: moments)
    said = "zone Asia/Tokyo: at 1900-01-01 00:00:00 UTC its clocks show 1900-01-01 09:00:00 for Java"
    with pytest.raises(ConfigurationError, match=said):
        check_zones(spark_session, topology)


def test_sessions_are_those_of_spark(spark_session: SparkSession) -> None:
    """What tables are compared with joins two rows that are a gap apart, as Spark does."""
    visits = [one for batch in history() for one in batch if one[0] is not None and one[1] is not None]
    schema = arrow_schema(parse_fields("who string, at timestamp, page string, price int"))
    columns = [pa.array(values, kind) for values, kind in zip(zip(*visits, strict=True), schema.types, strict=True)]
    frame = spark_session.createDataFrame(pa.Table.from_arrays(columns, schema=schema))
    grouped = frame.groupBy("who", F.session_window("at", "30 minutes").alias("s")).agg(F.count("*").alias("n"))
    found = grouped.select("who", "s.start", "s.end", "n").toArrow().to_pylist()
    assert {tuple(row.values()) for row in found} == {one[:4] for one in sessions_of(visits, GAP)}


def test_a_cell_is_what_the_tasks_and_spark_say(spark_session: SparkSession) -> None:
    """Of texts, bytes and integers; NULL has none."""
    fields = parse_fields("text string, raw binary, big bigint, tiny tinyint")
    chance = random.Random(1)
    rows = [(str(at), chance.randbytes(5), chance.randrange(-(2**63), 2**63), at % 100) for at in range(3000)]
    rows += [("", b"", 0, -128), ("é\U0001f600", b"\xff\xfe", 2**63 - 1, 0)]
    named = [dict(zip(fields.names, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist([*named, dict.fromkeys(fields.names)], arrow_schema(fields))
    sources = [KeySource(name, is_cell=True) for name in fields.names]
    frame = spark_session.createDataFrame(table)
    found = frame.select(*(_key(one, fields).alias(one.field) for one in sources)).toArrow()
    for one in sources:
        assert found.column(one.field).to_pylist() == key_values(one, table.column(one.field)).to_pylist()


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
        sales, days, shops, times = outcome.results
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
        by_window: dict[Any, list[Any]] = {}
        for one in tuples:
            start = one["sold"]
            if start is not None:
                epoch = datetime(1970, 1, 1, tzinfo=UTC)
                start = epoch + (start - epoch) // timedelta(minutes=90) * timedelta(minutes=90)
            by_window.setdefault(start, []).append(one["sold"])
        assert {row["window_start"]: (row["count"], row["latest"]) for row in times.rows.to_pylist()} == {
            start: (len(moments), None if start is None else max(moments)) for start, moments in by_window.items()
        }
        if here is not None:
            theirs = here[at]
            assert isinstance(theirs, Processed)
            assert [
                one.rows.equals(other.rows) for one, other in zip(outcome.results, theirs.results, strict=True)
            ] == [True] * 4
