"""The table of the audit's readers: from the layout in a plan to the code that reads its files again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from txtopo.audit.readers.csv_reader import CsvReader
from txtopo.audit.readers.json_reader import JsonReader
from txtopo.audit.readers.line_reader import LineReader
from txtopo.audit.readers.parquet_reader import ParquetReader
from txtopo.audit.readers.pattern_reader import PatternReader
from txtopo.audit.readers.reader import HashedFile, Read, Reader
from txtopo.audit.readers.text_reader import TextReader
from txtopo.core.fields import Fields
from txtopo.core.positions import Unit

READERS: Mapping[str, type[Reader]] = {
    one.kind: one for one in (CsvReader, JsonReader, ParquetReader, PatternReader, TextReader)
}
"""Kind of a layout -> its reader."""
_OF_THE_SPOUT = ("kind", "part_bytes")
_NUMBER = "_line"


class PlannedReader:
    """Reads the files of one batch: the values of a record by the reader of its kind, and its number."""

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        """`layout` and `fields` are those of the plan. Raises KeyError, TypeError or ValueError for a layout that is
        not known completely.
        """
        settings = {name: value for name, value in layout.items() if name not in _OF_THE_SPOUT}
        known = READERS[layout["kind"]]
        is_numbered = issubclass(known, LineReader)
        within = Fields(tuple(field for field in fields.items if field.name != _NUMBER)) if is_numbered else fields
        self._reader = known(settings, within)
        self._numbered_at = fields.names.index(_NUMBER) if len(within.items) < len(fields.items) else None

    @property
    def unit(self) -> Unit:
        """Return what the numbers of its records count."""
        return self._reader.unit

    def read(self, file: Mapping[str, Any], hashed: HashedFile) -> Iterator[Read]:
        """Yield the records of a file with the values of all planned fields. Raises as `Reader.read`."""
        reads = self._reader.read(file, hashed)
        return reads if self._numbered_at is None else map(self._numbered, reads)

    def _numbered(self, read: Read) -> Read:
        if read.reason is None:
            at = self._numbered_at
            read.values = [*read.values[:at], read.number, *read.values[at:]]
        return read
