"""Converts columns of texts to the declared types, with the spellings and the parser of CSV values, and finds the texts
that are no such value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Field, Fields
from txtopo.spouts.arrow_types import arrow_schema, arrow_type
from txtopo.spouts.formats.csv.value_checks import converted, refused_values
from txtopo.spouts.formats.csv.values import BadValueError, Decoder

Column: TypeAlias = "pa.Array"
"""Texts of one field as `binary`, NULL for NULL; or values that already have the type of the field."""


def whole_batch(fields: Fields, columns: Sequence[Column]) -> pa.RecordBatch | None:
    """Return the values of all rows; None if one of them may be refused."""
    try:
        return pa.RecordBatch.from_arrays(
            [_whole(field, column) for field, column in zip(fields.items, columns, strict=True)],
            schema=arrow_schema(fields),
        )
    except (BadValueError, pa.ArrowInvalid):
        return None


def sifted_batch(fields: Fields, columns: Sequence[Column]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the values of the rows in which every text is a value of its type, and for all others, by row, why not:
    the first declared field that is wrong.
    """
    refused: dict[int, str] = {}
    for field, column in zip(fields.items, columns, strict=True):
        for row, reason in _refused(field, column).items():
            refused.setdefault(row, reason)
    if refused:
        good = pa.array([row for row in range(len(columns[0])) if row not in refused], pa.int64())
        columns = [column.take(good) for column in columns]
    values = [_values(field, column) for field, column in zip(fields.items, columns, strict=True)]
    return pa.RecordBatch.from_arrays(values, schema=arrow_schema(fields)), dict(sorted(refused.items()))


def _whole(field: Field, column: Column) -> pa.Array:
    if not field.nullable and column.null_count:
        raise BadValueError(f"column {field.name!r} is NULL, declared NOT NULL")
    if column.type != pa.binary():
        if column.type == pa.string() and pc.any(pc.match_substring(column, "\0")).as_py():
            raise BadValueError(f"column {field.name!r} holds the NUL character")
        return column
    return converted(field, column, _decoder(field))


def _refused(field: Field, column: Column) -> dict[int, str]:
    if column.type == pa.binary():
        return refused_values(field, column, _decoder(field))
    if field.nullable or not column.null_count:
        return {}
    reason = f"column {field.name!r} is NULL, declared NOT NULL"
    return dict.fromkeys(pc.indices_nonzero(pc.is_null(column)).to_pylist(), reason)


def _values(field: Field, column: Column) -> pa.Array:
    """Return the values of texts of which the parser refuses none."""
    if column.type != pa.binary():
        return column
    try:
        return converted(field, column, _decoder(field))
    except (BadValueError, pa.ArrowInvalid):
        # The conversion is stricter than the parser, for example with blanks around a number.
        texts = column.drop_null().to_pylist()
        data = b"".join(b'"' + text.replace(b'"', b'""') + b'"\n' for text in texts)
        parsed = _decoder(field).decode(data)
        values = pa.concat_arrays([batch.column(0) for batch in parsed])
        places = pc.subtract(pc.cumulative_sum(pc.cast(pc.is_valid(column), pa.int64())), 1)
        return values.take(pc.if_else(pc.is_valid(column), places, None)).cast(arrow_type(field.type))


@lru_cache(maxsize=256)
def _decoder(field: Field) -> Decoder:
    """Return a decoder of this field alone. NOT NULL is checked here, since a row that is NULL is no text."""
    alone = Field(field.name, field.type)
    return Decoder((field.name,), Fields((alone,)), may_hold_nul=True, may_hold_hexadecimal=True)
