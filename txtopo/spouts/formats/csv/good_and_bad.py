"""Separates a window of a CSV file into the rows that parse and the records that do not, with the parser of the fast
path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Field, Fields
from txtopo.errors import unreachable
from txtopo.spouts.formats.csv.encodings import in_utf8
from txtopo.spouts.formats.csv.value_checks import (
    accepts_all,
    as_text,
    converted,
    impossible_values,
    is_utf8,
    refused_values,
)
from txtopo.spouts.formats.csv.values import BadValueError, Decoder
from txtopo.spouts.formats.csv.windows import Records, Window, values_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWindow:
    """The result for one window."""

    window: Window
    batches: list[pa.RecordBatch]
    """Rows that parse, in order."""
    refused: dict[int, str]
    """Number of a record in the window (from 0) -> why it does not parse, in order."""

    records: Records | None = None
    """The records of the window."""

    @property
    def rows(self) -> int:
        """Number of rows that parse."""
        return sum(batch.num_rows for batch in self.batches)


class RecordSplitter:
    """Separates the windows of one file, one after another."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._fields = decoder.fields.items
        self._suspects: set[int] = set()
        """Columns in which values did not parse so far: their texts are checked first. This changes the speed only, not
        the result.
        """
        self._expects_trouble = False

    def split(self, window: Window) -> SplitWindow:
        """Return the rows of the window that parse, and the records that do not."""
        if window.refused is not None:
            return SplitWindow(window=window, batches=[], refused={0: window.refused})
        if not self._expects_trouble:
            try:
                batches = self._decoder.decode(window.parsed, newlines=window.records is not None)
                return SplitWindow(window=window, batches=batches, refused={})
            except (BadValueError, pa.ArrowInvalid):
                self._expects_trouble = True
        split = self._apart(window)
        self._expects_trouble = bool(split.refused)
        return split

    def _apart(self, window: Window) -> SplitWindow:
        records = window.taken_apart()
        widths, columns = self._tokenised(window, records)
        left = [number for number in range(len(records.raws)) if number not in widths]
        wrong = pa.array([False] * len(left), pa.bool_())
        for at in self._suspects:
            if columns:
                wrong = pc.or_(wrong, impossible_values(self._fields[at], columns[at], self._decoder))
        batch = self._converted(columns, wrong)
        if batch is None:
            # A few values may not parse although they match the patterns.
            wrong = pc.or_(wrong, self._refused_mask(columns, len(left)))
            batch = self._converted(columns, wrong)
        rows = pc.indices_nonzero(wrong).to_pylist()
        numbers = [left[row] for row in rows]
        refused = self._wrong_widths(records, widths) | self._reasons(records, numbers)
        # A few values may parse although they do not match the patterns, such as numbers with blanks around them.
        batches = self._decoder.decode(_without(records.parsed, set(refused))) if batch is None else [batch]
        rows_count = sum(batch.num_rows for batch in batches)
        if rows_count + len(refused) != len(records.raws):
            unreachable(f"{len(records.raws)} records of a CSV file are {rows_count} rows and {len(refused)} rejects")
        return SplitWindow(window=window, batches=batches, refused=dict(sorted(refused.items())), records=records)

    def _tokenised(self, window: Window, records: Records) -> tuple[set[int], list[pa.Array]]:
        """Return the records with a wrong number of columns, and the columns of all others: as text for the suspected
        columns, as values for the others.
        """
        while True:
            fields = [as_text(field) if at in self._suspects else field for at, field in enumerate(self._fields)]
            try:
                widths, batches = self._parsed(window, records, fields)
            except (BadValueError, pa.ArrowInvalid):
                self._learn(window, records)
                continue
            rows = sum(batch.num_rows for batch in batches)
            if rows + len(widths) != len(records.raws) or len(batches) > 1:
                unreachable(f"{len(records.raws)} records of a CSV file were parsed as {rows} and {len(widths)}")
            return widths, batches[0].columns if batches else []

    def _parsed(
        self, window: Window, records: Records, fields: Sequence[Field]
    ) -> tuple[set[int], list[pa.RecordBatch]]:
        """Parse in one pass and find records with a wrong number of columns. Raises the errors of the decoder."""
        parser = self._decoder.of(Fields(tuple(fields)))
        widths: set[int] = set()

        def note(row: Any) -> str:
            widths.add(row.number - 1)
            return "skip"

        data = in_utf8(window.parsed, self._decoder.dialect.read_as)
        if not is_utf8(data):
            # The handler is only called with text.
            widths = {number for number, raw in enumerate(records.raws) if self._columns(raw) != self._width}
            return widths, parser.decode(_without(records.parsed, widths))
        source = pa.BufferReader(b"\n" + data)
        newlines = window.records is not None
        batches = list(parser.stream(source, len(data) + 1, note, newlines=newlines))
        return widths, batches

    def _learn(self, window: Window, records: Records) -> None:
        """Find the columns because of which the window does not parse."""
        known = len(self._suspects)
        _, batches = self._parsed(window, records, [as_text(field) for field in self._fields])
        for at, (field, texts) in enumerate(zip(self._fields, batches[0].columns, strict=True)):
            if (texts.null_count and not field.nullable) or not accepts_all(field, texts, self._decoder):
                self._suspects.add(at)
        if known == len(self._suspects):
            self._suspects.update(range(len(self._fields)))

    def _refused_mask(self, columns: list[pa.Array], rows: int) -> pa.BooleanArray:
        """Return the rows in which the parser itself refuses a value, as a mask."""
        found: set[int] = set()
        for at in self._suspects:
            found.update(refused_values(self._fields[at], columns[at], self._decoder))
        return pa.array([row in found for row in range(rows)], pa.bool_())

    def _converted(self, columns: list[pa.Array], wrong: pa.BooleanArray) -> pa.RecordBatch | None:
        """Return the rows without errors; None if some of them may not parse."""
        if not columns:
            return self._decoder.empty
        good = pc.invert(wrong)
        batch = pa.RecordBatch.from_arrays(columns, [str(at) for at in range(len(columns))]).filter(good)
        try:
            return pa.RecordBatch.from_arrays(
                [
                    converted(field, column, self._decoder) if at in self._suspects else column
                    for at, (field, column) in enumerate(zip(self._fields, batch.columns, strict=True))
                ],
                schema=self._decoder.empty.schema,
            )
        except (BadValueError, pa.ArrowInvalid):
            return None

    def _wrong_widths(self, records: Records, numbers: set[int]) -> dict[int, str]:
        found = {number: self._columns(records.raws[number]) for number in numbers}
        if self._width in found.values():
            unreachable("the parser of CSV files counts other columns in a record than it has")
        return {number: f"{columns} columns, the header has {self._width}" for number, columns in found.items()}

    def _reasons(self, records: Records, chosen: list[int]) -> dict[int, str]:
        """Return why these records do not parse: the first declared column that is wrong, however the records were
        found.
        """
        found: dict[int, str] = {}
        if not chosen:
            return found
        parser = self._decoder.of(Fields(tuple(as_text(field) for field in self._fields)))
        (texts,) = parser.decode(b"".join([records.parsed[number] for number in chosen]))
        for field, column in zip(self._fields, texts.columns, strict=True):
            for row, reason in refused_values(field, column, self._decoder).items():
                found.setdefault(chosen[row], reason)
        return found

    @property
    def _width(self) -> int:
        return len(self._decoder.header)

    def _columns(self, raw: bytes) -> int:
        """Return the number of columns of a record."""
        dialect = self._decoder.dialect
        delimiter = dialect.delimiter.encode()
        if not any(sign in raw for sign in dialect.special):
            return raw.count(delimiter) + 1
        return len(values_of(raw, dialect))


def _without(raws: list[bytes], numbers: set[int]) -> bytes:
    return b"".join([raw for number, raw in enumerate(raws) if number not in numbers])
