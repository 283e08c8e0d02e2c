"""What only a real server can show: lock modes of the fence row, settings of each database transaction, the end of a failed one (R4, R7, R9, R15, P1, P6, P8)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg2
import pytest
from psycopg2 import sql
from sqlalchemy.exc import DBAPIError

from tests.kit.fix_postgres import execute_as_superuser
from txtopo import faults
from txtopo.committers import applying
from txtopo.committers.ledger import PostgresLedger
from txtopo.committers.session import PostgresLedgerSession
from txtopo.core.limits import IDLE_IN_TRANSACTION_TIMEOUT_MS, STATEMENT_TIMEOUT_MS
from txtopo.core.values import Aborted, Committed, EdgeCount, TransactionAttempt
from txtopo.errors import PostgresUnavailable
from txtopo.faults import CrashPoint
from txtopo.ports import AttemptStart, Claimed, LedgerEntry, LedgerTotals
from txtopo.testing.ledger_driver import Driver, claim_for, committer, result_of

WAITING = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
FENCE = "select from txtopo.fence where topology = 'flights'"


class World:
    """A database, a driver that leads on it, and somebody beside."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.beside = psycopg2.connect(dsn)
        self.beside.autocommit = True
        self.ledger = PostgresLedger(dsn, "flights")
        self.driver = Driver(self.ledger, self.ledger.claim_fence(claim_for()), (committer(),))
        self.ledger.prepare_targets(self.driver.lead, self.driver.committers)

    def query(self, statement: str, *values: Any) -> list[Any]:
        """Run anything beside."""
        with self.beside.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def may_lock(self, mode: str) -> bool:
        """Could somebody else lock the fence row in this mode right now?"""
        try:
            self.query(f"{FENCE} for {mode} nowait")
        except psycopg2.errors.LockNotAvailable:
            return False
        return True

    def modes(self) -> list[str]:
        """Modes in which the fence row could be locked right now."""
        return [mode for mode in ("key share", "no key update", "update") if self.may_lock(mode)]

    @contextmanager
    def session(self) -> Iterator[PostgresLedgerSession]:
        """The database transaction of a commit, with the fence locked."""
        with self.ledger.session(self.driver.lead) as session:
            session.lock_fence()
            yield session

    @contextmanager
    def locking(self, mode: str, tag: str) -> Iterator[Any]:
        """Somebody who holds the fence row and does nothing."""
        connection = psycopg2.connect(self.dsn, application_name=tag)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"{FENCE} for {mode}")
            yield connection
        finally:
            connection.close()

    def close(self) -> None:
        """Leave no connection."""
        faults.listen(None)
        self.ledger.close()
        self.beside.close()


@pytest.fixture
def world(database: str) -> Iterator[World]:
    world = World(database)
    yield world
    world.close()


def statement(session: PostgresLedgerSession, text: str) -> Any:
    """Run something on the commit's own connection, as user code in a committer could."""
    return session._connection.exec_driver_sql(text)


def applied(world: World, session: PostgresLedgerSession, txid: int) -> None:
    """Everything up to the end of a commit, but for its end."""
    plan = world.driver.ready(txid)
    session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(txid, 0)))
    session.apply(committer(), result_of([("AA", "JFK", 2, 200)]))


TOTALS = LedgerTotals(read=2, rejected=0, dead_lettered=0, committers=1, spans={})


