"""The table of the audit's readers: from the layout in a plan to the code that reads its files again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote_to_bytes

from txtopo.audit.readers.csv_reader import CsvReader
from txtopo.audit.readers.json_reader import JsonReader
from txtopo.audit.readers.kafka_reader import KafkaReader, RangeReader
from txtopo.audit.readers.parquet_reader import ParquetReader
from txtopo.audit.readers.pattern_reader import PatternReader
from txtopo.audit.readers.reader import HashedFile, NotAsPlannedError, Read, Reader
from txtopo.audit.readers.sql_table_reader import SqlTableReader
from txtopo.audit.readers.table_reader import TableReader
from txtopo.audit.readers.text_reader import TextReader
from txtopo.audit.readers.text_values import cell_of
from txtopo.core.fields import Field, Fields
from txtopo.core.positions import Unit

READERS: Mapping[str, type[Reader]] = {
    one.kind: one for one in (CsvReader, JsonReader, ParquetReader, PatternReader, TextReader)
}
"""Kind of a layout -> its reader."""
RANGE_READERS: Mapping[str, type[RangeReader]] = {one.kind: one for one in (KafkaReader, SqlTableReader, TableReader)}
"""The same for sources with named partitions."""
_OF_THE_SPOUT = ("kind", "part_bytes", "file_fields", "partitions")
_FILE, _MODIFIED = "_file", "_modified"
_NULL_KEY = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PlannedReader:
    """Reads the files of one batch: the values of a record by the reader of its kind, and what is known of the record
    and its file besides.
    """

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        """`layout` and `fields` are those of the plan. Raises KeyError, TypeError or ValueError for a layout that is
        not known completely.
        """
        settings = {name: value for name, value in layout.items() if name not in _OF_THE_SPOUT}
        about, self._keys = tuple(layout.get("file_fields", ())), tuple(layout.get("partitions", ()))
        others = {*about, *self._keys}
        if not others <= {*fields.names}:
            raise ValueError(f"{', '.join(sorted(others - {*fields.names}))} is no planned field")
        self._fields = fields
        self._within = Fields(tuple(field for field in fields.items if field.name not in others))
        self._of_file = (_FILE, _MODIFIED, *self._keys) if others else ()
        self._reader = READERS[layout["kind"]](settings, self._within)

    @property
    def unit(self) -> Unit:
        """Return what the numbers of its records count."""
        return self._reader.unit

    def read(self, file: Mapping[str, Any], hashed: HashedFile) -> Iterator[Read]:
        """Yield the records of a file with the values of all planned fields. Raises as `Reader.read`."""
        known = self._known(file) if self._of_file else {}
        # Lines of a growing file are numbered from the start of the file.
        before = file.get("first_line", 1) - 1
        for read in self._reader.read(file, hashed):
            read.number += before
            if self._of_file and read.reason is None:
                read.values = self._completed(read, known)
            yield read

    def _completed(self, read: Read, known: Mapping[str, Any]) -> Sequence[Any]:
        found = dict(zip(self._within.names, read.values, strict=True))
        # What is neither in the record nor known of its file is the number of the record.
        return [
            found[name] if name in found else known[name] if name in self._of_file else read.number
            for name in self._fields.names
        ]

    def _known(self, file: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what all records of a file have in common."""
        path = str(file["path"])
        keys = {field.name: _key(path, field) for field in self._fields.items if field.name in self._keys}
        changed = _EPOCH + timedelta(microseconds=int(file["mtime_ns"]) // 1000)
        return {_FILE: path, _MODIFIED: changed, **keys}


def _key(path: str, field: Field) -> Any:
    """Return the value of a field in the names of folders. Raises NotAsPlannedError."""
    texts = set()
    for folder in path.split("/")[:-1]:
        name, sign, text = folder.partition("=")
        if sign and name == field.name:
            texts.add(text)
    try:
        (text,) = texts
        if text == _NULL_KEY and field.nullable:
            return None
        return cell_of(field, ())(unquote_to_bytes(text), False)
    except (ValueError, OverflowError) as error:
        raise NotAsPlannedError(f"{path}: its folders name no value of {field.name}: {error}") from error
