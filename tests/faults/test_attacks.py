"""Attacks that are not tried with every run of the tests: `make attack`. After each the table equals an independent
recount.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg2 import sql

from tests.kit.drivers import ROOT, World, wait_until
from tests.kit.fix_postgres import execute_as_superuser
from tests.kit.orders import recount, write_orders

pytestmark = pytest.mark.attack
SPARK = ("tests.kit.spark_driver",)


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_that_jumps_an_hour_changes_nothing(world: World, seconds: int) -> None:
    """No decision goes by the clock on the wall: the session lives, nothing times out, the epoch stays."""
    write_orders(world.folder, 3)
    driver = world.start(once=False, DRIVER_CLOCK_JUMP_S=str(seconds))
    wait_until(lambda: world.last_txid() == 3, "three batches")

    (world.logs / "jump").touch()
    write_orders(world.folder, 3, first=4)
    wait_until(lambda: world.last_txid() == 6, "six batches")

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert world.query("select epoch from txtopo.fence") == [(1,)]
    assert world.totals() == recount(world.folder)
    world.check_ledger(6)


def test_a_replan_beside_a_leader_that_is_paused_in_its_mirror_drops_what_was_never_mirrored(world: World) -> None:
    """R3: whether the mirror counts is decided under the lock of the fence row; the paused one changes nothing when it
    wakes.
    """
    write_orders(world.folder, 6)
    paused = world.start(failpoints="mirror_open=stop@2", TXTOPO_SPOUT_PENDING_MAX="2")
    wait_until(lambda: paused.is_stopped, "the pause in the mirror")
    before = world.last_txid()

    world.execute(
        "insert into txtopo.request (topology, kind, arguments, actor, host) values ('orders', 'replan', '{}', "
        "'ada', 'here')"
    )
    second = world.start()
    assert second.wait() == 0, second.output()
    paused.wake()

    assert paused.wait() == 4, paused.output()
    assert "dropped: their inputs are planned again" in second.output()
    assert world.query("select state from txtopo.request") == [("done",)]
    assert before < 6 and world.totals() == recount(world.folder)
    world.check_ledger(6)


def test_two_topologies_that_deadlock_on_one_database_both_come_through(world: World) -> None:
    """P10: the server ends one of the two; its batch is committed again, and no attempt counts as failed."""
    write_orders(world.folder, 8, rows=5)
    world.execute("create table public.shared (name text primary key, n bigint not null)")
    world.execute("insert into public.shared values ('a', 0), ('b', 0)")
    rivals = [world.start(module=("tests.kit.rivals_driver",), DRIVER_NAME=name) for name in ("left", "right")]

    assert [rival.wait() for rival in rivals] == [0, 0], [rival.output() for rival in rivals]
    assert world.query("select name, n from public.shared order by name") == [("a", 80), ("b", 80)]
    assert int(world.query("select deadlocks from pg_stat_database where datname = current_database()")[0][0]) > 0
    assert world.query("select count(*) from txtopo.attempt where state = 'failed'") == [(0,)]


def test_a_restore_of_postgres_to_before_the_last_ten_plans_loses_nothing(world: World) -> None:
    """R11: ZooKeeper still has the plans of the batches that Postgres has lost, so they are replayed."""
    write_orders(world.folder, 5)
    assert world.start().wait() == 0
    server, name = world.dsn.rpartition("/")[0] + "/postgres", world.dsn.rpartition("/")[2]
    copy = f"{name}_copy"
    execute_as_superuser(server, sql.SQL(f"create database {copy} template {name}"))
    write_orders(world.folder, 10, first=6)
    assert world.start().wait() == 0
    execute_as_superuser(
        server, sql.SQL(f"drop database {name} with (force)"), sql.SQL(f"alter database {copy} rename to {name}")
    )
    assert world.last_txid() == 5

    restored = world.start()

    assert restored.wait() == 0, restored.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(15)


def test_an_output_that_takes_nothing_more_ends_no_run(world: World) -> None:
    """A full disk below the log: its books are in Postgres."""
    write_orders(world.folder, 3)
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.driver", str(world.folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=full,
            env=world.environment(once=True),
        )
        assert process.wait(90) == 0
    assert world.totals() == recount(world.folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB. Needs root."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_below_sparks_folders_is_waited_out(world: World, small_disk: Path) -> None:
    """Spark's log and its local folders have no room: no batch is at fault, and all are committed once there is some."""  # noqa: E501
    ballast = small_disk / "ballast"
    write_orders(world.folder, 6, rows=2000)
    driver = world.start(
        module=SPARK, once=False, SPARK_LOCAL_DIRS=str(small_disk / "local"), TXTOPO_LOG_FOLDER=str(small_disk / "logs")
    )
    wait_until(lambda: world.last_txid() == 6, "the first batches", 240)
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)

    write_orders(world.folder, 4, rows=2000, first=7)
    wait_until(lambda: world.last_txid() == 10 or "No space left" in driver.output(), "either way", 120)
    assert world.query("select count(*) from txtopo.attempt where kind = 'data'") == [(0,)]
    ballast.unlink()
    wait_until(lambda: world.last_txid() == 10, "all batches", 240)

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(10)
