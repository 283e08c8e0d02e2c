"""The audit of rejected records, quarantined batches, redos, actions and orders: right where nothing was changed, and
every change is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import NoReturn

import pytest

from tests.kit.applications import orders_topology
from tests.kit.audited import Leader, run_batches, select
from tests.kit.audits import Audited, findings
from tests.kit.orders import write_orders
from tests.kit.redo_faults import FAULTS
from txtopo.spouts.formats.csv.values import BadValueError


def test_a_run_with_rejects_quarantine_and_redos_matches(redone: Audited) -> None:
    """Promise: no fault gives MATCH and 0; every check compares something; what was redone says as which batch."""
    code, report = redone.audit()

    assert report["findings"] == []
    assert (code, report["verdict"], report["holes"]) == (0, "MATCH", [])
    assert {check["name"] for check in report["checks"] if not check["comparisons"]} == {"kept.seals"}
    batches = {one["txid"]: one for one in report["batches"]}
    assert {txid: one["redone_as"] for txid, one in batches.items() if one["redone_as"]} == {3: 9, 4: 7, 8: 9}
    assert {txid: one["redo_of"] for txid, one in batches.items() if one["redo_of"]} == {7: 4, 8: 3, 9: 8}
    assert {txid: one["recounted"] for txid, one in batches.items()} == {
        1: 20,
        2: 21,
        3: None,
        4: None,
        5: 20,
        6: 20,
        7: 20,
        8: None,
        9: 20,
    }
    assert (batches[4]["state"], batches[4]["reason"]) == ("quarantined", "its supplier withdrew it")
    assert (batches[2]["read"], batches[2]["rejected"], batches[2]["contributed"]) == (21, 1, {"totals": 20})


def test_actions_and_orders_are_in_the_report(redone: Audited) -> None:
    """Promise: actions with time, actor, host, command, txid, reason, before and after; orders with their answers."""
    _, report = redone.audit("--no-recount")

    assert [
        (one["command"], one["txid"], one["actor"], one["host"], one["reason"], one["order_id"])
        for one in report["actions"]
    ] == [
        ("skip", 4, "ada", "desk", "its supplier withdrew it", 1),
        ("redrive", 7, "ada", "desk", "redrive of 4", 2),
        ("recompute", 8, "ada", "desk", "recompute of 3", 3),
        ("recompute", 9, "ada", "desk", "recompute of 8", 4),
    ]
    assert report["actions"][1]["before"] == {"batch": 4, "state": "quarantined"}
    assert report["actions"][1]["after"]["state"] == "applied"
    assert [(one["order_id"], one["kind"], one["txids"], one["state"]) for one in report["orders"]] == [
        (1, "skip", [4], "done"),
        (2, "redrive", [4], "done"),
        (3, "recompute", [3], "done"),
        (4, "recompute", [8], "done"),
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_in_what_went_wrong_is_mismatch_and_named(redone: Audited, name: str) -> None:
    """Promise: each planted fault gives MISMATCH and 1 and names the txid, also without the recount."""
    check, txids, statements = FAULTS[name]
    redone.plant(*statements)

    code, report = redone.audit("--no-recount")

    found = [one for one in findings(report) if one["check"] == check]
    assert (code, report["verdict"]) == (1, "MISMATCH")
    assert txids <= {txid for one in found for txid in one["txids"]}, report["findings"]


REJECT_FAULTS = {
    "raw edited": "update txtopo.rejected_row set raw = 'no/such,prise'",
    "moved": "update txtopo.rejected_row set line = 3, raw = raw",
    "length edited": "update txtopo.rejected_row set raw_bytes = raw_bytes + 1",
    "another record in its place": "update txtopo.rejected_row set line = 2",
}


@pytest.mark.parametrize("name", REJECT_FAULTS)
def test_a_rejected_row_that_is_not_what_stands_in_the_file_is_found_by_the_recount(redone: Audited, name: str) -> None:
    """Promise: each stored record equals the one that stands at its line, and each that does not parse is among them."""  # noqa: E501
    redone.plant(REJECT_FAULTS[name])

    (_, sealed), (code, report) = redone.audit("--no-recount"), redone.audit()

    assert {one["check"] for one in findings(sealed)} == {"ledger.seal"}
    assert code == 1
    assert {*[one["check"] for one in findings(report)]} >= {"rejects.lines"}
    assert {txid for one in findings(report) for txid in one["txids"]} == {2}


def test_a_record_that_was_rejected_for_nothing_is_found(redone: Audited) -> None:
    """Promise: a record that counts nowhere although nothing is wrong with it is a MISMATCH, also where all numbers
    agree.
    """
    line = redone.file(5).read_text().splitlines()[3]
    redone.plant(
        f"insert into txtopo.rejected_row select topology, 5, spout, '{redone.file(5)}', 4, 'x', '{line}', "
        f"{len(line)} from txtopo.rejected_row",
        "update txtopo.ledger set rejected = 1 where txid = 5",
    )

    code, report = redone.audit()

    said = [one["message"] for one in findings(report) if one["check"] == "rejects.lines"]
    assert code == 1
    assert said == [f"{redone.file(5)}:4 was rejected (x), but nothing is wrong with it"]


def test_a_record_that_the_audit_cannot_judge_is_3(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: a spelling on which readers disagree is UNVERIFIED, never MATCH, and never called wrong. Release 0.1.0
    rejected numbers like this one.
    """

    def refused(text: str, field: object) -> NoReturn:
        raise BadValueError(f"{field} of {text}")

    monkeypatch.setattr("txtopo.spouts.formats.csv.values._decimal", refused)
    write_orders(audited.folder, 2)
    with audited.file(2).open("a") as out:
        out.write("7,shop 1,a1,1,0e60\n")
    run_batches(audited.dsn, orders_topology(audited.folder))

    code, report = audited.audit()

    assert (code, report["verdict"], report["batches"][1]["rejected"]) == (3, "UNVERIFIED", 1)
    assert [(one["check"], one["txids"]) for one in report["findings"]] == [("rejects.lines", [2])]
    assert report["findings"][0]["message"].endswith("how such a value is spelled leaves room for doubt")


