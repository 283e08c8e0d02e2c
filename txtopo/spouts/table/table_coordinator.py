"""The coordinator half of TableSpout: cuts ranges of rows, from the last range and what the server says alone."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from txtopo.core.fields import Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.partitioned import NOTHING
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.table import table_statements
from txtopo.spouts.table.database import TableDatabase, one_snapshot
from txtopo.spouts.table.row_ranges import (
    SUM_MODULUS,
    XMIN_END,
    Look,
    OtherServerError,
    OtherTableError,
    RowPiece,
    RowPlace,
    Settled,
    Settling,
    check_after,
    check_xmin,
)
from txtopo.spouts.table.table_checks import checked_key, look_up, refused
from txtopo.spouts.table.table_statements import Statements

HELD_S = 60.0
"""Seconds for which the horizon may stay while rows wait after it; then the operator is shown who holds it."""
HURRY_S = 0.2
"""Seconds until the next look while a horizon is not on the disk of the server: the delay of its log writer."""
REST = 9
"""A look that took long is repeated after this many times as long, at most after REST_S_MAX seconds."""
REST_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCuts:
    """How batches are cut."""

    table: str
    database: TableDatabase
    fields: Fields
    settled: Settled
    key: Sequence[str] | None
    start: Literal["earliest", "latest"]
    on_other_server: Literal["halt", "continue"]
    rows_max: int
    bytes_max: int
    piece_rows: int
    piece_bytes: int


class TableCoordinator:
    """Implements `NamedCoordinator` with one partition, the table. Its attributes only spare questions."""

    def __init__(
        self, cuts: TableCuts, *, once: bool, monotonic: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._cuts = cuts
        self._once = once
        self._monotonic = monotonic
        self._say = say
        self._connection: Any = None
        self._name = ""
        self._table: tuple[str, str] = ("", "")
        self._oid = 0
        self._key: tuple[str, ...] = ()
        self._look: Look | None = None
        self._settling: Settling | None = None
        self._horizon: int | None = None
        """Everything below it is settled and on the disk of the server."""
        self._idle_at: tuple[int, Any] | None = None
        self._start: int | None = None
        self._is_drained = False
        self._next_look = 0.0
        self._since: tuple[int, float] | None = None

    def is_ready(self) -> bool:
        """Return False while a look that took long is not to be repeated."""
        return self._monotonic() >= self._next_look

    def ready_in_s(self) -> float:
        """Return the seconds until the next look, infinity if there is no need to wait."""
        left = self._next_look - self._monotonic()
        return left if left > 0 else float("inf")

    def is_exhausted(self) -> bool:
        """Return True in a `--once` run when no rows are left below its horizon."""
        return self._is_drained

    def partition_names(self, known: Mapping[str, Any]) -> Sequence[str]:
        """Look at the table and the server, for the question that follows. Raises BatchDataError for a table that
        cannot be read exactly once. A table that was renamed keeps the name of its ranges, and is not read again.
        """
        with self._snapshot() as cursor:
            table = look_up(cursor, self._cuts.table)
            self._key = checked_key(table, self._cuts.fields, self._cuts.settled, self._cuts.key)
            self._table, self._oid = (table.schema, table.name), table.oid
            self._look = look = look_at(cursor, table.oid)
            self._name = next((name for name, last in known.items() if _is_of(last, look)), table.shown)
            if self._cuts.settled.column is not None:
                self._check_given_out(cursor)
        self._settle(self._look)
        return [self._name]

    def next_range(self, partition: str, last: Any) -> Any:
        """Return the rows after the last range, as far as they are settled. Raises BatchDataError if the table or the
        server is another one.
        """
        look, horizon = self._look, self._horizon
        if look is None or partition != self._name:
            raise refused(partition, "it was not asked for")
        self._check(look, last)
        found = None if horizon is None else self._next(look, horizon, last)
        self._is_drained = horizon is not None and found is None
        if found is not None:
            return found
        if horizon is None or not self._once:
            self._hurry(look)
        return NOTHING

    def _next(self, look: Look, horizon: int, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the rows between the last range and the horizon, None if there are none."""
        if last is None and self._cuts.start == "latest":
            # This place must not move before it is in a plan.
            self._start = horizon if self._start is None else self._start
            return self._range(look, RowPlace(self._start), RowPlace(self._start), [])
        after = None if last is None else RowPlace.of(last["to"])
        if (after is not None and after.id >= horizon) or self._idle_at == (horizon, last):
            self._tell_who_holds(after or RowPlace(horizon), horizon)
            return None
        began = self._monotonic()
        pieces, to = self._pieces(after, RowPlace(horizon))
        if not pieces:
            self._idle_at = (horizon, last)
            now = self._monotonic()
            self._next_look = now + min(REST_S_MAX, REST * (now - began))
            return None
        self._since = None
        return self._range(look, after, to, pieces)

    def range_again(self, partition: str, planned: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the same range with the rows that are in it now, for a redo. Raises BatchDataError as `next_range`."""
        self.partition_names({partition: planned})
        look = self._look
        if look is None or partition != self._name:
            raise refused(partition, f"the spout reads table {self._name} now", "other table")
        self._key = tuple(planned["key"])
        self._compare(look, planned)
        after, to = RowPlace.after(planned["from"]), RowPlace.of(planned["to"])
        if not to.is_settled(look.horizon):
            raise TimeoutError(errno.ETIMEDOUT, f"a replica that has only come to id {look.horizon}", partition)
        pieces, _ = self._pieces(after, to, unlimited=True)
        return self._range(look, after, to, pieces)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _snapshot(self) -> Iterator[Any]:
        """Yield a cursor in a database transaction, on a connection that is opened again after an error."""
        if self._connection is None:
            self._connection = self._cuts.database.connect()
        try:
            with one_snapshot(self._connection, self._name or self._cuts.table) as cursor:
                yield cursor
        except BaseException:
            self.close()
            raise

    def _settle(self, look: Look) -> None:
        """Move the horizon to that of an earlier look, once everything below it is on the disk of the server."""
        if self._once and self._horizon is not None:
            return  # What came later belongs to the next run.
        if self._settling is None:
            self._settling = Settling(look.horizon, look.written)
        if self._settling.is_on_disk(look.on_disk):
            self._horizon = self._settling.horizon
            self._settling = None if self._horizon == look.horizon else Settling(look.horizon, look.written)

    def _hurry(self, look: Look) -> None:
        """Make the server write its log to the disk within a second, if nobody else does: it does so after the end of
        each transaction with an id, and this one gets one.
        """
        settling = self._settling
        if settling is None or look.in_recovery or settling.is_on_disk(look.on_disk):
            return
        with self._snapshot() as cursor:
            cursor.execute(table_statements.TAKE_ID)
        self._next_look = max(self._next_look, self._monotonic() + HURRY_S)

    def _check(self, look: Look, last: Mapping[str, Any] | None) -> None:
        self._compare(look, last)
        if last is not None and self._cuts.settled.column is None and last["file"] != look.file:
            self._check_rewritten(last)

    def _compare(self, look: Look, last: Mapping[str, Any] | None) -> None:
        cuts = self._cuts
        try:
            check_xmin(self._name, cuts.settled, look.horizon)
            if last is not None:
                check_after(self._name, last, look, cuts.settled, self._key, cuts.on_other_server)
        except OtherServerError as error:
            raise _halting(str(error), self._name, "other server") from None
        except OtherTableError as error:
            raise _halting(str(error), self._name, "other table") from None

    def _check_given_out(self, cursor: Any) -> None:
        """Raise BatchDataError for rows with ids that belong to no transaction of this server: they would be read when
        it comes to these ids, if ever.
        """
        column, table = self._cuts.settled.column, ".".join(self._table)
        cursor.execute(self._statements.not_given_out())
        lowest, upcoming = cursor.fetchone()
        if lowest is not None:
            raise refused(
                self._name,
                f"rows have transaction ids from {lowest} on, and the server will give out {upcoming} next: they were "
                f"copied from another server; give them the id of a new transaction: update {table} set {column} "
                f"= default where {column} >= '{upcoming}'",
                "ids of another server",
            )

    @property
    def _statements(self) -> Statements:
        columns = tuple(dict.fromkeys((*self._key, *self._cuts.fields.names)))
        return Statements(self._table, self._cuts.settled, self._key, columns)

    def _check_rewritten(self, last: Mapping[str, Any]) -> None:
        """Raise BatchDataError if the table was rewritten so that its rows count as new ones: their `xmin` is that of
        the rewriting transaction. VACUUM FULL keeps it.
        """
        pieces, _ = self._pieces(RowPlace.after(last["from"]), RowPlace.of(last["to"]), unlimited=True)
        if sum(piece.rows for piece in pieces) < sum(part["rows"] for part in last["parts"]):
            raise _halting(
                f"{self._name}: the table was rewritten, or emptied, since the last range was planned: its rows may "
                f"have another xmin now, and would be read a second time; use a column of type xid8",
                self._name,
                "table rewritten",
            )

    def _pieces(
        self, after: RowPlace | None, to: RowPlace, *, unlimited: bool = False
    ) -> tuple[list[RowPiece], RowPlace]:
        """Return the pieces of the rows after a position, and the position where they end."""
        cuts = self._cuts
        rows_max = 2**62 if unlimited else cuts.rows_max
        statement, values = self._statements.pieces(
            after,
            to,
            rows_max=rows_max,
            bytes_max=2**62 if unlimited else cuts.bytes_max,
            piece_rows=cuts.piece_rows,
            piece_bytes=cuts.piece_bytes,
        )
        with self._snapshot() as cursor:
            cursor.execute(self._statements.locked())
            cursor.execute(table_statements.NUMBER, dict(zip(("schema", "name"), self._table, strict=True)))
            if cursor.fetchone() != (self._oid,):
                raise _halting(f"{self._name}: another table has this name now", self._name, "other table")
            cursor.execute(statement, values)
            found = cursor.fetchall()
        pieces, rows, size, total = [], 0, 0, 0
        for n, upto, hashes, id_, key_texts, _ in found:
            at = RowPlace(int(id_), tuple(key_texts))
            step = (int(hashes) - total) % SUM_MODULUS
            pieces.append(RowPiece(to=at, rows=n - rows, size=int(upto) - size, sum=step))
            rows, size, total = n, int(upto), int(hashes)
        is_cut = bool(found) and (rows < found[-1][5] or rows == rows_max)
        if pieces and not is_cut:
            pieces[-1] = RowPiece(to=to, rows=pieces[-1].rows, size=pieces[-1].size, sum=pieces[-1].sum)
        return pieces, pieces[-1].to if is_cut else to

    def _range(self, look: Look, after: RowPlace | None, to: RowPlace, pieces: Sequence[RowPiece]) -> dict[str, Any]:
        return {
            "name": list(self._table),
            "table": look.oid,
            "file": look.file,
            "server": look.server,
            "settled": str(self._cuts.settled),
            "key": list(self._key),
            "from": None if after is None else after.stored,
            "to": to.stored,
            "parts": [piece.stored for piece in pieces],
        }

    def _tell_who_holds(self, after: RowPlace, horizon: int) -> None:
        """Show the operator which transaction is open for long while rows wait for it."""
        now = self._monotonic()
        if self._since is None or self._since[0] != horizon:
            self._since = (horizon, now)
        if self._once or now - self._since[1] < HELD_S:
            return
        self._since = (horizon, now)
        waiting, values = self._statements.waiting(after)
        with self._snapshot() as cursor:
            cursor.execute(waiting, values)
            if not cursor.fetchone()[0]:
                return
            cursor.execute(table_statements.HOLDER, {"id": str(horizon % XMIN_END)})
            holder = cursor.fetchone()
        if holder is None:
            return
        age = "" if holder[1] is None else f", open for {holder[1]} s"
        self._say(f"{self._name}: rows wait for an older transaction to end: {holder[0]}{age}")


def look_at(cursor: Any, oid: int) -> Look:
    """Return what the server says of itself and of a table."""
    cursor.execute(table_statements.LOOK, {"oid": oid})
    server, horizon, in_recovery, written, on_disk, number, file = cursor.fetchone()
    return Look(
        server=server,
        horizon=int(horizon),
        in_recovery=in_recovery,
        written=int(written),
        on_disk=int(on_disk),
        oid=number,
        file=file,
    )


def _is_of(last: Mapping[str, Any] | None, look: Look) -> bool:
    """Return True if a range is of the table that was found, whatever its name was then."""
    if last is None or last["table"] != look.oid:
        return False
    # After a failover the same server has another timeline: whether it may go on is decided by `check_after`.
    return bool(last["server"].partition("/")[0] == look.server.partition("/")[0])


def _halting(words: str, table: str, fault: str) -> BatchDataError:
    return BatchDataError(words, component=COMPONENT, position=table, fault=fault)
