"""What the ledger in memory does for each kind of committer: its tables, the apply, the reverse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.memory.memory_applying import MemoryDraft
from txtopo.committers.memory.memory_store import MemoryPostgres
from txtopo.committers.memory.memory_transaction import MemoryTransaction, apply_user_committer
from txtopo.committers.memory.memory_views import Row, plain_rows, views_of
from txtopo.committers.protocol.count_tables import Column, shape_of
from txtopo.committers.protocol.new_values import changed_rows, check_can_emit, emit_rows
from txtopo.committers.protocol.redo_checks import irreversible_code
from txtopo.committers.protocol.row_tables import (
    RowShape,
    holds_rows,
    row_shape_of,
    upsert_shape_of,
)
from txtopo.core.values import CommitterCount, CommitterResult, Lead
from txtopo.errors import Halted
from txtopo.ports import LedgerEntry
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryApplying:
    """The database transaction of a batch, as its committers use it."""

    draft: MemoryDraft
    entry: LedgerEntry
    reverses: int | None
    """The applied batch that this one redoes: what it contributed is reversed first. None: there is none."""
    results_before: Mapping[str, int]
    """Committer -> result rows that the ledger recorded for the batch `reverses`."""
    transactions: list[MemoryTransaction]
    """Gets what the code of committers has executed."""
    store: MemoryPostgres


class MemoryHalf(Protocol):
    """What this room needs of a kind of committer."""

    def prepare(self, store: MemoryPostgres, lead: Lead, committer: CommitterComponent) -> None:
        """See Ledger.prepare_targets."""

    def apply(
        self,
        applying: MemoryApplying,
        committer: CommitterComponent,
        result: CommitterResult,
        collector: CommitCollector | None,
    ) -> CommitterCount:
        """See LedgerSession.apply."""

    def last_contributed(self, draft: MemoryDraft, committer: CommitterComponent) -> CommitterResult | None:
        """See LedgerSession.last_contributed."""

    def tables(self, committer: CommitterComponent) -> Sequence[str]:
        """Return the tables that must be plain for commit runs (R20)."""

    def shown(self, store: MemoryPostgres, committer: CommitterComponent) -> Mapping[str, list[Row]]:
        """Return the rows of its tables and views as column -> value, also of columns that a server would compute, by
        schema and name; contributions and logs are not among them.
        """


def is_registered(store: MemoryPostgres, lead: Lead, name: str, table: str, columns: tuple[Column, ...]) -> bool:
    """Return True if the table belongs to this committer already. Raises Halted if it belongs to another one, or if it
    is another table than before.
    """
    owner = store.targets.get(table)
    if owner not in (None, (lead.topology, name)):
        raise Halted(
            f"table {table} belongs to committer {owner[1]} of topology {owner[0]}; each committer needs its own table"
        )
    other = next((key for key, value in store.targets.items() if value == (lead.topology, name) and key != table), None)
    if owner is None and other is not None:
        raise Halted(f"committer {name} of topology {lead.topology} writes to {other} and cannot change to {table}")
    if [(c.name, c.type) for c in store.columns.get(table, columns)] != [(c.name, c.type) for c in columns]:
        raise Halted(f"table {table} has other columns")
    if owner is not None and table not in store.tables:
        raise Halted(f"table {table} no longer exists although batches were counted in it; restore it")
    return owner is not None


class MemoryCount:
    """The half of a counting committer: tables of the store."""

    def prepare(self, store: MemoryPostgres, lead: Lead, committer: CommitterComponent) -> None:
        """Create its tables in memory, or check them, and register the target."""
        shape, name = shape_of(committer), committer.name
        table = f"{shape.schema}.{shape.table}"
        if is_registered(store, lead, name, table, shape.columns):
            return
        rows = store.tables.get(table, {})
        if rows and not committer.bolt_as(AggregateCommitter).baseline:
            raise Halted(
                f"table {table} holds rows that no topology has counted; baseline=True adopts them unchanged, or "
                f"name another table"
            )
        store.tables[table] = dict(rows)
        store.columns[table] = shape.columns
        store.targets[table] = (lead.topology, name)
        if shape.contribution_table is not None:
            store.contributions[table] = [(0, None, *key, *numbers) for key, numbers in rows.items()]

    def apply(
        self,
        applying: MemoryApplying,
        committer: CommitterComponent,
        result: CommitterResult,
        collector: CommitCollector | None,
    ) -> CommitterCount:
        """Reverse what the redone batch contributed, then apply the rows, then pass on their keys as they are now."""
        txid, reversed_rows = applying.entry.plan.txid, 0
        if collector is not None:
            check_can_emit(committer, applying.reverses)
        if applying.reverses is not None:
            expected = applying.results_before.get(committer.name)
            reversed_rows = applying.draft.reverse_batch(committer, txid, applying.reverses, expected)
        count = applying.draft.apply(committer, txid, result, reversed_rows)
        if collector is not None:
            table, keys = changed_rows(committer, result)
            reading = MemoryTransaction(committer.name, applying.entry.attempt, tables=applying.draft.rows_of)
            emit_rows(committer, table, keys, reading.rows_of(table, keys), collector)
        return count

    def last_contributed(self, draft: MemoryDraft, committer: CommitterComponent) -> CommitterResult | None:
        """See MemoryHalf."""
        return draft.last_contributed(committer)

    def tables(self, committer: CommitterComponent) -> Sequence[str]:
        """See MemoryHalf."""
        shape = shape_of(committer)
        return (f"{shape.schema}.{shape.table}",)

    def shown(self, store: MemoryPostgres, committer: CommitterComponent) -> Mapping[str, list[Row]]:
        """See MemoryHalf."""
        return views_of(committer, store.tables)


class MemoryCode:
    """The half of a BatchCommitter: its statements are recorded."""

    def prepare(self, store: MemoryPostgres, lead: Lead, committer: CommitterComponent) -> None:
        """Do nothing: its tables belong to the user."""

    def apply(
        self,
        applying: MemoryApplying,
        committer: CommitterComponent,
        result: CommitterResult,
        collector: CommitCollector | None,
    ) -> CommitterCount:
        """Call the user's driver half."""
        if applying.reverses is not None:
            raise irreversible_code(committer.name, applying.reverses)
        transaction = MemoryTransaction(
            committer.name, applying.entry.attempt, applying.store.answers, applying.draft.rows_of
        )
        count = apply_user_committer(committer, result, transaction, collector)
        applying.transactions.append(transaction)
        return count

    def last_contributed(self, draft: MemoryDraft, committer: CommitterComponent) -> CommitterResult | None:
        """Return None: nothing of it is stored."""
        return None

    def tables(self, committer: CommitterComponent) -> Sequence[str]:
        """Return nothing: its batches are in no run."""
        return ()

    def shown(self, store: MemoryPostgres, committer: CommitterComponent) -> Mapping[str, list[Row]]:
        """Return nothing: its tables belong to the user."""
        return {}


