"""Consecutive rows of a Parquet file: which are rows of the declared fields, which are rejected and why, and the text
that is kept of one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Field, Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.formats.parquet.column_types import UnfitError, converted
from txtopo.spouts.formats.parquet.parquet_file import Values
from txtopo.spouts.formats.parquet.parquet_format import ROW_FIELD, own_fields
from txtopo.spouts.formats.parquet.row_json import json_value

VALUE_CHARS_MAX = 100
"""Number of characters of a value that a reason shows."""


class JudgedRows:
    """The values of the declared columns in some rows."""

    def __init__(self, fields: Fields, columns: Sequence[Values], first: int) -> None:
        """`first` is the number of the first row in its file, from 1; `columns` are those of all fields but `_row`."""
        self.first = first
        self._fields = own_fields(fields)
        self._columns = columns
        self.number = len(columns[0].array)
        """How many rows of the file they are."""
        self._refused: dict[int, str] = {}
        kept = self._good()
        self.kept: Sequence[int] = range(self.number)
        """The rows of `batch`, counted from 0."""
        if kept is None:
            self._refused = self._found_wrong()
            self.kept = [row for row in range(self.number) if row not in self._refused]
            places = pa.array(self.kept, pa.int64())
            kept = [
                converted(field, column.array.take(places))
                for field, column in zip(self._fields.items, columns, strict=True)
            ]
        self.batch: pa.RecordBatch = self._batch(fields, kept)
        """The rows of the declared fields."""

    def rejects(self, path: str) -> list[RejectedRow]:
        """Return the other rows."""
        found = []
        for row, reason in self._refused.items():
            raw = self.raw(row)
            found.append(
                RejectedRow(
                    path=path,
                    line=self.first + row,
                    reason=reason,
                    raw=raw[:REJECTED_RAW_BYTES_MAX],
                    raw_bytes=len(raw),
                    unit="row",
                )
            )
        return found

    def raw(self, row: int) -> bytes:
        """Return a row as JSON: its declared columns, as the file has them."""
        values = {
            field.name: json_value(field, column.array.slice(row, 1))
            for field, column in zip(self._fields.items, self._columns, strict=True)
        }
        return json.dumps(values, ensure_ascii=False).encode()

    def _good(self) -> list[pa.Array] | None:
        """Return all values as their declared types; None if one is none of its type."""
        try:
            return [_whole(field, column) for field, column in zip(self._fields.items, self._columns, strict=True)]
        except (UnfitError, pa.ArrowInvalid):
            return None

    def _found_wrong(self) -> dict[int, str]:
        """Return row -> reason, in order: the first declared field that is wrong."""
        found: dict[int, str] = {}
        for field, column in zip(self._fields.items, self._columns, strict=True):
            for row, reason in _refused(field, column).items():
                found.setdefault(row, reason)
        return dict(sorted(found.items()))

    def _batch(self, fields: Fields, columns: list[pa.Array]) -> pa.RecordBatch:
        values = iter(columns)
        numbers = pa.array([self.first + row for row in self.kept], pa.int64()) if fields.get(ROW_FIELD) else None
        return pa.RecordBatch.from_arrays(
            [numbers if field.name == ROW_FIELD else next(values) for field in fields.items],
            schema=arrow_schema(fields),
        )


def _whole(field: Field, column: Values) -> pa.Array:
    if column.is_cut is not None and pc.any(column.is_cut).as_py():
        raise UnfitError
    return converted(field, column.array)


def _refused(field: Field, column: Values) -> dict[int, str]:
    """Return row -> reason for the values that are none of the declared type."""
    found: dict[int, str] = {}
    for row in _by_halving(field, column):
        one = column.array.slice(row, 1)
        if one.null_count:
            found[row] = f"column {field.name!r} is NULL, declared NOT NULL"
            continue
        shown = json.dumps(json_value(field, one), ensure_ascii=False)
        shown = shown if len(shown) <= VALUE_CHARS_MAX else shown[:VALUE_CHARS_MAX] + "…"
        found[row] = f"column {field.name!r}: {shown} of type {one.type} is no {_wanted(field)}"
    return found


def _wanted(field: Field) -> str:
    return f"{field.type}" if field.type.kind != "string" else "string in UTF-8 without NUL"


def _by_halving(field: Field, column: Values) -> list[int]:
    """Return the rows whose values are refused, in order, with the conversion itself."""
    found: list[int] = []
    open_ranges = [(0, len(column.array))]
    while open_ranges:
        low, high = open_ranges.pop()
        cut = column.is_cut.slice(low, high - low) if column.is_cut is not None else None
        try:
            _whole(field, Values(column.array.slice(low, high - low), cut))
        except (UnfitError, pa.ArrowInvalid):
            if high - low == 1:
                found.append(low)
                continue
            middle = (low + high) // 2
            open_ranges += [(middle, high), (low, middle)]
    return found
