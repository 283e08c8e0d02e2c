"""How fast each format of files is read, next to bare Spark on the same files, in one run.

    make bench-formats                # or: python -m benchmarks.formats [THOUSAND_ROWS] [--case csv,parquet]

Prints rows a second, rows a CPU second of driver, JVM and Python workers together, and ratios of both; writes
build/bench_formats.json. Only ratios of one run mean anything; those of CPU seconds nearly keep on a busy machine. What
is measured is the processing phase: from the plan of a batch to its result rows in the driver, which counts rows by key
and sums a column. Bare Spark does the same with its own reader, and collects.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from benchmarks.processes import cpu_s, running
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.formats import Csv, Format, Json, Parquet, Pattern, Text
from txtopo.local.java import java_environment
from txtopo.ports import Assignment
from txtopo.topology.components import SpoutContext, Topology

FILES = 4
ROUNDS = 5
"""Each goes through all cases, so that a machine that grows warm or slow is so for all of them."""
SHOPS = 50
FIELDS = "shop string, pieces int, price decimal(10,2), sold timestamp"
LOG_PATTERN = r"^(\S+) \S+ (\S+) \[([^\]]+)\] \"([^\"]*)\" (\d{3}) (\d+|-)$"
UNITS = ("wall", "cpu")
Totals = dict[str, tuple[int, int]]
"""Key -> number of rows, and the sum."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    format: Format
    fields: str
    key: str
    summed: str | None
    ending: str
    write: Callable[[Path, Sequence[int]], None]
    bare: Callable[[Any, str], Any]
    """(session, folder) -> a DataFrame of the declared fields, as Spark reads it by itself."""


def main(arguments: Sequence[str]) -> None:
    """Write the files, start Spark once, measure every case next to bare Spark, best of some rounds."""
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", allow_abbrev=False)
    parser.add_argument("thousands", nargs="?", type=float, default=2000.0, help="thousand rows (default: 2000)")
    parser.add_argument("--case", help=f"names, separated by commas, of {', '.join(case.name for case in CASES)}")
    asked = parser.parse_args(arguments)
    names = [case.name for case in CASES] if asked.case is None else asked.case.split(",")
    unknown = sorted({*names} - {case.name for case in CASES})
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}")
    cases = [case for case in CASES if case.name in names]
    os.environ.update(java_environment())
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_") as folder:
        rows = int(asked.thousands * 1000) // FILES * FILES
        write_files(Path(folder), cases, rows)
        spark = start_session(SessionOptions(app_name="bench", log_folder=Path(folder)))
        try:
            found = measured(spark, Path(folder), cases, rows)
        finally:
            stop_session()
    tell(found, rows)


def row_of(number: int) -> tuple[str, int, str, str]:
    """Return one row of the input."""
    day, hour = number % 28 + 1, number % 24
    return (
        f"shop {number % SHOPS}",
        number % 1000,
        f"{number % 500}.{number % 100:02}",
        f"2024-01-{day:02} {hour:02}:00:05",
    )


def write_csv(path: Path, numbers: Sequence[int]) -> None:
    """Write a CSV file with a header line."""
    path.write_text("shop,pieces,price,sold\n" + "".join(",".join(map(str, row_of(n))) + "\n" for n in numbers))


def write_gzip(path: Path, numbers: Sequence[int]) -> None:
    """Write the same, compressed."""
    write_csv(path, numbers)
    path.write_bytes(gzip.compress(path.read_bytes(), 6))


def write_json(path: Path, numbers: Sequence[int]) -> None:
    """Write JSON lines; prices are numbers."""
    lines = (
        f'{{"shop": "{shop}", "pieces": {pieces}, "price": {price}, "sold": "{sold}"}}\n'
        for shop, pieces, price, sold in map(row_of, numbers)
    )
    path.write_text("".join(lines))


def write_parquet(path: Path, numbers: Sequence[int]) -> None:
    """Write Parquet with columns that are not declared among them."""
    rows = [row_of(number) for number in numbers]
    price = pa.array([row[2] for row in rows]).cast(pa.decimal128(10, 2))
    sold = pa.array([row[3] for row in rows]).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    pieces = pa.array([row[1] for row in rows], pa.int32())
    more = pa.array([f"a remark {number}" for number in numbers])
    table = pa.table({"shop": [row[0] for row in rows], "more": more, "pieces": pieces, "price": price, "sold": sold})
    parquet.write_table(table, path, row_group_size=250_000)


