"""Golden texts of `status`, `batches`, `show`, `events` and `trace`: whole outputs, narrow and wide, and with hostile
contents.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from txtopo.reports.as_json import batch_json
from txtopo.reports.batch_text import batch_text
from txtopo.reports.model import (
    ActionRow,
    AttemptRow,
    BackfillLink,
    BatchDetail,
    BatchRow,
    CommitterNumbers,
    FailureCounts,
    LastLeader,
    LedgerSummary,
    OpenOrder,
    OrderRow,
    RedoLink,
    RejectedRecord,
    SourceFile,
    TopologyStatus,
)
from txtopo.reports.status_text import batches_text, status_text
from txtopo.reports.stored_description import CommitterTables, LastRows, RowTable, StoredAggregate
from txtopo.reports.timeline import TimelineEvent
from txtopo.reports.timeline_text import event_json, event_line
from txtopo.reports.trace import Contribution, Target, Trace
from txtopo.reports.trace_text import trace_json, trace_text

NOON = datetime(2026, 11, 21, 12, 0, 0, 1500, tzinfo=UTC)
LATER = NOON + timedelta(seconds=90)
EVIL = "/in/a\nb\x1b[2J\u202e" + "x" * 300 + ".csv"
"""A file name that breaks lines, clears the screen, turns the direction and is longer than any terminal."""


def status() -> TopologyStatus:
    """A topology about which there is something to say on every line."""
    return TopologyStatus(
        topology="flights",
        state="HALTED",
        epoch=3,
        incarnation="i",
        application="f.py:topology",
        last_txid=12_345,
        last_committed_at=NOON,
        planned_txid=12_400,
        problem=None,
        reason="three attempts failed",
        halted_txid=12_346,
        failed_attempts=4,
        failures=FailureCounts(data=3, infrastructure=1, suspect=0),
        failed_txids=(12_346,),
        quarantined=3,
        holes=2,
        hole_txids=(7, 9),
        rejected=1_500,
        dead_lettered=12,
        failed_runs=3,
        failed_runs_total=5,
        open_order_count=2,
        open_orders=(
            OpenOrder(order_id=4, kind="retry", txids=(12_346,)),
            OpenOrder(order_id=5, kind="stop", txids=()),
        ),
        leader=LastLeader(host="box", pid=1, since=NOON, heartbeat_at=NOON, heartbeat_age_s=1.5),
    )


def test_status_whole() -> None:
    """Promise: failures by kind apart, failed batches, rejected rows, dead letters, holes, open orders, the ways on."""
    assert (
        status_text([status()])
        == """\
