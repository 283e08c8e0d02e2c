"""The collectors through which bolts emit, ack and fail tuples."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txtopo.errors import BatchDataError
from txtopo.topology.streams import DEFAULT_STREAM, Tuple
from txtopo.tuples.buffer import FLUSH_ROWS, Buffer, Buffers, Output
from txtopo.tuples.roots import Ints, Roots
from txtopo.tuples.user_errors import shown_value

if TYPE_CHECKING:
    from numpy.typing import NDArray


UNANSWERED, ACKED, FAILED = 0, 1, 2
"""A RichBolt's answer for a tuple."""


class PlainCollector:
    """For BasicBolt, BatchBolt and BatchCommitter: tuples emitted while an input tuple is executed are anchored on
    it.
    """

    __slots__ = ("_buffers", "emit", "finishing")

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self.finishing = False
        """True in `finish_batch`: rows belong to no input tuple, so that a full buffer can be sent immediately."""
        self.emit: Callable[..., None] = self._slow if buffers.eager else self._fast()

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit to one task."""
        buffer = self._buffers.direct(stream, task)
        if self._buffers.eager:
            buffer.columns.check(values)
        buffer.add(values)
        buffer.named.append(task)
        self._flush_full(buffer)

    def _slow(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        buffer = self._buffers.plain(stream)
        if self._buffers.eager:
            buffer.columns.check(values)
        buffer.add(values)
        self._flush_full(buffer)

    def _flush_full(self, buffer: Buffer) -> None:
        if len(buffer.first) >= FLUSH_ROWS and (self.finishing or not self._buffers.tracked):
            self._buffers.flush(buffer)

    def _fast(self) -> Callable[..., None]:
        """Return an `emit` that costs little more than an append on the default stream, which most tuples use."""
        default = self._buffers.by_stream.get(DEFAULT_STREAM)
        slow = self._slow
        if default is None or default.direct is not None:
            return slow
        first, append, add = default.first, default.first.append, default.add
        full = default.full_rows

        def emit_one(values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
            # The usual kind first: each comparison costs time for every tuple. To unpack costs less than to ask for
            # the length.
            if stream is DEFAULT_STREAM and len(first) < full:
                if type(values) is tuple or type(values) is list:
                    try:
                        (value,) = values
                    except ValueError:
                        pass
                    else:
                        append(value)
                        return
                add(values)
            else:
                slow(values, stream)

        def emit(values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
            if stream is DEFAULT_STREAM and len(first) < full:
                add(values)
            else:
                slow(values, stream)

        return emit_one if default.columns.width == 1 else emit


class RichCollector:
    """For RichBolt: it anchors, acks and fails explicitly."""

    __slots__ = ("_buffers", "_fail", "_repeated", "acked", "answers", "counting")

    def __init__(
        self, buffers: Buffers, fail: Callable[[Tuple], None], repeated: Callable[[Tuple], None], *, counting: bool
    ) -> None:
        """`fail` is called for tuples that failed, `repeated` for those acked twice. `counting` False: acking is off,
        and `fail` does nothing.
        """
        self._buffers = buffers
        self._fail = fail
        self._repeated = repeated
        self.counting = counting
        self.answers: dict[int | None, bytearray] = {}
        """The answers by the number of the tuple's origin, one byte per row."""
        self.acked: list[Tuple] = []
        """With tracked tuples: those acked and not yet sent to the ackers."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | Tuple = ()) -> None:
        """Emit one tuple, anchored on `anchors`."""
        self._put(self._buffers.plain(stream), values, anchors)

    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | Tuple = ()
    ) -> None:
        """Emit one tuple to one task, anchored on `anchors`."""
        self._put(self._buffers.direct(stream, task), values, anchors, task)

    def ack(self, tup: Tuple) -> None:
        """Ack a tuple: it is done."""
        check_tuple("ack", tup)
        answers = self.answers.get(tup._origin.number)
        if answers is not None:
            if answers[tup._row] == ACKED:
                self._repeated(tup)
            answers[tup._row] = answers[tup._row] or ACKED
        if self._buffers.tracked:
            self.acked.append(tup)

    def fail(self, tup: Tuple) -> None:
        """Fail a tuple."""
        check_tuple("fail", tup)
        answers = self.answers.get(tup._origin.number)
        if answers is not None:
            answers[tup._row] = FAILED
        if self.counting:
            self._fail(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Check the argument only: a batch is abandoned when it makes no progress, not after a time."""
        check_tuple("reset_timeout", tup)

    def _put(
        self, buffer: Buffer, values: Sequence[Any], anchors: Sequence[Tuple] | Tuple, task: int | None = None
    ) -> None:
        buffers = self._buffers
        anchored = (anchors,) if isinstance(anchors, Tuple) else checked_anchors(anchors)
        if buffers.eager:
            buffer.columns.check(values)
        buffer.add(values)
        # Only now: a refused row must not leave its task in the list.
        if task is not None:
            buffer.named.append(task)
        if buffers.tracked:
            buffer.anchors.append(anchored)
        if len(buffer.first) >= FLUSH_ROWS:
            buffers.flush(buffer, anchored_roots)


