"""The ways in which numbers, dates and timestamps may be written in CSV files: the settings, and what a format such as
`%d.%m.%Y` accepts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS, Field, Fields
from txtopo.errors import TopologyError

FRACTIONS = frozenset({"decimal", *FLOAT_KINDS})
TIMES = frozenset({"timestamp", "timestamp_ntz"})
TEXTS = frozenset({"string", "binary"})
_SHORT = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M"}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PARTS = {
    "%Y": ("year", "([0-9]{4})"),
    "%y": ("year", "([0-9]{2})"),
    "%m": ("month", ""),
    "%b": ("month", f"({'|'.join(MONTHS)})"),
    "%d": ("day", ""),
    "%H": ("hour", ""),
    "%M": ("minute", ""),
    "%S": ("second", ""),
    "%f": ("fraction", "([0-9]{1,6})"),
    "%z": ("zone", "(z|[+-][0-9]{2}(?::?[0-9]{2})?)"),
}
"""Directive -> the part of a time that it is, and its pattern; empty: a number of up to two digits."""
_DATE_PARTS = ("year", "month", "day")
_TIME_PARTS = ("hour", "minute", "second", "fraction")


class TimePattern(NamedTuple):
    """What a format accepts, and how it is written for the parser: with marks in front of numbers, `y` before a year of
    two digits, `x` before a number of one or two, `m` before the name of a month.
    """

    accepted: str
    written: str
    has_names: bool
    has_zone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spellings:
    """How the values of some files are written, where that is not how the parser accepts them."""

    decimal: str = "."
    """Stands before the decimal places: a dot or a comma."""
    grouping: str | None = None
    """May stand between groups of three digits; None: nothing may."""
    date_format: str | None = None
    timestamp_format: str | None = None
    empty_is_null: bool = False
    """True: an empty text in quotes is NULL in a column that holds no texts."""

    def check(self) -> None:
        """Raise TopologyError for an invalid setting."""
        if self.decimal not in (".", ","):
            raise TopologyError(f"decimal {self.decimal!r} is neither '.' nor ','")
        grouping = self.grouping
        if grouping is not None and (grouping not in tuple(" .,'_") or grouping == self.decimal):
            raise TopologyError(f"grouping {grouping!r} is none of ' ', '.', ',', \"'\", '_' other than decimal")
        for name, text, is_date in (
            ("date_format", self.date_format, True),
            ("timestamp_format", self.timestamp_format, False),
        ):
            if text is None:
                continue
            try:
                time_pattern(text, is_date)
            except ValueError as error:
                raise TopologyError(f"{name} {text!r}: {error}") from error
        if not isinstance(self.empty_is_null, bool):
            raise TopologyError(f"empty_is_null {self.empty_is_null!r} is neither True nor False")

    def check_fields(self, fields: Fields) -> None:
        """Raise TopologyError if a declared type cannot be given by these spellings."""
        if self.timestamp_format is None or not time_pattern(self.timestamp_format, False).has_zone:
            return
        for field in fields.items:
            if field.type.kind == "timestamp_ntz":
                raise TopologyError(
                    f"column {field.name!r} is declared timestamp_ntz, but timestamp_format {self.timestamp_format!r} "
                    "has an offset (%z): declare timestamp"
                )

    def layout(self) -> Mapping[str, Any]:
        """Return the settings that are not the usual ones, as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != getattr(USUAL, name)}

    def change(self, field: Field) -> bool:
        """Return True if values of this column may be written in another way than the parser accepts."""
        kind = field.type.kind
        return (
            (self.decimal != "." and kind in FRACTIONS)
            or (self.grouping is not None and (kind in FRACTIONS or kind in INTEGER_KINDS))
            or (self.date_format is not None and kind == "date")
            or (self.timestamp_format is not None and kind in TIMES)
            or (self.empty_is_null and kind not in TEXTS)
        )


USUAL = Spellings()
"""What the parser accepts."""


@lru_cache(maxsize=16)
def time_pattern(text: str, is_date: bool) -> TimePattern:
    """Return what a format such as `%d.%m.%Y` accepts. Raises ValueError that says what is wrong with it."""
    if not isinstance(text, str):
        raise ValueError("it is no text")
    pieces = _pieces(text)
    numbers: dict[str, int] = {}
    accepted = ""
    for at, piece in enumerate(pieces):
        if piece not in _PARTS:
            accepted += re.escape("%" if piece == "%%" else piece)
            continue
        part, shape = _PARTS[piece]
        if part in numbers:
            raise ValueError(f"it has the {part} twice")
        numbers[part] = len(numbers) + 1
        before, follows = pieces[at - 1] if at else "", pieces[at + 1] if at + 1 < len(pieces) else ""
        is_alone = not {before, follows} & _PARTS.keys() and not (before[-1:].isdigit() or follows[:1].isdigit())
        accepted += shape or ("([0-9]{1,2})" if is_alone else "([0-9]{2})")
    _check_parts(numbers, is_date)
    written = f"\\{numbers['year']}-x\\{numbers['month']}-x\\{numbers['day']}"
    if "%y" in pieces:
        written = f"y{written}"
    if "%b" in pieces:
        written = written.replace("-x", "-m", 1)
    for part, mark in (("hour", "Tx"), ("minute", ":x"), ("second", ":x"), ("fraction", "."), ("zone", "")):
        if part in numbers:
            written += f"{mark}\\{numbers[part]}"
    return TimePattern(accepted, written, "%b" in pieces, "zone" in numbers)


def _pieces(text: str) -> list[str]:
    """Return the directives of a format, and the texts between them; a percent sign is `%%`."""
    for short, long in _SHORT.items():
        text = text.replace(short, long)
    found = re.findall(r"%.?|[^%]+", text, re.DOTALL)
    pieces: list[str] = []
    for piece in found:
        if piece.startswith("%") and piece not in _PARTS and piece != "%%":
            raise ValueError(f"{piece} is none of {' '.join((*_PARTS, *_SHORT))}")
        if not piece.isascii() or not piece.isprintable():
            raise ValueError(f"{piece!r} is not of ASCII characters")
        pieces.append(piece)
    return pieces


def _check_parts(numbers: Mapping[str, int], is_date: bool) -> None:
    for part in _DATE_PARTS:
        if part not in numbers:
            raise ValueError(f"it has no {part}")
    extra = [part for part in numbers if part not in _DATE_PARTS]
    if is_date and extra:
        raise ValueError(f"a date has no {extra[0]}")
    for before, part in itertools.pairwise(_TIME_PARTS):
        if part in numbers and before not in numbers:
            raise ValueError(f"it has the {part} without the {before}")
    if "zone" in numbers and "hour" not in numbers:
        raise ValueError("it has an offset without the hour")
