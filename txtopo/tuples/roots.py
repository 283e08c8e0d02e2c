"""Which spout tuples each tuple of a batch belongs to: by runs of neighbours, since what comes of one spout tuple mostly stands together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

COLUMN = "$roots"
"""Name of the column behind the fields of a message's tuples."""
_LISTS = pa.struct(
    [
        ("ends", pa.list_(pa.int32())), ("lengths", pa.list_(pa.int32())), ("first", pa.list_(pa.int64())), ("count", pa.list_(pa.int32())),
    ]
)  # fmt: skip
"""The roots of a whole message in one value: where its runs end, how many roots each has, and these as stretches without gaps. `ends` is empty where each row
is a run, `lengths` where each run has one root."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The ids of the spout tuples (graph.root_id) behind each row: one list for each run of rows that belong to the same ones."""

    ends: Ints
    """How many rows there are up to the end of each run: ascending, the last one is the number of rows."""
    lists: pa.ListArray
    """The roots of each run; empty where its rows belong to no tree."""

    @classmethod
    def single(cls, roots: Ints) -> Roots:
        """Each row has one root of its own."""
        return cls(np.arange(1, len(roots) + 1), _lists(np.ones(len(roots), dtype=np.int64), roots))

    @classmethod
    def none(cls, rows: int) -> Roots:
        """So many rows that belong to no tree."""
        return cls.of_rows([[]]).repeated(np.array([rows]))

    @classmethod
    def of_rows(cls, lists: Iterable[Sequence[int]]) -> Roots:
        """The roots of each row."""
        runs = [(list(found), sum(1 for _ in same)) for found, same in groupby(lists)]
        ends = np.cumsum([rows for _, rows in runs], dtype=np.int64)
        return cls(ends, pa.array([found for found, _ in runs], type=pa.list_(pa.int64())))

    @classmethod
    def of_column(cls, column: pa.RunEndEncodedArray) -> Roots:
        """Those of a message."""
        if not len(column):
            return cls.none(0)
        total = column.run_ends[-1].as_py()
        ends, lengths, first, count = (numbers_of(column.values.field(at)) for at in range(len(_LISTS)))
        flat = unpacked(first, count)
        ends = ends if len(ends) else np.arange(1, total + 1)
        lengths = lengths if len(lengths) else np.ones(len(ends), dtype=np.int64)
        # A message that lost rows on its way has more roots than rows; its count tells that.
        return cls(ends, _lists(lengths, flat)).slice(column.offset, len(column))

    @property
    def column(self) -> pa.RunEndEncodedArray:
        """As a column of a message: one value for all rows, small where they belong to neighbours in the source."""
        lengths = np.diff(self.lists.offsets.to_numpy())
        parts = (
            self.ends if len(self.ends) < len(self) else self.ends[:0],
            lengths if np.any(lengths != 1) else lengths[:0],
            *packed(numbers_of(self.lists)),
        )
        value = pa.StructArray.from_arrays(
            [one_list(part, field.type) for part, field in zip(parts, _LISTS, strict=True)], fields=list(_LISTS)
        )
        rows = [len(self)] if len(self) else []
        return pa.RunEndEncodedArray.from_arrays(pa.array(rows, pa.int32()), value.slice(0, len(rows)))

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def rows(self) -> list[list[int]]:
        """The roots of each row; rows of one run share a list."""
        counts = np.diff(self.ends, prepend=0).tolist()
        return [found for found, count in zip(self.lists.to_pylist(), counts, strict=True) for _ in range(count)]

    def of_row(self, row: int) -> tuple[int, ...]:
        """The roots of one row."""
        return tuple(self.lists[int(np.searchsorted(self.ends, row, side="right"))].as_py())

    def slice(self, first: int, rows: int) -> Roots:
        """Those of the rows [`first`, `first` + `rows`)."""
        if first == 0 and rows == len(self):
            return self
        if not rows:
            return Roots(self.ends[:0], self.lists.slice(0, 0))
        low = int(np.searchsorted(self.ends, first, side="right"))
        high = int(np.searchsorted(self.ends, first + rows, side="left")) + 1
        return Roots(np.minimum(self.ends[low:high], first + rows) - first, self.lists.slice(low, high - low))

    def take(self, rows: npt.NDArray[np.int64]) -> Roots:
        """Those of the rows with these numbers, in this order."""
        if not len(rows):
            return self.slice(0, 0)
        # Mostly each row is a run: then its number is that of its run.
        runs = rows if len(self.ends) == len(self) else np.searchsorted(self.ends, rows, side="right")
        lasts = np.flatnonzero(np.append(runs[1:] != runs[:-1], True))
        return Roots(lasts + 1, self.lists.take(pa.array(runs[lasts])))

    def repeated(self, counts: Ints) -> Roots:
        """Those of as many rows in place of each row as `counts` says."""
        if not len(counts):
            return self
        # A run's rows are repeated as often as all of them together.
        ends = np.cumsum(counts)[self.ends - 1]
        kept = np.diff(ends, prepend=0) > 0
        return Roots(ends, self.lists) if kept.all() else Roots(ends[kept], self.lists.filter(pa.array(kept)))


def packed(numbers: Ints) -> tuple[Ints, Ints]:
    """Numbers as stretches that rise by one: (the first of each, how many each has; none where each has one)."""
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 1)[: len(numbers)])
    if len(starts) == len(numbers):
        return numbers, numbers[:0]
    return numbers[starts], np.append(starts[1:], len(numbers)) - starts


def unpacked(first: Ints, count: Ints) -> Ints:
    """The numbers again."""
    if not len(count):
        return first
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


def one_list(numbers: Ints, kind: pa.ListType) -> pa.ListArray:
    """A column of one row that holds all these numbers."""
    return pa.ListArray.from_arrays(
        pa.array([0, len(numbers)], pa.int32()), pa.array(numbers, type=kind.value_type), type=kind
    )


def numbers_of(lists: pa.ListArray) -> Ints:
    """All numbers of all rows."""
    numbers: Ints = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


def _lists(lengths: Ints, flat: Ints) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)), type=pa.int32()), pa.array(flat))