class TestLockModes:
    def test_a_commit_excludes_commits_and_takeovers_and_lets_mirrors_pass(self, world: World) -> None:
        """R4: FOR NO KEY UPDATE. Less would let two drivers apply one batch (P3), more would make every mirror wait."""
        with world.session():
            assert world.modes() == ["key share"]

    def test_a_mirror_excludes_takeovers_and_lets_commits_pass(self, world: World) -> None:
        """R9: FOR KEY SHARE. Less would let a plan come in behind a takeover, more would wait behind a commit."""
        seen: list[list[str]] = []
        faults.listen(lambda point, txid: seen.append(world.modes()) if point is CrashPoint.MIRROR_OPEN else None)

        world.driver.mirror(world.driver.plan(1))

        assert seen == [["key share", "no key update"]]

    def test_a_takeover_waits_for_a_mirror_in_flight(self, world: World) -> None:
        """R1: FOR UPDATE, so that the plans that it reads are all there are; one that hangs is ended (P6)."""
        new = PostgresLedger(world.dsn, "flights")
        try:
            with world.locking("key share", "txtopo/flights/1") as hanging:
                new.claim_fence(claim_for())

                with pytest.raises(psycopg2.OperationalError):
                    hanging.cursor().execute("select")
        finally:
            new.close()

    def test_every_other_write_of_a_leader_excludes_takeovers(self, world: World) -> None:
        """R4: attempts, heartbeats and answers too are compared with a fence that cannot move meanwhile."""
        with world.ledger._database.fenced(world.driver.lead, "looking"):
            assert world.modes() == ["key share", "no key update"]

    def test_a_takeover_learns_of_the_commit_that_it_waited_for(self, world: World) -> None:
        """R1: the fence is read under the lock; otherwise the new leader would begin with a last txid of before."""
        new = PostgresLedger(world.dsn, "flights")
        claimed: list[Claimed] = []
        claiming = threading.Thread(target=lambda: claimed.append(new.claim_fence(claim_for())))
        try:
            with world.session() as session:
                applied(world, session, 1)
                session.finish(TOTALS)
                claiming.start()
                _eventually(lambda: world.query(WAITING) != [])
                session.commit()
            claiming.join(10)
        finally:
            claiming.join(10)
            new.close()

        assert [found.last_txid for found in claimed] == [1]

    def test_an_unknown_commit_is_looked_for_under_the_lock_of_a_commit(self, world: World) -> None:
        """R7: the old server process may still commit as long as it holds the lock; so it is waited for, and ended."""
        plan = world.driver.ready(1)
        with world.locking("no key update", "txtopo/flights/0") as old:
            outcome = world.ledger.resolve(world.driver.lead, 1, plan.digest)

            with pytest.raises(psycopg2.OperationalError):
                old.cursor().execute("select")
        assert isinstance(outcome, Aborted)

    def test_sessions_of_nobody_older_are_left_alone(self, world: World) -> None:
        """P6: neither another topology's, nor a newer leader's, nor a user's session is ended."""
        plan = world.driver.ready(1)
        world.ledger._database.unresolved_pids.clear()
        others = ["txtopo/other/0", "txtopo/flights/1", "txtopo/flights/2", "psql"]
        kept = [psycopg2.connect(world.dsn, application_name=tag) for tag in others]
        try:
            with world.locking("no key update", "txtopo/flights/0"):
                world.ledger.resolve(world.driver.lead, 1, plan.digest)
            for connection in kept:
                connection.cursor().execute("select")
        finally:
            for connection in kept:
                connection.close()


SETTINGS = {
    "transaction_isolation": "read committed",
    "synchronous_commit": "on",
    "statement_timeout": f"{STATEMENT_TIMEOUT_MS // 60_000}min",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_TIMEOUT_MS // 1000}s",
    "client_connection_check_interval": "1s",
    "search_path": "pg_catalog",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "bytea_output": "hex",
    "application_name": "txtopo/flights/1",
}


class TestSettings:
    def test_nothing_that_a_database_or_a_role_has_set_weakens_a_commit(self, world: World) -> None:
        """P6, P8: every database transaction says itself what it needs."""
        hostile = {
            "default_transaction_isolation": "serializable", "synchronous_commit": "off", "statement_timeout": "0", "lock_timeout": "0",
            "idle_in_transaction_session_timeout": "0", "client_connection_check_interval": "0", "search_path": "public", "TimeZone": "Asia/Tokyo",
            "DateStyle": "SQL, DMY", "bytea_output": "escape", "application_name": "x",
        }  # fmt: skip
        (name,) = world.query("select current_database()")[0]
        for setting, value in hostile.items():
            execute_as_superuser(
                world.dsn,
                sql.SQL("alter database {} set {} = {}").format(
                    sql.Identifier(name), sql.Identifier(setting), sql.Literal(value)
                ),
            )
        ledger = PostgresLedger(world.dsn, "flights")
        try:
            with ledger.session(world.driver.lead) as session:
                session.lock_fence()
                found = {setting: statement(session, f"show {setting}").scalar_one() for setting in SETTINGS}
        finally:
            ledger.close()

        assert found == SETTINGS


