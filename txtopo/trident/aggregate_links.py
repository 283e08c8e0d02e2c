"""Links that aggregate tuples of one batch, by groups or all together, and that keep the first of them in an order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import unreachable
from txtopo.topology.user_exceptions import note_values
from txtopo.trident.aggregates import Aggregator, AnyAggregator, CombinerAggregator, ReducerAggregator
from txtopo.trident.links import (
    ChainColumn,
    ChainRows,
    Link,
    LinkContext,
    RunningLink,
    columns_for,
    data_error,
    made_columns,
)
from txtopo.tuples.user_errors import shown, shown_value

HELD_GROUPS_MAX = 50_000
"""Maximum number of groups that a task holds before it sends them: where values meet again, nothing is lost by it."""
_NOTHING: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatePart:
    """One aggregator of a link."""

    aggregator: AnyAggregator
    positions: tuple[int, ...]
    """Of the fields that it gets; if it merges, of those that it made before."""
    made: Fields
    merges: bool = False
    """True: it combines what the same combiner made of tuples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateLink(Link):
    """Aggregates the tuples that a task gets, by the values of some fields."""

    before: Fields
    keys: tuple[int, ...]
    """Positions of the fields to group by; empty: all tuples together."""
    parts: tuple[AggregatePart, ...]
    zeros: bool
    """True: a task without tuples makes one row; only without keys."""
    may_split: bool
    """True: a group may be sent in several rows, which meet again."""
    arguments: tuple[str, ...] = ()

    def shown(self) -> str:
        if self.may_split:
            return f"{self.place}: partial values of the tuples of each task"
        return f"{self.place}: {'partial values meet' if self.parts[0].merges else 'all tuples'} {self._where()}"

    def _where(self) -> str:
        names = [self.before.names[at] for at in self.keys]
        return f"of a group by {', '.join(names)} in one task" if names else "of a task"

    def open(self, context: LinkContext) -> RunningLink:
        return _Aggregating(self, context)


