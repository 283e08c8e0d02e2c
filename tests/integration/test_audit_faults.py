"""Faults planted in a database filled by real commits: each is found and named, and wrong is never taken for unknown."""  # noqa: E501

from __future__ import annotations

import os
from contextlib import closing

import pytest

from tests.integration.conftest import BATCHES
from tests.kit.applications import orders_topology
from tests.kit.audited import Leader, fill, select
from tests.kit.audits import Audited, findings

FAULTS: dict[str, tuple[str, set[int], list[str]]] = {
    "target count": (
        "target.keys",
        {3},
        ["update order_totals set rows = rows + 1 where shop is null and article = 'a1'"],
    ),
    "target sum": (
        "target.keys",
        {1},
        ["update order_totals set price = price + 0.01 where shop = 'shop 1' and article = 'a1'"],
    ),
    "target row deleted": ("target.keys", {1}, ["delete from order_totals where shop = 'shop 1' and article = 'a1'"]),
    "target row added": ("target.keys", set(), ["insert into order_totals values ('shop 9', 'a1', 1, 1, 1)"]),
    "target truncated": ("target.keys", {1}, ["delete from order_totals"]),
    "count in table and contribution": (
        "contributions.rows",
        {2},
        [
            "update order_totals set rows = rows + 1 where shop = 'shop 1' and article = 'a1'",
            (
                "update order_totals_contribution set rows = rows + 1 where txid = 2 and shop = 'shop 1' and article = "
                "'a1'"
            ),
        ],
    ),
    "sum in table and contribution": (
        "contributions.rows",
        {3},
        [
            "update order_totals set price = price + 5 where shop = 'shop 1' and article = 'a1'",
            (
                "update order_totals_contribution set price = price + 5 where txid = 3 and shop = 'shop 1' and "
                "article = "
                "'a1'"
            ),
        ],
    ),
    "key swapped in table and contribution": (
        "contributions.rows",
        {2},
        ["update order_totals_contribution set article = 'zz' where txid = 2 and shop = 'shop 1' and article = 'a1'"],
    ),
    "contribution deleted": (
        "contributions.rows",
        {4},
        ["delete from order_totals_contribution where txid = 4 and shop = 'shop 1' and article = 'a1'"],
    ),
    "contribution added": (
        "contributions.rows",
        {5},
        ["insert into order_totals_contribution values (5, null, 'shop 9', 'a1', 1, 1, 1)"],
    ),
    "contribution taken back": (
        "redo.reversed",
        {5},
        ["insert into order_totals_contribution values (5, 4, 'shop 9', 'a1', -1, -1, -1)"],
    ),
    "contribution of no batch": (
        "contributions.known",
        {99},
        ["insert into order_totals_contribution values (99, null, 'shop 9', 'a1', 0, 0, 0)"],
    ),
    "contribution from before": (
        "contributions.known",
        {0},
        ["insert into order_totals_contribution values (0, null, 'shop 1', 'a1', 0, 0, 0)"],
    ),
    "contribution of a negative txid, zero": (
        "contributions.known",
        {-1},
        ["insert into order_totals_contribution values (-1, null, 'shop 1', 'a1', 0, 0, 0)"],
    ),
    "contribution of the lowest txid": (
        "contributions.known",
        {-(2**63)},
        ["insert into order_totals_contribution values (-9223372036854775808, null, 'shop 1', 'a1', 0, 0, 0)"],
    ),
    "contribution of a negative txid, and in the table": (
        "contributions.known",
        {-1},
        [
            "insert into order_totals_contribution values (-1, null, 'shop 1', 'a1', 1, 1, 1)",
            (
                "update order_totals set rows = rows + 1, pieces = pieces + 1, price = price + 1 where shop = 'shop 1' "
                "and article = 'a1'"
            ),
        ],
    ),
    "new key of a negative txid, and in the table": (
        "contributions.known",
        {-1},
        [
            "insert into order_totals_contribution values (-1, null, 'shop 9', 'a1', 1, 1, 1)",
            "insert into order_totals values ('shop 9', 'a1', 1, 1, 1)",
        ],
    ),
    "contribution of a negative txid, taking back": (
        "contributions.known",
        {-1},
        ["insert into order_totals_contribution values (-1, 4, 'shop 9', 'a1', 0, 0, 0)"],
    ),
    "ledger row edited": ("ledger.seal", {3}, ["update txtopo.ledger set attempt = 7 where txid = 3"]),
    "ledger numbers edited": ("ledger.seal", {3}, ["update txtopo.ledger set read = 21 where txid = 3"]),
    "last ledger row edited": ("ledger.seal", {6}, ["update txtopo.ledger set rejected = 1 where txid = 6"]),
    "ledger row quarantined": (
        "ledger.seal",
        {3},
        ["update txtopo.ledger set state = 'quarantined', reason = 'x', committers = 0 where txid = 3"],
    ),
    "seal edited": ("ledger.seal", {3}, ["update txtopo.ledger set seal = sha256('x') where txid = 3"]),
    "genesis row edited": ("ledger.chain", set(), ["update txtopo.ledger set digest = sha256('x') where txid = 0"]),
    "ledger row removed": ("ledger.gaps", {3}, ["delete from txtopo.ledger where txid = 3"]),
    "two ledger rows removed": ("ledger.gaps", {3, 4}, ["delete from txtopo.ledger where txid in (3, 4)"]),
    "first ledger row removed": ("ledger.gaps", {1}, ["delete from txtopo.ledger where txid = 1"]),
    "last ledger row removed": ("ledger.gaps", {6}, ["delete from txtopo.ledger where txid = 6"]),
    "whole ledger removed": ("ledger.gaps", {1, 6}, ["delete from txtopo.ledger"]),
    "genesis row removed": ("ledger.gaps", set(), ["delete from txtopo.ledger where txid = 0"]),
    "last batch hidden": (
        "contributions.known",
        {6},
        ["delete from txtopo.ledger where txid = 6", "update txtopo.fence set last_txid = 5"],
    ),
    "fence row removed": ("ledger.gaps", set(), ["delete from txtopo.fence"]),
    "fence ahead": ("ledger.gaps", {900000000000}, ["update txtopo.fence set last_txid = 900000000000"]),
    "two batches swapped in time": (
        "ledger.order",
        {3},
        ["update txtopo.ledger set committed_at = committed_at + interval '1 h' where txid = 2"],
    ),
    "last batch moved in time": (
        "ledger.order",
        {6},
        ["update txtopo.ledger set committed_at = committed_at + interval '1 h' where txid = 6"],
    ),
    "planning moved in time": (
        "ledger.order",
        {4},
        ["update txtopo.ledger set planned_at = planned_at - interval '1 s' where txid = 4"],
    ),
    "epoch goes back": ("ledger.epochs", {4}, ["update txtopo.ledger set epoch = 9 where txid = 3"]),
    "other incarnation": (
        "ledger.epochs",
        {4},
        ["update txtopo.ledger set incarnation = gen_random_uuid() where txid = 4"],
    ),
    "chain cut": ("ledger.chain", {4}, ["update txtopo.ledger set prev_digest = sha256('x') where txid = 4"]),
    "counts edited": (
        "ledger.seal",
        {2},
        ["update txtopo.committer_count set arrived = 21, counted = 21 where txid = 2"],
    ),
    "digest of counts edited": (
        "contributions.rows",
        {2},
        ["update txtopo.committer_count set digest = digest + 1 where txid = 2"],
    ),
    "counts removed": ("ledger.counts", {2}, ["delete from txtopo.committer_count where txid = 2"]),
    "counts of no batch": (
        "ledger.gaps",
        {77},
        ["insert into txtopo.committer_count values ('orders', 77, 'totals', 1, 1, 1, 1, 0, 0, 1)"],
    ),
    "counts of a negative txid": (
        "ledger.gaps",
        {-1},
        ["insert into txtopo.committer_count values ('orders', -1, 'totals', 1, 1, 1, 1, 0, 0, 1)"],
    ),
    "edges of the genesis": (
        "ledger.gaps",
        {0},
        ["insert into txtopo.edge_count values ('orders', 0, 'files -> totals', 1, 1)"],
    ),
    "edges edited": ("ledger.seal", {2}, ["update txtopo.edge_count set sent = 19, received = 19 where txid = 2"]),
    "edges removed": ("ledger.seal", {2}, ["delete from txtopo.edge_count where txid = 2"]),
    "plan bytes edited": ("plan.digest", {5}, ["update txtopo.plan set bytes = bytes || ' ' where txid = 5"]),
    "plan bytes and digest edited": (
        "plan.digest",
        {5},
        ["update txtopo.plan set bytes = bytes || ' ', digest = sha256(bytes || ' ') where txid = 5"],
    ),
    "plan removed": ("plan.digest", {5}, ["delete from txtopo.plan where txid = 5"]),
    "plans removed": ("plan.digest", {1, 2, 3, 4, 5, 6}, ["delete from txtopo.plan"]),
    "old plan removed": (
        "plan.digest",
        {1},
        ["update txtopo.fence set last_txid = 20", "delete from txtopo.plan where txid = 1"],
    ),
    "plan of no batch": (
        "plan.digest",
        {8},
        ["insert into txtopo.plan select topology, 8, digest, bytes, 0, epoch from txtopo.plan where txid = 6"],
    ),
    "plan of the genesis": (
        "plan.digest",
        {0},
        ["insert into txtopo.plan select topology, 0, digest, bytes, 0, epoch from txtopo.plan where txid = 6"],
    ),
    "plan of a negative txid": (
        "plan.digest",
        {-1},
        ["insert into txtopo.plan select topology, -1, digest, bytes, 0, epoch from txtopo.plan where txid = 6"],
    ),
    "plan behind a gap": (
        "plan.digest",
        {9},
        [
            (
                "insert into txtopo.plan select topology, later, digest, bytes, 0, epoch from txtopo.plan, (values "
                "(7), "
                "(9)) more(later) where txid = 6"
            )
        ],
    ),
    "file of no batch": (
        "plan.files",
        {99},
        ["insert into txtopo.source_file values ('orders', 'files', '/in/new.csv', sha256('x'), 99)"],
    ),
    "file of the genesis": (
        "plan.files",
        {0},
        ["insert into txtopo.source_file values ('orders', 'files', '/in/new.csv', sha256('x'), 0)"],
    ),
    "file of a negative txid": (
        "plan.files",
        {-1},
        ["insert into txtopo.source_file values ('orders', 'files', '/in/new.csv', sha256('x'), -1)"],
    ),
    "file of a batch added": (
        "plan.files",
        {3},
        ["insert into txtopo.source_file values ('orders', 'files', '/in/new.csv', sha256('x'), 3)"],
    ),
    "file of another spout": (
        "plan.files",
        {3},
        ["insert into txtopo.source_file values ('orders', 'other', '/in/new.csv', sha256('x'), 3)"],
    ),
    "consumed file forgotten": ("plan.files", {5}, ["delete from txtopo.source_file where txid = 5"]),
    "consumed file edited": (
        "plan.files",
        {5},
        ["update txtopo.source_file set fingerprint = sha256('x') where txid = 5"],
    ),
    "attempt edited": (
        "ledger.attempts",
        {5},
        ["update txtopo.attempt set state = 'failed', kind = 'data', message = 'x' where txid = 5"],
    ),
    "attempt removed": ("ledger.attempts", {5}, ["delete from txtopo.attempt where txid = 5"]),
    "target handed to another": ("target.keys", set(), ["update txtopo.target set committer = 'else'"]),
    "target table dropped": ("target.keys", set(), ["drop table order_totals"]),
    "contribution table dropped": ("contributions.rows", set(), ["drop table order_totals_contribution"]),
}
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


