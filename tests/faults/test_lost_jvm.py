"""The JVM of a driver stands still or dies: the driver ends with 3, leaves nothing, and one that waits leads."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.kit.drivers import DriverProcess, World, jvm_of, pause, wait_until
from tests.kit.orders import recount, write_orders

MODULE = ("tests.kit.spark_driver",)
SILENT_S = "8"
STARTED_S = 240.0
"""Spark starts twice, perhaps beside other tests."""


def _jvm(driver: DriverProcess) -> int:
    found = jvm_of(driver.process.pid)
    assert found is not None, driver.output()
    return found


def _life(world: World) -> tuple[str, str]:
    """State and reason, as `status` reads them."""
    state, reason = world.query("select state, reason from txtopo.topology")[0]
    return state, reason


@pytest.mark.slow
@pytest.mark.spark
def test_a_driver_whose_jvm_stands_still_or_dies_ends_with_3_and_a_standby_leads(world: World) -> None:
    """K11. The first one's JVM is stopped: its heartbeat goes on, then it gives up. The second one leads, and its JVM
    is killed.
    """
    write_orders(world.folder, 2)
    first = world.start(module=MODULE, once=False, DRIVER_SILENT_S=SILENT_S)
    wait_until(lambda: world.last_txid() == 2, "the first two batches", STARTED_S)
    second = world.start(module=MODULE, once=False)
    wait_until(lambda: "waiting as standby" in second.output(), "the standby", STARTED_S)

    stopped = _jvm(first)
    pause(stopped)
    beat = "select heartbeat_at from txtopo.topology"
    before = world.query(beat)
    wait_until(lambda: world.query(beat) != before, "a heartbeat beside a JVM that stands still")
    write_orders(world.folder, 2, first=3)

    assert first.wait() == 3, first.output()
    assert "txtopo: the executor has not answered for" in first.output()
    assert not Path(f"/proc/{stopped}").exists()
    wait_until(lambda: world.last_txid() == 4, "two batches of the standby", STARTED_S)
    assert world.totals() == recount(world.folder)

    os.kill(_jvm(second), signal.SIGKILL)
    write_orders(world.folder, 1, first=5)
    assert second.wait() == 3, second.output()
    words = "the Spark driver JVM is gone; start `txtopo run` again"
    assert _life(world) == ("stopped", words)
    after = second.output().partition("epoch 2")[2].splitlines()[1:]
    assert [line for line in after if "done up to" not in line] == [f"txtopo: {words}"]
    assert world.query("select state from txtopo.attempt where txid = 5") == [("begun",)], (
        "a suspect for the next leader"
    )
    world.check_ledger(4)
