"""Converts Python tuples to Arrow record batches of the declared fields; an error names the field, the value and its
place.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import FLOAT_KINDS, FLOAT_MAX, INTEGER_KINDS, Field, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema, arrow_type
from txtopo.topology.components import Position, Tally

ROWS_PER_BATCH = 8192
"""Maximum number of tuples of one record batch."""
COMPONENT = "spout"
"""A placeholder for the component; the executor knows the spout's name."""
RAW_CHARS_MAX = 2000
_PYTHON: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    **dict.fromkeys(INTEGER_KINDS, (int,)),
    **dict.fromkeys(FLOAT_KINDS, (float, int)),
    "decimal": (Decimal, int),
    "date": (datetime.date,),
    "timestamp": (datetime.datetime,),
    "timestamp_ntz": (datetime.datetime,),
    "binary": (bytes,),
}


def emit_tuples(emitted: Iterable[Any], fields: Fields, tally: Tally, place: str) -> Iterator[pa.RecordBatch]:
    """Yield what an emitter yields - tuples, record batches, tables, mixed - as record batches of exactly `fields`, in
    the same order.

    Counts into `tally`. Raises BatchDataError that names field, value and `place` (e.g. `partition 2`), with the
    tuple's number from 1.
    """
    if not isinstance(emitted, Iterable):
        raise BatchDataError(
            f"{place}: the emitter returned {_shown(emitted)} instead of tuples: `yield` each tuple, or return a "
            f"list".lstrip(": "),
            component=COMPONENT,
            fault="no tuples",
        )
    waiting: list[Sequence[Any]] = []
    for item in emitted:
        if isinstance(item, pa.RecordBatch | pa.Table):
            if waiting:
                yield _flush(waiting, fields, tally, place)
            for batch in item.to_batches() if isinstance(item, pa.Table) else (item,):
                _check_batch(batch, fields, place)
                tally.read += batch.num_rows
                yield pa.RecordBatch.from_arrays(batch.columns, schema=arrow_schema(fields))
            continue
        if isinstance(item, str | bytes) or not isinstance(item, Sequence) or len(item) != len(fields.items):
            raise _refused(
                place,
                tally.read + len(waiting),
                f"{_shown(item)} is no tuple of {len(fields.items)} values ({fields.ddl})",
            )
        waiting.append(item)
        if len(waiting) == ROWS_PER_BATCH:
            yield _flush(waiting, fields, tally, place)
    if waiting:
        yield _flush(waiting, fields, tally, place)


def locate_tuple(batches: Iterable[pa.RecordBatch], number: int, place: str) -> Position | None:
    """Return tuple `number` (from 0) of a part, by emitting the part once more; None if it has fewer."""
    left = number
    for batch in batches:
        if left < batch.num_rows:
            (row,) = batch.slice(left, 1).to_pylist()
            raw = json.dumps(row, ensure_ascii=False, default=str)
            raw = raw if len(raw) <= RAW_CHARS_MAX else raw[:RAW_CHARS_MAX] + "…"
            return Position(position=f"{place} tuple {number + 1}".lstrip(), raw=raw)
        left -= batch.num_rows
    return None


def check_value(value: Any, field: Field) -> str | None:
    """Return why the value does not fit the field; None: it fits."""
    if value is None:
        return None if field.nullable else "is NULL, but the field is declared NOT NULL"
    kind = field.type.kind
    fits = isinstance(value, _PYTHON[kind])
    if isinstance(value, bool) and kind != "boolean":
        fits = False
    if isinstance(value, datetime.datetime):
        # A date would lose its time; a timestamp without its time zone would be another instant elsewhere.
        fits = kind == ("timestamp_ntz" if value.tzinfo is None else "timestamp")
    if not fits:
        hint = " with a time zone" if kind == "timestamp" else " without a time zone" if kind == "timestamp_ntz" else ""
        return f"is a {type(value).__name__}, the field is declared {field.type}{hint}"
    if kind == "float" and math.isfinite(value) and abs(value) > FLOAT_MAX:
        return "does not fit float: it would become infinite"
    try:
        pa.array([value], type=arrow_type(field.type))
    except (pa.ArrowException, OverflowError, ValueError) as error:
        return f"does not fit {field.type}: {error}"
    return None


def _flush(waiting: list[Sequence[Any]], fields: Fields, tally: Tally, place: str) -> pa.RecordBatch:
    columns = list(zip(*waiting, strict=True))
    arrays = [_column(values, field, tally.read, place) for values, field in zip(columns, fields.items, strict=True)]
    tally.read += len(waiting)
    waiting.clear()
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(fields))


_QUICK: Mapping[str, frozenset[type]] = {
    kind: frozenset({*types, type(None)}) - {datetime.datetime} for kind, types in _PYTHON.items()
}
"""Types whose values need no second check. Subclasses (bool is one of int), and datetimes with time zones, are checked
one by one.
"""


def _column(values: Sequence[Any], field: Field, before: int, place: str) -> pa.Array:
    """Convert a whole column in one step; value by value only if a value is or may be wrong."""
    types = set(map(type, values))
    try:
        if types <= _QUICK[field.type.kind] and (field.nullable or type(None) not in types):
            array = pa.array(values, type=arrow_type(field.type))
            if field.type.kind != "float" or not pc.any(pc.is_inf(array)).as_py():
                return array
    except (pa.ArrowException, OverflowError, ValueError):
        pass
    for at, value in enumerate(values):
        if (why := check_value(value, field)) is not None:
            raise _refused(place, before + at, f"field {field.name}: {_shown(value)} {why}")
    return pa.array(values, type=arrow_type(field.type))


def _check_batch(batch: pa.RecordBatch, fields: Fields, place: str) -> None:
    declared = arrow_schema(fields)
    for found, wanted in itertools.zip_longest(batch.schema, declared):
        if found is None or wanted is None or (found.name, found.type) != (wanted.name, wanted.type):
            shown = ", ".join(f"{one.name} {one.type}" for one in batch.schema)
            raise _refused(place, None, f"a record batch has the columns {shown}; declared are {fields.ddl}")
    for column, field in zip(batch.columns, fields.items, strict=True):
        if column.null_count and not field.nullable:
            raise _refused(
                place, None, f"field {field.name}: a record batch has NULL, but the field is declared NOT NULL"
            )


def _refused(place: str, number: int | None, why: str) -> BatchDataError:
    position = place if number is None else f"{place} tuple {number + 1}".lstrip()
    fault = "record batch that does not fit" if number is None else "tuple that does not fit"
    message = f"{position}: {why}" if position else why
    return BatchDataError(message, component=COMPONENT, position=position or None, fault=fault)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
