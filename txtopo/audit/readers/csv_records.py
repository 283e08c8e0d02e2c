"""Reads the records of a CSV file with separate code of the audit: RFC 4180, plain Python, nothing shared with the
spouts.

A field that starts with a quote ends at the next single quote and may contain delimiters and line ends; two quotes in
it are one. After the closing quote, the delimiter or the end of the line must follow; otherwise this is not a record. A
quote anywhere else is an ordinary character. Lines end with LF, CRLF or CR. Blank lines are not records. A byte order
mark at the start of the file is skipped. Where there is an escape character, the character after it belongs to the
value, also a line end; a line that starts with the comment character is no record.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from txtopo.audit.readers.reader import TooLongError

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a record in bytes; a longer one is not read to its end."""
_NO_CHARACTER = "txtopo.audit.no_character"
_MARK = b"\xef\xbb\xbf"
_NOT_QUOTED: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record."""

    line: int
    """Physical line, from 1, where it starts."""
    fields: list[bytes]
    quoted: frozenset[int]
    """Indexes of the fields that were in quotes."""
    raw: bytes
    """The bytes in the file, without the line end."""
    closed: bool = True
    """False: a quoted value is never closed, or text follows its closing quote; only the line where the record starts
    is taken, and reading continues after it.
    """


def text_chunks(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the text of a file in UTF-8. What is no character becomes bytes that are no UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)(_NO_CHARACTER)
    for chunk in chunks:
        if text := decoder.decode(chunk):
            yield text.encode("utf-8", "surrogatepass")
    if text := decoder.decode(b"", True):
        yield text.encode("utf-8", "surrogatepass")


def _no_character(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError):
        return chr(0xDCFF), error.end
    raise error


codecs.register_error(_NO_CHARACTER, _no_character)


def csv_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield physical lines with their ends, without a byte order mark. Raises TooLongError."""
    rest = b""
    start = True
    for first in chunks:
        chunk = first
        if start:
            while len(chunk) < len(_MARK) and (more := next(chunks, b"")):
                chunk += more
            chunk = chunk.removeprefix(_MARK)
            start = False
        lines = (rest + chunk).splitlines(keepends=True)
        # What has no LF at its end may go on in the next chunk; a CR may be the first half of CRLF.
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if len(rest) > RECORD_BYTES_MAX:
            raise TooLongError(f"a line is longer than {RECORD_BYTES_MAX} bytes")
        yield from lines
    if rest:
        yield from rest.splitlines(keepends=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvMarks:
    """The characters that divide a file into records and values, as bytes; empty: there is none."""

    delimiter: bytes = b","
    quote: bytes = b'"'
    escape: bytes = b""
    comment: bytes = b""
    nulls: frozenset[bytes] = frozenset()
    """Values with an escape in them that mean NULL as they are written."""

    def is_plain(self, line: bytes) -> bool:
        """Return True for a line without quotes and escapes."""
        return not (self.quote and self.quote in line) and not (self.escape and self.escape in line)


def read_records(lines: Iterator[bytes], marks: CsvMarks) -> Iterator[CsvRecord]:
    """Yield the records in these lines, including the header. Raises TooLongError."""
    number = 0
    again: list[bytes] = []  # Lines after one whose quote is never closed, the next one last.
    while True:
        line = again.pop() if again else next(lines, b"")
        if not line:
            return
        number += 1
        body = _without_end(line)
        if not body or (marks.comment and line.startswith(marks.comment)):
            continue
        if marks.is_plain(line):
            yield CsvRecord(number, body.split(marks.delimiter), _NOT_QUOTED, body)
            continue
        record = _OpenRecord(marks)
        taken = [line]
        size = len(line)
        while not record.take(taken[-1]):
            following = again.pop() if again else next(lines, b"")
            if not following:
                break
            size += len(following)
            if size > RECORD_BYTES_MAX:
                raise TooLongError(f"the record at line {number} is longer than {RECORD_BYTES_MAX} bytes")
            taken.append(following)
        if not record.is_whole:
            again.extend(reversed(taken[1:]))
            yield CsvRecord(number, [body], _NOT_QUOTED, body, closed=False)
            continue
        raw = body if len(taken) == 1 else _without_end(b"".join(taken))
        yield CsvRecord(number, record.fields, frozenset(record.quoted), raw)
        number += len(taken) - 1


class _OpenRecord:
    """A record with quotes or escapes in it, read line by line."""

    def __init__(self, marks: CsvMarks) -> None:
        self._marks = marks
        self._parts: list[bytes] = []
        self._written: list[bytes] = []
        """The present value without quotes, as it is written."""
        self._begins = True
        self._in_quotes = False
        self._escaped = False
        self.fields: list[bytes] = []
        self.quoted: set[int] = set()
        """Values that were in quotes, and those that had escapes: they are never NULL."""
        self.is_whole = False
        """True if it has an end, and no text follows a closing quote."""

    def take(self, line: bytes) -> bool:
        """Add a line; returns True when the record ends with it, or is none."""
        marks, end, position = self._marks, len(_without_end(line)), 0
        while True:
            if self._begins:
                self._begins = False
                if marks.quote and line.startswith(marks.quote, position):
                    self.quoted.add(len(self.fields))
                    self._in_quotes = True
                    position += 1
            if self._in_quotes:
                position = self._within(line, position)
                if position < 0:
                    return False
                if position < end and not line.startswith(marks.delimiter, position):
                    return True
            stop = line.find(marks.delimiter, position, end)
            stop = end if stop < 0 else stop
            escape = line.find(marks.escape, position, stop) if marks.escape else -1
            if escape >= 0:
                self._escaped = True
                self._parts.append(line[position:escape])
                behind = len(line) if escape + 1 >= end else escape + 2
                self._parts.append(line[escape + 1 : behind])
                self._written.append(line[position:behind])
                if escape + 1 >= end:
                    return False  # The line end belongs to the value.
                position = behind
                continue
            self._parts.append(line[position:stop])
            self._written.append(line[position:stop])
            self._end_value()
            if stop == end:
                self.is_whole = True
                return True
            position = stop + 1

    def _within(self, line: bytes, position: int) -> int:
        """Read on inside quotes; returns where the value ends, -1 if it does not end in this line."""
        marks = self._marks
        while position < len(line):
            sign = line[position : position + 1]
            if marks.escape and sign == marks.escape:
                self._parts.append(line[position + 1 : position + 2])
                if position + 1 == len(line):
                    return -1
                position += 2
            elif sign == marks.quote and line.startswith(marks.quote, position + 1):
                self._parts.append(marks.quote)
                position += 2
            elif sign == marks.quote:
                self._in_quotes = False
                return position + 1
            else:
                found = [line.find(one, position) for one in (marks.quote, marks.escape) if one]
                behind = min([at for at in found if at >= 0], default=len(line))
                self._parts.append(line[position:behind])
                position = behind
        return -1

    def _end_value(self) -> None:
        written, at = b"".join(self._written), len(self.fields)
        if self._escaped and at not in self.quoted and written in self._marks.nulls:
            self.fields.append(written)
        else:
            self.fields.append(b"".join(self._parts))
            if self._escaped:
                self.quoted.add(at)
        self._parts, self._written, self._begins, self._escaped = [], [], True, False


def _without_end(line: bytes) -> bytes:
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith((b"\n", b"\r")) else line
