"""How fast tasks store large results: COPY of txtopo next to Spark's own JDBC append, in one run.

    make bench-staging                # or: python -m benchmarks.large_results [THOUSAND_ROWS]

Both write the same rows, which lie in Spark's memory, into unlogged tables of the same columns, with warm workers and
as many tasks. The JDBC driver is told to join its inserts (`reWriteBatchedInserts=true`). It comes from Maven Central;
where this is out of reach, its figures are missing, and the reason is said. Writes build/bench_staging.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa

from txtopo.committers.postgres.staging_copy import PART, SCHEMA, TASK, CopyWriter
from txtopo.local.java import find_java, java_environment
from txtopo.local.postgres import LocalPostgres

TASKS = 2
ROUNDS = 5
COLUMNS = {"shop": "text", "day": "date", "pieces": "bigint", "turnover": "numeric(38,2)"}
DRIVER = ("org.postgresql", "postgresql", "42.7.7")
DRIVER_SHA256 = "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460"
DOWNLOAD_S = 120.0


def main(arguments: Sequence[str]) -> None:
    """Write the rows in both ways, alternating, and tell the best of some rounds."""
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_results", allow_abbrev=False)
    parser.add_argument("thousands", nargs="?", type=float, default=1000.0, help="thousand rows (default: 1000)")
    rows = int(parser.parse_args(arguments).thousands * 1000)
    os.environ.update(java_environment())
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres has its own account where the caller is root.
        jar, why_not = jdbc_driver(folder)
        conf = {} if jar is None else {"spark.jars": str(jar)}
        options = SessionOptions(app_name="bench", log_folder=folder, master=f"local[{TASKS}]", conf=conf)
        with LocalPostgres(folder / "postgres") as postgres:
            spark = start_session(options)
            try:
                tell(measured(spark, postgres.dsn, rows, jdbc=jar is not None), rows, why_not)
            finally:
                stop_session()


def measured(spark: Any, dsn: str, rows: int, *, jdbc: bool) -> dict[str, float]:
    """Return the seconds of the fastest round, by way."""
    frame = spark.range(0, rows, 1, TASKS).selectExpr(
        "concat('shop ', id) as shop",
        "date_add(date '2026-01-01', cast(id % 365 as int)) as day",
        "id % 1000 as pieces",
        "cast(id % 100000 as decimal(38,2)) / 100 as turnover",
    )
    frame = frame.selectExpr("shop", "day", "pieces", "cast(turnover as decimal(38,2)) as turnover").cache()
    frame.count()
    ways = {"copy": copied, "jdbc": appended} if jdbc else {"copy": copied}
    best = dict.fromkeys(ways, float("inf"))
    for number in range(ROUNDS):
        for way, write in ways.items():
            make_table(dsn)
            began = time.perf_counter()
            write(frame, dsn)
            seconds = time.perf_counter() - began
            if counted(dsn) != rows:
                raise RuntimeError(f"{way}: {counted(dsn)} of {rows} rows were written")
            if number:  # the first round starts workers and compiles
                best[way] = min(best[way], seconds)
    return best


def copied(frame: Any, dsn: str) -> None:
    """Store the rows as tasks of txtopo store large results."""
    writer = CopyWriter(dsn, "bench", tuple(COLUMNS), "txtopo/bench/staging", "bench")

    def store(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        part, task = context.partitionId(), context.taskAttemptId()
        stored = writer.store(part, task, (pa.Table.from_batches([batch]) for batch in batches))
        yield pa.record_batch([pa.array([stored], pa.int64())], names=["stored"])

    frame.mapInArrow(store, "stored bigint").collect()


def appended(frame: Any, dsn: str) -> None:
    """Append the rows with Spark's JDBC writer."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

    whole = frame.select(
        F.spark_partition_id().alias(PART), F.monotonically_increasing_id().alias(TASK), *frame.columns
    )
    host, _, database = dsn.rpartition("@")[2].partition("/")
    writer = whole.write.format("jdbc").mode("append").option("driver", "org.postgresql.Driver")
    writer = writer.option("url", f"jdbc:postgresql://{host}/{database}?reWriteBatchedInserts=true")
    writer.option("user", "postgres").option("dbtable", f"{SCHEMA}.bench").option("batchsize", 10_000).save()


def make_table(dsn: str) -> None:
    """Make the table anew."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    run(dsn, f"drop table if exists {SCHEMA}.bench")
    run(dsn, f"create schema if not exists {SCHEMA}")
    run(dsn, f'create unlogged table {SCHEMA}.bench ("{PART}" integer not null, "{TASK}" bigint not null, {columns})')


def counted(dsn: str) -> int:
    """Return the number of rows in the table."""
    return int(run(dsn, f"select count(*) from {SCHEMA}.bench")[0][0])


def run(dsn: str, sql: str) -> list[Any]:
    """Run one statement."""
    connection = psycopg2.connect(dsn)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def jdbc_driver(folder: Path) -> tuple[Path | None, str]:
    """Return the driver, retrieved by the Ivy in the PySpark package; or None and why it is not to be had."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else folder
    ivy = [str(jar) for name in ("ivy-*.jar", "commons-cli-*.jar") for jar in jars.glob(name)]
    command = [
        *(str(find_java().executable), "-cp", ":".join(ivy), "org.apache.ivy.Main", "-dependency", *DRIVER),
        *("-confs", "default", "-types", "jar", "bundle", "-cache", str(folder / "ivy")),
        *("-retrieve", f"{folder}/jars/[artifact]-[revision].[ext]"),
    ]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DOWNLOAD_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"the download of {DRIVER[1]} {DRIVER[2]} did not end within {DOWNLOAD_S:.0f} s"
    jar = folder / "jars" / f"{DRIVER[1]}-{DRIVER[2]}.jar"
    if not jar.exists():
        return None, f"{DRIVER[1]} {DRIVER[2]} cannot be downloaded from Maven Central"
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != DRIVER_SHA256:
        return None, f"Maven Central gave another {jar.name} than known: its sha-256 is {found}"
    return jar, ""


def tell(best: dict[str, float], rows: int, why_not: str) -> None:
    """Print and keep the figures."""
    print(f"{rows / 1e6:.1f} M rows, {TASKS} tasks; best of {ROUNDS - 1} warm rounds; thousand rows a second")
    found: dict[str, Any] = {f"{way}_rows_per_s": round(rows / seconds) for way, seconds in best.items()}
    for way, seconds in best.items():
        print(f"{way:<6}{rows / seconds / 1e3:>8.0f}")
    if "jdbc" in best:
        found["ratio"] = round(best["jdbc"] / best["copy"], 2)
        print(f"COPY is {found['ratio']:.2f} times as fast as Spark's JDBC append with reWriteBatchedInserts=true")
    else:
        print(f"jdbc is skipped: {why_not}")
    place = Path("build")
    place.mkdir(exist_ok=True)
    (place / "bench_staging.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
