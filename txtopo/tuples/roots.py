"""The spout tuples that each tuple of a batch belongs to, stored by runs of neighbours with the same ones, such as the
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
"""Name of the column after the fields of a message's tuples, if their roots are known."""
PACKED_ROWS_MIN = 1000
"""Fewer rows with one root each are sent as plain numbers: packing them costs more time than it saves bytes."""


@dataclass(frozen=True)
class Roots:
    """The ids of the spout tuples (graph.root_id) that each row came from: one list for each run of rows with the same
    ones.
    """

    ends: Ints
    """Number of rows up to the end of each run: ascending, the last one is the total number of rows."""
    flat: Ints
    """The roots of all runs, one run after the other."""
    lengths: Ints | None = None
    """Number of roots of each run, 0 if its rows belong to no tree; None: each has one."""

    @classmethod
    def single(cls, roots: Ints) -> Roots:
        """Return an object in which each row has the root with its number."""
        return cls(np.arange(1, len(roots) + 1), roots)

    @classmethod
    def none(cls, rows: int) -> Roots:
        """Return an object for `rows` rows that belong to no tree."""
        ends = np.array([rows] if rows else [], dtype=np.int64)
        return cls(ends, np.empty(0, dtype=np.int64), np.zeros(len(ends), dtype=np.int64))

    @classmethod
    def of_rows(cls, lists: Iterable[Sequence[int]]) -> Roots:
        """Return an object with the roots of each row."""
        runs = [(found, sum(1 for _ in same)) for found, same in groupby(lists)]
        return cls(
            np.cumsum([rows for _, rows in runs], dtype=np.int64),
            np.array([root for found, _ in runs for root in found], dtype=np.int64),
            np.array([len(found) for found, _ in runs], dtype=np.int64),
        )

    @classmethod
    def of_column(cls, column: pa.Array) -> Roots:
        """Return the roots in a message. If the message lost rows at its end, it has more roots than rows; its count
        shows that.
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
        """The column of a message: plain numbers, or one value for all rows, which is small if they belong to
        neighbours in the source.
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
        """Return the roots of one row."""
        run = int(np.searchsorted(self.ends, row, side="right"))
        return tuple(self.flat[self._stops[run] : self._stops[run + 1]].tolist())

    def slice(self, first: int, rows: int) -> Roots:
        """Return the roots of the rows [`first`, `first` + `rows`)."""
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
        """Return the roots of the rows with these numbers, in this order."""
        if not len(rows):
            return Roots.none(0)
        # If each row is a run, its number is the number of its run.
        runs = rows if len(self.ends) == len(self) else np.searchsorted(self.ends, rows, side="right")
        lasts = np.flatnonzero(np.append(runs[1:] != runs[:-1], True))
        return self._of_runs(lasts + 1, runs[lasts])

    def repeated(self, counts: Ints) -> Roots:
        """Return the roots after each row was repeated as often as `counts` says."""
        return self.spread(np.cumsum(counts))

    def spread(self, after: Ints) -> Roots:
        """Return the same for numbers of rows up to the end of each row's repetitions: they never fall."""
        if not len(after):
            return self
        # A run is repeated as often as all its rows together.
        ends = after[self.ends - 1]
        kept = np.diff(ends, prepend=0) > 0
        return Roots(ends, self.flat, self.lengths) if kept.all() else self._of_runs(ends[kept], np.flatnonzero(kept))

    @property
    def _stops(self) -> Ints:
        """Start of the roots of each run in `flat`, then the end of the last ones."""
        return np.arange(len(self.ends) + 1) if self.lengths is None else np.append(0, np.cumsum(self.lengths))

    def _of_runs(self, ends: Ints, runs: Ints) -> Roots:
        """Return the roots of these runs, with new ends."""
        if self.lengths is None:
            return Roots(ends, self.flat[runs])
        lengths = self.lengths[runs]
        return Roots(ends, self.flat[unpacked(self._stops[runs], lengths)], lengths)


def packed(numbers: Ints) -> tuple[Ints, Ints]:
    """Return numbers as sequences that rise by one: (the first of each, the length of each; the second is empty if each
    has one).
    """
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 1)[: len(numbers)])
    if len(starts) == len(numbers):
        return numbers, numbers[:0]
    return numbers[starts], np.append(starts[1:], len(numbers)) - starts


def unpacked(first: Ints, count: Ints) -> Ints:
    """Return the numbers again: the inverse of `packed`."""
    if not len(count):
        return first
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


def _packed(flat: Ints, lengths: Ints | None, ends: Ints | None) -> bytes:
    """Return everything as bytes: sizes, then the sequences of `flat` (8 bytes, 4 bytes), `lengths` and `ends` (4
    bytes). Arrays that would contain only "one each" are skipped.
    """
    first, count = packed(flat)
    small = [count, lengths, ends]
    sizes = np.array([len(first), *(-1 if part is None else len(part) for part in small)], dtype="<i8")
    rest = [part.astype("<i4").tobytes() for part in small if part is not None]
    return b"".join([sizes.tobytes(), first.astype("<i8").tobytes(), *rest])


def _unpacked(data: bytes) -> tuple[Ints, Ints | None, Ints | None]:
    """Return (flat, lengths, ends): the inverse of `_packed`."""
    sizes = np.frombuffer(data, "<i8", 4).tolist()
    at = 8 * (4 + sizes[0])
    first = np.frombuffer(data, "<i8", sizes[0], 32)
    small: list[Ints | None] = []
    for size in sizes[1:]:
        small.append(None if size < 0 else np.frombuffer(data, "<i4", size, at).astype(np.int64))
        at += 4 * max(size, 0)
    count, lengths, ends = small
    return unpacked(first, count if count is not None else first[:0]), lengths, ends
