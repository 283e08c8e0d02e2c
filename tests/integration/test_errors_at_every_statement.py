"""Errors of Postgres in place of each statement, counted as they are sent: of every method of the ledger, and of the
commit of every kind of batch. Each has one of few meanings, and its words; none comes raw, none is swallowed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest

from tests.contracts.ledger_driver import ROWS, Driver, claim_for, committer, dead_letter, rejected_row, result_of
from tests.contracts.user_committer_contract import Words, own, words
from tests.integration.test_commit_runs import processed, send
from tests.kit.meanings import meaning_of
from txtopo.committers.postgres import connect, joined_begin, statements
from txtopo.committers.postgres.commit_session import PostgresLedgerSession
from txtopo.committers.postgres.joined_begin import JoinedBegin
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.postgres.run_session import PostgresRunSession
from txtopo.committers.postgres.sqlstates import Fault, Owner, verdict_on
from txtopo.committers.postgres.statements import statement
from txtopo.committers.protocol.commit import failure_of
from txtopo.committers.protocol.fault_proof import prove_commit
from txtopo.core.values import ActionRecord, EdgeCount, Failure, OrderKind, TransactionAttempt
from txtopo.errors import BatchDataError, Halted
from txtopo.operating.orders import NewOrder, place
from txtopo.ports import AttemptStart, Claimed, Ledger, LedgerRunSession, LedgerSession, StagingPlace

BROKEN, LOCKED = None, "55P03"
CODES = (
    BROKEN,
    *("08006", "0A000", "22003", "25006", "25P02", "26000", "28000", "40001", "42501", "42P01", "42703", "53100"),
    *("54000", LOCKED, "57014", "57P01", "57P04", "58030", "P0001", "XX000", "ZZ999"),
)
"""One of each kind of verdict; None: the connection broke. The last one leaves the connection as it is."""
FEW = (BROKEN, "22003", "25P02", "26000", "42P01", LOCKED, "XX000", "ZZ999")
"""For statements on schema txtopo alone, which are all judged alike."""
MEANINGS = {
    Fault.STORE: "waits",
    Fault.BROKEN: "waits",
    Fault.LOCK: "waits",
    Fault.ONCE: "waits",
    Fault.HALT: "halt",
    Fault.BUG: "bug",
}
UNKNOWN = (BROKEN, "08006", "57P01", "XX000")
"""Of those: after which a COMMIT may have happened all the same (R7)."""
PORTS: dict[type, type] = {
    PostgresLedger: Ledger,
    PostgresLedgerSession: LedgerSession,
    PostgresRunSession: LedgerRunSession,
}
STATEMENTS_MAX = 60
LATE = """
create function public.quiet() returns trigger language plpgsql as $$ begin return new; end $$;
create constraint trigger late after insert or update on public.flights_count deferrable initially deferred
  for each row execute function public.quiet();
create table public.words (word text, n bigint);
"""
Call = Callable[[], object]


class Planted(psycopg2.DatabaseError):  # type: ignore[misc]  # psycopg2 has no types
    """As the server's errors come: with a code, or without where the connection broke."""

    pgcode: Any = None


