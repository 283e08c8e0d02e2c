"""Connections between drivers and Postgres that break, stay silent or are refused, at the worst moments, on real
servers.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.drivers import DriverProcess, World, wait_until, zookeeper_client
from tests.kit.fix_proxy import AtCommit, PostgresProxy
from tests.kit.orders import recount, write_orders

FILES = 5


@pytest.fixture(autouse=True)
def five_files(world: World) -> None:
    """To count; the test itself looks at Postgres directly, drivers are told which way to take."""
    write_orders(world.folder, FILES)


def start_behind(proxy: PostgresProxy, world: World, *, once: bool = True, **settings: Any) -> DriverProcess:
    """A driver that reaches Postgres through the proxy only."""
    return world.start(once=once, TXTOPO_DSN=proxy.dsn, **settings)


def check_each_batch_once(world: World, batches: int) -> None:
    """Totals and ledger are right, and nothing was processed twice: each batch had one attempt, and that one was
    applied.
    """
    assert world.totals() == recount(world.folder)
    world.check_ledger(batches)
    attempts = world.query("select txid, attempt, state from txtopo.attempt order by txid, attempt")
    assert attempts == [(txid, 0, "applied") for txid in range(1, batches + 1)]


def candidates(world: World) -> list[str]:
    """The drivers that stand in the queue for the lead."""
    with zookeeper_client(world.zookeeper) as client:
        return list(client.get_children("/orders/leader"))


def epoch(world: World) -> int:
    """The epoch in the fence."""
    return int(world.query("select epoch from txtopo.fence")[0][0])


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize(
    ("what", "commits_sent"), [(AtCommit.CUT_BEFORE, FILES + 1), (AtCommit.CUT_AFTER, FILES)], ids=["before", "after"]
)
def test_a_commit_without_an_answer_is_found_out(
    what: AtCommit, commits_sent: int, number: int, postgres_proxy: PostgresProxy, world: World
) -> None:
    """P2, R7: one error, two truths. The ledger is asked, and only what did not happen is committed again."""
    postgres_proxy.arm(what, number)

    driver = start_behind(postgres_proxy, world, TXTOPO_RUN_TXIDS_MAX="1")

    assert driver.wait() == 0, driver.output()
    assert postgres_proxy.done is what
    assert postgres_proxy.batch_commits == commits_sent
    check_each_batch_once(world, FILES)
    world.check_nothing_left_over()


def test_a_commit_that_arrives_late_changes_nothing(postgres_proxy: PostgresProxy, world: World) -> None:
    """R7, P6: the old session still holds the fence lock when the ledger is asked, so it is ended; COMMIT then comes
    too late.
    """
    postgres_proxy.arm(AtCommit.HOLD, 3)

    driver = start_behind(postgres_proxy, world, TXTOPO_RUN_TXIDS_MAX="1")

    assert driver.wait() == 0, driver.output()
    assert postgres_proxy.done is AtCommit.HOLD
    assert b"57P01" in postgres_proxy.ended_with, "the old session ended by itself, not by its driver's order"
    postgres_proxy.release()
    assert postgres_proxy.batch_commits == FILES + 1
    check_each_batch_once(world, FILES)


def test_postgres_refused_for_a_while_is_waited_out(postgres_proxy: PostgresProxy, world: World) -> None:
    """Postgres away is waited out: the same leader goes on, without an operator."""
    driver = start_behind(postgres_proxy, world, once=False)
    wait_until(lambda: world.last_txid() == FILES, "the first batches")

    assert postgres_proxy.refuse(2.0) > 0, "the driver had no connection that could be cut"
    write_orders(world.folder, FILES, first=FILES + 1)
    wait_until(lambda: postgres_proxy.is_accepting, "the end of the fault")
    wait_until(lambda: world.last_txid() == 2 * FILES, "all batches")

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(2 * FILES)
    assert epoch(world) == 1


@pytest.mark.parametrize("fault", ["refused", "silent"])
def test_a_leader_without_postgres_gives_up_the_lead_and_comes_back(
    fault: str, postgres_proxy: PostgresProxy, world: World
) -> None:
    """R16: nobody stands in the queue while Postgres is away; when it answers again the driver campaigns anew by
    itself.
    """
    driver = start_behind(postgres_proxy, world, once=False, TXTOPO_POSTGRES_AWAY_MAX_S="2", DRIVER_HEARTBEAT_S="0.5")
    wait_until(lambda: world.last_txid() == FILES, "the first batches")

    if fault == "refused":
        postgres_proxy.refuse()
    else:
        postgres_proxy.silence()  # and nothing to do: only the heartbeat can notice
    wait_until(lambda: not candidates(world), "the driver's leaving of the queue")
    write_orders(world.folder, FILES, first=FILES + 1)
    assert "gave up the lead" in driver.output()
    postgres_proxy.accept()
    postgres_proxy.speak()
    wait_until(lambda: world.last_txid() == 2 * FILES, "all batches")

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(2 * FILES)
    assert epoch(world) > 1
    world.check_nothing_left_over()


def test_a_standby_that_reaches_postgres_takes_over_from_a_leader_that_does_not(
    postgres_proxy: PostgresProxy, world: World
) -> None:
    """R16: the one that can may lead; the other reads the fence once it answers again, and exits with 4."""
    first = start_behind(postgres_proxy, world, once=False, TXTOPO_POSTGRES_AWAY_MAX_S="2", DRIVER_HEARTBEAT_S="0.5")
    wait_until(lambda: world.last_txid() == FILES, "the first batches")
    standby = world.start(once=False)
    wait_until(lambda: f"pid {first.process.pid}" in standby.output(), "the standby's waiting")

    postgres_proxy.refuse()
    write_orders(world.folder, FILES, first=FILES + 1)
    wait_until(lambda: world.last_txid() == 2 * FILES, "all batches, by the standby")
    assert first.process.poll() is None
    postgres_proxy.accept()

    assert first.wait() == 4, first.output()
    standby.process.terminate()
    assert standby.wait() == 143, standby.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(2 * FILES)
    assert epoch(world) == 2