class ArrowCollector:
    """For ArrowBolt."""

    __slots__ = ("_buffers", "_send", "roots", "rows")

    def __init__(self, buffers: Buffers, output: Output) -> None:
        self._buffers = buffers
        self._send = output.send
        self.rows = 0
        """Number of rows of the current input batch."""
        self.roots: Roots | None = None
        """Roots of its rows; None in `finish_batch`, and if tuples are not tracked."""

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM, anchors: Any = None) -> None:
        """Emit a record batch; `anchors` contains, for each row, the number of its input row."""
        buffer = self._buffers.plain(stream)
        fitted = buffer.columns.fitted(batch)
        positions = self._positions(fitted, anchors)
        roots = None
        if self._buffers.tracked:
            roots = (
                Roots.none(fitted.num_rows) if positions is None or self.roots is None else self.roots.take(positions)
            )
        self._send(stream, fitted, roots, None)

    def _positions(self, batch: pa.RecordBatch, anchors: Any) -> NDArray[np.int64] | None:
        if anchors is None:
            return None
        numbers = np.asarray(anchors)
        if len(numbers) and numbers.dtype.kind not in "iu":
            raise self._error(f"anchors are numbers of input rows, not {numbers.dtype}")
        positions = numbers.astype(np.int64)
        if len(positions) != batch.num_rows:
            raise self._error(f"{len(positions)} anchors for {batch.num_rows} rows")
        if len(positions) and (positions.min() < 0 or positions.max() >= self.rows):
            raise self._error(f"an anchor is none of the {self.rows} rows of its input batch")
        return positions

    def _error(self, what: str) -> BatchDataError:
        return BatchDataError(f"{self._buffers.component}: {what}", component=self._buffers.component)


def check_tuple(method: str, tup: object) -> None:
    """Raise TypeError for anything except a tuple that the bolt received, with acking on or off."""
    if not isinstance(tup, Tuple):
        raise TypeError(f"{method} needs a tuple that the bolt received, not {shown_value(tup)} ({type(tup).__name__})")


def checked_anchors(anchors: Iterable[Tuple]) -> Sequence[Tuple]:
    """Return the tuples that a row is anchored on. Raises TypeError as `check_tuple` does."""
    if not isinstance(anchors, Iterable):
        raise TypeError(
            f"anchors={anchors!r}: a tuple that the bolt was given is wanted, or a list of them; () for none"
        )
    found = tuple(anchors)
    for anchor in found:
        check_tuple("anchors", anchor)
    return found


def anchored_roots(buffer: Buffer) -> Roots:
    """Return the roots of rows that a RichBolt emitted: the roots of all their anchors together, each once."""
    return Roots.of_rows(map(_union, buffer.anchors))


def executed_roots(ends: array[int], roots: Roots) -> Roots:
    """Return the roots of rows that input tuples with these `roots` emitted; `ends` are the numbers of rows after each
    of them.
    """
    after: Ints = np.array(ends, dtype=np.int64)  # A copy: `ends` is cleared and filled again.
    return roots.spread(after)


def _union(anchors: Sequence[Tuple]) -> Sequence[int]:
    if len(anchors) == 1:
        return roots_of(anchors[0])
    return sorted({root for anchor in anchors for root in roots_of(anchor)})


def roots_of(tup: Tuple) -> Sequence[int]:
    """Return the ids of the spout tuples that a tuple came from; empty if they are not tracked."""
    origin = tup._origin
    return () if origin.roots is None else origin.roots[tup._row]


def id_of(tup: Tuple) -> int:
    """Return a tuple's own id, if there are ackers."""
    return int(tup._origin.ids[tup._row])
