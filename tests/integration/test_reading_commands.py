"""The reading commands on a real database: what they say, what they need, what they end with."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg2
import pytest
from psycopg2 import sql
from sqlalchemy import Engine, event, text

from tests.kit.filled_ledger import FINGERPRINT, FilledLedger
from tests.kit.fix_postgres import execute_as_superuser, folder_for_services
from txtopo.cli import main
from txtopo.errors import PostgresUnavailable
from txtopo.local.postgres import LocalPostgres
from txtopo.operating.orders import NewOrder, Placed, place
from txtopo.reports import report_statements, timeline
from txtopo.reports import trace as tracing
from txtopo.reports.formatting import count
from txtopo.reports.read import reading

MIGRATIONS = Path(__file__).parents[2] / "migrations" / "versions"
Run = Callable[..., "Said"]


class Said:
    """What a command ended with and wrote."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


@pytest.fixture
def ledger(database: str) -> Iterator[FilledLedger]:
    """Topology `flights`: 1, 2 and 4 committed, 3 quarantined, 5 failed twice, 6 planned only."""
    with contextlib.closing(FilledLedger(database)) as filled:
        filled.batch(1)
        filled.batch(2)
        filled.plan(3)
        filled.commit(3, quarantine="the file is gone")
        filled.batch(4)
        filled.plan(5)
        filled.plan(6)
        failure = {
            "kind": "data",
            "component": "clean",
            "position": "/data/day_005.csv:17",
            "message": "flights.py:12 ValueError: no\x1b[31m hour",
            "detail": "Traceback:\n  line 12",
        }
        filled.attempt(5, 0, "failed", **failure)
        filled.attempt(5, 1, "failed", **failure)
        yield filled


