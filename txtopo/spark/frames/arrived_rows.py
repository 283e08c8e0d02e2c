"""What the groups of a counting committer say: its result rows, and how many tuples arrived. In the driver, or in tasks
that store rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import invariant
from txtopo.tuples.readable_results import check_readable
from txtopo.tuples.storable_keys import check_keys

PARTITION_BITS = 33
"""Spark's `monotonically_increasing_id` is the partition, shifted by this number of bits, and the row's number in it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the groups of one committer contain: result rows, each with the numbers of the rows that it was made
    from.
    """

    name: str
    schema: pa.Schema
    """Fields of the result rows alone."""
    key_count: int
    by_run: bool = False
    """True if several runs share the plan; the first column of the groups is then the number of the run."""
    partitions: int = 0
    """Number of partitions of the input, if every group has their numbers: of each the last row number, and the first
    one if runs share the plan. 0: groups have no such numbers, and what arrived is the sum over the groups, or over
    `totals`, until the tasks of the spout say how many tuples they grouped.
    """
    totals: bool = False
    """True: there are rows besides the groups, marked in the column after them, that say how many rows partitions
    numbered.
    """


Said = list[int | None]
"""What groups say of the tuples that arrived: a sum, or the numbers of the first and last rows of each partition, as in
the columns of the groups, then the last number of all partitions. None: no row.
"""


def said_by(counted: Counted, table: pa.Table) -> Said:
    """Return what these groups say."""
    count, first_bound = counted.key_count, len(counted.schema)
    if counted.totals:
        return [pc.sum(table.filter(table.column(first_bound)).column(count)).as_py()]
    if not counted.partitions:
        return [pc.sum(table.column(count)).as_py()]
    bounds = [table.column(first_bound + at) for at in range((1 + counted.by_run) * counted.partitions)]
    said = [(pc.min if _is_first(counted, at) else pc.max)(column).as_py() for at, column in enumerate(bounds)]
    return [*said, pc.max(table.columns[-1]).as_py()]


def said_together(counted: Counted, said: Sequence[Said]) -> Said:
    """Return what groups say together if parts of them say this."""
    is_sum = not counted.partitions
    width = 1 if is_sum else (1 + counted.by_run) * counted.partitions + 1
    found: Said = []
    for at in range(width):
        values = [one[at] for one in said]
        known = [value for value in values if value is not None]
        is_first = _is_first(counted, at) and at < width - 1
        found.append((sum(known) if is_sum else min(known) if is_first else max(known)) if known else None)
    return found


def arrived(counted: Counted, said: Said) -> int:
    """Return how many rows the partitions numbered, up to the last number of each and from 0 or the run's first."""
    if not counted.partitions:
        return said[0] or 0
    *bounds, last_of_all = said
    highest = -1 if last_of_all is None else last_of_all >> PARTITION_BITS
    invariant(
        highest < counted.partitions,
        f"{counted.name}: rows came in {highest + 1} partitions where Spark's plan has {counted.partitions}: what "
        f"arrived cannot be determined",
    )
    if counted.by_run:
        pairs = list(zip(bounds[::2], bounds[1::2], strict=True))
    else:
        pairs = [(partition << PARTITION_BITS, last) for partition, last in enumerate(bounds)]
    return sum(last - first + 1 for first, last in pairs if first is not None and last is not None)


def rows_of(counted: Counted, table: pa.Table) -> tuple[Said, pa.Table]:
    """Return what groups say of the tuples that arrived, and their result rows. Raises BatchDataError if Python cannot
    read a row, or a key is too long.
    """
    # Without keys Spark counts no rows as one group.
    table = table.filter(pc.greater(table.column(counted.key_count), 0))
    if not table.num_rows:
        return said_together(counted, []), counted.schema.empty_table()
    said = said_by(counted, table)
    if counted.totals:
        table = table.filter(pc.invert(table.column(len(counted.schema))))
    rows = table.select(range(len(counted.schema))).rename_columns(counted.schema.names).cast(counted.schema)
    check_readable(counted.name, rows)
    check_keys(counted.name, rows, counted.key_count)
    return said, rows


def _is_first(counted: Counted, at: int) -> bool:
    """Return True if this column has first numbers."""
    return counted.by_run and at % 2 == 0
