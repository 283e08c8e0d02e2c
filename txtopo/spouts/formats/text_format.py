"""The format text: each line is a row with one field; lines that are not valid text are rejected."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts.formats.csv.dialect import BYTE_ORDER_MARK, check_encoding
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section, byte_sections
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.reject_limit import shown_raw
from txtopo.topology.components import Position

WINDOW_BYTES = 4 * 1024 * 1024
RECORD_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a line in bytes."""
LOCATED_CHARS_MAX = 300
"""Number of characters of a line that `locate` shows."""
Line = tuple[int, bytes]
"""The number of a line in the file, from 1, and its bytes without the line end."""


class TextLines(Format):
    """UTF-8 text; each line is a row of one text field."""

    kind = "text"

    def layout(self) -> Mapping[str, Any]:
        return {}

    def check(self, fields: Fields) -> None:
        if [field.type.kind for field in fields.items] != ["string"]:
            raise TopologyError(f"files of text have one field of type string, declared is {fields.ddl}")

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        """Return in `data` the offset of the first line: a byte order mark is skipped."""
        check_encoding(opened.start)
        return {"data": len(BYTE_ORDER_MARK) if opened.start.startswith(BYTE_ORDER_MARK) else 0}

    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        return byte_sections(int(file["data"]), int(file["size"]), part_bytes)

    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        import pyarrow as pa

        from txtopo.spouts.arrow_types import arrow_schema

        schema = arrow_schema(fields)
        for lines in _windows(opened, file, section):
            texts: list[str] = []
            rejects: list[RejectedRow] = []
            for number, raw in lines:
                text = _text(raw)
                if text is not None:
                    texts.append(text)
                    continue
                rejects.append(
                    RejectedRow(
                        path=str(file["path"]),
                        line=number,
                        reason="the line holds the NUL character" if b"\0" in raw else "the line is not UTF-8",
                        raw=raw[:REJECTED_RAW_BYTES_MAX],
                        raw_bytes=len(raw),
                    )
                )
            yield Emitted(batch=pa.record_batch([pa.array(texts, pa.string())], schema=schema), rejects=rejects)

    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        done = 0
        for line, raw in itertools.chain.from_iterable(_windows(opened, file, section)):
            if _text(raw) is None:
                continue
            if done == number:
                return Position(position=f"{file['path']}:{line}", raw=shown_raw(raw, LOCATED_CHARS_MAX))
            done += 1
        return done


def _text(raw: bytes) -> str | None:
    try:
        return None if b"\0" in raw else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _windows(opened: Opened, file: PlannedFile, section: Section) -> Iterator[list[Line]]:
    """Yield the lines of a piece in groups: the lines that start after the first LF at or after `start - 1`, up to the
    first LF at or after `end - 1`.
    """
    size = int(file["size"])
    start, end = section
    offset = start if start == file["data"] else _after_line(opened, start - 1, size)
    stop = end if end == size else _after_line(opened, end - 1, size)
    number = _line_at(opened, offset)
    wanted = WINDOW_BYTES
    while offset < stop:
        data = opened.read(offset, min(wanted, stop - offset))
        if not data:
            return  # The file is shorter than before; the comparison with its plan reports that.
        whole = len(data) if offset + len(data) >= stop else data.rfind(b"\n") + 1
        if not whole:
            if wanted >= RECORD_BYTES_MAX:
                position = f"{file['path']}:{number}"
                raise BatchDataError(
                    f"{position}: the line is longer than {RECORD_BYTES_MAX} bytes",
                    component=COMPONENT,
                    position=position,
                    fault="line too long",
                )
            wanted = min(2 * wanted, RECORD_BYTES_MAX)
            continue
        lines = data[:whole].split(b"\n")
        if not lines[-1]:
            lines.pop()  # After the last line end.
        yield [(number + at, raw.removesuffix(b"\r")) for at, raw in enumerate(lines)]
        number += len(lines)
        offset += whole
        wanted = WINDOW_BYTES


def _after_line(opened: Opened, offset: int, size: int) -> int:
    """Return the offset after the first LF at or after `offset`; the size of the file if there is none."""
    while offset < size:
        data = opened.read(offset, WINDOW_BYTES)
        at = data.find(b"\n")
        if at >= 0:
            return offset + at + 1
        if not data:
            break
        offset += len(data)
    return size


def _line_at(opened: Opened, offset: int) -> int:
    """Return the line that starts at `offset`."""
    lines = done = 0
    while done < offset:
        data = opened.read(done, min(WINDOW_BYTES, offset - done))
        if not data:
            break
        lines += data.count(b"\n")
        done += len(data)
    return lines + 1
