"""A driver that tells its steps on stdout, for benchmarks/takeover.py: `python -m benchmarks.takeover_driver JOB`."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.led import hash_of, topology_of
from txtopo.app import Driver, connect_strings, spark_executor
from txtopo.config import load_settings
from txtopo.core.crash_points import CrashPoint, listen
from txtopo.core.events import End
from txtopo.driver.console import Reporter
from txtopo.driver.signals import StopSignals

STANDING, READ, BEGUN = "standing", "read", "begun"
"""Waits in the queue; has read what both stores hold, under the new epoch; is ready for its first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverJob:
    """What a driver is started with."""

    topology: str
    inputs: str
    scratch: str
    dsn: str
    zookeeper: str
    session_s: float
    elsewhere: bool
    """True: it does not say where its process runs, as if it were on another machine, so a standby waits for its
    session.
    """

    def as_json(self) -> str:
        """Return the text for the command line."""
        return json.dumps(asdict(self))


def tell(what: str) -> None:
    """Write a step and its time to stdout, in one piece. The clock is the same for all processes of a machine."""
    os.write(1, f"{what} {time.monotonic():.6f}\n".encode())


@dataclass
class TellingDriver(Driver):
    """Tells when it waits in the queue, when it has taken the lead, and when it begins."""

    _untold: set[str] = field(default_factory=set)

    def _wait_for_turn(self, *arguments: Any) -> bool:
        tell(STANDING)
        return super()._wait_for_turn(*arguments)

    def _run_lead(self, *arguments: Any) -> End:
        tell(READ)
        self._untold.add(BEGUN)
        return super()._run_lead(*arguments)

    def _watch(self, state: Any) -> None:
        if BEGUN in self._untold:
            self._untold.discard(BEGUN)
            tell(BEGUN)
        super()._watch(state)


def main(text: str) -> None:
    """Drive the topology until a signal."""
    job = DriverJob(**json.loads(text))
    given = {"dsn": job.dsn, "zookeeper": job.zookeeper, "zookeeper_session_s": job.session_s}
    more = {"log_folder": job.scratch, "quiet": True}
    settings = load_settings({**given, **more}, cwd=Path(job.scratch), environment={}, target=None)
    topology = topology_of(job.topology, Path(job.inputs), 1)
    reporter = Reporter(topology.name, quiet=True)

    def reached(point: CrashPoint, txid: int | None) -> None:
        tell(point.value)

    listen(reached)
    with StopSignals() as signals:
        connected = connect_strings(settings, reporter)
        digest = hash_of(topology, connected)
        driver = TellingDriver(topology, "bench", connected, digest, reporter, signals, _is_doubted=job.elsewhere)
        executor = spark_executor(topology, digest, connected)
        try:
            executor.start()
            driver.run(executor)
        finally:
            with signals.call(lambda: None):
                executor.close()
                reporter.close()


if __name__ == "__main__":
    main(sys.argv[1])
