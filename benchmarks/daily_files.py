"""What a batch costs: the same daily files in bare PySpark, through the executor alone, and through the whole of
txtopo, each with a Spark job a file and in waves, in one run.

    make bench                        # or: python benchmarks/daily_files.py [FILES]

Prints milliseconds a batch and the ratio to bare PySpark with four jobs in flight, and writes
build/bench_daily_files.json. Only ratios of one run mean anything; leave the machine alone meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from txtopo import CountCommitter, FileSpout, Topology, TopologyBuilder
from txtopo.app import Driver, connect_strings
from txtopo.config import Settings, load_settings
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.demo.flights import find_flights, write_days
from txtopo.driver.console import Reporter
from txtopo.driver.signals import StopSignals
from txtopo.local.java import java_environment
from txtopo.local.services import LocalServices
from txtopo.ports import Assignment
from txtopo.topology.components import SpoutContext

FIELDS = "carrier string, origin string, distance int"
IN_FLIGHT = 4
ONE_BY_ONE = "whole txtopo, a job a file"
IN_WAVES = "whole txtopo, in waves"


def main() -> None:
    """Write the files, start everything once, measure each way twice and keep the better."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 365
    with (
        tempfile.TemporaryDirectory(prefix="txtopo_bench_") as folder,
        LocalServices(Path(folder) / "services") as services,
    ):
        days = Path(folder) / "days"
        days.mkdir()
        write_days(find_flights(), days, count)
        os.environ.update(java_environment())
        settings = load_settings(
            {"dsn": services.state.dsn, "zookeeper": services.state.zookeeper, "once": True, "quiet": True},
            cwd=Path(folder),
            environment={},
            target=None,
        )
        measured = measure(sorted(days.glob("*.csv")), settings, Path(folder))
    tell(measured, count)


def measure(files: Sequence[Path], settings: Settings, folder: Path) -> dict[str, float]:
    """Seconds for all files, by case."""
    from txtopo.committers.postgres.migrate import migrate
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

    migrate(str(settings.dsn))
    spark = start_session(SessionOptions(app_name="bench", log_folder=folder / "logs"))
    try:
        topologies = [topology(files[0].parent, f"flights{turn}") for turn in (1, 2, 3, 4)]
        executor = SparkExecutor(topologies[0], b"bench", session=spark)
        executor.start()
        assignments = plan(topologies[0])
        cases: dict[str, Callable[[], object]] = {
            "bare PySpark, one after the other": lambda: [bare(spark, file) for file in files],
            "bare PySpark, four in flight": lambda: in_flight(lambda file: bare(spark, file), files),
            "executor alone, four in flight": lambda: in_flight(lambda one: processed(executor, [one]), assignments),
            "executor alone, in waves of 64": lambda: [
                processed(executor, assignments[at : at + 64]) for at in range(0, len(assignments), 64)
            ],
        }
        seconds = {name: min(timed(case), timed(case)) for name, case in cases.items()}
        apart = replace(settings, wave_bytes_max=0)
        seconds[ONE_BY_ONE] = min(whole(one, apart, spark) for one in topologies[:2])
        seconds[IN_WAVES] = min(whole(one, settings, spark) for one in topologies[2:])
    finally:
        stop_session()
    return seconds


def topology(folder: Path, name: str) -> Topology:
    """Count and sum by carrier and origin, straight from the files."""
    builder = TopologyBuilder(name)
    builder.set_spout("files", FileSpout(str(folder), FIELDS, settled_s=0))
    counts = CountCommitter(f"{name}_counts", ["carrier", "origin"], sums=["distance"])
    builder.set_committer_bolt("counts", counts, inputs="files")
    return builder.build()


def plan(one: Topology) -> list[Assignment]:
    """Every file as an attempt of its own."""
    spout = one.spouts[0]
    context = SpoutContext(
        topology=one.name, spout=spout.name, consumed={}, once=True, monotonic=time.monotonic, say=print
    )
    coordinator = spout.spout.open_coordinator(context)
    assignments: list[Assignment] = []
    while not coordinator.is_exhausted():
        if coordinator.is_ready():
            txid = len(assignments) + 1
            metadata = coordinator.initialize_transaction(txid, None)
            assignments.append(Assignment(attempt=TransactionAttempt(txid, 0), metadata={spout.name: metadata}))
    coordinator.close()
    return assignments


def bare(spark: Any, file: Path) -> int:
    """What a user writes by hand for one file, without any guarantee."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = (
        spark.read.schema(
            "year int, month int, day int, dep_time string, sched_dep_time int, dep_delay string, arr_time string, "
            "sched_arr_time int, arr_delay string, carrier string, flight int, tailnum string, origin string, dest "
            "string, "
            "air_time string, distance int, hour int, minute int, time_hour string"
        )
        .option("header", True)
        .csv(str(file))
    )
    return len(rows.groupBy("carrier", "origin").agg(F.count("*"), F.sum("distance")).collect())


def processed(executor: Any, wave: Sequence[Assignment]) -> None:
    """Attempts that must end well."""
    for outcome in executor.process(wave):
        if not isinstance(outcome, Processed):
            raise RuntimeError(str(outcome))


def in_flight(work: Callable[[Any], object], items: Sequence[Any]) -> None:
    """Four at a time."""
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(work, items))


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def whole(one: Topology, settings: Settings, spark: Any) -> float:
    """From the first attempt to the last commit, as the ledger has them: everything but the start."""
    import sqlalchemy as sa

    from txtopo.committers.postgres.connect import make_engine
    from txtopo.spark.executor import SparkExecutor

    reporter = Reporter(one.name, quiet=True)
    executor = SparkExecutor(one, b"bench", session=spark)
    executor.start()
    with StopSignals() as signals:
        Driver(one, "bench", connect_strings(settings, reporter), b"bench", reporter, signals).run(executor)
    engine = make_engine(str(settings.dsn), "bench")
    with engine.connect() as connection:
        query = (
            "select extract(epoch from (select max(committed_at) from txtopo.ledger where topology = :t and txid > 0)"
            " - (select min(started_at) from txtopo.attempt where topology = :t))"
        )
        seconds = float(connection.execute(sa.text(query), {"t": one.name}).scalar_one())
    engine.dispose()
    return seconds


def tell(seconds: Mapping[str, float], files: int) -> None:
    """A table, and the same as JSON."""
    base = seconds["bare PySpark, four in flight"]
    rows = [
        {"case": name, "ms_per_batch": round(1000 * value / files, 1), "ratio": round(value / base, 2)}
        for name, value in seconds.items()
    ]
    for row in rows:
        print(f"{row['case']:40} {row['ms_per_batch']:8.1f} ms a batch {row['ratio']:6.2f}")
    print(
        f"in waves {seconds[ONE_BY_ONE] / seconds[IN_WAVES]:.1f} times as fast as a job a file, "
        f"{base / seconds[IN_WAVES]:.1f} times as fast as bare PySpark with four jobs in flight"
    )
    out = Path("build")
    out.mkdir(exist_ok=True)
    (out / "bench_daily_files.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