flights  HALTED
  reason    batch 12346: three attempts failed
  committed up to txid 12\u2009345 at 2026-11-21T12:00:00.001Z
  planned   55 ahead, up to txid 12\u2009400
  failures  4 failed attempts: 3 data, 1 infrastructure, 0 suspect
  failed    batch 12346 (last attempt failed, not committed)
  rejected  1\u2009500 source rows in all
  removed   12 source rows in all, as dead letters
  runs      3 commit runs failed under this leader, 5 in all: their batches were committed one by one (txtopo events)
  holes     batches 7, 9 are quarantined and not redone (2 of 3 quarantined)
  leader    box pid 1 since 2026-11-21T12:00:00.001Z, ended
  epoch     3
  orders    2 open: retry of batch 12346 (order 4), stop (order 5)
  next      txtopo run f.py:topology
            txtopo redrive flights 7"""
    )


def test_status_names_a_few_and_counts_all() -> None:
    """Promise: lists are bounded, numbers are not."""
    text = status_text([replace(status(), holes=30, quarantined=31, open_order_count=40)])

    assert "batches 7, 9, … are quarantined and not redone (30 of 31 quarantined)" in text
    assert "40 open: retry of batch 12346 (order 4), stop (order 5), …" in text


def row(txid: int, **changed: Any) -> BatchRow:
    """A committed batch."""
    numbers = CommitterNumbers(
        committer="counts", arrived=1_200, counted=1_200, results=3, written=3, ignored=0, reversed=0, digest="1"
    )
    values: dict[str, Any] = {
        "txid": txid,
        "state": "committed",
        "attempts": 1,
        "failed_attempts": 0,
        "files": 1,
        "read": 1_200,
        "rejected": 0,
        "redo_of": None,
        "committers": (numbers,),
        "committed_at": NOON,
        "duration_s": 0.35,
    }
    return BatchRow(**{**values, **changed})


def test_batches_whole() -> None:
    """Promise: rejected rows, quarantined batches and redos are in the list."""
    quarantined = row(
        2, state="quarantined", attempts=3, failed_attempts=3, read=None, rejected=None, committers=(), duration_s=None
    )

    assert batches_text("flights", [row(3, redo_of=2, rejected=17), quarantined]).splitlines() == [
        (
            "txid  state            attempts  files   read  rejected  redo of     counts  committed at              "
            "duration"
        ),
        (
            "   3  committed               1      1  1\u2009200        17        2  1\u2009200 > 3  "
            "2026-11-21T12:00:00.001Z    350 ms"
        ),
        (
            "   2  quarantined  3 (3 failed)      1      -         -        -          -  2026-11-21T12:00:00.001Z   "
            "    "
            "  -"
        ),
    ]


def test_batches_say_what_a_backfill_counts() -> None:
    """Promise: a batch that counts an earlier one into an added committer is not mistaken for new input."""
    filled = row(3, backfills=1, committer="by_day")

    lines = batches_text("flights", [filled, row(2, redo_of=1), row(1)]).splitlines()

    assert "  rejected  redo of    backfill of  " in lines[0]
    assert "  0        -  1 into by_day  " in lines[1]
    assert "  0        1              -  " in lines[2]
    assert "backfill" not in batches_text("flights", [row(1)])


REJECTED = RejectedRecord(
    spout="files",
    path="/in/a.csv",
    line=3,
    reason="hour: 'x' is no int",
    raw="AA,x," + "y" * 200,
    raw_bytes=205,
)


def attempts() -> tuple[AttemptRow, AttemptRow]:
    """One that failed, and one that won."""
    attempt: dict[str, Any] = {
        "attempt": 0,
        "epoch": 3,
        "state": "failed",
        "alone": False,
        "kind": "data",
        "component": "clean",
        "position": "/in/a.csv:17",
        "message": "no hour",
        "cause": "ValueError in clean at f.py:9",
        "detail": None,
        "host": "box",
        "started_at": NOON,
        "ended_at": NOON,
        "spans": {},
    }
    won = {
        **attempt,
        "attempt": 1,
        "state": "applied",
        "kind": None,
        "component": None,
        "position": None,
        "message": None,
        "cause": None,
        "spans": {"processing": 0.75},
    }
    return AttemptRow(**attempt), AttemptRow(**won)


def detail(**changed: Any) -> BatchDetail:
    """A batch that failed once, was committed with rejected rows, and of which somebody ordered a retry."""
    values: dict[str, Any] = {
        "topology": "flights",
        "txid": 7,
        "state": "committed",
        "application": "f.py:t",
        "digest": "ab" * 32,
        "planned_at": NOON,
        "plan_problem": None,
        "metadata": {},
        "ledger": LedgerSummary(
            state="committed",
            attempt=1,
            epoch=3,
            read=1_200,
            rejected=2,
            dead_lettered=0,
            reason=None,
            redo_of=5,
            committed_at=LATER,
            code_hash="cd" * 32,
            seal=None,
        ),
        "files": (SourceFile(spout="files", path="/in/a.csv", size=2048, fingerprint="ef" * 32),),
        "attempts": attempts(),
        "committers": (),
        "edges": (),
        "targets": {},
        "redo_of": 5,
        "redone_as": (RedoLink(txid=9, state="planned"),),
        "rejected_rows": (REJECTED,),
        "orders": (
            OrderRow(
                order_id=4,
                kind="retry",
                txids=(7, 8),
                reason="fixed",
                actor="ann",
                host="desk",
                created_at=NOON,
                state="done",
                answer="batch 7 is committed",
                done_at=LATER,
            ),
        ),
        "actions": (
            ActionRow(
                action_id=1,
                at=LATER,
                actor="ann",
                host="desk",
                command="retry",
                reason="fixed",
                order_id=4,
                txid=7,
                before={"state": "failed"},
                after={"state": "planned"},
            ),
        ),
    }
    return BatchDetail(**{**values, **changed})


def test_show_whole() -> None:
    """Promise: everything about a batch, one subject a paragraph; raw records are cut to the terminal."""
    digest, raw = "ab" * 32, "AA,x," + "y" * 50 + "…"
    assert (
        batch_text(detail(), 60)
        == f"""\
