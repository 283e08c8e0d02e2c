"""Rows from cursors on the server: several tables are read together in the order of the txids, without holding them in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, text

ROWS_AT_ONCE = 5000


def stream(connection: Connection, sql: str, /, *, rows_at_once: int = ROWS_AT_ONCE, **values: object) -> Iterator[Any]:
    """Yield rows of a statement with psycopg2's own placeholders (at least one), from a cursor."""
    options = {"stream_results": True, "yield_per": rows_at_once}
    return iter(connection.exec_driver_sql(sql, values, execution_options=options))


class InStep:
    """Rows of one statement ordered by txid, returned txid by txid."""

    def __init__(self, connection: Connection, sql: str, /, **values: object) -> None:
        result = connection.execute(
            text(sql), values, execution_options={"stream_results": True, "yield_per": ROWS_AT_ONCE}
        )
        self._groups = groupby(result, key=lambda row: row.txid)
        self._next: tuple[int, list[Any]] | None = None
        self.passed: dict[int, int] = {}
        """Txid -> rows that nobody asked for."""
        self._advance()

    @property
    def next_txid(self) -> int | None:
        """Return the lowest txid that was neither taken nor passed over; None after the last row."""
        return None if self._next is None else self._next[0]

    def take(self, txid: int) -> list[Any]:
        """Return the rows of this txid; rows of lower txids are passed over."""
        while self._next is not None and self._next[0] < txid:
            self.passed[self._next[0]] = len(self._next[1])
            self._advance()
        if self._next is None or self._next[0] != txid:
            return []
        found = self._next[1]
        self._advance()
        return found

    def finish(self) -> dict[int, int]:
        """Read the rest; returns the rows that were not taken."""
        self.take(2**63)
        return self.passed

    def _advance(self) -> None:
        txid, group = next(self._groups, (None, ()))
        self._next = None if txid is None else (txid, list(group))
