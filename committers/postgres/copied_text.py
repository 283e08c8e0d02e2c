"""Rows as the text that COPY reads. Tasks of Spark load this module: it imports nothing that only a driver has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO

import pyarrow as pa
from pyarrow import csv

ROWS_PER_COPY = 50_000
"""Largest number of rows in one COPY; more are sent in several, so that their text needs little memory."""
COPY_BYTES = 256 * 1024
"""Bytes of one piece that is sent; by default it would be 8 KiB."""


def with_front(front: Sequence[int], rows: pa.Table) -> pa.Table:
    """Return the rows with these values in front of each."""
    of_batch = [pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows) for number in front]
    columns = [*of_batch, *rows.columns]
    return pa.table(columns, names=[str(at) for at in range(len(columns))])


def texts_of(rows: pa.Table) -> Iterator[BytesIO]:
    """Yield the rows as CSV. NULL is nothing, and the empty text two quotes, as COPY reads it."""
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    for start in range(0, max(1, rows.num_rows), ROWS_PER_COPY):
        piece = rows.slice(start, ROWS_PER_COPY)
        text = BytesIO()
        csv.write_csv(pa.table([*map(_written, piece.columns)], names=piece.column_names), text, options)
        text.seek(0)
        yield text


def _written(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column as texts where Arrow would write other ones than Postgres reads."""
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    return column
