"""The tables of a counting committer, derived from its fields and arguments; the same for every ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txtopo.committers.aggregate_committer import (
    SESSIONS_SUFFIX,
    WINDOWS_SUFFIX,
    AggregateCommitter,
    Distinct,
    Sessions,
)
from txtopo.committers.sql_names import average_of, averages_spelled, later, later_spelled, postgres_type, quoted
from txtopo.core.fields import Fields, FieldType
from txtopo.core.values import CommitterResult
from txtopo.errors import unreachable
from txtopo.topology.committer_bolt import FOLDS, Fold
from txtopo.topology.components import CommitterComponent
from txtopo.topology.event_windows import MICROSECONDS, TimeWindow


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
class Sliding:
    """A view on a target: a new window begins with each slide, and is made of the rows of several."""

    view: str
    """Its name, in the schema of the target."""
    slides: int
    """Number of slides of a window."""
    seconds: int
    """Width of a slide."""
    start: Column
    """The key that is the start of a slide in the target, and of a window in the view."""
    computed: tuple[Computed, ...]
    """Further columns of the view."""


@dataclass(frozen=True, slots=True)
class SessionsView:
    """A view on a target whose rows are slots of time: a session is made of the rows of several."""

    view: str
    """Its name, in the schema of the target."""
    seconds: int
    """The gap, which is the width of a slot."""
    slot: Column
    """The key that is the start of a slot."""
    named: Sessions
    """Columns of the target and of the view."""
    computed: tuple[Computed, ...]
    """Further columns of the view."""


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
    sliding: Sliding | None = None
    """The view with sliding windows; None: there is none."""
    sessions: SessionsView | None = None
    """The view with sessions; None: there is none."""
    distinct: tuple[Distinct, ...] = ()
    """Numbers of distinct values, in a view with the columns of the target, or of its windows or sessions."""

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
    keys += tuple(Column(one.start, _window_type(one, fields), _nullable(fields, one.field)) for one in bolt.windows)
    keys += tuple(Column(one.column, "integer", _nullable(fields, one.field)) for one in bolt.cells)
    numbers = [Column(bolt.count, "bigint", False)]
    for kind, field, column in bolt.aggregates:
        fold = FOLDS[kind]
        if fold == "add":
            numbers.append(Column(column, "numeric" if kind == "sum" else "bigint", False))
        else:
            numbers.append(Column(column, postgres_type(_type(fields, field)), True, fold))
    contribution = bolt.contribution_table.partition(".")[2] if bolt.contributions else None
    return TableShape(
        bolt.schema,
        bolt.name,
        contribution,
        keys,
        tuple(numbers),
        _computed(bolt, fields, 1),
        _sliding(bolt, fields, keys),
        _sessions(bolt, fields, keys),
        bolt.distinct,
    )


def _sliding(bolt: AggregateCommitter, fields: Fields, keys: Sequence[Column]) -> Sliding | None:
    if bolt.slides == 1:
        return None
    [window] = bolt.windows
    seconds, computed = window.width_us // MICROSECONDS, _computed(bolt, fields, bolt.slides)
    return Sliding(f"{bolt.name}{WINDOWS_SUFFIX}", bolt.slides, seconds, keys[-1], computed)


def _sessions(bolt: AggregateCommitter, fields: Fields, keys: Sequence[Column]) -> SessionsView | None:
    if bolt.sessions is None:
        return None
    [slot] = bolt.windows
    computed = tuple(one for one in _computed(bolt, fields, 1) if one.name != slot.end)
    view = f"{bolt.name}{SESSIONS_SUFFIX}"
    return SessionsView(view, slot.width_us // MICROSECONDS, keys[-1], bolt.sessions, computed)


def _computed(bolt: AggregateCommitter, fields: Fields, slides: int) -> tuple[Computed, ...]:
    # Of exact numbers at each change: never a quotient that is added to.
    averages = (
        Computed(name, "numeric", average_of(total, present), averages_spelled(total, present))
        for name, total, present in bolt.averages
    )
    ends = (
        Computed(one.end, kind, later(one.start, kind, seconds), (later_spelled(one.start, kind, seconds),))
        for one in bolt.windows
        for kind in [_window_type(one, fields)]
        for seconds in [slides * one.width_us // MICROSECONDS]
    )
    return (*averages, *ends)


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


def _window_type(window: TimeWindow, fields: Fields) -> str:
    return postgres_type(window.source.type_of(_type(fields, window.field)))


def _type(fields: Fields, name: str) -> FieldType:
    field = fields.get(name)
    return field.type if field is not None else unreachable(f"field {name} was checked when the topology was built")


def _nullable(fields: Fields, name: str) -> bool:
    field = fields.get(name)
    return field is None or field.nullable