batch 7 of flights  COMMITTED at 2026-11-21T12:01:30.001Z
redoes    batch 5
redone as batch 9, planned
rows      1\u2009200 read, 2 rejected, 0 dead-lettered
commit    attempt 1, epoch 3, code cdcdcdcdcdcd
planned   at 2026-11-21T12:00:00.001Z
failures  1 failed attempt: 1 data, 0 infrastructure, 0 suspect
digest    {digest}

source: 1 file, 2.0 KiB
file          size  fingerprint       spout
/in/a.csv  2.0 KiB  efefefefefefefef  files

rejected: 2 source rows, 1 shown (--rejects all shows all)
  /in/a.csv:3  hour: 'x' is no int
    {raw}

attempt  state          started                   took  phases             epoch  host
      0  failed (data)  2026-11-21T12:00:00.001Z  0 ms  -                      3  box
      1  applied        2026-11-21T12:00:00.001Z  0 ms  processing 750 ms      3  box

attempt 0 failed in clean at /in/a.csv:17: no hour
  cause: ValueError in clean at f.py:9

order 4: retry of batches 7, 8 at 2026-11-21T12:00:00.001Z by ann on desk: fixed
  done at 2026-11-21T12:01:30.001Z: batch 7 is committed

action 1: retry at 2026-11-21T12:01:30.001Z by ann on desk: fixed, order 4
  {{"state": "failed"}} > {{"state": "planned"}}

