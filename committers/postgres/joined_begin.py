"""Connections that send BEGIN together with the first statement of a database transaction, in one round trip. psycopg2
itself sends it alone, and waits for the answer.
"""

from __future__ import annotations

from typing import Any, NoReturn

import psycopg2.extensions
from psycopg2.extensions import TRANSACTION_STATUS_IDLE

from txtopo.errors import invariant, unreachable

_BEGIN = "begin;\n"


class JoinedBegin(psycopg2.extensions.connection):  # type: ignore[misc]
    """A connection on which every statement is in a database transaction (P8), as on any other of psycopg2. psycopg2
    believes it in autocommit mode and adds nothing; what begins and what ends a database transaction is decided by the
    state that the server reports.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.autocommit = True

    def cursor(self, *arguments: Any, **more: Any) -> Any:
        """Return a cursor that begins a database transaction with its first statement."""
        return super().cursor(*arguments, **{"cursor_factory": _Cursor, **more})

    def commit(self) -> None:
        """Send COMMIT if a database transaction is open. Raises the server's refusal, or that it did not answer."""
        self._end("commit")

    def rollback(self) -> None:
        """Send ROLLBACK if a database transaction is open."""
        self._end("rollback")

    def _end(self, word: str) -> None:
        # Unknown: the connection broke, and `execute` says so.
        if self.closed or self.info.transaction_status != TRANSACTION_STATUS_IDLE:
            with super().cursor(cursor_factory=psycopg2.extensions.cursor) as cursor:
                cursor.execute(word)


class _Cursor(psycopg2.extensions.cursor):  # type: ignore[misc]
    def execute(self, query: Any, vars: Any = None) -> None:
        """Send the statement, after BEGIN if no database transaction is open."""
        if self.connection.info.transaction_status == TRANSACTION_STATUS_IDLE:
            query = _BEGIN.encode() + query if isinstance(query, bytes) else _BEGIN + query
        super().execute(query, vars)

    def copy_expert(self, *arguments: Any, **more: Any) -> None:
        """Send COPY in the open database transaction: it can begin none."""
        invariant(
            self.connection.info.transaction_status != TRANSACTION_STATUS_IDLE,
            "COPY needs a database transaction that is open",
        )
        super().copy_expert(*arguments, **more)

    def executemany(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: these would not begin a database transaction."""
        unreachable("this connection only has `execute`")

    callproc = copy_from = copy_to = executemany
