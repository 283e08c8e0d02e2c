"""The demo of access logs from start to end: a driver halts at a bug, the bug is fixed, `txtopo retry`, and the next
driver continues with the same input.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from txtopo.audit.run_audit import Range, audit
from txtopo.demo.drivers import DemoDriver
from txtopo.demo.logs.lines import HOURS, TLS_HOUR, write_hours
from txtopo.demo.logs.recount import count_requests
from txtopo.demo.report import Outcome, Takeover, TotalNames, differences, report
from txtopo.demo.stage import DemoError, Program, Stage, perform
from txtopo.demo.watching import Standing
from txtopo.reports.read import reading

TOPOLOGY = "web"
TABLE = "requests_by_section"
HALTED = 1
"""Exit code of a driver whose topology halted."""
BUG = '        section = tup["path"].split("/")[1]'
FIX = '        section = (tup["path"] or "/-").split("/")[1]'
AT_FIRST = HOURS - 4
"""Number of files that are there when the first driver starts; the others come while the topology is halted."""


def run_logs(*, keep: bool = False, quiet: bool = False) -> int:
    """`txtopo demo logs`; returns the exit code: 0 if all totals agree and the ledger is right, 1 if not, 130 or 143 if
    interrupted.
    """

    def play(stage: Stage) -> tuple[str, Sequence[str]]:
        outcome = LogsDemo(stage).play()
        return report(outcome), differences(outcome)

    program = Program(application="web.py:topology", topology=TOPOLOGY, run_txids_max=HOURS)
    return perform(play, program, keep=keep, quiet=quiet)


class LogsDemo:
    """One run of the story."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._teller = stage.teller
        self._takeovers: list[Takeover] = []
        self._batches = AT_FIRST
        self._web = stage.places.work / "web.py"

    def play(self) -> Outcome:
        """Run all steps; returns what the report needs."""
        self._prepare()
        self._run_until_halted()
        self._deliver_more()
        self._fix()
        self._order_retry()
        self._run_to_the_end()
        return self._compare()

    def _prepare(self) -> None:
        stage = self._stage
        self._teller.say(f"starting Postgres and ZooKeeper, writing {AT_FIRST} hours of access logs, gzip files")
        self._web.write_text(Path(__file__).with_name("web.py").read_text(encoding="utf-8"), encoding="utf-8")
        with ThreadPoolExecutor(1) as threads:
            services = threads.submit(stage.open)
            lines = write_hours(stage.places.files, range(AT_FIRST), stage.stop.check)
            services.result()
        stage.stop.check()
        self._teller.say(f"{lines:,} lines in {AT_FIRST} files; one file is one batch")

    def _run_until_halted(self) -> None:
        driver = self._run()
        if driver.exit_code != HALTED:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        committed = self._stage.watcher.standing().committed
        self._teller.say(f"{driver.name} has halted; batches 1 to {committed} are committed, nothing after them:")
        for line in driver.lines("txtopo: "):
            self._teller.say(f"    {line}")
        if committed != TLS_HOUR:
            raise DemoError(f"{committed} batches are committed, expected {TLS_HOUR}:{driver.tail()}")

    def _deliver_more(self) -> None:
        stage = self._stage
        lines = write_hours(stage.places.files, range(AT_FIRST, HOURS), stage.stop.check)
        self._batches = HOURS
        self._teller.say(f"meanwhile {HOURS - AT_FIRST} more files arrive, with {lines:,} lines")

    def _fix(self) -> None:
        text = self._web.read_text(encoding="utf-8")
        if text.count(BUG) != 1:
            raise DemoError(f"{self._web} does not have the line with the bug once")
        self._web.write_text(text.replace(BUG, FIX), encoding="utf-8")
        self._teller.say("the fix, in web.py:")
        self._teller.say(f"    - {BUG.strip()}")
        self._teller.say(f"    + {FIX.strip()}")

    def _order_retry(self) -> None:
        self._teller.say(f"$ txtopo retry {TOPOLOGY}")
        driver = self._run("retry", TOPOLOGY)
        if driver.exit_code:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        for line in driver.lines(f"retry of {TOPOLOGY}: "):
            self._teller.say(f"    {line}")

    def _run_to_the_end(self) -> None:
        driver = self._run()
        if driver.exit_code:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        self._teller.say(f"{driver.name} has come to the end of the input")

    def _run(self, *command: str) -> DemoDriver:
        """Start a driver and wait until it has ended."""
        began, before = time.monotonic(), self._takeovers[-1].epoch if self._takeovers else 0
        driver = self._stage.start_driver(command=command)

        def look(standing: Standing) -> None:
            if standing.epoch > before and standing.pid == driver.pid:
                self._lead(driver, standing, time.monotonic() - began)
                self._teller.progress(standing, self._batches, f"driver {driver.number} leads")

        self._stage.until(lambda _: driver.exit_code is not None, f"the end of {driver.name}", driver, look)
        return driver

    def _lead(self, driver: DemoDriver, standing: Standing, seconds: float) -> None:
        if self._takeovers and self._takeovers[-1].epoch == standing.epoch:
            return
        self._takeovers.append(Takeover(driver=f"driver {driver.number}", epoch=standing.epoch, seconds=None))
        self._teller.say(f"{driver.name} leads with epoch {standing.epoch}, {seconds:.1f} s after its start")

    def _compare(self) -> Outcome:
        stage = self._stage
        self._teller.say("counting all files again with plain gzip and re")
        recounted, rejected = count_requests(stage.places.files, stage.stop.check)
        self._teller.say("txtopo audit")
        with reading(stage.dsn) as connection:
            audited = audit(connection, TOPOLOGY, Range(), recount=True, say=lambda _: stage.stop.check())
        return Outcome(
            totals=stage.watcher.totals(TABLE, ("section", "status"), ("requests", "bytes")),
            recounted=recounted,
            rejected=rejected,
            columns=TotalNames(keys=("section", "status"), rows="requests", amount="bytes", by="re"),
            ledger=stage.watcher.ledger(),
            batches=HOURS,
            takeovers=self._takeovers,
            drivers=3,
            seconds=self._teller.elapsed_s,
            audited=audited,
        )
