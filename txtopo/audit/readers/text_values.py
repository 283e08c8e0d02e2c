"""Converts the text of a CSV value to a Python value of its declared type, with separate code of the audit."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from txtopo.core.fields import Field, FieldType

Cell = Callable[[bytes, bool], Any]
"""(text, whether it was in quotes) -> value, None for NULL; raises ValueError if the text is no such value."""

CACHED_MAX = 50_000
"""Number of texts of a column whose values are cached."""
_BLANKS = b" \t"
_INTEGER = re.compile(rb"-?[0-9]+")
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DECIMAL = re.compile(rb"[+-]?(?=\.?[0-9])([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,3}))?")
_FLOAT = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)
_BOOLEANS = {b"true": True, b"True": True, b"TRUE": True, b"false": False, b"False": False, b"FALSE": False}
_DATE = re.compile(rb"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rb"(?:[T ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?)?"
    rb"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_ODD = re.compile(rb"[^ -~]|[eE][+-]?[0-9]|[0-9.]{30}")
_KINDS_WITH_ODD = frozenset({"decimal", "float", "double"})
_KINDS_WITH_YEARS = frozenset({"date", "timestamp", "timestamp_ntz"})
_SINGLE_MAX = 3.4028235677973362e38
"""Larger numbers become infinite in 32 bits: halfway between the largest float and the next one there would be."""
WIDE = Context(prec=120, Emax=10_000, Emin=-10_000)
"""Precision with which no sum of 38-digit numbers is rounded."""


def cell_of(column: Field, null_values: Sequence[str]) -> Cell:
    """Return the reader of one column."""
    nulls = frozenset(value.encode() for value in null_values)
    parse = _parser(column.type)
    known: dict[bytes, Any] = {}

    def cell(text: bytes, quoted: bool) -> Any:
        if not quoted and text in nulls:
            if not column.nullable:
                raise ValueError(f"column {column.name} is NULL")
            return None
        try:
            return known[text]
        except KeyError:
            value = parse(text)
            if len(known) >= CACHED_MAX:
                known.clear()
            known[text] = value
            return value

    return cell


def is_doubtful(column: Field, text: bytes) -> bool:
    """True for spellings on which parsers disagree, so that the audit's result proves nothing: exponents, very long
    numbers, unusual blanks, the year 0.
    """
    if column.type.kind in _KINDS_WITH_ODD:
        return _ODD.search(text) is not None
    return column.type.kind in _KINDS_WITH_YEARS and text.strip().startswith(b"0000")


def _parser(kind: FieldType) -> Callable[[bytes], Any]:
    if kind.kind in _BITS:
        bits = _BITS[kind.kind]
        return lambda text: _integer(text, bits)
    if kind.kind == "decimal":
        precision, scale = kind.precision or 0, kind.scale or 0
        return lambda text: _decimal(text, precision, scale)
    parsers: dict[str, Callable[[bytes], Any]] = {
        "string": _string,
        "binary": bytes,
        "boolean": _boolean,
        "date": _date,
        "float": lambda text: _float(text, _SINGLE_MAX),
        "double": _float,
        "timestamp": lambda text: _timestamp(text, zoned=True),
        "timestamp_ntz": lambda text: _timestamp(text, zoned=False),
    }
    return parsers[kind.kind]


def _string(text: bytes) -> str:
    if b"\0" in text:
        raise ValueError("a NUL character")
    return text.decode("utf-8")


def _boolean(text: bytes) -> bool:
    if text not in _BOOLEANS:
        raise ValueError("neither true nor false")
    return _BOOLEANS[text]


def _integer(text: bytes, bits: int) -> int:
    text = text.strip(_BLANKS)
    if _INTEGER.fullmatch(text) is None:
        raise ValueError("no whole number")
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError("out of range")
    return value


def _decimal(text: bytes, precision: int, scale: int) -> Decimal:
    text = text.strip(_BLANKS)
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise ValueError("no decimal number")
    value = Decimal(text.decode())
    try:
        fitting = value.quantize(Decimal((0, (1,), -scale)), context=WIDE)
    except InvalidOperation as error:
        raise ValueError("out of range") from error
    if fitting != value or (fitting and len(fitting.as_tuple().digits) > precision):
        raise ValueError("more places than declared")
    return fitting


def _float(text: bytes, largest: float = math.inf) -> float:
    text = text.strip(_BLANKS)
    if _FLOAT.fullmatch(text) is None:
        raise ValueError("no number")
    value = float(text)
    if text.strip(b"+-")[:1] not in b"nNiI" and abs(value) > min(largest, sys.float_info.max):
        raise ValueError("no number of this type: it becomes infinite")
    return value


def _date(text: bytes) -> date:
    match = _DATE.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise ValueError("no date")
    return date(*map(int, match.groups()))


def _timestamp(text: bytes, *, zoned: bool) -> datetime:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("no timestamp")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    micro = int((match[7] or b"").ljust(6, b"0"))
    when = datetime(year, month, day, hour, minute, second, micro)
    zone = match[8]
    if not zoned:
        if zone is not None:
            raise ValueError("an offset in a timestamp without time zone")
        return when
    try:
        return (when - _offset(zone)).replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError("outside the years 1 to 9999 in UTC") from error


def _offset(zone: bytes | None) -> timedelta:
    if zone is None or zone == b"Z":
        return timedelta()
    digits = zone[1:].replace(b":", b"").ljust(4, b"0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("no offset")
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if zone.startswith(b"-") else offset