def write_log(path: Path, numbers: Sequence[int]) -> None:
    """Write an access log in the common format."""
    path.write_text(
        "".join(
            f"10.0.{n % 256}.7 - shop{n % SHOPS} [{n % 28 + 1:02}/Jan/2024:{n % 24:02}:00:05 +0000] "
            f'"GET /a/{n % 7} HTTP/1.1" 200 {n % 1000}\n'
            for n in numbers
        )
    )


def write_text(path: Path, numbers: Sequence[int]) -> None:
    """Write lines, of which there are few different ones."""
    path.write_text("".join(f"line {n % SHOPS} of a text that says one thing again and again\n" for n in numbers))


def bare_log(spark: Any, folder: str) -> Any:
    """Return an access log as Spark users read one."""
    lines = spark.read.text(folder)
    parts = [
        f"regexp_extract(value, r'{LOG_PATTERN}', {number}) as {name}"
        for number, name in enumerate(("host", "user", "time", "request"), 1)
    ]
    return lines.selectExpr(*parts, f"cast(regexp_extract(value, r'{LOG_PATTERN}', 6) as bigint) as size")


CASES = (
    Case(
        "csv",
        Csv(),
        FIELDS,
        "shop",
        "pieces",
        ".csv",
        write_csv,
        lambda spark, folder: spark.read.csv(folder, schema=FIELDS, header=True),
    ),
    Case(
        "csv.gz",
        Csv(),
        FIELDS,
        "shop",
        "pieces",
        ".csv.gz",
        write_gzip,
        lambda spark, folder: spark.read.csv(folder, schema=FIELDS, header=True),
    ),
    Case(
        "json",
        Json(),
        FIELDS,
        "shop",
        "pieces",
        ".jsonl",
        write_json,
        lambda spark, folder: spark.read.json(folder, schema=FIELDS),
    ),
    Case(
        "parquet",
        Parquet(),
        FIELDS,
        "shop",
        "pieces",
        ".parquet",
        write_parquet,
        lambda spark, folder: spark.read.schema(FIELDS).parquet(folder),
    ),
    Case(
        "pattern",
        Pattern("apache_common"),
        "host string, user string, time timestamp, request string, size bigint",
        "user",
        "size",
        ".log",
        write_log,
        bare_log,
    ),
    Case(
        "text",
        Text(),
        "value string",
        "value",
        None,
        ".txt",
        write_text,
        lambda spark, folder: spark.read.text(folder),
    ),
)


def write_files(folder: Path, cases: Sequence[Case], rows: int) -> None:
    """Write the files of each case into a folder of its name."""
    for case in cases:
        (folder / case.name).mkdir()
        for number in range(FILES):
            case.write(folder / case.name / f"{number}{case.ending}", range(number, rows, FILES))


def source_of(case: Case, folder: Path) -> FileSpout:
    """Return the source of a case."""
    return FileSpout(folder / case.name, case.fields, format=case.format, files_per_batch=FILES, settled_s=0)


def topology_of(case: Case, folder: Path) -> Topology:
    """Return the topology of a case."""
    builder = TopologyBuilder("formats")
    builder.set_spout("files", source_of(case, folder))
    sums = {case.summed: "total"} if case.summed else {}
    builder.set_committer_bolt("counts", CountCommitter("counts", [case.key], sums=sums)).shuffle_grouping("files")
    return builder.build()


def planned(case: Case, folder: Path) -> Any:
    """Return the plan of all files as one batch."""
    return plan_of(source_of(case, folder))


def plan_of(source: FileSpout) -> Any:
    """Return the plan of the first batch of a source."""
    coordinator = source.open_coordinator(
        SpoutContext(topology="bench", spout="files", consumed={}, once=True, monotonic=time.monotonic, say=print)
    )
    try:
        while not coordinator.is_ready():
            time.sleep(0.01)
        return coordinator.initialize_transaction(1, None)
    finally:
        coordinator.close()


