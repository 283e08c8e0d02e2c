"""Messages as Arrow rows and back: Spark moves these rows from level to level."""

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
"""The same for Spark; in backticks, because a session may read `order` as a keyword."""
KEY = ("run", "target", "source", "kind", "edge", "seq")
"""Sorted by these columns, messages are in the order that the runtime needs."""
MESSAGES_MAX = 2048
BYTES_MAX = 4 * 2**20
"""A record batch of messages is complete when it reaches one of these limits."""


def encode(messages: Iterable[Message], order: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield rows of messages, many per record batch. `part` is the same for all messages to one task of one run, and
    never below 0.

    `order` is the number of the order that the sending task works for: the driver, which knows its own orders, reads it
    in the messages that it receives.
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
    """Yield the messages in such rows. `packed`: with bodies as bytes, for `Engine.level`, which passes some of them on
    unread.
    """
    for batch in batches:
        columns = [
            batch.column(name).to_pylist()
            for name in ("run", "target", "source", "kind", "edge", "seq", "rows", "body")
        ]
        for row in zip(*columns, strict=True):
            yield Message._make((*row[:7], row[7] if packed else unpack(row[7])))


def orders_in(batches: Iterable[pa.RecordBatch]) -> set[int]:
    """Return the numbers of the orders that such rows were sent for."""
    return {number for batch in batches for number in pc.unique(batch.column("order")).to_pylist()}


def pack(body: pa.RecordBatch | bytes | None) -> bytes | None:
    """Return a body as an Arrow IPC stream."""
    if body is None or isinstance(body, bytes):
        return body
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, body.schema) as writer:
        writer.write_batch(body)
    return bytes(sink.getvalue())


def unpack(body: pa.RecordBatch | bytes | None) -> pa.RecordBatch | None:
    """Return the body in such a stream."""
    if not isinstance(body, bytes):
        return body
    with pa.ipc.open_stream(body) as reader:
        return reader.read_next_batch()


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
