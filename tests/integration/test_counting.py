"""Counting committers on a real Postgres: every key type, hostile names, tables made by somebody else, numbers that can
be recomputed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from tests.contracts.ledger_driver import ROWS, Driver, claim_for, committer, result_of
from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.postgres.apply_counts import ROWS_PER_STATEMENT
from txtopo.committers.postgres.connect import make_engine
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.postgres.transactions import commit
from txtopo.core.fields import parse_fields
from txtopo.core.values import Aborted, Committed, CommitterResult, TransactionAttempt
from txtopo.errors import ConfigurationError, Halted, PostgresUnavailable
from txtopo.ports import LedgerEntry, LedgerTotals
from txtopo.topology.components import CommitterComponent, Subscription


class World:
    """A database and a reader of it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.ledgers: list[PostgresLedger] = []

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Run anything."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def lead(self, *components: CommitterComponent) -> Driver:
        """A new leader with prepared tables."""
        ledger = PostgresLedger(self.dsn, "flights")
        self.ledgers.append(ledger)
        driver = Driver(ledger, ledger.claim_fence(claim_for()), components or (committer(),))
        ledger.prepare_targets(driver.lead, driver.committers)
        return driver


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """A database of its own."""
    world = World(database)
    yield world
    for ledger in world.ledgers:
        ledger.close()
    world.connection.close()


def component(bolt: CountCommitter, fields: str, name: str = "by_key") -> CommitterComponent:
    """The committer over these fields."""
    return CommitterComponent(name=name, bolt=bolt, input=Subscription(source="spout"), fields=parse_fields(fields))


def test_commit_takes_four_round_trips(world: World) -> None:
    """Lock, ledger row with the first committer's rows, finish, COMMIT."""
    driver = world.lead()
    plan = driver.ready(1)
    sent: list[str] = []

    def note(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    def note_commit(_: Any) -> None:
        sent.append("commit")

    event.listen(Engine, "before_cursor_execute", note)
    event.listen(Engine, "commit", note_commit)
    try:
        assert isinstance(driver.commit(plan), Committed)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
        event.remove(Engine, "commit", note_commit)

    assert len(sent) == 4
    assert [
        word in text
        for word, text in zip(
            ("no key update", "insert into txtopo.ledger", "txtopo.finish_run(", "commit"), sent, strict=True
        )
    ] == [True] * 4


def test_every_key_type_survives(world: World) -> None:
    """Keys of each type, NULL included, come back as they went in, and are one key the second time."""
    ddl = (
        "a string, b boolean, c tinyint, d smallint, e int, f bigint, g decimal(10,2), h date, i timestamp, j "
        "timestamp_ntz, k binary, "
        '`we"ird %s ü` string, price decimal(38,10)'
    )
    fields = parse_fields(ddl)
    target = component(CountCommitter("every_type", list(fields.names[:-1]), sums={"price": "100%"}), ddl)
    moment = datetime(2013, 1, 31, 23, 59, 59, 999999)
    values: list[Any] = [
        '{"NULL",\\}',
        True,
        -1,
        -2,
        -3,
        -(2**63),
        Decimal("-12345678.90"),
        date(1, 1, 1),
        moment.replace(tzinfo=UTC),
        moment,
        b"\x00\xff'",
        "ü\n%s",
    ]
    types = [
        pa.string(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.decimal128(10, 2),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.binary(),
        pa.string(),
        pa.int64(),
        pa.decimal128(38, 10),
    ]
    columns = [[value, None] for value in values] + [[2, 3], [Decimal("0.0000000001"), Decimal(-1)]]
    rows = pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)],
        names=[*fields.names[:-1], "count", "100%"],
    )
    driver = world.lead(target)

    for txid in (1, 2):
        outcome = driver.commit(
            driver.ready(txid),
            results=(CommitterResult(committer="by_key", arrived=5, rows=rows, row_count=2, bytes=1),),
        )
        assert isinstance(outcome, Committed), outcome

    found = sorted(world.query("select * from every_type"), key=lambda row: row[-2])
    got = [value.tobytes() if isinstance(value, memoryview) else value for value in found[0]]
    assert got == [*values, 4, Decimal("0.0000000002")]
    assert found[1] == (*[None] * 12, 6, Decimal(-2))


