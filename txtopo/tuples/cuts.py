"""Cuts the tuples of a DataFrame into record batches by the tuples alone, however Spark sent them.

Spark cuts the rows of a partition, which may hold several batches of a wave. A task downstream may notice how large a
record batch is (an ArrowBolt does), so the size must be the same whether a batch runs alone or in a wave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS_MAX = 8192
"""A record batch is complete with this number of rows."""
BYTES_MAX = 4 * 2**20
"""A record batch is complete when the values of its rows have this number of bytes."""


def cut(
    batches: Iterable[pa.RecordBatch], *, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, in record batches whose ends depend only on the rows before them. None is empty."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        first = 0
        while first < batch.num_rows:
            piece = batch.slice(first, rows_max - rows)
            added = _bytes(piece)
            if size + added >= bytes_max:
                ends = np.cumsum(_bytes_of_rows(piece))
                piece = piece.slice(0, int(np.searchsorted(ends, bytes_max - size)) + 1)
                added = int(ends[piece.num_rows - 1])
            held.append(piece)
            first, rows, size = first + piece.num_rows, rows + piece.num_rows, size + added
            if rows >= rows_max or size >= bytes_max:
                yield pa.concat_batches(held)
                held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held)


def _bytes(batch: pa.RecordBatch) -> int:
    """Return the number of bytes of all values, without what Arrow adds, which depends on how the rows were sent."""
    size = _width(batch.schema) * int(batch.num_rows)
    for column in batch.columns:
        if _is_long(column.type):
            size += int(pc.sum(pc.binary_length(column)).as_py() or 0)
    return size


def _bytes_of_rows(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    sizes = np.full(batch.num_rows, _width(batch.schema), dtype=np.int64)
    for column in batch.columns:
        if _is_long(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _width(schema: pa.Schema) -> int:
    """Return the number of bytes that every row has; a boolean counts as one."""
    return sum(1 if _is_long(field.type) else max(1, int(field.type.bit_width) // 8) for field in schema)


def _is_long(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