next      txtopo status flights
          txtopo batches flights"""
    )


def test_show_says_what_a_backfill_is_about_and_what_to_do_when_it_failed() -> None:
    """Promise: a backfill is never offered to `redrive`, which refuses it, and the batch names those that count it."""
    given = {"redo_of": None, "redone_as": (), "orders": ()}
    batch = detail(**given, counted_by=(BackfillLink(txid=9, committer="by_day", state="committed"),))
    assert "counted   into committer by_day by batch 9, committed" in batch_text(batch)

    (order,) = detail().orders
    asked = replace(order, kind="backfill", txids=(), committer="by_day")
    failed = detail(**{**given, "orders": (asked,)}, state="quarantined", backfills=5, committer="by_day")
    text = batch_text(failed)
    assert "backfills batch 5, into committer by_day" in text
    assert "order 4: backfill of by_day at " in text
    assert failed.next_commands == ("txtopo backfill flights by_day", "txtopo status flights")


@pytest.mark.parametrize(("width", "longest"), [(None, 120), (1000, 205), (40, 36), (5, 20)])
def test_raw_records_take_the_width_that_there_is(width: int | None, longest: int) -> None:
    """Promise: narrow and wide; a pipe has no width and gets a bounded piece."""
    raw = [line for line in batch_text(detail(), width).splitlines() if line.startswith("    AA,x,")]

    assert [len(line) - 4 for line in raw] == [longest]


def hostile() -> BatchDetail:
    """Every text that comes from outside is hostile."""
    one = detail()
    (order,), (action,), (attempt, _) = one.orders, one.actions, one.attempts
    return detail(
        files=(SourceFile(spout="files", path=EVIL, size=1, fingerprint="ef"),),
        rejected_rows=(
            RejectedRecord(spout="files", path=EVIL, line=3, reason=EVIL, raw=EVIL + "\x00\r\u200b\x9b", raw_bytes=9),
        ),
        attempts=(
            replace(attempt, message=EVIL, position=EVIL, host=EVIL, cause=EVIL, detail="Traceback:\n\x1b]0;title\x07"),
        ),
        orders=(replace(order, reason=EVIL, answer=EVIL, actor=EVIL),),
        actions=(replace(action, reason=EVIL, before={"why": EVIL}),),
        plan_problem=EVIL,
    )


def is_harmless(text: str) -> bool:
    """Nothing but printable signs, spaces and the line ends of the text itself."""
    return all(sign.isprintable() or sign in "\n\N{THIN SPACE}" for sign in text)


def test_no_text_from_outside_steers_the_terminal() -> None:
    """Promise: control characters, escape sequences, long paths and newlines in file names are printed harmlessly;
    lines stay lines.
    """
    text = batch_text(hostile(), 80)

    assert is_harmless(text)
    assert "/in/a\\nb\\x1b[2J\\u202exxx" in text
    assert (
        len(text.splitlines())
        == len(batch_text(detail(attempts=detail().attempts[:1], plan_problem="x"), 80).splitlines()) + 2
    )  # the traceback
    assert json.loads(batch_json(hostile()))["files"][0]["path"] == EVIL


def event(**changed: Any) -> TimelineEvent:
    """A failed attempt."""
    facts = {"epoch": 3, "kind": "data", "component": "clean", "position": "/in/a.csv:17", "message": "no hour"}
    values: dict[str, Any] = {"at": NOON, "kind": "attempt_failed", "txid": 7, "attempt": 0, "facts": facts}
    return TimelineEvent(**{**values, **changed})


def test_an_event_is_one_line_of_the_width_that_there_is() -> None:
    """Promise: one line an event, whatever is in it; as long as needed where the width is not known."""
    assert (
        event_line(event())
        == "2026-11-21T12:00:00.001Z       7:0  attempt failed     data: clean at /in/a.csv:17: no hour"
    )
    assert event_line(event(), 60) == "2026-11-21T12:00:00.001Z       7:0  attempt failed     data…"
    evil = event(facts={"kind": "data", "component": "clean", "position": EVIL, "message": EVIL + "!"})
    assert is_harmless(event_line(evil))
    assert "\n" not in event_line(evil) + event_json(evil)
    assert len(event_line(evil, 80)) == 80
    assert json.loads(event_json(evil))["facts"]["position"] == EVIL


def test_events_say_what_a_backfill_counts() -> None:
    """Promise: the order, and each batch that carries it out, name the committer."""
    given = {"order": "backfill", "txids": [], "committer": "by_day", "actor": "ann", "host": "desk"}
    filled = {"epoch": 3, "read": 9, "rejected": 0, "backfills": 1, "committer": "by_day"}

    order = event_line(event(kind="order_given", txid=None, attempt=None, order_id=4, facts=given))
    batch = event_line(event(kind="committed", txid=8, facts=filled))

    assert order.endswith("order given        order 4: backfill of by_day; by ann on desk")
    assert batch.endswith("committed          counts batch 1 into committer by_day; 9 read, 0 rejected")


def traced(**changed: Any) -> Trace:
    """A row that two batches made."""
    tables = CommitterTables(
        name="counts",
        target="public.totals",
        keys=("carrier",),
        count="n",
        aggregates=(StoredAggregate("sum", "distance", "miles", "numeric"),),
        contributions=True,
        spout="files",
        way="direct",
    )
    first = Contribution(
        txid=1,
        reverses=None,
        numbers={"n": Decimal(1200), "miles": Decimal("10.50")},
        state="committed",
        attempt=0,
        epoch=3,
        code_hash="cd" * 32,
        committed_at=NOON,
        paths=("/in/a.csv", "/in/b.csv", "/in/c.csv"),
        files=1_003,
    )
    back = replace(
        first,
        txid=3,
        reverses=1,
        numbers={"n": Decimal(-200), "miles": Decimal("-0.50")},
        paths=("/in/a.csv",),
        files=1,
    )
    values: dict[str, Any] = {
        "target": Target(topology="flights", committer="counts", tables=tables),
        "key": {"carrier": "AA"},
        "row": {"n": Decimal(1000), "miles": Decimal("10.00")},
        "contributions": (first, back),
        "count": 2,
        "sums": {"n": Decimal(1000), "miles": Decimal("10.00")},
    }
    return Trace(**{**values, **changed})


def test_trace_whole() -> None:
    """Promise: the row now, one line a contribution, own or taken back, and whether they add up."""
    assert (
        trace_text(traced())
        == """\
