"""Commit runs on a real server: what they leave, what they refuse, and what is looked up after a lost COMMIT."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest
from sqlalchemy import event

from tests.contracts.ledger_driver import (
    ROWS,
    Driver,
    Row,
    claim_for,
    committer,
    dead_letter,
    rejected_row,
    result_of,
)
from tests.kit.audited import select
from tests.kit.fix_postgres import fresh_database
from tests.kit.fix_proxy import PostgresProxy
from txtopo.committers.postgres import fenced_session
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.postgres.statements import statement
from txtopo.core.limits import STATEMENT_TIMEOUT_MS
from txtopo.core.values import Aborted, Committed, CommitterCount, EdgeCount, Processed, RunEnded, TransactionAttempt
from txtopo.errors import (
    BatchDataError,
    ConfigurationError,
    Fenced,
    Halted,
    InvariantBroken,
    PostgresUnavailable,
    RunRefused,
)
from txtopo.local.postgres import LocalPostgres
from txtopo.ports import AttemptStart, LedgerEntry, LedgerRunSession, LedgerTotals
from txtopo.topology.components import CommitterComponent

KEPT, TOTALS_ONLY = committer(), committer("totals", "totals_only", contributions=False)
SAME = {
    "owner_nonce": "00000000-0000-0000-0000-00000000000a",
    "new_incarnation": "00000000-0000-0000-0000-00000000000b",
}
"""So that two databases get the same plans."""
BATCHES: Sequence[tuple[Sequence[Row], Mapping[str, Any]]] = (
    (ROWS, {}),
    (
        [("AA", None, 4, -70), (None, None, 1, 0), ("%s", 'a"\\{},', 1, 9)],
        {"rejected_rows": (rejected_row(3), rejected_row(9, raw=b"\0\xff"))},
    ),
    ([], {"read": 0}),
    (
        [("UA", "EWR", 1, -900), ("AA", None, 1, 10**30)],
        {"dead_letters": (dead_letter(), dead_letter("/in/4.csv:9", raw=b"x"))},
    ),
    (
        [("ÄÖ", "", 2, 2), ("AA", "JFK", 1, 1)],
        {"edges": (EdgeCount(edge="b>a", sent=3, received=3), EdgeCount(edge="a>b", sent=0, received=0))},
    ),
)
"""Rows and what else is in each batch: keys that come again, NULL, text that needs quoting, an empty batch."""
BY_HAND = """
create table public.flights_count (carrier varchar, origin text collate "C", count bigint not null,
  distance numeric not null, unique nulls not distinct (origin, carrier));
create table public.flights_count_contribution (txid bigint not null, reverses bigint, carrier varchar, origin text,
  count bigint not null, distance numeric not null, unique nulls not distinct (txid, reverses, carrier, origin));
