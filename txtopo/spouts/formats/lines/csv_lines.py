"""The pair of single CSV records: each text is exactly one record without a header, such as the value of a message."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from txtopo.spouts.formats.csv.dialect import record_pattern
from txtopo.spouts.formats.csv.good_and_bad import RecordSplitter
from txtopo.spouts.formats.csv.values import BadValueError, Decoder
from txtopo.spouts.formats.csv.windows import Window, records_of
from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted

_ENDS = b"\r\n"


class CsvLines(LinePair):
    """Texts that are one record each, with or without a line end."""

    def __init__(self, decoder: Decoder) -> None:
        """`decoder` has the columns of every text; its dialect has no comments."""
        self._decoder = decoder
        self._dialect = decoder.dialect
        self._match = record_pattern(decoder.dialect).match

    def whole(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        block = b"\n".join(lines)
        is_plain = block.count(b"\n") == len(lines) - 1 and b"\r" not in block and all(lines)
        if not is_plain or any(sign in block for sign in self._dialect.special):
            return None
        try:
            return self._batch(self._decoder.decode(block, newlines=False), len(lines))
        except (BadValueError, pa.ArrowInvalid):
            return None

    def sift(self, lines: Sequence[bytes]) -> Sifted:
        refused: dict[int, str] = {}
        numbers: list[int] = []
        raws: list[bytes] = []
        for number, line in enumerate(lines):
            raw, reason = self._record(line)
            if reason is None:
                numbers.append(number)
                raws.append(raw)
            else:
                refused[number] = reason
        if not raws:
            return Sifted(self._decoder.empty, refused)
        window = Window(start=0, data=b"".join(raws), records=records_of(raws, self._dialect))
        split = RecordSplitter(self._decoder.telling_infinite()).split(window)
        refused.update((numbers[at], _of_text(reason)) for at, reason in split.refused.items())
        batch = pa.concat_batches(split.batches) if split.batches else self._decoder.empty
        return Sifted(batch, dict(sorted(refused.items())))

    def _record(self, line: bytes) -> tuple[bytes, str | None]:
        """Return a text with a line end, or why it is not one record."""
        if not line.rstrip(_ENDS):
            return b"", "the line is empty"
        text = line if line.endswith((b"\n", b"\r")) else line + b"\n"
        match = self._match(text)
        if match is not None and match.lastindex is not None:
            return b"", "a quoted value is not closed, or an escape has nothing after it"
        if match is None or match.end() < len(line):
            return b"", "the line is more than one record of CSV, or text follows a closing quote"
        return text[: match.end()], None

    def _batch(self, batches: Sequence[pa.RecordBatch], rows: int) -> pa.RecordBatch | None:
        """Return them as one, if they have so many rows."""
        found = pa.concat_batches(batches) if batches else self._decoder.empty
        return found if found.num_rows == rows else None


def _of_text(reason: str) -> str:
    return reason.replace(" columns, the header has ", " columns, declared are ") if reason[:1].isdigit() else reason
