"""Carries out an `Aggregation` on Arrow record batches: exact, NULL is a key like any other, in parts that can be
merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import DECIMAL_PRECISION_MAX, Fields
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.committer_bolt import FOLDS, AggregateKind, Aggregation, Fold
from txtopo.topology.event_windows import CELL_RANKS, RANK_BITS, REGISTERS_BITS, KeySource
from txtopo.topology.partial_counts import TUPLES, PartialCount
from txtopo.tuples.local_times import local_moments

FOLD_ROWS = 100_000
"""Partial results with more rows than this are folded."""


class Overflow(ArithmeticError):
    """A sum does not fit 38 digits."""


class Aggregator:
    """Collects the result rows of one committer for one attempt."""

    def __init__(self, aggregation: Aggregation, result: Fields) -> None:
        self._keys = aggregation.sources
        self._aggregates = aggregation.aggregates
        self._schema = arrow_schema(result)
        # Internal names, since a result column may have the name of an input field.
        self._names = [
            *[f"k{at}" for at in range(len(self._keys))],
            "count",
            *[f"v{at}" for at in range(len(self._aggregates))],
        ]
        self._folds: tuple[Fold, ...] = ("add", *(FOLDS[one.kind] for one in self._aggregates))
        # Sums have 76 digits, where they cannot overflow before they are checked; Arrow's integer sums wrap around.
        self._wide = [
            pa.decimal256(76, self._schema.field(column).type.scale)
            if kind == "sum"
            else self._schema.field(column).type
            for kind, _, column in self._aggregates
        ]
        self._partial: list[pa.Table] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of one batch."""
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        values = [
            addends(kind, batch.column(field), wide)
            for (kind, field, _), wide in zip(self._aggregates, self._wide, strict=True)
        ]
        columns = [*[key_values(key, batch.column(key.field)) for key in self._keys], ones, *values]
        self.merge(pa.Table.from_arrays(columns, names=self._names))

    def add_groups(self, groups: pa.RecordBatch, partial: PartialCount) -> None:
        """Count groups that another task made of its tuples."""
        values = [
            pc.cast(groups.column(partial.value_column(kind, field)), wide)
            for (kind, field, _), wide in zip(self._aggregates, self._wide, strict=True)
        ]
        keys = [groups.column(partial.key_column(key)) for key in self._keys]
        self.merge(pa.Table.from_arrays([*keys, groups.column(TUPLES), *values], names=self._names))

    def merge(self, partial: pa.Table) -> None:
        """Add rows that `partial` of another aggregator returned."""
        self._partial.append(partial)
        self._rows += partial.num_rows
        if self._rows > FOLD_ROWS:
            table = self._grouped(pa.concat_tables(self._partial))
            self._partial = [table]
            # With many different keys, folding does not help: fold again only when as many rows have been added.
            self._rows = table.num_rows // 2 if table.num_rows < FOLD_ROWS else 0

    def partial(self) -> pa.Table:
        """Return what was counted until now, for `merge`: wide enough that no sum overflows before it is complete."""
        if not self._partial:
            kinds = self._schema.types[: len(self._keys)]
            return pa.schema(list(zip(self._names, [*kinds, pa.int64(), *self._wide], strict=True))).empty_table()
        return self._grouped(pa.concat_tables(self._partial))

    def rows(self) -> pa.Table:
        """Return result rows in the order of their keys, NULL last. Raises Overflow."""
        if not self._partial:
            return self._schema.empty_table()
        table = self._grouped(pa.concat_tables(self._partial))
        keys = self._names[: len(self._keys)]
        if keys:
            table = table.sort_by([(key, "ascending") for key in keys])
        try:
            return pa.Table.from_arrays(
                [pc.cast(column, field.type) for column, field in zip(table.columns, self._schema, strict=True)],
                schema=self._schema,
            )
        except pa.ArrowInvalid as error:
            raise Overflow(f"a sum does not fit {DECIMAL_PRECISION_MAX} digits ({error})") from error

    def _grouped(self, table: pa.Table) -> pa.Table:
        grouped = folded(table, len(self._keys), self._folds)
        wide = [*[column.type for column in grouped.columns[: len(self._keys)]], pa.int64(), *self._wide]
        return pa.Table.from_arrays(
            [
                column if column.type == kind else pc.cast(column, kind)
                for column, kind in zip(grouped.columns, wide, strict=True)
            ],
            names=self._names,
        )


def key_values(source: KeySource, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a key of each tuple: its value, the start of the window that this time is in, or the cell of its value."""
    if source.is_cell:
        return _cells(values)
    if not source.width_us:
        return values
    moments = pc.cast(pc.cast(values, pa.timestamp("us", values.type.tz)), pa.int64())
    into = values.type
    if source.zone:
        moments, into = local_moments(moments, source.zone), pa.timestamp("us")
    width = pa.scalar(source.width_us, pa.int64())
    rounded = pc.divide(moments, width)  # towards 0
    before = pc.cast(pc.less(moments, pc.multiply(rounded, width)), pa.int64())
    return pc.cast(pc.multiply(pc.subtract(rounded, before), width), into)


def _cells(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    found = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    texts = found if pa.types.is_string(found.type) or pa.types.is_binary(found.type) else pc.cast(found, pa.string())
    # Each different value is hashed once.
    coded = pc.dictionary_encode(pc.cast(texts, pa.binary()).combine_chunks())
    cells = pa.array(map(_cell, coded.dictionary.to_pylist()), pa.int32())
    return cells.take(coded.indices)


def _cell(value: bytes) -> int:
    bits = int.from_bytes(hashlib.sha256(value).digest()[: (REGISTERS_BITS + RANK_BITS) // 8], "big")
    rest = bits & ((1 << RANK_BITS) - 1)
    return (bits >> RANK_BITS) * CELL_RANKS + RANK_BITS - rest.bit_length() + 1


def addends(kind: AggregateKind, values: pa.Array | pa.ChunkedArray, into: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return what each tuple adds to an aggregate of this kind, as type `into`: no NULL in what is added up."""
    if kind == "count":
        return pc.cast(pc.is_valid(values), into)
    if kind == "sum":
        summed = pc.cast(values, into)
        return pc.fill_null(summed, pa.scalar(0, into)) if summed.null_count else summed
    return values


def folded(table: pa.Table, keys: int, folds: Sequence[Fold]) -> pa.Table:
    """Return one row for each value of the first `keys` columns, in the order of first appearance, with all other
    columns folded, where NULL counts as 0 in a sum and as nothing otherwise. Sums may have a wider type.
    """
    names = table.column_names
    options = {
        "add": pc.ScalarAggregateOptions(skip_nulls=True, min_count=0),
        "min": pc.ScalarAggregateOptions(skip_nulls=True, min_count=1),
        "max": pc.ScalarAggregateOptions(skip_nulls=True, min_count=1),
    }
    functions = {"add": "sum", "min": "min", "max": "max"}
    made = [(name, functions[fold], options[fold]) for name, fold in zip(names[keys:], folds, strict=True)]
    grouped = table.group_by(names[:keys], use_threads=False).aggregate(made)
    return grouped.rename_columns(names)
