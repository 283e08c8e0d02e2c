"""What Postgres does for a committer of rows: COPY into its table, in the database transaction of the batch; the
numbers come from the rows that are there afterwards (P4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import psycopg2
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.copied_rows import TRIPS_PER_COPY, CopiedRows
from txtopo.committers.postgres.plain_targets import plain_table
from txtopo.committers.postgres.run_half import PreparedRun, RunHalf
from txtopo.committers.postgres.staged_rows import insert_rows
from txtopo.committers.postgres.target_tables import (
    Table,
    create_or_check,
    ddl_of,
    has_rows,
    is_registered,
)
from txtopo.committers.postgres.time_limits import rows_before, time_for
from txtopo.committers.postgres.transactions import Held, joined, run
from txtopo.committers.protocol.redo_checks import check_reversed
from txtopo.committers.protocol.row_tables import RowShape, holds_rows, of_rows, row_shape_of
from txtopo.committers.sql_names import quoted
from txtopo.core.values import CommitterCount, CommitterResult, Lead, TransactionAttempt
from txtopo.errors import Halted
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent

if TYPE_CHECKING:
    from txtopo.committers.postgres.postgres_halves import Applying

KNOWN_ROWS = 10_000
"""Rows that are known to be good and that are applied again as a proof (W4)."""


class PostgresAppend:
    """The half of a committer of rows."""

    _statements = 2
    """Of a commit run, next to COPY: the delayed one, and the record of the counts."""

    def __init__(self, component: CommitterComponent) -> None:
        self.component = component
        self._shape = row_shape_of(component)
        self._table = Table(self._shape.table, self._shape.columns, self._shape.keys)
        self._rows = CopiedRows(component, self._shape)
        self._removal = _removal(self._shape)

    @property
    def run_half(self) -> RunHalf:
        """See PostgresHalf."""
        return self

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
        """Remove the rows of the redone batch, then add those of this one; then set what follows from the rows."""
        try:
            rows = max(result.row_count, rows_before(applying, self.component.name))
            with time_for(applying.connection, rows):
                return self._apply(applying, result)
        except (SQLAlchemyError, psycopg2.Error) as error:
            raise applying.typed(error, False) from error

    def _apply(self, applying: Applying, result: CommitterResult) -> CommitterCount:
        plan, attempt, held = applying.entry.plan, applying.entry.attempt, applying.held
        values = {
            "topology": plan.topology,
            "first": plan.txid,
            "last": plan.txid,
            "committer": self.component.name,
            "reverses": applying.reverses,
        }
        try:
            removed, origin = self._begin(applying, values)
        except (SQLAlchemyError, psycopg2.Error) as error:
            raise applying.typed(error, held is not None) from error
        try:
            self._add(applying.connection, self.front(attempt, origin), result)
            removed += self._end(applying.connection, values)
            return self._rows.record(applying.connection, plan.topology, {plan.txid: result}, removed)[plan.txid]
        except (SQLAlchemyError, psycopg2.Error, ValueError, OverflowError) as error:
            raise applying.typed(error, False) from error

    def _add(self, connection: Connection, front: Sequence[int], result: CommitterResult) -> None:
        if result.staged is not None:
            insert_rows(connection, self.component, self._shape, front, result.staged)
            return
        for text in self._rows.texts([front], [result]):
            self._rows.send(connection, text)

    def front(self, attempt: TransactionAttempt, origin: int) -> tuple[int, ...]:
        """Return the values of the columns in front of `n`. `origin` is the place of the batch in the order."""
        return (attempt.txid, attempt.attempt)

    def _begin(self, applying: Applying, values: dict[str, Any]) -> tuple[int, int]:
        """Send what was delayed; returns the number of rows that were removed, and the origin of the batch."""
        held, removed, attempt = applying.held, 0, applying.entry.attempt
        if applying.reverses is not None:
            sent = joined(held, self._removal, values)
            removed, expected = applying.connection.exec_driver_sql(*sent).one()
            check_reversed(self.component.name, applying.reverses, removed, 0, expected)
        elif held is not None:
            applying.connection.exec_driver_sql(held[0], dict(held[1]))  # COPY is never sent with another statement
        return removed, attempt.txid

    def _end(self, connection: Connection, values: dict[str, Any]) -> int:
        """Called when the rows are in the table; returns the number of rows that were removed then."""
        return 0

    @property
    def tables(self) -> Sequence[Mapping[str, Any]]:
        """See RunHalf."""
        return [plain_table(self._shape.name, self._shape.target, self._shape.columns, self._shape.keys)]

    def prepare_run(self, results: Mapping[int, CommitterResult], attempts: Mapping[int, int]) -> PreparedRun:
        """See RunHalf. The text of the rows is bounded by what a run holds."""
        fronts = [self.front(TransactionAttempt(txid, attempts[txid]), txid) for txid in results]  # no redo is in a run
        texts = tuple(text.getvalue() for text in self._rows.texts(fronts, list(results.values())))
        return PreparedRun(texts=texts, trips=len(texts) * TRIPS_PER_COPY + self._statements)

    def apply_run(
        self,
        connection: Connection,
        topology: str,
        results: Mapping[int, CommitterResult],
        prepared: PreparedRun,
        held: Held | None,
    ) -> Mapping[int, CommitterCount]:
        """See RunHalf. What follows from the rows is set once, after all of them are there."""
        if held is not None:
            connection.exec_driver_sql(held[0], dict(held[1]))
        for text in prepared.texts:
            self._rows.send(connection, BytesIO(text))
        values = {"topology": topology, "first": min(results), "last": max(results), "committer": self.component.name}
        self._end(connection, {**values, "reverses": None})
        return self._rows.record(connection, topology, results)

    def last_contributed(self, connection: Connection) -> CommitterResult | None:
        """Return rows of the last batch in the table, of many only some; None if it is empty."""
        names = ", ".join(quoted(column.name) for column in self._shape.fields)
        table = self._shape.target
        sql = f"select {names} from {table} where txid = (select max(txid) from {table}) order by n limit {KNOWN_ROWS}"
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


def check_deferred(connection: Connection, schema: str, table: str) -> None:
    """Make the deferred checks of a table now."""
    rows = run(connection, "list_deferred", schema=schema, table=table).all()
    if rows:
        names = ", ".join(f"{quoted(schema)}.{quoted(name)}" for schema, name in rows)
        connection.exec_driver_sql(f"set constraints {names} immediate", {})


def _removal(shape: RowShape) -> str:
    return f"""with gone as (delete from {shape.target} where txid = %(reverses)s returning 1)
select (select count(*) from gone), (select results from txtopo.committer_count o where (o.topology, o.txid,
  o.committer) = (%(topology)s, %(reverses)s, %(committer)s))"""