def test_the_source_is_compared_with_the_last_redo(redone: Audited) -> None:
    """Promise: from the redo on its fingerprints count; a later change is a MISMATCH of the redo, not of the batch
    redone.
    """
    redone.file(3).write_text(redone.file(3).read_text().replace("shop 9", "shop 8"))

    code, report = redone.audit()

    assert code == 1
    assert [(one["check"], one["txids"]) for one in findings(report)] == [("source.content", [9])]


def test_a_hole_is_wrong_until_it_is_redone(audited: Audited) -> None:
    """Promise: records that are in no target are a MISMATCH, with the command that brings them back; quarantined redos
    fill no hole.
    """
    write_orders(audited.folder, 3)
    with closing(Leader(audited.dsn, orders_topology(audited.folder))) as leader:
        leader.cut(quarantined={2: "bad"})
        one = audited.audit()
        leader.redo(2, "redrive", quarantined="failed again")
        two, (_, text) = audited.audit(), audited.text()
        leader.redo(2, "redrive")
        three = audited.audit()

    assert [(code, report["holes"]) for code, report in (one, two, three)] == [(1, [2]), (1, [2]), (0, [])]
    assert [(one["check"], one["txids"]) for one in two[1]["findings"]] == [("source.holes", [2])]
    assert {one["txid"]: one["redone_as"] for one in three[1]["batches"]} == {1: None, 2: 5, 3: None, 4: 5, 5: None}
    assert text.splitlines()[-1] == "next       txtopo redrive orders 2"


