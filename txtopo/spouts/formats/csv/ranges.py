"""Reads one byte range of one planned file: as a stream of blocks, and window by window from the first block that does
not parse completely.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts.formats.csv.dialect import has_lines_alone
from txtopo.spouts.formats.csv.good_and_bad import RecordSplitter, SplitWindow
from txtopo.spouts.formats.csv.values import BadValueError, Decoder
from txtopo.spouts.formats.csv.windows import Lines, RecordTooLongError, windows
from txtopo.spouts.formats.format import Emitted, Opened, PlannedFile, Section
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.reject_limit import shown_raw
from txtopo.topology.components import Position

BLOCK_BYTES = 4 * 1024 * 1024
"""Number of bytes that pyarrow parses at a time."""
LOCATED_CHARS_MAX = 300
"""Number of characters of a record that `locate` shows."""


class Piece:
    """One byte range of one file. A piece of a file without quotes begins after the first LF at or after its nominal
    start and ends after the first LF at or after its nominal end, so consecutive pieces have each record once, wherever
    they are cut.
    """

    def __init__(self, opened: Opened, file: PlannedFile, section: Section, decoder: Decoder) -> None:
        self._opened = opened
        self._path = str(file["path"])
        self._is_numbered = bool(file.get("numbered"))
        self._streams = has_lines_alone(file, decoder.dialect) and not self._is_numbered
        self._decoder = decoder
        start, end, size = section.start, section.end, int(file["size"])
        self._start = start if start == file["data"] else self._after_line(start - 1, size)
        self._end = end if end == size else self._after_line(end - 1, size)
        self._lines = Lines(opened.read)

    def emitted(self) -> Iterator[Emitted]:
        """Read the piece as a stream of blocks, and window by window from the first block that does not parse.

        A file with quotes is read window by window from the start: pyarrow's parser accepts text after a closing quote.
        So are files with comments, which it does not know, files that are not UTF-8, and one that is numbered.
        """
        if self._start >= self._end:
            return
        done = 0
        if self._streams:
            try:
                for batch in self._stream():
                    done += batch.num_rows
                    yield Emitted(batch=batch)
                return
            except (BadValueError, pa.ArrowInvalid):
                pass  # The cause is a record that does not parse, or one that is larger than a block.
        for split in self.split_windows():
            rejects, lines = self._placed(split) if split.refused or self._is_numbered else ((), [])
            emitted = 0
            for batch in split.batches:
                # No record before the first failed block is refused, so the rows already emitted are the first ones.
                fresh = batch.slice(min(done, batch.num_rows))
                done -= batch.num_rows - fresh.num_rows
                if fresh.num_rows:
                    numbers = lines[emitted : emitted + fresh.num_rows] if self._is_numbered else None
                    yield Emitted(batch=fresh, numbers=numbers)
                emitted += batch.num_rows
            if rejects:
                yield Emitted(batch=None, rejects=rejects)

    def split_windows(self) -> Iterator[SplitWindow]:
        """Read the piece window by window. Raises BatchDataError that names a record that is too long."""
        splitter = RecordSplitter(self._decoder.telling_infinite())
        try:
            for window in windows(
                self._opened.read, self._start, self._end, self._decoder.dialect, len(self._decoder.header)
            ):
                yield splitter.split(window)
                if self._opened.reads_once:
                    behind = window.start + len(window.data)
                    self._lines.at(behind)
                    self._opened.forget(behind)
        except RecordTooLongError as error:
            position = f"{self._path}:{self._lines.at(error.offset)}"
            raise BatchDataError(
                f"{position}: {error}", component=COMPONENT, position=position, fault="unreadable record"
            ) from None

    def locate(self, number: int) -> Position | int:
        """Return the position of record `number` among those that parse; if there are fewer, how many there are."""
        done = 0
        for split in self.split_windows():
            if number - done < split.rows:
                return self._position(split, number - done)
            done += split.rows
        return done

    def _position(self, split: SplitWindow, number: int) -> Position:
        records = split.records or split.window.taken_apart()
        at = next(itertools.islice((at for at in range(len(records.raws)) if at not in split.refused), number, None))
        return Position(
            position=f"{self._path}:{self._lines.at(split.window.start) + records.lines[at]}",
            raw=shown_raw(records.raws[at].rstrip(b"\r\n"), LOCATED_CHARS_MAX),
        )

    def _placed(self, split: SplitWindow) -> tuple[list[RejectedRow], list[int]]:
        """Return the rejected records of a window, and the lines of its rows."""
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
        if not self._is_numbered:
            return rejects, []
        return rejects, [first_line + line for at, line in enumerate(records.lines) if at not in split.refused]

    def _stream(self) -> Iterator[pa.RecordBatch]:
        return self._decoder.stream(self._source(), BLOCK_BYTES, newlines=False)

    def _source(self) -> Any:
        source = _Stream(self._opened, self._start, self._end)
        if self._end - self._start < BLOCK_BYTES:
            return pa.BufferReader(source.readall())
        return pa.PythonFile(source, mode="r")

    def _after_line(self, offset: int, size: int) -> int:
        """Return the offset after the first LF at or after `offset`; the size of the file if there is none."""
        while offset < size:
            data = self._opened.read(offset, 64 * 1024)
            at = data.find(b"\n")
            if at >= 0:
                return offset + at + 1
            if not data:
                break
            offset += len(data)
        return size


def rows_together(contents: Sequence[bytes], decoder: Decoder) -> pa.RecordBatch | None:
    """Return the rows of whole files without quotes, one after the other; None if some record does not parse. Files
    without a record have no rows.
    """
    # The line end in front as in `_Stream`; one between two files ends the last line of the first one.
    data = b"\n".join((b"", *contents))
    try:
        batches = list(decoder.stream(pa.BufferReader(data), len(data) + 1, newlines=False))
    except (BadValueError, pa.ArrowInvalid):
        return None
    if not batches:
        return decoder.empty
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Stream(io.RawIOBase):
    """A section of a file as a stream, after a line end: then a U+FEFF that starts the first value is not a byte order
    mark.
    """

    def __init__(self, opened: Opened, start: int, end: int) -> None:
        self._opened = opened
        self._offset = start
        self._end = end
        self._before = b"\n"

    def readable(self) -> bool:
        return True

    def readall(self) -> bytes:
        return self.read(1 + self._end - self._offset)

    def read(self, size: int = -1) -> bytes:
        before, self._before = self._before, b""
        left = self._end - self._offset
        wanted = left if size < 0 else min(size - len(before), left)
        data = self._opened.read(self._offset, wanted) if wanted > 0 else b""
        self._offset = self._offset + len(data) if data or wanted <= 0 else self._end
        return before + data if before else data
