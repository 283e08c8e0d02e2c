"""Takeover from a stopped leader, other code, and stores that do not belong together: the rules as real drivers apply
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from psycopg2 import sql

from tests.kit.drivers import SESSION_S, DriverProcess, World, wait_until, zookeeper_client
from tests.kit.fix_postgres import execute_as_superuser, fresh_database
from tests.kit.orders import recount, write_orders
from txtopo.core.limits import IDLE_IN_TRANSACTION_TIMEOUT_MS
from txtopo.local.postgres import LocalPostgres

OTHER_CODE = "0.06"
"""Another value in the spout's description, so that the driver has another code hash."""
PLANS = "/orders/coordinator/meta"


def start_leader(world: World, failpoints: str = "", **settings: Any) -> DriverProcess:
    """A driver that has taken the lead and waits for files."""
    leader = world.start(once=False, failpoints=failpoints, **settings)
    wait_until(lambda: "leading with epoch" in leader.output(), "the lead of the first driver")
    return leader


def start_standby(world: World, behind: DriverProcess, *, once: bool = False, **settings: Any) -> DriverProcess:
    """A driver that stands in the queue and has said so."""
    standby = world.start(once=once, **settings)
    wait_until(lambda: f"pid {behind.process.pid}" in standby.output(), "the standby's waiting")
    return standby


def everything(world: World) -> list[object]:
    """What a driver that lost the lead must not change."""
    tables = ("txtopo.ledger", "txtopo.fence", "txtopo.plan", "txtopo.attempt", "order_totals")
    return [world.query(f"select * from {table} order by 1, 2, 3") for table in tables]


# ------------------------------------------------------------------------------------------------------------------ a l


def test_a_leader_stopped_while_it_holds_the_fence_lock_is_taken_over_from(world: World) -> None:
    """P6: its locks do not keep the successor waiting beyond the bound. R4: woken, it changes nothing and exits with 4."""  # noqa: E501
    leader = start_leader(world, failpoints="applied=stop@2", TXTOPO_RUN_TXIDS_MAX="1")
    standby = start_standby(world, leader, once=True)
    write_orders(world.folder, 4)
    wait_until(lambda: leader.is_stopped, "the pause of the leader")
    stopped_at = time.monotonic()
    assert world.last_txid() == 1

    wait_until(lambda: world.last_txid() > 1, "the successor's first batch")
    bound_s = SESSION_S + IDLE_IN_TRANSACTION_TIMEOUT_MS / 1_000 + 20  # of a slow machine
    assert time.monotonic() - stopped_at <= bound_s, standby.output()
    assert standby.wait() == 0, standby.output()
    before = everything(world)
    leader.wake()

    assert leader.wait() == 4, leader.output()
    assert everything(world) == before
    assert world.totals() == recount(world.folder)
    world.check_ledger(4)
    assert world.query("select txid, epoch from txtopo.ledger where txid > 0 order by txid") == [
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 2),
    ]
    world.check_nothing_left_over()


# ----------------------------------------------------------------------------------------------------------------------


def test_other_code_leads_only_if_it_was_started_after_the_last_leader_took_the_lead(world: World) -> None:
    """R12: a driver that was waiting before stands aside with 4, one that was started since is the new version and
    takes over.
    """
    write_orders(world.folder, 2)
    first = start_leader(world)
    wait_until(lambda: world.last_txid() == 2, "the first batches")
    same = start_standby(world, first)
    waiting = start_standby(world, first, DRIVER_SETTLED_S=OTHER_CODE)
    first.process.kill()
    wait_until(lambda: "leading with epoch 2" in same.output(), "the lead of the driver with the same code")
    newer = start_standby(world, same, once=True, DRIVER_SETTLED_S=OTHER_CODE)
    write_orders(world.folder, 2, first=3)
    wait_until(lambda: world.last_txid() == 4, "the next batches")

    same.process.kill()
    write_orders(world.folder, 2, first=5)

    assert waiting.wait() == 4, waiting.output()
    assert "other code" in waiting.output()
    assert newer.wait() == 0, newer.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(6)
    rows = world.query("select epoch, code_hash from txtopo.ledger where txid > 0 order by txid")
    assert [row[0] for row in rows] == [1, 1, 2, 2, 3, 3]
    codes = [bytes(row[1]) for row in rows]
    assert len(set(codes[:4])) == len(set(codes[4:])) == 1
    assert codes[0] != codes[5]


