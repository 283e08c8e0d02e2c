"""Reads the records of a CSV file with separate code of the audit: RFC 4180, plain Python, nothing shared with the
spouts.

A field that starts with a quote ends at the next single quote and may contain delimiters and line ends; two quotes in
it are one. After the closing quote, the delimiter or the end of the line must follow; otherwise this is not a record. A
quote anywhere else is an ordinary character. Lines end with LF, CRLF or CR. Blank lines are not records. A byte order
mark at the start of the file is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from txtopo.audit.readers.reader import TooLongError

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a record in bytes; a longer one is not read to its end."""
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


def read_records(lines: Iterator[bytes], delimiter: bytes) -> Iterator[CsvRecord]:
    """Yield the records in these lines, including the header. Raises TooLongError."""
    number = 0
    again: list[bytes] = []  # Lines after one whose quote is never closed, the next one last.
    while True:
        line = again.pop() if again else next(lines, b"")
        if not line:
            return
        number += 1
        body = _without_end(line)
        if not body:
            continue
        if b'"' not in line:
            yield CsvRecord(number, body.split(delimiter), _NOT_QUOTED, body)
            continue
        record = _OpenRecord(delimiter)
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
        if record.is_open or record.is_broken:
            again.extend(reversed(taken[1:]))
            yield CsvRecord(number, [body], _NOT_QUOTED, body, closed=False)
            continue
        raw = body if len(taken) == 1 else _without_end(b"".join(taken))
        yield CsvRecord(number, record.fields, frozenset(record.quoted), raw)
        number += len(taken) - 1


class _OpenRecord:
    """A record with quotes in it, read line by line."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._parts: list[bytes] = []
        self.fields: list[bytes] = []
        self.quoted: set[int] = set()
        self.is_open = False
        """True inside a quoted value."""
        self.is_broken = False
        """True if text follows a closing quote."""

    def take(self, line: bytes) -> bool:
        """Add a line; returns True when the record is complete with it."""
        end = len(_without_end(line))
        position = 0
        if not self.is_open:
            position = self._start(line, 0)
        while True:
            if self.is_open:
                quote = line.find(b'"', position)
                if quote < 0:
                    self._parts.append(line[position:])
                    return False
                self._parts.append(line[position:quote])
                position = quote + 1
                if line[position : position + 1] == b'"':
                    self._parts.append(b'"')
                    position += 1
                    continue
                self.is_open = False
                if position < end and not line.startswith(self._delimiter, position):
                    self.is_broken = True
                    return True
                continue
            stop = line.find(self._delimiter, position, end)
            self._parts.append(line[position : end if stop < 0 else stop])
            self.fields.append(b"".join(self._parts))
            self._parts = []
            if stop < 0:
                return True
            position = self._start(line, stop + 1)

    def _start(self, line: bytes, position: int) -> int:
        """Begin a field; returns where its value starts."""
        if line[position : position + 1] != b'"':
            return position
        self.quoted.add(len(self.fields))
        self.is_open = True
        return position + 1


def _without_end(line: bytes) -> bytes:
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith((b"\n", b"\r")) else line
