"""Tables read by tasks of Spark, and by one driver after another on the real stores."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.kit.audits import Audited
from tests.kit.driver import in_process
from tests.kit.tables import ORDERS, VARIABLE, orders, run
from txtopo import CountCommitter, TopologyBuilder
from txtopo.app import drive
from txtopo.config import load_settings
from txtopo.local.processes import wait_until
from txtopo.spouts.table import pieced_spout
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Topology

SECRET = "s3cret-canary"
ADD = "insert into orders (shop, price) select 'shop ' || n % 3, n from generate_series(1, 10) n"


def counted(**settings: Any) -> Topology:
    """Orders by shop."""
    builder = TopologyBuilder("orders")
    builder.set_spout("rows", orders(**settings))
    committer = CountCommitter("totals", ["shop"], count="orders", sums={"price": "turnover"})
    builder.set_committer_bolt("by_shop", committer).fields_grouping("rows", ["shop"])
    return builder.build()


def expected(dsn: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The same by SQL."""
    rows = run(dsn, "select shop, count(*), sum(price) from orders group by shop")
    return {(shop,): (number, turnover) for shop, number, turnover in rows}


def test_rows_are_read_by_spark_tasks_and_the_password_is_nowhere(
    spark_session: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces and waves; each host finds the connection string in its own environment."""
    monkeypatch.setattr(pieced_spout, "PIECE_ROWS", 2)
    dsn = database.replace("//postgres@", f"//postgres:{SECRET}@")
    monkeypatch.setenv(VARIABLE, dsn)
    monkeypatch.setitem(spark_session.sparkContext.environment, VARIABLE, dsn)
    run(database, ORDERS)
    with TopologyHarness(counted(max_rows=7), session=spark_session, once=False) as harness:

        def is_counted() -> bool:
            """Rows wait until the server has written its log: one run may find none of them."""
            harness.run()
            return harness.table("totals") == expected(database)

        for _ in range(3):
            run(database, ADD)
            assert wait_until(is_counted, 60)
    assert len(harness.batches) > 3
    assert SECRET not in str(harness.batches)
    assert SECRET not in str(spark_session.sparkContext.getConf().getAll())


def test_one_driver_after_another_counts_a_table(
    audited: Audited, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run ends with what was there when it began; a role without a place in the stores reads the table."""
    monkeypatch.setenv(VARIABLE, audited.dsn)
    run(audited.dsn, ORDERS)
    flags: dict[str, Any] = {"once": True, "dsn": audited.dsn, "zookeeper": zookeeper_root, "quiet": True}
    settings = load_settings(flags, cwd=Path.cwd(), environment={}, target=None)
    for _ in range(2):
        run(audited.dsn, ADD)
        run(audited.dsn, ADD)
        assert drive(counted(max_rows=6), "orders.py:topology", settings, in_process) == 0
    rows = run(audited.dsn, "select shop, orders, turnover from public.totals")
    assert {(shop,): (number, Decimal(turnover)) for shop, number, turnover in rows} == expected(audited.dsn)
    code, report = audited.audit()
    assert (code, report["verdict"]) == (0, "MATCH"), report["findings"]
