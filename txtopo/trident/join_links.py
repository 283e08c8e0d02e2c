"""Links of a join: both sides get one layout, so that one component can read them, and meet by key in one task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Field, Fields, FieldType
from txtopo.trident.links import ChainColumn, ChainRows, Link, LinkContext, RunningLink

How = Literal["inner", "left", "right", "full"]
SIDE = "$side"
"""Field of the layout: 0 for the left side, 1 for the right one."""


def layout(keys: Sequence[Field], left: Sequence[Field], right: Sequence[Field]) -> Fields:
    """Return the fields of both sides together: side, keys, then the other fields of each side, by number."""
    numbered = [Field(f"$k{at}", one.type) for at, one in enumerate(keys)]
    lefts = [Field(f"$l{at}", one.type) for at, one in enumerate(left)]
    rights = [Field(f"$r{at}", one.type) for at, one in enumerate(right)]
    return Fields((Field(SIDE, FieldType("tinyint")), *numbered, *lefts, *rights))


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLink(Link):
    """Gives the tuples of one side the layout of both."""

    side: int
    positions: tuple[int | None, ...]
    """For each field of the layout after the first: its position in this side; None: NULL."""

    def open(self, context: LinkContext) -> RunningLink:
        return _Siding(self)


class _Siding(RunningLink):
    def __init__(self, link: SideLink) -> None:
        self._link = link
        self._types = link.schema().types

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        side = ChainColumn(pa.repeat(pa.scalar(self._link.side, pa.int8()), rows.count))
        others = [
            ChainColumn(pa.nulls(rows.count, kind)) if at is None else rows.columns[at]
            for at, kind in zip(self._link.positions, self._types[1:], strict=True)
        ]
        yield rows.with_columns([side, *others])


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLink(Link):
    """Joins the tuples of one batch that have equal keys; NULL is equal to nothing."""

    before: Fields
    """The layout."""
    keys: int
    """Number of key fields."""
    left: int
    """Number of other fields of the left side."""
    how: How

    def shown(self) -> str:
        return f"{self.place}: equal keys in one task; one batch only, tuples of different batches do not meet"

    def open(self, context: LinkContext) -> RunningLink:
        return _Joining(self)


class _Joining(RunningLink):
    def __init__(self, link: JoinLink) -> None:
        self._link = link
        self._names = [str(at) for at in range(len(link.before.items))]
        self._held: list[pa.RecordBatch] = []

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        self._held.append(pa.RecordBatch.from_arrays([column.array for column in rows.columns], names=self._names))
        yield from ()

    def end(self) -> Iterator[ChainRows]:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held).combine_chunks()
        side = table.column(0)
        left, right = table.filter(pc.equal(side, 0)), table.filter(pc.equal(side, 1))
        lefts, rights = self._pairs(left, right)
        first = 1 + self._link.keys
        split = first + self._link.left
        # Where one side has no tuple, its position is NULL, and `take` gives NULL.
        keys = [pc.coalesce(left.column(at).take(lefts), right.column(at).take(rights)) for at in range(1, first)]
        of_left = [left.column(at).take(lefts) for at in range(first, split)]
        of_right = [right.column(at).take(rights) for at in range(split, len(self._names))]
        made = pa.Table.from_arrays([*keys, *of_left, *of_right], schema=self._link.schema())
        for batch in made.combine_chunks().to_batches():
            yield ChainRows([ChainColumn(array) for array in batch.columns], batch.num_rows, anchored=False)

    def _pairs(self, left: pa.Table, right: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Return positions in both sides, one pair for each joined tuple: in the order of the left side, then those of
        the right side without a match.
        """
        found: dict[tuple[Any, ...], list[int]] = {}
        for at, key in enumerate(self._keys(right)):
            if None not in key:
                found.setdefault(key, []).append(at)
        lefts: list[int | None] = []
        rights: list[int | None] = []
        used = np.zeros(right.num_rows, dtype=bool)
        for at, key in enumerate(self._keys(left)):
            matches = found.get(key, ())
            lefts += [at] * len(matches)
            rights += matches
            used[list(matches)] = True
            if not matches and self._link.how in ("left", "full"):
                lefts.append(at)
                rights.append(None)
        if self._link.how in ("right", "full"):
            alone = np.flatnonzero(~used).tolist()
            lefts += [None] * len(alone)
            rights += alone
        return pa.array(lefts, pa.int64()), pa.array(rights, pa.int64())

    def _keys(self, table: pa.Table) -> Iterator[tuple[Any, ...]]:
        return zip(*(table.column(at).to_pylist() for at in range(1, 1 + self._link.keys)), strict=True)
