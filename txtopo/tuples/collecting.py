"""The collectors that bolts emit through: rows are kept as they come, and made record batches many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.errors import BatchDataError
from txtopo.topology.streams import DEFAULT_STREAM, Stream, Tuple
from txtopo.tuples import acking
from txtopo.tuples.columns import Columns, adder

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLUSH_ROWS = 8192
"""A stream's rows are sent when there are so many."""

FULL_ROWS = 65_536
"""So many rows are sent even before the tuple that emits them is done."""

Send = Callable[[str, pa.RecordBatch, Sequence[int] | None], None]


class Buffer:
    """What was emitted on one stream and not yet sent."""

    __slots__ = ("add", "anchors", "columns", "direct", "first", "named", "values")

    def __init__(self, columns: Columns, direct: frozenset[int] | None) -> None:
        self.columns = columns
        self.direct = direct
        """The tasks that may be named; None: the stream is not direct."""
        self.values: list[list[Any]] = [[] for _ in range(columns.width)]
        """By field. The lists stay the same objects: collectors hold their `append`."""
        self.first = self.values[0]
        """Its length is the number of rows."""
        self.add = adder(self.values, columns)
        self.named: list[int] = []
        """On a direct stream: the task of each row."""
        self.anchors: list[Any] = []
        """Of a RichBolt with tracked tuples: what each row is anchored on. Else of a tracked bolt: how many rows there were after each input tuple."""

    def clear(self) -> None:
        """Forget everything."""
        for values in self.values:
            values.clear()
        self.named.clear()
        self.anchors.clear()


class Buffers:
    """All output streams of one task."""

    def __init__(
        self, component: str, streams: Mapping[str, Stream], send: Send, direct: Callable[[str], frozenset[int]], *,
        tracked: bool, eager: bool,
    ) -> None:  # fmt: skip
        """`eager`: check each row at once, so that an error is raised in the line that emits it."""
        self.component = component
        self.tracked = tracked
        self.eager = eager
        self._send = send
        self.by_stream: dict[str, Buffer] = {}
        for name, stream in streams.items():
            fields = stream.fields
            if isinstance(fields, Fields):
                named = direct(name) if stream.direct else None
                self.by_stream[name] = Buffer(Columns(component, name, fields), named)

    def of(self, stream: str) -> Buffer:
        """The buffer of a declared stream. Raises ValueError for another."""
        buffer = self.by_stream.get(stream)
        if buffer is None:
            declared = ", ".join(self.by_stream) or "none"
            raise ValueError(f"{self.component} declares no stream {stream!r}; its streams: {declared}")
        return buffer

    def plain(self, stream: str) -> Buffer:
        """The same, for emitting without naming a task. Raises ValueError on a direct stream."""
        buffer = self.of(stream)
        if buffer.direct is not None:
            raise ValueError(f"stream {stream!r} of {self.component} is direct: name the task with emit_direct")
        return buffer

    def direct(self, stream: str, task: int) -> Buffer:
        """The same, for emitting to one task. Raises ValueError for a task that does not read the stream directly."""
        buffer = self.of(stream)
        if buffer.direct is None:
            raise ValueError(f"stream {stream!r} of {self.component} is not declared direct: use emit")
        if task not in buffer.direct:
            allowed = ", ".join(map(str, sorted(buffer.direct))) or "none"
            raise ValueError(
                f"task {task!r} does not read stream {stream!r} of {self.component} directly; these do: {allowed}"
            )
        return buffer

    def flush(self, buffer: Buffer, roots: Callable[[Buffer], pa.ListArray] | None = None) -> None:
        """Send what a stream holds. `roots` makes the `$roots` column where tuples are tracked; None: they belong to no tree. Raises BatchDataError."""
        if buffer.first:
            batch = buffer.columns.batch(buffer.values)
            if self.tracked:
                column = acking.no_roots(batch.num_rows) if roots is None else roots(buffer)
                batch = batch.append_column(acking.ROOTS, column)
            self._send(buffer.columns.stream, batch, buffer.named if buffer.direct is not None else None)
        buffer.clear()

    def flush_full(self) -> None:
        """Send the streams that hold many rows; for tasks without tracked tuples."""
        for buffer in self.by_stream.values():
            if len(buffer.first) >= FLUSH_ROWS:
                self.flush(buffer)

    def flush_all(self, roots: Callable[[Buffer], pa.ListArray] | None = None) -> None:
        """Send everything."""
        for buffer in self.by_stream.values():
            self.flush(buffer, roots)

    def drop(self) -> None:
        """Forget everything: the attempt failed."""
        for buffer in self.by_stream.values():
            buffer.clear()


