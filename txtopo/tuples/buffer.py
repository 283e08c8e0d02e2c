"""Keeps the tuples that a task emits, and makes record batches of many rows at a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.topology.streams import Stream
from txtopo.tuples.columns import Columns, adder
from txtopo.tuples.roots import Roots

FLUSH_ROWS = 8192
"""Number of rows at which a stream is sent."""

TRACKED_ROWS = 32_768
"""A tracked BasicBolt or BatchBolt sends its rows between two tuples, when all streams together have this number: few
messages, and room for what one tuple may emit.
"""

FULL_ROWS = 65_536
"""If tuples are not tracked, this number of rows is sent even before the tuple that emits them is done."""

GROUPED_FULL_ROWS = 16_384
"""The same on a stream whose rows are grouped before they leave. It makes no more messages, and what waits fits the
cache of a core.
"""


class Output(Protocol):
    """Where the rows of a task go."""

    def send(
        self, stream: str, batch: pa.RecordBatch, roots: Roots | None = None, named: Sequence[int] | None = None
    ) -> None:
        """Send rows of a stream: with their roots if tuples are tracked, with the task of each row on a direct
        stream.
        """

    def direct_tasks(self, stream: str) -> frozenset[int]:
        """Return the tasks that read a stream with a direct grouping."""

    def is_grouped(self, stream: str) -> bool:
        """True if all rows of a stream are grouped before they leave."""


class Buffer:
    """Tuples that were emitted on one stream and not yet sent."""

    __slots__ = ("add", "anchors", "columns", "direct", "ends", "first", "full_rows", "named", "values")

    def __init__(self, columns: Columns, direct: frozenset[int] | None, full_rows: int = FULL_ROWS) -> None:
        self.columns = columns
        self.full_rows = full_rows
        """See FULL_ROWS."""
        self.direct = direct
        """The tasks that may be named; None: the stream is not direct."""
        self.values: list[list[Any]] = [[] for _ in range(columns.width)]
        """Values by field. The lists stay the same objects: collectors hold their `append`."""
        self.first = self.values[0]
        """Its length is the number of rows."""
        self.add = adder(self.values, columns)
        self.named: list[int] = []
        """The task of each row, on a direct stream."""
        self.anchors: list[Any] = []
        """For a RichBolt with tracked tuples: what each row is anchored on."""
        self.ends = array("q")
        """For another bolt with tracked tuples: the number of rows after each input tuple."""

    def clear(self) -> None:
        """Discard all rows."""
        for values in self.values:
            values.clear()
        self.named.clear()
        self.anchors.clear()
        del self.ends[:]


class Buffers:
    """All output streams of one task."""

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        output: Output,
        *,
        tracked: bool,
        eager: bool,
    ) -> None:
        """`eager`: check each row immediately, so that an error is raised in the line that emits it."""
        self.component = component
        self.tracked = tracked
        self.eager = eager
        self._send = output.send
        self.by_stream: dict[str, Buffer] = {}
        for name, stream in streams.items():
            fields = stream.fields
            if isinstance(fields, Fields):
                named = output.direct_tasks(name) if stream.direct else None
                full_rows = GROUPED_FULL_ROWS if output.is_grouped(name) else FULL_ROWS
                self.by_stream[name] = Buffer(Columns(component, name, fields), named, full_rows)

    def of(self, stream: str) -> Buffer:
        """Return the buffer of a declared stream. Raises ValueError for another, TypeError if `stream` is no text."""
        if not isinstance(stream, str):
            raise TypeError(
                f"emit takes values first, then a stream's name: emit(values, anchors=[tuple]), not {stream!r} as "
                f"the stream"
            )
        buffer = self.by_stream.get(stream)
        if buffer is None:
            declared = ", ".join(self.by_stream) or "none"
            raise ValueError(f"{self.component} declares no stream {stream!r}; its streams: {declared}")
        return buffer

    def plain(self, stream: str) -> Buffer:
        """Return the buffer for emitting without a task. Raises ValueError on a direct stream; see also `of`."""
        buffer = self.of(stream)
        if buffer.direct is not None:
            raise ValueError(f"stream {stream!r} of {self.component} is direct: name the task with emit_direct")
        return buffer

    def direct(self, stream: str, task: int) -> Buffer:
        """Return the buffer for emitting to one task. Raises ValueError for a task that does not read the stream
        directly; see also `of`.
        """
        buffer = self.of(stream)
        if buffer.direct is None:
            raise ValueError(f"stream {stream!r} of {self.component} is not declared direct: use emit")
        if task not in buffer.direct:
            allowed = ", ".join(map(str, sorted(buffer.direct))) or "none"
            raise ValueError(
                f"task {task!r} does not read stream {stream!r} of {self.component} directly; these do: {allowed}"
            )
        return buffer

    def flush(self, buffer: Buffer, roots: Callable[[Buffer], Roots] | None = None) -> None:
        """Send the rows of a stream. `roots` returns their roots if tuples are tracked; None: they belong to no tree.
        Raises BatchDataError.
        """
        if buffer.first:
            batch = buffer.columns.batch(buffer.values)
            found = (roots(buffer) if roots is not None else Roots.none(batch.num_rows)) if self.tracked else None
            self._send(buffer.columns.stream, batch, found, buffer.named if buffer.direct is not None else None)
        buffer.clear()

    def flush_full(self) -> None:
        """Send the streams with many rows; for tasks without tracked tuples."""
        for buffer in self.by_stream.values():
            if len(buffer.first) >= FLUSH_ROWS:
                self.flush(buffer)

    def flush_all(self, roots: Callable[[Buffer], Roots] | None = None) -> None:
        """Send everything."""
        for buffer in self.by_stream.values():
            self.flush(buffer, roots)

    @property
    def rows(self) -> int:
        """Number of rows that were emitted and not sent."""
        return sum(len(buffer.first) for buffer in self.by_stream.values())

    def drop(self) -> None:
        """Discard all rows, because the attempt failed."""
        for buffer in self.by_stream.values():
            buffer.clear()