class _Aggregating(RunningLink):
    def __init__(self, link: AggregateLink, context: LinkContext) -> None:
        self._link = link
        self._context = context
        self._columns = columns_for(context, link.fields)
        self._groups: dict[tuple[Any, ...], list[Any]] = {}

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        link, groups = self._link, self._groups
        keys = list(zip(*(rows.columns[at].values() for at in link.keys), strict=True)) or [()] * rows.count
        for number, part in enumerate(link.parts):
            values = list(zip(*(rows.columns[at].values() for at in part.positions), strict=True)) or [()] * rows.count
            for at, (key, given) in enumerate(zip(keys, values, strict=True)):
                states = groups.get(key)
                if states is None:
                    states = groups[key] = [_NOTHING] * len(link.parts)
                try:
                    states[number] = self._added(part, states[number], given)
                except (Exception, SystemExit) as error:
                    row = [column.take_one(at) for column in rows.columns]
                    note_values(error, shown(dict(zip(link.before.names, row, strict=True))))
                    raise
        if link.may_split and len(groups) > HELD_GROUPS_MAX:
            yield from self._sent()

    def end(self) -> Iterator[ChainRows]:
        if self._link.zeros and not self._groups:
            self._groups[()] = [_NOTHING] * len(self._link.parts)
        yield from self._sent()

    def _added(self, part: AggregatePart, state: Any, values: tuple[Any, ...]) -> Any:
        aggregator = part.aggregator
        if isinstance(aggregator, CombinerAggregator):
            if part.merges:
                value = values[0] if len(values) == 1 else values
            else:
                value = aggregator.init(*values)
            return value if state is _NOTHING else aggregator.combine(state, value)
        if state is _NOTHING:
            state = _begun(aggregator, self._context.attempt)
        if isinstance(aggregator, ReducerAggregator):
            return aggregator.reduce(state, *values)
        if isinstance(aggregator, Aggregator):
            changed = aggregator.aggregate(state, *values)
            return state if changed is None else changed
        return unreachable(f"{type(aggregator).__name__} is no kind of aggregator")

    def _sent(self) -> Iterator[ChainRows]:
        groups, self._groups = self._groups, {}
        lists: list[list[Any]] = [[] for _ in self._link.fields.items]
        for key, states in groups.items():
            made = [self._rows_of(part, state) for part, state in zip(self._link.parts, states, strict=True)]
            for together in product(*made):
                for into, value in zip(lists, (*key, *chain.from_iterable(together)), strict=True):
                    into.append(value)
        if lists[0]:
            columns = made_columns(self._columns, self._link.fields, lists)
            yield ChainRows(columns, len(lists[0]), anchored=False)

    def _rows_of(self, part: AggregatePart, state: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one aggregator for one group, each as wide as its fields."""
        aggregator = part.aggregator
        if state is _NOTHING:
            state = _begun(aggregator, self._context.attempt)
        if isinstance(aggregator, CombinerAggregator):
            return [self._row(part, aggregator.finish(state))]
        if isinstance(aggregator, Aggregator):
            rows = aggregator.complete(state)
            if rows is None or isinstance(rows, str | bytes):
                raise data_error(
                    self._context,
                    f"complete of {type(aggregator).__name__} returned {shown_value(rows)} instead of rows; return () "
                    f"for none",
                    "step returned no row",
                )
            return [self._row(part, row) for row in rows]
        return [self._row(part, state)]

    def _row(self, part: AggregatePart, row: Any) -> tuple[Any, ...]:
        width = len(part.made.items)
        if width == 1:
            return (row,)
        if not isinstance(row, tuple | list) or len(row) != width:
            raise data_error(
                self._context,
                f"{type(part.aggregator).__name__} made {shown_value(row)}, and its row has {width} fields "
                f"({', '.join(part.made.names)})",
                "step returned no row",
            )
        return tuple(row)


def _begun(aggregator: AnyAggregator, attempt: TransactionAttempt) -> Any:
    """Return a new state, of a group without tuples."""
    if isinstance(aggregator, CombinerAggregator):
        return aggregator.zero()
    if isinstance(aggregator, Aggregator):
        return aggregator.init(attempt)
    return aggregator.init() if isinstance(aggregator, ReducerAggregator) else unreachable("no kind of aggregator")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLink(Link):
    """Keeps the first tuples in an order: by some fields, then by all others, so that the order has no ties."""

    count: int
    order: tuple[tuple[int, bool], ...]
    """(position, descending), of all fields. NULL is last."""

    def open(self, context: LinkContext) -> RunningLink:
        return _First(self)


class _First(RunningLink):
    def __init__(self, link: FirstLink) -> None:
        self._link = link
        self._schema = link.schema()
        self._held: list[pa.Table] = []
        self._rows = 0

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        self._held.append(pa.Table.from_batches([rows.batch(self._schema)]))
        self._rows += rows.count
        if self._rows > 2 * self._link.count + HELD_GROUPS_MAX:
            self._held = [self._best()]
            self._rows = self._held[0].num_rows
        yield from ()

    def end(self) -> Iterator[ChainRows]:
        if self._held:
            for batch in self._best().combine_chunks().to_batches():
                yield ChainRows([ChainColumn(array) for array in batch.columns], batch.num_rows, anchored=False)

    def _best(self) -> pa.Table:
        # Columns by number: a field may have any name.
        table = pa.concat_tables(self._held).rename_columns([str(at) for at in range(len(self._schema))])
        keys = [(str(at), "descending" if descending else "ascending") for at, descending in self._link.order]
        best = table.take(pc.sort_indices(table, sort_keys=keys)[: self._link.count])
        return best.rename_columns(self._schema.names)


def by_fields(fields: Fields, by: Sequence[str], *, descending: bool) -> tuple[tuple[int, bool], ...]:
    """Return an order of tuples: by these fields, then ascending by all others."""
    first = [(fields.names.index(name), descending) for name in by]
    return (*first, *((at, False) for at, name in enumerate(fields.names) if name not in by))