class PlainCollector:
    """For BasicBolt, BatchBolt and BatchCommitter: what is emitted while a tuple is executed is anchored on it."""

    __slots__ = ("_buffers", "emit", "finishing")

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self.finishing = False
        """True in `finish_batch`: rows belong to no input tuple, so that a full buffer can be sent at once."""
        self.emit: Callable[..., None] = self._slow if buffers.eager else self._fast()

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit to one task."""
        buffer = self._buffers.direct(stream, task)
        if self._buffers.eager:
            buffer.columns.row(values)
        buffer.add(values)
        buffer.named.append(task)
        self._flush_full(buffer)

    def _slow(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        buffer = self._buffers.plain(stream)
        if self._buffers.eager:
            buffer.columns.row(values)
        buffer.add(values)
        self._flush_full(buffer)

    def _flush_full(self, buffer: Buffer) -> None:
        if len(buffer.first) >= FLUSH_ROWS and (self.finishing or not self._buffers.tracked):
            self._buffers.flush(buffer)

    def _fast(self) -> Callable[..., None]:
        """An `emit` that costs little more than an append on the default stream: this is the path of every word that is split."""
        default = self._buffers.by_stream.get(DEFAULT_STREAM)
        slow = self._slow
        if default is None or default.direct is not None:
            return slow
        first, append, add, refuse = default.first, default.first.append, default.add, default.columns.refuse

        def emit_one(values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
            if stream is DEFAULT_STREAM and len(first) < FULL_ROWS:
                try:
                    (value,) = values
                except (ValueError, TypeError):
                    refuse(values)
                append(value)
            else:
                slow(values, stream)

        def emit(values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
            if stream is DEFAULT_STREAM and len(first) < FULL_ROWS:
                add(values)
            else:
                slow(values, stream)

        return emit_one if default.columns.width == 1 else emit


class RichCollector:
    """For RichBolt: anchors, acks and fails by hand."""

    __slots__ = ("_buffers", "_fail", "acked", "counting")

    def __init__(self, buffers: Buffers, fail: Callable[[Tuple], None], *, counting: bool) -> None:
        """`fail` is told of tuples that failed. `counting` False: acking is off, and `fail` does nothing."""
        self._buffers = buffers
        self._fail = fail
        self.counting = counting
        self.acked: list[Tuple] = []
        """With tracked tuples: those acked and not yet told."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | Tuple = ()) -> None:
        """Emit one tuple, anchored on `anchors`."""
        self._put(self._buffers.plain(stream), values, anchors)

    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | Tuple = ()
    ) -> None:
        """The same, to one task."""
        buffer = self._buffers.direct(stream, task)
        buffer.named.append(task)
        self._put(buffer, values, anchors)

    def ack(self, tup: Tuple) -> None:
        """This tuple is done."""
        if self._buffers.tracked:
            self.acked.append(tup)

    def fail(self, tup: Tuple) -> None:
        """This tuple failed."""
        if self.counting:
            self._fail(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """A batch goes by progress, not by time."""

    def _put(self, buffer: Buffer, values: Sequence[Any], anchors: Sequence[Tuple] | Tuple) -> None:
        buffers = self._buffers
        if buffers.eager:
            buffer.columns.row(values)
        buffer.add(values)
        if buffers.tracked:
            buffer.anchors.append((anchors,) if isinstance(anchors, Tuple) else tuple(anchors))
        if len(buffer.first) >= FLUSH_ROWS:
            buffers.flush(buffer, anchored_roots)


class ArrowCollector:
    """For ArrowBolt."""

    __slots__ = ("_buffers", "_send", "roots", "rows")

    def __init__(self, buffers: Buffers, send: Send) -> None:
        self._buffers = buffers
        self._send = send
        self.rows = 0
        """Of the input batch at hand."""
        self.roots: pa.ListArray | None = None
        """Its `$roots`; None in `finish_batch` and where tuples are not tracked."""

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM, anchors: Any = None) -> None:
        """Emit a record batch; `anchors` holds the number of the input row of each row."""
        buffer = self._buffers.plain(stream)
        fitted = buffer.columns.fitted(batch)
        positions = self._positions(fitted, anchors)
        if self._buffers.tracked:
            column = (
                acking.no_roots(fitted.num_rows)
                if positions is None or self.roots is None
                else self.roots.take(pa.array(positions))
            )
            fitted = fitted.append_column(acking.ROOTS, column)
        self._send(stream, fitted, None)

    def _positions(self, batch: pa.RecordBatch, anchors: Any) -> NDArray[np.int64] | None:
        if anchors is None:
            return None
        positions = np.asarray(anchors, dtype=np.int64)
        if len(positions) != batch.num_rows:
            raise self._error(f"{len(positions)} anchors for {batch.num_rows} rows")
        if len(positions) and (positions.min() < 0 or positions.max() >= self.rows):
            raise self._error(f"an anchor is none of the {self.rows} rows of its input batch")
        return positions

    def _error(self, what: str) -> BatchDataError:
        return BatchDataError(f"{self._buffers.component}: {what}", component=self._buffers.component)


def anchored_roots(buffer: Buffer) -> pa.ListArray:
    """The `$roots` of rows that a RichBolt emitted: of all their anchors together, each once."""
    return pa.array([_union(anchors) for anchors in buffer.anchors], type=acking.ROOTS_TYPE)


def executed_roots(ends: Iterable[int], rows: int, roots: pa.ListArray) -> pa.ListArray:
    """The `$roots` of `rows` rows, emitted by the input tuples whose roots are given; `ends` are the numbers of rows after each of them."""
    after = np.fromiter(ends, dtype=np.int64)
    counts = after - np.concatenate(([0], after[:-1]))
    if len(counts) == rows and bool(np.all(counts == 1)):
        return roots
    return roots.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _union(anchors: Sequence[Tuple]) -> Sequence[int]:
    if len(anchors) == 1:
        return roots_of(anchors[0])
    return sorted({root for anchor in anchors for root in roots_of(anchor)})


def roots_of(tup: Tuple) -> Sequence[int]:
    """Ids of the spout tuples behind a tuple; none where they are not tracked."""
    origin = tup._origin
    return () if origin.roots is None else origin.roots[tup._row]


def id_of(tup: Tuple) -> int:
    """A tracked tuple's own id."""
    return int(tup._origin.ids[tup._row])
