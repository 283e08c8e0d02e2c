"""Groups tuples in the task that reads or makes them: record batches of tuples in, record batches of groups out, with
the number of tuples and the aggregates of each.

Groups may come out in any number of pieces, and a key more than once: downstream they are folded. So memory is
bounded, and tuples with many different keys leave as groups of one, which costs no more than sending them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Fields
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.partial_counts import TUPLES, TUPLES_MAX, PartialCount
from txtopo.tuples.aggregate_batches import addends, folded, key_values

BLOCK_ROWS = 8192
"""Fewer tuples than this wait for more, since each grouping costs as much as a few hundred tuples."""
SLICE_ROWS = 65_536
"""Maximum number of tuples that are grouped in one step."""
WIDE_BYTES = 2048
"""Tuples with more bytes than this, on average, are not grouped: to group very wide values is to copy them."""
PAUSE_BLOCKS = 32
"""As many blocks are not grouped after one whose keys are mostly different; twice as many after the next, and so on,
until a block becomes smaller.
"""
GROUPED_ROWS_MIN = 256
"""Fewer tuples than this, at the end of a part or where memory allows no more, leave as groups of one, which is cheaper
than to group them.
"""
HELD_ROWS_MAX = 65_536
"""Maximum number of groups that are held; if there are more, they are merged."""
HELD_BYTES_MAX = 16 * 2**20
"""The same in bytes; also the maximum size of tuples that wait."""
SCHEMAS_KEPT = 64
"""Number of schemas of groups that a process keeps."""


class PartialGroups:
    """Groups the tuples of one part, those of all parts of a task apart from each other, or those that a task sends to
    another one.
    """

    def __init__(self, partial: PartialCount, fields: Fields, *, share: int = 1, apart: str | None = None) -> None:
        """`share`: as many of these share the memory of one. `apart`: name of a last column of the groups, the number
        of what their tuples belong to (see `of_number`).
        """
        self._rows_max, self._bytes_max = HELD_ROWS_MAX // share, HELD_BYTES_MAX // share
        self._apart = apart
        self._schema = _schema_of(partial, fields, apart)
        """The columns of a group; the one of `apart` is the first of its keys here."""
        self._key_count = len(partial.sources) + (apart is not None)
        self._number = 0
        self._ended: list[pa.Table] = []
        """A group for each tuple that waits, of the numbers that have ended."""
        self._partial = partial
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._held: list[pa.Table] = []
        self._held_rows = self._held_bytes = 0
        self._tuples = 0
        """Number of tuples in the groups that are held."""
        self._pause_rows = 0
        """Number of tuples that leave ungrouped before a block is tried again."""
        self._pause_blocks = PAUSE_BLOCKS
        """Length of the next pause."""

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the groups of all tuples in `batches`."""
        for batch in batches:
            yield from self.take(batch)
        yield from self.end()

    def of_number(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        """Take all tuples of one number; yields groups that are sent already. `end` yields the others. After an error,
        nothing that is made of these tuples waits any more, so it cannot become an error of the next number.
        """
        self._number = number
        try:
            for batch in batches:
                yield from self.take(batch)
            if self._waiting:
                self._ended.append(self._ones(self._waiting))
        finally:
            self._waiting = []
            self._waiting_rows = sum(table.num_rows for table in self._ended)
            self._waiting_bytes = sum(table.nbytes for table in self._ended)

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take some tuples; yields groups that are sent already."""
        needed = batch.select(self._partial.fields)
        for start in range(0, batch.num_rows, SLICE_ROWS):
            yield from self._take(needed.slice(start, SLICE_ROWS))

    def end(self) -> Iterator[pa.RecordBatch]:
        """Yield all other groups, when there are no more tuples."""
        yield from self._end_block(is_last=True)
        yield from self._emptied()

    def _take(self, tuples: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._pause_rows > 0:
            self._pause_rows -= tuples.num_rows
            yield from self._leaving(self._ones([tuples]))
            return
        self._waiting.append(tuples)
        self._waiting_rows += tuples.num_rows
        self._waiting_bytes += tuples.nbytes
        if self._waiting_rows >= BLOCK_ROWS or self._waiting_bytes > self._bytes_max:
            yield from self._end_block()

    def _end_block(self, *, is_last: bool = False) -> Iterator[pa.RecordBatch]:
        """Group what waits. If that makes more than half as many groups as tuples, many of those
        that follow are not grouped.
        """
        ones = [*self._ended, *([self._ones(self._waiting)] if self._waiting else [])]
        if not ones:
            return
        block, is_wide = pa.concat_tables(ones), self._waiting_bytes > WIDE_BYTES * self._waiting_rows
        self._waiting, self._ended, self._waiting_rows, self._waiting_bytes = [], [], 0, 0
        is_small = block.num_rows < GROUPED_ROWS_MIN
        if is_last and is_small:
            yield from self._leaving(block)
            return
        groups = block if is_wide or is_small else self._grouped_block(block)
        if 2 * groups.num_rows > block.num_rows:
            self._pause_rows, self._pause_blocks = self._pause_blocks * BLOCK_ROWS, 2 * self._pause_blocks
            yield from self._emptied()
            yield from self._leaving(groups)
        else:
            self._pause_blocks = PAUSE_BLOCKS
            yield from self._hold(groups, block.num_rows)

    def _hold(self, groups: pa.Table, tuples: int) -> Iterator[pa.RecordBatch]:
        if self._tuples + tuples > TUPLES_MAX:
            yield from self._emptied()
        self._tuples += tuples
        self._held.append(groups)
        self._held_rows += groups.num_rows
        self._held_bytes += groups.nbytes
        if self._held_rows > self._rows_max or self._held_bytes > self._bytes_max:
            merged = self._grouped(pa.concat_tables(self._held))
            self._held, self._held_rows, self._held_bytes = [merged], merged.num_rows, merged.nbytes
            # To merge again and again what is mostly different would cost more than to send it.
            if 2 * self._held_rows > self._rows_max or 2 * self._held_bytes > self._bytes_max:
                yield from self._emptied()

    def _emptied(self) -> Iterator[pa.RecordBatch]:
        """Yield the groups that are held, and hold none."""
        held, self._held = self._held, []
        self._held_rows = self._held_bytes = self._tuples = 0
        if held:
            merged = held[0] if len(held) == 1 else self._grouped(pa.concat_tables(held))
            yield from self._leaving(merged.combine_chunks())

    def _leaving(self, groups: pa.Table) -> list[pa.RecordBatch]:
        """Return groups as they leave: what they are apart by is their last column."""
        if self._apart is None:
            return list(groups.to_batches())
        first, *others = groups.column_names
        return list(groups.select([*others, first]).combine_chunks().to_batches())

    def _ones(self, tuples: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return a group for each tuple."""
        table = pa.Table.from_batches(tuples)
        keys = [key_values(one, table.column(one.field)) for one in self._partial.sources]
        if self._apart is not None:
            keys.insert(0, pa.repeat(pa.scalar(self._number, pa.int32()), table.num_rows))
        types = self._schema.types[len(keys) : -1]
        values = [
            addends(kind, table.column(field), into)
            for (kind, field), into in zip(self._partial.aggregates, types, strict=True)
        ]
        ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        return pa.Table.from_arrays([*keys, *values, ones], names=self._schema.names)

    def _grouped_block(self, block: pa.Table) -> pa.Table:
        """Return the groups of a block in which each tuple is one group."""
        if self._partial.aggregates or self._key_count > 1:
            return self._grouped(block)
        counted = block.column(0).value_counts()
        return pa.Table.from_arrays([counted.field("values"), counted.field("counts")], names=self._schema.names)

    def _grouped(self, groups: pa.Table) -> pa.Table:
        return folded(groups, self._key_count, self._partial.folds)


@lru_cache(maxsize=SCHEMAS_KEPT)
def _schema_of(partial: PartialCount, fields: Fields, apart: str | None) -> pa.Schema:
    """Return the columns of a group: each part of a batch asks for them."""
    schema = arrow_schema(Fields(partial.columns(fields)))
    return schema if apart is None else schema.insert(0, pa.field(apart, pa.int32(), nullable=False))


def tuples_in(groups: pa.RecordBatch) -> int:
    """Return the number of tuples of all groups together."""
    return int(pc.sum(groups.column(TUPLES), min_count=0).as_py())
