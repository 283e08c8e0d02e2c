"""What only a real server can show: lock modes of the fence row, settings of each database transaction, the end of a
failed one (R4, R7, R9, R15, P1, P6, P8).
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, cast
from urllib.parse import quote

import psycopg2
import pytest
from psycopg2 import sql
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError

from tests.contracts.ledger_driver import Driver, claim_for, committer, rejected_row, result_of
from tests.kit.drivers import wait_until
from tests.kit.fix_postgres import execute_as_superuser
from txtopo.committers.postgres import apply_counts, transactions
from txtopo.committers.postgres import commit_session as session
from txtopo.committers.postgres.commit_session import PostgresLedgerSession
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.limits import IDLE_IN_TRANSACTION_TIMEOUT_MS, STATEMENT_TIMEOUT_MS
from txtopo.core.values import Aborted, ActionRecord, Committed, EdgeCount, TransactionAttempt
from txtopo.errors import Halted, InvariantBroken, PostgresUnavailable
from txtopo.ports import AttemptStart, Claimed, LedgerEntry, LedgerTotals

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
        crash_points.listen(None)
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


@contextmanager
def statements() -> Iterator[list[str]]:
    """What is sent to any server meanwhile, one entry a round trip; COMMIT is not among them."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        sent.append(text)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def applied(world: World, session: PostgresLedgerSession, txid: int) -> None:
    """Everything up to the end of a commit, but for its end."""
    plan = world.driver.ready(txid)
    session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(txid, 0)))
    session.apply(committer(), result_of([("AA", "JFK", 2, 200)]))


TOTALS = LedgerTotals(read=2, rejected=0, dead_lettered=0, committers=1, spans={})


READS: dict[str, tuple[str, Callable[[PostgresLedger], object]]] = {
    "fence": ("fence", lambda ledger: ledger.read_fence()),
    "consumed": ("source_file", lambda ledger: ledger.consumed("s", ["/a"])),
    "not_consumed": ("source_file", lambda ledger: ledger.not_consumed("s", ["/a"])),
    "consumed_after": ("source_file", lambda ledger: ledger.consumed_after("s", "/a", 1)),
    "plans": ("plan", lambda ledger: ledger.plans_below(9, 1)),
    "part": ("plan_part", lambda ledger: ledger.read_part("00" * 32)),
    "redos": ("ledger", lambda ledger: ledger.redo_chain(1)),
    "batches": ("ledger", lambda ledger: ledger.batches_after(1)),
    "halt": ("topology", lambda ledger: ledger.note_halt(Halted("no"))),
    "store": ("plan_part", lambda ledger: ledger.store_part(b"part")),
}