AHEAD = """insert into txtopo.plan select topology, 7, sha256(b), b, 0, epoch
  from (select *, convert_to(replace(convert_from(bytes, 'UTF8'), '"txid":6', '"txid":7'), 'UTF8') as b from txtopo.plan where txid = 6) p"""  # noqa: E501
REMEMBERED = (
    "insert into txtopo.source_file select topology, spout, path || '7', fingerprint, 7, redo from "
    "txtopo.source_file where txid = 6"
)


@pytest.mark.parametrize("spout", ["files", "other"])
def test_a_file_remembered_for_a_planned_batch_that_its_plan_does_not_have_is_wrong(
    orders: Audited, spout: str
) -> None:
    """Promise: a file that nobody planned would never be read; what is planned ahead and remembered so is right."""
    named = "'UTF8'), '.csv\"', '.csv7\"'), 'UTF8')"
    orders.plant(
        AHEAD,
        REMEMBERED,
        f"update txtopo.plan set bytes = convert_to(replace(convert_from(bytes, {named} where txid = 7",
    )
    before, report = orders.audit("--no-recount")
    orders.plant(f"insert into txtopo.source_file values ('orders', '{spout}', '/in/new.csv', sha256('x'), 7)")

    code, wrong = orders.audit("--no-recount")

    assert (before, report["findings"], report["planned_ahead"]) == (0, [], 1)
    assert (code, [(one["check"], one["txids"]) for one in wrong["findings"]]) == (1, [("plan.files", [7])])


