"""Reads numbers, dates and timestamps that are written in another way, with separate code of the audit: one text after
the other becomes the spelling that `text_values` reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txtopo.audit.readers.text_values import Cell, cell_of, is_doubtful
from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS, Field

Plain = Callable[[bytes], bytes]
"""A text as it is in the file -> the same value in the usual spelling; raises ValueError if it is in no such one."""

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
_NUMBERS = frozenset({"decimal", *FLOAT_KINDS, *INTEGER_KINDS})
_DIGITS = re.compile(r"[0-9]+")
_LONG = (("%F", "%Y-%m-%d"), ("%T", "%H:%M:%S"), ("%R", "%H:%M"))
_BLANKS = " \t"


def plain_of(column: Field, layout: Mapping[str, Any]) -> Plain | None:
    """Return how texts of a column are read under the layout of a plan; None if they are in the usual spelling."""
    kind = column.type.kind
    if kind in _NUMBERS:
        decimal, grouping = layout.get("decimal", "."), layout.get("grouping")
        if grouping is None and (decimal == "." or kind in INTEGER_KINDS):
            return None
        return lambda text: _number(text, "" if kind in INTEGER_KINDS else decimal, grouping)
    name = {"date": "date_format", "timestamp": "timestamp_format", "timestamp_ntz": "timestamp_format"}.get(kind)
    wanted = layout.get(name) if name else None
    if wanted is None:
        return None
    steps = _steps(wanted)
    return lambda text: _time(_text_of(text), steps)


def spelled_cell(column: Field, null_values: Sequence[str], layout: Mapping[str, Any]) -> Cell:
    """Return the reader of one column under the layout of a plan."""
    usual, plain = cell_of(column, null_values), plain_of(column, layout)
    empty_is_null = bool(layout.get("empty_is_null")) and column.type.kind not in ("string", "binary")
    if plain is None and not empty_is_null:
        return usual
    nulls = {value.encode() for value in null_values}

    def cell(text: bytes, quoted: bool) -> Any:
        if empty_is_null and not text:
            if not column.nullable:
                raise ValueError(f"column {column.name} is NULL")
            return None
        if plain is None or (not quoted and text in nulls):
            return usual(text, quoted)
        return usual(plain(text), True)  # A number of another spelling is none of the values that mean NULL.

    return cell


def is_doubtful_as(column: Field, text: bytes, plain: Plain | None) -> bool:
    """True if parsers disagree on this text, or on the one that it becomes."""
    try:
        return is_doubtful(column, text if plain is None else plain(text))
    except ValueError:
        return False


def _text_of(text: bytes) -> str:
    return text.decode("ascii").strip(_BLANKS)  # A UnicodeDecodeError is a ValueError.


def _number(text: bytes, decimal: str, grouping: str | None) -> bytes:
    """`decimal` is empty for whole numbers."""
    number = _text_of(text)
    mantissa, exponent = number, ""
    sign = number[:1] if number[:1] in ("+", "-") else ""
    if number[len(sign) :].isalpha():
        return number.encode()  # nan, inf
    if decimal:
        at = number.lower().find("e")
        if at >= 0:
            mantissa, exponent = number[:at], number[at:]
    whole, comma, places = mantissa.removeprefix(sign), "", ""
    if decimal:
        whole, comma, places = whole.partition(decimal)
    groups = whole.split(grouping) if grouping is not None else [whole]
    if len(groups) > 1 and (not 1 <= len(groups[0]) <= 3 or any(len(group) != 3 for group in groups[1:])):
        raise ValueError("groups that are not of three digits")
    if exponent and re.fullmatch(r"[eE][+-]?[0-9]+", exponent) is None:
        raise ValueError("no exponent")
    if not all(group == "" or _DIGITS.fullmatch(group) for group in (*groups, places)):
        raise ValueError("no number of this spelling")
    return f"{sign}{''.join(groups)}{'.' if comma else ''}{places}{exponent}".encode()


def _steps(wanted: str) -> list[str]:
    """Return the directives and the characters of a format."""
    for short, long in _LONG:
        wanted = wanted.replace(short, long)
    steps: list[str] = []
    at = 0
    while at < len(wanted):
        size = 2 if wanted[at] == "%" else 1
        steps.append(wanted[at : at + size])
        at += size
    return steps


def _time(text: str, steps: list[str]) -> bytes:
    found: dict[str, str] = {}
    at = 0
    for number, step in enumerate(steps):
        if len(step) == 1 or step == "%%":
            if text[at : at + 1].lower() != step[-1].lower():
                raise ValueError("not in the declared format")
            at += 1
            continue
        size = _size(text, at, step, steps[number - 1] if number else "", steps[number + 1 : number + 2])
        found[step[1]] = text[at : at + size]
        at += size
    if at != len(text):
        raise ValueError("more than the declared format")
    return _iso(found).encode()


def _size(text: str, at: int, step: str, before: str, behind: list[str]) -> int:
    """Return how many characters of the text belong to a directive. Raises ValueError."""
    rest = text[at:]
    if step == "%b":
        if rest[:3].lower() not in _MONTHS:
            raise ValueError("no month")
        return 3
    if step == "%z":
        match = re.match(r"[zZ]|[+-][0-9]{2}(?::?[0-9]{2})?", rest)
        if match is None:
            raise ValueError("no offset")
        return match.end()
    match = _DIGITS.match(rest)
    digits = match.end() if match else 0
    if step == "%f":
        size = min(digits, 6)
        least = 1
    elif step == "%Y":
        size, least = min(digits, 4), 4
    else:
        size, least = min(digits, 2), 2
        next_to = (before, *behind)
        if step != "%y" and not any((len(one) == 2 and one != "%%") or one.isdigit() for one in next_to):
            least = 1
    if size < least:
        raise ValueError("too few digits")
    return size


def _iso(found: Mapping[str, str]) -> str:
    year = found["Y"] if "Y" in found else f"{19 if int(found['y']) >= 69 else 20}{found['y']}"
    month = _MONTHS[found["b"].lower()] if "b" in found else int(found["m"])
    text = f"{year}-{month:02}-{int(found['d']):02}"
    if "H" in found:
        text += "T" + ":".join(f"{int(found[part]):02}" for part in "HMS" if part in found)
    if "f" in found:
        text += f".{found['f']}"
    return text + found.get("z", "").upper()