@dataclass(slots=True)
class Planting:
    """Counts what is sent, and raises in place of one statement, and of those after it: some are tried again."""

    at: int | None = None
    code: str | None = None
    is_locked: bool = False
    """Does the first lock of the fence fail, as one that somebody else holds, before anything is planted?"""
    count: int = 0
    """Statements of this call, those with an error in their place too."""
    sent: list[str] = field(default_factory=list)
    """Up to that error."""
    planted: str | None = None
    """The first in whose place there was one."""

    def sends(self, query: object) -> None:
        """A statement is about to be sent."""
        text = query.decode() if isinstance(query, bytes) else str(query)
        text = re.sub(r'(?<=txtopo_staging\.)"\w+"', "T", text)  # each name is used once
        at, self.count = self.count, self.count + 1
        if self.planted is None:
            self.sent.append(text)
        if self.at is not None and at >= self.at:
            self.planted = self.planted or text
            raise self._error(self.code)
        if self.is_locked and any(statement(f"lock_fence_to_{name}") in text for name in ("claim", "commit")):
            self.is_locked = False
            raise self._error(LOCKED)

    def _error(self, code: str | None) -> Planted:
        error = Planted("planted here")
        error.pgcode = code
        return error

    def told(self, call: Call, at: int, code: str | None, *, is_locked: bool) -> tuple[str, str]:
        """What came of the call, with such an error at that statement."""
        self.at, self.code, self.is_locked = at, code, is_locked
        self.count, self.sent, self.planted = 0, [], None
        try:
            return meaning_of(call)
        finally:
            self.at, self.is_locked = None, False


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch) -> Planting:
    """In every connection that is made from now on."""
    made = Planting()

    class Cursor(psycopg2.extensions.cursor):  # type: ignore[misc]
        def execute(self, query: Any, vars: Any = None) -> None:
            made.sends(query)
            super().execute(query, vars)

    def commit(of: Any, send: Callable[[Any], None]) -> None:
        try:
            made.sends("COMMIT")
        except Planted:
            of.rollback()  # a server that refuses a COMMIT has ended the database transaction
            raise
        send(of)

    class Connection(psycopg2.extensions.connection):  # type: ignore[misc]
        def commit(self) -> None:
            commit(self, psycopg2.extensions.connection.commit)

    class JoinedCursor(joined_begin._Cursor):
        def execute(self, query: Any, vars: Any = None) -> None:
            made.sends(query)
            super().execute(query, vars)

    class Joined(JoinedBegin):
        def commit(self) -> None:
            commit(self, JoinedBegin.commit)

    monkeypatch.setitem(connect._CONNECT_ARGUMENTS, "cursor_factory", Cursor)
    monkeypatch.setitem(connect._CONNECT_ARGUMENTS, "connection_factory", Connection)
    monkeypatch.setattr(joined_begin, "_Cursor", JoinedCursor)
    monkeypatch.setattr(connect, "JoinedBegin", Joined)
    return made


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the methods of ledgers and their sessions that are called from now on."""
    names: set[str] = set()

    def note(of: type, name: str) -> None:
        original = getattr(of, name)

        def method(*arguments: Any, **named: Any) -> Any:
            names.add(name)
            return original(*arguments, **named)

        monkeypatch.setattr(of, name, method)

    for of, port in PORTS.items():
        for name in methods_of(port):
            note(of, name)
    return names


def methods_of(port: type) -> set[str]:
    """Public ones."""
    return {name for name, value in vars(port).items() if callable(value) and not name.startswith("_")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call that may be made again and again while it fails, and once more."""

    call: Call
    codes: tuple[str | None, ...] = FEW
    in_turn: bool = False
    """Does it put values of a batch, or a user's statements, into tables? Then some are the batch's fault."""
    is_locked: bool = False
    is_claim: bool = False

    def expected(self, text: str, code: str | None) -> set[str]:
        """What an error at this statement may mean."""
        if text == "COMMIT" and code in UNKNOWN:
            return {"unknown"}
        verdict = Fault.STORE if code is None else verdict_on(code, Owner.LEDGER)
        meaning = MEANINGS[verdict]
        if self.is_claim and verdict is Fault.ONCE and text != "COMMIT":
            return {"halt", "waits"}  # a new leader's connection is as good as fresh
        if not self.in_turn or statement("lock_fence_to_commit") in text:
            return {meaning}
        return {meaning, "data", "waits", "halt"}


def made(dsn: str, topology: str, ledger: PostgresLedger, *, opaque: bool = False) -> Driver:
    """Leads a topology of its own."""
    targets = (committer(table=f"{topology}_count"), *((own(Words()),) if topology == "words" else ()))
    driver = Driver(ledger, ledger.claim_fence(claim_for(topology, opaque=opaque)), targets)
    ledger.prepare_targets(driver.lead, driver.committers)
    return driver


