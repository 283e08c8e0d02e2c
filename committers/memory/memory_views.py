"""Rows of a counting committer's table, or of a view on it, with the columns that the server would compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal, localcontext
from typing import Any

from txtopo.committers.aggregate_committer import DISTINCT_SUFFIX, AggregateCommitter
from txtopo.committers.protocol.count_tables import SessionsView, Sliding, TableShape, shape_of
from txtopo.committers.protocol.folds import after
from txtopo.core.fields import DECIMAL_PRECISION_MAX
from txtopo.topology.components import CommitterComponent
from txtopo.topology.event_windows import CELL_RANKS, REGISTERS_BITS

Row = dict[str, Any]
Tables = Mapping[str, Mapping[tuple[Any, ...], tuple[Any, ...]]]
"""Table -> key -> numbers."""
_SLOT = " slot"
"""Entry of a row of a session: the starts of its slots."""


def views_of(component: CommitterComponent, tables: Tables) -> Mapping[str, list[Row]]:
    """Return the rows of a counting committer's table and of its views, in no particular order, by schema and name."""
    shape, bolt = shape_of(component), component.bolt_as(AggregateCommitter)
    names = [column.name for column in shape.columns]
    shown = {shape.table: plain_rows(names, tables.get(f"{shape.schema}.{shape.table}", {}))}
    if shape.sliding is not None:
        shown[shape.sliding.view] = _windows(shape, shape.sliding, shown[shape.table])
    if shape.sessions is not None:
        shown[shape.sessions.view] = _sessions(shape, shape.sessions, shown[shape.table])
    if shape.distinct:
        shown[f"{shape.table}{DISTINCT_SUFFIX}"] = _distinct(bolt, shape, tables, list(shown.values())[-1])
    return {
        f"{shape.schema}.{table}": [_completed(bolt, row, 1 if table == shape.table else bolt.slides) for row in rows]
        for table, rows in shown.items()
    }


def plain_rows(names: Sequence[str], rows: Mapping[tuple[Any, ...], tuple[Any, ...]]) -> list[Row]:
    """Return the rows of one table, given as key -> other values, whose columns have these names."""
    return [dict(zip(names, (*key, *others), strict=True)) for key, others in rows.items()]


def _completed(bolt: AggregateCommitter, row: Row, slides: int) -> Row:
    """Add averages and ends of windows."""
    for one in bolt.averages:
        with localcontext(prec=DECIMAL_PRECISION_MAX):
            row[one.column] = Decimal(row[one.total]) / row[one.present] if row[one.present] else None
    for window in bolt.windows:
        if window.start in row:
            width = timedelta(microseconds=window.width_us * slides)
            row[window.end] = None if row[window.start] is None else row[window.start] + width
    row.pop(_SLOT, None)
    return row


def _folded(shape: TableShape, rows: Sequence[Row]) -> Row:
    numbers = {}
    for column in shape.numbers:
        values = [row[column.name] for row in rows]
        numbers[column.name] = values[0]
        for value in values[1:]:
            numbers[column.name] = after(column, numbers[column.name], value)
    return numbers


def _starts(sliding: Sliding, start: Any) -> Iterator[Any]:
    for number in range(1 if start is None else sliding.slides):
        yield None if start is None else start - timedelta(seconds=sliding.seconds) * number


def _windows(shape: TableShape, sliding: Sliding, rows: Sequence[Row]) -> list[Row]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    others = [key.name for key in shape.keys[:-1]]
    for row in rows:
        for start in _starts(sliding, row[sliding.start.name]):
            found.setdefault((*(row[name] for name in others), start), []).append(row)
    return [
        {**dict(zip([*others, sliding.start.name], key, strict=True)), **_folded(shape, made)}
        for key, made in found.items()
    ]


def _sessions(shape: TableShape, view: SessionsView, rows: Sequence[Row]) -> list[Row]:
    names, others = view.named, [key.name for key in shape.keys[:-1]]
    apart: dict[tuple[Any, ...], list[list[Row]]] = {}
    gap = timedelta(seconds=view.seconds)
    for row in sorted(rows, key=lambda row: (row[view.slot.name] is None, str(row[view.slot.name]))):
        sessions = apart.setdefault(tuple(row[name] for name in others), [])
        first = row[names.first]
        if sessions and first is not None and first - sessions[-1][-1][names.last] <= gap:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    found = []
    for key, sessions in apart.items():
        for made in sessions:
            numbers = _folded(shape, made)
            start, last = numbers.pop(names.first), numbers.pop(names.last)
            ends = {names.start: start, names.end: None if last is None else last + gap}
            slots = {_SLOT: [row[view.slot.name] for row in made]}
            found.append({**dict(zip(others, key, strict=True)), **ends, **numbers, **slots})
    return found


def _distinct(bolt: AggregateCommitter, shape: TableShape, tables: Tables, rows: Sequence[Row]) -> list[Row]:
    shown = [dict(row) for row in rows]
    for one in shape.distinct:
        values: dict[tuple[Any, ...], set[Any]] = {}
        for key in tables.get(f"{shape.schema}.{one.table}", {}):
            # A value stands behind the fields that are keys, a cell behind the window.
            place = len(bolt.keys) if one.cell is None else len(key) - 1
            own, value = (*key[:place], *key[place + 1 :]), key[place]
            values.setdefault(own, set()).update([] if value is None else [value])
        for row in shown:
            found: set[Any] = set().union(*(values.get(key, set()) for key in _keys_below(shape, row)))
            row[one.column] = len(found) if one.cell is None else _estimate(found)
    return shown


def _keys_below(shape: TableShape, row: Row) -> list[tuple[Any, ...]]:
    """Return the keys of the rows of the table that a row of the view is made of."""
    names = [key.name for key in shape.keys]
    if shape.sessions is not None:
        return [(*(row[name] for name in names[:-1]), slot) for slot in row[_SLOT]]
    key = tuple(row[name] for name in names)
    if shape.sliding is None or key[-1] is None:
        return [key]
    slides = range(shape.sliding.slides)
    return [(*key[:-1], key[-1] + timedelta(seconds=shape.sliding.seconds) * number) for number in slides]


def _estimate(cells: set[int]) -> int:
    """Return the estimate of a sketch by HyperLogLog, linear counting where many registers are empty."""
    ranks: dict[int, int] = {}
    for cell in cells:
        register, rank = divmod(cell, CELL_RANKS)
        ranks[register] = max(rank, ranks.get(register, 0))
    count = 1 << REGISTERS_BITS
    empty = count - len(ranks)
    raw = 0.7213 / (1 + 1.079 / count) * count**2 / (empty + sum(2.0**-rank for rank in ranks.values()))
    return round(count * math.log(count / empty) if raw <= 2.5 * count and empty else raw)
