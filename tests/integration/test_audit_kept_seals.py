"""Seals kept outside of the database: what `--expect` finds that no seal inside can tell; who audited; files in no
batch.
"""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import BATCHES
from tests.kit.audits import Audited, findings, kept_as_they_are
from txtopo import __version__
from txtopo.cli import main

RESEALED = [
    "alter table txtopo.ledger disable trigger final",
    "alter table txtopo.ledger disable trigger complete",
    "set local session_replication_role = origin",
    *(f"update txtopo.ledger set planned_at = planned_at where txid = {txid}" for txid in range(3, BATCHES + 1)),
    "alter table txtopo.ledger enable trigger final",
    "alter table txtopo.ledger enable trigger complete",
]
"""Every seal from batch 3 on, made anew as the server makes them."""
FORGED = [
    "alter table txtopo.attempt disable trigger ends_once",
    "update txtopo.attempt set message = 'x' where txid = 3",
    "alter table txtopo.attempt enable trigger ends_once",
    *RESEALED,
]
SHORTENED = [
    f"delete from {table} where txid = {BATCHES}"
    for table in (
        "txtopo.ledger",
        "txtopo.plan",
        "txtopo.source_file",
        "txtopo.attempt",
        "txtopo.committer_count",
        "txtopo.edge_count",
        "order_totals_contribution",
    )
] + [
    f"update txtopo.fence set last_txid = {BATCHES - 1}",
    "delete from order_totals",
    (
        "insert into order_totals select shop, article, sum(rows), sum(pieces), sum(price) from "
        "order_totals_contribution group by 1, 2"
    ),
]
"""The last batch and everything of it removed, the table made to fit."""


def kept_seals(orders: Audited, tmp_path: Path) -> dict[str, str]:
    """Both kinds, from a report on the database as it is."""
    _, report = orders.audit("--no-recount")
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(report))
    return {"seal": f"{report['head']['txid']}:{report['head']['seal']}", "report": str(kept)}


@pytest.mark.parametrize("kind", ["seal", "report"])
@pytest.mark.parametrize(
    ("forged", "named"), [(FORGED, {"seal": BATCHES, "report": 3}), (SHORTENED, {"seal": BATCHES, "report": BATCHES})]
)
def test_who_seals_anew_is_found_by_a_seal_kept_outside(
    orders: Audited, tmp_path: Path, kind: str, forged: list[str], named: dict[str, int]
) -> None:
    """Promise: without a kept seal such a forgery is MATCH, with one it is MISMATCH; a report names the first batch
    that was sealed anew.
    """
    seal = kept_seals(orders, tmp_path)[kind]
    before, agreed = orders.audit("--no-recount", "--expect", seal)
    orders.plant(*forged)

    without, _ = orders.audit("--no-recount")
    code, report = orders.audit("--no-recount", "--expect", seal)

    (compared,) = (one["comparisons"] for one in agreed["checks"] if one["name"] == "kept.seals")
    assert (before, compared) == (0, BATCHES if kind == "report" else 1)
    assert (without, code) == (0, 1)
    assert [(one["check"], one["txids"]) for one in findings(report)] == [("kept.seals", [named[kind]])]