# ---------------------------------------------------------------------------------------------------- stores that do no


@contextmanager
def restored_to_now(server: LocalPostgres, dsn: str) -> Iterator[Callable[[], None]]:
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


def ledger_digests(world: World) -> list[bytes]:
    """What each batch was, in order."""
    return [bytes(row[0]) for row in world.query("select digest from txtopo.ledger order by txid")]


def run_through(world: World, files: int, first: int = 1) -> None:
    """Count some more files, to the end of the input."""
    write_orders(world.folder, files, first=first)
    driver = world.start()
    assert driver.wait() == 0, driver.output()


def test_batches_that_postgres_lost_are_replayed_from_their_plans_or_the_start_is_refused(
    world: World, postgres_server: LocalPostgres
) -> None:
    """R11, P7: with all plans still in ZooKeeper nothing is lost or cut in another way; else both positions are named,
    exit 1.
    """
    run_through(world, 2)
    with restored_to_now(postgres_server, world.dsn) as restore:
        run_through(world, 3, first=3)
        digests = ledger_digests(world)
        restore()
    before = everything(world)[0], world.totals()
    removed: dict[str, bytes] = {}

    for cleaned in ({1, 2, 3}, {4, 5}):  # first those that a longer run would have removed, then all of them
        with zookeeper_client(world.zookeeper) as client:
            for name in client.get_children(PLANS):
                if int(name) in cleaned:
                    removed[name] = client.get(f"{PLANS}/{name}")[0]
                    client.delete(f"{PLANS}/{name}")
        refused = world.start()
        assert refused.wait() == 1, refused.output()
        assert "ZooKeeper knows batch 5 as committed, Postgres has 2" in refused.output()
        ((state, reason, advice),) = world.query("select state, reason, advice from txtopo.topology")
        assert (state, "ZooKeeper knows batch 5 as committed" in reason) == ("halted", True)
        assert "make sure that --dsn names the right database" in advice
    assert (everything(world)[0], world.totals()) == before

    with zookeeper_client(world.zookeeper) as client:
        for name, data in removed.items():
            client.create(f"{PLANS}/{name}", data)
        client.create("/orders/leader/junk")
    refused = world.start()
    assert refused.wait() == 1, refused.output()
    ((state, reason),) = world.query("select state, reason from txtopo.topology")
    assert (state, "/orders/leader/junk is not a candidate" in reason) == ("halted", True)  # before the lead, too
    with zookeeper_client(world.zookeeper) as client:
        client.delete("/orders/leader/junk")
    driver = world.start()
    assert driver.wait() == 0, driver.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(5)
    assert ledger_digests(world) == digests


def test_stores_that_do_not_belong_together_are_refused(
    world: World, postgres_server: LocalPostgres, migrated_template: str
) -> None:
    """R11: a topology that Postgres does not know, then one of which the stores know different incarnations."""
    run_through(world, 2)
    with fresh_database(postgres_server, migrated_template) as another:
        driver = replace(world, dsn=another, started=[]).start()
        assert driver.wait() == 1, driver.output()
        assert "Postgres does not" in driver.output()

        second = replace(world, dsn=another, zookeeper=f"{world.zookeeper}/second", started=[])
        assert second.query("select * from txtopo.fence") == []
        run_through(second, 0)
        before = everything(world)
        crossed = replace(second, dsn=world.dsn, started=[]).start()

        assert crossed.wait() == 1, crossed.output()
        incarnations = {str(one.query("select incarnation from txtopo.fence")[0][0]) for one in (world, second)}
        assert len(incarnations) == 2
        assert all(incarnation in crossed.output() for incarnation in incarnations)
        assert everything(world) == before