"""
"""Tables that a user made: keys of another type and collation that txtopo takes, no trigger."""
TABLES = {
    "txtopo.fence": "topology",
    "txtopo.ledger": "txid",
    "txtopo.committer_count": "txid, committer",
    "txtopo.edge_count": "txid, edge",
    "txtopo.rejected_row": "txid, line",
    "txtopo.dead_letter": "txid, position",
    "txtopo.attempt": "txid, attempt",
    "txtopo.plan": "txid",
    "txtopo.source_file": "txid",
    "flights_count": "carrier, origin",
    "flights_count_contribution": "txid, carrier, origin",
    "totals_only": "carrier, origin",
}
TIMES = {"seal", "committed_at", "planned_at", "created_at", "started_at", "ended_at"}
"""Columns that differ from run to run."""


def leader(dsn: str, *committers: CommitterComponent) -> Driver:
    """A driver that has just taken the lead and prepared its tables."""
    ledger = PostgresLedger(dsn, "flights")
    driver = Driver(ledger, ledger.claim_fence(claim_for(**SAME)), committers or (KEPT,))
    ledger.prepare_targets(driver.lead, driver.committers)
    return driver


@pytest.fixture
def driver(database: str) -> Iterator[Driver]:
    """Counts flights, in a database of its own."""
    made = leader(database, KEPT, TOTALS_ONLY)
    yield made
    made.ledger.close()


def send(session: LedgerRunSession, driver: Driver, plans: Sequence[Any], batches: Sequence[Processed]) -> Any:
    """Everything of a run before COMMIT. Returns the counts by committer and txid."""
    results = [{one.attempt.txid: one.results[at] for one in batches} for at in range(len(driver.committers))]
    for component, given in zip(driver.committers, results, strict=True):
        session.prepare_run(component, given, {one.attempt.txid: one.attempt.attempt for one in batches})
    session.prepare_kept(
        {one.attempt.txid: one.edges for one in batches},
        {one.attempt.txid: one.rejected_rows for one in batches},
        {one.attempt.txid: one.dead_letters for one in batches},
    )
    session.lock_fence()
    session.append_run([LedgerEntry(plan=plan, attempt=one.attempt) for plan, one in zip(plans, batches, strict=True)])
    counts: dict[str, Mapping[int, CommitterCount]] = {}
    for component, given in zip(driver.committers, results, strict=True):
        counts[component.name] = session.apply_run(component, given)
    session.finish_run({one.attempt.txid: totals(one, len(driver.committers)) for one in batches})
    return counts


def totals(one: Processed, committers: int) -> LedgerTotals:
    """Of one batch."""
    return LedgerTotals(
        read=one.read,
        rejected=len(one.rejected_rows),
        dead_lettered=one.dead_lettered,
        committers=committers,
        spans=one.spans,
    )


def processed(driver: Driver, txid: int, rows: Sequence[Row], **more: Any) -> Processed:
    """The same rows for every committer."""
    results = tuple(result_of(rows, component.name) for component in driver.committers)
    values = {"rejected": len(more.get("rejected_rows", ())), **more, "results": results}
    return driver.processed(txid, rows, **values)


def commit_run(driver: Driver, *rows: Sequence[Row], first: int = 1) -> Any:
    """Commit these batches in one database transaction."""
    plans = [driver.ready(txid) for txid in range(first, first + len(rows))]
    batches = [processed(driver, plan.txid, some) for plan, some in zip(plans, rows, strict=True)]
    with driver.ledger.run_session(driver.lead) as session:
        counts = send(session, driver, plans, batches)
        session.commit()
    return counts


@contextmanager
def nothing_stays(driver: Driver, dsn: str) -> Iterator[None]:
    """Whatever was refused, its batches are as before."""
    yield
    fence = driver.ledger.read_fence()
    assert fence is not None
    assert fence.last_txid == 0
    for table in ("flights_count", "totals_only", "flights_count_contribution", "txtopo.committer_count"):
        assert select(dsn, f"select count(*) from {table}") == [(0,)], table
    assert select(dsn, "select distinct state from txtopo.attempt") == [("begun",)]


def execute(dsn: str, statement: str) -> None:
    """As a user would, next to txtopo."""
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)


def content(dsn: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, without times and what covers them."""
    found = {
        table: [row for (row,) in select(dsn, f"select to_jsonb(one) from {table} one order by {order}")]
        for table, order in TABLES.items()
    }
    return {
        table: [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
        for table, rows in found.items()
    }


def filled(dsn: str, sizes: Sequence[int]) -> tuple[dict[str, list[dict[str, Any]]], dict[int, list[CommitterCount]]]:
    """What `BATCHES` leave in a database, and the counts that were returned. `sizes`: of the runs; one batch is
    committed alone.
    """
    execute(dsn, BY_HAND)
    with closing(PostgresLedger(dsn, "flights")):
        made = leader(dsn, KEPT, TOTALS_ONLY)
    told: dict[int, list[CommitterCount]] = {}
    txid = 1
    for size in sizes:
        plans = [made.ready(one) for one in range(txid, txid + size)]
        batches = [processed(made, plan.txid, BATCHES[plan.txid - 1][0], **BATCHES[plan.txid - 1][1]) for plan in plans]
        if size == 1:
            outcome = made.commit(
                plans[0], results=batches[0].results, **BATCHES[txid - 1][1], rejected=batches[0].rejected
            )
            assert isinstance(outcome, Committed), outcome
            told[txid] = list(outcome.counts)
        else:
            with made.ledger.run_session(made.lead) as session:
                counts = send(session, made, plans, batches)
                session.commit()
            told |= {plan.txid: [counts[one.name][plan.txid] for one in made.committers] for plan in plans}
        txid += size
    made.ledger.close()
    return content(dsn), told


def test_a_run_leaves_what_its_batches_one_by_one_leave(postgres_server: LocalPostgres, migrated_template: str) -> None:
    """R19: every table is the same but for times, xmin, and the seals that cover the times; so are the counts returned.
    With keys that are NULL or varchar, an empty batch, rejected records, dead letters, edges, and two committers.
    """
    found = []
    for sizes in ((1, 1, 1, 1, 1), (5,), (2, 1, 2)):
        with fresh_database(postgres_server, migrated_template) as dsn:
            found.append(filled(dsn, sizes))

    one_by_one, *runs = found
    for run in runs:
        assert run == one_by_one
    assert [row["dead_lettered"] for row in one_by_one[0]["txtopo.ledger"]] == [None, 0, 0, 0, 2, 0]
    assert len(one_by_one[0]["flights_count"]) == 6


def test_a_run_takes_four_round_trips_and_its_timeouts_do_not_grow(driver: Driver) -> None:
    """R22, R24: lock, apply, finish, COMMIT, whatever the number of batches; a further committer takes one more."""
    driver.committers = (KEPT,)
    ledger: Any = driver.ledger
    sent: list[str] = []
    timeouts: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    engine = ledger._database.pooled
    event.listen(engine, "before_cursor_execute", note)
    plans = [driver.ready(txid) for txid in range(1, 9)]
    batches = [processed(driver, plan.txid, ROWS) for plan in plans]
    sent.clear()
    with ledger.run_session(driver.lead) as session:
        send(session, driver, plans, batches)
        cursor = session._connection.connection.cursor()
        cursor.execute("select setting from pg_settings where name = 'statement_timeout'")
        timeouts += cursor.fetchone()
        session.commit()

    assert len(sent) == 3
    assert timeouts == [str(STATEMENT_TIMEOUT_MS)]


def test_the_way_to_a_far_database_is_no_time_of_the_run(postgres_proxy: PostgresProxy) -> None:
    """R24: three round trips, lasting at least as long as the messages are on their way."""
    driver = leader(postgres_proxy.dsn, KEPT)
    ledger: Any = driver.ledger
    plans = [driver.ready(txid) for txid in (1, 2)]
    postgres_proxy.far_s = 0.03

    ended = driver.commit_run(plans, now=time.monotonic)

    driver.ledger.close()
    assert isinstance(ended, RunEnded) and ended.locked_s is not None and ended.own_s is not None
    assert ended.travel_s == 3 * min(ledger._database.travels_s) >= 3 * 0.03
    assert ended.own_s < ended.locked_s


def test_what_the_server_does_is_time_of_the_run_however_long_it_takes(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R24: the server's own measure of its statement is no travel; of several runs the shortest travel counts."""
    clock = iter([10.0, 10.5, 20.0, 20.7])
    ledger: Any = driver.ledger
    monkeypatch.setattr(fenced_session, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    text = statement("finish_run").replace("clock_timestamp() - statement_timestamp()", "interval '0.4 s'")
    monkeypatch.setattr(fenced_session, "statement", lambda name: text)

    for first in (1, 3):
        ended = driver.commit_run([driver.ready(txid) for txid in (first, first + 1)])
        assert isinstance(ended, RunEnded) and ended.travel_s == pytest.approx((2 + len(driver.committers)) * 0.1)

    assert list(ledger._database.travels_s) == pytest.approx([0.1, 0.3])


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        pytest.param([("AA", "JFK", 1, 1), ("AA", "JFK", 1, 1)], "key twice|duplicate key", id="key twice"),
        pytest.param([("AA", None, 1, 1), ("AA", None, 1, 1)], "key twice|duplicate key", id="NULL key twice"),
        pytest.param([("AA", "JFK", 1, None)], "violates not-null", id="NULL sum"),
        pytest.param([("A\0", "JFK", 1, 1)], "its rows do not fit", id="NUL"),
        pytest.param([("AA", "JFK", 2**63 - 1, 1)], "out of range", id="sum overflows"),
    ],
)
@pytest.mark.parametrize("keeps", [True, False], ids=["contributions", "totals only"])
def test_rows_that_do_not_fit_fail_the_run(
    driver: Driver, database: str, rows: Sequence[Row], wrong: str, keeps: bool
) -> None:
    """R22, R25: a batch that alone would fail makes the run fail, also where only its sum would hide it; and one whose
    amount fits alone, but not the sum.
    """
    driver.committers = (KEPT,) if keeps else (TOTALS_ONLY,)

    with nothing_stays(driver, database), pytest.raises(BatchDataError, match=wrong):
        commit_run(driver, [("AA", "JFK", 1, 5)], rows)


def test_numbers_that_disagree_in_one_batch_fail_the_run(driver: Driver, database: str) -> None:
    """I6: of each batch, though the numbers of the run agree."""
    plans = [driver.ready(txid) for txid in (1, 2)]
    entries = [LedgerEntry(plan=plan, attempt=TransactionAttempt(plan.txid, 0)) for plan in plans]
    swapped = [[result_of(ROWS, one.name, arrived=6 + by) for one in driver.committers] for by in (1, -1)]

    with nothing_stays(driver, database), pytest.raises(BatchDataError, match="7 tuples arrived"):
        with driver.ledger.run_session(driver.lead) as session:
            session.lock_fence()
            session.append_run(entries)
            session.apply_run(KEPT, {txid: swapped[txid - 1][0] for txid in (1, 2)})


OBSTACLES = {
    "CHECK": ("alter table flights_count add check (count >= 0)", "flights_count has a CHECK constraint"),
    "trigger": (
        "create trigger seen after update on flights_count for each row execute function txtopo.frozen()",
        "flights_count has trigger seen",
    ),
    "foreign key": (
        (
            "create table kinds as select 'AA' as carrier union select 'UA'; alter table kinds add primary key "
            "(carrier); alter table flights_count add foreign key (carrier) references kinds"
        ),
        "flights_count has a foreign key",
    ),
    "rule": (
        "create rule seen as on delete to flights_count do also select 1",
        "flights_count has rule seen",
    ),
    "row security": ("alter table flights_count enable row level security", "flights_count has row security"),
    "child table": ("create table part () inherits (flights_count)", "flights_count is not a plain table"),
    "unique index": ("create unique index u on flights_count (count)", "has index u next to its keys"),
    "partial index": ("create index u on flights_count (count) where 1 / count > 0", "has index u next to its keys"),
    "index of an expression": ("create index u on flights_count ((1 / count))", "has index u next to its keys"),
    "exclusion": (
        "alter table flights_count add constraint u exclude (count with =)",
        "has index u next to its keys",
    ),
    "rounded sums": (
        "alter table flights_count alter distance type numeric(20, 0)",
        "flights_count has column distance, which is numeric(20,0)",
    ),
    "generated column": (
        "alter table flights_count add more bigint generated always as (1 / count) stored",
        "flights_count has column more, which is bigint and generated",
    ),
    "keys that differ and are equal": (
        (
            'create collation odd from "C"; update pg_collation set collisdeterministic = false where collname = '
            "'odd'; alter table flights_count alter carrier type text collate odd"
        ),
        "flights_count has column carrier, which is text, of a collation that is not deterministic",
    ),
    "trigger of contributions": (
        (
            "create trigger seen after insert on flights_count_contribution for each statement execute function "
            "public.quiet()"
        ),
        "flights_count_contribution has trigger seen",
    ),
    "no trigger contributes": (
        "drop trigger contributes on flights_count_contribution",
        "flights_count_contribution lacks its trigger contributes",
    ),
    "trigger contributes switched off": (
        "alter table flights_count_contribution disable trigger contributes",
        "flights_count_contribution lacks its trigger contributes",
    ),
}
"""What is done to a table -> what is told."""


@pytest.fixture(scope="module")
def steady(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[tuple[Driver, str, list[Any]]]:
    """A driver with two batches that are ready; no test commits them."""
    with fresh_database(postgres_server, migrated_template) as dsn:
        execute(dsn, "create function public.quiet() returns trigger language plpgsql as $$ begin return null; end $$")
        made = leader(dsn)
        yield made, dsn, [made.ready(txid) for txid in (1, 2)]
        made.ledger.close()


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_table_that_would_see_a_sum_gets_no_runs_and_says_why(
    steady: tuple[Driver, str, list[Any]], name: str
) -> None:
    """R20: asked at the start, and again under the locks of each run: it may have changed since."""
    driver, dsn, plans = steady
    statement, why = OBSTACLES[name]
    assert driver.ledger.single_commits(driver.committers) is None
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        connection.commit()
    try:
        assert why in (driver.ledger.single_commits(driver.committers) or "")
        with pytest.raises(RunRefused, match=why.replace("(", r"\(").replace(")", r"\)")):
            with driver.ledger.run_session(driver.lead) as session:
                send(session, driver, plans, [processed(driver, txid, ROWS) for txid in (1, 2)])
    finally:
        execute(dsn, UNDO[name])


UNDO = {
    "CHECK": "alter table flights_count drop constraint flights_count_count_check",
    "trigger": "drop trigger seen on flights_count",
    "foreign key": "drop table kinds cascade",
    "rule": "drop rule seen on flights_count",
    "row security": "alter table flights_count disable row level security",
    "child table": "drop table part",
    "unique index": "drop index u",
    "partial index": "drop index u",
    "index of an expression": "drop index u",
    "exclusion": "alter table flights_count drop constraint u",
    "rounded sums": "alter table flights_count alter distance type numeric",
    "generated column": "alter table flights_count drop column more",
    "keys that differ and are equal": "alter table flights_count alter carrier type text; drop collation odd",
    "trigger of contributions": "drop trigger seen on flights_count_contribution",
    "no trigger contributes": (
        "create trigger contributes after insert on flights_count_contribution referencing new table as new_rows for "
        "each statement execute function txtopo.contributes()"
    ),
    "trigger contributes switched off": "alter table flights_count_contribution enable trigger contributes",
}


def test_a_contribution_table_that_somebody_locks_stops_no_start(driver: Driver, database: str) -> None:
    """Promise: the trigger is for runs alone: VACUUM, or whoever else holds the table, makes this leader commit one by
    one, and the next one adds it.
    """
    execute(database, "drop trigger contributes on flights_count_contribution")
    with closing(psycopg2.connect(database)) as holder, holder.cursor() as cursor:
        cursor.execute("lock table flights_count_contribution in share update exclusive mode")

        driver.ledger.prepare_targets(driver.lead, driver.committers)

        why = driver.ledger.single_commits(driver.committers)
        assert why is not None and "flights_count_contribution lacks its trigger contributes" in why
        assert isinstance(driver.commit(driver.ready(1)), Committed)
    driver.ledger.prepare_targets(driver.lead, driver.committers)
    assert driver.ledger.single_commits(driver.committers) is None


def test_a_role_that_may_not_execute_a_function_is_refused_at_the_start(driver: Driver, database: str) -> None:
    """Every commit calls some of them: without this the first batch is processed before anybody says it."""
    execute(
        database,
        "revoke execute on function txtopo.run_obstacles(jsonb) from public; create role nobody_else login; "
        "grant usage on schema txtopo to nobody_else; "
        "grant select, insert, update on all tables in schema txtopo, public to nobody_else",
    )
    scheme, _, rest = database.partition("://")
    other = PostgresLedger(f"{scheme}://nobody_else@{rest.rpartition('@')[2]}", "flights")
    try:
        with pytest.raises(ConfigurationError, match=r"may not execute txtopo\.run_obstacles\(jsonb\), which commits"):
            other.prepare_targets(driver.lead, driver.committers)
        execute(database, "grant execute on all functions in schema txtopo to nobody_else")
        other.prepare_targets(driver.lead, driver.committers)
    finally:
        other.close()
        execute(database, "drop owned by nobody_else; drop role nobody_else")


def test_a_contribution_table_without_its_trigger_gets_it_where_the_role_may(driver: Driver, database: str) -> None:
    """Promise: tables of an earlier release get the trigger at the next start. Who may not add it commits one by one
    and says why.
    """
    lost = "drop trigger contributes on flights_count_contribution"
    execute(database, lost)
    driver.ledger.prepare_targets(driver.lead, driver.committers)
    assert driver.ledger.single_commits(driver.committers) is None
    execute(database, lost)
    execute(
        database,
        "revoke execute on function txtopo.contributes() from public; create role nobody_else login; "
        "grant usage on schema txtopo to nobody_else; "
        "grant select, insert, update on all tables in schema txtopo, public to nobody_else",
    )
    scheme, _, rest = database.partition("://")
    other = PostgresLedger(f"{scheme}://nobody_else@{rest.rpartition('@')[2]}", "flights")
    try:
        other.prepare_targets(driver.lead, driver.committers)

        why = other.single_commits(driver.committers)

        assert why is not None
        assert "flights_count_contribution lacks its trigger contributes" in why
        driver.ledger = other
        assert isinstance(driver.commit(driver.ready(1)), Committed)
    finally:
        other.close()
        execute(database, "drop owned by nobody_else; drop role nobody_else")


def test_an_unanswered_commit_of_a_run_is_resolved_for_all_its_batches(driver: Driver, database: str) -> None:
    """R26: one look, under the lock, after the old server process has ended: all of them or none."""
    plans = [driver.ready(txid) for txid in (1, 2, 3)]
    batches = [processed(driver, plan.txid, ROWS) for plan in plans]
    wanted = [(plan.txid, plan.digest) for plan in plans]
    terminate = (
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name like 'txtopo/%/1' and "
        "state = 'idle in transaction'"
    )
    with pytest.raises(PostgresUnavailable) as unknown:
        with driver.ledger.run_session(driver.lead) as session:
            send(session, driver, plans, batches)
            assert select(database, terminate) == [(True,)]
            session.commit()
    assert (unknown.value.definite, "COMMIT of batches 1 to 3" in str(unknown.value)) == (False, True)
    resolved = driver.ledger.resolve(driver.lead, wanted)
    assert [type(one) for one in resolved] == [Aborted] * 3

    with driver.ledger.run_session(driver.lead) as session:
        send(session, driver, plans, batches)
        session.commit()
    assert driver.ledger.resolve(driver.lead, wanted) == [Committed(txid=txid) for txid in (1, 2, 3)]
    fourth = driver.ready(4)
    with pytest.raises(Halted, match="half of a commit run"):
        driver.ledger.resolve(driver.lead, [*wanted, (4, fourth.digest)])
    with pytest.raises(Halted, match="another plan"):
        driver.ledger.resolve(driver.lead, [(1, plans[0].digest), (2, b"o" * 32)])
    leader(database).ledger.close()
    with pytest.raises(Fenced):
        driver.ledger.resolve(driver.lead, wanted)


def test_rows_of_another_batch_never_go_with_a_run(driver: Driver, database: str) -> None:
    """R22: each txid is named once; what belongs to no batch of the run is a bug, and is not sent."""
    plans = [driver.ready(txid) for txid in (1, 2)]
    driver.ledger.begin_attempts(driver.lead, [AttemptStart(attempt=TransactionAttempt(3, 0))])
    entries = [LedgerEntry(plan=plan, attempt=TransactionAttempt(plan.txid, 0)) for plan in plans]
    with driver.ledger.run_session(driver.lead) as session:
        session.lock_fence()
        with pytest.raises(InvariantBroken, match="does not follow"):
            session.append_run(entries[::-1])
        session.append_run(entries)
        with pytest.raises(InvariantBroken, match="a result of each batch"):
            session.apply_run(KEPT, {1: result_of(ROWS), 3: result_of(ROWS)})
        for place in range(3):
            edges, rejected, letters = ({3: ()} if place == at else {} for at in range(3))
            session.prepare_kept(edges, rejected, letters)
            with pytest.raises(InvariantBroken, match="another batch"):
                session.finish_run({txid: totals(processed(driver, txid, ROWS), 1) for txid in (1, 2)})
        session.prepare_kept({}, {}, {})
        with pytest.raises(InvariantBroken, match="another batch"):
            session.finish_run({3: totals(processed(driver, 3, ROWS), 1)})
