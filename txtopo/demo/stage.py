"""What every story of the demo plays on: its folder, its services and its drivers, which are all stopped at the
end.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from txtopo.committers.postgres.migrate import migrate
from txtopo.core.connect_strings import zookeeper_address
from txtopo.demo.drivers import DemoDriver, Places, end_leftovers
from txtopo.demo.stopping import InterruptedDemo, Stop
from txtopo.demo.telling import Storyteller
from txtopo.demo.watching import Standing, Watcher
from txtopo.errors import TxtopoError, unreachable
from txtopo.local.services import LocalServices

POLL_S = 0.05
STUCK_S = 150.0
"""Seconds without any progress, start of Spark included, after which the demo gives up."""


class DemoError(TxtopoError):
    """A driver of the demo behaved in an unexpected way; the message contains the end of its log."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the drivers of a story run."""

    application: str
    """As `txtopo run` takes it."""
    topology: str
    run_txids_max: int
    """Number of batches that a driver may commit together."""


class Stage:
    """One run of a story. `close` must be called in any case."""

    def __init__(self, places: Places, program: Program, teller: Storyteller, stop: Stop) -> None:
        self.places = places
        self.program = program
        self.teller = teller
        self.stop = stop
        self.drivers: list[DemoDriver] = []
        self.dsn = self.zookeeper = ""
        self.services = LocalServices(places.services)
        self._watcher: Watcher | None = None

    @property
    def watcher(self) -> Watcher:
        """What reads Postgres, once `open` has returned."""
        return self._watcher or unreachable("the services do not run")

    def open(self) -> None:
        """Start the services and make the schema."""
        state = self.services.start()
        self.dsn, self.zookeeper = state.dsn, zookeeper_address(state.zookeeper)
        migrate(self.dsn)
        self._watcher = Watcher(self.dsn, self.program.topology)

    def start_driver(self, failpoints: str = "", command: Sequence[str] = ()) -> DemoDriver:
        """Start `txtopo run --once`, or another command that runs the topology; returns without waiting for it."""
        self.stop.check()
        number = len(self.drivers) + 1
        places, program = self.places, self.program
        run = ("run", program.application, "--once", "--log-folder", str(places.logs / f"driver-{number}"))
        driver = DemoDriver(number, places, command or run, self.dsn, self.zookeeper, program.run_txids_max, failpoints)
        self.drivers.append(driver)
        self.teller.say(f"{driver.name} starts with its own Spark")
        return driver

    def until(
        self, holds: Callable[[Standing], bool], what: str, leader: DemoDriver, look: Callable[[Standing], None]
    ) -> Standing:
        """Wait until `holds`; `look` shows the progress meanwhile and may raise. Raises DemoError if nothing happens
        for STUCK_S.
        """
        standing = self.watcher.standing()
        committed, deadline = standing.committed, time.monotonic() + STUCK_S
        while not holds(standing):
            if standing.committed > committed:
                committed, deadline = standing.committed, time.monotonic() + STUCK_S
            if time.monotonic() > deadline:
                raise DemoError(f"waited {STUCK_S:.0f} s in vain for {what}:{leader.tail()}")
            look(standing)
            self.stop.wait(POLL_S)
            standing = self.watcher.standing()
        return standing

    def close(self, *, keep: bool) -> None:
        """Stop everything, whatever state it is in, and remove the folder unless it is kept. After a failure the
        remaining steps still run.
        """
        with ExitStack() as last_first:
            if not keep:
                last_first.callback(shutil.rmtree, self.places.work, ignore_errors=True)
            last_first.callback(shutil.rmtree, self.places.temporary, ignore_errors=True)
            last_first.callback(self.services.stop if keep else self.services.remove)
            last_first.callback(end_leftovers, self.places)
            for driver in self.drivers:
                last_first.callback(driver.close)
            if self._watcher is not None:
                last_first.callback(self._watcher.close)


def perform(play: Callable[[Stage], tuple[str, Sequence[str]]], program: Program, *, keep: bool, quiet: bool) -> int:
    """Play a story to its end. `play` returns its report and what is wrong. Prints the report; returns the exit code: 0
    if nothing is wrong, 1 if something is, 130 or 143 if interrupted.
    """
    teller = Storyteller(quiet=quiet)
    with Stop() as stop:
        stage = Stage(_make_places(), program, teller, stop)
        try:
            report, wrong = play(stage)
            print(report, flush=True)
            return 1 if wrong else 0
        except InterruptedDemo as interrupted:
            teller.say(f"{interrupted}: stopping everything")
            return interrupted.exit_code
        finally:
            teller.clear()
            stage.close(keep=keep)
            _tell_end(stage.places, program.topology, teller, keep)


def _make_places() -> Places:
    places = Places(work=Path(tempfile.mkdtemp(prefix="txtopo-demo-")).resolve())
    # Other users may enter, but not list the folder: if the demo runs as root, Postgres runs under another account and
    # must reach its own folder.
    places.work.chmod(0o711)
    for folder in (places.logs, places.temporary):
        folder.mkdir()
    return places


def _tell_end(places: Places, topology: str, teller: Storyteller, keep: bool) -> None:
    if not keep:
        teller.say("everything is stopped and removed")
        return
    teller.say(f"everything is stopped; kept in {places.work}. To look at it:")
    for line in (
        f"export TXTOPO_HOME={places.work}",
        "txtopo dev up",
        f"txtopo batches {topology}",
        f"txtopo audit {topology}",
        f"txtopo dev down && rm -r {places.work}",
    ):
        teller.say(f"  {line}")
