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

from txtopo.spouts.formats.csv.dialect import Dialect, LineCounter, field_pattern, record_pattern

WINDOW_BYTES = 4 * 1024 * 1024
AFTER_REFUSED_BYTES = 1024
"""Size of a window after a line that is refused; each one after it has twice the size of the one before."""
LONG_RECORD_BYTES = 64 * 1024
"""A longer record with quotes at the start of a window is the window."""
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


_NOT_CLOSED = ("a quoted value is not closed, or an escape has nothing after it", "a quoted value is not closed")
_TEXT_FOLLOWS = "a quoted value is not closed where it should be: text follows its closing quote"
_FIRST_LINE = re.compile(rb"[^\r\n]*+(?:\r\n|\r|\n|\Z)")
_BLANK_LINES = (b"\n", b"\r\n", b"\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of a window as bytes of the file."""

    raws: list[bytes]
    """The records with their line ends."""
    parsed: list[bytes]
    """The same as the parser receives them: without escapes."""
    lines: Sequence[int]
    """For each record, the number of lines of the window before it."""
    lines_count: int
    """Number of lines of the window."""
    differs: bool = False
    """True if the window has comments or escapes."""


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

    @property
    def parsed(self) -> bytes:
        """Return what the parser receives: its data without comments and escapes."""
        records = self.records
        return self.data if records is None or not records.differs else b"".join(records.parsed)


def windows(read: ReadBytes, start: int, end: int, dialect: Dialect, width: int) -> Iterator[Window]:
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
        whole = _whole_lines(data, final=final)
        window = _window(offset, data[:whole], dialect, width, final=final)
        if window is None:
            if wanted >= RECORD_BYTES_MAX:
                raise RecordTooLongError(offset)
            wanted = min(2 * wanted, RECORD_BYTES_MAX)
            continue
        yield window
        offset += len(window.data)
        # What lies after a line that is refused is taken apart again: little of it, since such lines may be many.
        is_cut = len(window.data) < whole
        wanted = min(AFTER_REFUSED_BYTES if is_cut else 2 * wanted, WINDOW_BYTES)


def _whole_lines(data: bytes, *, final: bool) -> int:
    """Return the end of the last complete line."""
    # No LF: then CR ends lines, and a CR that is not the last byte is not the first half of a CRLF.
    return len(data) if final else data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1


def _window(start: int, data: bytes, dialect: Dialect, width: int, *, final: bool) -> Window | None:
    """Return the complete records at the start of `data`, which ends with a line; None if there is none."""
    if not data:
        return None
    special = dialect.special
    if not any(sign in data for sign in special):
        if dialect.comment is None or not _has_comments(data, dialect.comment):
            return Window(start=start, data=data)
        return Window(start=start, data=data, records=_records(data.splitlines(keepends=True), (), dialect))
    line = _FIRST_LINE.match(data)[0]  # type: ignore[index]
    if any(sign in line for sign in special) and not _is_comment(line, dialect):
        # Looked at first: refused lines may be many, and each begins a window; a long record may have many lines.
        match = record_pattern(dialect).match(data)
        if match is None:
            return Window(start=start, data=line, refused=_TEXT_FOLLOWS)
        if match.lastindex is not None:
            # Not closed in this window. Only one record of a file is never closed, since its quote swallows all that
            # follows.
            return Window(start=start, data=line, refused=_NOT_CLOSED[dialect.escape is None]) if final else None
        if match.end() > LONG_RECORD_BYTES:
            return Window(start=start, data=match[0], records=_one_record(match[0], dialect))
    lines = data.splitlines(keepends=True)
    joined: list[tuple[int, int]] = []
    starts = list(itertools.accumulate(map(len, lines), initial=0))
    done = 0
    for number in _others(lines, dialect, width):
        if number < done or not any(sign in lines[number] for sign in special) or _is_comment(lines[number], dialect):
            continue  # It is inside a record that started earlier, or is itself a record of any width or a comment.
        match = record_pattern(dialect).match(data, starts[number])
        if match is None or match.lastindex is not None:
            data = data[: starts[number]]
            lines = lines[:number]
            break
        done = bisect.bisect_left(starts, match.end())
        if done > number + 1:
            joined.append((number, done))
    return Window(start=start, data=data, records=_records(lines, joined, dialect))


def _one_record(raw: bytes, dialect: Dialect) -> Records:
    """Return a record with its line end, without making anything of each of its lines."""
    count = raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n") + (not raw.endswith((b"\n", b"\r")))
    parsed = _parsed([raw], dialect)
    return Records(raws=[raw], parsed=parsed, lines=[0], lines_count=count, differs=parsed != [raw])


def _records(lines: list[bytes], joined: Sequence[tuple[int, int]] = (), dialect: Dialect | None = None) -> Records:
    """Return the records: each line that is neither blank nor a comment, except the lines that are `joined` into one
    record, as (first line, line after the last). Without `dialect` there are no comments and no escapes.
    """
    raws: list[bytes] = []
    numbers: list[int] = []
    done = 0
    comment = None if dialect is None or dialect.comment is None else dialect.comment.encode()
    skips = comment is not None or min(map(len, lines)) <= len(b"\r\n")
    differs = False
    for first, behind in (*joined, (len(lines), len(lines))):
        chosen: Sequence[int] = range(done, first)
        if skips:
            chosen = [number for number in chosen if lines[number] not in _BLANK_LINES]
        if comment is not None:
            kept = [number for number in chosen if not lines[number].startswith(comment)]
            differs = differs or len(kept) < len(chosen)
            chosen = kept
        raws.extend([lines[number] for number in chosen] if skips else lines[done:first])
        numbers.extend(chosen)
        if first < behind:
            raws.append(b"".join(lines[first:behind]))
            numbers.append(first)
        done = behind
    parsed = raws if dialect is None else _parsed(raws, dialect)
    differs = differs or parsed is not raws
    return Records(raws=raws, parsed=parsed, lines=numbers, lines_count=len(lines), differs=differs)


def records_of(raws: list[bytes], dialect: Dialect) -> Records:
    """Return texts that are known to be one record each, with their line ends."""
    parsed = _parsed(raws, dialect)
    return Records(raws=raws, parsed=parsed, lines=range(len(raws)), lines_count=len(raws), differs=parsed is not raws)


def _parsed(raws: list[bytes], dialect: Dialect) -> list[bytes]:
    """Return records as the parser receives them."""
    return raws if dialect.escape is None else list(map(_rewriter(dialect).rewritten, raws))


def values_of(record: bytes, dialect: Dialect) -> list[bytes]:
    """Return the values of a record, as they are written."""
    pattern, delimiter = _value_pattern(dialect), dialect.delimiter.encode()
    found: list[bytes] = []
    position = 0
    while match := pattern.match(record, position):
        found.append(match[0])
        position = match.end() + 1
        if record[match.end() : position] != delimiter:
            break
    return found


@lru_cache(maxsize=8)
def _value_pattern(dialect: Dialect) -> re.Pattern[bytes]:
    return re.compile(field_pattern(dialect))


class _Rewriter:
    """Turns records of a dialect into what the parser receives: what had an escape is quoted, except a value that is
    NULL as it is written.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._differs = re.compile(b"[" + re.escape(b"".join(dialect.rewritten)) + b"]").search
        self._dialect = dialect
        self._delimiter = dialect.delimiter.encode()
        self._quote = None if dialect.quote is None else dialect.quote.encode()
        self._sign = (dialect.parsed_quote or "").encode()
        self._nulls = frozenset(value.encode(dialect.read_as, "ignore") for value in dialect.null_values)
        escaped = re.escape((dialect.escape or "").encode()) + b"((?s:.))"
        self._escaped = re.compile(escaped)
        self._escaped_in_quotes = re.compile(escaped + b"|" + re.escape(self._quote or b"") * 2)

    def rewritten(self, raw: bytes) -> bytes:
        """Return the record without escapes."""
        if not self._differs(raw):
            return raw
        return self._delimiter.join([self._value(value) for value in values_of(raw, self._dialect)]) + b"\n"

    def _value(self, value: bytes) -> bytes:
        quote, sign = self._quote, self._sign
        if quote is not None and value.startswith(quote):
            inside = self._escaped_in_quotes.sub(lambda match: match[1] or quote, value[1:-1])
        elif value in self._nulls or not self._differs(value):
            return value
        else:
            inside = self._escaped.sub(rb"\1", value)
        return sign + inside.replace(sign, sign + sign) + sign


@lru_cache(maxsize=8)
def _rewriter(dialect: Dialect) -> _Rewriter:
    return _Rewriter(dialect)


def _is_comment(line: bytes, dialect: Dialect) -> bool:
    return dialect.comment is not None and line.startswith(dialect.comment.encode())


def _has_comments(data: bytes, comment: str) -> bool:
    """Return True if a line of data that starts with a line begins with this character."""
    sign = comment.encode()
    return data.startswith(sign) or b"\n" + sign in data or b"\r" + sign in data


def _others(lines: list[bytes], dialect: Dialect, width: int) -> Sequence[int]:
    """Return the numbers of all lines except those that are a complete record of `width` columns by themselves."""
    try:
        found = pc.match_substring_regex(pa.array(lines, pa.binary()), _line_pattern(dialect, width))
    except pa.ArrowInvalid:
        return range(len(lines))  # More columns than such a pattern can count: each line is checked by itself.
    return list(pc.indices_nonzero(pc.invert(found)).to_pylist())


@lru_cache(maxsize=8)
def _line_pattern(dialect: Dialect, width: int) -> str:
    """Return a pattern for RE2, which is ten times as fast as `re`: a line that is one complete record."""
    sign = re.escape(dialect.delimiter)
    quote, escape = re.escape(dialect.quote or ""), re.escape(dialect.escape or "")
    value = rf"[^{sign}{quote}{escape}\r\n][^{sign}{escape}\r\n]*|"
    if quote:
        value = rf"{quote}(?:[^{quote}{escape}]|{quote}{quote})*{quote}|{value}"
    return rf"^(?:{value})(?:{sign}(?:{value})){{{width - 1}}}(?:\r\n|\r|\n|)$"


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
