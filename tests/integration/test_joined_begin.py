"""BEGIN is sent with the first statement of a database transaction, and nothing else about database transactions is
different (P1, P8).
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest
from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INTRANS

from benchmarks.round_trips import CountingProxy
from txtopo.committers.postgres.connect import make_engine
from txtopo.committers.postgres.transactions import Database, raw_of, status
from txtopo.errors import Halted, InvariantBroken, PostgresUnavailable

INSERT = "insert into txtopo.plan_part (digest, bytes) values (sha256('a'), 'a')"
COUNT = "select count(*) from txtopo.plan_part"
XID = "select pg_current_xact_id()::text"


@pytest.fixture
def transactions(database: str) -> Iterator[Database]:
    """The connections of a driver."""
    found = Database(database, "t")
    yield found
    found.close()


def test_begin_takes_no_round_trip_of_its_own(database: str) -> None:
    """Two statements and COMMIT: three round trips, also on a connection that was used before."""
    with CountingProxy(database) as proxy:
        through = Database(proxy.dsn, "t")
        for _ in range(2):
            before = proxy.count()
            with through.transaction("counting") as connection:
                connection.exec_driver_sql("select 1")
                connection.exec_driver_sql("select 2")
        trips = proxy.count() - before
        through.close()

    assert trips == 3


def test_statements_share_a_database_transaction_that_only_commit_makes_durable(transactions: Database) -> None:
    """P8: nothing is durable before COMMIT, and each use of a connection has a database transaction of its own."""
    with transactions.connected() as connection:
        connection.exec_driver_sql(INSERT)
        first = connection.exec_driver_sql(XID).scalar_one()
        assert status(connection) == TRANSACTION_STATUS_INTRANS
        assert connection.exec_driver_sql(XID).scalar_one() == first
    with transactions.transaction("looking") as connection:
        assert connection.exec_driver_sql(XID).scalar_one() != first
        assert connection.exec_driver_sql(COUNT).scalar_one() == 0
        connection.exec_driver_sql(INSERT)
    with transactions.transaction("looking", transactions.fresh) as connection:
        assert connection.exec_driver_sql(COUNT).scalar_one() == 1


def test_a_connection_goes_back_to_the_pool_without_a_database_transaction(transactions: Database) -> None:
    """Whatever ended the use of it: the next one does not continue what failed."""
    with pytest.raises(Halted, match="syntax"), transactions.transaction("asking") as connection:
        raw = raw_of(connection)
        connection.exec_driver_sql("select 1")
        connection.exec_driver_sql("selec 2")
    assert raw.info.transaction_status == TRANSACTION_STATUS_IDLE
    with pytest.raises(Halted, match="syntax"), transactions.transaction("asking") as connection:
        connection.exec_driver_sql("selec 1")
    assert raw.info.transaction_status == TRANSACTION_STATUS_IDLE
    with transactions.transaction("asking") as connection:
        assert raw_of(connection) is raw
        assert connection.exec_driver_sql("select 1").scalar_one() == 1


def test_commit_of_a_failed_database_transaction_is_an_error(transactions: Database) -> None:
    """P1: the server would answer ROLLBACK."""
    with pytest.raises(PostgresUnavailable, match="had failed before COMMIT"):
        with transactions.transaction("writing") as connection:
            connection.exec_driver_sql(INSERT)
            with pytest.raises(Exception, match="division by zero"):
                connection.exec_driver_sql("select 1/0")


def test_a_connection_that_broke_is_replaced(transactions: Database, database: str) -> None:
    """Between two uses, and in a database transaction."""
    with transactions.connected() as connection:
        pid = raw_of(connection).info.backend_pid
    _terminate(database, pid)
    with pytest.raises(PostgresUnavailable), transactions.transaction("asking") as connection:
        connection.exec_driver_sql("select 1")
    with pytest.raises(PostgresUnavailable), transactions.transaction("asking") as connection:
        connection.exec_driver_sql(INSERT)
        _terminate(database, raw_of(connection).info.backend_pid)
        connection.exec_driver_sql("select 1")
    with transactions.transaction("asking") as connection:
        assert connection.exec_driver_sql(COUNT).scalar_one() == 0


def test_ways_around_begin_are_refused(transactions: Database) -> None:
    """P8: what psycopg2 does outside `execute` would be outside of a database transaction."""
    with transactions.connected() as connection, raw_of(connection).cursor() as cursor:
        with pytest.raises(InvariantBroken):
            cursor.executemany(INSERT, [()])
        with pytest.raises(InvariantBroken):
            cursor.copy_expert("copy txtopo.plan_part to stdout", None)


def test_a_connection_that_commits_each_statement_is_refused(database: str) -> None:
    """P8: without a database transaction the fence protects nothing."""
    engine = make_engine(database, "test", pooled=False)
    with pytest.raises(Exception, match="AUTOCOMMIT"):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("select 1")


def _terminate(dsn: str, pid: int) -> None:
    connection = psycopg2.connect(dsn)
    with connection, connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 5000)", (pid,))
    connection.close()
