"""Drivers with real Spark that die: by kill -9 while they commit, by a JVM that stands still, by a JVM that is killed.

The demo's test kills drivers right after a COMMIT, and `test_crash_points.py` kills at every point without Spark.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.drivers import DriverProcess, World, is_running, jvm_of, pause, wait_until
from tests.kit.orders import recount, write_orders
from txtopo.core.crash_points import CrashPoint

MODULE = ("tests.kit.spark_driver",)
FILES = 24
SILENT_S = "12"
STARTED_S = 240.0
"""Spark starts, perhaps beside other tests."""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, with a path short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def started(world: World, words: str, **settings: str) -> tuple[DriverProcess, int]:
    """A driver that has said these words, and its JVM."""
    driver = world.start(module=MODULE, once=False, **settings)
    wait_until(lambda: words in driver.output() or driver.process.poll() is not None, f"'{words}'", STARTED_S)
    jvm = jvm_of(driver.process.pid)
    assert jvm is not None, driver.output()
    return driver, jvm


def life(world: World) -> tuple[str, str]:
    """State and reason, as `status` reads them."""
    state, reason = world.query("select state, reason from txtopo.topology")[0]
    return state, reason


@pytest.mark.slow
@pytest.mark.spark
def test_counts_stay_right_when_spark_drivers_die_one_after_the_other(world: World, temporary: Path) -> None:
    """Each new driver takes up the work of the one before it. One that is killed leaves neither JVM nor sockets.

    K11: a driver whose JVM stands still keeps its heartbeat, then gives up and ends with 3, as one does whose JVM dies.
    """
    write_orders(world.folder, FILES)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    nth = random.Random(seed).randrange(2, 5)

    killed, jvm = started(
        world,
        "leading with epoch 1",
        failpoints=f"{CrashPoint.BEFORE_COMMIT.value}=exit@{nth}",
        TMPDIR=str(temporary),
        TXTOPO_RUN_TXIDS_MAX="1",
    )
    assert len(list(temporary.glob("txtopo-*"))) == 1, "the folder of its sockets"
    assert killed.wait() == -9, killed.output()
    wait_until(lambda: not is_running(jvm) and not list(temporary.glob("txtopo-*")), "the end of the JVM")
    world.wait_for_end_of_sessions()
    assert world.last_txid() == nth - 1
    begun = world.query(f"select txid from txtopo.attempt where state = 'begun' and txid > {nth}")
    assert begun, "it died while other batches were with Spark"

    still, jvm = started(world, "leading with epoch 2", DRIVER_SILENT_S=SILENT_S)
    standby, standbys_jvm = started(world, "waiting as standby")
    wait_until(lambda: world.last_txid() == FILES, "all batches", STARTED_S)
    check_what_a_jvm_does_that_stands_still(world, still, jvm)
    wait_until(lambda: world.last_txid() == FILES + 2, "two batches of the standby", STARTED_S)
    assert world.totals() == recount(world.folder)

    check_what_a_jvm_does_that_dies(world, standby, standbys_jvm)
    assert world.totals() == recount(world.folder, files=FILES + 2)
    world.check_ledger(FILES + 2)
    world.check_nothing_left_over(planned=1)


def check_what_a_jvm_does_that_stands_still(world: World, driver: DriverProcess, jvm: int) -> None:
    """Heartbeats go on; the driver gives up and leaves no JVM."""
    pause(jvm)
    beat = "select heartbeat_at from txtopo.topology"
    before = world.query(beat)
    wait_until(lambda: world.query(beat) != before, "a heartbeat beside a JVM that stands still")
    write_orders(world.folder, 2, first=FILES + 1)

    assert driver.wait() == 3, driver.output()
    assert "txtopo: the executor has not answered for" in driver.output()
    assert not is_running(jvm)


def check_what_a_jvm_does_that_dies(world: World, driver: DriverProcess, jvm: int) -> None:
    """The driver says so in one line, and its batch is a suspect for the next leader."""
    os.kill(jvm, signal.SIGKILL)
    write_orders(world.folder, 1, first=FILES + 3)

    assert driver.wait() == 3, driver.output()
    words = "the Spark driver JVM has ended; start `txtopo run` again"
    assert life(world) == ("stopped", words)
    after = driver.output().partition("epoch 3")[2].splitlines()[1:]
    assert [line for line in after if "done up to" not in line] == [f"txtopo: {words}"]
    assert world.query(f"select state from txtopo.attempt where txid = {FILES + 3}") == [("begun",)]
