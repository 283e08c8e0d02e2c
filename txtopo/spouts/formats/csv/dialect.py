"""Defines records and lines of a CSV file, byte by byte.

Records follow RFC 4180: fields between delimiters; a field that starts with a quote ends at the next single quote and
may contain delimiters and line ends; a quote inside an unquoted field is an ordinary character. After a closing quote,
a delimiter or the end of the line must follow: otherwise an earlier quote is missing, and nobody can know how many
lines it swallowed (pyarrow reads on regardless). Where there is an escape character, the character after it belongs to
the value, also a line end. A line that starts with the comment character is no record. Lines end with LF, CRLF or CR.
Blank lines are not records. Lines count from 1; the line of a record is the one where it starts.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from txtopo.errors import TopologyError
from txtopo.spouts.codecs import CODECS
from txtopo.spouts.formats.csv.encodings import BYTE_ORDER_MARK, UTF_8, is_of_single_bytes

HEADER_BYTES_MAX = 1024 * 1024
"""Maximum size of a header record in bytes; a longer one is not a header."""
HEADER_CHARS_MAX = 400
"""Number of characters of a header that an error message shows."""


@dataclass(frozen=True, slots=True)
class Record:
    """The bounds of one record in a piece of a file."""

    start: int
    """Offset of its first byte."""
    end: int
    """Offset after its line end."""
    closed: bool
    """False: a quoted value is not closed before the end of the data."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first record of a file."""

    names: tuple[str, ...]
    end: int
    """Offset of the first byte after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The characters that divide a file into records and values."""

    delimiter: str = ","
    quote: str | None = '"'
    """None: a quote is a character like others."""
    escape: str | None = None
    """The character after it belongs to the value."""
    comment: str | None = None
    """A line that starts with it is skipped."""
    encoding: str = UTF_8
    null_values: tuple[str, ...] = ("",)
    """An unquoted value that is one of these, as it is written, is NULL."""

    def check(self) -> None:
        """Raise TopologyError for an invalid character, or for one of two meanings."""
        known: dict[str, str] = {}
        for name in ("delimiter", "quote", "escape", "comment"):
            sign = getattr(self, name)
            if sign is None and name != "delimiter":
                continue
            if not isinstance(sign, str) or len(sign) != 1 or not sign.isascii() or sign in "\r\n\0":
                raise TopologyError(f"{name} {sign!r} is not one ASCII character other than a line end")
            other = known.setdefault(sign, name)
            if other != name:
                raise TopologyError(f"{name} {sign!r} is not one ASCII character other than the {other}")
        if self.parsed_quote != self.quote and (
            self.delimiter == '"' or any(value.startswith('"') for value in self.null_values)
        ):
            raise TopologyError("with an escape and no quote, neither delimiter nor null_values may begin with '\"'")

    def layout(self) -> Mapping[str, Any]:
        """Return the settings other than delimiter and null_values that are not the usual ones, as JSON values."""
        names = ("quote", "escape", "comment", "encoding")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(RFC_4180, name)}

    @property
    def read_as(self) -> str:
        """Return the encoding of the bytes in which records are found: UTF-8 where a file is converted before."""
        return self.encoding if is_of_single_bytes(self.encoding) else UTF_8

    @property
    def parsed_quote(self) -> str | None:
        """Return the quote of records as the parser receives them: values with escapes in them are quoted there."""
        return '"' if self.quote is None and self.escape is not None else self.quote

    @property
    def rewritten(self) -> tuple[bytes, ...]:
        """Return what may be in a record that the parser receives in another form."""
        signs = {self.escape, None if self.quote == self.parsed_quote else self.parsed_quote}
        return tuple(sign.encode() for sign in signs if sign is not None)

    @property
    def special(self) -> tuple[bytes, ...]:
        """Return what is in every record that is more than values between delimiters."""
        return self.rewritten if self.quote is None else (self.quote.encode(), *self.rewritten)


RFC_4180 = Dialect()


def has_lines_alone(file: Mapping[str, Any], dialect: Dialect) -> bool:
    """Return True if every line of a planned file that is not blank is a record, in UTF-8, as the parser reads it."""
    return file.get("quotes") is False and dialect.comment is None and dialect.encoding == UTF_8


