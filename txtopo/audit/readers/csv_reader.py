"""Reads CSV files for the audit: values of the planned fields, and why a record has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.audit.readers.csv_records import CsvMarks, CsvRecord, csv_lines, read_records, text_chunks
from txtopo.audit.readers.reader import HashedFile, NotAsPlannedError, Read, Reader, check_known
from txtopo.audit.readers.spelled_values import is_doubtful_as, plain_of, spelled_cell
from txtopo.audit.readers.text_values import Cell
from txtopo.core.fields import Fields

_KNOWN = (
    *("delimiter", "null_values", "header", "columns", "trim", "ignore_case"),
    *("decimal", "grouping", "date_format", "timestamp_format", "empty_is_null"),
    *("quote", "escape", "comment", "encoding"),
)
_WITH_STATES = (b"\x1b$BF|K\\\x1b(B", b"~{VPND~}", b"\x1b$)C\x0e0!\x0f")
"""Texts in encodings in which some bytes change what later ones mean."""


class CsvReader(Reader):
    """Implements `Reader`."""

    kind = "csv"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, *_KNOWN)
        self.fields = fields
        nulls = tuple(layout["null_values"])
        self._encoding = layout.get("encoding")
        self._wide = None if self._encoding is None or _has_single_bytes(self._encoding) else self._encoding
        if self._wide is not None:
            self._encoding = None  # Its records are found in its text.
        self._marks = _marks(layout, self._encoding or "utf-8", nulls)
        self.cells: list[Cell] = [
            _recoded(spelled_cell(column, nulls, layout), self._encoding) for column in fields.items
        ]
        self.plain = [plain_of(column, layout) for column in fields.items]
        self._columns = _columns_of(layout, fields)
        self._trim, self._ignore_case = bool(layout.get("trim")), bool(layout.get("ignore_case"))

    def read(self, file: Mapping[str, Any], hashed: HashedFile) -> Iterator[Read]:
        chunks = hashed.chunks() if self._wide is None else text_chunks(hashed.chunks(), self._wide)
        records = read_records(csv_lines(chunks), self._marks)
        names, place = self._columns, str(file["path"])
        if names is None:
            header = next(records, None)
            if header is None:
                return
            names, place = (
                [name.decode(self._encoding or "utf-8", "replace") for name in header.fields],
                f"{place}:{header.line}",
            )
        planned = file["header"]
        keys = [self._key(name) for name in names]
        needed = [self._key(name) for name in self.fields.names]
        if names != planned or any(keys.count(key) != 1 for key in needed):
            raise NotAsPlannedError(f"{place}: the header is {names}, planned {planned}")
        indexes = [keys.index(key) for key in needed]
        for record in records:
            values, reason = self._parse(record, len(names), indexes)
            yield _CsvRead(record.line, values, reason, record.raw, self, record, len(names), indexes)

    def judged(self, number: int, raw: bytes) -> Read:
        """Return what a text is that is to be one record, of a layout without a header line. Raises TooLongError."""
        names = self._columns or []
        records = list(read_records(iter(raw.splitlines(keepends=True)), self._marks))
        if len(records) != 1 or raw.removeprefix(records[0].raw) not in (b"", b"\n", b"\r", b"\r\n"):
            return Read(number, (), "not one record", raw)
        indexes = [names.index(name) for name in self.fields.names]
        values, reason = self._parse(records[0], len(names), indexes)
        return _CsvRead(number, values, reason, raw, self, records[0], len(names), indexes)

    def _key(self, name: str) -> str:
        """Return what of a name is compared."""
        name = name.strip(" \t") if self._trim else name
        return name.casefold() if self._ignore_case else name

    def _parse(self, record: CsvRecord, width: int, indexes: Sequence[int]) -> tuple[Sequence[Any], str | None]:
        """Return the values, or why there are none."""
        if not record.closed:
            return (), "a quoted value is not closed"
        if len(record.fields) != width:
            return (), f"{len(record.fields)} columns, the header has {width}"
        try:
            return [
                cell(record.fields[index], index in record.quoted)
                for cell, index in zip(self.cells, indexes, strict=True)
            ], None
        except (ValueError, OverflowError) as error:
            return (), str(error)


@dataclass(slots=True)
class _CsvRead(Read):
    reader: CsvReader
    record: CsvRecord
    width: int
    indexes: Sequence[int]

    def is_doubtful(self) -> bool:
        """Return False if one of its plain values is wrong."""
        record = self.record
        if not record.closed or len(record.fields) != self.width:
            return False
        found = False
        reader = self.reader
        for cell, column, plain, index in zip(
            reader.cells, reader.fields.items, reader.plain, self.indexes, strict=True
        ):
            text = record.fields[index]
            doubtful = is_doubtful_as(column, text, plain)
            found = found or doubtful
            if self.reason is not None and not doubtful:
                try:
                    cell(text, index in record.quoted)
                except (ValueError, OverflowError):
                    return False
        return found


def _columns_of(layout: Mapping[str, Any], fields: Fields) -> list[str] | None:
    """Return the names of the columns of files without a header line; None: they have one."""
    if layout.get("header", True):
        return None
    columns = layout.get("columns")
    if isinstance(columns, list):
        return columns
    names = list(fields.names)
    return names + [""] * ((columns or len(names)) - len(names))


def _marks(layout: Mapping[str, Any], encoding: str, nulls: Sequence[str]) -> CsvMarks:
    return CsvMarks(
        delimiter=layout["delimiter"].encode(),
        quote=(layout.get("quote", '"') or "").encode(),
        escape=(layout.get("escape") or "").encode(),
        comment=(layout.get("comment") or "").encode(),
        nulls=frozenset(null.encode(encoding, "ignore") for null in nulls),
    )


def _has_single_bytes(encoding: str) -> bool:
    """Return True for an encoding of which each byte is one character, those of ASCII as ever."""
    if any(len(one.decode(encoding, "replace")) != len(one) for one in _WITH_STATES):
        return False
    text = bytes(range(256)).decode(encoding, "replace")
    return len(text) == 256 and text[:128].encode() == bytes(range(128))


def _recoded(cell: Cell, encoding: str | None) -> Cell:
    """Return the reader of a column of a file in this encoding; None: UTF-8."""
    if encoding is None:
        return cell
    return lambda text, quoted: cell(text.decode(encoding).encode(), quoted)
