"""What all formats have in common whose records are lines: sections, windows, line numbers, rejected lines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts.formats.csv.dialect import BYTE_ORDER_MARK, check_encoding
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section, byte_sections
from txtopo.topology.components import Position

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted
    from txtopo.spouts.formats.lines.line_windows import LineNumbers, LineWindow

LOCATED_CHARS_MAX = 300
"""Number of characters of a line that `locate` shows."""
LINE_FIELD = "_line"
"""A field of this name has the number of the line in the file, from 1."""


class LineFormat(Format):
    """A format whose records are lines, in UTF-8. A subclass says in its pair what a line means."""

    reads_forward = True

    @abstractmethod
    def _pair(self, fields: Fields) -> LinePair:
        """Return what judges lines, for these fields."""

    def check(self, fields: Fields) -> None:
        numbers = fields.get(LINE_FIELD)
        if numbers is not None and numbers.type.kind != "bigint":
            raise TopologyError(f"{LINE_FIELD} is the number of the line: declare it as bigint, not {numbers.type}")
        if not own_fields(fields).items:
            raise TopologyError(f"at least one field other than {LINE_FIELD} is needed")

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        """Return in `data` the offset of the first line; with `_line`, that the file is not divided."""
        check_encoding(opened.start)
        described: dict[str, Any] = {"data": len(BYTE_ORDER_MARK) if opened.start.startswith(BYTE_ORDER_MARK) else 0}
        if fields.get(LINE_FIELD) is not None:
            # A task that starts in the middle of a file would have to read all bytes before it to know its lines.
            described["undivided"] = True
        return described

    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        start, end = int(file["data"]), int(file["size"])
        return [Section(start, end)] if file.get("undivided") else byte_sections(start, end, part_bytes)

    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        from txtopo.spouts.formats.lines.line_windows import LineNumbers

        numbers = LineNumbers(opened.read, int(file["data"]))
        for window, places, sifted in self._windows(opened, file, section, fields, numbers):
            batch = sifted.batch
            if fields.get(LINE_FIELD) is not None:
                batch = _numbered(batch, fields, sifted, places, numbers.at(window.start))
            rejects = _rejects(str(file["path"]), window, places, sifted, numbers) if sifted.refused else ()
            numbers.passed(window)
            yield Emitted(batch=batch, rejects=rejects)

    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        from txtopo.spouts.formats.lines.line_windows import LineNumbers
        from txtopo.spouts.reject_limit import shown_raw

        numbers, done = LineNumbers(opened.read, int(file["data"])), 0
        for window, places, sifted in self._windows(opened, file, section, fields, numbers):
            if number - done < sifted.batch.num_rows:
                kept = [place for index, place in enumerate(places) if index not in sifted.refused]
                place = kept[number - done]
                return Position(
                    position=f"{file['path']}:{numbers.at(window.start) + place}",
                    raw=shown_raw(window.lines[place], LOCATED_CHARS_MAX),
                )
            done += sifted.batch.num_rows
            numbers.passed(window)
        return done

    def _windows(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, numbers: LineNumbers
    ) -> Iterator[tuple[LineWindow, Sequence[int], Sifted]]:
        """Yield each window, which of its lines are records, and what they are. Raises BatchDataError that names a line
        that is too long.
        """
        from txtopo.spouts.formats.lines.line_pair import judged
        from txtopo.spouts.formats.lines.line_windows import LineTooLongError, line_windows
        from txtopo.spouts.planned_file import COMPONENT

        pair = self._pair(own_fields(fields))
        try:
            for window in line_windows(opened.read, file, section):
                lines, places = window.lines, range(len(window.lines))
                chosen: Sequence[int] = places
                if pair.skips_any(lines):
                    chosen = [place for place in places if pair.is_record(lines[place])]
                    lines = [lines[place] for place in chosen]
                yield window, chosen, judged(pair, lines)
                opened.forget(window.end)
        except LineTooLongError as error:
            position = f"{file['path']}:{numbers.at(error.offset)}"
            raise BatchDataError(
                f"{position}: {error}", component=COMPONENT, position=position, fault="line too long"
            ) from None

    def warm_up(self) -> None:
        import txtopo.spouts.formats.lines.line_pair
        import txtopo.spouts.formats.lines.line_windows
        import txtopo.spouts.formats.lines.typed_texts  # noqa: F401


def own_fields(fields: Fields) -> Fields:
    """Return the fields whose values stand in the line."""
    return Fields(tuple(field for field in fields.items if field.name != LINE_FIELD))


def _numbered(
    batch: pa.RecordBatch, fields: Fields, sifted: Sifted, places: Sequence[int], first: int
) -> pa.RecordBatch:
    """Return the rows with the numbers of their lines."""
    import pyarrow as pa

    from txtopo.spouts.arrow_types import arrow_schema

    lines = [first + place for index, place in enumerate(places) if index not in sifted.refused]
    columns = [
        pa.array(lines, pa.int64()) if field.name == LINE_FIELD else batch.column(field.name) for field in fields.items
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(fields))


def _rejects(
    path: str, window: LineWindow, places: Sequence[int], sifted: Sifted, numbers: LineNumbers
) -> list[RejectedRow]:
    first = numbers.at(window.start)
    rejects = []
    for index, reason in sifted.refused.items():
        raw = window.lines[places[index]]
        rejects.append(
            RejectedRow(
                path=path,
                line=first + places[index],
                reason=reason,
                raw=raw[:REJECTED_RAW_BYTES_MAX],
                raw_bytes=len(raw),
            )
        )
    return rejects
