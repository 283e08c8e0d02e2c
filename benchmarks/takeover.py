"""How long a takeover takes: `python -m benchmarks.takeover` kills leaders with SIGKILL while batches are in
processing, and prints what the standby did until its first COMMIT. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.inputs import Counts, count_file, difference, total
from benchmarks.led import WrongResult, read_table, table_of
from benchmarks.report import percentile
from benchmarks.takeover_driver import BEGUN, READ, STANDING, DriverJob
from txtopo.committers.postgres.migrate import migrate
from txtopo.coordinators.election import read_queue
from txtopo.coordinators.paths import TopologyPaths
from txtopo.coordinators.zookeeper_session import open_session
from txtopo.core.connect_strings import zookeeper_address
from txtopo.core.crash_points import CrashPoint
from txtopo.core.limits import ZOOKEEPER_SESSION_S
from txtopo.local.services import LocalServices, ServicesState

ROOT = Path(__file__).resolve().parents[1]
FILES, ROWS = 48, 200
"""New files before each kill, more than one job processes, and their rows."""
WAIT_S = 180.0
GONE = "gone"
"""The place of the killed leader in the queue is removed."""
ATTEMPT, PROCESSED, COMMITTED = CrashPoint.ATTEMPT_BEGUN.value, CrashPoint.PROCESSED.value, CrashPoint.COMMITTED.value
STEPS = (
    ("wait", GONE),
    ("lead", CrashPoint.ELECTED.value),
    ("fence", CrashPoint.FENCE_CLAIMED.value),
    ("epoch", CrashPoint.EPOCH_WRITTEN.value),
    ("read", READ),
    ("begin", BEGUN),
    ("first attempt", ATTEMPT),
    ("processing", PROCESSED),
    ("first commit", COMMITTED),
)
"""Each step and what ends it; it begins where the one before ends, the first one at the kill."""
SAME, ELSEWHERE = "same machine", "another machine"


class TellingProcess:
    """A driver process, and the steps that it has told."""

    def __init__(self, job: DriverJob, number: int) -> None:
        self._log = (Path(job.scratch) / f"driver_{number}.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.takeover_driver", job.as_json()],
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self.told: list[tuple[str, float]] = []
        self._condition = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, _, at = line.decode("ascii", "replace").rpartition(" ")
            if what:
                with self._condition:
                    self.told.append((what, float(at)))
                    self._condition.notify_all()

    def wait_for(self, what: str, since: float = 0.0) -> float:
        """Return the time of the first such step after `since`. Raises WrongResult if it does not come."""

        def found() -> list[float]:
            return [at for said, at in list(self.told) if said == what and at > since]

        with self._condition:
            if not self._condition.wait_for(lambda: found() or self.process.poll() is not None, WAIT_S) or not found():
                raise WrongResult(f"a driver did not reach {what!r}; its exit code is {self.process.poll()}")
            return found()[0]

    def kill(self) -> float:
        """SIGKILL to the driver alone, and wait for its end as a supervisor does; returns the time of the signal."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at

    def close(self) -> None:
        """End it with everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(5)
        self._log.close()


class World:
    """The stores, the input of one topology, and its drivers."""

    def __init__(self, folder: Path, stores: ServicesState, session_s: float, *, elsewhere: bool) -> None:
        name = "elsewhere" if elsewhere else "here"
        self._folder = folder / name
        (self._folder / "files").mkdir(parents=True)
        self.job = DriverJob(
            topology=name,
            inputs=str(self._folder / "files"),
            scratch=str(self._folder),
            dsn=stores.dsn,
            zookeeper=zookeeper_address(stores.zookeeper),
            session_s=session_s,
            elsewhere=elsewhere,
        )
        self._drivers: list[TellingProcess] = []
        self._written = 0
        self._files: list[Counts] = []

    def start(self) -> TellingProcess:
        """Start a driver."""
        self._drivers.append(TellingProcess(self.job, len(self._drivers)))
        return self._drivers[-1]

    def feed(self) -> None:
        """Write new files; each appears complete."""
        text = "carrier,origin,distance\n" + "".join(f"C{row % 7},O{row % 3},{row}\n" for row in range(ROWS))
        for _ in range(FILES):
            self._written += 1
            path = self._folder / "files" / f"{self._written:06}.csv"
            hidden = path.with_name(f"_{path.name}")
            hidden.write_text(text, encoding="utf-8")
            if not self._files:
                self._files.append(count_file(hidden))
            hidden.rename(path)

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[float]]:
        """Note when the place of the leader in the queue is removed."""
        gone: list[float] = []
        paths = TopologyPaths(self.job.topology)
        session = open_session(self.job.zookeeper, 60.0)
        try:
            session.watch(f"{paths.leader}/{read_queue(session, paths)[0]}", lambda: gone.append(time.monotonic()))
            yield gone
        finally:
            session.close()

    def wrong(self) -> str | None:
        """Wait until everything is counted; return what is wrong with the table."""
        expected = total(self._files * self._written)
        deadline = time.monotonic() + WAIT_S
        while True:
            query = f"select carrier, origin, flights, miles from {table_of(self.job.topology)}"
            wrong = difference(read_table(self.job.dsn, query), expected)
            if wrong is None or time.monotonic() > deadline:
                return wrong
            time.sleep(0.1)

    def close(self) -> None:
        """End all drivers."""
        for driver in self._drivers:
            driver.close()


def kills(world: World, count: int) -> Iterator[dict[str, Any]]:
    """Yield the steps of each takeover in milliseconds. Raises WrongResult if the counts are wrong in the end."""
    leader = world.start()
    leader.wait_for(BEGUN)
    for _ in range(count):
        standby = world.start()
        standby.wait_for(STANDING)
        with world.watched() as gone:
            fed_at = time.monotonic()
            world.feed()
            leader.wait_for(ATTEMPT, fed_at)
            killed_at = leader.kill()
            standby.wait_for(COMMITTED, killed_at)
        leader.close()
        yield steps_ms(killed_at, gone, leader.told, standby.told)
        leader = standby
    if wrong := world.wrong():
        raise WrongResult(wrong)


def steps_ms(
    killed_at: float, gone: Sequence[float], before: Sequence[tuple[str, float]], after: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    """Return the milliseconds of each step and of all, and whether an attempt was in processing at the kill."""
    first: dict[str, float] = {}
    for what, at in after:
        if at > killed_at:
            first.setdefault(what, at)
    first[GONE] = min([*gone, first[CrashPoint.ELECTED.value]])  # this process may learn of it later than the standby
    found: dict[str, Any] = {}
    begin = killed_at
    for name, end in STEPS:
        found[name] = (first[end] - begin) * 1000
        begin = first[end]
    last = next((what for what, _ in reversed(before) if what in (ATTEMPT, PROCESSED)), None)
    return {**found, "all": (begin - killed_at) * 1000, "in processing": last == ATTEMPT}


def summary(takeovers: Sequence[dict[str, Any]], session_s: float) -> dict[str, Any]:
    """Return p50 and p99 of takeovers in milliseconds, and p50 of each step."""
    return {
        "kills": len(takeovers),
        "with a batch in processing": sum(one["in processing"] for one in takeovers),
        "session s": session_s,
        "p50 ms": round(percentile([one["all"] for one in takeovers], 50)),
        "p99 ms": round(percentile([one["all"] for one in takeovers], 99)),
        "p50 ms of steps": {name: round(percentile([one[name] for one in takeovers], 50), 1) for name, _ in STEPS},
    }


def main(arguments: Sequence[str]) -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=12, help="leaders killed on the machine of the standby")
    parser.add_argument("--elsewhere", type=int, default=6, help="leaders killed as if on another machine")
    parser.add_argument("--session-s", type=float, default=ZOOKEEPER_SESSION_S, help="ZooKeeper session in seconds")
    parser.add_argument("--false-alarms", action="store_true", help="only: which pauses cost a session of 4, 6, 10 s")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started must end
    with tempfile.TemporaryDirectory(prefix="txtopo_takeover_") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres has its own account where the caller is root.
        with LocalServices(folder / "services") as services:
            if asked.false_alarms:
                from benchmarks.false_alarms import measured

                print(json.dumps(measured(services.state.zookeeper)))
                return 0
            migrate(services.state.dsn)
            print(json.dumps(dict(_kinds(folder, services.state, asked))))
    return 0


def _kinds(folder: Path, stores: ServicesState, asked: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, count in ((SAME, asked.kills), (ELSEWHERE, asked.elsewhere)):
        if not count:
            continue
        world = World(folder, stores, asked.session_s, elsewhere=kind == ELSEWHERE)
        found = []
        try:
            for one in kills(world, count):
                found.append(one)
                words = ", ".join(f"{step} {one[step]:.0f}" for step, _ in STEPS)
                print(f"{time.strftime('%H:%M:%S')} {kind}: {one['all']:.0f} ms: {words}", file=sys.stderr, flush=True)
        finally:
            world.close()
        yield kind, summary(found, asked.session_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
