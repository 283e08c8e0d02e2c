"""Takeover from a stopped leader, other code, and stores that do not belong together: the rules as real drivers apply them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg2 import sql

from tests.kit.drivers import SESSION_S, DriverProcess, World, wait_until, zookeeper_client
from tests.kit.fix_postgres import execute_as_superuser, fresh_database
from tests.kit.orders import recount, write_orders
from txtopo.core.limits import IDLE_IN_TRANSACTION_TIMEOUT_MS
from txtopo.local.postgres import LocalPostgres

OTHER_CODE = "0.06"
"""Another value in the spout's description, so that the driver has another code hash."""
PLANS = "/orders/coordinator/meta"


@pytest.fixture
def world(database: str, zookeeper_root: str, tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "orders"
    folder.mkdir()
    made = World(database, zookeeper_root, folder, tmp_path)
    yield made
    made.close()


def start_leader(world: World, failpoints: str = "") -> DriverProcess:
    """A driver that has taken the lead and waits for files."""
    leader = world.start(once=False, failpoints=failpoints)
    wait_until(lambda: "leading with epoch" in leader.output(), "the lead of the first driver")
    return leader


def start_standby(world: World, behind: DriverProcess, *, once: bool = False, **settings: str) -> DriverProcess:
    """A driver that stands in the queue and has said so."""
    standby = world.start(once=once, **settings)
    wait_until(lambda: f"pid {behind.process.pid}" in standby.output(), "the standby's waiting")
    return standby


def everything(world: World) -> list[object]:
    """What a driver that lost the lead must not change."""
    tables = ("txtopo.ledger", "txtopo.fence", "txtopo.plan", "txtopo.attempt", "order_totals")
    return [world.query(f"select * from {table} order by 1, 2, 3") for table in tables]


# ------------------------------------------------------------------------------------------------------------------ a leader that is stopped


@pytest.mark.parametrize("point", ["fence_locked", "applied"])
def test_a_leader_stopped_while_it_holds_the_fence_lock_is_taken_over_from(point: str, world: World) -> None:
    """P6: its locks do not keep the successor waiting beyond the bound. R4: woken, it changes nothing and exits with 4."""
    leader = start_leader(world, failpoints=f"{point}=stop@2")
    standby = start_standby(world, leader, once=True)
    write_orders(world.folder, 4)
    wait_until(lambda: leader.is_stopped, "the pause of the leader")
    stopped_at = time.monotonic()
    assert world.last_txid() == 1

    wait_until(lambda: world.last_txid() > 1, "the successor's first batch")
    bound_s = SESSION_S + IDLE_IN_TRANSACTION_TIMEOUT_MS / 1_000 + 4
    assert time.monotonic() - stopped_at <= bound_s, standby.output()
    assert standby.wait() == 0, standby.output()
    before = everything(world)
    leader.wake()

    assert leader.wait() == 4, leader.output()
    assert everything(world) == before
    assert world.totals() == recount(world.folder)
    world.check_ledger(4)
    assert world.query("select txid, epoch from txtopo.ledger where txid > 0 order by txid") == [(1, 1), (2, 2), (3, 2), (4, 2)]  # fmt: skip
    world.check_nothing_left_over()


# -------------------------------------------------------------------------------------------------------------------------------- other code


def test_a_standby_with_other_code_stands_aside_for_a_leader_that_came_later(world: World) -> None:
    """R12: after two drivers of one code, a waiting driver of another code does not turn the clock back."""
    first = start_leader(world)
    same = start_standby(world, first)
    other = start_standby(world, first, DRIVER_SETTLED_S=OTHER_CODE)
    first.process.kill()
    wait_until(lambda: "leading with epoch 2" in same.output(), "the lead of the driver with the same code")
    code = world.query("select code_hash from txtopo.fence")

    same.process.kill()

    assert other.wait() == 4, other.output()
    assert "other code" in other.output()
    assert world.query("select epoch from txtopo.fence") == [(2,)]
    assert world.query("select code_hash from txtopo.fence") == code


def test_a_standby_with_other_code_that_was_started_later_takes_over(world: World) -> None:
    """R12: that is how a new version comes into use. Its batches carry its own code hash."""
    write_orders(world.folder, 2)
    first = start_leader(world)
    wait_until(lambda: world.last_txid() == 2, "the first batches")
    newer = start_standby(world, first, once=True, DRIVER_SETTLED_S=OTHER_CODE)
    write_orders(world.folder, 2, first=3)
    wait_until(lambda: world.last_txid() == 4, "the next batches")
    first.process.kill()
    write_orders(world.folder, 2, first=5)

    assert newer.wait() == 0, newer.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(6)
    hashes = [row[0].tobytes() for row in world.query("select code_hash from txtopo.ledger where txid > 0 order by txid")]  # fmt: skip
    assert len(set(hashes[:4])) == len(set(hashes[4:])) == 1
    assert hashes[0] != hashes[5]


# ---------------------------------------------------------------------------------------------------- stores that do not belong together


@contextmanager
def restored_to_now(server: LocalPostgres, dsn: str) -> Iterator[object]:
    """Keeps a copy of the database as it is; what is yielded puts it back in place."""
    name = dsn.rsplit("/", 1)[1]
    with fresh_database(server, name) as copy:

        def restore() -> None:
            database, source = sql.Identifier(name), sql.Identifier(copy.rsplit("/", 1)[1])
            execute_as_superuser(
                server.dsn,
                sql.SQL("drop database {} with (force)").format(database),
                sql.SQL("create database {} template {}").format(database, source),
            )

        yield restore


def run_through(world: World, files: int, first: int = 1) -> None:
    """Count some more files, to the end of the input."""
    write_orders(world.folder, files, first=first)
    driver = world.start()
    assert driver.wait() == 0, driver.output()


def test_batches_that_postgres_lost_are_replayed_from_the_plans_in_zookeeper(
    world: World, postgres_server: LocalPostgres
) -> None:
    """R11, P7: within K batches nothing is lost and nothing is cut in another way."""
    run_through(world, 2)
    with restored_to_now(postgres_server, world.dsn) as restore:
        run_through(world, 3, first=3)
        digests = world.query("select txid, digest from txtopo.ledger order by txid")
        restore()  # type: ignore[operator]
    assert world.last_txid() == 2

    driver = world.start()

    assert driver.wait() == 0, driver.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(5)
    again = world.query("select txid, digest from txtopo.ledger order by txid")
    assert [(txid, bytes(digest)) for txid, digest in again] == [(txid, bytes(digest)) for txid, digest in digests]


@pytest.mark.parametrize("kept", [(), (4, 5)], ids=["no plan is left", "the last plans are left"])
def test_postgres_restored_to_a_time_before_the_kept_plans_is_refused(
    kept: tuple[int, ...], world: World, postgres_server: LocalPostgres
) -> None:
    """R11: ZooKeeper is ahead and the plans between are cleaned up, so the start names both positions and ends with 1."""
    run_through(world, 2)
    with restored_to_now(postgres_server, world.dsn) as restore:
        run_through(world, 3, first=3)
        restore()  # type: ignore[operator]
    with zookeeper_client(world.zookeeper) as client:
        for name in client.get_children(PLANS):
            if int(name) not in kept:
                client.delete(f"{PLANS}/{name}")
    before = everything(world)[0], world.totals()

    driver = world.start()

    assert driver.wait() == 1, driver.output()
    assert "ZooKeeper knows batch 5 as committed, Postgres has 2" in driver.output()
    assert (everything(world)[0], world.totals()) == before


def test_a_database_that_does_not_know_the_topology_of_this_zookeeper_is_refused(
    world: World, postgres_server: LocalPostgres, migrated_template: str
) -> None:
    """R11: absent in Postgres and present in ZooKeeper is the wrong database, not a new topology."""
    run_through(world, 2)
    with fresh_database(postgres_server, migrated_template) as another:
        wrong = replace(world, dsn=another, started=[])
        driver = wrong.start()

        assert driver.wait() == 1, driver.output()
        assert "Postgres does not" in driver.output()
        assert wrong.query("select * from txtopo.fence") == []


def test_a_zookeeper_of_another_incarnation_is_refused(
    world: World, postgres_server: LocalPostgres, migrated_template: str
) -> None:
    """R11: both stores know the topology, but not the same life of it."""
    run_through(world, 2)
    with fresh_database(postgres_server, migrated_template) as another:
        second = replace(world, dsn=another, zookeeper=f"{world.zookeeper}/second", started=[])
        run_through(second, 0)
        before = everything(world)

        crossed = replace(second, dsn=world.dsn, started=[]).start()

        assert crossed.wait() == 1, crossed.output()
        incarnations = {str(one.query("select incarnation from txtopo.fence")[0][0]) for one in (world, second)}
        assert len(incarnations) == 2
        assert all(incarnation in crossed.output() for incarnation in incarnations)
        assert everything(world) == before
