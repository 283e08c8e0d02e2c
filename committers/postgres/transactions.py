"""One database transaction for one topology: settings, lock of the fence row, comparison with the lead (R4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_INTRANS
from sqlalchemy import Connection, CursorResult, Engine
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.connect import make_engine
from txtopo.committers.postgres.sql_errors import translate, translating
from txtopo.committers.postgres.statements import statement
from txtopo.committers.protocol.rules import compare_lead
from txtopo.core.limits import IDLE_IN_TRANSACTION_TIMEOUT_MS, LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_MS
from txtopo.core.values import Fence, Lead
from txtopo.errors import PostgresUnavailable, TxtopoError, invariant

TRAVELS_KEPT = 32
Held = tuple[str, Mapping[str, Any]]
"""A delayed statement with its values. It is sent together with the next one, in one round trip."""


class Database:
    """The connections of one driver for one topology."""

    def __init__(self, dsn: str, topology: str) -> None:
        self.topology = topology
        self.pooled = make_engine(dsn, f"txtopo/{topology}", joined_begin=True)
        self.fresh = make_engine(dsn, f"txtopo/{topology}", pooled=False, joined_begin=True)
        self.unresolved_pids: set[int] = set()
        """Server processes whose COMMIT was not answered. They may still hold their locks."""
        self.travels_s: deque[float] = deque(maxlen=TRAVELS_KEPT)
        """Seconds that round trips took by themselves, without what the server did: of the last commits."""
        self._closed = False

    @property
    def travel_s(self) -> float:
        """Seconds of one round trip: the shortest, since a longer one carried more or was held up; 0 if unknown."""
        return min(self.travels_s, default=0.0)

    def disconnect(self) -> None:
        """Close the connections that nobody uses. The next use opens a new one."""
        self.pooled.dispose()

    def close(self) -> None:
        """Close every connection and refuse new ones (R15, a step-down discards all state)."""
        self._closed = True
        self.pooled.dispose()

    @contextmanager
    def connected(self, engine: Engine | None = None) -> Iterator[Connection]:
        """A connection inside a database transaction, which is rolled back unless it was committed."""
        if self._closed:
            raise PostgresUnavailable("this driver has closed its connections")
        with translating("connecting"):
            connection = (engine or self.pooled).connect()
        try:
            yield connection
        except PostgresUnavailable as error:
            if error.patience == "once":
                with _quietly():
                    connection.invalidate()  # the next attempt uses a new connection
            raise
        finally:
            if self._closed:
                connection.invalidate()  # a connection that is returned to the pool after `close` would stay open
            with _quietly():
                connection.close()

    def answers(self, connection: Connection) -> bool:
        """True if this connection is intact and a new one works too. Then the error was not about connections, whatever
        its code says (W1, trouble of a store).
        """
        try:
            if connection.invalidated or connection.closed or raw_of(connection).closed:
                return False
            with self.fresh.connect() as fresh:
                return bool(fresh.exec_driver_sql("select true").scalar_one())
        except (SQLAlchemyError, psycopg2.Error):
            return False

    @contextmanager
    def transaction(self, doing: str, engine: Engine | None = None) -> Iterator[Connection]:
        """A database transaction: its statements become durable together when it is left. Errors are raised as errors
        of txtopo. `doing` describes the work in error messages.
        """
        with self.connected(engine) as connection:
            with translating(doing):
                yield connection
            commit(connection, doing)

    @contextmanager
    def fenced(self, lead: Lead, doing: str) -> Iterator[Connection]:
        """Like `transaction`, with the fence row locked FOR KEY SHARE. Raises Fenced if the fence is not that of
        `lead`.
        """
        with self.transaction(doing) as connection:
            fence, _ = begin(connection, lead.topology, tag(lead), "lock_fence_to_write")
            compare_lead(fence, lead)
            yield connection


def tag(lead: Lead) -> str:
    """Return the application name of a leader's database transaction in `pg_stat_activity`. A later leader recognises
    by it which sessions it may terminate (P6).
    """
    return f"txtopo/{lead.topology}/{lead.epoch}"


def run(connection: Connection, name: str, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run the statement in `sql/<name>.sql`."""
    return connection.exec_driver_sql(statement(name), values)


