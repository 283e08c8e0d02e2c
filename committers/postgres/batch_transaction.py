"""The CommitTransaction that a custom committer uses on Postgres: single statements with bound parameters, in the
database transaction of its batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg2
from sqlalchemy import Connection

from txtopo.committers.postgres.keyed_rows import reads_of
from txtopo.committers.postgres.sql_errors import Answers, translate_user
from txtopo.committers.postgres.transactions import Held
from txtopo.committers.protocol.user_transaction import UserTransaction
from txtopo.core.limits import IDLE_IN_TRANSACTION_TIMEOUT_MS
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, PostgresUnavailable, TxtopoError
from txtopo.topology.keyed_table import KeyedTable

_OPENING = """set local search_path = public, pg_temp;
set local standard_conforming_strings = on;
set local enable_seqscan to default;
set local jit to default"""
"""Names without a schema are those in `public`. The check of statements relies on this way of reading quotes. How user
code finds its rows is decided as in any other session.
"""


class PostgresTransaction(UserTransaction):
    """The CommitTransaction of one committer in one batch."""

    def __init__(
        self,
        connection: Connection,
        committer: str,
        attempt: TransactionAttempt,
        held: Held | None,
        answers: Answers | None = None,
    ) -> None:
        super().__init__(committer, attempt)
        self._raw: Any = connection.connection.dbapi_connection
        self._held = held
        self._answers = answers
        self._answered_s = time.monotonic()
        self.statements = 0
        """Number of statements sent."""

    def end(self) -> Held | None:
        """Refuse further statements: the driver half has returned. Returns the delayed statement, if it was not
        sent.
        """
        self._is_open = False
        return self._take_held()

    def _execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        held = self._take_held()
        try:
            with self._raw.cursor() as cursor:
                # The client binds the values, so that the delayed statement is sent in the same round trip.
                sent = [cursor.mogrify(statement, parameters or None)]
                if self.statements == 0:
                    sent = [*([] if held is None else [cursor.mogrify(held[0], held[1])]), _OPENING.encode(), *sent]
                cursor.execute(b";\n".join(sent))
                self.statements += 1
                return [tuple(map(_plain, row)) for row in cursor.fetchall()] if cursor.description else []
        except (psycopg2.Error, ValueError, TypeError, LookupError, OverflowError) as error:
            raise self._translated(error, ledger_held=held is not None) from error
        finally:
            self._answered_s = time.monotonic()

    def _rows_of(
        self, table: KeyedTable, keys: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        width = len(table.keys.items)
        for statement, parameters in reads_of(table, keys):
            for row in self._execute(statement, parameters):
                yield tuple(row[:width]), tuple(row[width:])

    def _translated(self, error: Exception, *, ledger_held: bool) -> TxtopoError:
        typed = translate_user(
            error, self._committer, self._attempt.txid, ledger_held=ledger_held, answers=self._answers
        )
        waited_s = time.monotonic() - self._answered_s
        if (
            isinstance(typed, PostgresUnavailable)
            and self._raw.closed
            and waited_s * 1000 >= IDLE_IN_TRANSACTION_TIMEOUT_MS
        ):
            # The server has ended a database transaction that was idle (P6). User code made it wait, and will do so
            # again.
            return BatchDataError(
                f"committer {self._committer} let the database transaction wait for {waited_s:.1f} s between two "
                f"statements; "
                f"the server allows {IDLE_IN_TRANSACTION_TIMEOUT_MS / 1000:g} s: compute in the executor half",
                component=self._committer,
                fault="slow commit",
            )
        return typed

    def _take_held(self) -> Held | None:
        held, self._held = self._held, None
        return held


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
