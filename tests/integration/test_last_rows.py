"""Tables of last rows on Postgres: audited with and without planted faults, and recomputed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.integration.conftest import FilledDatabase, copied, filled
from tests.kit.audited import Leader, run_batches, select
from tests.kit.audits import Audited, findings
from txtopo import AppendCommitter, FileSpout, NewIds, ReplaceCommitter, TopologyBuilder, UpsertCommitter
from txtopo.cli import main
from txtopo.committers.postgres.upsert_rows import PostgresUpsert
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


def test_rows_that_a_committer_passes_on_are_stored_in_each_way(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promise: downstream of `NewIds` each table has the rows whose id is new, made in the commit of their batch; and
    the audit agrees.
    """
    with closing(psycopg2.connect(database)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("create table seen (id bigint primary key)")
    builder = TopologyBuilder("changes")
    builder.set_spout("files", FileSpout(tmp_path, "id bigint, name string, step int", settled_s=0))
    new = NewIds("seen", "id", "id bigint, name string, step int")
    builder.set_committer_bolt("new", new).fields_grouping("files", ["id"])
    builder.set_committer_bolt("every", AppendCommitter("every")).shuffle_grouping("new")
    last = UpsertCommitter("last", ["name"], version="step")
    builder.set_committer_bolt("last", last).fields_grouping("new", ["name"])
    builder.set_committer_bolt("days", ReplaceCommitter("days", partition="step")).shuffle_grouping("new")
    for number, lines in enumerate((["1,a,5", "2,b,1", "1,x,9"], ["1,a,7", "3,a,4", "4,b,1"], ["2,z,1"]), 1):
        (tmp_path / f"{number}.csv").write_text("\n".join(["id,name,step", *lines]) + "\n", encoding="utf-8")

    assert run_batches(database, builder.build()) == 3

    ids = select(database, "select txid, id from every order by 1, 2")
    assert ids == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert select(database, "select id, name, step from last order by 1") == [(1, "a", 5), (4, "b", 1)]
    days = [(1, "a", 5, 1), (3, "a", 4, 2), (4, "b", 1, 2)]
    assert select(database, "select id, name, step, txid from days order by 1") == days
    capsys.readouterr()
    main(("audit", "changes", "--dsn", database, "--no-recount", "--json"))
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_a_last_row_is_traced_to_the_batches_of_its_key(shopped: Audited, capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: each row of the log with batch and files, and whether the last of them is the row; also of a key that
    was deleted, and of one that nobody has brought.
    """

    def traced(*key: str) -> tuple[int, Any]:
        code = main(("trace", "shop", "--table", "orders", "--json", *key))
        said = capsys.readouterr().out
        return code, json.loads(said) if said else None

    code, found = traced("--key", "1")
    assert (code, found["verdict"], found["count"]) == (0, "MATCH", 2)
    assert found["row"] == found["sums"] == {"state": "paid", "step": "1", "gone": None}
    rows = [
        (one["txid"], one["numbers"]["state"], one["paths"][0].rpartition("/")[2]) for one in found["contributions"]
    ]
    assert rows == [(1, "new", "1.csv"), (4, "paid", "2.csv")]
    code, found = traced("--key", "id=2")
    assert (code, found["row"], found["sums"], found["count"]) == (0, None, None, 3)
    assert traced("--key", "4") == (1, None)
    shopped.plant("update orders set state = 'x' where id = 1", "insert into orders values (2, 'late', 3, null)")
    for key, last in (("1", "the row state paid, step 1, gone -"), ("2", "no row")):
        assert main(("trace", "--table", "orders", "--key", key)) == 1
        assert f"MISMATCH  its log leaves {last}" in capsys.readouterr().out
    assert main(("trace", "--table", "steps", "--key", "step=1")) == 3


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


def log_rows_read(dsn: str, topology: Topology, committer: str, txid: int) -> int:
    """How many rows of the log the statement reads that sets the rows of a batch's keys."""
    (component,) = (one for one in topology.committers if one.name == committer)
    fold = PostgresUpsert(component)._fold
    values = {"first": txid, "last": txid, "reverses": None, "topology": "shop", "committer": committer}
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("analyze")
        cursor.execute(f"explain (analyze, format json) {fold}", values)
        (plans,) = cursor.fetchone() or ([],)
        connection.rollback()
    nodes, read = [plans[0]["Plan"]], 0
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node.get("Relation Name") == f"{committer}_log" and "Scan" in node["Node Type"]:
            read += (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return int(read)


def test_a_commit_does_not_read_what_came_before_of_its_keys(database: str, tmp_path: Path) -> None:
    """A key with 5,000 rows, and a partition that five batches replaced: the log grows, the work of a commit not."""
    topology = shop(tmp_path)
    for number in range(1, 6):
        rows = (f"1,new,{step}," for step in range(1000 * number, 1000 * number + 1000))
        write(tmp_path, number, *rows, *(f"{step},new,7," for step in range(2, 1000)))
    write(tmp_path, 6, "1,late,3,", "1,later,9000,", "5,new,7,")
    assert run_batches(database, topology) == 6

    assert select(database, "select state, step from orders where id = 1") == [("later", 9000)]
    assert select(database, "select id, txid from steps where step = 7") == [(5, 6)]
    assert 3 <= log_rows_read(database, topology, "orders", 6) <= 3 + 2 * 2
    assert 3 <= log_rows_read(database, topology, "steps", 6) <= 3 + 3 * 2 + 3