@pytest.fixture
def run(database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line against this test's database."""
    monkeypatch.setenv("TXTOPO_DSN", database)

    def run(*arguments: str) -> Said:
        code = main(arguments)
        return Said(code, *capsys.readouterr())

    return run


def test_status_tells_how_a_running_topology_fares(ledger: FilledLedger, run: Run) -> None:
    """Promise: state, last committed txid and when, planned ahead, what it waits for, failed attempts, leader, epoch."""  # noqa: E501
    ledger.lead(planned_txid=6, problem="waiting for ZooKeeper")

    said = run("status", "flights")

    assert said.code == 0
    for part in (
        "flights  RUNNING",
        "up to txid 4 at 20",
        "2 ahead, up to txid 6",
        "waiting for ZooKeeper",
        "2 failed attempts: 2 data, 0 infrastructure, 0 suspect",
        "batch 3 is quarantined and not redone (1 of 1 quarantined)",
        "box pid 4711 since",
        "epoch     3",
    ):
        assert part in said.out


def test_status_of_a_halted_topology_gives_reason_and_next_command(ledger: FilledLedger, run: Run) -> None:
    """Promise: HALTED with reason and next command; exit code 1."""
    ledger.lead("halted", reason="batch failed three times", halted_txid=5)

    said = run("status")

    assert said.code == 1
    assert "HALTED" in said.out
    assert "batch 5: batch failed three times" in said.out
    assert said.out.endswith(
        "  next      txtopo show flights 5\n            txtopo retry flights\n"
        '            txtopo skip flights 5 --reason "…"\n            txtopo redrive flights 3\n'
    )


def test_status_of_a_batch_that_halted_without_a_failed_attempt_says_run(ledger: FilledLedger, run: Run) -> None:
    """Promise: retry and skip are for failed batches; a halt of another kind goes on with a run."""
    ledger.lead("halted", reason="another digest", halted_txid=6)

    said = run("status", "--json")

    assert said.json["topologies"][0]["next_commands"] == [
        "txtopo show flights 6",
        "txtopo run flights.py:topology",
        "txtopo redrive flights 3",
    ]


def test_status_tells_holes_rejected_rows_kinds_of_failure_and_open_orders(ledger: FilledLedger, run: Run) -> None:
    """Promise: failures by kind apart; quarantined batches that nothing redoes; rejected rows in all; open orders."""
    ledger.commit(
        5, 2, rejects=[("/data/day_005.csv", 17, "no hour", b"AA"), ("/data/day_005.csv", 18, "no hour", b"B")]
    )
    ledger.attempt(6, 0, "failed", kind="infrastructure", message="gone")
    ledger.attempt(6, 1, "failed", kind="suspect", message="silent")
    order = ledger.order("retry", 6)
    ledger.order("stop", answer="done")
    ledger.action("run_failed", 1, before={"first": 1, "last": 2}, after={"commits": "one by one"})

    said = run("status", "--json")

    (one,) = said.json["topologies"]
    assert one["failures"] == {"data": 2, "infrastructure": 1, "suspect": 1, "halt": 0}
    assert (one["failed_attempts"], one["failed_txids"]) == (4, [6])
    assert (one["quarantined"], one["holes"], one["hole_txids"], one["rejected"]) == (1, 1, [3], 2)
    opened = {"order_id": order, "kind": "retry", "txids": [6], "committer": None, "filled": None}
    assert (one["open_order_count"], one["open_orders"]) == (1, [opened])
    assert one["next_commands"] == ["txtopo run APP", "txtopo redrive flights 3"]  # the run carries the order out
    assert f"1 open: retry of batch 6 (order {order})" in run("status").out
    ledger.lead()
    ledger.action("run_failed", 4, before={"first": 4, "last": 5}, after={"commits": "one by one"})
    (led,) = run("status", "--json").json["topologies"]
    assert (led["failed_runs"], led["failed_runs_total"]) == (1, 2)  # of the last leader, of all


def test_a_quarantined_batch_is_no_hole_once_a_redo_of_it_is_applied(ledger: FilledLedger, run: Run) -> None:
    """Promise: a hole is a quarantined batch that has no effect to this day; a quarantined redo is no hole of its own."""  # noqa: E501
    ledger.commit(5)
    ledger.commit(6)
    ledger.plan(7, redo_of=3)
    ledger.commit(7, quarantine="again bad", redo_of=3)
    still = run("status", "--json").json["topologies"][0]
    ledger.plan(8, redo_of=7)  # the redo of the redo fills the place of batch 3
    ledger.commit(8, redo_of=7)
    filled = run("status", "--json").json["topologies"][0]

    assert (still["quarantined"], still["hole_txids"]) == (2, [3])
    assert (filled["quarantined"], filled["holes"], filled["next_commands"]) == (2, 0, ["txtopo run APP"])
    assert "holes     none: 2 quarantined batches, each redone, or itself a redo or a backfill" in run("status").out


@pytest.mark.parametrize(("silent_s", "state", "code"), [(20, "RUNNING", 0), (40, "STALLED", 1)])
def test_silence_beyond_the_limit_is_stalled(
    ledger: FilledLedger, run: Run, silent_s: float, state: str, code: int
) -> None:
    """Promise: STALLED when running and heartbeat older than STALLED_AFTER_S by the database's clock; exit code 1."""
    ledger.lead(silent_s=silent_s)

    said = run("status", "--json")

    assert (said.code, said.json["topologies"][0]["state"]) == (code, state)


def test_a_leader_that_lives_and_commits_nothing_is_stalled_and_names_the_batch(ledger: FilledLedger, run: Run) -> None:
    """Promise: health is derived from commit progress, not from a process being alive; exit code 1, and what to look
    at.
    """
    ledger.lead("stalled", silent_s=1, waiting='{"txid": 5, "attempt": 1, "phase": "processing", "for_s": 301.0}')

    said = run("status", "flights")

    assert said.code == 1
    assert "flights  STALLED" in said.out
    assert "turn of   batch 5 attempt 1, processing; nothing committed for 5 min 1 s" in said.out
    assert "next      txtopo show flights 5" in said.out


def test_how_much_input_waits_is_said_by_partition(ledger: FilledLedger, run: Run) -> None:
    """From the last heartbeat, whether or not a batch waits; those where most waits come first."""
    partitions = {"t/20": 1000, "t/0": 200, "t/10": 33, "t/3": 1}
    messages = {"records": 1234, "lagging": 4, "partitions": partitions}
    lag = {"lag": {"messages": messages, "idle": {"records": 0, "lagging": 0, "partitions": {}}}}
    ledger.lead("running", silent_s=1, waiting=json.dumps(lag))

    said = run("status", "flights")

    found = f"{count(1234)} records not committed, in 4 partitions: t/20 {count(1000)}, t/0 200, t/10 33, …"
    assert f"lag       messages: {found}" in said.out
    assert "lag       idle: nothing" in said.out
    assert "turn of" not in said.out
    (one,) = run("status", "flights", "--json").json["topologies"]
    assert list(one["lag"]["messages"]["partitions"].items()) == list(partitions.items())
    assert one["waiting"] == {}


@pytest.mark.parametrize(("stored", "state"), [("stopped", "STOPPED"), ("finished", "FINISHED")])
def test_a_topology_that_ended_well_is_no_bad_answer(ledger: FilledLedger, run: Run, stored: str, state: str) -> None:
    """Promise: only HALTED and STALLED end with 1, however long ago the last heartbeat was."""
    ledger.lead(stored, silent_s=9999)

    said = run("status", "flights")

    assert said.code == 0
    assert f"flights  {state}" in said.out


def test_a_topology_without_leader_row_is_shown(ledger: FilledLedger, run: Run) -> None:
    """Promise: between claiming the fence and the first word of the leader there is nothing to hide."""
    said = run("status")

    assert said.code == 0
    assert "flights  STOPPED" in said.out


def test_no_topology_is_a_sentence_and_not_an_error(run: Run) -> None:
    """Promise: exit code 0 for an empty list."""
    said, as_json = run("status"), run("status", "--json")

    assert (said.code, as_json.code) == (0, 0)
    assert said.out.startswith("No topology has run")
    assert as_json.json == {"schema": "txtopo.status/2", "topologies": []}


@pytest.mark.parametrize(
    "command",
    [
        ("status", "flihgts"),
        ("batches", "flihgts"),
        ("show", "flihgts", "1"),
        ("stop", "flihgts"),
        ("events", "flihgts"),
        ("trace", "flihgts", "--table", "x", "--key", "1"),
    ],
)
def test_an_unknown_topology_is_an_error_that_suggests(
    ledger: FilledLedger, run: Run, command: tuple[str, ...]
) -> None:
    """Promise: a name that does not exist ends with 1 and names what does."""
    said = run(*command)

    assert said.code == 1
    assert "did you mean flights?" in said.err
    assert said.out == ""


def test_batches_come_newest_first_with_their_states(ledger: FilledLedger, run: Run) -> None:
    """Promise: committed, quarantined, planned, failed; attempts, files, read, rejected and counts of committers."""
    said = run("batches", "flights", "--json")

    rows = said.json["batches"]
    assert said.json["schema"] == "txtopo.batches/1"
    assert [(row["txid"], row["state"]) for row in rows] == [
        (6, "planned"),
        (5, "failed"),
        (4, "committed"),
        (3, "quarantined"),
        (2, "committed"),
        (1, "committed"),
    ]
    assert [row["attempts"] for row in rows] == [0, 2, 1, 0, 1, 1]
    assert [row["files"] for row in rows] == [1] * 6
    assert rows[2]["read"] == 1200
    assert rows[2]["committers"][0]["written"] == 35
    assert rows[2]["committers"][0]["digest"] == "123456789012345678901234567890"
    assert 1.4 < rows[2]["duration_s"] < 30
    assert rows[2]["committed_at"].endswith("Z")
    assert rows[1]["committed_at"] is None


@pytest.mark.parametrize(
    ("arguments", "txids"),
    [
        (["--state", "failed"], [5]),
        (["--state", "planned"], [6]),
        (["--state", "quarantined"], [3]),
        (["--state", "committed"], [4, 2, 1]),
        (["--limit", "3"], [6, 5, 4]),
        (["2..4"], [4, 3, 2]),
        (["1,5..", "3", "--limit", "3"], [6, 5, 3]),
        (["..4", "--state", "committed"], [4, 2, 1]),
        (["7..9"], []),
        (["--state", "committed", "--limit", "1"], [4]),
    ],
)
def test_batches_are_filtered_and_limited(
    ledger: FilledLedger, run: Run, arguments: list[str], txids: list[int]
) -> None:
    """Promise: --state and --limit."""
    said = run("batches", "flights", "--json", *arguments)

    assert [row["txid"] for row in said.json["batches"]] == txids


def test_a_batch_whose_attempt_began_before_its_plan_was_mirrored_is_listed(ledger: FilledLedger, run: Run) -> None:
    """Promise: what is uncommitted is listed, wherever it is known from."""
    ledger.attempt(7)

    said = run("batches", "flights", "--json", "--limit", "1")

    assert [(row["txid"], row["state"], row["files"]) for row in said.json["batches"]] == [(7, "planned", 0)]


def test_files_of_a_batch_that_is_not_mirrored_are_counted_by_what_its_attempt_was_to_read(
    ledger: FilledLedger, run: Run
) -> None:
    """Promise: a batch that failed before it was mirrored does not look like one of no files; a cut list says how many
    it had.
    """
    files = [{"path": f"/data/{name}.csv"} for name in "abc"]
    ledger.attempt(7, 0, "failed", kind="data", message="no", inputs=json.dumps({"days": {"files": files[:1]}}))
    ledger.attempt(
        7, 1, "failed", kind="data", message="no", inputs=json.dumps({"days": {"files": files}, "topic": {"from": 3}})
    )
    ledger.attempt(8, 0, inputs=json.dumps({"days": {"files": files, "$more": 40}}))
    ledger.attempt(9, 0, inputs=json.dumps({"topic": {"from": 3}}))

    said = run("batches", "flights", "7..", "--json")

    assert [(row["txid"], row["files"]) for row in said.json["batches"]] == [(9, 0), (8, 43), (7, 3)]
    assert run("batches", "flights", "7").out.splitlines()[1].split()[4:6] == ["failed)", "3"]


TIMES = ["0044-03-15 BC", "infinity", "-infinity", "20000-01-01"]


@pytest.mark.parametrize("when", TIMES)
def test_times_that_python_does_not_have_end_no_reading_command(ledger: FilledLedger, run: Run, when: str) -> None:
    """Promise: whatever somebody wrote into the rows, whoever looks is told of it."""
    ledger.lead("halted", reason="no", halted_txid=5)
    ledger.attempt(7, 0, "failed", kind="data", message="no")
    with ledger.connection:
        ledger.execute("set local session_replication_role = replica")
        ledger.execute("update txtopo.topology set heartbeat_at = %s, started_at = %s", when, when)
        ledger.execute("update txtopo.attempt set started_at = %s", when)
        ledger.execute("update txtopo.ledger set committed_at = %s, planned_at = %s where txid = 4", when, when)

    for command in (
        ["status"],
        ["batches", "flights"],
        ["show", "flights", "4"],
        ["show", "flights", "7"],
        ["events", "flights"],
    ):
        assert run(*command).out
        assert run(*command, "--json").out.startswith("{")


def test_another_topology_does_not_show(ledger: FilledLedger, run: Run) -> None:
    """Promise: every SELECT is bound to its topology."""
    with contextlib.closing(FilledLedger(ledger.dsn, "orders")) as other:
        other.plan(1)
        other.attempt(1, 0, "failed", kind="data", message="x")

        said, status = run("batches", "orders", "--json"), run("status", "orders", "--json")
        mine = run("show", "flights", "1", "--json")

    assert [row["txid"] for row in said.json["batches"]] == [1]
    assert [one["failed_attempts"] for one in status.json["topologies"]] == [1]
    assert [attempt["state"] for attempt in mine.json["attempts"]] == ["applied"]


def test_show_tells_everything_about_a_committed_batch(ledger: FilledLedger, run: Run) -> None:
    """Promise: files with size and fingerprint, rows, attempts, committers, spans, digest, next commands."""
    said, as_json = run("show", "flights", "4"), run("show", "flights", "4", "--json")

    assert said.code == 0
    for part in (
        "batch 4 of flights  COMMITTED at",
        "1\u2009200 read",
        "/data/day_004.csv",
        "400 B",
        FINGERPRINT.hex()[:16],
        "processing 750 ms",
        "commit 3 ms",
        "public.flights_totals",
        "next",
        as_json.json["digest"],
    ):
        assert part in said.out
    assert as_json.json["schema"] == "txtopo.batch/2"
    assert as_json.json["files"] == [
        {"spout": "files", "path": "/data/day_004.csv", "size": 400, "fingerprint": FINGERPRINT.hex()}
    ]
    assert as_json.json["targets"] == {"counts": "public.flights_totals"}
    assert as_json.json["ledger"]["read"] == 1200


def test_show_tells_why_a_batch_failed(ledger: FilledLedger, run: Run) -> None:
    """Promise: attempts with times, errors and host; text from data never steers the terminal."""
    said = run("show", "flights", "5")

    assert said.code == 0
    assert "batch 5 of flights  FAILED" in said.out
    assert "attempt 0 failed in clean at /data/day_005.csv:17: flights.py:12 ValueError" in said.out
    assert "attempt 1 failed in the same way" in said.out
    assert "    Traceback:\n      line 12" in said.out
    assert "\x1b" not in said.out


def test_show_tells_why_a_batch_is_quarantined(ledger: FilledLedger, run: Run) -> None:
    """Promise: R14, a quarantined batch is a row with its reason."""
    said = run("show", "flights", "3")

    assert "QUARANTINED" in said.out
    assert "the file is gone" in said.out
    assert "next      txtopo redrive flights 3" in said.out


def test_show_of_a_failed_batch_gives_the_ways_out_and_counts_failures_by_kind(ledger: FilledLedger, run: Run) -> None:
    """Promise: retry and skip; data, infrastructure and suspect apart."""
    ledger.attempt(5, 2, "failed", kind="suspect", message="silent")

    said, as_json = run("show", "flights", "5"), run("show", "flights", "5", "--json")

    assert 'next      txtopo retry flights\n          txtopo skip flights 5 --reason "…"' in said.out
    assert "failures  3 failed attempts: 2 data, 0 infrastructure, 1 suspect" in said.out
    assert as_json.json["failures"] == {"data": 2, "infrastructure": 0, "suspect": 1, "halt": 0}


def test_show_lists_rejected_rows_and_as_many_as_asked_for(ledger: FilledLedger, run: Run) -> None:
    """Promise: the first 20 with file, line, reason and raw text; --rejects for others; bytes that are no text are
    shown harmlessly.
    """
    rejects = [
        ("/data/day_005.csv", 100 + n, "no\x1b hour", b"AA,\xff\x00\x1b[31m" if n else b"x" * 3000) for n in range(25)
    ]
    ledger.commit(5, 2, rejects=rejects)

    said, all_of_them = run("show", "flights", "5"), run("show", "flights", "5", "--rejects", "all", "--json")
    none, wrong = run("show", "flights", "5", "--rejects", "0"), run("show", "flights", "5", "--rejects", "few")

    assert "1\u2009200 read, 25 rejected" in said.out
    assert "rejected: 25 source rows, 20 shown (--rejects all shows all)" in said.out
    assert "  /data/day_005.csv:119  no\\x1b hour\n    AA,\\xff\\x00\\x1b[31m" in said.out
    assert "day_005.csv:120" not in said.out
    assert max(map(len, said.out.splitlines())) < 200
    assert [row["line"] for row in all_of_them.json["rejected_rows"]] == [*range(100, 125)]
    assert (len(all_of_them.json["rejected_rows"][0]["raw"]), all_of_them.json["rejected_rows"][0]["raw_bytes"]) == (
        2000,
        3000,
    )
    assert ("rejected: 25 source rows, 0 shown" in none.out, none.code, wrong.code) == (True, 0, 2)


def test_show_links_a_batch_and_its_redos_both_ways(ledger: FilledLedger, run: Run) -> None:
    """Promise: redo of and redone as, also while the redo is only planned."""
    ledger.commit(5)
    ledger.commit(6)
    ledger.plan(7, redo_of=3)
    planned, redo = run("show", "flights", "3", "--json"), run("show", "flights", "7")
    ledger.attempt(7, 0, "failed", kind="data", message="x")
    failed = run("show", "flights", "3", "--json")
    ledger.commit(7, quarantine="bad", redo_of=3)
    free, quarantined = run("show", "flights", "3", "--json"), run("show", "flights", "7", "--json")
    ledger.plan(8, redo_of=3)
    ledger.commit(8, redo_of=3)
    done, rows = run("show", "flights", "3"), run("batches", "flights")

    assert planned.json["redone_as"] == [{"txid": 7, "state": "planned"}]
    assert planned.json["next_commands"] == ["txtopo status flights", "txtopo batches flights"]
    assert "redoes    batch 3" in redo.out
    assert failed.json["redone_as"] == [{"txid": 7, "state": "failed"}]
    assert free.json["redone_as"] == [{"txid": 7, "state": "quarantined"}]
    assert free.json["next_commands"][0] == "txtopo redrive flights 3"
    assert quarantined.json["next_commands"][0] == "txtopo show flights 3"
    assert "redone as batch 7, quarantined\nredone as batch 8, committed" in done.out
    assert [line.split()[:2] for line in rows.out.splitlines()[1:3]] == [["8", "committed"], ["7", "quarantined"]]
    assert "redo of" in rows.out.splitlines()[0]


def test_show_tells_orders_and_actions_about_a_batch_and_no_others(ledger: FilledLedger, run: Run) -> None:
    """Promise: who did what, when and why: orders that name the batch or led to an action on it, and the actions."""
    named = ledger.order("retry", 5, 6)
    ledger.order("retry", 6, answer="not mine")
    behind = ledger.order("retry", answer="every failed batch", reason="night")  # names no batch
    ledger.action("retry", 5, behind, before={"state": "failed"}, after={"state": "planned"})
    ledger.action("retry", 6, behind)

    said, as_json = run("show", "flights", "5"), run("show", "flights", "5", "--json")

    assert [order["order_id"] for order in as_json.json["orders"]] == [named, behind]
    assert [(action["command"], action["order_id"], action["before"]) for action in as_json.json["actions"]] == [
        ("retry", behind, {"state": "failed"})
    ]
    assert f"order {named}: retry of batches 5, 6 at 20" in said.out
    assert "by ann on desk: night\n  done at 20" in said.out
    assert "every failed batch" in said.out
    assert f'by ann on desk: why, order {behind}\n  {{"state": "failed"}} > {{"state": "planned"}}' in said.out


def test_show_of_an_unknown_batch_ends_with_1(ledger: FilledLedger, run: Run) -> None:
    """Promise: a clear error, exit code 1."""
    said = run("show", "flights", "17")

    assert (said.code, said.out) == (1, "")
    assert "flights has no batch 17: its batches go from 1 to 6" in said.err


def test_show_reads_a_file_list_that_lies_in_pieces(ledger: FilledLedger, run: Run) -> None:
    """Promise: metadata too long for a plan is put back from plan_part."""
    piece = json.dumps({"files": [{"path": "/data/day_008.csv", "size": 77}]}).encode()
    with ledger.connection:
        ledger.execute("insert into txtopo.plan_part (digest, bytes) values (sha256(%s), %s)", piece, piece)
        digest = ledger.execute("select encode(digest, 'hex') from txtopo.plan_part")[0][0]
    from tests.kit.filled_ledger import INCARNATION
    from txtopo.core.plan import Plan

    plan = Plan(
        topology="flights", incarnation=INCARNATION, txid=7, previous_digest=b"x", metadata={"files": {"$part": digest}}
    )
    with ledger.connection:
        ledger.execute(
            "insert into txtopo.plan (topology, txid, digest, bytes, epoch) values ('flights', 7, %s, %s, 3)",
            plan.digest,
            plan.bytes,
        )
        ledger.execute(
            "insert into txtopo.source_file (topology, spout, path, fingerprint, txid) values ('flights', 'files', "
            "'/data/day_008.csv', 'x', 7)"
        )

    said = run("show", "flights", "7", "--json")

    assert [file["size"] for file in said.json["files"]] == [77]
    assert said.json["plan_problem"] is None


def test_show_says_when_a_plan_cannot_be_read(ledger: FilledLedger, run: Run) -> None:
    """Promise: an unreadable plan is named and hides nothing else (Z14)."""
    with ledger.connection:
        ledger.execute(
            "insert into txtopo.plan (topology, txid, digest, bytes, epoch) values ('flights', 7, 'd', 'rubbish', 3)"
        )

    said = run("show", "flights", "7")

    assert said.code == 0
    assert "cannot be read: table txtopo.plan holds no readable plan" in said.out


def test_a_role_that_may_only_select_can_read_everything(
    ledger: FilledLedger, run: Run, postgres_server: LocalPostgres
) -> None:
    """Promise: reading needs SELECT and nothing else, and no ZooKeeper; stop is refused with 3, for want of the right
    to write.
    """
    ledger.targets()
    ledger.contribute(1, "AA", 1, 5)
    role = f"reader_{ledger.connection.info.dbname}"
    execute_as_superuser(
        ledger.dsn,
        sql.SQL("create role {} login").format(sql.Identifier(role)),
        sql.SQL("grant usage on schema txtopo to {}").format(sql.Identifier(role)),
        sql.SQL("grant select on all tables in schema txtopo to {}").format(sql.Identifier(role)),
    )
    tracing = ["trace", "--table", "flights_totals", "--key", "carrier=AA", "--key", "day=1"]
    try:
        dsn = as_role(ledger.dsn, role)
        codes = [
            run("--dsn", dsn, *command).code
            for command in (["status"], ["batches", "flights"], ["show", "flights", "4"], ["events", "flights"])
        ]
        target = run("--dsn", dsn, *tracing)
        execute_as_superuser(
            ledger.dsn, sql.SQL("grant select on all tables in schema public to {}").format(sql.Identifier(role))
        )
        traced = run("--dsn", dsn, *tracing)
        refused = run("--dsn", dsn, "stop", "flights")
    finally:
        execute_as_superuser(ledger.dsn, sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))

    assert codes == [0, 0, 0, 0]
    assert (target.code, traced.code) == (3, 0)
    assert "permission denied for table flights_totals" in target.err
    assert "reading needs USAGE on the schema and SELECT on its tables" in target.err
    assert refused.code == 3
    assert "permission denied" in refused.err


