"""The table of an `AppendCommitter`, derived from its fields; the same for every ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txtopo.committers.append_committer import ROW_COLUMNS, AppendCommitter
from txtopo.committers.protocol.count_tables import Column
from txtopo.committers.protocol.result_order import in_order
from txtopo.committers.sql_names import column_type, quoted
from txtopo.committers.upsert_committer import UpsertCommitter
from txtopo.core.values import CommitterResult
from txtopo.errors import Halted
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import CommitterComponent


@dataclass(frozen=True, slots=True)
class RowShape:
    """A table that gets the rows of batches: names and columns."""

    schema: str
    table: str
    front: tuple[str, ...]
    """Columns of the batch, then `n`."""
    fields: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, in their order."""
        return (*(Column(name, "bigint", False) for name in self.front), *self.fields)

    @property
    def keys(self) -> tuple[Column, ...]:
        """What tells rows apart: batch and number. So no other database transaction can add to a batch (P4)."""
        return (self.columns[0], self.hashed[0])

    @property
    def hashed(self) -> tuple[Column, ...]:
        """The columns that the digest of a batch covers. A redo with the same rows has the same digest."""
        return self.columns[len(self.front) - 1 :]

    @property
    def name(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.table}"

    @property
    def target(self) -> str:
        """The table, quoted."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"


def row_shape_of(component: CommitterComponent) -> RowShape:
    """Return the table that gets the rows of a committer that stores them."""
    bolt = component.bolt_as(AppendCommitter)
    return RowShape(bolt.schema, bolt.rows_table, bolt.front, _fields(component))


@dataclass(frozen=True, slots=True)
class UpsertShape:
    """The tables of an `UpsertCommitter` or `ReplaceCommitter`: the log, and the table with the last row of each key,
    or with the rows of its last batch.
    """

    log: RowShape
    table: str
    keys: tuple[Column, ...]
    version: tuple[str, ...]
    deleted: str | None
    whole: bool
    """True: the rows of the last batch."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table: the fields, keys not NULL; if it has several rows of a key, those that tell them
        apart are in front.
        """
        keys = {key.name: key for key in self.keys}
        fields = tuple(keys.get(column.name, column) for column in self.log.fields)
        return (*self.unique, *fields) if self.whole else fields

    @property
    def unique(self) -> tuple[Column, ...]:
        """What tells the rows of the table apart."""
        return self.log.keys if self.whole else self.keys

    @property
    def name(self) -> str:
        """Schema and name of the table."""
        return f"{self.log.schema}.{self.table}"

    @property
    def target(self) -> str:
        """The table, quoted."""
        return f"{quoted(self.log.schema)}.{quoted(self.table)}"


def upsert_shape_of(component: CommitterComponent) -> UpsertShape:
    """Return the tables that an `UpsertCommitter` needs."""
    bolt = component.bolt_as(UpsertCommitter)
    fields = {column.name: column for column in _fields(component)}
    keys = tuple(replace(fields[name], nullable=False) for name in bolt.keys)
    return UpsertShape(row_shape_of(component), bolt.name, keys, bolt.version, bolt.deleted, bolt.whole)


def _fields(component: CommitterComponent) -> tuple[Column, ...]:
    # Nullable like keys, so that a field may become nullable later.
    return tuple(Column(field.name, column_type(field.type), True) for field in component.fields.items)


def numbered(component: CommitterComponent, result: CommitterResult) -> pa.Table:
    """Return the rows in canonical order, with their number `n` in front. Raises BatchDataError if the columns are
    not the fields.
    """
    rows = in_order(result.rows, component.result_fields, component.name)
    return rows.add_column(0, ROW_COLUMNS[2], pa.array(range(1, rows.num_rows + 1), pa.int64()))


def of_rows(component: CommitterComponent, rows: Sequence[Sequence[Any]]) -> CommitterResult:
    """Return stored rows, with the fields alone, as a result that can be applied again."""
    schema = arrow_schema(component.result_fields)
    columns = [
        pa.array(map(_plain, values), kind.type) for values, kind in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=schema)
    return CommitterResult(committer=component.name, arrived=len(rows), rows=table, row_count=len(rows), bytes=0)


def holds_rows(table: str) -> Halted:
    """The error for a table that was not empty when it was named first."""
    return Halted(
        f"table {table} holds rows that no topology has appended; name another table, or move the rows away",
        next_command="name another table, or empty this one; then start `txtopo run` again",
    )


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
