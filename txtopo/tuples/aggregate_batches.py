"""Carries out an `Aggregation` on Arrow record batches: exact, NULL is a key like any other, in parts that can be
merged.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import DECIMAL_PRECISION_MAX, Fields
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.committer_bolt import Aggregation
from txtopo.topology.partial_counts import TUPLES, PartialCount

FOLD_ROWS = 100_000
"""Partial results with more rows than this are folded."""


class Overflow(ArithmeticError):
    """A sum does not fit 38 digits."""


class Aggregator:
    """Collects the result rows of one committer for one attempt."""

    def __init__(self, aggregation: Aggregation, result: Fields) -> None:
        self._keys = list(aggregation.keys)
        self._sums = aggregation.sums
        self._schema = arrow_schema(result)
        # Internal names, since a result column may have the name of an input field.
        self._names = [
            *[f"k{at}" for at in range(len(self._keys))],
            "count",
            *[f"s{at}" for at in range(len(self._sums))],
        ]
        # Sums have 76 digits, where they cannot overflow before they are checked; Arrow's integer sums wrap around.
        self._wide = [pa.decimal256(76, self._schema.field(output).type.scale) for _, output in self._sums]
        self._partial: list[pa.Table] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of one batch."""
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        summed = [pc.cast(batch.column(source), wide) for (source, _), wide in zip(self._sums, self._wide, strict=True)]
        columns = [*[batch.column(key) for key in self._keys], ones, *summed]
        self.merge(pa.Table.from_arrays(columns, names=self._names))

    def add_groups(self, groups: pa.RecordBatch, partial: PartialCount) -> None:
        """Count groups that another task made of its tuples."""
        summed = [
            pc.cast(groups.column(partial.sum_column(source)), wide)
            for (source, _), wide in zip(self._sums, self._wide, strict=True)
        ]
        keys = [groups.column(partial.key_column(key)) for key in self._keys]
        self.merge(pa.Table.from_arrays([*keys, groups.column(TUPLES), *summed], names=self._names))

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
            kinds = [self._schema.field(key).type for key in self._keys]
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
        grouped = added_up(table, len(self._keys))
        wide = [*[column.type for column in grouped.columns[: len(self._keys)]], pa.int64(), *self._wide]
        return pa.Table.from_arrays(
            [
                column if column.type == kind else pc.cast(column, kind)
                for column, kind in zip(grouped.columns, wide, strict=True)
            ],
            names=self._names,
        )


def added_up(table: pa.Table, keys: int) -> pa.Table:
    """Return one row for each value of the first `keys` columns, in the order of first appearance, with the sums of all
    other columns, where NULL counts as 0. Sums may have a wider type.
    """
    names = table.column_names
    options = pc.ScalarAggregateOptions(skip_nulls=True, min_count=0)
    summed = [(value, "sum", options) for value in names[keys:]]
    grouped = table.group_by(names[:keys], use_threads=False).aggregate(summed)
    return grouped.rename_columns(names)
