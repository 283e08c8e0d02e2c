"""The format Parquet: only the declared columns are read, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields
from txtopo.core.positions import told_position
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts.formats.field_paths import FieldPaths, check_paths, field_paths
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section
from txtopo.spouts.planned_file import COMPONENT
from txtopo.topology.components import Position

if TYPE_CHECKING:
    from txtopo.spouts.formats.parquet.rows import JudgedRows

ROW_FIELD = "_row"
"""A field of this name has the number of the row in the file, from 1."""
LOCATED_CHARS_MAX = 300
"""Number of characters of a row that `locate` shows."""


class Parquet(Format):
    """Parquet files. The parts of a large file are some of its row groups each.

    >>> Parquet(paths={"buyer": ("user", "id")}).layout()
    {'paths': {'buyer': ['user', 'id']}}
    """

    kind = "parquet"

    def __init__(self, *, paths: Mapping[str, str | tuple[str, ...]] = MappingProxyType({})) -> None:
        """`paths` says which column a field is, if not the one of its name: a tuple has the names from outside in
        through nested columns, a text is one name, also with dots in it.

        Raises TopologyError for an invalid path.
        """
        self.paths: FieldPaths = field_paths(paths)

    def layout(self) -> Mapping[str, Any]:
        return {"paths": {name: list(path) for name, path in self.paths.items()}}

    def check(self, fields: Fields) -> None:
        numbers = fields.get(ROW_FIELD)
        if numbers is not None and numbers.type.kind != "bigint":
            raise TopologyError(f"{ROW_FIELD} is the number of the row: declare it as bigint, not {numbers.type}")
        own = own_fields(fields)
        if not own.items:
            raise TopologyError(f"at least one field other than {ROW_FIELD} is needed")
        check_paths(self.paths, own)

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        """Return in `groups`, of each row group, its number of rows and the stored bytes of the declared columns."""
        from txtopo.spouts.formats.parquet.parquet_file import parquet_file

        with parquet_file(opened, own_fields(fields), self.paths) as file:
            return {"groups": file.groups}

    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        """Return runs of row groups: `start` and `end` are numbers of row groups, from 0."""
        groups = file["groups"]
        edges, filled = [0], 0
        for number, (_, size) in enumerate(groups):
            if number > edges[-1] and filled + size > part_bytes:
                edges.append(number)
                filled = 0
            filled += size
        return [Section(start, end) for start, end in zip(edges, [*edges[1:], len(groups)], strict=True)]

    def section_bytes(self, file: PlannedFile, section: Section) -> int:
        return sum(int(size) for _, size in file["groups"][section.start : section.end])

    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        for rows in self._read(opened, file, section, fields):
            yield Emitted(batch=rows.batch, rejects=rows.rejects(opened.path))

    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        from txtopo.spouts.reject_limit import shown_raw

        done = 0
        for rows in self._read(opened, file, section, fields):
            if number - done < rows.batch.num_rows:
                row = rows.kept[number - done]
                place = told_position(opened.path, rows.first + row, "row")
                return Position(position=place, raw=shown_raw(rows.raw(row), LOCATED_CHARS_MAX))
            done += rows.batch.num_rows
        return done

    def _read(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[JudgedRows]:
        """Yield the rows of a section, some at a time. Raises BatchDataError for a file that cannot be read to its end,
        or is divided in another way than planned; OSError if its bytes cannot be read.
        """
        from txtopo.spouts.formats.parquet.parquet_file import LargePageError, parquet_file
        from txtopo.spouts.formats.parquet.rows import JudgedRows

        planned = [[int(rows), int(size)] for rows, size in file["groups"]]
        first = 1 + sum(rows for rows, _ in planned[: section.start])
        try:
            with parquet_file(opened, own_fields(fields), self.paths) as source:
                if source.groups != planned:
                    raise ValueError("its row groups are not those that were planned")
                for group in range(section.start, section.end):
                    for columns in source.read(group):
                        rows = JudgedRows(fields, columns, first)
                        yield rows
                        first += rows.number
        except ValueError as error:
            fault = "Parquet page too large" if isinstance(error, LargePageError) else "damaged Parquet file"
            raise BatchDataError(
                f"{opened.path}: {error}", component=COMPONENT, position=opened.path, fault=fault
            ) from error

    def warm_up(self) -> None:
        import txtopo.spouts.formats.parquet.parquet_file
        import txtopo.spouts.formats.parquet.rows  # noqa: F401


def own_fields(fields: Fields) -> Fields:
    """Return the fields whose values stand in the file."""
    return Fields(tuple(field for field in fields.items if field.name != ROW_FIELD))
