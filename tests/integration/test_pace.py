"""The pace holds: a commit, and what a start asks for, read as many rows after many batches as after few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from tests.contracts.ledger_driver import Driver, claim_for
from tests.contracts.ledger_driver import committer as counting
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.core.values import Committed, RunEnded
from txtopo.ports import Ledger

FEW, MANY = 8, 264
READ = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int from pg_stat_user_tables"


@pytest.fixture
def dsn(database: str) -> Iterator[str]:
    """A database that gathers no statistics by itself, however long the tests of other files take."""
    with closing(psycopg2.connect(database)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "select format('%I.%I', schemaname, relname) from pg_stat_user_tables where schemaname = 'txtopo'"
        )
        for (name,) in cursor.fetchall():
            cursor.execute(f"alter table {name} set (autovacuum_enabled = off)")
    yield database


def lead(dsn: str) -> Driver:
    """A new leader, on new sessions."""
    ledger = PostgresLedger(dsn, "flights")
    (fence,) = [ledger.read_fence()]
    driver = Driver(ledger, ledger.claim_fence(claim_for(incarnation=fence and fence.incarnation)), (counting(),))
    ledger.prepare_targets(driver.lead, driver.committers)
    return driver


def commit_to(driver: Driver, last_txid: int) -> None:
    """Commit batches in runs."""
    first = max(driver.digests) + 1
    for start in range(first, last_txid + 1, 64):
        ended = driver.commit_run(driver.ready_run(start, min(64, last_txid + 1 - start)))
        assert isinstance(ended, RunEnded)


def rows_read(driver: Driver, count: int, *, together: bool) -> int:
    """Plan, mirror, begin and commit the next batches; return how many rows Postgres read for it, in whatever way."""
    before = _read_so_far(driver.ledger)
    first = max(driver.digests) + 1
    if together:
        assert isinstance(driver.commit_run(driver.ready_run(first, count)), RunEnded)
    else:
        for txid in range(first, first + count):
            assert isinstance(driver.commit(driver.ready(txid)), Committed)
    return _read_so_far(driver.ledger) - before


def _read_so_far(ledger: Ledger) -> int:
    assert isinstance(ledger, PostgresLedger)
    with ledger._database.transaction("adding up") as connection:
        connection.exec_driver_sql("select pg_stat_force_next_flush()")
    with ledger._database.transaction("adding up") as connection:
        return int(connection.exec_driver_sql(READ).scalar_one())


@pytest.mark.parametrize("known", [False, True], ids=["no-statistics", "statistics-of-few-rows"])
def test_a_commit_reads_as_many_rows_after_many_batches_as_after_few(dsn: str, known: bool) -> None:
    """Also on tables of which Postgres knows nothing yet, and within a session whose triggers and foreign keys were
    planned while the tables were small.
    """
    with closing(lead(dsn).ledger):
        pass
    driver = lead(dsn)
    commit_to(driver, FEW)
    if known:
        with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
            cursor.execute("analyze")
    for _ in range(2):  # Plans that a session keeps are made at the sixth time.
        few = [rows_read(driver, 4, together=together) for together in (False, True)]
    commit_to(driver, MANY)

    many = [rows_read(driver, 4, together=together) for together in (False, True)]

    assert all(later <= earlier + 8 for earlier, later in zip(few, many, strict=True)), (few, many)
    driver.ledger.close()
