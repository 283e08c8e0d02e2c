"""Finds the declared columns in the footer of a Parquet file.

pyarrow leaves a column out that is not there, takes the last one of two with the same name, and cannot tell a column
`a.b` from the column `b` inside of `a`. So each column is found here, and read by its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from txtopo.core.fields import Field, Fields
from txtopo.spouts.formats.csv.dialect import what_it_is
from txtopo.spouts.formats.field_paths import FieldPaths
from txtopo.spouts.formats.format import Opened
from txtopo.spouts.formats.parquet.column_types import plain_type, why_not_given
from txtopo.spouts.formats.parquet.compact import CompactError, CompactValues
from txtopo.spouts.formats.parquet.pages import Chunk

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
FIXED_BYTES_MAX = 64 * 1024
"""Maximum length in bytes of the values of a column with a fixed length; a file with a larger one is refused. The
decoder takes room for a thousand of them, whatever is stored.
"""
NAMES_CHARS_MAX = 400
"""Number of characters of the names of columns that an error message shows."""


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """Where the values of a declared field stand."""

    leaf: int
    """Its number among all columns that hold values."""
    top: int
    """The number of the column that it is, or is inside of, among those of the file."""
    inside: tuple[str, ...]
    """The names from there to it; none if it is that column."""
    is_int96: bool
    """True for a timestamp in the old way of storing them."""


def check_kind(opened: Opened) -> None:
    """Raise ValueError that says what a file is, if not Parquet."""
    start, size = opened.start[: len(MAGIC)], opened.size
    end = opened.read(max(0, size - len(MAGIC)), len(MAGIC))
    if not size:
        raise ValueError("it holds no byte: a Parquet file without rows has a footer")
    if ENCRYPTED in (start, end):
        raise ValueError("it is encrypted Parquet, which is not read (docs/parquet.md)")
    if start != MAGIC:
        what = what_it_is(opened.start[:1024]) or f"no Parquet file: it begins with {opened.start[:8]!r}"
        raise ValueError(f"it is {what} (docs/parquet.md)")
    if end != MAGIC or size < 3 * len(MAGIC):
        raise ValueError("it is a Parquet file that is cut off: its end is missing")


def columns_of(file: parquet.ParquetFile, fields: Fields, paths: FieldPaths) -> list[PlacedColumn]:
    """Return where the values of each field stand. Raises ValueError for a column that is missing, is there twice, or
    has a type that does not give the declared one exactly.
    """
    schema = file.schema_arrow
    starts = [0]
    for one in schema:
        starts.append(starts[-1] + _leaves(one.type))
    if starts[-1] != len(file.schema):
        raise ValueError("its columns cannot be told apart: its schema has other columns than its footer")
    return [_column(file, schema, starts, field, paths.get(field.name, (field.name,))) for field in fields.items]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Consecutive rows."""

    rows: int
    chunks: Mapping[int, Chunk]
    """The pages of the declared columns, by the number of their leaf."""

    @property
    def stored(self) -> int:
        """Return the stored bytes of these columns."""
        return sum(chunk.stored for chunk in self.chunks.values())

    @property
    def unpacked(self) -> int:
        """Return their bytes when they are unpacked."""
        return sum(chunk.unpacked for chunk in self.chunks.values())


def row_groups(opened: Opened, columns: Sequence[PlacedColumn], leaves: int, rows: int) -> list[RowGroup]:
    """Return the row groups of a file, with these columns. `leaves`: how many columns with values it has, `rows`: its
    number of rows. Raises ValueError for a footer that contradicts itself; OSError.

    pyarrow says this, too, but ends the process if the footer is damaged.
    """
    length = int.from_bytes(opened.read(opened.size - 8, 4), "little")
    try:
        footer = CompactValues(opened.read(opened.size - 8 - length, length)).fields()
        groups = [_row_group(group, {column.leaf for column in columns}, leaves) for group in footer.get(4) or ()]
    except (CompactError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"its footer is damaged ({error})") from error
    numbers = [number for group in groups for number in (group.rows, group.stored, group.unpacked)]
    if min(numbers, default=0) < 0 or sum(group.rows for group in groups) != rows:
        raise ValueError("its footer contradicts itself: the rows of its row groups are not those of the file")
    return groups


def _row_group(group: dict[int, Any], leaves: set[int], count: int) -> RowGroup:
    """Return a row group. Fields have the numbers of parquet.thrift."""
    if len(group[1]) != count:
        raise CompactError(f"a row group with {len(group[1])} of {count} columns")
    chunks = {}
    for leaf in leaves:
        found = group[1][leaf][3]
        starts = [start for start in (found[9], found.get(11)) if start]
        chunk = Chunk(min(starts, default=0), found[7], found[6], frozenset(found[2]))
        if min(chunk.start, chunk.stored, chunk.unpacked) < 0:
            raise CompactError("a negative number of bytes")
        chunks[leaf] = chunk
    return RowGroup(int(group[3]), chunks)


def _column(
    file: parquet.ParquetFile, schema: pa.Schema, starts: Sequence[int], field: Field, path: tuple[str, ...]
) -> PlacedColumn:
    top = _found(schema.names, path, 1)
    leaf, found = starts[top], schema.field(top).type
    for depth, name in enumerate(path[1:], 1):
        found = plain_type(found)
        if not pa.types.is_struct(found):
            raise ValueError(f"column {_told(path[:depth])} has type {found}, so there is no {name!r} in it")
        at = _found([found.field(number).name for number in range(found.num_fields)], path, depth + 1)
        leaf += sum(_leaves(found.field(number).type) for number in range(at))
        found = found.field(at).type
    if not found.num_fields and (length := int(file.schema.column(leaf).length or 0)) > FIXED_BYTES_MAX:
        raise ValueError(f"column {_told(path)} has values of {length} bytes; the maximum is {FIXED_BYTES_MAX}")
    is_int96 = not found.num_fields and file.schema.column(leaf).physical_type == "INT96"
    why = why_not_given(field.type, found, is_int96=is_int96)
    if why is not None:
        raise ValueError(f"column {_told(path)} has type {found}, declared as {field.type}: {why} (docs/parquet.md)")
    return PlacedColumn(leaf=leaf, top=top, inside=path[1:], is_int96=is_int96)


def _found(names: Sequence[str], path: tuple[str, ...], depth: int) -> int:
    """Return the place of a name among its neighbours."""
    name, number = path[depth - 1], names.count(path[depth - 1])
    if number == 1:
        return names.index(name)
    where = f"{_told(path[: depth - 1])} has" if depth > 1 else "the file has"
    if number:
        raise ValueError(f"column {_told(path[:depth])} stands {number} times in the file")
    shown = ", ".join(map(repr, names))
    shown = shown if len(shown) <= NAMES_CHARS_MAX else shown[:NAMES_CHARS_MAX] + "…"
    raise ValueError(f"column {_told(path[:depth])} is missing; {where} {shown or 'no column'}")


def _told(path: tuple[str, ...]) -> str:
    return repr(path[0]) if len(path) == 1 else repr(path)


def _leaves(found: pa.DataType) -> int:
    """Return how many columns with values a column of this type is."""
    found = plain_type(found)
    return sum(_leaves(found.field(number).type) for number in range(found.num_fields)) if found.num_fields else 1