def test_nothing_that_is_read_without_the_fence_waits_for_a_lock_without_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait inside libpq, where no signal reaches the driver."""
    monkeypatch.setattr(transactions, "LOCK_TIMEOUT_MS", 50)
    bounded = f"{world.dsn}{'&' if '?' in world.dsn else '?'}options={quote('-c statement_timeout=30000')}"
    ledger = PostgresLedger(bounded, "flights")
    found: dict[str, str] = {}
    for name, (table, read) in READS.items():
        with closing(psycopg2.connect(world.dsn)) as stranger, stranger.cursor() as cursor:
            cursor.execute(f"lock table txtopo.{table} in access exclusive mode")
            with pytest.raises(PostgresUnavailable) as waited:
                read(ledger)
            found[name] = waited.value.patience
    ledger.close()

    assert found == dict.fromkeys(READS, "lock")


class TestLockModes:
    def test_a_commit_excludes_commits_and_takeovers_and_lets_mirrors_pass(self, world: World) -> None:
        """R4: FOR NO KEY UPDATE. Less would let two drivers apply one batch (P3), more would make every mirror wait."""
        with world.session():
            assert world.modes() == ["key share"]

    def test_a_mirror_excludes_takeovers_and_lets_commits_pass(self, world: World) -> None:
        """R9: FOR KEY SHARE. Less would let a plan come in behind a takeover, more would wait behind a commit."""
        seen: list[list[str]] = []
        crash_points.listen(lambda point, txid: seen.append(world.modes()) if point is CrashPoint.MIRROR_OPEN else None)

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
                wait_until(lambda: world.query(WAITING) != [], "the waiting for the lock")
                session.commit()
            claiming.join(60)
        finally:
            claiming.join(60)
            new.close()

        assert [found.last_txid for found in claimed] == [1]

    def test_an_unknown_commit_is_looked_for_under_the_lock_of_a_commit(self, world: World) -> None:
        """R7: the old server process may still commit as long as it holds the lock; so it is waited for, and ended."""
        plan = world.driver.ready(1)
        with world.locking("no key update", "txtopo/flights/0") as old:
            outcome = world.ledger.resolve(world.driver.lead, [(1, plan.digest)])[0]

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
                world.ledger.resolve(world.driver.lead, [(1, plan.digest)])
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
    "extra_float_digits": "1",
    "application_name": "txtopo/flights/1",
    "enable_seqscan": "off",
    "jit": "off",
}


class TestSettings:
    def test_nothing_that_a_database_or_a_role_has_set_weakens_a_commit(self, world: World) -> None:
        """P6, P8: every database transaction says itself what it needs."""
        hostile = {
            "default_transaction_isolation": "serializable",
            "synchronous_commit": "off",
            "statement_timeout": "0",
            "lock_timeout": "0",
            "idle_in_transaction_session_timeout": "0",
            "client_connection_check_interval": "0",
            "search_path": "public",
            "TimeZone": "Asia/Tokyo",
            "DateStyle": "SQL, DMY",
            "bytea_output": "escape",
            "extra_float_digits": "0",
            "application_name": "x",
        }
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

    def test_a_quarantine_outside_the_locked_database_transaction_is_none(self, world: World) -> None:
        """P9, R14: a quarantine is final too, so it needs the lock as a commit does."""
        plan = world.driver.ready(1)
        with world.session() as session:
            session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
            statement(session, "rollback")
            statement(session, "begin")
            with pytest.raises(PostgresUnavailable, match="not the database transaction that locked the fence"):
                session.finish_quarantined("poison")

        assert world.query("select max(txid) from txtopo.ledger") == [(0,)]


SWALLOW = """
create function public.swallow() returns trigger language plpgsql as $$ begin return null; end $$;
create trigger a_swallow before {} for each row execute function public.swallow();
"""
NOT_MOVED = "the fence was not at batch 0 although it was locked"


class TestEnds:
    @pytest.mark.parametrize(
        ("end", "change", "said"),
        [
            ("commit", "update on txtopo.ledger", "batch 1 is not being applied"),
            ("commit", "update on txtopo.fence", "batch 1 is finished out of turn"),
            ("commit", "update on txtopo.attempt", "attempt 1:0 may not be applied: it was never begun or has ended"),
            ("quarantine", "insert on txtopo.ledger", "ledger row 1 was not inserted"),
            ("quarantine", "update on txtopo.fence", NOT_MOVED),
        ],
    )
    def test_a_change_that_the_server_left_undone_ends_no_batch(
        self, world: World, end: str, change: str, said: str
    ) -> None:
        """R6: a statement that changed no row is no error to the server. With the fence left where it was, the next
        leader would halt, or apply the batch again.
        """
        plan = world.driver.ready(1)
        world.query(SWALLOW.format(change))

        with pytest.raises((Halted, InvariantBroken), match=said):
            getattr(world.driver, end)(plan)

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
        monkeypatch.setattr(apply_counts, "ROWS_PER_STATEMENT", 1)
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


class TestRejected:
    def test_records_are_kept_in_pieces(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many were rejected, each is there; pieces are bounded in rows and in bytes."""
        monkeypatch.setattr(session, "REJECTED_PER_STATEMENT", 3)
        monkeypatch.setattr(session, "REJECTED_BYTES_PER_STATEMENT", 20)
        sizes = [1, 1, 1, 1, 30, 9, 9, 9, 1, 1]
        rows = tuple(rejected_row(2 + n, raw=b"x" * size, raw_bytes=size) for n, size in enumerate(sizes))

        world.driver.commit(world.driver.ready(1), rejected=len(rows), rejected_rows=rows)

        assert [[len(row.raw) for row in piece] for piece in session.rejected_chunks(rows)] == [
            [1, 1, 1],
            [1],
            [30],
            [9, 9],
            [9, 1, 1],
        ]
        found = world.query("select line, length(raw) from txtopo.rejected_row order by line")
        assert found == list(enumerate(sizes, 2))

    def test_what_postgres_cannot_hold_stays_readable(self, world: World) -> None:
        """P14: file, line and reason say what they said, in escapes; the record itself is kept byte for byte."""
        row = rejected_row(2, path="/in/\udcff.csv", reason="\0 in carrier", raw=b"\0", raw_bytes=1)

        world.driver.commit(world.driver.ready(1), rejected=1, rejected_rows=(row,))

        [(path, reason, raw)] = world.query("select path, reason, raw from txtopo.rejected_row")
        assert (path, reason, bytes(raw)) == (r"/in/\udcff.csv", r"\0 in carrier", b"\0")


