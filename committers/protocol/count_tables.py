"""The tables of a counting committer, derived from its fields and arguments; the same for every ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.sql_names import average_of, averages_spelled, postgres_type, quoted
from txtopo.core.fields import Fields, FieldType
from txtopo.core.values import CommitterResult
from txtopo.errors import unreachable
from txtopo.topology.committer_bolt import FOLDS, Fold
from txtopo.topology.components import CommitterComponent


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a target table."""

    name: str
    type: str
    """Name of the type, as `format_type` of Postgres writes it."""
    nullable: bool
    """True if values may be NULL. Counts and sums never are."""
    fold: Fold = "add"
    """How a value of the target follows from those of its contributions, if the column is no key. `add`: to take a
    contribution back is to subtract it. `min`, `max`: it is recomputed from the contributions that are left.
    """


@dataclass(frozen=True, slots=True)
class Computed:
    """A column of a target that the server computes from others of the row: nobody writes it."""

    name: str
    type: str
    """Name of the type, as `format_type` of Postgres writes it."""
    sql: str
    """How it is computed; always the same of the same row (immutable), in a statement without placeholders."""
    spelled: tuple[str, ...]
    """The ways in which the server may spell this."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """The tables of a counting committer: names and columns."""

    schema: str
    table: str
    contribution_table: str | None
    keys: tuple[Column, ...]
    numbers: tuple[Column, ...]
    """The count first, then the aggregates."""
    computed: tuple[Computed, ...] = ()
    """Further columns of the target."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.keys, *self.numbers)

    @property
    def refolded(self) -> tuple[Column, ...]:
        """The columns whose values cannot be reversed by subtraction."""
        return tuple(column for column in self.numbers if column.fold != "add")

    @property
    def target(self) -> str:
        """The target table, quoted."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def contributions(self) -> str | None:
        """The contribution table, quoted."""
        return None if self.contribution_table is None else f"{quoted(self.schema)}.{quoted(self.contribution_table)}"


def shape_of(component: CommitterComponent) -> TableShape:
    """Return the tables that a counting committer needs."""
    bolt = component.bolt_as(AggregateCommitter)
    fields: Fields = component.fields
    keys = tuple(Column(name, postgres_type(_type(fields, name)), _nullable(fields, name)) for name in bolt.keys)
    numbers = [Column(bolt.count, "bigint", False)]
    for kind, field, column in bolt.aggregates:
        fold = FOLDS[kind]
        if fold == "add":
            numbers.append(Column(column, "numeric" if kind == "sum" else "bigint", False))
        else:
            numbers.append(Column(column, postgres_type(_type(fields, field)), True, fold))
    contribution = bolt.contribution_table.partition(".")[2] if bolt.contributions else None
    return TableShape(bolt.schema, bolt.name, contribution, keys, tuple(numbers), _computed(bolt))


def _computed(bolt: AggregateCommitter) -> tuple[Computed, ...]:
    # Of exact numbers at each change: never a quotient that is added to.
    return tuple(
        Computed(name, "numeric", average_of(total, present), averages_spelled(total, present))
        for name, total, present in bolt.averages
    )


def result_of_rows(committer: str, names: Sequence[str], rows: Sequence[Sequence[Any]], keys: int) -> CommitterResult:
    """Return rows of a contribution table (keys, then the count, then aggregates) as a result that can be applied
    again. `keys` is the number of key columns.
    """
    values = zip(*rows, strict=True)
    columns = {name: pa.array([_plain(value) for value in column]) for name, column in zip(names, values, strict=True)}
    return CommitterResult(
        committer=committer,
        arrived=sum(int(row[keys]) for row in rows),
        rows=pa.table(columns),
        row_count=len(rows),
        bytes=0,
    )


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _type(fields: Fields, name: str) -> FieldType:
    field = fields.get(name)
    return field.type if field is not None else unreachable(f"field {name} was checked when the topology was built")


def _nullable(fields: Fields, name: str) -> bool:
    field = fields.get(name)
    return field is None or field.nullable
