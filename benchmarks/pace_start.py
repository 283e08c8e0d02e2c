"""A separate process for `benchmarks.pace`: a leader starts over a long history and finds nothing new, then its source
is checked again and again. Writes a line of JSON for each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg2
from sqlalchemy import Engine, event

from benchmarks.led import TimedDriver, WrongResult, hash_of, topology_of
from benchmarks.processes import peak_memory_mib
from benchmarks.run_protocol import Recorder
from txtopo.app import connect_strings
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.config import load_settings
from txtopo.core.events import End
from txtopo.driver.console import Reporter
from txtopo.driver.signals import StopSignals
from txtopo.driver.system_clock import SystemClock
from txtopo.topology.components import SpoutContext
from txtopo.topology.consumed_inputs import ConsumedInputs

NAME = "pace"
CHECKS = 3
ROWS = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint from pg_stat_user_tables"


class LaterClock(SystemClock):
    """A clock that can be put forward, past the pause between two checks of a large folder."""

    later_s = 0.0

    def monotonic(self) -> float:
        """Return seconds."""
        return super().monotonic() + self.later_s

    def age_s(self, stamp_s: float) -> float:
        """Return seconds; 0: unknown."""
        age_s = super().age_s(stamp_s)
        return age_s + self.later_s if age_s > 0 else age_s


@dataclass
class Used:
    """Counts what a step uses."""

    dsn: str
    statements: int = 0

    def __post_init__(self) -> None:
        event.listen(Engine, "before_cursor_execute", self._count)

    def _count(self, *_: object) -> None:
        self.statements += 1

    def step(self, name: str, work: Callable[[], object]) -> None:
        """Do a step, and write what it used."""
        statements, cpu_s, wall_s, rows = self.statements, time.process_time(), time.monotonic(), self._rows()
        work()
        row = {
            "step": name,
            "cpu_s": round(time.process_time() - cpu_s, 2),
            "wall_s": round(time.monotonic() - wall_s, 2),
            "statements": self.statements - statements,
            "rows_read": self._rows() - rows,
            "peak_mib": peak_memory_mib(int(Path("/proc/self").resolve().name))["driver"],
        }
        print(json.dumps(row), flush=True)

    def _rows(self) -> int:
        time.sleep(1.1)  # Sessions that are not used report their counts after a second.
        connection = psycopg2.connect(self.dsn)
        try:
            with connection.cursor() as cursor:
                cursor.execute(ROWS)
                return int(cursor.fetchone()[0])
        finally:
            connection.close()


def main(text: str) -> None:
    """Measure the start, and checks of the source."""
    job = json.loads(text)
    used = Used(job["dsn"])
    topology = topology_of(NAME, Path(job["files"]), 10)
    flags = {
        "dsn": job["dsn"],
        "zookeeper": job["zookeeper"],
        "once": True,
        "quiet": True,
        "log_folder": job["scratch"],
    }
    settings = load_settings(flags, cwd=Path(job["scratch"]), environment={}, target=None)
    used.step("nothing", lambda: None)

    def start() -> None:
        reporter = Reporter(topology.name, quiet=True)
        with StopSignals() as signals:
            digest = hash_of(topology, settings)
            driver = TimedDriver(topology, "bench", connect_strings(settings, reporter), digest, reporter, signals)
            end: End = driver.run(Recorder(None, digest, {}))
        if end.kind != "finished" or driver.placed:
            raise WrongResult(f"{topology.name} ended as {end.kind} after {driver.placed} batches: {end.reason}")

    used.step("start of a leader to its end, nothing new", start)
    ledger = PostgresLedger(job["dsn"], NAME)
    (spout,) = topology.spouts
    clock = LaterClock()
    source = spout.spout.open_coordinator(_context(spout.name, ledger, clock))
    for number in range(1, CHECKS + 1):
        clock.later_s += 1e6
        used.step(f"check {number} of the source", lambda: _nothing(source.is_ready()))
    source.close()
    ledger.close()


def _nothing(is_ready: bool) -> None:
    if is_ready:
        raise WrongResult("a counted file is input again")


def _context(spout: str, ledger: PostgresLedger, clock: LaterClock) -> SpoutContext:
    reads: list[Any] = [ledger.consumed, ledger.consumed_after, ledger.not_consumed]
    among, after, new_among = (partial(read, spout) for read in reads)
    consumed = ConsumedInputs(among, after, {}, new_among)
    return SpoutContext(
        topology=NAME,
        spout=spout,
        consumed=consumed,
        once=False,
        monotonic=clock.monotonic,
        say=lambda words: None,
        previous=None,
        config={},
        recent=lambda: iter(()),
        age_s=clock.age_s,
    )


if __name__ == "__main__":
    main(sys.argv[1])
