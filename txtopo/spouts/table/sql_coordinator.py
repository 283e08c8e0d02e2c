"""The coordinator half of SqlTableSpout: cuts ranges of keys that have settled, by what the user says of the table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from txtopo.core.fields import Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.partitioned import NOTHING
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.table.row_ranges import SUM_MODULUS
from txtopo.spouts.table.sql_database import SqlDatabase, identity_of
from txtopo.spouts.table.sql_rows import between, rows_between
from txtopo.spouts.table.sql_table import SqlTable, look_up, whole_number
from txtopo.spouts.table.table_checks import refused

if TYPE_CHECKING:
    from sqlalchemy import Connection

LOWEST = -(1 << 63)
"""Stands for the highest key of an empty table."""
MARKS = 20
"""Looks are remembered at most so often within `settled_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCuts:
    """How batches are cut."""

    table: str
    database: SqlDatabase
    fields: Fields
    key: str | None
    settled_s: float
    start: Literal["earliest", "latest"]
    on_late: Literal["halt", "continue"]
    on_other_table: Literal["halt", "continue"]
    rows_max: int
    bytes_max: int
    piece_rows: int
    piece_bytes: int


class Mark(NamedTuple):
    """The highest key that could be seen at a moment; `settled_s` later, all lower ones can be seen."""

    seen_s: float
    key: int


class Span(NamedTuple):
    """Keys whose rows were counted."""

    after: int | None
    to: int
    rows: int


class SqlTableCoordinator:
    """Implements `NamedCoordinator` with one partition, the table. Its attributes hold what it has seen since it was
    opened: a new one waits `settled_s` again.
    """

    def __init__(
        self, cuts: SqlCuts, *, once: bool, monotonic: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._cuts = cuts
        self._once = once
        self._monotonic = monotonic
        self._say = say
        self._table: SqlTable | None = None
        self._server = ""
        self._highest: int | None = None
        self._marks: deque[Mark] = deque()
        self._horizon: int | None = None
        """All rows up to this key can be seen, as far as the user's word is true."""
        self._start: int | None = None
        self._counted: deque[Span] = deque()
        self._is_drained = False

    def is_ready(self) -> bool:
        """Return True: the table may be asked at any time."""
        return True

    def ready_in_s(self) -> float:
        """Return the seconds until more rows have settled, infinity if none wait."""
        return (
            max(0.0, self._marks[0].seen_s + self._cuts.settled_s - self._monotonic()) if self._marks else float("inf")
        )

    def is_exhausted(self) -> bool:
        """Return True in a `--once` run when no rows are left of those that it saw first."""
        return self._is_drained

    def partition_names(self, known: Mapping[str, Any]) -> Sequence[str]:
        """Look at the table, for the question that follows. Raises BatchDataError for a table that cannot be read."""
        from sqlalchemy import column, func, select
        from sqlalchemy import table as named

        cuts = self._cuts
        try:
            with cuts.database.connected(cuts.table) as connection:
                if self._table is None:
                    self._table = look_up(connection, cuts.table, cuts.fields, cuts.key)
                    self._server = identity_of(cuts.database.url())
                table = self._table
                source = named(table.name, column(table.key), schema=table.schema)
                highest = connection.execute(select(func.max(source.c[table.key]))).scalar()
        except BaseException:
            self._table = None
            raise
        self._highest = None if highest is None else whole_number(table.shown, table.key, highest)
        other = next((name for name, last in known.items() if name != table.shown and last is not None), None)
        if other is not None:
            raise _halting(
                f"{table.shown}: batches were planned of table {other}: write its name as before; to read another "
                f"table from its beginning, give the spout another name",
                table.shown,
                "other table",
            )
        # The moment after the answer: what was seen was seen before it.
        self._settle(self._monotonic())
        return [table.shown]

    def next_range(self, partition: str, last: Any) -> Any:
        """Return the settled rows after the last range. Raises BatchDataError if the table is another one, or if rows
        came later than the user said.
        """
        table = self._table
        if table is None or partition != table.shown:
            raise refused(partition, "it was not asked for")
        self._check(table, last)
        found = None if self._horizon is None else self._next(table, self._horizon, last)
        self._is_drained = self._horizon is not None and found is None
        return NOTHING if found is None else found

    def range_again(self, partition: str, planned: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the same range with the rows that are in it now, for a redo. Raises BatchDataError as `next_range`."""
        self.partition_names({})
        table = self._table
        if table is None or partition != table.shown:
            raise refused(partition, "the spout reads another table now", "other table")
        self._check(table, planned)
        with self._cuts.database.connected(table.shown) as connection:
            pieces, _ = self._pieces(connection, table, planned["from"], planned["to"], unlimited=True)
        return self._range(table, planned["from"], planned["to"], pieces)

    def close(self) -> None:
        """Each question opens a connection and closes it, so nothing is open."""

    def _settle(self, now: float) -> None:
        """Remember what can be seen now, and move the horizon to what could be seen `settled_s` ago."""
        key = LOWEST if self._highest is None else self._highest
        last = self._marks[-1] if self._marks else None
        known = last.key if last is not None else self._horizon
        due = last is None or now - last.seen_s >= self._cuts.settled_s / MARKS
        if due and (known is None or (key > known and not self._once)):
            self._marks.append(Mark(now, key))
        while self._marks and now - self._marks[0].seen_s >= self._cuts.settled_s:
            self._horizon = self._marks.popleft().key

    def _next(self, table: SqlTable, horizon: int, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if last is None and self._cuts.start == "latest":
            # This place must not move before it is in a plan.
            self._start = horizon if self._start is None else self._start
            return self._range(table, self._start, self._start, [])
        after = None if last is None else int(last["to"])
        if after is not None and after >= horizon:
            return None
        with self._cuts.database.connected(table.shown) as connection:
            if last is not None:
                self._check_late(connection, table, last)
            pieces, to = self._pieces(connection, table, after, horizon)
        return self._range(table, after, to, pieces) if pieces else None

    def _check(self, table: SqlTable, last: Mapping[str, Any] | None) -> None:
        """Raise BatchDataError unless the keys of the last range are those of this table."""
        if last is None:
            return
        if last["key"] != table.key:
            raise _halting(
                f"{table.shown}: batches were planned by key {last['key']!r}, now it is {table.key!r}: set it back, or "
                f"give the spout another name to read the table from its beginning",
                table.shown,
                "other table",
            )
        if self._cuts.on_other_table == "continue":
            return
        words = None
        if last["server"] != self._server:
            words = f"batches were planned in database {last['server']}, this is {self._server}"
        elif last["to"] > LOWEST and (self._highest is None or self._highest < last["to"]):
            words = (
                f"the last range ends at key {last['to']}, and the highest key is {self._highest}: rows were deleted, "
                f"or the table was made again"
            )
        if words is not None:
            raise _halting(
                f"{table.shown}: {words}. A row with a key up to {last['to']} that comes now is in no batch. If all "
                f"new rows have higher keys, declare the spout with on_other_table='continue'",
                table.shown,
                "other table",
            )

    def _check_late(self, connection: Connection, table: SqlTable, last: Mapping[str, Any]) -> None:
        """Count the rows of the last ranges again: more than were planned came later than the user said."""
        from sqlalchemy import column, func, select
        from sqlalchemy import table as named

        spans = self._counted
        if not spans or spans[-1].to != last["to"]:
            if spans and spans[-1].to != last["from"]:
                spans.clear()
            spans.append(Span(last["from"], last["to"], sum(part["rows"] for part in last["parts"])))
        while len(spans) > 1 and sum(span.rows for span in spans) > self._cuts.rows_max:
            spans.popleft()
        whole = Span(spans[0].after, spans[-1].to, sum(span.rows for span in spans))
        key = named(table.name, column(table.key), schema=table.schema).c[table.key]
        found = connection.execute(select(func.count()).where(*between(key, whole.after, whole.to))).scalar_one()
        if found == whole.rows:
            return
        # From now on, the rows that are there count: those that were deleted must not hide others that come.
        self._counted = deque([whole._replace(rows=found)])
        if found < whole.rows:
            return
        words = (
            f"{table.shown}: {found - whole.rows:,} rows with keys up to {whole.to} came after their range was "
            f"planned, later than settled_s={self._cuts.settled_s:g} says, and are in no batch: txtopo audit names the "
            f"batches, txtopo replay --recompute counts them"
        )
        if self._cuts.on_late == "halt":
            self._counted.clear()
            raise _halting(
                f"{words}. Then declare a larger settled_s, and on_late='continue'", table.shown, "rows came late"
            )
        self._say(words)

    def _pieces(
        self, connection: Connection, table: SqlTable, after: int | None, to: int, *, unlimited: bool = False
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the pieces of the rows after a key, and the key where they end. Reads every row once."""
        cuts, limit = self._cuts, None if unlimited else self._cuts.rows_max
        pieces: list[dict[str, Any]] = []
        rows = size = 0
        is_cut = False
        for row in rows_between(connection, table, cuts.fields, after, to, limit):
            if rows and not unlimited and size + len(row.json) > cuts.bytes_max:
                is_cut = True
                break
            if not pieces or pieces[-1]["rows"] >= cuts.piece_rows or pieces[-1]["bytes"] >= cuts.piece_bytes:
                pieces.append({"to": row.key, "rows": 0, "bytes": 0, "sum": 0})
            piece = pieces[-1]
            piece |= {
                "to": row.key,
                "rows": piece["rows"] + 1,
                "bytes": piece["bytes"] + len(row.json),
                "sum": (piece["sum"] + row.hash) % SUM_MODULUS,
            }
            rows, size = rows + 1, size + len(row.json)
        if pieces and not is_cut and rows != limit:
            pieces[-1]["to"] = to
        for piece in pieces:
            piece["sum"] = f"{piece['sum']:016x}"
        return pieces, pieces[-1]["to"] if pieces else to

    def _range(
        self, table: SqlTable, after: int | None, to: int, pieces: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return {
            "name": [table.schema, table.name],
            "server": self._server,
            "key": table.key,
            "settled_s": self._cuts.settled_s,
            "from": after,
            "to": to,
            "parts": list(pieces),
        }


def _halting(words: str, table: str, fault: str) -> BatchDataError:
    return BatchDataError(words, component=COMPONENT, position=table, fault=fault)
