"""What stories have in common in which a bug stops the topology: it is fixed, and `txtopo retry` replays its batch."""

from __future__ import annotations

import time
from pathlib import Path

from txtopo.demo.drivers import DemoDriver
from txtopo.demo.report import Takeover
from txtopo.demo.stage import DemoError, Stage
from txtopo.demo.watching import Standing

HALTED = 1
"""Exit code of a driver whose topology halted."""


class HaltingDemo:
    """The steps of such a story."""

    def __init__(self, stage: Stage, program: Path, *, batches: int, bug: str, fix: str) -> None:
        """`program` is copied into the demo's folder; it has the line `bug` once. `batches` are there at first."""
        self._stage = stage
        self._teller = stage.teller
        self._takeovers: list[Takeover] = []
        self._batches = batches
        self._original = program
        self._program = stage.places.work / program.name
        self._bug, self._fixed = bug, fix

    def _copy_program(self) -> None:
        self._program.write_text(self._original.read_text(encoding="utf-8"), encoding="utf-8")

    def _run_until_halted(self, last: int) -> None:
        """Run a driver that halts after this batch."""
        driver = self._run()
        if driver.exit_code != HALTED:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        committed = self._stage.watcher.standing().committed
        self._teller.say(f"{driver.name} has halted; batches 1 to {committed} are committed, nothing after them:")
        for line in driver.lines("txtopo: "):
            self._teller.say(f"    {line}")
        if committed != last:
            raise DemoError(f"{committed} batches are committed, expected {last}:{driver.tail()}")

    def _fix(self) -> None:
        text = self._program.read_text(encoding="utf-8")
        if text.count(self._bug) != 1:
            raise DemoError(f"{self._program} does not have the line with the bug once")
        self._program.write_text(text.replace(self._bug, self._fixed), encoding="utf-8")
        self._teller.say(f"the fix, in {self._program.name}:")
        self._teller.say(f"    - {self._bug.strip()}")
        self._teller.say(f"    + {self._fixed.strip()}")

    def _order_retry(self) -> None:
        self._teller.say(f"$ txtopo retry {self._stage.program.topology}")
        driver = self._run("retry", self._stage.program.topology)
        if driver.exit_code:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        for line in driver.lines(f"retry of {self._stage.program.topology}: "):
            self._teller.say(f"    {line}")

    def _run_to_the_end(self) -> None:
        driver = self._run()
        if driver.exit_code:
            raise DemoError(f"{driver.name} ended with exit code {driver.exit_code}:{driver.tail()}")
        self._teller.say(f"{driver.name} has come to the end of the input")

    def _run(self, *command: str, failpoints: str = "") -> DemoDriver:
        """Start a driver and wait until it has ended."""
        began, before = time.monotonic(), self._takeovers[-1].epoch if self._takeovers else 0
        driver = self._stage.start_driver(failpoints, command)

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
