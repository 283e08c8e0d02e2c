"""Messages as Arrow rows and back: what Spark moves from level to level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.tuples.message import Message

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("run", pa.int32()),
        ("target", pa.int32()),
        ("source", pa.int64()),
        ("kind", pa.int32()),
        ("edge", pa.int32()),
        ("seq", pa.int64()),
        ("rows", pa.int64()),
        ("body", pa.binary()),
        ("order", pa.int64()),
    ]
)
_SPARK = {pa.int32(): "int", pa.int64(): "bigint", pa.binary(): "binary"}
DDL = ", ".join(f"`{field.name}` {_SPARK[field.type]}" for field in SCHEMA)
"""The same for Spark; in backticks, since a session may take `order` for a keyword."""
KEY = ("run", "target", "source", "kind", "edge", "seq")
"""Sorted by these columns, messages come to their tasks as the runtime wants them."""
MESSAGES_MAX = 2048
BYTES_MAX = 4 * 2**20
"""A record batch of messages is closed when it has one of these."""


def encode(messages: Iterable[Message], order: int = 0) -> Iterator[pa.RecordBatch]:
    """Rows of messages, many to a record batch. `part` is the same for all messages to one task of one run, and never
    below 0.

    `order` is the number of the order that the task which sends them works for: it stays with what goes to the driver,
    which knows its own.
    """
    rows: list[tuple[object, ...]] = []
    size = 0
    for message in messages:
        body = pack(message.body)
        size += len(body) if body is not None else 0
        rows.append((message.run + message.target, *message[:7], body, order))
        if len(rows) >= MESSAGES_MAX or size >= BYTES_MAX:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def decode(batches: Iterable[pa.RecordBatch], *, packed: bool = False) -> Iterator[Message]:
    """The messages of such rows. `packed`: with bodies as the bytes they are, for `Engine.level`, which passes some of
    them on unread.
    """
    for batch in batches:
        columns = [
            batch.column(name).to_pylist()
            for name in ("run", "target", "source", "kind", "edge", "seq", "rows", "body")
        ]
        for row in zip(*columns, strict=True):
            yield Message._make((*row[:7], row[7] if packed else unpack(row[7])))


def orders_in(batches: Iterable[pa.RecordBatch]) -> set[int]:
    """Numbers of the orders that such rows were sent for."""
    return {number for batch in batches for number in pc.unique(batch.column("order")).to_pylist()}


def pack(body: pa.RecordBatch | bytes | None) -> bytes | None:
    """A body as an Arrow IPC stream."""
    if body is None or isinstance(body, bytes):
        return body
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, body.schema) as writer:
        writer.write_batch(body)
    return bytes(sink.getvalue())


def unpack(body: pa.RecordBatch | bytes | None) -> pa.RecordBatch | None:
    """The body of such a stream."""
    if not isinstance(body, bytes):
        return body
    with pa.ipc.open_stream(body) as reader:
        return reader.read_next_batch()


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