def of_batches(driver: Driver, custom: Driver, order: int) -> Iterator[tuple[str, Case]]:
    """Commits of every kind: what a batch sends in its turn."""
    every_kind: dict[str, Any] = {
        "rejected": 1,
        "rejected_rows": (rejected_row(3),),
        "dead_letters": (dead_letter(),),
        "edges": (EdgeCount(edge="a>b", sent=2, received=2),),
    }

    def keep_alive() -> None:
        with driver.ledger.session(driver.lead) as session:
            session.lock_fence()
            session.keep_alive()

    first = driver.ready(1)
    yield "a plain commit", Case(call=lambda: driver.commit(first), in_turn=True, codes=CODES)
    yield "the same commit again", Case(call=lambda: driver.commit(first))
    yield "a long turn", Case(call=keep_alive)
    second = driver.ready(2)
    rows = driver.processed(2)
    ledger, lead, topology = driver.ledger, driver.lead, driver.topology
    yield "a proof", Case(call=lambda: prove_commit(ledger, lead, second, rows, topology), in_turn=True)
    yield "a commit with all kinds of rows", Case(call=lambda: driver.commit(second, **every_kind), in_turn=True)
    third = driver.ready(3)
    yield "a quarantine", Case(call=lambda: driver.quarantine(third), in_turn=True)
    redo = driver.redo(4, 1, order)
    yield "a redo", Case(call=lambda: driver.commit(redo), in_turn=True)
    of_user = custom.ready(1)
    results = (result_of(ROWS), words((("a", 1), ("b", 2))))
    yield "of a user", Case(call=lambda: custom.commit(of_user, results=results), in_turn=True, codes=CODES)


def of_backfills(driver: Driver) -> Iterator[tuple[str, Case]]:
    """A committer that is added later counts batch 1 (R32)."""
    driver.commit(driver.ready(1))
    driver.committers = (*driver.committers, committer("added", "added_count"))
    driver.ledger.prepare_targets(driver.lead, driver.committers)
    yield "backfills: lacking", Case(call=lambda: driver.ledger.lacking("added", 0, []))
    plan = driver.ready(2, path="/in/1.csv", kind="backfill", backfills=1, committer="added")
    yield "a backfill", Case(call=lambda: driver.commit(plan), in_turn=True)


def of_runs(driver: Driver) -> Iterator[tuple[str, Case]]:
    """A commit run with all kinds of rows, and the looks that belong to runs. What is wrong with a run is told like
    what is wrong with a batch; who gets it believes it of a batch alone (R25).
    """
    ledger, lead = driver.ledger, driver.lead
    plans = [driver.ready(txid) for txid in (1, 2)]
    more: dict[str, Any] = {
        "rejected_rows": (rejected_row(3),),
        "dead_letters": (dead_letter(),),
        "edges": (EdgeCount(edge="a>b", sent=2, received=2),),
    }
    batches = [processed(driver, plan.txid, ROWS, **more) for plan in plans]
    wanted = [(plan.txid, plan.digest) for plan in plans]

    def commit() -> object:
        try:
            with ledger.run_session(lead) as session:
                send(session, driver, plans, batches)
                session.commit()
        except BatchDataError as error:
            return failure_of(error)
        return "done"

    def compare() -> object:
        with ledger.run_session(lead) as session:
            session.lock_fence()
            return session.ledger_digests((1, 2))

    yield "a run", Case(call=commit, in_turn=True, codes=CODES)
    yield "runs: ledger_digests", Case(call=compare)
    yield "runs: resolve", Case(call=lambda: ledger.resolve(lead, wanted)[0])
    yield "runs: resolve, locked", Case(call=lambda: ledger.resolve(lead, wanted)[0], is_locked=True)
    yield "runs: single_commits", Case(call=lambda: ledger.single_commits(driver.committers))