class TestRoundTrips:
    def test_a_batch_without_rejected_records_commits_in_four_round_trips(self, world: World) -> None:
        """Lock, ledger row with the rows, end, COMMIT: what few batches need costs the others nothing."""
        plan = world.driver.ready(1)
        with statements() as sent:
            world.driver.commit(plan)

        assert len(sent) == 3

    def test_a_quarantine_commits_in_four_round_trips(self, world: World) -> None:
        """Lock, action, ledger row with the fence, COMMIT."""
        plan = world.driver.ready(1)
        with statements() as sent:
            world.driver.quarantine(plan)

        assert len(sent) == 3


class TestRedo:
    def test_the_reversal_finds_its_rows_by_the_unique_index(self, world: World) -> None:
        """A redo costs what its batch brought, not what the table holds."""
        world.driver.commit(world.driver.ready(1))
        world.query("insert into flights_count select 'X' || n, null, 1, 1 from generate_series(1, 50000) n")
        world.query("analyze flights_count, flights_count_contribution")
        world.driver.mirror(plan := world.driver.plan(2, "/in/1.csv", kind="redo", redo_of=1))

        with world.session() as session:
            session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(2, 0)))
            session.apply(committer(), result_of([]))
            # Nothing is reported of a database transaction that is still open, but to itself.
            read = statement(
                session,
                "select sum(pg_stat_get_xact_tuples_returned(c.oid)) from pg_class c where c.relname = 'flights_count'",
            )
            assert read.scalar_one() < 100

    def test_rows_in_partitions_are_taken_back(self, world: World) -> None:
        """A row's place counts within its partition only."""
        for name in ("flights_count", "flights_count_contribution"):
            columns = "carrier text, origin text, count bigint not null, distance numeric not null"
            keys = "carrier, origin"
            if name != "flights_count":
                columns, keys = f"txid bigint not null, reverses bigint, {columns}", f"txid, reverses, {keys}"
            world.query(f"drop table {name}")
            world.query(
                f"create table {name} ({columns}, unique nulls not distinct ({keys})) partition by list (carrier)"
            )
            world.query(f"create table {name}_aa partition of {name} for values in ('AA')")
            world.query(f"create table {name}_rest partition of {name} default")
        both = [("AA", "JFK", 2, 200), ("UA", "EWR", 3, 900)]
        world.driver.commit(world.driver.ready(1), both)
        # In the other partition, in the very place where the row that goes will stand.
        world.query("insert into flights_count values ('AA', 'zero', 0, 0)")
        world.driver.commit(world.driver.ready(2), both[:1])

        outcome = world.driver.commit(world.driver.redo(3, 1), [])

        assert isinstance(outcome, Committed)
        assert world.query("select origin, count from flights_count order by 1") == [("JFK", 2), ("zero", 0)]

    def test_a_contribution_that_is_gone_is_missed(self, world: World) -> None:
        """The ledger knows how many rows a batch brought: fewer to take back would leave some behind for ever."""
        world.driver.commit(world.driver.ready(1))
        world.query("alter table flights_count_contribution disable trigger all")
        world.query("delete from flights_count_contribution where carrier = 'UA'")

        outcome = world.driver.commit(world.driver.redo(2, 1))

        assert isinstance(outcome, Aborted)
        assert "batch 1 recorded 3 contributions, but 2 exist" in outcome.failure.message
        assert world.query("select sum(count) from flights_count") == [(6,)]

    def test_a_row_that_moved_under_the_redo_fails_it(self, world: World) -> None:
        """A trigger of the user's that rewrites the row would leave a row that counts nothing."""
        world.driver.commit(world.driver.ready(1))
        world.query(
            "create function touch() returns trigger language plpgsql as $$ begin "
            "update public.flights_count set distance = distance where carrier = new.carrier and pg_trigger_depth() "
            "= 1; return null; end $$"
        )
        world.query("create trigger touch after update on flights_count for each row execute function touch()")

        outcome = world.driver.commit(world.driver.redo(2, 1), [])

        assert isinstance(outcome, Aborted)
        assert outcome.failure.component == "by_route"
        assert world.query("select sum(count) from flights_count") == [(6,)]

    def test_a_redo_in_pieces_records_what_it_took_back_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The count of the batch is written with the last piece."""
        world.driver.commit(world.driver.ready(1))
        monkeypatch.setattr(apply_counts, "ROWS_PER_STATEMENT", 1)

        world.driver.commit(world.driver.redo(2, 1))

        first, second = world.query(
            "select counted, written, digest, reversed from txtopo.committer_count order by txid"
        )
        assert (first[:3], second) == (second[:3], (*first[:3], 3))


class TestEdgesOfTheChain:
    def test_a_chain_whose_plan_was_removed_halts(self, world: World) -> None:
        """Retention removes plans; what was cut so cannot be cut again."""
        for txid in (1, 2):
            world.driver.commit(world.driver.ready(txid))
        world.query("delete from txtopo.plan where txid = 1")

        with pytest.raises(Halted, match="removed by retention"):
            world.ledger.redo_chain(1)
        assert [one.txid for one in world.ledger.batches_after(0)] == [2]


class TestActions:
    def test_the_leaders_own_action_names_its_host(self, world: World) -> None:
        """Actor, host and time stand in every row; an order's own where there is one."""
        order = world.query(
            "insert into txtopo.request (topology, kind, actor, host) values ('flights', 'skip', 'ann', 'desk') "
            "returning request_id"
        )[0][0]
        world.driver.quarantine(world.driver.ready(1), order_id=order)
        world.driver.quarantine(world.driver.ready(2))

        assert world.query("select actor, host, reason from txtopo.action order by 1") == [
            ("ann", "desk", "poison"),
            ("leader", platform.node(), "poison"),
        ]

    def test_words_that_postgres_cannot_hold_do_not_hinder_the_record(self, world: World) -> None:
        """P14: neither in the reason nor anywhere inside before and after."""
        action = ActionRecord(command="replan", reason="a\0", before={"k\0": ["\ud800", {"n": 1, "t": None}]})
        with world.session() as session:
            session.append_action(action)
            found = statement(session, "select reason, before from txtopo.action").one()

        assert tuple(found) == ("a\\0", {"k\\0": ["\\ud800", {"n": 1, "t": None}]})