def test_a_failed_redo_of_an_applied_batch_is_no_hole(audited: Audited) -> None:
    """Promise: the batch that it was to redo stays in effect, and is compared with its source."""
    write_orders(audited.folder, 2)
    with closing(Leader(audited.dsn, orders_topology(audited.folder))) as leader:
        leader.cut()
        leader.redo(1, quarantined="failed")

    code, report = audited.audit()

    assert (code, report["holes"], report["findings"]) == (0, [], [])
    assert [one["recounted"] for one in report["batches"]] == [20, 20, None]
    audited.file(1).write_text("gone")
    assert [one["txids"] for one in audited.audit()[1]["findings"]] == [[1]]


@pytest.mark.parametrize("wanted", ["3", "4", "7..", "8", "9", "..4", "4..8"])
def test_a_range_with_redos_is_compared_with_batches_outside_it(redone: Audited, wanted: str) -> None:
    """Promise: a range finds what a redo took back and whether a hole was filled, wherever the other batch is."""
    code, report = redone.audit(wanted)

    assert (code, report["findings"]) == (0, [])


def test_a_fault_in_a_redo_shows_in_a_range_that_begins_with_it(redone: Audited) -> None:
    """Promise: the batch redone is read for it, also outside the range."""
    redone.plant(
        "update order_totals_contribution set price = price - 1 where (txid, article, shop) = (8, 'a1', 'shop 1') "
        "and reverses = 3"
    )

    assert {(one["check"], *one["txids"]) for one in redone.audit("8..8")[1]["findings"]} >= {("redo.reversed", 8)}


GOLDEN = """\
orders  MISMATCH  batches 1 to 9: 6 wrong

MISMATCH  batches 4 to 6: action 1, which its seal covers, is missing  [actions.chain]
MISMATCH  batch 4: it is quarantined, but no action says by whom and why  [actions.signed]
MISMATCH  batch 5: its seal knows nothing of its attempt 1  [ledger.attempts]
MISMATCH  1 action before action 2 of TIME removed: it was sealed after more of them  [actions.chain]

not compared, by design
  source.content: redone by a later batch, whose source counts (2 batches)
  source.content: nothing was counted of a quarantined batch

check  verdict  comparisons  what  with
source.content  MATCH  6  existence, size and sha-256 of every input file  the plan
source.records  MATCH  6  records counted in the files  the ledger's read and rejected
source.holes  MATCH  6  batches cut from the source  the one batch of each that is in effect
source.keys  MATCH  95  counts and sums a key, recounted from the files  the contributions of the batch
rejects.rows  MATCH  18  rejected records kept  the ledger's rejected and the files consumed
rejects.lines  MATCH  1  records that do not parse, and their bytes  the rejected records kept
dead_letters.rows  MATCH  15  dead letters kept  the ledger's dead-lettered and the records of the files
plan.digest  MATCH  18  sha-256 of the plan's bytes  the digests of plan and ledger row
plan.files  MATCH  18  the files named in the plan  the files remembered as consumed
ledger.gaps  MATCH  10  txids of the ledger  1 to the fence's last txid
ledger.order  MATCH  26  times of planning, attempt and commit  the order of the txids
ledger.epochs  MATCH  21  epochs and incarnations along the ledger  the rows before and the fence
ledger.chain  MATCH  19  the digest that each batch follows  the digest of the batch before
ledger.seal  MATCH  16  the seal, recomputed from the row and all that it covers  the seal stored
ledger.counts  MATCH  33  arrived, results and number of committers  counted, written + ignored, the row's own word
ledger.equation  MATCH  8  read - rejected - dead-lettered  what arrived at each committer
ledger.attempts  MISMATCH  29  the attempts, and the one that was applied  the ledger row and its seal
kept.seals  -  0  seals kept outside of the database (--expect)  the seals stored
schema.guards  MATCH  MANY  triggers, functions, constraints and indexes of schema txtopo  what its migrations make
topology.described  MATCH  23  the description of the topology  the chain of its descriptions and the code of the batches
quarantine.empty  MATCH  2  quarantined batches  a reason, and nothing counted or rejected
redo.chain  MATCH  38  redos, their plans and their files  the batch that each redoes
redo.reversed  MATCH  16  contributions that a redo reversed  those of the batch redone, negated
actions.signed  MISMATCH  19  redos and quarantined batches  the action log and the orders
actions.chain  MISMATCH  11  the action log, its seals recomputed  the seals stored and those of the batches
contributions.rows  MATCH  24  rows, weights and digest of the contributions  results, counted and digest
contributions.known  MATCH  8  txids of the contributions  the applied rows of the ledger
target.shape  MATCH  12  kind, columns and types of target and contribution tables  the description of the topology
target.keys  MATCH  21  the target table, key by key  the sum over all contributions

batches  6 MATCH, 3 MISMATCH; 0 planned ahead, not audited
records  121 read by the runs, 121 counted again in the files of 6 batches
rejected  1 of these records
removed  0 of these records, as dead letters
attempts  8 applied, 1 failed; failed for: 1 data
as of  TIME, by SOMEBODY
head  batch 9, code DIGEST
seal  9:DIGEST
log  action 4, seal DIGEST

phase  sum  median  longest
earlier attempts  SPAN  SPAN  SPAN
processing  SPAN  SPAN  SPAN
turn and commit  SPAN  SPAN  SPAN
first attempt to commit  SPAN  SPAN  SPAN

failed attempts of these batches
  5:1 data in files at /in/a.csv:7: a bad line

quarantined batches
  4 redone as 7: its supplier withdrew it

batches whose place a later one took
  3 redone as 9
  8 redone as 9

actions
  TIME ada@desk redrive 7 (order 2): redrive of 4  batch 4, state quarantined -> batch 7, state applied, counted {"totals": 20}
  TIME ada@desk recompute 8 (order 3): recompute of 3  batch 3, state applied -> batch 8, state applied, counted {"totals": 20}
  TIME ada@desk recompute 9 (order 4): recompute of 8  batch 8, state applied -> batch 9, state applied, counted {"totals": 20}

orders
  1 TIME ada@desk skip 4: its supplier withdrew it  done, carried out
  2 TIME ada@desk redrive 4: redrive of 4  done, carried out
  3 TIME ada@desk recompute 3: recompute of 3  done, carried out
  4 TIME ada@desk recompute 8: recompute of 8  done, carried out

next  txtopo show orders 4"""  # noqa: E501
"""Without times, durations and the width of columns."""


