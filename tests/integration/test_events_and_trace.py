"""`events` and `trace` on a real database: what happened in one timeline, and what a row of a target was made of."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.filled_ledger import CODE, FilledLedger
from txtopo.cli import main
from txtopo.reports.read import reading
from txtopo.reports.timeline import Timeline, TimelineEvent

Said = tuple[int, str, str]
Run = Callable[..., Said]


@pytest.fixture
def ledger(database: str) -> Iterator[FilledLedger]:
    """Topology `flights` without any batch yet."""
    with contextlib.closing(FilledLedger(database)) as filled:
        yield filled


@pytest.fixture
def run(database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line against this test's database: exit code, stdout, stderr."""
    monkeypatch.setenv("TXTOPO_DSN", database)

    def run(*arguments: str) -> Said:
        code = main(arguments)
        return (code, *capsys.readouterr())

    return run


def history(ledger: FilledLedger) -> int:
    """Batch 1 went through, 2 failed and was skipped by an order, 3 redoes it; the leader has ended. Returns the
    order's id.
    """
    ledger.lead()
    ledger.batch(1)
    ledger.plan(2)
    ledger.attempt(
        2, 0, "failed", kind="data", component="clean", position="/data/day_002.csv:17", message="no\x1b[31m hour"
    )
    ledger.attempt(2, 1, "cancelled")
    order = ledger.order("skip", 2, answer="batch 2 is quarantined")
    ledger.commit(2, 1, quarantine="skipped: why")
    ledger.action("skip", 2, order, before={"state": "failed"}, after={"state": "quarantined"})
    ledger.plan(3, redo_of=2)
    ledger.attempt(3, state="applied")
    ledger.commit(3, redo_of=2, rejects=[("/data/day_002.csv", 17, "no hour", b"AA")])
    with ledger.connection:
        ledger.execute(
            "update txtopo.topology set state = 'halted', reason = 'enough', halted_txid = 3, heartbeat_at = "
            "clock_timestamp() where topology = %s",
            ledger.topology,
        )
    return order