class TestEnd:
    def test_a_connection_in_use_at_the_close_does_not_outlive_it(self, world: World) -> None:
        """R15: after a step-down no session of the driver is left at the server, whichever thread held one."""
        pid = 0
        with world.session() as session:
            pid = int(statement(session, "select pg_backend_pid()").scalar_one())
            world.ledger.close()

        wait_until(
            lambda: world.query("select pid from pg_stat_activity where pid = %s", pid) == [], "the end of the session"
        )


def _again(world: World) -> Any:
    """The plan of batch 1 once more, as it was mirrored."""
    world.driver.digests.pop(1)
    return cast(Any, world.driver.plan(1))


def test_what_a_role_or_database_has_set_stops_no_batch(world: World) -> None:
    """P8: read only by default, and a time for whole database transactions that is too short: each of txtopo's says
    what it needs itself.
    """
    settings = "-c default_transaction_read_only=on"
    if world.query("select current_setting('server_version_num')::int >= 170000") == [(True,)]:
        settings += " -c transaction_timeout=100"
    world.query(
        "create function nap() returns trigger language plpgsql as $$ begin perform pg_sleep(0.2); return new; end $$"
    )
    world.query("create trigger nap before insert on flights_count for each statement execute function nap()")
    dsn = f"{world.dsn}{'&' if '?' in world.dsn else '?'}options={quote(settings)}"
    ledger = PostgresLedger(dsn, "flights")
    driver = Driver(ledger, ledger.claim_fence(claim_for()), (committer(),))
    ledger.prepare_targets(driver.lead, driver.committers)

    stored, outcome = ledger.store_part(b"piece"), driver.commit(driver.ready(1))
    ledger.close()

    assert ledger is not world.ledger and len(stored) == 64
    assert isinstance(outcome, Committed)
