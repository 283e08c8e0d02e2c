"""Memory that runs out, in a worker, in the JVM, in the driver: `make attack`. No batch is blamed that is not at fault,
and nothing is waited for without end.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import pytest

from tests.kit.drivers import DriverProcess, World, jvm_of, wait_until
from tests.kit.orders import recount, write_orders
from txtopo.operating.orders import NewOrder, place

pytestmark = [pytest.mark.attack, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200)]
DRIVER = ("tests.kit.memory_driver",)
LONG_S = 500.0
SMALL_WORKERS = "spark.executor.pyspark.memory=2g"
GIB = 2**30


def write(folder: Path, number: int, *articles: str) -> None:
    """A file with these articles, one a line."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"{number},shop,{article},1,1.00\n" for article in articles)
    (folder / f"order_{number:04}.csv").write_text("id,shop,article,pieces,price\n" + "".join(lines))


def kinds(world: World) -> set[str | None]:
    """Kinds of all failures."""
    return {kind for (kind,) in world.query("select distinct kind from txtopo.attempt")}


def life(world: World) -> tuple[str, str]:
    """State and reason, as `status` reads them."""
    state, reason = world.query("select state, reason from txtopo.topology")[0]
    return state, reason


@pytest.mark.parametrize("bolts", ["tuples", "rows"])
def test_a_bolt_that_keeps_memory_over_batches_fails_none_of_them(world: World, bolts: str) -> None:
    """Its worker is full after two batches, and ended with the task that finds it so."""
    for number in range(1, 9):
        write(world.folder, number, *["leak"] * 8, "a")

    driver = world.start(module=DRIVER, DRIVER_BOLTS=bolts, TXTOPO_WORKERS="1", TXTOPO_CONF=SMALL_WORKERS)

    assert driver.wait(LONG_S) == 0, driver.output()
    assert kinds(world) == {None}, driver.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(8)


@pytest.mark.parametrize("bolts", ["tuples", "arrow"])
def test_a_bolt_that_allocates_without_end_fails_its_batch_by_name(world: World, bolts: str) -> None:
    """The one before is committed, nothing behind it; with the row gone from the bolt's way, `retry` is not even
    needed.
    """
    write(world.folder, 1, "a")
    write(world.folder, 2, "a", "fill", "b")
    write(world.folder, 3, "b")

    driver = world.start(module=DRIVER, DRIVER_BOLTS=bolts, TXTOPO_CONF=SMALL_WORKERS)

    assert driver.wait(LONG_S) == 1, driver.output()
    assert world.last_txid() == 1
    state, reason = life(world)
    assert state == "halted" and "batch 2 of orders: 3 attempts failed in told: " in reason
    assert "memory_driver.py:" in reason and "MemoryError" in reason

    mended = world.start(module=DRIVER, DRIVER_BOLTS=bolts, TXTOPO_CONF=SMALL_WORKERS, DRIVER_MENDED="1")
    assert mended.wait(LONG_S) == 0, mended.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(3)


@pytest.mark.parametrize("word", ["kill", "fault"])
def test_a_worker_that_the_kernel_ends_halts_its_batch_with_what_to_do(world: World, word: str) -> None:
    """-9, as when the machine has no memory left, and a crash in native code. The rest of the batches are right, and
    other code goes on by a start alone.
    """
    write(world.folder, 1, "a")
    write(world.folder, 2, "a", word, "b")

    driver = world.start(module=DRIVER, DRIVER_BOLTS="tuples")

    assert driver.wait(LONG_S) == 1, driver.output()
    state, reason = life(world)
    assert state == "halted"
    assert "no verdict from 3 attempts that ran alone in told: a Python worker or executor died" in reason
    assert kinds(world) == {None, "suspect"}

    mended = world.start(module=DRIVER, DRIVER_BOLTS="tuples", DRIVER_MENDED="1")
    assert mended.wait(LONG_S) == 0, mended.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(2)


def test_a_driver_that_runs_out_of_memory_ends_and_the_next_one_goes_on(world: World) -> None:
    """The limit comes in mid-run, when the JVM is there already. Exit code 3 or a halt that names it, never a wrong
    count.
    """
    write_orders(world.folder, 2)
    driver = world.start(module=DRIVER, once=False)
    wait_until(lambda: world.last_txid() == 2, "the first batches", LONG_S)
    _limit(driver, room=0)

    for number in range(3, 40):
        write(world.folder, number, *(f"a{at}" for at in range(20_000)))
    assert driver.wait(LONG_S) in (3, 5), driver.output()
    assert kinds(world) <= {None, "infrastructure"}, driver.output()

    after = world.start(module=DRIVER)
    assert after.wait(LONG_S) == 0, after.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(39)


def test_a_batch_that_needs_more_than_the_jvm_has_halts_after_its_drivers_died(world: World) -> None:
    """Each of them ends with 3: the JVM says that it shuts down, and does. The batch before it is committed. With more
    memory the order to retry it is carried out.
    """
    write(world.folder, 1, "a")
    write(world.folder, 2, "heap")

    codes: list[int] = []
    while not codes or (codes[-1] == 3 and len(codes) < 6):
        driver = world.start(module=DRIVER, DRIVER_BOLTS="heap", TXTOPO_CONF="spark.driver.memory=600m")
        codes.append(driver.wait(LONG_S))

    state, reason = life(world)
    assert codes[-1] == 1, (codes, driver.output())
    assert codes.count(3) == len(codes) - 1 >= 3
    assert state == "halted" and "batch 2 of orders: no verdict from 3 attempts that ran alone" in reason
    assert "data" not in kinds(world)
    assert world.last_txid() == 1
    place(world.dsn, NewOrder(topology="orders", kind="retry", txids=(2,)))

    larger = world.start(module=DRIVER, DRIVER_BOLTS="heap", TXTOPO_CONF="spark.driver.memory=3g")
    assert larger.wait(LONG_S) == 0, larger.output()
    assert world.query("select kind, state from txtopo.request") == [("retry", "done")]
    assert world.totals() == recount(world.folder)
    world.check_ledger(2)


def _limit(driver: DriverProcess, room: int) -> None:
    """No more memory than the process has now and `room` bytes, in the process alone."""
    assert jvm_of(driver.process.pid) is not None
    pages = int(Path(f"/proc/{driver.process.pid}/statm").read_text().split()[5])
    resource.prlimit(driver.process.pid, resource.RLIMIT_DATA, (pages * 4096 + room, resource.RLIM_INFINITY))


@pytest.mark.parametrize("seconds", [0.0, 2.0, 5.0, 9.0])
def test_a_jvm_that_is_killed_at_some_moment_ends_its_driver_with_3_in_a_line(world: World, seconds: float) -> None:
    """While it is young, while the topology starts, while plans run over nothing, while batches run: the next driver
    makes the table.
    """
    write_orders(world.folder, 20)
    driver = world.start(module=DRIVER, once=False)
    wait_until(lambda: jvm_of(driver.process.pid) is not None, "the JVM", LONG_S)
    time.sleep(seconds)  # not to wait for anything: to meet another moment
    os.kill(jvm_of(driver.process.pid) or 0, signal.SIGKILL)

    assert driver.wait(LONG_S) == 3, driver.output()
    assert "JVM" in driver.output().splitlines()[-1] and "Traceback" not in driver.output()
    assert world.query("select count(*) from txtopo.attempt where kind = 'data'") == [(0,)]
    after = world.start(module=DRIVER)
    assert after.wait(LONG_S) == 0, after.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(20)