def test_many_rows_go_in_pieces_with_the_same_numbers(world: World) -> None:
    """Rows beyond one statement are applied in several; counts and digest are of all of them."""
    driver = world.lead()
    rows = [(f"C{n:06d}", None if n % 7 == 0 else "JFK", 1 + n % 3, n) for n in range(2 * ROWS_PER_STATEMENT + 1)]

    outcome = driver.commit(driver.ready(1), rows[::-1])

    assert isinstance(outcome, Committed)
    [count] = outcome.counts
    assert (count.counted, count.written) == (sum(row[2] for row in rows), len(rows))
    assert sorted(world.query("select * from flights_count"), key=repr) == sorted(
        rows, key=lambda row: repr((*row[:3], Decimal(row[3])))
    )
    assert world.query("select counted, results, written, digest from txtopo.committer_count") == [
        (count.counted, len(rows), len(rows), count.digest)
    ]


@pytest.mark.parametrize("contributions", [True, False])
def test_digest_can_be_recomputed(world: World, contributions: bool) -> None:
    """The digest is the sum of the first 8 bytes of the sha-256 of each row's text."""
    driver = world.lead(committer(contributions=contributions))
    outcome = driver.commit(driver.ready(1))

    texts = [row[0] for row in world.query("select row(carrier, origin, count, distance)::text from flights_count")]
    hashes = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True) for text in texts]

    assert isinstance(outcome, Committed)
    assert outcome.counts[0].digest == sum(hashes)
    assert texts[0] == "(AA,JFK,2,200)"


def test_row_that_the_table_swallows_fails_the_batch(world: World) -> None:
    """P4: what is written is what the statement says, not what was sent."""
    driver = world.lead()
    world.query(
        "create function swallow() returns trigger language plpgsql as $$ begin return case when new.carrier = 'UA' "
        "then null else new end; end $$;"
        "create trigger swallow before insert on flights_count for each row execute function swallow()"
    )

    outcome = driver.commit(driver.ready(1))

    assert isinstance(outcome, Aborted)
    assert "3 result rows were passed to it, 2 written" in outcome.failure.message
    assert world.query("select * from flights_count") == []


def test_contributions_are_append_only(world: World) -> None:
    """Nobody changes what a batch brought."""
    driver = world.lead()
    driver.commit(driver.ready(1))

    for attack in (
        "update flights_count_contribution set count = 9",
        "delete from flights_count_contribution",
        "truncate flights_count_contribution",
    ):
        with pytest.raises(psycopg2.Error, match="final"):
            world.query(attack)


GOOD = "carrier text, origin text, count bigint not null, distance numeric not null"


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        (f"create table flights_count ({GOOD})", r"add unique nulls not distinct \(\"carrier\", \"origin\"\)"),
        (f"create table flights_count ({GOOD}, unique (carrier, origin))", "add unique nulls not distinct"),
        (f"create table flights_count ({GOOD}, unique nulls not distinct (carrier))", "add unique nulls not distinct"),
        (
            f"create table flights_count ({GOOD}, unique nulls not distinct (carrier, origin) deferrable)",
            "add unique nulls not distinct",
        ),
        (
            f"create unlogged table flights_count ({GOOD}, unique nulls not distinct (carrier, origin))",
            "is not a plain, logged table",
        ),
        ("create view flights_count as select 1 as carrier", "is not a plain, logged table"),
        (
            f"create table flights_count ({GOOD}, note text, unique nulls not distinct (carrier, origin))",
            "note is not expected",
        ),
        (
            GOOD.replace("count bigint", "count integer").join(("create table flights_count (", ")")),
            "count is integer, not bigint",
        ),
        (
            GOOD.replace("distance numeric not null", "distance numeric").join(("create table flights_count (", ")")),
            'alter column "distance" set not null',
        ),
        (f"create table flights_count_contribution ({GOOD})", "txid bigint is missing"),
    ],
)
def test_unfit_table_is_refused_with_the_remedy(world: World, ddl: str, message: str) -> None:
    """An existing table that would lose or double rows is refused before the first batch."""
    world.query(ddl)

    with pytest.raises(Halted, match=message):
        world.lead()

    assert world.query("select * from txtopo.target") == []


def test_keys_that_are_never_null_need_no_special_index(world: World) -> None:
    """A table without NULLS NOT DISTINCT is taken if its keys are NOT NULL and the fields cannot be null."""
    world.query("create table by_carrier (carrier text not null, count bigint not null, unique (carrier))")
    bolt = CountCommitter("by_carrier", ["carrier"])

    with pytest.raises(Halted, match="nulls not distinct"):
        world.lead(component(bolt, "carrier string"))
    world.lead(component(bolt, "carrier string not null"))


