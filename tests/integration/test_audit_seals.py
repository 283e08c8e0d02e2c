"""Seals of both versions: old rows stay verifiable after the migration, new ones cover more, and books that come late
break none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests import kit
from tests.kit.applications import orders_topology
from tests.kit.audited import Leader, behind_the_back, select
from tests.kit.audits import Audited, findings
from tests.kit.filled_ledger import FilledLedger
from tests.kit.orders import write_orders
from txtopo.audit.made_schema import migrations
from txtopo.cli import main
from txtopo.committers.postgres.migrate import migrate
from txtopo.core.plan import Plan
from txtopo.core.values import TransactionAttempt
from txtopo.ports import AttemptStart

BEFORE = "0005"
"""The last revision whose seals are of version 1."""


RELEASED = "0003"
"""The last revision of release 0.1.0, of which `release_0_1_0.sql` is."""


def schema_before(dsn: str, revision: str = BEFORE) -> None:
    """Schema txtopo as it was at that revision."""
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "create schema txtopo; create table txtopo.schema_version (version_num varchar(32) primary key not null)"
        )
        for name, sql in migrations():
            if name[:4] <= revision:
                cursor.execute(sql)
        cursor.execute("insert into txtopo.schema_version values (%s)", (revision,))


@contextmanager
def with_steps_of_today(dsn: str) -> Iterator[None]:
    """What a driver of today uses in a commit, functions and columns, in a schema of before; gone afterwards."""
    made = "\n".join(sql for name, sql in migrations() if name[:4] > BEFORE)
    steps = list(re.finditer(r"create function (txtopo\.(?:finish_run|run_obstacles)).*?end \$\$;", made, re.DOTALL))
    columns = (
        "alter table txtopo.rejected_row add column unit text",
        "alter table txtopo.ledger add column backfills bigint, add column committer text",
    )
    behind_the_back(dsn, *(step[0] for step in steps), *columns)
    yield
    dropped = [f"drop function {step[1]}" for step in steps]
    columns = (
        "alter table txtopo.rejected_row drop column unit",
        "alter table txtopo.ledger drop column backfills, drop column committer",
    )
    behind_the_back(dsn, *dropped, *columns)


@pytest.fixture
def upgraded(
    empty_database: str, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Audited:
    """Four batches before the migration: one failed first, one is quarantined and redone."""
    monkeypatch.setenv("TXTOPO_DSN", empty_database)
    folder = tmp_path / "in"
    folder.mkdir()
    schema_before(empty_database)
    write_orders(folder, 3)
    with (folder / "order_0001.csv").open("a") as out:
        out.write("no/such,price\n")
    with with_steps_of_today(empty_database), closing(Leader(empty_database, orders_topology(folder))) as leader:
        leader.cut(fail_first=True, quarantined={2: "its supplier withdrew it"})
        assert leader.redo(2, "redrive") == 4
    assert migrate(empty_database)
    return Audited(empty_database, folder, capsys)


def test_seals_of_before_the_migration_stay_verifiable_and_those_behind_them_cover_more(upgraded: Audited) -> None:
    """Promise: an upgrade breaks no seal, the genesis included; the audit says which rows are covered by the old one."""  # noqa: E501
    write_orders(upgraded.folder, 5)
    before = select(upgraded.dsn, "select seal from txtopo.ledger order by txid")
    with closing(Leader(upgraded.dsn, orders_topology(upgraded.folder), code_hash=b"n" * 32)) as leader:
        leader.cut()

    code, report = upgraded.audit("--no-recount")

    assert (code, report["findings"]) == (0, [])
    assert [row[0] for row in select(upgraded.dsn, "select seal_version from txtopo.ledger order by txid")] == [
        1,
        1,
        1,
        1,
        1,
        2,
        2,
    ]
    assert select(upgraded.dsn, "select seal from txtopo.ledger where txid <= 4 order by txid") == before
    (said,) = (one for one in report["by_design"] if one["check"] == "ledger.seal")
    assert (said["batches"], "first release" in said["reason"]) == (4, True)
    assert select(upgraded.dsn, "select number, epoch from txtopo.description order by number") == [(1, None), (2, 2)]
    assert select(upgraded.dsn, "select number from txtopo.action order by action_id") == [(1,), (2,)]


class Retrying(Leader):
    """Attempts 0 to 2 of its batches failed under an earlier release, or were never made."""

    def _commit(self, plan: Plan, metadata: Any, attempt: TransactionAttempt) -> None:
        super()._commit(plan, metadata, TransactionAttempt(plan.txid, 3 if plan.txid == 7 else attempt.attempt))


def test_a_database_of_the_first_release_is_whole_after_the_migration(
    empty_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: rows that release 0.1.0 wrote keep their seals, plans and orders, are read by every command, and the
    next batches follow them.
    """
    monkeypatch.setenv("TXTOPO_DSN", empty_database)
    schema_before(empty_database, RELEASED)
    with closing(psycopg2.connect(empty_database)) as connection, connection, connection.cursor() as cursor:
        cursor.execute((Path(kit.__file__).parent / "release_0_1_0.sql").read_text())
    before = select(empty_database, "select txid, seal from txtopo.ledger order by txid")

    assert migrate(empty_database) == ["0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012"]

    released = Audited(empty_database, tmp_path / "in", capsys)
    code, report = released.audit("--no-recount")
    assert (code, report["findings"], report["committed_txid"], report["holes"]) == (0, [], 6, [])
    assert select(empty_database, "select txid, seal from txtopo.ledger order by txid") == before
    shown = {}
    for txid in range(1, 8):
        assert main(("show", "orders", str(txid), "--json")) == 0
        shown[txid] = json.loads(capsys.readouterr().out)
    assert [one["plan_problem"] for one in shown.values()] == [None] * 7
    assert [len(one["files"]) for one in shown.values()] == [1] * 6 + [0]
    assert [(one["redo_of"], one["state"]) for one in shown.values()] == [
        (None, "committed"),
        (None, "committed"),
        (None, "quarantined"),
        (None, "committed"),
        (3, "committed"),
        (1, "committed"),
        (None, "failed"),
    ]
    assert main(("status", "orders", "--json")) == 1
    (status,) = json.loads(capsys.readouterr().out)["topologies"]
    assert (status["state"], status["failed_txids"], status["open_order_count"], status["rejected"]) == (
        "HALTED",
        [7],
        1,
        1,
    )

    write_orders(released.folder, 2)
    with closing(Retrying(empty_database, orders_topology(released.folder), code_hash=b"n" * 32)) as leader:
        leader.cut()
    code, report = released.audit("--no-recount")

    assert (code, report["findings"], report["committed_txid"]) == (0, [], 8)
    assert [row[0] for row in select(empty_database, "select seal_version from txtopo.ledger order by txid")] == [
        1
    ] * 7 + [2] * 2


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("update txtopo.ledger set read = read + 1 where txid = 3", "ledger.seal"),
        ("update txtopo.action set actor = 'eve' where number = 1", "actions.chain"),
        ("update txtopo.description set code_hash = sha256('x')", "topology.described"),
        ("update txtopo.topology set description = '{}'", "topology.described"),
    ],
)
def test_what_is_changed_of_before_the_migration_is_found(upgraded: Audited, fault: str, check: str) -> None:
    """Promise: what the old seals covered they cover; the log and the description are sealed as they were when the
    schema was migrated.
    """
    assert upgraded.audit("--no-recount")[0] == 0
    upgraded.plant(fault)

    code, report = upgraded.audit("--no-recount")

    assert (code, check in {one["check"] for one in findings(report)}) == (1, True)