def field_pattern(dialect: Dialect, unclosed: bytes = rb"(?!)") -> bytes:
    """Return a pattern for one field; `unclosed` matches the end of a field that has no end: a quoted one that is never
    closed, or an escape at the end of the data.
    """
    delimiter = re.escape(dialect.delimiter.encode())
    behind = b"[" + delimiter + rb"\r\n]"
    plain = b"[^" + delimiter + rb"\r\n]*+"
    inside, escaped = b"", b""
    if dialect.escape is not None:
        escape = inside = re.escape(dialect.escape.encode())
        escaped = b"|" + escape + rb"(?:(?s:.)|\Z)"
        plain = b"[^" + delimiter + escape + rb"\r\n]++"
        at_end = rb"(?:\r\n|\r|\n|)" + unclosed
        plain = b"(?:" + plain + b"|" + escape + b"(?:" + at_end + rb"|\r\n|(?s:.)))*+"
    if dialect.quote is None:
        return b"(?:" + plain + b")"
    quote = re.escape(dialect.quote.encode())
    body = b"(?:[^" + quote + inside + b"]++|" + quote + quote + escaped + b")*+"
    closed = quote + b"(?=" + behind + rb"|\Z)"
    return b"(?:" + quote + body + b"(?:" + closed + b"|" + unclosed + b")|(?!" + quote + b")" + plain + b")"


@lru_cache(maxsize=8)
def record_pattern(dialect: Dialect) -> re.Pattern[bytes]:
    """Return a pattern for one record with its line end. A group is set if a field without an end reaches the end of
    the data. No match: text follows a closing quote.
    """
    first = field_pattern(dialect, rb"(\Z)")
    return re.compile(first + b"(?:" + re.escape(dialect.delimiter.encode()) + first + rb")*+(?:\r\n|\r|\n|\Z)")


def first_record(data: bytes, dialect: Dialect, *, final: bool) -> Record | None:
    """Return the first record of `data`, skipping blank lines and comments; None if there is no complete one. `data`
    must begin at the start of a record.

    Unless `final`, more data follows, and a record that reaches the end counts as incomplete. Raises ValueError if text
    follows a closing quote.
    """
    size = len(data)
    start = _skipped_pattern(dialect.comment).match(data).end()  # type: ignore[union-attr]
    if start == size or (dialect.comment is not None and data.startswith(dialect.comment.encode(), start)):
        return None
    match = record_pattern(dialect).match(data, start)
    if match is None:
        raise ValueError("text follows a closing quote in its header")
    end = match.end()
    text_ends = data[end - 1] in b"\r\n" and match.lastindex is None
    # A CR at the very end may be the first half of a CRLF.
    if not final and end == size and not (text_ends and data[end - 1] == 0x0A):
        return None
    return Record(start, end, match.lastindex is None)


@lru_cache(maxsize=8)
def _skipped_pattern(comment: str | None) -> re.Pattern[bytes]:
    """Return a pattern for blank lines and comments."""
    more = b"" if comment is None else b"|" + re.escape(comment.encode()) + rb"[^\r\n]*[\r\n]"
    return re.compile(rb"(?:[\r\n]" + more + b")*+")


class LineCounter:
    """Counts physical lines over consecutive pieces of a file."""

    def __init__(self, line: int = 1) -> None:
        self.line = line
        """The line of the next byte."""
        self._after_return = False

    def feed(self, data: bytes) -> None:
        """Continue with `data`."""
        if not data:
            return
        self.line += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
        if self._after_return and data.startswith(b"\n"):
            self.line -= 1
        self._after_return = data.endswith(b"\r")


_MAGICS = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip (or a spreadsheet)"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PAR1", "Parquet"),
    (b"ORC", "ORC"),
    (b"Obj\x01", "Avro"),
    (b"%PDF-", "PDF"),
    (b"SQLite format 3\x00", "a SQLite database"),
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
"""First bytes of files that are not UTF-8 text. The longer one of two comes first."""
_MAY_BE_TEXT = ("ORC", "bzip2", "Parquet")
"""Letters with which a header can begin: a file that starts with them is refused only if bytes follow that no text
has.
"""
_OTHER_DELIMITERS = (";", "\t", "|", ",")
_MARKUP = re.compile(rb"\s*<(?:\?xml|!|[A-Za-z])")
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")


_ALL_MAGICS = tuple(magic for magic, _ in _MAGICS)
_ENDINGS = {codec.name: codec.ending for codec in CODECS}


def _remedy(what: str) -> str:
    if what in _ENDINGS:
        return f"deliver it under a name that ends with {_ENDINGS[what]}"
    if what == "Parquet":
        return "say format='parquet' (docs/parquet.md)"
    return "convert it, and deliver it under a new name"


def check_encoding(data: bytes) -> None:
    """Raise ValueError if these first bytes show that a file is not UTF-8 text; the error names its encoding or
    format.
    """
    what = what_it_is(data)
    if what is not None:
        raise ValueError(f"it is {what}, not UTF-8 text; {_remedy(what)} (docs/files.md)")


def what_it_is(data: bytes) -> str | None:
    """Return what a file is that begins with these bytes; None if it may be UTF-8 text, or is nothing that is known."""
    if not data.startswith(_ALL_MAGICS):
        return None
    for magic, what in _MAGICS:
        if data.startswith(magic) and (what not in _MAY_BE_TEXT or _NO_TEXT.search(data[:1024])):
            return what
    return None