def as_role(dsn: str, role: str) -> str:
    """The same database as another role."""
    scheme, _, rest = dsn.partition("://")
    return f"{scheme}://{quote(role)}@{rest.rpartition('@')[2]}"


def test_a_reading_command_cannot_write(ledger: FilledLedger) -> None:
    """Promise: reading commands send SELECTs in a read-only database transaction."""
    with pytest.raises(PostgresUnavailable, match="read-only"), reading(ledger.dsn) as connection:
        connection.execute(text("insert into txtopo.request (topology, kind) values ('flights', 'stop')"))


def test_a_command_sees_one_state_of_the_database(ledger: FilledLedger) -> None:
    """Promise: I12, every reader sees the state after some txid."""
    with reading(ledger.dsn) as connection:
        before = connection.execute(text("select last_txid from txtopo.fence")).scalar_one()
        ledger.commit(5)
        after = connection.execute(text("select last_txid from txtopo.fence")).scalar_one()

    assert before == after == 4


def test_a_database_without_schema_names_the_command(empty_database: str, run: Run) -> None:
    """Promise: error = what failed and the next command to type; exit code 2."""
    said = run("--dsn", empty_database, "status")

    assert said.code == 2
    assert "run `txtopo migrate`" in said.err


@pytest.mark.parametrize("command", [("show", "flights", "1"), ("events", "flights")])
def test_a_schema_of_an_earlier_release_names_the_command(
    empty_database: str, run: Run, command: tuple[str, ...]
) -> None:
    """Promise: what the reading commands need of a later migration is said as such; exit code 2."""
    first = (MIGRATIONS / "0001_create_ledger.sql").read_text("utf-8")
    execute_as_superuser(empty_database, sql.SQL("create schema txtopo"), sql.SQL(first))
    with contextlib.closing(FilledLedger(empty_database)) as filled:
        filled.plan(1)

    said = run("--dsn", empty_database, *command)

    assert (said.code, said.out) == (2, "")
    assert "has no up-to-date schema txtopo: run `txtopo migrate`" in said.err
    assert "where that finds it up to date, somebody changed it, and `txtopo audit` says what" in said.err


