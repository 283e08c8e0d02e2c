"""Tables of last rows on Postgres: audited with and without planted faults, and recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.conftest import FilledDatabase, copied, filled
from tests.kit.audited import Leader, select
from tests.kit.audits import Audited, findings
from txtopo import FileSpout, ReplaceCommitter, TopologyBuilder, UpsertCommitter
from txtopo.local.postgres import LocalPostgres
from txtopo.topology.components import Topology

pytestmark = pytest.mark.postgres


def shop(folder: Path) -> Topology:
    """Changes of orders, as they are read."""
    builder = TopologyBuilder("shop")
    fields = "id bigint, state string, step int, gone boolean"
    builder.set_spout("files", FileSpout(folder, fields, settled_s=0))
    orders = UpsertCommitter("orders", ["id"], version="step", deleted="gone")
    builder.set_committer_bolt("orders", orders).fields_grouping("files", ["id"])
    builder.set_committer_bolt("steps", ReplaceCommitter("steps", partition="step")).shuffle_grouping("files")
    return builder.build()


def write(folder: Path, number: int, *lines: str) -> None:
    (folder / f"{number}.csv").write_text("\n".join(["id,state,step,gone", *lines]) + "\n", encoding="utf-8")


def _fill(dsn: str, folder: Path) -> None:
    write(folder, 1, "1,new,1,", "2,new,1,", "3,new,1,")
    write(folder, 2, "1,paid,2,false", "2,,9,true")
    write(folder, 3, "2,late,3,", "3,sent,2,", "3,sent,3,")
    with closing(Leader(dsn, shop(folder))) as leader:
        leader.cut()
        write(folder, 2, "1,paid,1,", "2,,9,true")
        leader.redo(2)


@pytest.fixture(scope="module")
def filled_with_orders_of_a_shop(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FilledDatabase]:
    """See `shopped`."""
    with filled(postgres_server, migrated_template, tmp_path_factory.mktemp("shop"), _fill) as database:
        yield database


@pytest.fixture
def shopped(
    postgres_server: LocalPostgres,
    filled_with_orders_of_a_shop: FilledDatabase,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Audited]:
    """Three files; batch 4 redoes batch 2 after its file was corrected."""
    with copied(postgres_server, filled_with_orders_of_a_shop, capsys, monkeypatch) as database:
        yield database


def test_the_table_has_the_last_rows_and_the_audit_agrees(shopped: Audited) -> None:
    """Promise: after a recompute the table is what a rebuild from the corrected files would be."""
    assert select(shopped.dsn, "select id, state, step from orders order by id") == [(1, "paid", 1), (3, "sent", 3)]
    assert select(shopped.dsn, "select txid, origin, count(*) from orders_log group by 1, 2 order by 1") == [
        (1, 1, 3),
        (3, 3, 3),
        (4, 2, 2),
    ]
    assert select(shopped.dsn, "select step, id, state, txid from steps order by step, id") == [
        (1, 1, "paid", 4),
        (2, 3, "sent", 3),
        (3, 2, "late", 3),
        (3, 3, "sent", 3),
        (9, 2, None, 4),
    ]
    code, report = shopped.audit(topology="shop")
    assert report["findings"] == []
    assert (code, report["verdict"]) == (0, "MATCH")


FAULTS = {
    "last row changed": ("target.keys", "update orders set state = 'x' where id = 1"),
    "last row removed": ("target.keys", "delete from orders where id = 1"),
    "deleted row brought back": ("target.keys", "insert into orders values (2, 'late', 3, null)"),
    "row of the log changed": ("contributions.rows", "update orders_log set state = 'x' where (txid, n) = (1, 3)"),
    "row of the log moved": ("contributions.rows", "update orders_log set txid = 4, n = 9 where (txid, n) = (1, 3)"),
    "row of a partition changed": ("target.keys", "update steps set state = 'x' where (txid, n) = (3, 1)"),
    "row of a partition removed": ("target.keys", "delete from steps where (txid, n) = (3, 1)"),
    "row of an earlier batch back": (
        "target.keys",
        "insert into steps select txid, n, id, state, step, gone from steps_log where txid = 1 limit 1",
    ),
    "log gone": ("contributions.rows", "drop table orders_log"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_in_a_table_of_last_rows_is_mismatch(shopped: Audited, name: str) -> None:
    """Promise: whatever was changed in the table or in its log, the audit says MISMATCH."""
    check, statement = FAULTS[name]
    shopped.plant(statement)

    code, report = shopped.audit("--no-recount", topology="shop")

    assert (code, report["verdict"]) == (1, "MISMATCH")
    assert check in {one["check"] for one in findings(report)}, report["findings"]
