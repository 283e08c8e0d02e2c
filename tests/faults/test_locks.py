"""A stranger locks what a driver needs: who it is can be read, and the driver waits without giving up the lead."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg2

from tests.kit.drivers import World, wait_until
from tests.kit.orders import recount, write_orders
from txtopo.reports.read import read_topologies, reading


@contextlib.contextmanager
def stranger(world: World, statement: str) -> Iterator[int]:
    """Holds the lock of a statement; gives the server process that does."""
    with contextlib.closing(psycopg2.connect(world.dsn, application_name="stranger")) as connection:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield connection.info.backend_pid


def _problem(world: World) -> str:
    """What `status` says that it waits for."""
    with reading(world.dsn) as connection:
        (status,) = read_topologies(connection, "orders")
    return f"{status.state}: {status.problem}"


def test_who_locks_the_target_or_the_fence_is_named_and_waited_for(world: World) -> None:
    """The driver says it, `status` says it, later heartbeats do not wipe it out, and a locked fence row is not called
    Postgres being away.
    """
    write_orders(world.folder, 1)
    driver = world.start(once=False, TXTOPO_POSTGRES_AWAY_MAX_S="3", DRIVER_HEARTBEAT_S="0.5")
    wait_until(lambda: world.last_txid() == 1, "the first batch")

    with stranger(world, "lock table order_totals in access exclusive mode") as pid:
        words = f"a lock on public.order_totals, held by pid {pid} (application stranger, user postgres, since "
        write_orders(world.folder, 1, first=2)
        wait_until(lambda: f"waits for {words}" in driver.output(), "the words of the driver")
        wait_until(lambda: f"RUNNING: {words}" in _problem(world), "the words of status")
        beats = world.query("select heartbeat_at, problem from txtopo.topology")
        for _ in range(2):
            wait_until(lambda: world.query("select heartbeat_at, problem from txtopo.topology") != beats, "a heartbeat")  # noqa: B023
            beats = world.query("select heartbeat_at, problem from txtopo.topology")
            assert words in str(beats[0][1])
    wait_until(lambda: world.last_txid() == 2, "the second batch")
    wait_until(lambda: _problem(world) == "RUNNING: None", "no words any more")

    with stranger(world, "select from txtopo.fence for update") as pid:
        words = f"a lock on txtopo.fence, held by pid {pid} (application stranger"
        write_orders(world.folder, 1, first=3)
        wait_until(lambda: words in _problem(world), "the words of status")
        (age,) = world.query("select extract(epoch from clock_timestamp() - heartbeat_at) from txtopo.topology")[0]
        wait_until(
            lambda: (
                world.query("select extract(epoch from clock_timestamp() - heartbeat_at) > 5 from txtopo.topology")[0][
                    0
                ]
                is True
            ),
            f"a heartbeat (it is {age} s old) that is overdue by more than Postgres may be away",
        )
    wait_until(lambda: world.last_txid() == 3, "the third batch")

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert "gave up the lead" not in driver.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(3)
