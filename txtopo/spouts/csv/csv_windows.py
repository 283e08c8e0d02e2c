"""Cuts a stretch of a CSV file into windows that end where a record ends, and tells on which line an offset lies."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.spouts.csv.csv_dialect import LineCounter, record_pattern

WINDOW_BYTES = 4 * 1024 * 1024
RECORD_BYTES_MAX = 64 * 1024 * 1024
"""A longer record is refused."""

ReadBytes = Callable[[int, int], bytes]
"""(offset, size) -> the file's bytes there, fewer only at its end."""


class RecordTooLongError(ValueError):
    """A record is longer than RECORD_BYTES_MAX."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the record is longer than {RECORD_BYTES_MAX} bytes")
        self.offset = offset
        """Where it starts in the file."""


_NOT_CLOSED = "a quoted value is not closed"
_TEXT_FOLLOWS = "a quoted value is not closed where it should be: text follows its closing quote"
_BLANK_LINES = (b"\n", b"\r\n", b"\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of a window as they stand there."""

    raws: list[bytes]
    """With their line ends."""
    lines: Sequence[int]
    """Of each the number of lines of the window before it."""
    lines_count: int
    """Lines of the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some whole records that follow one another."""

    start: int
    """Offset in the file of its first byte, where a record or a blank line starts."""
    data: bytes
    records: Records | None = None
    """None where no quote is in it: every line that is not blank is a record."""
    refused: str | None = None
    """Set: it is the one line on which a quoted value starts that has no good end, and this is why."""

    def taken_apart(self) -> Records:
        """Its records."""
        return self.records or _records(self.data.splitlines(keepends=True))


def windows(read: ReadBytes, start: int, end: int, delimiter: str, width: int) -> Iterator[Window]:
    """The records in [start, end) of a file with `width` columns; `start` is a record's start. Raises
    RecordTooLongError.
    """
    offset = start
    wanted = WINDOW_BYTES
    while offset < end:
        data = read(offset, min(wanted, end - offset))
        if not data:
            return  # The file has become shorter: comparing it with its plan tells.
        final = offset + len(data) >= end or len(data) < wanted
        window = _window(offset, data[: _whole_lines(data, final=final)], delimiter, width, final=final)
        if window is None:
            if wanted >= RECORD_BYTES_MAX:
                raise RecordTooLongError(offset)
            wanted = min(2 * wanted, RECORD_BYTES_MAX)
            continue
        yield window
        offset += len(window.data)
        wanted = WINDOW_BYTES


def _whole_lines(data: bytes, *, final: bool) -> int:
    """Where the last line ends that is whole."""
    # No LF: then CR ends lines, and one that is not the last byte is not the first half of CRLF.
    return len(data) if final else data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1


def _window(start: int, data: bytes, delimiter: str, width: int, *, final: bool) -> Window | None:
    """The whole records at the start of `data`, which ends with a line; None where there is none."""
    if not data:
        return None
    if b'"' not in data:
        return Window(start=start, data=data)
    lines = data.splitlines(keepends=True)
    joined: list[tuple[int, int]] = []
    starts = list(itertools.accumulate(map(len, lines), initial=0))
    done = 0
    for number in _others(lines, delimiter, width):
        if number < done or b'"' not in lines[number]:
            continue  # Inside a record that started before it, or a record whatever its width.
        match = record_pattern(delimiter.encode()).match(data, starts[number])
        if match is None or match.lastindex is not None:
            if number == 0 and match is None:
                return Window(start=start, data=lines[0], refused=_TEXT_FOLLOWS)
            # Not closed in here. Only one record of a file is never closed, for its quote takes all that follows.
            if number == 0:
                return Window(start=start, data=lines[0], refused=_NOT_CLOSED) if final else None
            data = data[: starts[number]]
            lines = lines[:number]
            break
        done = bisect.bisect_left(starts, match.end())
        if done > number + 1:
            joined.append((number, done))
    return Window(start=start, data=data, records=_records(lines, joined))


def _records(lines: list[bytes], joined: Sequence[tuple[int, int]] = ()) -> Records:
    """A record is a line that is not blank, but for those that are `joined` to one: (first line, line behind the
    last).
    """
    raws: list[bytes] = []
    numbers: list[int] = []
    done = 0
    blanks = min(map(len, lines)) <= len(b"\r\n")
    for first, behind in (*joined, (len(lines), len(lines))):
        chosen: Sequence[int] = range(done, first)
        if blanks:
            chosen = [number for number in chosen if lines[number] not in _BLANK_LINES]
        raws.extend([lines[number] for number in chosen] if blanks else lines[done:first])
        numbers.extend(chosen)
        if first < behind:
            raws.append(b"".join(lines[first:behind]))
            numbers.append(first)
        done = behind
    return Records(raws=raws, lines=numbers, lines_count=len(lines))


def _others(lines: list[bytes], delimiter: str, width: int) -> Sequence[int]:
    """Numbers of all lines but those that, taken alone, are a whole record of `width` columns."""
    try:
        found = pc.match_substring_regex(pa.array(lines, pa.binary()), _line_pattern(delimiter, width))
    except pa.ArrowInvalid:
        return range(len(lines))  # More columns than such a pattern can count: each line is looked at by itself.
    return list(pc.indices_nonzero(pc.invert(found)).to_pylist())


@lru_cache(maxsize=8)
def _line_pattern(delimiter: str, width: int) -> str:
    """For RE2, which is ten times as fast as `re`: a line that is one whole record."""
    sign = re.escape(delimiter)
    value = rf'(?:"(?:[^"]|"")*"|[^"{sign}\r\n][^{sign}\r\n]*|)'
    return rf"^{value}(?:{sign}{value}){{{width - 1}}}(?:\r\n|\r|\n|)$"


class Lines:
    """Tells the line of offsets that are asked for in rising order; reads what lies before them once."""

    def __init__(self, read: ReadBytes) -> None:
        self._read = read
        self._counted = 0
        self._counter = LineCounter()

    def at(self, offset: int) -> int:
        """1-based physical line on which the byte at `offset` lies."""
        while self._counted < offset:
            data = self._read(self._counted, min(WINDOW_BYTES, offset - self._counted))
            if not data:
                break
            self._counter.feed(data)
            self._counted += len(data)
        return self._counter.line

    def passed(self, window: Window, lines: int) -> None:
        """The window, whose start was asked for last, has so many lines: they need not be counted."""
        if self._counted == window.start:
            self._counter = LineCounter(self._counter.line + lines)
            self._counted += len(window.data)
