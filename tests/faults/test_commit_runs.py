"""Commit runs on real stores: a driver dies in one, and the COMMIT of one is not answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
import pytest

from tests.kit.drivers import World, wait_until
from tests.kit.fix_proxy import AtCommit, PostgresProxy
from tests.kit.orders import recount, restored, write_orders
from txtopo.core.crash_points import CrashPoint

FILES = 5


@contextmanager
def ready_together(world: World) -> Iterator[None]:
    """New batches, of which none is mirrored before all of them are processed: so they are ready at the same moment,
    and are one commit run.

    The mirror waits for the lock, and asks again with everything that is processed by then.
    """
    done = world.last_txid()
    with psycopg2.connect(world.dsn, application_name="holds the plans") as connection:
        with connection.cursor() as cursor:
            cursor.execute("lock table txtopo.plan in share mode")
            write_orders(world.folder, FILES, first=done + 1)
            txids = ", ".join(str(txid) for txid in range(done + 1, done + 1 + FILES))
            waiting = (
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and "
                f"replace(query, ' ', '') like '%ARRAY[{txids.replace(' ', '')}]%'"
            )
            wait_until(lambda: bool(world.query(waiting)), "a mirror of all new batches")
            yield
        connection.rollback()
    connection.close()


@pytest.mark.parametrize("what", [AtCommit.CUT_BEFORE, AtCommit.CUT_AFTER], ids=["before", "after"])
def test_a_commit_run_without_an_answer_is_found_out_as_a_whole(
    what: AtCommit, postgres_proxy: PostgresProxy, world: World
) -> None:
    """R26: one look under the lock; all of it is committed, or all of it is committed one by one."""
    write_orders(world.folder, FILES)
    driver = world.start(once=False, TXTOPO_DSN=postgres_proxy.dsn)
    wait_until(lambda: world.last_txid() == FILES, "the first batches")

    with ready_together(world):
        sent = postgres_proxy.batch_commits
        postgres_proxy.arm(what, sent + 1)
    wait_until(lambda: world.last_txid() == 2 * FILES, "all batches")

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert postgres_proxy.done is what
    assert postgres_proxy.batch_commits - sent == (1 if what is AtCommit.CUT_AFTER else 1 + FILES)
    assert world.totals() == recount(world.folder)
    world.check_ledger(2 * FILES)
    attempts = world.query("select txid, attempt, state from txtopo.attempt order by txid, attempt")
    assert attempts == [(txid, 0, "applied") for txid in range(1, 2 * FILES + 1)]
    told = world.query("select before from txtopo.action where command = 'run_failed'")
    lost = {"first": FILES + 1, "last": 2 * FILES, "epoch": 1}
    assert [row[0] for row in told if row[0] == lost] == ([] if what is AtCommit.CUT_AFTER else [lost])


def test_a_driver_that_dies_in_a_commit_run_leaves_nothing_of_it(world: World) -> None:
    """R19: every row was final, and COMMIT was not sent. The next driver commits each batch once, counts and rows."""
    write_orders(world.folder, FILES)
    first = world.start(DRIVER_ROWS="1")
    assert first.wait() == 0, first.output()

    killed = world.start(once=False, failpoints=f"{CrashPoint.RUN_FINISHED.value}=exit@1", DRIVER_ROWS="1")
    with ready_together(world):
        pass
    assert killed.wait() == -9, killed.output()
    assert world.last_txid() == FILES

    last = world.start(DRIVER_ROWS="1")

    assert last.wait() == 0, last.output()
    assert world.totals() == recount(world.folder)
    assert world.stored() == restored(world.folder)
    world.check_ledger(2 * FILES, committers=4)
    world.check_nothing_left_over()
