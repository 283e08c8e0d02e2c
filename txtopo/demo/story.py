"""The demo of flights from start to end: files, three drivers of which two are killed, and the comparison."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from txtopo.audit.run_audit import Range, audit
from txtopo.core.limits import RUN_TXIDS_MAX
from txtopo.demo.drivers import DemoDriver
from txtopo.demo.flights import DAYS, find_flights, write_days
from txtopo.demo.names import APPLICATION, TABLE, TOPOLOGY
from txtopo.demo.recount import count_by_hand
from txtopo.demo.report import Outcome, Takeover, differences, report, spans
from txtopo.demo.stage import DemoError, Program, Stage, perform
from txtopo.demo.watching import Standing, zookeeper_mark
from txtopo.reports.read import reading


def run_demo(*, files: int = DAYS, keep: bool = False, quiet: bool = False) -> int:
    """`txtopo demo`; returns the exit code: 0 if all totals agree and the ledger is right, 1 if not, 130 or 143 if
    interrupted.
    """
    archive = find_flights()

    def play(stage: Stage) -> tuple[str, Sequence[str]]:
        outcome = Demo(stage, files).play(archive)
        return report(outcome), differences(outcome)

    program = Program(application=APPLICATION, topology=TOPOLOGY, run_txids_max=run_txids_max(files))
    return perform(play, program, keep=keep, quiet=quiet)


class Demo:
    """One run of the story."""

    def __init__(self, stage: Stage, batches: int) -> None:
        self._stage = stage
        self._batches = batches
        self._run_txids_max = stage.program.run_txids_max
        self._teller = stage.teller
        self._stop = stage.stop
        self._takeovers: list[Takeover] = []
        self._killed = 0
        self._died_at: float | None = None
        self._who, self._is_led = "no driver yet", False
        self._standbys: set[int] = set()

    def play(self, archive: Path) -> Outcome:
        """Run all steps; returns what the report needs."""
        first_kill, second_kill = kills(self._batches)
        self._prepare(archive)
        self._stage.start_driver(f"committed=exit@{first_kill}")
        self._until_led()
        # A standby: if its Spark has started by then, a takeover takes a moment.
        between = second_kill - first_kill
        self._stage.start_driver(f"before_commit=exit@{between + 1}")
        # All batches of the commit run in which a driver dies are committed, or none.
        last = self._until_killed_after_commit(first_kill, first_kill + self._run_txids_max - 1)
        self._until_led()
        self._stage.start_driver()
        self._until_killed_before_commit(last + between - self._run_txids_max + 1, last + between)
        self._until_led()
        self._until_end()
        return self._compare()

    def _prepare(self, archive: Path) -> None:
        self._teller.say(f"starting Postgres and ZooKeeper, writing {self._batches} files, one for each day of flights")
        with ThreadPoolExecutor(1) as threads:
            services = threads.submit(self._stage.open)
            rows = write_days(archive, self._stage.places.files, self._batches, self._stop.check)
            services.result()
        self._stop.check()
        self._teller.say(f"{rows:,} departures from New York in {self._batches} files; one file is one batch")

    @property
    def _leader(self) -> DemoDriver:
        """The oldest driver that was not killed."""
        return self._stage.drivers[self._killed]

    def _until_led(self) -> None:
        """Wait until the oldest living driver has the lead."""
        driver, before = self._leader, self._takeovers[-1].epoch if self._takeovers else 0
        standing = self._until(
            lambda now: now.pid == driver.pid and now.epoch > before, f"{driver.name} to take the lead"
        )
        seconds = None if self._died_at is None else time.monotonic() - self._died_at
        self._takeovers.append(Takeover(driver=f"driver {driver.number}", epoch=standing.epoch, seconds=seconds))
        self._who, self._is_led = f"driver {driver.number} leads", True
        after = f", {seconds:.1f} s later" if seconds is not None else ""
        going_on = f"; continues after batch {standing.committed}" if standing.committed else ""
        self._teller.say(f"{driver.name} leads with epoch {standing.epoch}{after}{going_on}")

    def _until_killed_after_commit(self, at_least: int, at_most: int) -> int:
        """Return the last batch that it committed."""
        driver, txid = self._until_crash(at_least, at_most)
        self._mourn(f"kill -9 of {driver.name} between COMMIT of batch {txid} and the ZooKeeper update")
        self._teller.say(
            f"Postgres has batch {txid}, ZooKeeper only knows of {zookeeper_mark(self._stage.zookeeper, TOPOLOGY)}"
        )
        driver.bury()
        return txid

    def _until_killed_before_commit(self, at_least: int, at_most: int) -> None:
        driver, txid = self._until_crash(at_least, at_most)
        begun = spans(self._standing().running)
        self._mourn(f"kill -9 of {driver.name} before COMMIT of batch {txid + 1}, with {begun} begun")
        driver.bury()

    def _until_crash(self, at_least: int, at_most: int) -> tuple[DemoDriver, int]:
        """Wait until the failpoint has killed the leader; returns it and the number of batches committed."""
        driver = self._leader
        self._until(lambda _: driver.exit_code is not None, f"the death of {driver.name}", may_end=driver)
        committed = self._standing().committed
        if driver.exit_code != -signal.SIGKILL or not at_least <= committed <= at_most:
            raise DemoError(
                f"{driver.name} ended with exit code {driver.exit_code} after batch {committed}:{driver.tail()}"
            )
        return driver, committed

    def _mourn(self, sentence: str) -> None:
        self._died_at = time.monotonic()
        self._killed += 1
        self._who, self._is_led = "nobody leads", False
        self._teller.say(f"{sentence}; {self._standing().committed} of {self._batches} batches are committed")

    def _until_end(self) -> None:
        driver = self._leader
        self._until(lambda _: driver.exit_code is not None, f"the end of {driver.name}", may_end=driver)
        if driver.exit_code != 0:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        self._teller.say(f"{driver.name} has come to the end of the input")

    def _until(self, holds: Callable[[Standing], bool], what: str, *, may_end: DemoDriver | None = None) -> Standing:
        """Show the progress until `holds`. Raises DemoError if a driver ends that should not, or if nothing happens for
        STUCK_S.
        """

        def look(standing: Standing) -> None:
            for driver in self._stage.drivers[self._killed :]:
                self._look_at(driver, may_end)
            self._teller.progress(standing if self._is_led else replace(standing, running=()), self._batches, self._who)

        return self._stage.until(holds, what, self._leader, look)

    def _look_at(self, driver: DemoDriver, may_end: DemoDriver | None) -> None:
        if driver is not may_end and driver.exit_code is not None:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        if driver.number not in self._standbys and driver.says("waiting as standby"):
            self._standbys.add(driver.number)
            self._teller.say(f"{driver.name} is ready and waits as standby")

    def _standing(self) -> Standing:
        return self._stage.watcher.standing()

    def _compare(self) -> Outcome:
        self._teller.say("counting all files again with plain csv")
        recounted = count_by_hand(self._stage.places.files, self._stop.check)
        self._teller.say("txtopo audit")
        with reading(self._stage.dsn) as connection:
            audited = audit(connection, TOPOLOGY, Range(), recount=True, say=lambda _: self._stop.check())
        watcher = self._stage.watcher
        return Outcome(
            totals=watcher.totals(TABLE, ("carrier", "origin"), ("flights", "distance")),
            recounted=recounted,
            ledger=watcher.ledger(),
            batches=self._batches,
            takeovers=self._takeovers,
            drivers=self._killed + 1,
            seconds=self._teller.elapsed_s,
            audited=audited,
        )


def kills(batches: int) -> tuple[int, int]:
    """Return after how many committed batches the first and the second driver die: a third and two thirds of all."""
    return batches // 3, 2 * batches // 3


def run_txids_max(batches: int) -> int:
    """Return how many batches a driver may commit together, so that each of the three drivers has some to commit."""
    return max(1, min(RUN_TXIDS_MAX, batches // 12))
