"""`txtopo audit` where committers were added later and filled: MATCH as it is, MISMATCH with a fault."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.audited import Leader, run_batches, select
from tests.kit.audits import Audited, findings
from tests.kit.orders import write_orders
from txtopo.cli import main
from txtopo.committers.append_committer import AppendCommitter
from txtopo.committers.count_committer import CountCommitter
from txtopo.topology.components import Topology

LATER = b"d" * 32
"""Code with the committers that were added."""


def with_added(folder: Path) -> Topology:
    """The topology of orders with two committers more."""
    topology = orders_topology(folder)
    first = topology.committers[0]
    by_shop = CountCommitter("shop_totals", ["shop"], count="rows", sums=["pieces"])
    added = (
        replace(first, name="by_shop", bolt=by_shop),
        replace(first, name="log", bolt=AppendCommitter("order_log")),
    )
    return replace(topology, committers=(*topology.committers, *added))


@pytest.fixture
def audited(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Audited:
    """Batches 1 to 3 by one committer, 4 by three; then 1 to 3 are counted into the others, and 2 is recomputed."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    write_orders(folder, 3)
    assert run_batches(database, orders_topology(folder)) == 3
    write_orders(folder, 1, first=4)
    with closing(Leader(database, with_added(folder), code_hash=LATER)) as leader:
        leader.cut()
        assert [leader.backfill(txid, "by_shop") for txid in (1, 2, 3)] == [5, 6, 7]
        assert [leader.backfill(txid, "log") for txid in (1, 2)] == [8, 9]
        assert leader.redo(2) == 10
    return Audited(database, folder, capsys)


def test_the_reading_commands_name_what_a_backfill_counts(audited: Audited, capsys: pytest.CaptureFixture[str]) -> None:
    """Both the backfill and the batch that it counts; a row says which batch its contribution is of."""

    def said(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    assert "1 into by_shop" in said("batches", "orders", "5")
    listed = json.loads(said("batches", "orders", "4..6", "--json"))["batches"]
    assert [(one["backfills"], one["committer"]) for one in listed] == [(2, "by_shop"), (1, "by_shop"), (None, None)]
    batch = said("show", "orders", "1")
    assert "counted   into committer by_shop by batch 5, committed" in batch
    assert "counted   into committer log by batch 8, committed" in batch
    assert "backfills batch 1, into committer by_shop" in said("show", "orders", "5")
    events = said("events", "orders", "1").splitlines()
    filled = [line for line in events if "counts batch 1 into committer " in line]
    assert [line.split(" committer ")[1].split(";")[0] for line in filled] == ["by_shop", "log"]
    shop = select(audited.dsn, "select shop from shop_totals where shop is not null order by shop limit 1")[0][0]
    trace = said("trace", "orders", "--table", "shop_totals", "--key", f"shop={shop}")
    assert "backfills 1" in trace and "backfills 3" in trace and "MATCH" in trace


def test_what_was_filled_matches_and_each_fault_is_found(audited: Audited) -> None:
    """The same recount as of every batch, in both committers; batch 3 is still missing in the log, and said so."""
    code, report = audited.audit()

    assert findings(report) == [] == findings(report, "UNVERIFIED")
    assert (code, report["verdict"]) == (0, "MATCH")
    tables = select(audited.dsn, "select sum(rows) from shop_totals union all select sum(rows) from order_totals")
    assert tables[0] == tables[1]
    [(logged, counted)] = select(
        audited.dsn,
        "select (select count(*) from order_log), (select sum(arrived) from txtopo.committer_count where committer = "
        "'totals' and txid in (1, 4, 10))",
    )
    assert logged == counted

    for statement, check in (
        ("update shop_totals set rows = rows + 1 where shop is not null", "target.keys"),
        ("delete from order_log where txid = 8", "contributions.rows"),
        ("update txtopo.ledger set backfills = 4 where txid = 5", "ledger.seal"),
        ("update txtopo.ledger set committer = 'log' where txid = 5", "redo.chain"),
        (
            (
                "insert into txtopo.committer_count select topology, 1, committer, arrived, counted, results, written, "
                "ignored, reversed, digest from txtopo.committer_count where txid = 5"
            ),
            "redo.chain",
        ),
    ):
        audited.plant(statement)
        code, report = audited.audit()
        assert code == 1, statement
        assert check in {one["check"] for one in findings(report)}, (statement, findings(report))