def test_a_schema_of_a_newer_release_asks_for_an_upgrade_of_txtopo(database: str, run: Run) -> None:
    """Promise: a column that is gone in a newer release is no reason to migrate with this one; exit code 2."""
    execute_as_superuser(
        database,
        sql.SQL("update txtopo.schema_version set version_num = '9999'"),
        sql.SQL("alter table txtopo.fence rename column last_txid to last"),
    )

    for command in ("status", "migrate"):
        said = run("--dsn", database, command)
        assert said.code == 2
        assert "was migrated by a newer release of txtopo" in said.err
        assert "run `txtopo migrate`" not in said.err


@pytest.mark.parametrize(
    "command", [("status",), ("migrate",), ("migrate", "--check"), ("batches", "flights"), ("stop", "flights")]
)
def test_postgres_away_is_3_and_the_password_stays_hidden(run: Run, command: tuple[str, ...]) -> None:
    """Promise: 3 means that the check did not run; no secret in an error."""
    said = run("--dsn", "postgresql://me:hush@127.0.0.1:9/nowhere", *command)

    assert (said.code, said.out) == (3, "")
    assert "postgresql://me:***@127.0.0.1:9/nowhere" in said.err
    assert "hush" not in said.err


def test_migrate_applies_once_and_check_says_what_is_pending(empty_database: str, run: Run) -> None:
    """Promise: --check ends with 1 when something is pending and changes nothing."""
    pending, again = (
        run("--dsn", empty_database, "migrate", "--check"),
        run("--dsn", empty_database, "migrate", "--check"),
    )
    applied, nothing = run("--dsn", empty_database, "migrate"), run("--dsn", empty_database, "migrate")
    done = run("--dsn", empty_database, "migrate", "--check")

    assert (pending.code, again.code, applied.code, nothing.code, done.code) == (1, 1, 0, 0, 0)
    assert "pending 0001" in again.out
    assert "applied 0001" in applied.out
    assert "nothing to do" in nothing.out


