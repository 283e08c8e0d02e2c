"""Result rows of custom committers as Arrow tables and as Tuples, in an order that is the same in every attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import FLOAT_KINDS, Fields
from txtopo.errors import BatchDataError
from txtopo.topology.streams import DEFAULT_STREAM, Origin, Tuple
from txtopo.tuples.columns import Columns, adder

DRIVER_TASK = 0
"""Task id of components that run in the driver."""


class Gathered:
    """Collects emitted rows into a table with the declared fields."""

    def __init__(self, who: str, stream: str, fields: Fields) -> None:
        self.fields = fields
        self._columns = Columns(who, stream, fields)
        self._values: list[list[Any]] = [[] for _ in fields.items]
        self._add = adder(self._values, self._columns)

    def add(self, values: Sequence[Any]) -> None:
        """Add one row. Raises BatchDataError if it does not have one value for each field."""
        self._add(values)

    def table(self) -> pa.Table:
        """Return all rows. Raises BatchDataError with field and value if one does not fit its field."""
        return pa.Table.from_batches([self._columns.batch(self._values)])


def in_order(table: pa.Table, fields: Fields, who: str) -> pa.Table:
    """Return the rows in canonical order: by all fields, the first one first, ascending, NULL last. Raises
    BatchDataError if the columns are not the fields.
    """
    if table.column_names != list(fields.names):
        raise BatchDataError(
            f"committer {who}: got columns {', '.join(table.column_names)}, expected {', '.join(fields.names)}",
            component=who,
            fault="other columns",
        )
    table = table.combine_chunks()
    keys: list[pa.ChunkedArray] = []
    for at, declared in enumerate(fields.items):
        column = table.column(at)
        keys.append(column)
        if declared.type.kind in FLOAT_KINDS:
            # 0.0 and -0.0 compare as equal, and so do all NaN. Their bits differ, so sorting by them too makes the
            # order total.
            wide = pc.cast(column, pa.float64()).combine_chunks()
            bits = pc.fill_null(wide, 0.0).to_numpy(zero_copy_only=False).view("int64")
            keys.append(pa.chunked_array([pa.array(bits)]))
    named = pa.table(keys, names=[f"k{at}" for at in range(len(keys))])
    order = pc.sort_indices(
        named, sort_keys=[(name, "ascending") for name in named.column_names]
    )  # NULL last is the default
    return table.take(order)


def tuples_of(
    table: pa.Table, fields: Fields, component: str, *, source: str | None = None, stream: str = DEFAULT_STREAM
) -> list[Tuple]:
    """Return the rows as Tuples, in canonical order. `source` is the component that emitted them; by default it is the
    executor half of `component`.
    """
    ordered = in_order(table, fields, component)
    origin = Origin(source or component, stream, DRIVER_TASK, fields)
    columns = [column.to_pylist() for column in ordered.columns]
    return [Tuple(values, origin, row) for row, values in enumerate(zip(*columns, strict=True))]