class MemoryAppend:
    """The half of a committer of rows: a table of the store, by batch and number."""

    def prepare(self, store: MemoryPostgres, lead: Lead, committer: CommitterComponent) -> None:
        """Create its table in memory, or check it, and register it."""
        shape = row_shape_of(committer)
        if is_registered(store, lead, committer.name, shape.name, shape.columns):
            return
        _create(store, shape.name, shape.columns)
        store.targets[shape.name] = (lead.topology, committer.name)

    def apply(
        self,
        applying: MemoryApplying,
        committer: CommitterComponent,
        result: CommitterResult,
        collector: CommitCollector | None,
    ) -> CommitterCount:
        """Remove the rows of the redone batch, then add those of this one."""
        attempt = applying.entry.attempt
        return _append(applying, committer, row_shape_of(committer), (attempt.txid, attempt.attempt), result)

    def last_contributed(self, draft: MemoryDraft, committer: CommitterComponent) -> CommitterResult | None:
        """See MemoryHalf."""
        return draft.last_rows(committer, row_shape_of(committer))

    def tables(self, committer: CommitterComponent) -> Sequence[str]:
        """See MemoryHalf."""
        return (row_shape_of(committer).name,)

    def shown(self, store: MemoryPostgres, committer: CommitterComponent) -> Mapping[str, list[Row]]:
        """See MemoryHalf."""
        return _shown(store, row_shape_of(committer).name)


