"""What Postgres does for each kind of committer: its tables, the apply, the reverse, and what an error means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import psycopg2
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.append_rows import PostgresAppend, check_deferred
from txtopo.committers.postgres.apply_counts import Applier
from txtopo.committers.postgres.apply_run import CountRuns
from txtopo.committers.postgres.batch_transaction import PostgresTransaction
from txtopo.committers.postgres.keyed_rows import reads_of
from txtopo.committers.postgres.reverse import reverse_batch
from txtopo.committers.postgres.run_half import RunHalf
from txtopo.committers.postgres.sql_errors import Answers, is_of_ledger, translate_user
from txtopo.committers.postgres.target_tables import ddl_of, prepare_target, table_problem, tables_of
from txtopo.committers.postgres.target_views import views_of
from txtopo.committers.postgres.time_limits import rows_before, time_for
from txtopo.committers.postgres.transactions import Held
from txtopo.committers.postgres.upsert_rows import PostgresUpsert
from txtopo.committers.postgres.user_committers import record_user_committer
from txtopo.committers.protocol.new_values import changed_rows, check_can_emit, emit_rows
from txtopo.committers.protocol.redo_checks import irreversible_code, no_contributions
from txtopo.committers.protocol.user_code import run_commit
from txtopo.core.values import CommitterCount, CommitterResult, Lead
from txtopo.errors import TxtopoError
from txtopo.ports import LedgerEntry
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent


@dataclass(frozen=True, slots=True, kw_only=True)
class Applying:
    """The database transaction of a batch, as one committer uses it."""

    connection: Connection
    entry: LedgerEntry
    reverses: int | None
    """The applied batch that this one redoes: what it contributed is reversed first. None: there is none."""
    held: Held | None
    """A delayed statement, to be sent before any other, in the same round trip."""
    tag: str
    answers: Answers
    typed: Callable[[Exception, bool], TxtopoError]
    """Returns the typed error for an error of a statement, and whether a delayed statement was sent with it."""


class PostgresHalf(Protocol):
    """What this room needs of a committer. One instance serves all commits of the same component object, and stores
    nothing between them.
    """

    component: CommitterComponent

    @property
    def run_half(self) -> RunHalf | None:
        """What applies commit runs; None: its batches are committed one by one."""

    def ddl(self) -> Sequence[str]:
        """Return the statements that would create its tables; none if its code manages its own tables."""

    def prepare(self, connection: Connection, lead: Lead) -> None:
        """Create or check its tables, and register the target. Raises Halted as `Ledger.prepare_targets`."""

    def apply(self, applying: Applying, result: CommitterResult, collector: CommitCollector | None) -> CommitterCount:
        """See LedgerSession.apply."""

    def last_contributed(self, connection: Connection) -> CommitterResult | None:
        """See LedgerSession.last_contributed."""

    def check_deferred(self, connection: Connection) -> None:
        """See LedgerSession.check_deferred."""

    def problem(self, connection: Connection) -> str | None:
        """Return what is wrong with its tables, as text; None if nothing is found, or it has none."""

    def longest_key(self, result: CommitterResult) -> str | None:
        """Return the likely cause of an error about a limit of the server; None if its rows have no keys."""


class PostgresCount:
    """The half of a counting committer: a target table, and a contribution table if it keeps one."""

    def __init__(self, component: CommitterComponent) -> None:
        self.component = component
        self._applier = Applier(component)
        self._shape = self._applier.shape
        self.run_half: RunHalf = CountRuns(component.name, self._shape)

    def ddl(self) -> Sequence[str]:
        """See PostgresHalf."""
        lines = [line for table in tables_of(self._shape) for line in ddl_of(self._shape.schema, table)]
        return [*lines, *views_of(self._shape)]

    def prepare(self, connection: Connection, lead: Lead) -> None:
        """See PostgresHalf."""
        prepare_target(connection, lead, self._applier)

    def apply(self, applying: Applying, result: CommitterResult, collector: CommitCollector | None) -> CommitterCount:
        """Reverse what the redone batch contributed, then apply the rows, then pass on their keys as they are now."""
        plan, redo_of, held = applying.entry.plan, applying.reverses, applying.held
        if collector is not None:
            check_can_emit(self.component, redo_of)
        if redo_of is not None and self._shape.contributions is None:
            raise no_contributions(self.component.name, redo_of)
        try:
            reversed_rows = 0
            if redo_of is not None:
                values = {"topology": plan.topology, "txid": plan.txid, "reverses": redo_of}
                with time_for(applying.connection, rows_before(applying, self.component.name)):
                    reversed_rows = reverse_batch(applying.connection, self.component, self._shape, values, held)
                held = None
            count = self._applier.apply(
                applying.connection, plan.topology, plan.txid, result, held, reversed_rows=reversed_rows
            )
            if collector is not None:
                self._emit(applying.connection, result, collector)
        except (SQLAlchemyError, psycopg2.Error, ValueError, OverflowError) as error:
            raise applying.typed(error, applying.held is not None) from error
        return count

    def _emit(self, connection: Connection, result: CommitterResult, collector: CommitCollector) -> None:
        table, keys = changed_rows(self.component, result)
        width, found = len(table.keys.items), {}
        for statement, parameters in reads_of(table, keys):
            for row in connection.exec_driver_sql(statement, dict(parameters)):
                values = [bytes(value) if isinstance(value, memoryview) else value for value in row]
                found[tuple(values[:width])] = tuple(values[width:])
        emit_rows(self.component, table, keys, found, collector)

    def last_contributed(self, connection: Connection) -> CommitterResult | None:
        """See PostgresHalf."""
        return self._applier.last_contributed(connection)

    def check_deferred(self, connection: Connection) -> None:
        """See PostgresHalf."""
        check_deferred(connection, self._shape.schema, self._shape.table)

    def problem(self, connection: Connection) -> str | None:
        """See PostgresHalf."""
        return table_problem(connection, self._shape)

    def longest_key(self, result: CommitterResult) -> str | None:
        """See PostgresHalf."""
        return self._applier.longest_key(result)


class PostgresCode:
    """The half of a BatchCommitter: its tables belong to the user, and only its code knows what it writes."""

    run_half: RunHalf | None = None

    def __init__(self, component: CommitterComponent) -> None:
        self.component = component

    def ddl(self) -> Sequence[str]:
        """See PostgresHalf."""
        return ()

    def prepare(self, connection: Connection, lead: Lead) -> None:
        """Do nothing: there is nothing to create, to check or to register."""

    def apply(self, applying: Applying, result: CommitterResult, collector: CommitCollector | None) -> CommitterCount:
        """Call the user's driver half, then count its rows and record the numbers."""
        name, plan = self.component.name, applying.entry.plan
        if applying.reverses is not None:
            raise irreversible_code(name, applying.reverses)
        transaction = PostgresTransaction(
            applying.connection, name, applying.entry.attempt, applying.held, applying.answers
        )
        written = run_commit(self.component, result, transaction, collector)
        held = transaction.end()
        try:
            return record_user_committer(
                applying.connection,
                plan.topology,
                plan.txid,
                result,
                self.component.result_fields,
                written=written,
                held=held,
                tag=applying.tag,
            )
        except (SQLAlchemyError, psycopg2.Error, ValueError, OverflowError) as error:
            if held is None and is_of_ledger(error):
                # P9: the ledger row was there before its first statement, so its code has ended the transaction.
                raise translate_user(error, name, plan.txid, ledger_held=False, answers=applying.answers) from error
            raise applying.typed(error, held is not None) from error

    def last_contributed(self, connection: Connection) -> CommitterResult | None:
        """Return None: nothing of it is stored."""
        return None

    def check_deferred(self, connection: Connection) -> None:
        """Do nothing: it has no table that txtopo knows."""

    def problem(self, connection: Connection) -> str | None:
        """See PostgresHalf."""
        return None

    def longest_key(self, result: CommitterResult) -> str | None:
        """See PostgresHalf."""
        return None


POSTGRES_HALVES: Mapping[str, Callable[[CommitterComponent], PostgresHalf]] = {
    "aggregate": PostgresCount,
    "append": PostgresAppend,
    "code": PostgresCode,
    "replace": PostgresUpsert,
    "upsert": PostgresUpsert,
}
"""Kind of committer -> what makes its half in this room."""


def postgres_half(component: CommitterComponent) -> PostgresHalf:
    """Return a new half for this committer's kind."""
    return POSTGRES_HALVES[component.bolt.committer_kind](component)
