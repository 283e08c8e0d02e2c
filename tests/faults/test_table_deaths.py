"""Drivers over a table that die by kill -9 while rows are added, some by transactions that stay open: each row is
counted once.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.kit.drivers import DriverProcess, World
from tests.kit.tables import ORDERS, add, opened, run
from txtopo.core.crash_points import CrashPoint

DEATHS = (
    CrashPoint.METADATA_WRITTEN,
    CrashPoint.PROCESSED,
    CrashPoint.MIRRORED,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.COMMITTED,
)


@pytest.mark.attack
@pytest.mark.parametrize("kind", ["table", "sql"])
def test_rows_are_counted_once_when_drivers_die_while_rows_are_added(world: World, kind: str) -> None:
    """Each driver dies at another step. For `table`, a transaction that is older than the rows it sees is open then."""
    run(world.dsn, ORDERS)
    number = 0

    def write(late: bool) -> ExitStack:
        """Add rows: some before a transaction that is open until the end of what is returned, some after it."""
        nonlocal number
        still_open = ExitStack()
        for step in range(3):
            number += 1
            if step == 1 and late:
                connection = still_open.enter_context(opened(world.dsn))
                still_open.callback(connection.commit)
                add(connection, f"late {number}", 2)
                continue
            for at in range(4):
                run(world.dsn, "insert into orders (shop) values (%s)", f"shop {number}.{at}")
        return still_open

    def start(failpoints: str = "") -> DriverProcess:
        return world.start(
            failpoints=failpoints,
            module=("tests.kit.table_driver", kind),
            TXTOPO_RUN_TXIDS_MAX="1",
            ORDERS_DSN=world.dsn,
            SHOP_URL=world.dsn.replace("postgresql://", "postgresql+psycopg2://"),
        )

    for point in DEATHS:
        with write(late=kind == "table"):
            driver = start(f"{point.value}=exit@1")
            assert driver.wait() == -9, driver.output()
        world.wait_for_end_of_sessions()
    last = start()
    assert last.wait() == 0, last.output()
    added = {shop: (n, ids) for shop, n, ids in run(world.dsn, "select shop, count(*), sum(id) from orders group by 1")}
    assert {shop: (n, ids) for shop, n, ids in world.query("select shop, n, ids from row_totals")} == added
    world.check_ledger(world.last_txid())