class MemoryUpsert:
    """The half of a committer that keeps the last row of each key: the log, and what follows from it."""

    def prepare(self, store: MemoryPostgres, lead: Lead, committer: CommitterComponent) -> None:
        """Create its tables in memory, or check them, and register the target."""
        shape = upsert_shape_of(committer)
        columns = (*shape.unique, *(column for column in shape.columns if column not in shape.unique))
        if is_registered(store, lead, committer.name, shape.name, columns):
            return
        is_registered(store, lead, committer.name, shape.log.name, shape.log.columns)  # raises if it is another one's
        _create(store, shape.name, columns)
        _create(store, shape.log.name, shape.log.columns)
        store.targets[shape.name] = (lead.topology, committer.name)

    def apply(
        self,
        applying: MemoryApplying,
        committer: CommitterComponent,
        result: CommitterResult,
        collector: CommitCollector | None,
    ) -> CommitterCount:
        """Add the rows to the log, without those of the redone batch, then set the last row of each key."""
        shape, attempt = upsert_shape_of(committer), applying.entry.attempt
        front = (attempt.txid, attempt.attempt, _origin(applying))
        count = _append(applying, committer, shape.log, front, result)
        applying.draft.set_rows_of_last_batch(shape) if shape.whole else applying.draft.set_last_rows(shape)
        return count

    def last_contributed(self, draft: MemoryDraft, committer: CommitterComponent) -> CommitterResult | None:
        """See MemoryHalf."""
        return draft.last_rows(committer, upsert_shape_of(committer).log)

    def tables(self, committer: CommitterComponent) -> Sequence[str]:
        """See MemoryHalf."""
        shape = upsert_shape_of(committer)
        return (shape.log.name, shape.name)

    def shown(self, store: MemoryPostgres, committer: CommitterComponent) -> Mapping[str, list[Row]]:
        """See MemoryHalf."""
        return _shown(store, upsert_shape_of(committer).name)


def _shown(store: MemoryPostgres, table: str) -> Mapping[str, list[Row]]:
    names = [column.name for column in store.columns.get(table, ())]
    return {table: plain_rows(names, store.tables.get(table, {}))}


def _create(store: MemoryPostgres, table: str, columns: tuple[Column, ...]) -> None:
    if store.tables.get(table):
        raise holds_rows(table)
    store.tables[table] = {}
    store.columns[table] = columns


def _append(
    applying: MemoryApplying,
    committer: CommitterComponent,
    shape: RowShape,
    front: tuple[int, ...],
    result: CommitterResult,
) -> CommitterCount:
    removed = 0
    if applying.reverses is not None:
        expected = applying.results_before.get(committer.name)
        removed = applying.draft.remove_rows(committer, shape, applying.reverses, expected)
    return applying.draft.append_rows(committer, shape, front, result, removed)


def _origin(applying: MemoryApplying) -> int:
    """Return the batch that was planned from the source, of which this one is a redo or a backfill; or this one."""
    plan = applying.entry.plan
    txid, redo_of = plan.txid, plan.redo_of if plan.backfills is None else plan.backfills
    while redo_of is not None:
        txid = redo_of
        redo_of = applying.store.topologies[plan.topology].ledger[txid].redo_of
    return txid


MEMORY_HALVES: Mapping[str, MemoryHalf] = {
    "aggregate": MemoryCount(),
    "append": MemoryAppend(),
    "code": MemoryCode(),
    "replace": MemoryUpsert(),
    "upsert": MemoryUpsert(),
}
"""Kind of committer -> its half in this room."""


def memory_half(committer: CommitterComponent) -> MemoryHalf:
    """Return the half for this committer's kind."""
    return MEMORY_HALVES[committer.bolt.committer_kind]
