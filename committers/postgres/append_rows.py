"""What Postgres does for a committer of rows: COPY into its table, in the database transaction of the batch; the
numbers come from the rows that are there afterwards (P4).
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

import psycopg2
import pyarrow as pa
from pyarrow import csv
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.apply_counts import hash_of
from txtopo.committers.postgres.target_tables import (
    Table,
    create_or_check,
    ddl_of,
    has_rows,
    is_registered,
)
from txtopo.committers.postgres.transactions import joined, raw_of, run
from txtopo.committers.protocol.redo_checks import check_reversed
from txtopo.committers.protocol.row_tables import RowShape, holds_rows, numbered, of_rows, row_shape_of
from txtopo.committers.sql_names import quoted
from txtopo.core.values import CommitterCount, CommitterResult, Lead
from txtopo.errors import Halted
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent

if TYPE_CHECKING:
    from txtopo.committers.postgres.postgres_halves import Applying

ROWS_PER_COPY = 50_000
"""Largest number of rows in one COPY; more are sent in several, so that their text needs little memory."""


class PostgresAppend:
    """The half of a committer of rows."""

    applier = None

    def __init__(self, component: CommitterComponent) -> None:
        self.component = component
        self._shape = row_shape_of(component)
        self._table = Table(self._shape.table, self._shape.columns, self._shape.keys)
        self._copy, self._record, self._removal = _copy(self._shape), _record(self._shape), _removal(self._shape)

    def ddl(self) -> list[str]:
        """See PostgresHalf."""
        return list(ddl_of(self._shape.schema, self._table))

    def prepare(self, connection: Connection, lead: Lead) -> None:
        """See PostgresHalf."""
        shape, name = self._shape, self.component.name
        registered = is_registered(connection, lead, name, shape.schema, shape.name)
        create_or_check(connection, shape.schema, self._table, registered=registered)
        if registered:
            return
        # Nothing can insert a row between the check and the registration.
        connection.exec_driver_sql(f"lock table {shape.target} in share row exclusive mode", {})
        if has_rows(connection, shape.target):
            raise holds_rows(shape.name)
        run(
            connection,
            "insert_target",
            target=shape.name,
            topology=lead.topology,
            committer=name,
            baseline_digest=None,
        )

    def apply(self, applying: Applying, result: CommitterResult, collector: CommitCollector | None) -> CommitterCount:
        """Remove the rows of the redone batch, then add those of this one."""
        held = applying.held
        values = {
            "topology": applying.entry.plan.topology,
            "txid": applying.entry.plan.txid,
            "committer": self.component.name,
            "redo_of": applying.reverses,
        }
        try:
            removed, front = self._begin(applying, values)
        except (SQLAlchemyError, psycopg2.Error) as error:
            raise applying.typed(error, held is not None) from error
        try:
            self._send(applying.connection, front, numbered(self.component, result))
            removed += self._end(applying, values)
            known = {"arrived": result.arrived, "results": result.row_count, "reversed": removed}
            row = applying.connection.exec_driver_sql(self._record, {**values, **known}).one()
        except (SQLAlchemyError, psycopg2.Error, ValueError, OverflowError) as error:
            raise applying.typed(error, False) from error
        return CommitterCount(
            committer=self.component.name,
            arrived=result.arrived,
            counted=int(row[0]),
            results=result.row_count,
            written=int(row[0]),
            reversed=removed,
            digest=int(row[1]),
        )

    def _begin(self, applying: Applying, values: dict[str, Any]) -> tuple[int, tuple[int, ...]]:
        """Send what was delayed; returns the number of rows that were removed, and the values of the columns in front
        of `n`.
        """
        held, removed, attempt = applying.held, 0, applying.entry.attempt
        if applying.reverses is not None:
            sent = joined(held, self._removal, values)
            removed, expected = applying.connection.exec_driver_sql(*sent).one()
            check_reversed(self.component.name, applying.reverses, removed, 0, expected)
        elif held is not None:
            applying.connection.exec_driver_sql(held[0], dict(held[1]))  # COPY is never sent with another statement
        return removed, (attempt.txid, attempt.attempt)

    def _end(self, applying: Applying, values: dict[str, Any]) -> int:
        """Called when the rows are in the table; returns the number of rows that were removed then."""
        return 0

    def last_contributed(self, connection: Connection) -> CommitterResult | None:
        """Return the rows of the last batch in the table; None if it is empty."""
        names = ", ".join(quoted(column.name) for column in self._shape.fields)
        table = self._shape.target
        sql = f"select {names} from {table} where txid = (select max(txid) from {table}) order by n"
        rows = connection.exec_driver_sql(sql, {}).all()
        return of_rows(self.component, rows) if rows else None

    def check_deferred(self, connection: Connection) -> None:
        """See PostgresHalf."""
        check_deferred(connection, self._shape.schema, self._shape.table)

    def problem(self, connection: Connection) -> str | None:
        """See PostgresHalf."""
        try:
            create_or_check(connection, self._shape.schema, self._table, registered=True)
        except Halted as halted:
            return halted.reason
        return None

    def longest_key(self, result: CommitterResult) -> str | None:
        """Return None: its key is batch and number."""
        return None

    def _send(self, connection: Connection, front: tuple[int, ...], rows: pa.Table) -> None:
        """COPY the rows. At least one COPY is sent, so that a right that is missing shows without rows too (W4)."""
        with raw_of(connection).cursor() as cursor:
            for text in _texts(rows, front):
                cursor.copy_expert(self._copy, text)


def check_deferred(connection: Connection, schema: str, table: str) -> None:
    """Make the deferred checks of a table now."""
    rows = run(connection, "list_deferred", schema=schema, table=table).all()
    if rows:
        names = ", ".join(f"{quoted(schema)}.{quoted(name)}" for schema, name in rows)
        connection.exec_driver_sql(f"set constraints {names} immediate", {})


def sums_of(shape: RowShape, alias: str) -> str:
    """Return SQL for the number of rows and their digest."""
    return f"count(*), coalesce(sum({hash_of(shape.hashed, alias)}), 0)"


def _texts(rows: pa.Table, front: tuple[int, ...]) -> Iterator[BytesIO]:
    """Yield the rows as CSV. NULL is nothing, and the empty text two quotes, as COPY reads it."""
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    for start in range(0, max(1, rows.num_rows), ROWS_PER_COPY):
        piece = rows.slice(start, ROWS_PER_COPY)
        of_batch = [pa.repeat(pa.scalar(number, pa.int64()), piece.num_rows) for number in front]
        columns = [*of_batch, *(_written(column) for column in piece.columns)]
        text = BytesIO()
        csv.write_csv(pa.table(columns, names=[str(at) for at in range(len(columns))]), text, options)
        text.seek(0)
        yield text


def _written(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column as texts where Arrow would write other ones than Postgres reads."""
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    return column


def _copy(shape: RowShape) -> str:
    names = ", ".join(quoted(column.name) for column in shape.columns)
    sql = f"copy {shape.target} ({names}) from stdin with (format csv, encoding 'UTF8')"
    return sql.replace("%%", "%")  # psycopg2 binds nothing here


def _removal(shape: RowShape) -> str:
    return f"""with gone as (delete from {shape.target} where txid = %(redo_of)s returning 1)
select (select count(*) from gone), (select results from txtopo.committer_count o where (o.topology, o.txid,
  o.committer) = (%(topology)s, %(redo_of)s, %(committer)s))"""


def _record(shape: RowShape) -> str:
    return f"""insert into txtopo.committer_count (topology, txid, committer, arrived, counted, results, written,
  ignored, reversed, digest)
select %(topology)s, %(txid)s, %(committer)s, %(arrived)s, n.number, %(results)s, n.number, 0, %(reversed)s, n.digest
from (select {sums_of(shape, "t")} from {shape.target} t where t.txid = %(txid)s) n (number, digest)
returning counted, digest"""