def of_opaque(driver: Driver) -> Iterator[tuple[str, Case]]:
    """A batch that was planned three times: its last plan is pinned, a new leader takes it over, gives the attempt back
    and commits the next one. Then one that is left out.
    """
    ledger = driver.ledger

    def take_over() -> Claimed:
        claimed = ledger.claim_fence(claim_for("log", opaque=True))
        driver.lead = claimed.lead
        return claimed

    def begin(txid: int, attempt: int) -> None:
        ledger.begin_attempts(driver.lead, [AttemptStart(attempt=TransactionAttempt(txid, attempt))])

    first = driver.plan(1, cut=2)
    yield "opaque: mirror", Case(call=lambda: driver.mirror(first))
    yield "opaque: mirror, known", Case(call=lambda: driver.mirror(first))
    begin(1, 2)
    yield "opaque: claim_fence", Case(call=take_over, is_claim=True)
    claimed = take_over()
    assert (claimed.plans, [one.attempt.attempt for one in claimed.attempts]) == ([first.bytes], [2])
    given_back = TransactionAttempt(1, 2)
    yield "opaque: given back", Case(call=lambda: ledger.end_attempt(driver.lead, given_back, "cancelled", None))
    attempts = itertools.count(3)
    yield "opaque: begin_attempts", Case(call=lambda: begin(1, next(attempts)))
    begin(1, last := next(attempts))
    yield "opaque: a commit", Case(call=lambda: driver.commit(first, attempt=last), in_turn=True)
    yield "opaque: resolve", Case(call=lambda: ledger.resolve(driver.lead, [(1, first.digest)])[0])
    second = driver.plan(2, cut=1)
    driver.mirror(second)
    begin(2, 1)
    yield "opaque: a quarantine", Case(call=lambda: driver.quarantine(second, attempt=1), in_turn=True)


def of_ledger(driver: Driver, order: int) -> Iterator[tuple[str, Case]]:
    """Every other method."""
    ledger, lead = driver.ledger, driver.lead
    fifth = driver.ready(5)
    sixth = driver.plan(6)
    digest = ledger.store_part(b"{}")
    attempt, failure = TransactionAttempt(5, 0), Failure(kind="data", message="no")
    again = driver.plan(7, path="/in/1.csv")  # consumed by batch 1
    action = ActionRecord(command="retry", txid=5, order_id=order, reason=None, before={}, after={})
    calls: dict[str, Call] = {
        "read_fence": ledger.read_fence,
        "prepare_targets": lambda: ledger.prepare_targets(lead, driver.committers),
        "prepare_targets, made": lambda: ledger.prepare_targets(lead, (committer("by_day", "days_count"),)),
        "prepare_targets, described": lambda: ledger.prepare_targets(lead, (), {"name": "flights"}),
        "consumed": lambda: ledger.consumed("spout", ["/in/1.csv"]),
        "not_consumed": lambda: sorted(ledger.not_consumed("spout", ["/in/1.csv", "/in/new.csv"])),
        "consumed_after": lambda: ledger.consumed_after("spout", "", 2),
        "plans_below": lambda: ledger.plans_below(2, 3),
        "store_part": lambda: ledger.store_part(b"{}"),
        "read_part": lambda: ledger.read_part(digest),
        "mirror": lambda: driver.mirror(sixth),
        "mirror, known": lambda: driver.mirror(fifth),
        "mirror, consumed": lambda: driver.mirror(again),
        "begin_attempts": lambda: ledger.begin_attempts(lead, [AttemptStart(attempt=TransactionAttempt(5, 7))]),
        "end_attempt": lambda: ledger.end_attempt(lead, attempt, "failed", failure),
        "heartbeat": lambda: ledger.heartbeat(lead, "running", None, 6),
        "waits_for": ledger.waits_for,
        "note_progress": lambda: ledger.note_progress(lead, order, {}),
        "answer_order": lambda: ledger.answer_order(lead, order, "done", "so it was", action),
        "log_action": lambda: ledger.log_action(lead, replace(action, order_id=None)),
        "redo_chain": lambda: ledger.redo_chain(1),
        "batches_after": lambda: ledger.batches_after(1),
        "note_end": lambda: ledger.note_end(lead, "halted", "why", 5, 6),
        "note_halt": lambda: ledger.note_halt(Halted("why", next_command="txtopo run")),
    }
    place = StagingPlace(dsn="service=tasks")
    yield "staging: begin", Case(call=lambda: ledger.staging(lead, place, None).begin())
    staging = ledger.staging(lead, place, [])
    yield "staging: create", Case(call=lambda: staging.create(attempt, driver.committers[0]).name[:0])
    yield from ((name, Case(call=call)) for name, call in calls.items())

    yield "resolve, not there", Case(call=lambda: ledger.resolve(lead, [(5, fifth.digest)])[0])
    yield "resolve, there", Case(call=lambda: ledger.resolve(lead, [(1, driver.digests[1])])[0])
    yield "resolve, locked", Case(call=lambda: ledger.resolve(lead, [(1, driver.digests[1])])[0], is_locked=True)


