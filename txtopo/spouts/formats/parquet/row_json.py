"""The values of a row as JSON: what is kept of a rejected row, and what a message shows of a value.

Texts are JSON texts (bytes that are not UTF-8 as `\\xff`), numbers and booleans the same in JSON; decimals are texts
with all their digits, bytes are hexadecimal, and days and instants as in ISO 8601, with as many digits of a second as
they need. What JSON has no number for is a text: NaN, Infinity, -Infinity. Outside the years 1 to 9999, a day is its
number, and an instant its microseconds, since 1970.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from txtopo.core.fields import Field
from txtopo.spouts.formats.parquet.column_types import is_bytes, is_text

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = dt.datetime(1970, 1, 1)
_FIRST_S = (dt.datetime.min - _EPOCH) // dt.timedelta(seconds=1)
_LAST_S = (dt.datetime.max - _EPOCH) // dt.timedelta(seconds=1)


def json_value(field: Field, one: pa.Array) -> Any:
    """Return the only value of an array, as it is in the file, as a JSON value."""
    found = one.type
    if not one[0].is_valid:
        return None
    if is_text(found) or is_bytes(found):
        data = pc.cast(one, pa.binary())[0].as_py()
        return data.hex() if field.type.kind == "binary" else data.decode("utf-8", "backslashreplace")
    if types.is_floating(found):
        return _number(pc.cast(one, pa.float64())[0].as_py())
    if types.is_decimal(found):
        return format(one[0].as_py(), "f")
    if types.is_date(found):
        return _day(pc.cast(pc.cast(one, pa.date32()), pa.int32())[0].as_py())
    if types.is_timestamp(found):
        count = pc.cast(one, pa.int64())[0].as_py()
        return _instant(count, _PER_SECOND[found.unit], "Z" if field.type.kind == "timestamp" else "")
    return one[0].as_py()


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _day(number: int) -> str | int:
    try:
        return (_EPOCH.date() + dt.timedelta(days=number)).isoformat()
    except OverflowError:
        return number


def _instant(count: int, per_second: int, zone: str) -> str | int:
    seconds, part = divmod(count, per_second)
    if not _FIRST_S <= seconds <= _LAST_S:
        return count * 10**6 // per_second
    fraction = f"{part * (10**9 // per_second):09d}".rstrip("0")
    moment = (_EPOCH + dt.timedelta(seconds=seconds)).isoformat()
    return f"{moment}{'.' if fraction else ''}{fraction}{zone}"