def test_a_file_of_a_foreign_spout_is_found_beside_a_source_that_is_not_made_of_files(orders: Audited) -> None:
    """Promise: what cannot be compared hides nothing else."""
    orders.plant(
        """update txtopo.plan set bytes = convert_to(replace(convert_from(bytes, 'UTF8'), '"files":[', '"others":['), 'UTF8') where txid = 3"""  # noqa: E501
    )
    _, before = orders.audit("--no-recount")
    orders.plant("insert into txtopo.source_file values ('orders', 'other', '/in/new.csv', sha256('x'), 3)")

    _, report = orders.audit("--no-recount")

    assert [[one["txids"] for one in findings(each) if one["check"] == "plan.files"] for each in (before, report)] == [
        [],
        [[3]],
    ]


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
    txids = [
        row[0]
        for row in select(
            orders.dsn, "select txid from order_totals_contribution where shop is null and article = 'a0' order by txid"
        )
    ]

    code, text = orders.text("--no-recount")

    assert code == 1
    assert "key shop NULL, article 'a0': the table has" in text
    assert f"(batches {', '.join(map(str, txids))})" in text


def test_every_batch_that_contributed_to_a_wrong_key_is_mismatch_however_many(audited: Audited) -> None:
    """Promise: ten are named, the rest is counted, and no batch behind a wrong number passes for right."""
    fill(audited.dsn, orders_topology(audited.folder, may_be_empty=True), batches=30, keys=2)
    audited.plant("update order_totals set rows = rows + 1 where shop = 'shop 1'")

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
        "update txtopo.committer_count set digest = (select sum(('x' || encode(substring(sha256(convert_to(row(shop, "
        "article, rows, pieces, price)::text, 'UTF8')) "
        "for 8), 'hex'))::bit(64)::bigint) from order_totals_contribution where txid = 3) where txid = 3",
        "alter table txtopo.ledger disable trigger final",
        "alter table txtopo.ledger disable trigger complete",
        "set local session_replication_role = origin",
        *(f"update txtopo.ledger set reason = reason where txid = {txid}" for txid in range(3, BATCHES + 1)),
        "alter table txtopo.ledger enable trigger final",
        "alter table txtopo.ledger enable trigger complete",
    )

    without, _ = orders.audit("--no-recount")
    code, report = orders.audit()

    assert (without, code) == (0, 1)
    assert {(one["check"], *one["txids"]) for one in findings(report)} == {("source.keys", 3)}
    assert "key shop 'shop 1', article 'a1'" in findings(report)[0]["message"]

    with closing(Leader(orders.dsn, orders_topology(orders.folder), code_hash=b"o" * 32)):
        pass  # other code than the one that counted has described itself since

    code, report = orders.audit()
    assert (code, report["verdict"]) == (3, "UNVERIFIED")
    assert [(one["check"], one["txids"]) for one in report["findings"]] == [("source.keys", [3])]
