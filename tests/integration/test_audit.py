"""The audit on a real database filled by real commits: it finds each planted fault, names the batch, and never confuses wrong with unknown."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from psycopg2 import sql

from tests.kit.applications import orders_topology
from tests.kit.audited import behind_the_back, fill, run_batches, select
from tests.kit.fix_postgres import execute_as_superuser
from tests.kit.orders import write_orders
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.cli import main

BATCHES = 6


class Audited:
    """Six batches of orders, committed, with the command line at hand."""

    def __init__(self, dsn: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.dsn = dsn
        self.folder = folder
        self._capsys = capsys

    def audit(self, *arguments: str, topology: str = "orders") -> tuple[int, Any]:
        """Exit code and JSON."""
        code = main(("audit", topology, "--json", *arguments))
        said = self._capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    def text(self, *arguments: str) -> tuple[int, str]:
        """Exit code and text."""
        code = main(("audit", "orders", *arguments))
        return code, self._capsys.readouterr().out

    def plant(self, *statements: str) -> None:
        """Change the database as a superuser can."""
        behind_the_back(self.dsn, *statements)

    def file(self, txid: int) -> Path:
        """The file of a batch."""
        return self.folder / f"order_{txid:04}.csv"


@pytest.fixture
def orders(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Audited:
    """A run without any fault."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    write_orders(folder, BATCHES)
    assert run_batches(database, orders_topology(folder)) == BATCHES
    return Audited(database, folder, capsys)


def findings(report: Any, verdict: str = "MISMATCH") -> list[Any]:
    return [one for one in report["findings"] if one["verdict"] == verdict]


def test_no_fault_is_match_and_0(orders: Audited) -> None:
    """Promise: no fault gives MATCH and 0; every check compared something."""
    code, report = orders.audit()

    assert report["findings"] == []
    assert (code, report["schema"], report["verdict"]) == (0, "txtopo.audit/1", "MATCH")
    assert [(one["txid"], one["verdict"]) for one in report["batches"]] == [(txid, "MATCH") for txid in range(1, BATCHES + 1)]  # fmt: skip
    idle = {check["name"] for check in report["checks"] if not check["comparisons"]}
    assert idle == set()
    assert [one["recounted"] for one in report["batches"]] == [20] * BATCHES
    assert [one["contributed"] for one in report["batches"]] == [{"totals": 20}] * BATCHES
    assert report["by_design"] == []


def test_phases_add_up_to_the_wall_time(orders: Audited) -> None:
    """Promise: timings by phase add up."""
    _, report = orders.audit("--no-recount")

    for batch in report["batches"]:
        assert set(batch["phases_s"]) == {"before", "processing", "turn and commit"}
        assert sum(batch["phases_s"].values()) == pytest.approx(batch["wall_s"])
        assert batch["wall_s"] > 0


