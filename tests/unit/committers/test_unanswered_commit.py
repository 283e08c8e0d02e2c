"""What a commit without an answer leaves behind (R7), on database connections that only note what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from txtopo.committers.postgres import fenced_session as module
from txtopo.committers.postgres import resolve
from txtopo.committers.postgres.commit_session import PostgresLedgerSession
from txtopo.committers.postgres.resolve import TRIES_MAX, resolve_commit
from txtopo.committers.postgres.sqlstates import LOCK_NOT_AVAILABLE
from txtopo.committers.postgres.transactions import Database
from txtopo.core.values import Committed, Fence, Lead
from txtopo.errors import Fenced, PostgresUnavailable

LEAD = Lead(topology="t", incarnation="i", epoch=3, owner_nonce="n", code_hash=b"c")


class Locked(Exception):
    """What psycopg2 raises where the fence row stays locked."""

    pgcode = LOCK_NOT_AVAILABLE


class Noting:
    """A database that hands out numbered connections and notes of which kind each was."""

    def __init__(self, *, locked: int = 0) -> None:
        self.unresolved_pids: set[int] = set()
        self.fresh = "fresh"
        self.asked: list[tuple[str, str | None]] = []
        self.terminated: list[list[int]] = []
        self.locked = locked

    def answers(self, connection: Any) -> bool:
        return False

    @contextmanager
    def connected(self, engine: str | None = None) -> Iterator[Any]:
        self.asked.append(("look", engine))
        yield SimpleNamespace()

    @contextmanager
    def transaction(self, what: str, engine: str | None = None) -> Iterator[Any]:
        self.asked.append(("terminate", engine))
        yield SimpleNamespace()


@pytest.mark.parametrize("definite", [False, True])
def test_a_commit_without_an_answer_gives_up_its_connection_and_remembers_its_server_process(
    definite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process may still commit: whoever resolves ends it. The connection may still get the answer, and must ask
    nothing more. One that surely aborted is kept.
    """
    invalidated: list[bool] = []
    database: Any = Noting()
    connection: Any = SimpleNamespace(invalidate=lambda: invalidated.append(True))
    session = PostgresLedgerSession(database, LEAD, connection, lambda committer: None)  # type: ignore[arg-type, return-value]
    session._entry = SimpleNamespace(plan=SimpleNamespace(txid=4))  # type: ignore[assignment]

    def refuse(*arguments: Any) -> None:
        raise PostgresUnavailable("no answer", definite=definite)

    monkeypatch.setattr(module, "backend_pid", lambda connection: 77)
    monkeypatch.setattr(module, "commit", refuse)

    with pytest.raises(PostgresUnavailable):
        session.commit()

    assert (database.unresolved_pids, invalidated) == (set() if definite else {77}, [] if definite else [True])


def resolved(database: Any, monkeypatch: pytest.MonkeyPatch, looks: list[str]) -> Any:
    """`resolve_commit` where so many looks find the fence row locked."""

    def look(connection: Any, lead: Any, plans: Any) -> Any:
        looks.append("look")
        if len(looks) <= database.locked:
            raise OperationalError("select", {}, Locked())
        return [Committed(txid=txid) for txid, _ in plans]

    def run(connection: Any, name: str, **values: Any) -> None:
        assert name == "terminate_older"
        database.terminated.append(values["pids"])

    monkeypatch.setattr(resolve, "_look", look)
    monkeypatch.setattr(resolve, "run_first", run)
    monkeypatch.setattr(resolve, "commit", lambda connection, what: looks.append("commit"))
    return resolve_commit(database, LEAD, [(4, b"digest"), (5, b"other")], "batches 4 to 5")


def test_a_commit_is_looked_up_on_new_connections_and_its_process_is_ended_where_it_holds_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever broke the last connection may have broken all of the pool. What is resolved is nobody's any more: its
    process id will be another's.
    """
    database: Any = Noting(locked=2)
    database.unresolved_pids.update({9, 7})
    looks: list[str] = []

    assert resolved(database, monkeypatch, looks) == [Committed(txid=4), Committed(txid=5)]

    assert looks == ["look", "look", "look", "commit"]
    assert database.terminated == [[7, 9], [7, 9]]
    assert {engine for _, engine in database.asked} == {"fresh"}
    assert database.unresolved_pids == set()


def test_a_commit_whose_fence_row_stays_locked_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again later, and the processes are still to be ended."""
    database: Any = Noting(locked=TRIES_MAX)
    database.unresolved_pids.add(7)

    with pytest.raises(PostgresUnavailable, match="stayed locked while batches 4 to 5 waited to be resolved"):
        resolved(database, monkeypatch, [])

    assert (len(database.terminated), database.unresolved_pids) == (TRIES_MAX, {7})


def test_what_is_wrong_with_a_look_besides_the_lock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who holds the lock is ended; with anything else the lock says nothing about the batch."""
    database: Any = Noting(locked=99)
    database.unresolved_pids.add(7)
    monkeypatch.setattr(Locked, "pgcode", "57014")

    with pytest.raises(PostgresUnavailable, match="resolving batches 4 to 5"):
        resolved(database, monkeypatch, [])

    assert (database.terminated, database.unresolved_pids) == ([], {7})


@pytest.mark.parametrize("other", ["epoch", "owner_nonce", "incarnation", "code_hash"])
def test_who_leads_no_more_resolves_nothing(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R4, R7: a successor may have committed this txid with another plan, or may be about to: what is not there now is
    no abort.
    """
    mine: dict[str, Any] = {"epoch": 3, "owner_nonce": "n", "incarnation": "i", "code_hash": b"c"}
    fence = Fence(**{**mine, other: 9 if other == "epoch" else b"d" if other == "code_hash" else "other"}, last_txid=3)
    asked: list[str] = []

    def begin(connection: Any, topology: str, tag: str, lock: str) -> tuple[Fence, str]:
        asked.append(lock)
        return fence, "1"

    monkeypatch.setattr(resolve, "begin", begin)

    with pytest.raises(Fenced, match="another driver leads"):
        resolve._look(SimpleNamespace(), LEAD, [(4, b"digest")])  # type: ignore[arg-type]

    assert asked == ["lock_fence_to_commit"]


@pytest.mark.parametrize(
    ("is_closed", "fresh_fails", "answers"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_postgres_answers_where_the_connection_is_whole_and_a_fresh_one_works(
    is_closed: bool, fresh_fails: bool, answers: bool
) -> None:
    """W1: only then is an error with a code of connections not about connections."""

    @contextmanager
    def connect() -> Iterator[Any]:
        if fresh_fails:
            raise OperationalError("connect", {}, Exception())
        yield SimpleNamespace(exec_driver_sql=lambda sql: SimpleNamespace(scalar_one=lambda: True))

    database: Any = SimpleNamespace(fresh=SimpleNamespace(connect=connect))
    raw = SimpleNamespace(dbapi_connection=SimpleNamespace(closed=is_closed))
    connection: Any = SimpleNamespace(invalidated=False, closed=False, connection=raw)

    assert Database.answers(database, connection) is answers