def test_table_that_went_away_is_not_made_anew(world: World) -> None:
    """An empty table in its place would count too little."""
    world.lead()
    world.query("drop table flights_count")

    with pytest.raises(Halted, match="no longer exists"):
        world.lead()


def test_missing_schema_is_named(world: World) -> None:
    """Schemas are the administrator's."""
    with pytest.raises(ConfigurationError, match="create schema sales"):
        world.lead(committer(table="sales.flights_count"))


def test_baseline_keeps_a_digest_of_what_it_adopted(world: World) -> None:
    """The audit can tell the adopted rows from later ones."""
    world.query(
        f"create table flights_count ({GOOD}, unique nulls not distinct (carrier, origin)); insert into "
        f"flights_count values ('AA', null, 5, 7)"
    )
    world.lead(committer(baseline=True))

    text_hash = int.from_bytes(hashlib.sha256(b"(AA,,5,7)").digest()[:8], "big", signed=True)
    assert world.query("select target, topology, committer, baseline_digest from txtopo.target") == [
        ("public.flights_count", "flights", "by_route", text_hash)
    ]


def test_settings_of_the_role_do_not_weaken_a_commit(world: World) -> None:
    """P8: each database transaction sets what it needs; P15: search_path is pinned."""
    world.query(
        "do $$ begin execute format('alter database %I set synchronous_commit = off', current_database());"
        "execute format('alter database %I set default_transaction_isolation = serializable', current_database());"
        "execute format('alter database %I set datestyle = \"SQL, DMY\"', current_database()); end $$"
    )
    driver = world.lead()
    world.query(
        "create table seen (settings text); create function note() returns trigger language plpgsql as $$ begin "
        "insert into public.seen select concat_ws(' ', current_setting('synchronous_commit'), "
        "current_setting('transaction_isolation'), current_setting('search_path'), "
        "current_setting('datestyle'), current_setting('lock_timeout'), "
        "current_setting('idle_in_transaction_session_timeout'), current_setting('application_name')); "
        "return null; end $$; create trigger note after insert on flights_count for each statement execute function "
        "note()"
    )

    assert isinstance(driver.commit(driver.ready(1)), Committed)

    assert world.query("select * from seen") == [("on read committed pg_catalog ISO, YMD 2s 5s txtopo/flights/1",)]


def test_deadlock_is_nobodys_fault(world: World) -> None:
    """P10: a lock that is not free in time is waited out."""
    driver = world.lead()
    plan = driver.ready(1)
    driver.commit(plan)
    blocker = psycopg2.connect(world.dsn)
    blocker.cursor().execute("lock table flights_count")

    second = driver.ready(2)
    outcome = driver.commit(second, results=(result_of(ROWS),))
    blocker.close()

    assert isinstance(outcome, Aborted)
    assert outcome.failure.kind == "infrastructure"
    assert isinstance(driver.commit(second), Committed)


def test_batch_in_another_database_transaction_is_refused(world: World) -> None:
    """P9, R31: who ends the database transaction loses the fence lock, so nothing of the batch may be committed; the
    statement that would finish it looks for itself.
    """
    driver = world.lead()
    plan = driver.ready(1)

    with driver.ledger.session(driver.lead) as session:
        session.lock_fence()
        session._connection.exec_driver_sql("rollback; begin")  # type: ignore[attr-defined]
        session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
        session.apply(driver.committers[0], result_of(ROWS))
        with pytest.raises(PostgresUnavailable, match="not the database transaction that locked the fence"):
            session.finish(LedgerTotals(read=6, rejected=0, dead_lettered=0, committers=1, spans={}))
        there = session._connection.exec_driver_sql(  # type: ignore[attr-defined]
            "select f.last_txid, l.state from txtopo.fence f join txtopo.ledger l using (topology) where l.txid = 1"
        ).all()

    assert there == [(0, "applying")], "the server itself finished nothing"
    assert world.query("select * from flights_count") == []


def test_commit_of_a_failed_database_transaction_is_an_error(world: World) -> None:
    """P1: the server answers COMMIT of a failed database transaction with ROLLBACK and no error."""
    engine = make_engine(world.dsn, "test", pooled=False)

    with engine.connect() as connection:
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("select 1 / 0")
        with pytest.raises(PostgresUnavailable, match="had failed before COMMIT"):
            commit(connection, "test")