def test_an_audit_before_the_migration_says_what_to_do(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promise: an old schema is a matter of usage: 2, with the command."""
    monkeypatch.setenv("TXTOPO_DSN", empty_database)
    schema_before(empty_database)
    with with_steps_of_today(empty_database), closing(FilledLedger(empty_database, "orders")) as ledger:
        ledger.batch(1)

    assert main(("audit", "orders")) == 2
    assert "txtopo migrate" in capsys.readouterr().err


class Late(Leader):
    """Its books of first attempts come only after the commit."""

    def _commit(self, plan: Plan, metadata: Any, attempt: TransactionAttempt) -> None:
        first = TransactionAttempt(plan.txid, 0)
        self._ledger.begin_attempts(self._lead, [AttemptStart(attempt=first)])
        super()._commit(plan, metadata, TransactionAttempt(plan.txid, 1))
        self._ledger.end_attempt(self._lead, first, "cancelled", None)


def test_an_attempt_that_ends_behind_the_commit_of_its_batch_breaks_no_seal(audited: Audited) -> None:
    """Promise: of an attempt that had not ended only the beginning is sealed; that one may not be changed."""
    write_orders(audited.folder, 2)
    with closing(Late(audited.dsn, orders_topology(audited.folder))) as leader:
        leader.cut()

    good, report = audited.audit("--no-recount")
    audited.plant("update txtopo.attempt set host = 'elsewhere' where (txid, attempt) = (2, 0)")
    wrong, after = audited.audit("--no-recount")

    assert (good, report["attempts"]) == (0, {"applied": 2, "cancelled": 2})
    assert select(audited.dsn, "select sealed_attempts::text from txtopo.ledger where txid = 2") == [
        ('[[0, "begun"], [1, "applied"]]',)
    ]
    assert (wrong, [(one["check"], one["txids"]) for one in after["findings"]]) == (1, [("ledger.seal", [2])])


def test_rows_are_sealed_in_their_order_only(audited: Audited) -> None:
    """Promise: the server seals no row beyond the next one, and none behind a row without a seal."""
    write_orders(audited.folder, 2)
    with closing(Leader(audited.dsn, orders_topology(audited.folder))) as leader:
        leader.cut()
    insert = (
        "insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, "
        "code_hash, state, reason, committers) "
        "select topology, {0}, {0} - 1, digest, sha256('x'), incarnation, epoch, 0, code_hash, 'quarantined', 'x', 0 "
        "from txtopo.ledger where txid = {1}"
    )
    with closing(psycopg2.connect(audited.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(insert.format(3, 2))
        with pytest.raises(psycopg2.Error, match="batch 4 is finished out of turn"):
            cursor.execute(insert.format(4, 3))
        connection.rollback()
        cursor.execute(
            "set local session_replication_role = replica; update txtopo.ledger set seal = null where txid = 2"
        )
        cursor.execute("set local session_replication_role = origin")
        with pytest.raises(psycopg2.Error, match="batch 3 is sealed before the one before it"):
            cursor.execute(insert.format(3, 2))
