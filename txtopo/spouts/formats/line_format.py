"""What all formats have in common whose records are lines: sections, windows, line numbers, rejected lines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts.formats.csv.dialect import check_encoding
from txtopo.spouts.formats.csv.encodings import BYTE_ORDER_MARK
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section, byte_sections
from txtopo.topology.components import Position

if TYPE_CHECKING:
    from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted
    from txtopo.spouts.formats.lines.line_windows import LineNumbers, LineWindow

LOCATED_CHARS_MAX = 300
"""Number of characters of a line that `locate` shows."""
TOGETHER_FILE_BYTES_MAX = 256 * 1024
"""A larger file is read by itself: to set up its parser costs little next to its lines, and one bad line among them
would have the lines of others parsed twice.
"""
PAIRS_KEPT = 64
"""Number of pairs that a process keeps."""


class LineFormat(Format):
    """A format whose records are lines, in UTF-8. A subclass says in its pair what a line means."""

    reads_forward = True
    number_field = "_line"

    @abstractmethod
    def _pair(self, fields: Fields) -> LinePair:
        """Return what judges lines, for these fields."""

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        """Return in `data` the offset of the first line."""
        check_encoding(opened.start)
        return {"data": len(BYTE_ORDER_MARK) if opened.start.startswith(BYTE_ORDER_MARK) else 0}

    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        """Return one section for a file that is numbered: a task that starts in the middle would have to read all bytes
        before it to know its lines.
        """
        start, end = int(file["data"]), int(file["size"])
        return [Section(start, end)] if file.get("numbered") else byte_sections(start, end, part_bytes)

    def common(self, file: PlannedFile, section: Section) -> Hashable | None:
        """Return the same for all small files that are read as a whole and without numbers of lines."""
        is_whole = section.start == int(file["data"]) and section.end == int(file["size"])
        return True if is_whole and section.size <= TOGETHER_FILE_BYTES_MAX and not file.get("numbered") else None

    def emit_together(self, contents: Sequence[bytes], file: PlannedFile, fields: Fields) -> Emitted | None:
        """Judge all lines together: the last line of a file ends with it."""
        from txtopo.spouts.formats.lines.line_windows import lines_of

        pair = _kept_pair(self, fields)
        data = b"".join([content + (b"" if content.endswith(b"\n") else b"\n") for content in contents if content])
        batch = pair.block(data) if data else None
        if batch is None:
            lines = [line for line in lines_of(data) if pair.is_record(line)]
            batch = pair.whole(lines) if lines else pair.sift(lines).batch
        return None if batch is None else Emitted(batch=batch)

    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        from txtopo.spouts.formats.lines.line_windows import LineNumbers

        numbers = LineNumbers(opened.read, int(file["data"]), int(file.get("first_line", 1)))
        for window, places, sifted in self._windows(opened, file, section, fields, numbers):
            lines: Sequence[int] | None = None
            if file.get("numbered"):
                first = numbers.at(window.start)
                lines = [first + place for index, place in enumerate(places) if index not in sifted.refused]
            rejects = _rejects(str(file["path"]), window, places, sifted, numbers) if sifted.refused else ()
            numbers.passed(window)
            yield Emitted(batch=sifted.batch, rejects=rejects, numbers=lines)

    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        from txtopo.spouts.formats.lines.line_windows import LineNumbers
        from txtopo.spouts.reject_limit import shown_raw

        numbers, done = LineNumbers(opened.read, int(file["data"]), int(file.get("first_line", 1))), 0
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
        from txtopo.spouts.formats.lines.line_windows import LineTooLongError, line_windows
        from txtopo.spouts.planned_file import COMPONENT

        pair = _kept_pair(self, fields)
        try:
            for window in line_windows(opened.read, file, section):
                yield window, *_judged(pair, window)
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


@lru_cache(maxsize=PAIRS_KEPT)
def _kept_pair(format_: LineFormat, fields: Fields) -> LinePair:
    """Return what judges lines: the same for equal arguments, since a batch has many files. It keeps nothing."""
    return format_._pair(fields)


def _judged(pair: LinePair, window: LineWindow) -> tuple[Sequence[int], Sifted]:
    """Return which lines of a window are records, and what they are."""
    from txtopo.spouts.formats.lines.line_pair import Sifted, judged

    batch = pair.block(window.data)
    if batch is not None:
        return range(batch.num_rows), Sifted(batch, {})
    lines = window.lines
    places: Sequence[int] = range(len(lines))
    if pair.skips_any(lines):
        places = [place for place in places if pair.is_record(lines[place])]
        lines = [lines[place] for place in places]
    return places, judged(pair, lines)


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
