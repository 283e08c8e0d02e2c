"""Reads CSV files for the audit: values of the planned fields, and why a record has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.audit.readers.csv_records import CsvRecord, csv_lines, read_records
from txtopo.audit.readers.reader import HashedFile, NotAsPlannedError, Read, Reader, check_known
from txtopo.audit.readers.text_values import Cell, cell_of, is_doubtful
from txtopo.core.fields import Fields


class CsvReader(Reader):
    """Implements `Reader`."""

    kind = "csv"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "delimiter", "null_values")
        self.fields = fields
        self._delimiter = layout["delimiter"].encode()
        nulls = tuple(layout["null_values"])
        self.cells: list[Cell] = [cell_of(column, nulls) for column in fields.items]

    def read(self, file: Mapping[str, Any], hashed: HashedFile) -> Iterator[Read]:
        records = read_records(csv_lines(hashed.chunks()), self._delimiter)
        header = next(records, None)
        if header is None:
            return
        names = [name.decode("utf-8", "replace") for name in header.fields]
        planned = file["header"]
        if names != planned or any(names.count(name) != 1 for name in self.fields.names):
            raise NotAsPlannedError(f"{file['path']}:{header.line}: the header is {names}, planned {planned}")
        indexes = [names.index(name) for name in self.fields.names]
        for record in records:
            values, reason = self._parse(record, len(names), indexes)
            yield _CsvRead(record.line, values, reason, record.raw, self, record, len(names), indexes)

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
        for cell, column, index in zip(self.reader.cells, self.reader.fields.items, self.indexes, strict=True):
            text = record.fields[index]
            doubtful = is_doubtful(column, text)
            found = found or doubtful
            if self.reason is not None and not doubtful:
                try:
                    cell(text, index in record.quoted)
                except (ValueError, OverflowError):
                    return False
        return found