public.totals  carrier = AA
row now   n 1\u2009000, miles 10.00
made by   committer counts of topology flights: 2 contributions, oldest first

txid  what            n  miles  committed at              attempt  epoch  code          files
   1  own         1\u2009200  10.50  2026-11-21T12:00:00.001Z        0      3  cdcdcdcdcdcd  /in/a.csv, /in/b.csv, /in/c.csv, … and 1\u2009000 more
   3  reverses 1   -200  -0.50  2026-11-21T12:00:00.001Z        0      3  cdcdcdcdcdcd  /in/a.csv

MATCH     the contributions add up to the row"""  # noqa: E501
    )


def traced_row(**changed: Any) -> Trace:
    """The last row of a key, and two rows of its log."""
    last = LastRows(keys=("id",), version=("step",), deleted=None, whole=False)
    tables = RowTable(
        name="orders",
        target="public.orders",
        log="public.orders_log",
        front=("txid", "attempt", "origin", "n"),
        fields={"id": "bigint", "state": "text", "step": "integer"},
        last=last,
        spout="files",
        way="direct",
        alone=True,
    )
    first, second = traced().contributions
    rows = (
        replace(first, numbers={"state": "new", "step": "1"}, files=3),
        replace(second, reverses=None, numbers={"state": None, "step": "2"}),
    )
    values: dict[str, Any] = {
        "target": Target(topology="shop", committer="orders", tables=tables),
        "key": {"id": "7"},
        "row": {"state": None, "step": "2"},
        "contributions": rows,
        "sums": {"state": None, "step": "2"},
    }
    return replace(traced(), **{**values, **changed})


def test_trace_of_a_last_row() -> None:
    """Promise: each row of the log, and whether the last of them is the row; no row stands for no row, whatever the
    fields are; hostile values are harmless.
    """
    assert (
        trace_text(traced_row())
        == """\
public.orders  id = 7
row now   state -, step 2
made by   committer orders of topology shop: 2 contributions, oldest first

txid  what  state  step  committed at              attempt  epoch  code          files
   1  own     new     1  2026-11-21T12:00:00.001Z        0      3  cdcdcdcdcdcd  /in/a.csv, /in/b.csv, /in/c.csv
   3  own       -     2  2026-11-21T12:00:00.001Z        0      3  cdcdcdcdcdcd  /in/a.csv

MATCH     its log leaves the row state -, step 2"""
    )
    empty = {"state": None, "step": None}
    lost, back = traced_row(row=None, sums=empty), traced_row(row=empty, sums=None)
    assert [one.verdict for one in (lost, back, traced_row(row=None, sums=None))] == ["MISMATCH", "MISMATCH", "MATCH"]
    assert trace_text(lost).endswith("\nMISMATCH  its log leaves the row state -, step -")
    assert trace_text(back).endswith("\nMISMATCH  its log leaves no row")
    assert json.loads(trace_json(back))["sums"] is None
    (one, _) = traced_row().contributions
    assert is_harmless(trace_text(traced_row(contributions=(replace(one, numbers={"state": EVIL, "step": EVIL}),))))


def test_trace_of_a_row_that_differs_or_is_gone() -> None:
    """Promise: MISMATCH with what the contributions say; no row stands for zeros; hostile keys are harmless."""
    differs = traced(row={"n": Decimal(1001), "miles": Decimal("10.00")})
    gone = traced(row=None, key={"carrier": None})
    zero = traced(row=None, sums={"n": Decimal(0), "miles": Decimal("0.00")})
    never = traced(row=None, contributions=(), count=0, sums={"n": Decimal(0), "miles": Decimal(0)})

    assert trace_text(differs).endswith("\nMISMATCH  the contributions add up to n 1\u2009000, miles 10.00")
    assert trace_text(gone).startswith("public.totals  carrier is NULL\nrow now   there is no such row\n")
    assert [one.verdict for one in (differs, gone, zero, never)] == ["MISMATCH", "MISMATCH", "MATCH", "MISMATCH"]
    assert is_harmless(trace_text(traced(key={"carrier": EVIL})))
    assert json.loads(trace_json(traced(key={"carrier": EVIL})))["key"] == {"carrier": EVIL}