def counted_bare(spark: Any, case: Case, folder: Path) -> Totals:
    """Count with Spark alone. Every declared column is asked for, since Spark leaves out what nobody needs."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

    frame = case.bare(spark, str(folder / case.name))
    total = F.sum(case.summed) if case.summed else F.lit(0)
    rows = frame.groupBy(case.key).agg(F.count("*"), total, *(F.count(name) for name in frame.columns)).collect()
    return {row[0]: (row[1], int(row[2])) for row in rows}


def measured(spark: Any, folder: Path, cases: Sequence[Case], rows: int) -> list[dict[str, Any]]:
    """Return the figures of each case, each time next to a run of bare Spark."""
    from txtopo.spark.executor import SparkExecutor

    plans = {case.name: planned(case, folder) for case in cases}
    executors = {case.name: SparkExecutor(topology_of(case, folder), b"bench", session=spark) for case in cases}
    for executor in executors.values():
        executor.start()
    best: dict[tuple[str, str, str], float] = {}
    for number in range(ROUNDS):
        for case in cases:
            assignment = Assignment(attempt=TransactionAttempt(1, number), metadata={"files": plans[case.name]})
            expected, bare = timed(partial(counted_bare, spark, case, folder))
            (outcome,), ours = timed(partial(executors[case.name].process, [assignment]))
            check(case, outcome, expected, rows)
            for what, figures in (("bare", bare), ("txtopo", ours)):
                for unit, seconds in figures.items():
                    best[case.name, what, unit] = min(seconds, best.get((case.name, what, unit), float("inf")))
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
    for executor in executors.values():
        executor.close()
    return [
        {
            "case": case.name,
            **{f"{what}_per_s": round(rows / best[case.name, what, "wall"]) for what in ("txtopo", "bare")},
            **{f"{what}_per_cpu_s": round(rows / best[case.name, what, "cpu"]) for what in ("txtopo", "bare")},
            **{
                f"{unit}_ratio": round(best[case.name, "bare", unit] / best[case.name, "txtopo", unit], 3)
                for unit in UNITS
            },
        }
        for case in cases
    ]


def timed(run: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what a function returns, and its seconds by the wall and of the CPU."""
    driver = os.getpid()
    began, used = time.perf_counter(), sum(cpu_s(driver, 0, 0, running()).values())
    found = run()
    return found, {
        "wall": time.perf_counter() - began,
        "cpu": sum(cpu_s(driver, 0, 0, running()).values()) - used,
    }


def check(case: Case, outcome: Any, expected: Totals, rows: int) -> None:
    """Raise RuntimeError if both did not count the same: a figure of a wrong result is worth nothing."""
    if not isinstance(outcome, Processed):
        raise RuntimeError(outcome.failure.message)
    table = outcome.results[0].rows
    counts = map(int, table.column("count").to_pylist())
    sums = map(int, table.column("total").to_pylist()) if case.summed else [0] * table.num_rows
    found = dict(zip(table.column(case.key).to_pylist(), zip(counts, sums, strict=True), strict=True))
    if found != expected or sum(number for number, _ in found.values()) != rows:
        raise RuntimeError(f"{case.name}: the rows are counted differently")


def tell(found: Sequence[dict[str, Any]], rows: int) -> None:
    """Print and keep the figures."""
    print(f"{rows / 1e6:.1f} M rows in {FILES} files, one batch; best of {ROUNDS}; million rows by wall and CPU second")
    print(
        f"{'format':<10}"
        + "".join(f"{f'{what}, {unit}':>14}" for unit in UNITS for what in ("txtopo", "bare", "ratio"))
    )
    for row in found:
        speeds = [
            f"{value:>14.2f}"
            for unit, per in zip(UNITS, ("per_s", "per_cpu_s"), strict=True)
            for value in (row[f"txtopo_{per}"] / 1e6, row[f"bare_{per}"] / 1e6, row[f"{unit}_ratio"])
        ]
        print(f"{row['case']:<10}" + "".join(speeds))
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    (folder / "bench_formats.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