def told(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def kinds(events: Any) -> list[tuple[str, int | None]]:
    return [(event["kind"], event["txid"]) for event in events]


def test_everything_that_happened_is_in_one_timeline_oldest_first(ledger: FilledLedger, run: Run) -> None:
    """Promise: attempts, plans, batches, redos, orders, actions and the last leader; the applied attempt ends with its
    batch's commit.
    """
    history(ledger)

    code, out, _ = run("events", "flights", "--json")

    events = told(out)
    assert code == 0
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    assert {event["schema"] for event in events} == {"txtopo.event/2"}
    # Attempts of a filled ledger begin 1.5 s before they are written: compared are the others in their order, then
    # these.
    begun = [event for event in events if event["kind"] == "attempt_begun"]
    assert [(event["txid"], event["attempt"]) for event in begun] == [(1, 0), (2, 0), (2, 1), (3, 0)]
    assert kinds(event for event in events if event["kind"] != "attempt_begun") == [
        ("leader_started", None),
        ("planned", 1),
        ("committed", 1),
        ("planned", 2),
        ("attempt_failed", 2),
        ("attempt_cancelled", 2),
        ("order_given", None),
        ("order_done", None),
        ("quarantined", 2),
        ("action", 2),
        ("planned", 3),
        ("committed", 3),
        ("leader_ended", 3),
    ]


def test_events_say_what_is_known_of_each(ledger: FilledLedger, run: Run) -> None:
    """Promise: kind, component, position and message of a failure; reasons; actor, order and states of an action;
    harmless on a terminal.
    """
    order = history(ledger)

    _, out, _ = run("events", "flights")
    _, as_json, _ = run("events", "flights", "--json")

    lines = "\n".join(line[26:] for line in out.splitlines())
    for line in (
        "          leader started     box pid 4711, epoch 3",
        "     2:0  attempt failed     data: clean at /data/day_002.csv:17: no\\x1b[31m hour",
        f"          order given        order {order}: skip of batch 2; by ann on desk; why",
        f"          order done         order {order}: skip of batch 2; batch 2 is quarantined",
        "     2:1  quarantined        1\u2009200 read, 0 rejected; skipped: why",
        (
            f'       2  action             skip; by ann on desk; order {order}; why; {{"state": "failed"}} > '
            f'{{"state": '
            f'"quarantined"}}'
        ),
        "     3:0  committed          redoes batch 2; 1\u2009200 read, 1 rejected",
        "       3  leader ended       box pid 4711, epoch 3; halted; enough",
    ):
        assert line in lines
    (failed,) = [event for event in told(as_json) if event["kind"] == "attempt_failed"]
    assert failed["facts"] == {
        "epoch": 3,
        "kind": "data",
        "component": "clean",
        "position": "/data/day_002.csv:17",
        "message": "no\x1b[31m hour",
    }


def test_events_of_one_batch_are_its_own_with_its_redos_orders_and_actions(ledger: FilledLedger, run: Run) -> None:
    """Promise: `events TOPOLOGY TXID`."""
    history(ledger)
    ledger.order("retry", 3)
    behind = ledger.order("retry", answer="every failed batch")  # names no batch
    ledger.action("retry", 2, behind)

    _, out, _ = run("events", "flights", "2", "--json")
    missing, nothing, err = run("events", "flights", "9")

    assert {(event["kind"], event["txid"]) for event in told(out)} == {
        ("planned", 2),
        ("attempt_begun", 2),
        ("attempt_failed", 2),
        ("attempt_cancelled", 2),
        ("order_given", None),
        ("order_done", None),
        ("quarantined", 2),
        ("action", 2),
        ("committed", 3),
    }
    assert len(told(out)) == 13
    assert [event["order_id"] for event in told(out) if event["kind"] == "order_done"][1:] == [behind]
    assert (missing, nothing) == (1, "")
    assert "flights has no batch 9" in err


def test_another_topology_does_not_show(ledger: FilledLedger, run: Run) -> None:
    """Promise: every SELECT is bound to its topology."""
    history(ledger)
    before = run("events", "flights"), run("events", "flights", "2"), run("show", "flights", "2", "--json")
    with contextlib.closing(FilledLedger(ledger.dsn, "orders")) as other:
        history(other)
        other.batch(4)
        other.order("retry", 2)
        other.action("retry", 2)

        after = run("events", "flights"), run("events", "flights", "2"), run("show", "flights", "2", "--json")

    assert after == before


def test_the_last_events_are_the_newest_ones(ledger: FilledLedger, run: Run) -> None:
    """Promise: --limit; whichever table they come from."""
    history(ledger)
    for txid in range(4, 8):
        ledger.batch(txid)

    _, all_of_them, _ = run("events", "flights", "--json")
    _, last, _ = run("events", "flights", "--json", "--limit", "7")

    assert told(last) == told(all_of_them)[-7:]


def test_the_last_event_may_be_about_a_lower_batch_than_others(ledger: FilledLedger, run: Run) -> None:
    """Promise: the newest by time, not by txid: a batch is tried again while later ones wait."""
    for txid in range(1, 4):
        ledger.plan(txid)
    ledger.attempt(3)
    ledger.attempt(1, 0, "failed", kind="data", message="x")

    _, out, _ = run("events", "flights", "--json", "--limit", "1")

    assert kinds(told(out)) == [("attempt_failed", 1)]


def test_a_topology_to_which_nothing_happened_is_a_sentence(ledger: FilledLedger, run: Run) -> None:
    """Promise: an empty list is no error; its JSON has no lines."""
    assert run("events", "flights") == (0, "Nothing has happened to flights yet.\n", "")
    assert run("events", "flights", "--json") == (0, "", "")


def test_following_gives_each_event_once_and_late_ones_too(ledger: FilledLedger) -> None:
    """Promise: `-f` goes on with what is new: also an end that is noted, or an order that is answered, long after other
    things happened.
    """
    history(ledger)
    ledger.plan(4)
    ledger.attempt(4)
    order = ledger.order("retry", 4)
    timeline = Timeline("flights")

    first = look(ledger, lambda connection: timeline.last(connection, 3, is_followed=True) or [])
    nothing = look(ledger, timeline.new)
    with ledger.connection:
        ledger.execute("update txtopo.attempt set state = 'cancelled', ended_at = clock_timestamp() where txid = 4")
        ledger.execute(
            "update txtopo.request set state = 'refused', answer = 'no', done_at = clock_timestamp() where "
            "request_id = %s",
            order,
        )
    ledger.attempt(4, 1, "applied")
    ledger.commit(4, 1)
    second = look(ledger, timeline.new)
    ledger.plan(5)
    ledger.attempt(5)
    ledger.plan(6)
    ledger.attempt(5, 1, "applied")
    ledger.commit(5, 1)
    ledger.commit(6)
    third = look(ledger, timeline.new)
    with ledger.connection:
        ledger.execute(
            "update txtopo.attempt set state = 'cancelled', ended_at = clock_timestamp() where txid = 5 and attempt = 0"
        )
    late = look(ledger, timeline.new)
    again = look(ledger, timeline.new)

    assert len(first) == 3
    assert (nothing, again, len(third)) == ([], [], 6)
    assert [(event.kind, event.txid) for event in late] == [("attempt_cancelled", 5)]
    assert sorted((event.kind, event.txid, event.attempt) for event in second) == [
        ("attempt_begun", 4, 1),
        ("attempt_cancelled", 4, 0),
        ("committed", 4, 1),
        ("order_refused", None, None),
    ]


def test_following_begins_where_a_long_history_ends(database: str) -> None:
    """Promise: what happened before is not told as new, however little of it was shown; each new batch is."""
    with contextlib.closing(FilledLedger(database, "big")) as big:
        big.many(300)
        big.lead("running")
        timeline = Timeline("big")

        shown = look(big, lambda connection: timeline.last(connection, 1, is_followed=True) or [])
        nothing = look(big, timeline.new)
        with big.connection:
            big.execute("set local session_replication_role = replica")
            big.execute("update txtopo.ledger set txid = 301, prev_txid = 300 where txid = 299")
            big.execute("update txtopo.fence set last_txid = 301")
        new = look(big, timeline.new)

    assert [event.kind for event in shown] == ["leader_started"]
    assert nothing == []
    assert [(event.kind, event.txid) for event in new] == [("committed", 301)]


def look(ledger: FilledLedger, read: Callable[[Any], list[TimelineEvent]]) -> list[TimelineEvent]:
    """One look in a snapshot of its own."""
    with reading(ledger.dsn) as connection:
        return read(connection)


def test_following_ends_with_ctrl_c_and_130(ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: `-f` prints what is new until Ctrl-C."""
    history(ledger)
    pauses = iter([lambda: ledger.batch(4), interrupt])
    module = importlib.import_module("txtopo.cli.events")
    monkeypatch.setattr(module, "pause", lambda _: next(pauses)())

    code, out, err = run("events", "flights", "-f", "--limit", "1", "--json")

    assert code == 130
    assert "interrupted" in err
    assert kinds(told(out)) == [("leader_ended", 3), ("attempt_begun", 4), ("planned", 4), ("committed", 4)]


def interrupt() -> None:
    raise KeyboardInterrupt


# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(ledger: FilledLedger) -> FilledLedger:
    """Three batches: 1 and 2 counted carrier AA on day 1, 3 redid 1 with other numbers; 2 counted NULL too."""
    ledger.batch(1)
    ledger.batch(2)
    ledger.plan(3, redo_of=1)
    ledger.commit(3, redo_of=1)
    ledger.targets()
    ledger.contribute(1, "AA", 1, 1000, "10.50")
    ledger.contribute(2, "AA", 1, 200, "2.25")
    ledger.contribute(2, None, 1, 7)
    ledger.contribute(3, "AA", 1, -1000, "-10.50", reverses=1)
    ledger.contribute(3, "AA", 1, 900, "9.00")
    return ledger


def trace(run: Run, *arguments: str) -> tuple[int, Any]:
    """Exit code and the JSON, or the error."""
    code, out, err = run("trace", "--table", "flights_totals", *arguments, "--json")
    return code, json.loads(out) if out else err


AA = ("--key", "carrier=AA", "--key", "day=1")


def test_a_row_is_traced_to_its_batches_files_attempts_and_code(traced: FilledLedger, run: Run) -> None:
    """Promise: which txids, input files, attempt and code made this row; own contributions and those taken back; MATCH
    when they add up.
    """
    code, found = trace(run, *AA)
    text = run("trace", "flights", "--table", "public.flights_totals", *AA)

    assert code == 0
    assert (found["schema"], found["verdict"], found["row"]) == (
        "txtopo.trace/1",
        "MATCH",
        {"count": "1100", "miles": "11.25"},
    )
    assert [
        (one["txid"], one["reverses"], one["numbers"]["count"], one["paths"]) for one in found["contributions"]
    ] == [
        (1, None, "1000", ["/data/day_001.csv"]),
        (2, None, "200", ["/data/day_002.csv"]),
        (3, 1, "-1000", ["/data/day_001.csv"]),
        (3, None, "900", ["/data/day_001.csv"]),
    ]
    assert {(one["attempt"], one["epoch"], one["code_hash"], one["state"]) for one in found["contributions"]} == {
        (0, 3, CODE.hex(), "committed")
    }
    assert text[0] == 0
    assert "public.flights_totals  carrier = AA, day = 1\nrow now   count 1\u2009100, miles 11.25\n" in text[1]
    assert "reverses 1  -1\u2009000  -10.50" in text[1]
    assert text[1].endswith("\nMATCH     the contributions add up to the row\n")


def test_null_is_a_key_like_any_other(traced: FilledLedger, run: Run) -> None:
    """Promise: --null COLUMN; an empty text is another key."""
    code, found = trace(run, "--null", "carrier", "--key", "day=1")
    empty, error = trace(run, "--key", "carrier=", "--key", "day=1")

    assert (code, found["key"], found["row"]["count"]) == (0, {"carrier": None, "day": "1"}, "7")
    assert empty == 1
    assert "has no row with that key" in error


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("update flights_totals set count = 1101 where carrier = 'AA'", {"count": "1101", "miles": "11.25"}),
        ("update flights_totals set miles = 11.26 where carrier = 'AA'", {"count": "1100", "miles": "11.26"}),
        ("delete from flights_totals where carrier = 'AA'", None),
        (
            "delete from flights_totals_contribution where txid = 2 and carrier = 'AA'",
            {"count": "1100", "miles": "11.25"},
        ),
        ("delete from flights_totals_contribution where carrier = 'AA'", {"count": "1100", "miles": "11.25"}),
    ],
)
def test_a_row_that_its_contributions_do_not_make_ends_with_1(
    traced: FilledLedger, run: Run, change: str, row: Any
) -> None:
    """Promise: at the end whether the contributions add up to the row; every number counts; exit code 1 when they
    differ.
    """
    with traced.connection:
        traced.execute(change)

    code, found = trace(run, *AA)

    assert (code, found["verdict"], found["row"]) == (1, "MISMATCH", row)
    assert "MISMATCH  the contributions add up to count " in run("trace", "--table", "flights_totals", *AA)[1]


def test_a_row_that_was_taken_back_whole_matches_without_being_there(traced: FilledLedger, run: Run) -> None:
    """Promise: target rows whose count becomes 0 go."""
    traced.contribute(1, "ZZ", 9, 5)
    traced.contribute(3, "ZZ", 9, -5, reverses=1)

    code, found = trace(run, "--key", "carrier=ZZ", "--key", "day=9")

    assert (code, found["verdict"], found["row"], found["count"]) == (0, "MATCH", None, 2)


def test_only_the_last_contributions_are_listed_and_all_are_added(traced: FilledLedger, run: Run) -> None:
    """Promise: --limit bounds the list, not the sum."""
    code, found = trace(run, *AA, "--limit", "1")

    assert (code, found["count"], [one["txid"] for one in found["contributions"]]) == (0, 4, [3])
    assert found["sums"]["count"] == "1100"


def test_contributions_of_no_committed_batch_are_named_as_such(traced: FilledLedger, run: Run) -> None:
    """Promise: the rows that were there before have txid 0; a batch that the ledger does not know is said to be so."""
    traced.contribute(0, "AA", 1, 3)
    traced.contribute(99, "AA", 1, 4)

    code, out, _ = run("trace", "--table", "flights_totals", *AA)

    assert code == 0
    assert "   0  was there before" in out
    assert "  99  own, batch not in the ledger" in out


def test_few_files_of_a_batch_are_named_and_the_others_counted(traced: FilledLedger, run: Run) -> None:
    """Promise: input files: a few, then how many more; names steer no terminal."""
    with traced.connection:
        traced.execute(
            "insert into txtopo.source_file (topology, spout, path, fingerprint, txid) select 'flights', 'files', "
            "E'/a\\n\\x1b[31m' || n, 'x', 2 "
            "from generate_series(1, 9) n"
        )

    out = run("trace", "--table", "flights_totals", *AA)[1]

    assert "/a\\n\\x1b[31m1, /a\\n\\x1b[31m2, /a\\n\\x1b[31m3, … and 7 more" in out
    assert "\x1b" not in out


WRONG = [
    (["--key", "AA"], "write COLUMN=VALUE"),
    (["--key", "carrier=AA"], "day is missing"),
    (["--key", "carrier=AA", "--key", "day=1", "--null", "day"], "'day' is given twice"),
    (["--key", "carrier=AA", "--key", "day=1", "--key", "count=1"], "'count' is no key"),
    (["--key", "carrier=AA", "--key", "day=x"], "invalid input syntax for type integer"),
    (["--key", "carrier=AA", "--key", "day=99999999999"], "out of range for type integer"),
    (["--key", "carrier=A\0", "--key", "day=1"], "carrier: no text in Postgres holds NUL"),
    (["--key", "carrier=\udcff", "--key", "day=1"], "or what is not UTF-8"),
    ([*AA, "--table", "flights_tot"], "table 'flights_tot' is no target; registered: public.flights_totals"),
    ([*AA, "--table", "txtopo.ledger"], "is no target"),
    ([*AA, "--table", 'flights_totals"; drop table x; --'], "is no target"),
]


def test_a_wrong_key_or_table_is_2_and_said(traced: FilledLedger, run: Run) -> None:
    """Promise: names are validated against what is registered, values cast by the server; 2 for wrong usage."""
    found = [(trace(run, *arguments), problem) for arguments, problem in WRONG]

    assert [code for (code, _), _ in found] == [2] * len(WRONG)
    assert [problem for (_, error), problem in found if problem not in error] == []


def test_one_key_column_needs_no_name(ledger: FilledLedger, run: Run) -> None:
    """Promise: --key AA for a table with one key; a value may hold an equals sign; nothing is cut to fit the column."""
    ledger.batch(1)
    described = {
        "kind": "count",
        "table": "public.flights_totals",
        "keys": ["a%b"],
        "count": "n",
        "sums": {},
        "contributions": True,
        "input": "files",
    }
    ledger.lead(description=json.dumps({"spouts": {"files": {}}, "bolts": {}, "committers": {"counts": described}}))
    with ledger.connection:
        ledger.execute('create table flights_totals ("a%%b" varchar(4) unique, n bigint)', None)
        ledger.execute(
            'create table flights_totals_contribution (txid bigint, reverses bigint, "a%%b" varchar(4), n bigint)', None
        )
        ledger.execute("insert into flights_totals values ('AA', 2), ('k=v', 3), ('AAAA', 4)")
        ledger.execute(
            "insert into flights_totals_contribution values (1, null, 'AA', 2), (1, null, 'k=v', 3), (1, null, "
            "'AAAA', 4)"
        )

    found = [trace(run, "--key", key) for key in ("AA", "k=v", "a%b=AA")]
    longer = trace(run, "--key", "AAAAA")

    assert [(code, one["row"]) for code, one in found] == [(0, {"n": "2"}), (0, {"n": "3"}), (0, {"n": "2"})]
    assert longer[0] == 1


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            (
                "update txtopo.topology set description = jsonb_set(description, '{committers,counts,contributions}', "
                "'false')"
            ),
            "keeps no contributions",
        ),
        ("update txtopo.topology set description = '{\"committers\": {}}'", "which topology flights has no more"),
        ("update txtopo.topology set description = '{}'", "is not understood"),
        ("drop table flights_totals", "table public.flights_totals no longer exists"),
        ("drop table flights_totals_contribution", "table public.flights_totals_contribution no longer exists"),
    ],
)
def test_what_nothing_tells_ends_with_3(traced: FilledLedger, run: Run, statement: str, problem: str) -> None:
    """Promise: a committer without contributions: said so, exit code 3; could not find out is never confused with
    wrong.
    """
    with traced.connection:
        traced.execute(statement)

    code, error = trace(run, *AA)

    assert code == 3
    assert problem in error


def test_a_table_name_that_two_schemas_have_must_be_written_whole(traced: FilledLedger, run: Run) -> None:
    """Promise: a name without schema means public, or the only target of that name."""
    with contextlib.closing(FilledLedger(traced.dsn, "orders")) as orders, orders.connection:
        orders.execute(
            "insert into txtopo.target (target, topology, committer) values ('a.t', 'orders', 'x'), ('b.t', "
            "'orders', 'y')"
        )

    code, error = trace(run, *AA, "--table", "t")
    of_another, other_error = run("trace", "orders", "--table", "flights_totals", *AA)[::2]

    assert code == 2
    assert "table 't' could be several targets; registered: a.t, b.t" in error
    assert of_another == 2
    assert "is no target of topology orders" in other_error