def test_a_topology_that_is_gone_is_wrong_by_a_kept_seal(
    orders: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promise: without a kept seal an unknown name is a matter of usage, 2; with one it is 1, with the batch that there
    was.
    """
    seal = kept_seals(orders, tmp_path)
    orders.plant("delete from txtopo.ledger", "delete from txtopo.fence")

    usage, _ = orders.audit()
    codes = []
    for kept in seal.values():
        codes.append(main(("audit", "orders", "--json", "--expect", kept)))
        said = capsys.readouterr()
        assert f"no topology 'orders' on this database, but a kept seal is of batch {BATCHES}" in said.err

    assert (usage, codes) == (2, [1, 1])


def test_a_range_that_is_gone_is_wrong_by_a_kept_seal(orders: Audited, tmp_path: Path) -> None:
    """Promise: a kept seal beyond the end is compared whatever the range; one within it says nothing of a range that
    never was.
    """
    _, report = orders.audit("..2", "--no-recount")
    beyond, within = kept_seals(orders, tmp_path)["seal"], f"2:{report['head']['seal']}"
    orders.plant(*SHORTENED)

    codes = [orders.audit(str(BATCHES), "--no-recount", "--expect", seal)[0] for seal in (beyond, within)]

    assert codes == [1, 2]


def test_a_kept_seal_stays_good_while_batches_are_added(redone: Audited, tmp_path: Path) -> None:
    """Promise: an old seal is in the chain of every later one; an action kept in a report is looked up too."""
    _, report = redone.audit("..5", "--no-recount")
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({**report, "last_action": {"number": 2, "seal": "0" * 64}}))

    good, _ = redone.audit("--no-recount", "--expect", f"{report['head']['txid']}:{report['head']['seal'].upper()}")
    code, wrong = redone.audit("--no-recount", "--expect", str(kept))

    assert (report["head"]["txid"], good, code) == (5, 0, 1)
    assert [(one["check"], "action 2" in one["message"]) for one in findings(wrong)] == [("kept.seals", True)]


@pytest.mark.parametrize("given", ["6:abc", "nothing.json", "folder", "status.json", "other.json", "old.json"])
def test_a_kept_seal_that_cannot_be_read_is_2(
    orders: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    """Promise: what is no seal is never taken for one that agrees."""
    files: dict[str, Any] = {
        "status.json": {"schema": "txtopo.status/2"},
        "other.json": {"schema": "txtopo.audit/1", "topology": "others"},
        "old.json": {"schema": "txtopo.audit/1", "topology": "orders", "batches": [{"txid": 1}]},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "folder").mkdir()

    code = main(("audit", "orders", "--no-recount", "--expect", given if ":" in given else str(tmp_path / given)))

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert "--expect" in said.err


def test_a_report_says_who_audited_and_what_to_keep(orders: Audited) -> None:
    """Promise: text and JSON name the auditor, the head with its seal, and the code."""
    _, report = orders.audit("--no-recount")
    _, text = orders.text("--no-recount")

    head = report["head"]
    assert report["auditor"]["user"] == getpass.getuser()
    assert report["auditor"]["version"] == __version__
    assert (head["txid"], head["seal_version"], head["seal"]) == (BATCHES, 2, report["batches"][-1]["seal"])
    assert report["code_hash"] == head["code_hash"]
    assert f"seal       {BATCHES}:{head['seal']}" in text.splitlines()
    assert f"txtopo {__version__}" in text


def test_files_in_no_batch_are_told_and_are_not_wrong(orders: Audited) -> None:
    """Promise: what lies in the folder and was never counted is told by number and name; it may be new, so it is no
    fault.
    """
    with kept_as_they_are(orders.folder):
        for name in ("late.csv", "later.csv", "_hidden.csv"):
            (orders.folder / name).write_text("shop,article,pieces,price\n")

        code, report = orders.audit()
        _, text = orders.text()
        _, without = orders.audit("--no-recount")
        _, ranged = orders.audit("1..2")

    (found,) = report["unbatched"]
    assert (code, found["spout"], found["files"]) == (0, "files", 2)
    assert [Path(name).name for name in found["names"]] == ["late.csv", "later.csv"]
    assert "2 files of" in text
    assert "in no batch: new, or planned and not in Postgres yet" in text
    assert without["unbatched"] == ranged["unbatched"] == []


def test_a_folder_that_is_gone_is_told(orders: Audited) -> None:
    """Promise: where nobody can look, nobody says that there is nothing."""
    orders.plant(
        "update txtopo.topology set description = jsonb_set(description, '{spouts,files,path}', '\"/nowhere\"')"
    )

    _, report = orders.audit()

    assert [(one["files"], one["problem"]) for one in report["unbatched"]] == [(0, "No such file or directory")]
