"""Reads one byte range of one planned file: as a stream of blocks, and window by window from the first block that does
not parse completely.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.plan import Metadata
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts.csv.good_and_bad import RecordSplitter, SplitWindow
from txtopo.spouts.csv.values import BadValueError, Decoder
from txtopo.spouts.csv.windows import Lines, RecordTooLongError, windows
from txtopo.spouts.fingerprint import read_at
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.reject_limit import shown_raw
from txtopo.topology.components import Position

BLOCK_BYTES = 4 * 1024 * 1024
"""Number of bytes that pyarrow parses at a time."""
LOCATED_CHARS_MAX = 300
"""Number of characters of a record that `locate` shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRows:
    """A section of a piece: its rows, and the records that do not parse."""

    batch: pa.RecordBatch | None
    rejects: Sequence[RejectedRow] = ()


class Piece:
    """One byte range of one file."""

    def __init__(
        self, descriptor: int, metadata: Metadata, file: Mapping[str, Any], planned: Fields, start: int, end: int
    ) -> None:
        self._descriptor = descriptor
        self._path = str(file["path"])
        self._quotes = bool(file["quotes"])
        self._decoder = Decoder(
            tuple(metadata["headers"][file["header"]]),
            planned,
            metadata["format"]["delimiter"],
            may_hold_nul=file["nul"],
            may_hold_hexadecimal=file["hexadecimal"],
            null_values=tuple(metadata["format"]["null_values"]),
            tells_infinite=False,
        )
        self._start = start if start == file["data"] else self._after_line(start - 1, file["size"])
        self._end = end if end == file["size"] else self._after_line(end - 1, file["size"])
        self._lines = Lines(self._read)

    def emitted(self) -> Iterator[RangeRows]:
        """Read the piece as a stream of blocks, and window by window from the first block that does not parse.

        A file with quotes is read window by window from the start: pyarrow's parser accepts text after a closing quote.
        """
        if self._start >= self._end:
            return
        done = 0
        if not self._quotes:
            try:
                for batch in self._stream():
                    done += batch.num_rows
                    yield RangeRows(batch=batch)
                return
            except (BadValueError, pa.ArrowInvalid):
                pass  # The cause is a record that does not parse, or one that is larger than a block.
        for split in self.split_windows():
            rejects = self._rejects(split) if split.refused else ()
            for batch in split.batches:
                # No record before the first failed block is refused, so the rows already emitted are the first ones.
                fresh = batch.slice(min(done, batch.num_rows))
                done -= batch.num_rows - fresh.num_rows
                if fresh.num_rows:
                    yield RangeRows(batch=fresh)
            if rejects:
                yield RangeRows(batch=None, rejects=rejects)

    def split_windows(self) -> Iterator[SplitWindow]:
        """Read the piece window by window. Raises BatchDataError that names a record that is too long."""
        splitter = RecordSplitter(self._decoder.telling_infinite())
        try:
            for window in windows(
                self._read, self._start, self._end, self._decoder.delimiter, len(self._decoder.header)
            ):
                yield splitter.split(window)
        except RecordTooLongError as error:
            position = f"{self._path}:{self._lines.at(error.offset)}"
            raise BatchDataError(
                f"{position}: {error}", component=COMPONENT, position=position, fault="unreadable record"
            ) from None

    def position(self, split: SplitWindow, number: int) -> Position:
        """Return the position of record `number` among those of the window that parse."""
        records = split.records or split.window.taken_apart()
        at = next(itertools.islice((at for at in range(len(records.raws)) if at not in split.refused), number, None))
        return Position(
            position=f"{self._path}:{self._lines.at(split.window.start) + records.lines[at]}",
            raw=shown_raw(records.raws[at].rstrip(b"\r\n"), LOCATED_CHARS_MAX),
        )

    def _rejects(self, split: SplitWindow) -> list[RejectedRow]:
        first_line = self._lines.at(split.window.start)
        records = split.records or split.window.taken_apart()
        rejects = []
        for number, reason in split.refused.items():
            raw = records.raws[number].rstrip(b"\r\n")
            rejects.append(
                RejectedRow(
                    path=self._path,
                    line=first_line + records.lines[number],
                    reason=reason,
                    raw=raw[:REJECTED_RAW_BYTES_MAX],
                    raw_bytes=len(raw),
                )
            )
        self._lines.passed(split.window, records.lines_count)
        return rejects

    def _stream(self) -> Iterator[pa.RecordBatch]:
        return self._decoder.stream(self._source(), BLOCK_BYTES, newlines=False)

    def _source(self) -> Any:
        # The range starts one byte earlier, at a line end: then a U+FEFF that starts the first value is not a byte
        # order mark.
        source = _Range(self._descriptor, self._start - 1, self._end)
        if self._end - self._start < BLOCK_BYTES:
            return pa.BufferReader(source.readall())
        return pa.PythonFile(source, mode="r")

    def _read(self, offset: int, size: int) -> bytes:
        return read_at(self._descriptor, offset, size)

    def _after_line(self, offset: int, size: int) -> int:
        """Return the offset after the first LF at or after `offset`; the size of the file if there is none."""
        while offset < size:
            data = self._read(offset, 64 * 1024)
            at = data.find(b"\n")
            if at >= 0:
                return offset + at + 1
            if not data:
                break
            offset += len(data)
        return size


class _Range(io.RawIOBase):
    """A section of a file as a stream. The caller closes the descriptor."""

    def __init__(self, descriptor: int, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._offset = start
        self._end = end

    def readable(self) -> bool:
        return True

    def readall(self) -> bytes:
        return self.read(self._end - self._offset)

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._offset
        wanted = left if size < 0 else min(size, left)
        data = read_at(self._descriptor, self._offset, wanted) if wanted > 0 else b""
        self._offset = self._offset + len(data) if data else self._end
        return data
