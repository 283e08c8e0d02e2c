"""Judges the values of the columns of a table file, with separate code of the audit: each as a Python value of its
declared type; and the JSON that is kept of a rejected row.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from txtopo.audit.readers.text_values import WIDE
from txtopo.core.fields import Field

Cell = Callable[[Any], Any]
"""Value as it is in the file -> value of the declared type, None for NULL; raises ValueError if it is none."""
Kind = Literal["plain", "days", "microseconds", "nanoseconds"]
"""What the numbers of a column count, since 1970 in UTC; `plain`: they are the values."""
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DAY_ZERO = date(1970, 1, 1)
_START = datetime(1970, 1, 1)


def cell_of(column: Field, kind: Kind) -> Cell:
    """Return what judges the values of a column."""
    judge = _judge_of(column, kind)

    def cell(value: Any) -> Any:
        if value is None:
            if not column.nullable:
                raise ValueError(f"column {column.name} is NULL")
            return None
        return judge(value)

    return cell


def row_as_json(columns: Sequence[Field], kinds: Sequence[Kind], values: Sequence[Any]) -> bytes:
    """Return the JSON of a row."""
    pairs = [
        f"{json.dumps(column.name, ensure_ascii=False)}: {json.dumps(_shown(column, kind, value), ensure_ascii=False)}"
        for column, kind, value in zip(columns, kinds, values, strict=True)
    ]
    return ("{" + ", ".join(pairs) + "}").encode()


def _judge_of(column: Field, kind: Kind) -> Cell:
    name = column.type.kind
    if name in _BITS:
        return lambda value: _integer(value, _BITS[name])
    if name == "decimal":
        precision, scale = column.type.precision or 0, column.type.scale or 0
        return lambda value: _decimal(value, precision, scale)
    judges: dict[str, Cell] = {
        "string": _string,
        "binary": _bytes,
        "boolean": lambda value: _of_class(value, bool),
        "float": lambda value: _of_class(value, float),
        "double": lambda value: _of_class(value, float),
        "date": lambda value: _DAY_ZERO + timedelta(days=value),
        "timestamp": lambda value: _instant(value, kind).replace(tzinfo=UTC),
        "timestamp_ntz": lambda value: _instant(value, kind),
    }
    return judges[name]


def _of_class(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise ValueError(f"no {wanted.__name__}")
    return value


def _integer(value: Any, bits: int) -> int:
    if not -(1 << bits - 1) <= _of_class(value, int) < 1 << bits - 1:
        raise ValueError("out of range")
    return int(value)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    number = value if isinstance(value, Decimal) else Decimal(_of_class(value, int))
    try:
        fitting = number.quantize(Decimal((0, (1,), -scale)), context=WIDE)
    except InvalidOperation as error:
        raise ValueError("out of range") from error
    if fitting != number or (fitting and len(fitting.as_tuple().digits) > precision):
        raise ValueError("more places than declared")
    return fitting


def _string(value: Any) -> str:
    text = _bytes(value).decode("utf-8")
    if "\0" in text:
        raise ValueError("a NUL character")
    return text


def _bytes(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    data: bytes = value.encode() if isinstance(value, str) else _of_class(value, bytes)
    return data


def _instant(count: int, kind: Kind) -> datetime:
    micros, below = divmod(count, 1000) if kind == "nanoseconds" else (count, 0)
    if below:
        raise ValueError("parts below a microsecond")
    return _START + timedelta(microseconds=micros)


def _shown(column: Field, kind: Kind, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if kind == "days":
        return str(_DAY_ZERO + timedelta(days=value)) if -719162 <= value <= 2932896 else value
    if kind != "plain":
        return _shown_instant(column, value * (1 if kind == "nanoseconds" else 1000))
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int):
        return value
    data = _bytes(value)
    return data.hex() if column.type.kind == "binary" else data.decode("utf-8", "backslashreplace")


def _shown_instant(column: Field, nanos: int) -> Any:
    seconds, below = nanos // 10**9, nanos % 10**9
    try:
        text = f"{_START + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}".rjust(19, "0")
    except OverflowError:
        return nanos // 1000
    digits = str(below).rjust(9, "0").rstrip("0")
    return text + ("." + digits if digits else "") + ("Z" if column.type.kind == "timestamp" else "")
