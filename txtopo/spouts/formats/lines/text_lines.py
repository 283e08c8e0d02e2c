"""The pair of the format text: the line is the value of one field."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted, cut_lines
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch


class TextLines(LinePair):
    """Each line is a row of one field. An empty line is one, too."""

    def __init__(self, fields: Fields) -> None:
        """`fields`: exactly one."""
        self._fields = fields

    def whole(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        return whole_batch(self._fields, [pa.array(lines, pa.binary())])

    def block(self, data: bytes) -> pa.RecordBatch | None:
        lines = cut_lines(data)
        return None if lines is None else whole_batch(self._fields, [lines])

    def sift(self, lines: Sequence[bytes]) -> Sifted:
        batch, refused = sifted_batch(self._fields, [pa.array(lines, pa.binary())])
        return Sifted(batch, {number: _in_words(lines[number]) for number in refused})

    def is_record(self, line: bytes) -> bool:
        return True

    def skips_any(self, lines: Sequence[bytes]) -> bool:
        return False


def _in_words(line: bytes) -> str:
    return "the line holds the NUL character" if b"\0" in line else "the line is not UTF-8"