def test_stop_does_nothing_when_no_leader_is_alive(ledger: FilledLedger, run: Run) -> None:
    """Promise: says so, does nothing, exit code 0; an order left open would stop the next leader."""
    ledger.lead(silent_s=60)
    stalled = run("stop", "flights")
    ledger.lead("finished")
    finished = run("stop", "flights")

    assert (stalled.code, finished.code) == (0, 0)
    assert "No leader of flights is alive" in stalled.out
    assert "flights does not run (FINISHED)" in finished.out
    assert list(ledger.orders()) == []


def test_stop_follows_the_order_until_the_leader_has_carried_it_out(
    ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: inserts an order of kind stop and prints what happened."""
    ledger.lead()
    monkeypatch.setattr("txtopo.operating.orders.POLL_S", 0.02)
    answer = answering(ledger.dsn, "done", "3 batches were finished")

    said = run("stop", "flights", "--timeout", "20")
    answer.join()

    assert said.code == 0
    assert "flights is stopped: 3 batches were finished" in said.out
    assert [(kind, state, bool(actor)) for kind, state, _, actor in ledger.orders()] == [("stop", "done", True)]


def test_stop_that_is_refused_ends_with_1(ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: the answer is bad."""
    ledger.lead()
    monkeypatch.setattr("txtopo.operating.orders.POLL_S", 0.02)
    answer = answering(ledger.dsn, "refused", "not now")

    said = run("stop", "flights", "--timeout", "20")
    answer.join()

    assert said.code == 1
    assert "not now" in said.err


def test_stop_that_takes_too_long_ends_with_3_and_is_not_asked_twice(ledger: FilledLedger, run: Run) -> None:
    """Promise: the timeout bounds the wait; the order stands, once."""
    ledger.lead()

    first, second = run("stop", "flights", "--timeout", "0"), run("stop", "flights", "--timeout", "0")

    assert (first.code, second.code) == (3, 3)
    assert "not carried out within 0 s; the order to stop (order 1) is open" in first.err
    assert len(ledger.orders()) == 1


def test_stop_withdraws_the_order_when_the_leader_dies_meanwhile(
    ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: an order that nobody can carry out does not stop the next leader."""
    ledger.lead()

    def placed_and_dead(dsn: str, order: NewOrder) -> Placed:
        found = place(dsn, order)
        ledger.lead("halted", reason="x")
        return found

    monkeypatch.setattr("txtopo.client.place", placed_and_dead)

    said = run("stop", "flights")

    assert said.code == 0
    assert "does not run any more" in said.out
    assert [(state, answer) for _, state, answer, _ in ledger.orders()] == [
        ("refused", "withdrawn: no leader is alive")
    ]


def answering(dsn: str, state: str, answer: str) -> threading.Thread:
    """A leader of few words: waits for an order and answers it."""

    def wait_and_answer() -> None:
        with contextlib.closing(psycopg2.connect(dsn)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for _ in range(2000):
                    cursor.execute(
                        "update txtopo.request set state = %s, answer = %s, done_at = clock_timestamp() where state "
                        "= 'open' returning 1",
                        (state, answer),
                    )
                    if cursor.fetchone():
                        return
                    cursor.execute("select pg_sleep(0.01)")

    thread = threading.Thread(target=wait_and_answer, daemon=True)
    thread.start()
    return thread


def test_nothing_is_read_by_walking_through_ten_thousand_batches(database: str) -> None:
    """Promise: batches, show and events stay fast: no statement walks through the ledger or what hangs on it to list
    twenty batches.
    """
    with contextlib.closing(FilledLedger(database, "big")) as big:
        big.many(10_000)

    plan = explained(
        database,
        {
            "topology": "big",
            "last": 10_000,
            "txid": 5_000,
            "cut": 0,
            "state": None,
            "limit": 20,
            "txids": [*range(9_981, 10_001)],
            "raw_bytes_max": 2_000,
            "low": 9_981,
            "high": 2**63 - 1,
            "rows": 20,
            "since": None,
            "shown": 3,
            "firsts": [1],
            "lasts": [10_000],
        },
    )

    for table in ("ledger", "attempt", "committer_count", "plan", "source_file", "rejected_row"):
        assert f"Seq Scan on {table}" not in plan


def explained(dsn: str, values: dict[str, Any]) -> str:
    """How the server carries out the statements of `batches`, `show`, `events` and `trace`."""
    listing = (
        report_statements.OPEN_PLANS,
        report_statements.OPEN_ATTEMPTS,
        report_statements.LEDGER_ROWS,
        report_statements.ATTEMPTS_OF,
        report_statements.COMMITTERS_OF,
        report_statements.FILES_OF,
    )
    showing = (
        report_statements.LEDGER_ROW,
        report_statements.PLAN,
        report_statements.ATTEMPTS,
        report_statements.COMMITTERS,
        report_statements.SOURCE_FILES,
        report_statements.REDOS,
        report_statements.OPEN_PLAN_BYTES,
        report_statements.REJECTED_ROWS,
    )
    happening = (timeline.NOW, timeline.PLANS, timeline.ATTEMPTS, timeline.LEDGER, timeline.REDOS)
    with reading(dsn) as connection:
        lines = [
            line
            for statement in (*listing, *showing, *happening, tracing.BATCHES, tracing.FILES)
            for line in connection.execute(text(f"explain {statement}"), values).scalars()
        ]
    return "\n".join(lines)


def test_the_number_of_statements_does_not_grow_with_the_batches(database: str, run: Run) -> None:
    """Promise: a reading command asks the server a bounded number of questions, however long the history is."""
    with contextlib.closing(FilledLedger(database, "big")) as big:
        big.many(2_000)
    counted: list[str] = []

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        counted.append(statement)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        said = [
            run(*command)
            for command in (
                ["status"],
                ["batches", "big", "--limit", "1000"],
                ["show", "big", "1000"],
                ["events", "big"],
            )
        ]
    finally:
        event.remove(Engine, "before_cursor_execute", count)

    assert [one.code for one in said] == [0, 0, 0, 0]
    assert "11 of 20 quarantined" in said[0].out
    assert len(counted) <= 45


@pytest.mark.postgres
@pytest.mark.zookeeper
def test_local_services_are_found_by_every_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: after `txtopo dev up` a newcomer types no connection string; what it prints on stdout can be evaluated
    by a shell.
    """
    monkeypatch.delenv("TXTOPO_DSN", raising=False)
    monkeypatch.delenv("TXTOPO_ZK", raising=False)
    with folder_for_services() as folder:
        monkeypatch.setenv("TXTOPO_HOME", str(folder / "home"))
        try:
            up = main(["dev", "up"])
            exported = capsys.readouterr().out.splitlines()
            codes = [up, main(["dev", "status"]), main(["migrate"]), main(["migrate", "--check"]), main(["status"])]
        finally:
            down = main(["dev", "down", "--wipe"])

    assert (*codes, down) == (0, 0, 0, 0, 0, 0)
    assert exported[0].startswith("export TXTOPO_DSN=postgresql://")
    assert exported[1].startswith("export TXTOPO_ZK=127.0.0.1:")
    assert exported[1].endswith("/txtopo")
