"""What users of Spark write by hand: Structured Streaming with an exactly-once upsert, and one job over all files
without any guarantee. No txtopo in what is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2.extras import execute_values
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.cases import STREAMING_BATCHES_MAX, Job, case_of
from benchmarks.inputs import COLUMNS, Folder, difference, read_inputs
from benchmarks.led import WrongResult, read_table
from benchmarks.meter import Meter
from txtopo.local.java import java_environment

TABLES = """
create table {counts} (carrier text, origin text, flights bigint not null, miles bigint not null,
                       primary key (carrier, origin));
create table {done} (batch_id bigint not null);
insert into {done} values (-1);
"""


def session(job: Job) -> SparkSession:
    """Start Spark with the settings that are fastest here: no UI, as many partitions as cores, no adaptive plans."""
    os.environ.update(java_environment())
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.appName("bench").master(f"local[{cores}]")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(job.folder / "warehouse"),
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # Nothing is planned yet, but Spark has run a job, as txtopo's session has at its lead.
    spark.range(cores).groupBy("id").count().collect()
    return spark


def grouped(files: DataFrame) -> DataFrame:
    """Flights and miles by carrier and origin."""
    return files.groupBy("carrier", "origin").agg(F.count("*").alias("flights"), F.sum("distance").alias("miles"))


class Upsert:
    """A `foreachBatch` function that adds a batch exactly once: the last batch id is in the same transaction."""

    def __init__(self, dsn: str, counts: str, done: str) -> None:
        self._connection = psycopg2.connect(dsn)
        self._counts, self._done = counts, done
        self.committed_at = 0.0
        self.batches = 0

    def __call__(self, files: DataFrame, batch_id: int) -> None:
        self.apply(grouped(files).collect(), batch_id)

    def apply(self, rows: Sequence[Row], batch_id: int) -> None:
        """Add the rows of a batch, unless they have been added."""
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(f"select batch_id from {self._done} for update")
            if cursor.fetchone()[0] >= batch_id:
                return
            execute_values(
                cursor,
                f"insert into {self._counts} as t values %s on conflict (carrier, origin) do update "
                f"set flights = t.flights + excluded.flights, miles = t.miles + excluded.miles",
                [tuple(row) for row in rows],
            )
            cursor.execute(f"update {self._done} set batch_id = %s", (batch_id,))
        self.committed_at = time.monotonic()
        self.batches += 1

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def streaming_passes(job: Job) -> Iterator[dict[str, Any]]:
    """Structured Streaming, `availableNow`, so many files a batch as the case says."""
    case = case_of(job.case)
    folder = read_inputs(Path(job.inputs))[case.folder].first(STREAMING_BATCHES_MAX * case.files_per_batch)
    spark = session(job)
    try:
        for number in range(1, job.passes + 1):
            name = f"streaming_{case.name.replace('-', '_')}_{number}"
            yield _stream(job, spark, folder, name, number)
    finally:
        spark.stop()


def _stream(job: Job, spark: SparkSession, folder: Folder, name: str, number: int) -> dict[str, Any]:
    counts, done = f"{name}_counts", f"{name}_done"
    connection = psycopg2.connect(job.dsn)
    with connection, connection.cursor() as cursor:
        cursor.execute(TABLES.format(counts=counts, done=done))
    connection.close()
    upsert = Upsert(job.dsn, counts, done)
    meter = Meter(job, number)
    began = time.monotonic()
    files = (
        spark.readStream.schema(COLUMNS)
        .option("header", True)
        .option("maxFilesPerTrigger", case_of(job.case).files_per_batch)
        .csv(str(folder.path))
    )
    query = (
        files.writeStream.foreachBatch(upsert)
        .option("checkpointLocation", str(job.folder / f"checkpoint_{number}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    row = meter.row(rows=folder.rows, batches=upsert.batches, wall_s=upsert.committed_at - began)
    upsert.close()
    wrong = difference(read_table(job.dsn, f"select carrier, origin, flights, miles from {counts}"), folder.counts)
    if wrong:
        raise WrongResult(f"{name}: {wrong}")
    return row


def plain_passes(job: Job) -> Iterator[dict[str, Any]]:
    """All files in one job, to rows in the driver."""
    folder = read_inputs(Path(job.inputs))[case_of(job.case).folder]
    spark = session(job)
    try:
        for number in range(1, job.passes + 1):
            meter = Meter(job, number)
            began = time.monotonic()
            rows = grouped(spark.read.schema(COLUMNS).option("header", True).csv(str(folder.path))).collect()
            row = meter.row(rows=folder.rows, batches=1, wall_s=time.monotonic() - began)
            found = {(one["carrier"], one["origin"]): (one["flights"], one["miles"]) for one in rows}
            if wrong := difference(found, folder.counts):
                raise WrongResult(f"plain Spark: {wrong}")
            yield row
    finally:
        spark.stop()