def run_first(connection: Connection, name: str, *, topology: str, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run the statement in `sql/<name>.sql` as the first one of a database transaction that does not lock the fence
    row, with the settings in the same round trip: a statement without a bound would wait for a lock inside libpq, where
    no signal and no timeout of this process reaches it.
    """
    values["topology"] = topology
    return connection.exec_driver_sql(*joined(opening(f"txtopo/{topology}"), statement(name), values))


def begin(connection: Connection, topology: str, tag: str, lock: str) -> tuple[Fence | None, str | None]:
    """Set the settings, lock the fence row and read it, in one round trip. Returns the fence, None if there is no row,
    and the xid of the database transaction.
    """
    values = {"topology": topology, **settings(tag)}
    row = connection.exec_driver_sql(f"{statement('begin_transaction')};\n{statement(lock)}", values).one_or_none()
    return (None, None) if row is None else (fence_of(row), row[5])


def opening(tag: str) -> Held:
    """Return the settings of every database transaction, as a delayed statement for one that does not lock the fence
    row.
    """
    return statement("begin_transaction"), settings(tag)


def settings(tag: str) -> dict[str, Any]:
    """Return the values of the settings of every database transaction."""
    return {
        "tag": tag,
        "statement_timeout_ms": STATEMENT_TIMEOUT_MS,
        "lock_timeout_ms": LOCK_TIMEOUT_MS,
        "idle_timeout_ms": IDLE_IN_TRANSACTION_TIMEOUT_MS,
    }


def fence_of(row: Any) -> Fence:
    """Return the fence from its row."""
    return Fence(incarnation=row[0], owner_nonce=row[1], epoch=row[2], code_hash=bytes(row[3]), last_txid=row[4])


def commit(connection: Connection, doing: str, translated: Callable[[Exception], TxtopoError] | None = None) -> None:
    """COMMIT. Returns only if the server confirmed it. Raises PostgresUnavailable with `definite` False if there was no
    answer (P2).

    `translated` makes the error for a refusal if the database transaction has other statements than those on schema
    txtopo.
    """
    if status(connection) != TRANSACTION_STATUS_INTRANS:
        # P1: COMMIT of a failed database transaction is a ROLLBACK without an exception.
        raise PostgresUnavailable(f"{doing}: the database transaction had failed before COMMIT")
    try:
        connection.commit()
    except (SQLAlchemyError, psycopg2.Error) as error:
        raise (translated(error) if translated else translate(error, doing, committing=True)) from error


def status(connection: Connection) -> int:
    """Return libpq's status of the database transaction; needs no round trip."""
    return int(raw_of(connection).info.transaction_status)


def backend_pid(connection: Connection) -> int:
    """Return the pid of the server process of this connection."""
    return int(raw_of(connection).info.backend_pid)


def raw_of(connection: Connection) -> Any:
    """Return psycopg2's connection."""
    return connection.connection.dbapi_connection


@contextmanager
def _quietly() -> Iterator[None]:
    # The connection is abandoned: the server rolls back what was open, and no caller needs the error.
    try:
        yield
    except (SQLAlchemyError, psycopg2.Error):
        pass


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of two statements that are sent as one. Raises InvariantBroken if a name has two different
    values.
    """
    invariant(
        all(values[name] == more[name] for name in values.keys() & more.keys()),
        "two statements mean different things by one name",
    )
    return {**values, **more}


def joined(held: Held | None, sql: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the delayed statement, if any, followed by the next one."""
    return (sql, dict(values)) if held is None else (f"{held[0]};\n{sql}", merged(held[1], values))
