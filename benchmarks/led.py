"""Runs topologies as `txtopo run --once` does, on one Spark session, and notes when each had the lead and when its last
COMMIT was known.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2

from benchmarks.cases import Job
from benchmarks.inputs import Counts, difference
from txtopo import CountCommitter, FileSpout, Topology, TopologyBuilder
from txtopo.app import Driver, connect_strings, result_settings
from txtopo.client import connect
from txtopo.config import Settings, load_settings
from txtopo.core.events import End
from txtopo.driver.console import Reporter
from txtopo.driver.load_application import code_hash
from txtopo.driver.signals import StopSignals
from txtopo.ports import Executor

FIELDS = "carrier string, origin string, distance int"


class WrongResult(Exception):
    """A system under test counted wrong, lost batches, or did not do what is measured."""


@dataclass
class TimedDriver(Driver):
    """A driver that notes the times of its first lead and of every COMMIT that it knew of."""

    led_at: float | None = None
    known: list[tuple[float, int]] = field(default_factory=list)
    """(monotonic time in seconds, last txid), each time it has grown."""

    def _run_lead(self, *arguments: Any) -> End:
        self.led_at = self.led_at or time.monotonic()
        return super()._run_lead(*arguments)

    def _watch(self, state: Any) -> None:
        if state.last_txid > (self.known[-1][1] if self.known else 0):
            self.known.append((time.monotonic(), state.last_txid))
        super()._watch(state)


@dataclass(frozen=True, slots=True)
class Led:
    """A finished run."""

    led_at: float
    known: Sequence[tuple[float, int]]

    @property
    def wall_s(self) -> float:
        """Seconds from the lead to the last COMMIT."""
        return self.known[-1][0] - self.led_at

    @property
    def batches(self) -> int:
        """Number of committed batches."""
        return self.known[-1][1]


def settings_of(job: Job, **flags: object) -> Settings:
    """Return the settings of a run to the end of its input, on the stores of this benchmark."""
    given = {"dsn": job.dsn, "zookeeper": job.zookeeper, "once": True, "quiet": True, "log_folder": str(job.folder)}
    return load_settings({**given, **flags}, cwd=job.folder, environment={}, target=None)


def topology_of(name: str, folder: Path, files_per_batch: int) -> Topology:
    """Count and sum by carrier and origin, straight from the files."""
    builder = TopologyBuilder(name)
    builder.set_spout("files", FileSpout(str(folder), FIELDS, files_per_batch=files_per_batch, settled_s=0))
    counts = CountCommitter(table_of(name), ["carrier", "origin"], count="flights", sums={"distance": "miles"})
    builder.set_committer_bolt("counts", counts, inputs="files")
    return builder.build()


def table_of(name: str) -> str:
    """Return the table of a topology."""
    return f"{name}_counts"


def hash_of(topology: Topology, settings: Settings) -> bytes:
    """Return the hash of its code, which the executor and the driver must agree on."""
    return code_hash(topology, settings.py_files, result_settings())


def lead(topology: Topology, settings: Settings, executor: Executor) -> Led:
    """Run a topology to its end. Raises WrongResult if it ends in another way."""
    reporter = Reporter(topology.name, quiet=True)
    with StopSignals() as signals:
        connected = connect_strings(settings, reporter)
        driver = TimedDriver(topology, "bench", connected, hash_of(topology, settings), reporter, signals)
        end = driver.run(executor)
    if end.kind != "finished" or driver.led_at is None or not driver.known:
        raise WrongResult(f"{topology.name} ended as {end.kind}: {end.reason}")
    return Led(driver.led_at, driver.known)


def check_run(job: Job, name: str, led: Led, batches: int, expected: Counts) -> None:
    """Compare the table with the right counts, and the number of batches with that of the input. Raises WrongResult,
    also if commits fell back from runs to one by one.
    """
    if led.batches != batches:
        raise WrongResult(f"{name} committed {led.batches} batches instead of {batches}")
    wrong = difference(read_table(job.dsn, f"select carrier, origin, flights, miles from {table_of(name)}"), expected)
    if wrong:
        raise WrongResult(f"{name}: {wrong}")
    if failed := failed_runs(job, name):
        raise WrongResult(f"{name}: {failed} runs of commits failed and were committed one by one")


def failed_runs(job: Job, name: str) -> int:
    """Return how many runs of commits failed and were committed one by one, as the status of the topology says."""
    with connect(dsn=job.dsn) as client:
        return client.status(name).failed_runs_total


def read_table(dsn: str, query: str) -> Counts:
    """Return the rows (carrier, origin, flights, miles) of a query."""
    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return {(carrier, origin): (int(n), int(miles)) for carrier, origin, n, miles in cursor.fetchall()}
    finally:
        connection.close()