FAULTS: dict[str, tuple[str, set[int], list[str]]] = {
    "target count": ("target.keys", {3}, ["update order_totals set rows = rows + 1 where shop is null and article = 'a1'"]),
    "target sum": ("target.keys", {1}, ["update order_totals set price = price + 0.01 where shop = 'shop 1' and article = 'a1'"]),
    "target row deleted": ("target.keys", {1}, ["delete from order_totals where shop = 'shop 1' and article = 'a1'"]),
    "target row added": ("target.keys", set(), ["insert into order_totals values ('shop 9', 'a1', 1, 1, 1)"]),
    "target truncated": ("target.keys", {1}, ["delete from order_totals"]),
    "count in table and contribution": (
        "contributions.rows", {2},
        ["update order_totals set rows = rows + 1 where shop = 'shop 1' and article = 'a1'",
         "update order_totals_contribution set rows = rows + 1 where txid = 2 and shop = 'shop 1' and article = 'a1'"],
    ),
    "sum in table and contribution": (
        "contributions.rows", {3},
        ["update order_totals set price = price + 5 where shop = 'shop 1' and article = 'a1'",
         "update order_totals_contribution set price = price + 5 where txid = 3 and shop = 'shop 1' and article = 'a1'"],
    ),
    "key swapped in table and contribution": (
        "contributions.rows", {2},
        ["update order_totals_contribution set article = 'zz' where txid = 2 and shop = 'shop 1' and article = 'a1'"],
    ),
    "contribution deleted": ("contributions.rows", {4}, ["delete from order_totals_contribution where txid = 4 and shop = 'shop 1' and article = 'a1'"]),
    "contribution added": ("contributions.rows", {5}, ["insert into order_totals_contribution values (5, null, 'shop 9', 'a1', 1, 1, 1)"]),
    "contribution taken back": ("contributions.rows", {5}, ["insert into order_totals_contribution values (5, 4, 'shop 9', 'a1', -1, -1, -1)"]),
    "contribution of no batch": ("contributions.known", {99}, ["insert into order_totals_contribution values (99, null, 'shop 9', 'a1', 0, 0, 0)"]),
    "contribution from before": ("contributions.known", {0}, ["insert into order_totals_contribution values (0, null, 'shop 1', 'a1', 0, 0, 0)"]),
    "ledger row edited": ("ledger.seal", {3}, ["update txtopo.ledger set attempt = 7 where txid = 3"]),
    "ledger numbers edited": ("ledger.seal", {3}, ["update txtopo.ledger set read = 21 where txid = 3"]),
    "last ledger row edited": ("ledger.seal", {6}, ["update txtopo.ledger set rejected = 1 where txid = 6"]),
    "ledger row quarantined": ("ledger.seal", {3}, ["update txtopo.ledger set state = 'quarantined', reason = 'x', committers = 0 where txid = 3"]),
    "seal edited": ("ledger.seal", {3}, ["update txtopo.ledger set seal = sha256('x') where txid = 3"]),
    "genesis row edited": ("ledger.chain", set(), ["update txtopo.ledger set digest = sha256('x') where txid = 0"]),
    "ledger row removed": ("ledger.gaps", {3}, ["delete from txtopo.ledger where txid = 3"]),
    "two ledger rows removed": ("ledger.gaps", {3, 4}, ["delete from txtopo.ledger where txid in (3, 4)"]),
    "first ledger row removed": ("ledger.gaps", {1}, ["delete from txtopo.ledger where txid = 1"]),
    "last ledger row removed": ("ledger.gaps", {6}, ["delete from txtopo.ledger where txid = 6"]),
    "whole ledger removed": ("ledger.gaps", {1, 6}, ["delete from txtopo.ledger"]),
    "genesis row removed": ("ledger.gaps", set(), ["delete from txtopo.ledger where txid = 0"]),
    "last batch hidden": (
        "contributions.known", {6},
        ["delete from txtopo.ledger where txid = 6", "update txtopo.fence set last_txid = 5"],
    ),
    "fence row removed": ("ledger.gaps", set(), ["delete from txtopo.fence"]),
    "fence ahead": ("ledger.gaps", {900000000000}, ["update txtopo.fence set last_txid = 900000000000"]),
    "two batches swapped in time": (
        "ledger.order", {3},
        ["update txtopo.ledger set committed_at = committed_at + interval '1 h' where txid = 2"],
    ),
    "last batch moved in time": ("ledger.order", {6}, ["update txtopo.ledger set committed_at = committed_at + interval '1 h' where txid = 6"]),
    "planning moved in time": ("ledger.order", {4}, ["update txtopo.ledger set planned_at = planned_at - interval '1 s' where txid = 4"]),
    "epoch goes back": ("ledger.epochs", {4}, ["update txtopo.ledger set epoch = 9 where txid = 3"]),
    "other incarnation": ("ledger.epochs", {4}, ["update txtopo.ledger set incarnation = gen_random_uuid() where txid = 4"]),
    "chain cut": ("ledger.chain", {4}, ["update txtopo.ledger set prev_digest = sha256('x') where txid = 4"]),
    "counts edited": ("ledger.seal", {2}, ["update txtopo.committer_count set arrived = 21, counted = 21 where txid = 2"]),
    "digest of counts edited": ("contributions.rows", {2}, ["update txtopo.committer_count set digest = digest + 1 where txid = 2"]),
    "counts removed": ("ledger.counts", {2}, ["delete from txtopo.committer_count where txid = 2"]),
    "counts of no batch": ("ledger.gaps", {77}, ["insert into txtopo.committer_count values ('orders', 77, 'totals', 1, 1, 1, 1, 0, 0, 1)"]),
    "edges edited": ("ledger.seal", {2}, ["update txtopo.edge_count set sent = 19, received = 19 where txid = 2"]),
    "edges removed": ("ledger.seal", {2}, ["delete from txtopo.edge_count where txid = 2"]),
    "plan bytes edited": ("plan.digest", {5}, ["update txtopo.plan set bytes = bytes || ' ' where txid = 5"]),
    "plan bytes and digest edited": ("plan.digest", {5}, ["update txtopo.plan set bytes = bytes || ' ', digest = sha256(bytes || ' ') where txid = 5"]),
    "plan removed": ("plan.digest", {5}, ["delete from txtopo.plan where txid = 5"]),
    "consumed file forgotten": ("plan.files", {5}, ["delete from txtopo.source_file where txid = 5"]),
    "consumed file edited": ("plan.files", {5}, ["update txtopo.source_file set fingerprint = sha256('x') where txid = 5"]),
    "attempt edited": ("ledger.attempts", {5}, ["update txtopo.attempt set state = 'failed', kind = 'data', message = 'x' where txid = 5"]),
    "attempt removed": ("ledger.attempts", {5}, ["delete from txtopo.attempt where txid = 5"]),
    "target handed to another": ("target.keys", set(), ["update txtopo.target set committer = 'else'"]),
    "target table dropped": ("target.keys", set(), ["drop table order_totals"]),
    "contribution table dropped": ("contributions.rows", set(), ["drop table order_totals_contribution"]),
}  # fmt: skip
"""Name -> the check that has to find it, txids that have to be named, what to do."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_mismatch_and_1_and_named(orders: Audited, name: str) -> None:
    """Promise: each planted fault gives MISMATCH and 1 and names the txid, also without the recount."""
    check, txids, statements = FAULTS[name]
    orders.plant(*statements)

    code, report = orders.audit("--no-recount")
    _, text = orders.text("--no-recount")

    found = [one for one in findings(report) if one["check"] == check]
    assert (code, report["verdict"]) == (1, "MISMATCH")
    assert found
    assert txids <= {txid for one in found for txid in one["txids"]}
    assert text.splitlines()[0].startswith("orders  MISMATCH")
    assert text.splitlines()[2].startswith("MISMATCH")
    batches = {one["txid"]: one["verdict"] for one in report["batches"]}
    assert all(batches[txid] == "MISMATCH" for txid in txids if txid in batches)


def test_a_batch_that_is_right_stays_match_beside_a_wrong_one(orders: Audited) -> None:
    """Promise: for each batch a verdict of its own."""
    orders.plant(
        "delete from order_totals_contribution where txid = 4", "update txtopo.ledger set reason = 'x' where txid = 2"
    )

    _, report = orders.audit("--no-recount")

    seals = [one["txids"] for one in findings(report) if one["check"] == "ledger.seal"]
    rows = {txid for one in findings(report) if one["check"] == "contributions.rows" for txid in one["txids"]}
    assert (seals, rows) == ([[2]], {4})


def test_a_difference_names_key_and_contributing_batches(orders: Audited) -> None:
    """Promise: target differences name key and txids, NULL keys included."""
    orders.plant("update order_totals set pieces = pieces + 3 where shop is null and article = 'a0'")
    txids = [row[0] for row in select(orders.dsn, "select txid from order_totals_contribution where shop is null and article = 'a0' order by txid")]  # fmt: skip

    code, text = orders.text("--no-recount")

    assert code == 1
    assert "key shop NULL, article 'a0': the table has" in text
    assert f"(batches {', '.join(map(str, txids))})" in text


def test_every_batch_that_contributed_to_a_wrong_key_is_mismatch_however_many(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: ten are named, the rest is counted, and no batch behind a wrong number passes for right."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    fill(database, orders_topology(tmp_path), batches=30, keys=2)
    behind_the_back(database, "update order_totals set rows = rows + 1 where shop = 'shop 1'")
    audited = Audited(database, tmp_path, capsys)

    code, report = audited.audit("--no-recount")

    assert (code, {one["verdict"] for one in report["batches"]}) == (1, {"MISMATCH"})
    assert report["findings"][0]["txids"] == list(range(1, 11))
    assert "9, 10 and 20 more)" in report["findings"][0]["message"]


def test_a_source_altered_after_its_commit_is_1(orders: Audited) -> None:
    """Promise: content changed gives MISMATCH naming file and both fingerprints."""
    before = orders.file(3).read_bytes()
    orders.file(3).write_bytes(before.replace(b"shop 1", b"shop 2", 1))

    code, report = orders.audit()
    planned = select(orders.dsn, "select encode(fingerprint, 'hex') from txtopo.source_file where txid = 3")[0][0]

    (found,) = findings(report)
    assert (code, found["check"], found["txids"]) == (1, "source.content", [3])
    assert str(orders.file(3)) in found["message"]
    assert found["message"].count("sha256") == 2
    assert planned in found["message"]


def test_a_touch_is_no_change(orders: Audited) -> None:
    """Promise: where `stat` differs the content decides."""
    os.utime(orders.file(3), (1, 1))

    assert orders.audit()[0] == 0


@pytest.mark.parametrize("how", ["gone", "folder", "fifo"])
def test_a_source_that_cannot_be_read_is_unverified_and_3(orders: Audited, how: str) -> None:
    """Promise: could not find out is 3, the batch named, and never blocks."""
    orders.file(2).unlink()
    if how == "folder":
        orders.file(2).mkdir()
    if how == "fifo":
        os.mkfifo(orders.file(2))

    code, report = orders.audit()
    without, _ = orders.audit("--no-recount")

    assert (code, report["verdict"], without) == (3, "UNVERIFIED", 0)
    assert [one["txids"] for one in findings(report, "UNVERIFIED")] == [[2]]
    assert [one["verdict"] for one in report["batches"]] == ["MATCH", "UNVERIFIED", *["MATCH"] * 4]


def test_wrong_wins_over_unknown(orders: Audited) -> None:
    """Promise: both gives 1, and the text begins with what is wrong."""
    orders.file(2).unlink()
    orders.plant("delete from order_totals_contribution where txid = 4")

    code, text = orders.text()

    verdicts = [line.split()[0] for line in text.split("\n\n")[1].splitlines()]
    assert code == 1
    assert text.startswith("orders  MISMATCH")
    assert verdicts == sorted(verdicts)
    assert verdicts[-1] == "UNVERIFIED"


def test_edits_that_fit_each_other_are_found_in_the_source(orders: Audited) -> None:
    """Promise: the source is counted again; numbers that agree among themselves prove nothing."""
    orders.plant(
        "update order_totals set price = price + 5 where shop = 'shop 1' and article = 'a1'",
        "update order_totals_contribution set price = price + 5 where txid = 3 and shop = 'shop 1' and article = 'a1'",
        "update txtopo.committer_count set digest = (select sum(('x' || encode(substring(sha256(convert_to(row(shop, article, rows, pieces, price)::text, 'UTF8')) "
        "for 8), 'hex'))::bit(64)::bigint) from order_totals_contribution where txid = 3) where txid = 3",
        "alter table txtopo.ledger disable trigger final",
        "alter table txtopo.ledger disable trigger complete",
        "set local session_replication_role = origin",
        *(f"update txtopo.ledger set reason = reason where txid = {txid}" for txid in range(3, BATCHES + 1)),
    )

    without, _ = orders.audit("--no-recount")
    code, report = orders.audit()

    assert (without, code) == (0, 1)
    assert {(one["check"], *one["txids"]) for one in findings(report)} == {("source.keys", 3)}
    assert "key shop 'shop 1', article 'a1'" in findings(report)[0]["message"]

    orders.plant("update txtopo.topology set code_hash = sha256('other')")

    code, report = orders.audit()
    assert (code, report["verdict"]) == (3, "UNVERIFIED")
    assert [(one["check"], one["txids"]) for one in report["findings"]] == [("source.keys", [3])]


@pytest.mark.parametrize(
    "fault", ["", "delete from txtopo.plan_part", "update txtopo.plan_part set bytes = '{}', digest = sha256('{}')"]
)
def test_a_file_list_in_a_piece_of_its_own_is_read_and_checked(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Promise: metadata too long for a plan is part of its chain."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    write_orders(tmp_path / "in", 3)
    run_batches(database, orders_topology(tmp_path / "in", files_per_batch=3), in_pieces=True)
    if fault:
        behind_the_back(database, fault)

    code, report = Audited(database, tmp_path, capsys).audit()

    assert (code, {(one["check"], *one["txids"]) for one in report["findings"]}) == (
        (1, {("plan.digest", 1)}) if fault else (0, set())
    )
    assert report["batches"][0]["recounted"] == (None if fault else 60)


def test_an_expired_plan_is_listed_and_changes_no_exit_code(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: retention removes plans behind the last ten; the audit lists them."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    write_orders(tmp_path / "in", 12, rows=2)
    run_batches(database, orders_topology(tmp_path / "in"))
    behind_the_back(database, "delete from txtopo.plan where txid <= 2")

    code, report = Audited(database, tmp_path, capsys).audit()

    assert (code, report["findings"]) == (0, [])
    assert {(one["check"], one["batches"]) for one in report["by_design"]} == {
        ("plan.digest", 2),
        ("source.content", 2),
    }


def test_failed_attempts_are_listed_with_their_errors(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: attempts with their errors, counts of attempts."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    write_orders(tmp_path / "in", 2)
    run_batches(database, orders_topology(tmp_path / "in"), fail_first=True)

    code, report = Audited(database, tmp_path, capsys).audit()

    assert code == 0
    assert report["attempts"] == {"applied": 2, "failed": 2}
    assert [(one["txid"], one["attempt"], one["kind"], one["position"], one["message"]) for one in report["failures"]] == [
        (1, 0, "data", "in.csv:7", "a bad line"), (2, 0, "data", "in.csv:7", "a bad line")
    ]  # fmt: skip
    assert [one["attempts"] for one in report["batches"]] == [2, 2]


@pytest.mark.parametrize(
    ("wanted", "txids"),
    [("3", [3]), ("2..4", [2, 3, 4]), ("5..", [5, 6]), ("..2", [1, 2]), ("1..6", [1, 2, 3, 4, 5, 6])],
)
def test_a_range_is_audited_with_its_links_to_both_sides(orders: Audited, wanted: str, txids: list[int]) -> None:
    """Promise: RANGE; the target is compared as a whole all the same."""
    code, report = orders.audit(wanted)
    orders.plant("update order_totals set rows = rows + 1 where shop = 'shop 1' and article = 'a1'")
    wrong, _ = orders.audit(wanted)

    assert (code, wrong) == (0, 1)
    assert [one["txid"] for one in report["batches"]] == txids


def test_a_fault_outside_the_range_does_not_show(orders: Audited) -> None:
    """Promise: a range says nothing about other batches."""
    orders.plant("update txtopo.ledger set reason = 'x' where txid = 5")

    assert [orders.audit(wanted)[0] for wanted in ("1..4", "6", "5", "..5", "") if wanted] == [0, 0, 1, 1]


@pytest.mark.parametrize("arguments", [("orders", "7"), ("orders", "7.."), ("orders", "0..9"), ("orders", "4..3"), ("orders", "x"), ("ordres",)])  # fmt: skip
def test_what_does_not_exist_is_2_and_never_1(
    orders: Audited, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """Promise: 1 means that the data is wrong, nothing else."""
    code = main(("audit", *arguments))

    assert (code, capsys.readouterr().out) == (2, "")


def test_postgres_away_is_3(orders: Audited) -> None:
    """Promise: could not find out."""
    code, said = orders.audit("--dsn", "postgresql://me:hush@127.0.0.1:9/nowhere")

    assert code == 3
    assert "hush" not in said


def test_a_topology_without_batches_matches(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: nothing committed is nothing wrong."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    (tmp_path / "in").mkdir()
    run_batches(database, orders_topology(tmp_path / "in"))

    code, report = Audited(database, tmp_path, capsys).audit()

    assert (code, report["batches"]) == (0, [])


@pytest.fixture
def reader(orders: Audited) -> Iterator[Callable[[str], str]]:
    """Makes a role that may only read schema txtopo and the tables named; gives its URL."""
    name = f"auditor_{orders.dsn.rpartition('/')[2]}"

    def make(tables: str) -> str:
        execute_as_superuser(
            orders.dsn,
            sql.SQL("create role {} login").format(sql.Identifier(name)),
            sql.SQL("grant usage on schema txtopo to {}").format(sql.Identifier(name)),
            sql.SQL("grant select on all tables in schema txtopo to {}").format(sql.Identifier(name)),
            *(sql.SQL("grant select on {} to {}").format(sql.Identifier(table), sql.Identifier(name)) for table in tables.split()),
        )  # fmt: skip
        scheme, _, rest = orders.dsn.partition("://")
        return f"{scheme}://{quote(name)}@{rest.rpartition('@')[2]}"

    yield make
    execute_as_superuser(orders.dsn, sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


@pytest.mark.parametrize(
    ("tables", "code"),
    [("order_totals order_totals_contribution", 0), ("order_totals", 3), ("order_totals_contribution", 3)],
)
def test_a_role_that_may_only_select_can_audit(
    orders: Audited, reader: Callable[[str], str], tables: str, code: int
) -> None:
    """Promise: works with a SELECT-only role; what it may not read is UNVERIFIED."""
    found, report = orders.audit("--dsn", reader(tables))

    assert found == code
    assert all("permission denied" in one["message"] for one in report["findings"])


def test_rows_that_were_there_before_are_compared_with_what_was_registered(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: a table that was taken over is the baseline and all contributions; txid 0 is no stranger there."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    write_orders(tmp_path / "in", 2)
    behind_the_back(
        database,
        "create table order_totals (shop text, article text, rows bigint not null, pieces numeric not null, price numeric not null, "
        "unique nulls not distinct (shop, article))",
        "insert into order_totals values ('shop 1', 'a1', 3, 4, 5.50), (null, 'old', 1, 1, 1)",
    )
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(tmp_path / "in"), "shop string, article string, pieces int, price decimal(12,2)", settled_s=0.05))  # fmt: skip
    committer = CountCommitter("order_totals", ["shop", "article"], count="rows", sums=["pieces", "price"], baseline=True)  # fmt: skip
    builder.set_committer_bolt("totals", committer).shuffle_grouping("files")
    run_batches(database, builder.build())
    audited = Audited(database, tmp_path, capsys)

    good, partly = audited.audit()[0], audited.audit("1")[0]
    behind_the_back(database, "update order_totals_contribution set pieces = 2 where txid = 0 and shop is null", "update order_totals set pieces = 2 where article = 'old'")  # fmt: skip

    assert (good, partly, audited.audit()[0]) == (0, 0, 1)


def test_without_contributions_only_the_total_is_compared_and_it_says_so(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: what cannot be compared is listed as such by design, which changes no exit code; what can be is."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    write_orders(tmp_path / "in", 2)
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(tmp_path / "in"), "shop string, article string", settled_s=0.05))
    builder.set_committer_bolt("totals", CountCommitter("order_totals", ["shop"], contributions=False)).shuffle_grouping("files")  # fmt: skip
    run_batches(database, builder.build())
    audited = Audited(database, tmp_path, capsys)

    good, report = audited.audit()
    behind_the_back(database, "update order_totals set count = count + 1 where shop = 'shop 1'")

    assert (good, audited.audit()[0]) == (0, 1)
    assert {one["check"] for one in report["by_design"]} == {"source.keys", "contributions.rows", "target.keys"}


HOSTILE = {
    "quotes.csv": 'id,"a key",n,d,at,day\r\n1,"say ""hi""\n, twice",5,1.50,2013-01-31T10:00:00+01:00,2013-01-31\r\n\r\n2,"",-7,2,2013-01-31,2013-01-31\r\n',
    "mark.csv": "\ufeffday,a key,n,d,at\n2013-02-01,NA,,1e1,\n\n\n2013-02-01,null, 8 ,.25,2013-01-31 10:00:00Z\n",
    "empty.csv": "",
    "header only.csv": "a key,n,d,at,day\n",
    "no end\n*[x] .csv": "a key,n,d,at,day\r\u2028\u00e9,1,0.01,,\r\"NaN\"x,2,3,,2013-02-01",
}  # fmt: skip


def test_hostile_files_are_counted_as_the_runs_counted_them(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: quotes, line ends in values, CRLF, CR, a byte order mark, blank lines, empty, header only; keys of many types; names with %."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in HOSTILE.items():
        (folder / name).write_bytes(content.encode())
    builder = TopologyBuilder("hostile")
    fields = "`a key` string, n int, d decimal(10,2), at timestamp, day date"
    builder.set_spout("files", FileSpout(str(folder), fields, settled_s=0.05, files_per_batch=2))
    committer = CountCommitter("odd", ["a key", "at", "day", "d"], count='100% "n"', sums={"n": "n:sum", "d": "total"})
    builder.set_committer_bolt("odd", committer).shuffle_grouping("files")
    assert run_batches(database, builder.build()) == 3
    audited = Audited(database, tmp_path, capsys)

    code, report = audited.audit(topology="hostile")
    behind_the_back(database, """update odd set "n:sum" = 0 where "a key" = ''""")
    wrong, after = audited.audit(topology="hostile")

    assert (code, report["findings"]) == (0, [])
    assert sum(one["recounted"] for one in report["batches"]) == 6
    assert (wrong, len(after["findings"])) == (1, 1)


def test_the_text_says_what_was_compared_with_what(orders: Audited) -> None:
    """Promise: each check named, with what was compared with what; the runs' own counters beside, never as the proof."""
    code, text = orders.text()

    assert code == 0
    assert text.startswith("orders  MATCH  batches 1 to 6: ")
    for part in ("source.keys", "counts and sums a key, recounted from the files", "the contributions of the batch", "6 MATCH",
                 "120 read by the runs, 120 counted again in the files of 6 batches", "6 applied", "turn and commit"):  # fmt: skip
        assert part in text


@pytest.mark.slow
def test_ten_thousand_batches_without_recount_take_seconds(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: below five seconds with 10,000 batches; processor time of this process, since other tests run beside it."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    fill(database, orders_topology(tmp_path), batches=10_000, keys=10)
    audited = Audited(database, tmp_path, capsys)

    began = time.process_time()
    code, report = audited.audit("--no-recount")
    took_s = time.process_time() - began

    assert (code, len(report["batches"]), report["findings"]) == (0, 10_000, [])
    assert took_s < 5
