"""Reads Parquet files for the audit with another decoder than the tasks: DuckDB instead of pyarrow."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar

from txtopo.audit.readers.column_values import Cell, Kind, cell_of, row_as_json
from txtopo.audit.readers.reader import HashedFile, NotAsPlannedError, NotDecodedError, Read, Reader, check_known
from txtopo.audit.unpacking import NoDecoderError
from txtopo.core.fields import INTEGER_KINDS, Field, Fields
from txtopo.core.positions import Unit

ROW_FIELD = "_row"
ROWS_AT_ONCE = 200
_CONFIG = {"threads": "1", "memory_limit": "1GB", "autoinstall_known_extensions": "false"}
_FOUND = "read_parquet(?, file_row_number = true, hive_partitioning = false)"
_SCHEMA = "select name, coalesce(num_children, 0), type, duckdb_type from parquet_schema(?)"
_INTEGERS = "U?(?:TINYINT|SMALLINT|INTEGER|BIGINT)"
_TYPES = {
    **dict.fromkeys(INTEGER_KINDS, _INTEGERS),
    "decimal": rf"{_INTEGERS}|DECIMAL\(.*\)",
    "float": "FLOAT",
    "double": "FLOAT|DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR|JSON|BLOB|UUID",
    "binary": "VARCHAR|JSON|BLOB|UUID",
    "date": "DATE",
    "timestamp": "TIMESTAMP.*",
    "timestamp_ntz": "TIMESTAMP.*",
}
"""Declared type -> the types of DuckDB whose values it keeps as they are in the file."""
_ENDLESS = 2**63 - 1
"""The count of a timestamp that DuckDB takes for infinity, and its negative; it has no count for them."""


class ParquetReader(Reader):
    """Implements `Reader`."""

    kind = "parquet"
    unit: ClassVar[Unit] = "row"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "paths")
        paths = {name: tuple(path) for name, path in layout["paths"].items()}
        self._columns = tuple(one for one in fields.items if one.name != ROW_FIELD)
        self._paths = [paths.get(one.name, (one.name,)) for one in self._columns]
        self._row_at = fields.names.index(ROW_FIELD) if ROW_FIELD in fields.names else None

    def read(self, file: Mapping[str, Any], hashed: HashedFile) -> Iterator[Read]:
        """Hash the file, then read it. Raises NoDecoderError, and NotDecodedError for what DuckDB does not read."""
        duckdb = _duckdb()
        with _hashed_here(hashed) as descriptor:
            # The file that was hashed, whatever has its name now; and a name in which nothing is a pattern.
            path = f"/dev/fd/{descriptor}"
            try:
                with duckdb.connect(config=_CONFIG) as connection:
                    yield from self._rows(connection, file, path)
            except duckdb.Error as error:
                raise NotDecodedError(f"DuckDB does not read it: {f'{error}'.splitlines()[0]}") from error

    def _rows(self, connection: Any, file: Mapping[str, Any], path: str) -> Iterator[Read]:
        root = _tree(connection.execute(_SCHEMA, [path]).fetchall())
        found = [
            self._found(root, names, column, file) for names, column in zip(self._paths, self._columns, strict=True)
        ]
        cells = [cell_of(column, one.kind) for column, one in zip(self._columns, found, strict=True)]
        kinds = [one.kind for one in found]
        is_unsure = any(one.is_int96 for one in found)
        names = ", ".join(f"c{number}" for number in range(len(root.children)))
        wanted = ", ".join(one.value for one in found)
        rows = connection.execute(f"select row_number, {wanted} from {_FOUND} t({names}, row_number)", [path])
        number = 0
        while block := rows.fetchmany(ROWS_AT_ONCE):
            for place, *values in block:
                if place != number:
                    raise NotDecodedError(f"DuckDB returns row {place + 1} instead of row {number + 1}")
                number += 1
                yield self._judged(number, values, cells, kinds, is_unsure)
        planned = sum(rows for rows, _ in file["groups"])
        if number != planned:
            raise NotAsPlannedError(f"{file['path']}: it has {number} rows, planned {planned}")

    def _found(self, root: _StoredColumn, names: Sequence[str], column: Field, file: Mapping[str, Any]) -> _Found:
        """Return the column of a path."""
        node, value = root, ""
        for name in names:
            at = [number for number, child in enumerate(node.children) if child.name == name]
            if len(at) != 1:
                raise NotAsPlannedError(f"{file['path']}: column {name!r} stands {len(at)} times in it")
            value = f"struct_extract_at({value}, {at[0] + 1})" if value else f"c{at[0]}"
            node = node.children[at[0]]
        if not re.fullmatch(rf'"NULL"|{_TYPES[column.type.kind]}', f"{node.type}"):
            raise NotDecodedError(f"DuckDB reads column {column.name!r} as {node.type}")
        return _found_as(node, value)

    def _judged(
        self, number: int, values: list[Any], cells: Sequence[Cell], kinds: Sequence[Kind], is_unsure: bool
    ) -> Read:
        def raw() -> bytes:
            return row_as_json(self._columns, kinds, values)

        try:
            judged = [cell(value) for cell, value in zip(cells, values, strict=True)]
        except (ValueError, OverflowError) as error:
            return _ParquetRead(number, (), str(error), raw, is_unsure)
        if self._row_at is not None:
            judged.insert(self._row_at, number)
        return _ParquetRead(number, judged, None, raw, is_unsure)


class _ParquetRead(Read):
    """A record whose text is made only when it is asked for."""

    __slots__ = ("_is_unsure", "_raw_of")

    def __init__(
        self, number: int, values: Sequence[Any], reason: str | None, raw: Callable[[], bytes], is_unsure: bool
    ) -> None:
        self.number = number
        self.values = values
        self.reason = reason
        self._raw_of = raw
        self._is_unsure = is_unsure

    @property
    def raw(self) -> bytes:  # type: ignore[override]
        """Return the row as JSON."""
        return self._raw_of()

    def is_doubtful(self) -> bool:
        """Return True if parts of it may have been cut off: DuckDB gives microseconds of timestamps in INT96."""
        return self._is_unsure and self.reason is None


@dataclass(slots=True)
class _StoredColumn:
    """A column in the footer, with those inside of it."""

    name: str
    stored_as: str | None
    type: str | None
    children: list[_StoredColumn] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """How a column is asked for."""

    value: str
    kind: Kind
    is_int96: bool


def _tree(rows: Sequence[Any]) -> _StoredColumn:
    """Return the root of the columns, which are listed from outside in."""
    left = iter(rows)

    def taken() -> _StoredColumn:
        name, children, stored_as, type_ = next(left)
        return _StoredColumn(name, stored_as, type_, [taken() for _ in range(children)])

    return taken()


def _found_as(node: _StoredColumn, value: str) -> _Found:
    type_ = str(node.type)
    if type_ == "DATE":
        return _Found(f"{value} - date '1970-01-01'", "days", False)
    if type_.startswith("TIMESTAMP"):
        function = "epoch_ns" if type_.endswith("_NS") else "epoch_us"
        count = (
            f"case when {value} = '-infinity'::{type_} then -{_ENDLESS} when {value} = 'infinity'::{type_} "
            f"then {_ENDLESS} else {function}({value}) end"
        )
        kind: Kind = "nanoseconds" if type_.endswith("_NS") else "microseconds"
        return _Found(count, kind, node.stored_as == "INT96")
    return _Found(value, "plain", False)


@contextmanager
def _hashed_here(hashed: HashedFile) -> Iterator[int]:
    """Yield a descriptor of the content after it was hashed: of the file itself, or of a copy of one that is elsewhere.
    Raises NotDecodedError if it changes meanwhile.
    """
    try:
        descriptor = hashed.file.fileno()
    except io.UnsupportedOperation:
        with tempfile.TemporaryFile() as copy:
            for chunk in hashed.chunks():
                copy.write(chunk)
            copy.flush()
            yield copy.fileno()
        return
    before = _stamp(descriptor)
    hashed.skip()
    yield descriptor
    if _stamp(descriptor) != before:
        raise NotDecodedError("it changed while it was read")


def _stamp(descriptor: int) -> tuple[int, ...]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise NoDecoderError(
            "the audit reads Parquet by the package duckdb, which is not installed: pip install 'txtopo[audit]'"
        ) from error
    return duckdb