def of_claims(ledger: PostgresLedger) -> Iterator[tuple[str, Case]]:
    """Taking the lead of a topology that is new, known, and held by somebody."""
    ledger.read_fence()  # connected, so that the calls send one number of statements
    for name in ("new", "known", "locked"):
        call = Case(call=lambda: ledger.claim_fence(claim_for("others")), is_claim=True, is_locked=name == "locked")
        yield f"claim_fence, {name}", call


def test_an_error_in_place_of_any_statement_has_a_meaning_and_its_words(
    database: str, planting: Planting, called: set[str]
) -> None:
    """W1 to W3, where no trigger reaches too: locks, reads, heartbeats, orders, claims, notes of ends and halts.

    Each statement of each call fails once with each code, and with it whatever is sent after it.
    """
    ledgers = {name: PostgresLedger(database, name) for name in ("flights", "words", "others", "log", "runs", "filled")}
    driver, custom = (made(database, name, ledgers[name]) for name in ("flights", "words"))
    with closing(psycopg2.connect(database)) as beside, beside, beside.cursor() as cursor:
        cursor.execute(LATE)
    kinds: tuple[OrderKind, ...] = ("recompute", "retry")
    orders = [place(database, NewOrder(topology="flights", kind=kind, txids=(1,))).order_id for kind in kinds]
    sent: set[str] = set()
    planted: set[str] = set()
    wrong: list[tuple[object, ...]] = []
    ends: dict[str, str] = {}
    cases = itertools.chain(
        of_batches(driver, custom, orders[0]),
        of_ledger(driver, orders[1]),
        of_claims(ledgers["others"]),
        of_runs(made(database, "runs", ledgers["runs"])),
        of_backfills(made(database, "filled", ledgers["filled"])),
        of_opaque(made(database, "log", ledgers["log"], opaque=True)),
    )
    for name, case in cases:
        for at in itertools.count():
            assert at < STATEMENTS_MAX, f"{name} sends no end of statements"
            for code in case.codes:
                meaning, said = planting.told(case.call, at, code, is_locked=case.is_locked)
                sent.update(planting.sent)
                if planting.planted is None:
                    break  # a fresh connection sends one more than one that is known
                planted.add(planting.planted)
                if meaning not in case.expected(planting.planted, code) or "planted here" not in said:
                    wrong.append((name, at, code, meaning, said, planting.planted[-80:]))
            if planting.planted is None:
                ends[name] = meaning
                break
    for ledger in ledgers.values():
        ledger.close()

    assert wrong == []
    assert {name: end for name, end in ends.items() if end != "done"} == {
        "mirror, consumed": "halt",  # batch 1 has the file
        "resolve, not there": "waits",  # batch 5 was never committed
    }
    assert sent - planted == set()
    assert set().union(*map(methods_of, PORTS.values())) - called == set()
    assert [name for name in in_files() if not any(statement(name) in text for text in planted)] == []


def in_files() -> list[str]:
    """Names of all statements that are kept in files."""
    return sorted(path.stem for path in (Path(statements.__file__).parent / "sql").glob("*.sql"))
