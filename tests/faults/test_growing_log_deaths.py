"""Drivers over a log that die by kill -9 while it is written, renamed, truncated and compressed: every line is counted
once.
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import count

import pytest

from tests.kit.drivers import DriverProcess, World, wait_until
from tests.kit.tails import Log
from txtopo.core.crash_points import CrashPoint

MODULE = ("tests.kit.log_driver",)
DEATHS = (CrashPoint.METADATA_WRITTEN, CrashPoint.PROCESSED, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED)
ROTATIONS_MAX = 8
"""The kit's program has names for nine rotated files."""


class Program(threading.Thread):
    """Writes lines, and rotates its log in each way in turn, until it is told to end."""

    def __init__(self, log: Log) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.done = threading.Event()
        self.is_rotating = threading.Event()
        """Set by the test: one more rotation."""
        self.rotated = 0

    def run(self) -> None:
        for number in count():
            self.log.write(f"line {number}", f"line {number} again")
            if self.is_rotating.is_set() and self.rotated < ROTATIONS_MAX:
                self._rotate()
                self.is_rotating.clear()
            if self.done.wait(0.02):
                return

    def _rotate(self) -> None:
        self.log.copytruncate() if self.rotated % 2 else self.log.rename()
        self.rotated += 1
        if self.log.name(2).exists():
            self.log.compress(2)


@pytest.mark.attack
def test_lines_are_counted_once_when_drivers_die_while_the_log_is_rotated(world: World) -> None:
    """Each driver dies at another step, after a rotation that it saw or did not see; the last one reads to the end."""
    log = Log(world.folder / "app.log")
    program = Program(log)

    def start(failpoints: str = "", *, once: bool) -> DriverProcess:
        return world.start(failpoints=failpoints, once=once, module=MODULE, TXTOPO_RUN_TXIDS_MAX="1")

    def has_begun(driver: DriverProcess) -> bool:
        return "leading with epoch" in driver.output() or driver.process.poll() is not None

    def rotate() -> None:
        program.is_rotating.set()
        wait_until(lambda: not program.is_rotating.is_set(), "the rotation")

    program.start()
    try:
        for point in DEATHS:
            rotate()
            driver = start(f"{point.value}=exit@4", once=False)
            wait_until(partial(has_begun, driver), "the lead")
            rotate()
            assert driver.wait() == -9, driver.output()
            world.wait_for_end_of_sessions()
    finally:
        program.done.set()
        program.join(30)

    for _ in range(2):  # The second one has what was not complete when the first one began.
        last = start(once=True)
        assert last.wait() == 0, last.output()
    counted = world.query("select line, n from line_totals")
    assert dict(counted) == dict.fromkeys(log.written, 1)
    world.check_ledger(world.last_txid())
    assert program.rotated == 2 * len(DEATHS)
