"""Which spout tuples each tuple of a batch belongs to: by runs of neighbours that belong to the same ones, such as the
words of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

COLUMN = "$roots"
"""Name of the column behind the fields of a message's tuples, where their roots are known."""
PACKED_ROWS_MIN = 1000
"""Fewer rows with a root each travel as plain numbers: packing them costs more time than it saves bytes."""


@dataclass(frozen=True)
class Roots:
    """The ids of the spout tuples (graph.root_id) behind each row: one list for each run of rows that belong to the
    same ones.
    """

    ends: Ints
    """How many rows there are up to the end of each run: ascending, the last one is the number of rows."""
    flat: Ints
    """The roots of all runs, run after run."""
    lengths: Ints | None = None
    """How many each run has, 0 where its rows belong to no tree; None: each has one."""

    @classmethod
    def single(cls, roots: Ints) -> Roots:
        """Each row has one root of its own."""
        return cls(np.arange(1, len(roots) + 1), roots)

    @classmethod
    def none(cls, rows: int) -> Roots:
        """So many rows that belong to no tree."""
        ends = np.array([rows] if rows else [], dtype=np.int64)
        return cls(ends, np.empty(0, dtype=np.int64), np.zeros(len(ends), dtype=np.int64))

    @classmethod
    def of_rows(cls, lists: Iterable[Sequence[int]]) -> Roots:
        """The roots of each row."""
        runs = [(found, sum(1 for _ in same)) for found, same in groupby(lists)]
        return cls(
            np.cumsum([rows for _, rows in runs], dtype=np.int64),
            np.array([root for found, _ in runs for root in found], dtype=np.int64),
            np.array([len(found) for found, _ in runs], dtype=np.int64),
        )

    @classmethod
    def of_column(cls, column: pa.Array) -> Roots:
        """Those of a message. One that lost rows at its end on its way has more roots than rows; its count tells
        that.
        """
        if pa.types.is_int64(column.type):
            return cls.single(column.to_numpy())
        if not len(column):
            return cls.none(0)
        flat, lengths, ends = _unpacked(column.values[0].as_py())
        runs = len(flat) if lengths is None else len(lengths)
        known = cls(np.arange(1, runs + 1) if ends is None else ends, flat, lengths)
        return known.slice(column.offset, len(column))

    @cached_property
    def column(self) -> pa.Array:
        """As a column of a message: plain numbers, or one value for all rows, small where they belong to neighbours in
        the source.
        """
        if self.lengths is None and len(self.ends) == len(self) < PACKED_ROWS_MIN:
            return pa.array(self.flat)
        ends = self.ends if len(self.ends) < len(self) else None
        value = pa.array([_packed(self.flat, self.lengths, ends)], pa.binary())
        rows = [len(self)] if len(self) else []
        return pa.RunEndEncodedArray.from_arrays(pa.array(rows, pa.int32()), value[: len(rows)])

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def rows(self) -> list[list[int]]:
        """The roots of each row; rows of one run share a list."""
        counts = np.diff(self.ends, prepend=0).tolist()
        stops = self._stops
        runs = [self.flat[stops[at] : stops[at + 1]].tolist() for at in range(len(counts))]
        return [found for found, count in zip(runs, counts, strict=True) for _ in range(count)]

    def of_row(self, row: int) -> tuple[int, ...]:
        """The roots of one row."""
        run = int(np.searchsorted(self.ends, row, side="right"))
        return tuple(self.flat[self._stops[run] : self._stops[run + 1]].tolist())

    def slice(self, first: int, rows: int) -> Roots:
        """Those of the rows [`first`, `first` + `rows`)."""
        if first == 0 and rows == len(self):
            return self
        if not rows:
            return Roots.none(0)
        low = int(np.searchsorted(self.ends, first, side="right"))
        high = int(np.searchsorted(self.ends, first + rows, side="left")) + 1
        ends = np.minimum(self.ends[low:high], first + rows) - first
        if self.lengths is None:
            return Roots(ends, self.flat[low:high])
        return Roots(ends, self.flat[self._stops[low] : self._stops[high]], self.lengths[low:high])

    def take(self, rows: npt.NDArray[np.int64]) -> Roots:
        """Those of the rows with these numbers, in this order."""
        if not len(rows):
            return Roots.none(0)
        # Where each row is a run its number is that of its run.
        runs = rows if len(self.ends) == len(self) else np.searchsorted(self.ends, rows, side="right")
        lasts = np.flatnonzero(np.append(runs[1:] != runs[:-1], True))
        return self._of_runs(lasts + 1, runs[lasts])

    def repeated(self, counts: Ints) -> Roots:
        """Those of as many rows in place of each row as `counts` says."""
        if not len(counts):
            return self
        # A run's rows are repeated as often as all of them together.
        ends = np.cumsum(counts)[self.ends - 1]
        kept = np.diff(ends, prepend=0) > 0
        return Roots(ends, self.flat, self.lengths) if kept.all() else self._of_runs(ends[kept], np.flatnonzero(kept))

    @property
    def _stops(self) -> Ints:
        """Where the roots of each run begin in `flat`, and where the last one's end."""
        return np.arange(len(self.ends) + 1) if self.lengths is None else np.append(0, np.cumsum(self.lengths))

    def _of_runs(self, ends: Ints, runs: Ints) -> Roots:
        """The roots of these runs, which now end there."""
        if self.lengths is None:
            return Roots(ends, self.flat[runs])
        lengths = self.lengths[runs]
        return Roots(ends, self.flat[unpacked(self._stops[runs], lengths)], lengths)


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


def _packed(flat: Ints, lengths: Ints | None, ends: Ints | None) -> bytes:
    """Everything as bytes: sizes, then the stretches of `flat` (8 bytes, 4 bytes), `lengths` and `ends` (4 bytes). Left
    out is what says "one each".
    """
    first, count = packed(flat)
    small = [count, lengths, ends]
    sizes = np.array([len(first), *(-1 if part is None else len(part) for part in small)], dtype="<i8")
    rest = [part.astype("<i4").tobytes() for part in small if part is not None]
    return b"".join([sizes.tobytes(), first.astype("<i8").tobytes(), *rest])


def _unpacked(data: bytes) -> tuple[Ints, Ints | None, Ints | None]:
    """(flat, lengths, ends)"""
    sizes = np.frombuffer(data, "<i8", 4).tolist()
    at = 8 * (4 + sizes[0])
    first = np.frombuffer(data, "<i8", sizes[0], 32)
    small: list[Ints | None] = []
    for size in sizes[1:]:
        small.append(None if size < 0 else np.frombuffer(data, "<i4", size, at).astype(np.int64))
        at += 4 * max(size, 0)
    count, lengths, ends = small
    return unpacked(first, count if count is not None else first[:0]), lengths, ends