def masked(text: str) -> Iterator[str]:
    """What differs from run to run left out: times, durations, and how wide they make a column."""
    for line in text.splitlines():
        line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", line)
        line = re.sub(r"[\d.]+\u2009?[\u00a0 ]?(?:ms|s|min)\b", "SPAN", line)
        line = re.sub(r"^(schema.guards +MATCH +)\d+", r"\1MANY", line)
        line = re.sub(r"[0-9a-f]{64}", "DIGEST", line)
        line = re.sub(r"(TIME, by ).*", r"\1SOMEBODY", line)
        yield re.sub(r" {2,}", "  ", line).rstrip()


def test_the_text_of_an_audit_with_everything_in_it(redone: Audited) -> None:
    """Promise: golden test of the report with all its sections."""
    redone.plant(
        "delete from txtopo.action where txid = 4",
        "insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, state, kind, component, position, "
        "message, ended_at) "
        "values ('orders', 5, 1, 1, sha256('x'), 'failed', 'data', 'files', '/in/a.csv:7', 'a bad line', now())",
    )

    code, text = redone.text()

    assert code == 1
    assert "\n".join(masked(text)) == GOLDEN


def test_the_log_shows_hostile_words_as_text(redone: Audited) -> None:
    """Promise: reasons are hostile input: no escape codes reach the terminal."""
    redone.plant(
        "update txtopo.request set reason = E'\\x1b[2J' || reason", "update txtopo.action set actor = E'\\x1b[31m'"
    )

    _, text = redone.text("--no-recount")

    assert "\x1b" not in text
    assert select(redone.dsn, "select count(*) from txtopo.action where actor like E'\\x1b%'") == [(4,)]
