"""Cuts a section of a CSV file into windows that end at the end of a record, and finds the line number of an offset."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.spouts.formats.csv.dialect import LineCounter, record_pattern

WINDOW_BYTES = 4 * 1024 * 1024
RECORD_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a record in bytes; a longer one is refused."""

ReadBytes = Callable[[int, int], bytes]
"""(offset, size) -> the bytes of the file there, fewer only at its end."""


class RecordTooLongError(ValueError):
    """A record is longer than RECORD_BYTES_MAX."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the record is longer than {RECORD_BYTES_MAX} bytes")
        self.offset = offset
        """Its first byte in the file."""


_NOT_CLOSED = "a quoted value is not closed"
_TEXT_FOLLOWS = "a quoted value is not closed where it should be: text follows its closing quote"
_BLANK_LINES = (b"\n", b"\r\n", b"\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of a window as bytes of the file."""

    raws: list[bytes]
    """The records with their line ends."""
    lines: Sequence[int]
    """For each record, the number of lines of the window before it."""
    lines_count: int
    """Number of lines of the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Consecutive complete records."""

    start: int
    """Offset in the file of its first byte, where a record or a blank line starts."""
    data: bytes
    records: Records | None = None
    """None if the window contains no quote: then every line that is not blank is a record."""
    refused: str | None = None
    """If set, the window is the single line on which a quoted value starts that is not properly closed, and this is the
    reason.
    """

    def taken_apart(self) -> Records:
        """Return its records."""
        return self.records or _records(self.data.splitlines(keepends=True))


def windows(read: ReadBytes, start: int, end: int, delimiter: str, width: int) -> Iterator[Window]:
    """Yield the records in [start, end) of a file with `width` columns; `start` is the start of a record. Raises
    RecordTooLongError.
    """
    offset = start
    wanted = WINDOW_BYTES
    while offset < end:
        data = read(offset, min(wanted, end - offset))
        if not data:
            return  # The file is shorter than before; the comparison with its plan reports that.
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
    """Return the end of the last complete line."""
    # No LF: then CR ends lines, and a CR that is not the last byte is not the first half of a CRLF.
    return len(data) if final else data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1


def _window(start: int, data: bytes, delimiter: str, width: int, *, final: bool) -> Window | None:
    """Return the complete records at the start of `data`, which ends with a line; None if there is none."""
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
            continue  # It is inside a record that started earlier, or is itself a record of any width.
        match = record_pattern(delimiter.encode()).match(data, starts[number])
        if match is None or match.lastindex is not None:
            if number == 0 and match is None:
                return Window(start=start, data=lines[0], refused=_TEXT_FOLLOWS)
            # Not closed in this window. Only one record of a file is never closed, since its quote swallows all that
            # follows.
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
    """Return the records: each line that is not blank, except the lines that are `joined` into one record, as (first
    line, line after the last).
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
    """Return the numbers of all lines except those that are a complete record of `width` columns by themselves."""
    try:
        found = pc.match_substring_regex(pa.array(lines, pa.binary()), _line_pattern(delimiter, width))
    except pa.ArrowInvalid:
        return range(len(lines))  # More columns than such a pattern can count: each line is checked by itself.
    return list(pc.indices_nonzero(pc.invert(found)).to_pylist())


@lru_cache(maxsize=8)
def _line_pattern(delimiter: str, width: int) -> str:
    """Return a pattern for RE2, which is ten times as fast as `re`: a line that is one complete record."""
    sign = re.escape(delimiter)
    value = rf'(?:"(?:[^"]|"")*"|[^"{sign}\r\n][^{sign}\r\n]*|)'
    return rf"^{value}(?:{sign}{value}){{{width - 1}}}(?:\r\n|\r|\n|)$"


class Lines:
    """Finds the line numbers of offsets that are given in ascending order; reads the bytes before them once."""

    def __init__(self, read: ReadBytes) -> None:
        self._read = read
        self._counted = 0
        self._counter = LineCounter()

    def at(self, offset: int) -> int:
        """Return the physical line, from 1, of the byte at `offset`."""
        while self._counted < offset:
            data = self._read(self._counted, min(WINDOW_BYTES, offset - self._counted))
            if not data:
                break
            self._counter.feed(data)
            self._counted += len(data)
        return self._counter.line

    def passed(self, window: Window, lines: int) -> None:
        """Skip the window whose start was the last offset given: its number of lines is known."""
        if self._counted == window.start:
            self._counter = LineCounter(self._counter.line + lines)
            self._counted += len(window.data)