class TestFailedTransactions:
    def test_a_failed_database_transaction_is_never_committed(self, world: World) -> None:
        """P1: COMMIT of it would be a ROLLBACK that nobody is told of."""
        with world.session() as session:
            applied(world, session, 1)
            session.finish(TOTALS)
            with pytest.raises(DBAPIError):
                statement(session, "select 1/0")
            with pytest.raises(PostgresUnavailable, match="failed before COMMIT") as caught:
                session.commit()

        assert caught.value.definite
        assert isinstance(world.driver.commit(_again(world)), Committed)

    def test_another_database_transaction_than_the_one_that_locked_commits_nothing(self, world: World) -> None:
        """P9: user code ended it, and its lock with it; the batch is tried again."""
        with world.session() as session:
            applied(world, session, 1)
            statement(session, "rollback")
            statement(session, "begin")
            with pytest.raises(PostgresUnavailable, match="not the database transaction that locked the fence"):
                session.finish(TOTALS)

        assert world.query("select max(txid) from txtopo.ledger") == [(0,)]


class TestAttempts:
    def test_an_attempt_carries_the_code_of_its_leader(self, world: World) -> None:
        """R12: the code hash belongs to the attempt."""
        world.driver.begin(1)

        assert [bytes(row[0]) for row in world.query("select code_hash from txtopo.attempt")] == [
            world.driver.lead.code_hash
        ]

    def test_beginning_again_after_a_lost_reply_is_fine(self, world: World) -> None:
        """A begin that was not answered is sent again."""
        world.driver.begin(1)
        world.ledger.begin_attempts(
            world.driver.lead,
            [AttemptStart(attempt=TransactionAttempt(1, 0)), AttemptStart(attempt=TransactionAttempt(2, 0))],
        )

        assert world.query("select txid, attempt from txtopo.attempt order by 1") == [(1, 0), (2, 0)]


class TestPieces:
    def test_rows_applied_in_several_statements_have_the_digest_of_all(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """I6, P4: what is recorded is the sum over all pieces, not the last one's."""
        world.driver.commit(world.driver.ready(1))
        monkeypatch.setattr(applying, "ROWS_PER_STATEMENT", 1)
        world.driver.commit(world.driver.ready(2))

        first, second = world.query("select counted, written, digest from txtopo.committer_count order by txid")
        assert first == second


class TestEdges:
    def test_the_counts_of_the_edges_are_kept_with_the_batch(self, world: World) -> None:
        """I6: the audit reads what every edge sent and received."""
        edges = (EdgeCount(edge="a", sent=6, received=6), EdgeCount(edge="b", sent=3, received=3))

        world.driver.commit(world.driver.ready(1), edges=edges)

        assert world.query("select edge, sent, received from txtopo.edge_count order by 1") == [
            ("a", 6, 6),
            ("b", 3, 3),
        ]


class TestEnd:
    def test_a_connection_in_use_at_the_close_does_not_outlive_it(self, world: World) -> None:
        """R15: after a step-down no session of the driver is left at the server, whichever thread held one."""
        pid = 0
        with world.session() as session:
            pid = int(statement(session, "select pg_backend_pid()").scalar_one())
            world.ledger.close()

        _eventually(lambda: world.query("select pid from pg_stat_activity where pid = %s", pid) == [])


def _again(world: World) -> Any:
    """The plan of batch 1 once more, as it was mirrored."""
    world.driver.digests.pop(1)
    return cast(Any, world.driver.plan(1))


def _eventually(condition: Callable[[], bool]) -> None:
    """A server process needs a moment to go."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