def read_header(data: bytes, dialect: Dialect, *, final: bool) -> Header | None:
    """Return the header record in the first bytes of a file, without a byte order mark; None if there is none. Raises
    ValueError that says what is wrong.
    """
    skipped = data_start(data)
    first = first_record(data[skipped:], dialect, final=final)
    if first is None:
        if not final:
            raise ValueError(f"its header record is longer than {HEADER_BYTES_MAX} bytes")
        return None
    if not first.closed:
        raise ValueError("a quoted name in its header is not closed")
    try:
        names = record_values(data[skipped + first.start : skipped + first.end], dialect)
    except UnicodeDecodeError as error:
        why = f" ({error})" if dialect.read_as == dialect.encoding else ""
        raise ValueError(
            f"its header is not {dialect.encoding.upper()}{why}: say Csv(encoding=…), e.g. 'cp1252' (docs/csv.md)"
        ) from error
    return Header(names, skipped + first.end)


def data_start(start: bytes) -> int:
    """Return the offset after a byte order mark."""
    return len(BYTE_ORDER_MARK) if start.startswith(BYTE_ORDER_MARK) else 0


def record_values(record: bytes, dialect: Dialect) -> tuple[str, ...]:
    """Return the values of a record. Raises UnicodeDecodeError."""
    text = record.decode(dialect.read_as).rstrip("\r\n")
    csv.field_size_limit(max(csv.field_size_limit(), HEADER_BYTES_MAX))
    lines = io.StringIO(text, newline="")
    delimiter, escape = dialect.delimiter, dialect.escape
    if dialect.quote is None:
        reader = csv.reader(lines, delimiter=delimiter, escapechar=escape, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=delimiter, escapechar=escape, quotechar=dialect.quote)
    return tuple(next(reader))


def why_no_record(
    start: bytes, dialect: Dialect, columns: tuple[str, ...], needed: tuple[str, ...], *, final: bool
) -> str | None:
    """Return why a file without a header line, of these columns, cannot be what was declared; None if it can."""
    data = start.removeprefix(BYTE_ORDER_MARK)
    try:
        first = first_record(data, dialect, final=final)
        if first is None or not first.closed:
            return None
        values = record_values(data[first.start : first.end], dialect)
    except ValueError:
        return None
    if {name.strip().lower() for name in needed} <= {value.strip().lower() for value in values}:
        return "its first record has the names of the fields, so it is a header line: say header=True (docs/csv.md)"
    if len(values) == len(columns):
        return None
    kind = _other_kind(data)
    if not kind and len(values) == 1:
        other = next((one for one in _OTHER_DELIMITERS if len(values[0].split(one)) == len(columns)), None)
        kind = "" if other is None else f"; is {other!r} its delimiter?"
    return f"its first record has {len(values)} columns, declared are {len(columns)}{kind}" if kind else None


def why_no_header(start: bytes, found: tuple[str, ...], needed: tuple[str, ...]) -> str:
    """Return what a file with an unsuitable header may be, as the end of an error message; empty if the header has some
    of the needed columns.
    """
    if kind := _other_kind(start.removeprefix(BYTE_ORDER_MARK)):
        return kind
    if len(found) == 1:
        for other in _OTHER_DELIMITERS:
            if {name.strip(' "') for name in found[0].split(other)} & set(needed):
                return f"; is {other!r} its delimiter? Say FileSpout(…, delimiter={other!r})"
    if found and not set(found) & set(needed):
        near = {name.strip().lower() for name in found} & {name.strip().lower() for name in needed}
        if near:
            return "; names are compared exactly, including blanks and case: say Csv(trim=True, ignore_case=True)"
        return "; it has none of the declared columns: has the file no header line? Say Csv(header=False) (docs/csv.md)"
    return ""


def _other_kind(start: bytes) -> str:
    """Return what these first bytes look like instead of CSV, as the end of an error message; empty: like nothing."""
    if start.lstrip()[:1] in (b"{", b"["):
        return "; it looks like JSON: say format='json' for JSON lines (docs/json.md)"
    if _MARKUP.match(start):
        return "; it looks like XML or HTML (docs/files.md)"
    if b"\0" in start[:1024]:
        return "; it holds NUL characters, so it may be UTF-16 or no text at all (docs/files.md)"
    return ""


def column_indexes(header: tuple[str, ...], needed: tuple[str, ...]) -> list[int]:
    """Return the positions of the needed columns in the header, matched by exact name. Raises ValueError that names a
    column that is missing or occurs twice.
    """
    indexes = []
    for name in needed:
        count = header.count(name)
        if count == 0:
            shown = ", ".join(map(repr, header))
            shown = shown if len(shown) <= HEADER_CHARS_MAX else shown[:HEADER_CHARS_MAX] + "…"
            raise ValueError(f"column {name!r} is missing; the header has {shown}")
        if count > 1:
            raise ValueError(f"column {name!r} stands {count} times in the header")
        indexes.append(header.index(name))
    return indexes
