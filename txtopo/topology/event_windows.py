"""Keys of a group that are made of a field: windows of event time, and cells of a sketch. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple
from zoneinfo import ZoneInfo

from txtopo.core.fields import FieldType
from txtopo.errors import TopologyError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_WIDTH = re.compile(r"([1-9][0-9]{0,5}) (second|minute|hour|day)s?")
MICROSECONDS = 1_000_000
_ZONE = re.compile(r"(?!posix/|right/)[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+")
"""The files of leap seconds (right/) are no zones for Java."""


class KeySource(NamedTuple):
    """One part of the key of a group, made of one input field."""

    field: str
    width_us: int = 0
    """0: the value itself. Otherwise the start of its window of this many microseconds; windows follow each other from
    1970-01-01 00:00 on, in UTC. The window of NULL is NULL.
    """
    is_cell: bool = False
    """True: the cell of the value, see `Cell`."""
    zone: str = ""
    """Name of the time zone in whose local time windows are; empty: in UTC."""

    def type_of(self, field: FieldType) -> FieldType:
        """Return the type of this part, for a field of this type."""
        if self.is_cell:
            return FieldType("int")
        return FieldType("timestamp_ntz") if self.zone else field


class TimeWindow(NamedTuple):
    """A key of a result row: the window of event time that its tuples belong to."""

    field: str
    """The time, a timestamp."""
    width_us: int
    """Width in microseconds."""
    start: str
    """Result column with its first moment."""
    end: str
    """Column of the target with the first moment after it, which the server computes."""
    zone: str = ""
    """As in KeySource. The columns then have local times, without a zone."""

    @property
    def source(self) -> KeySource:
        """Return what the first moment is made of."""
        return KeySource(self.field, self.width_us, zone=self.zone)


CELL_KINDS = frozenset({"string", "binary", "tinyint", "smallint", "int", "bigint"})
"""Types whose values have one text everywhere: texts are hashed in UTF-8, integers in decimal digits."""
REGISTERS_BITS = 12
RANK_BITS = 52
"""Bits of the hash after those of the register, whose zeros are counted."""
CELL_RANKS = 64


class Cell(NamedTuple):
    """A key of a result row: a cell of a sketch that estimates how many different values a field has.

    The first bits of the sha-256 of a value name its register, and the rank is one more than the number of zeros that
    follow, at most 53. A sketch needs the highest rank of each register. All cells are kept, with the number of their
    rows, so that a batch can be reversed, and the order of batches and rows changes nothing.
    """

    field: str
    column: str
    """Result column: the register times 64, plus the rank. NULL if the value is."""

    @property
    def source(self) -> KeySource:
        """Return what it is made of."""
        return KeySource(self.field, is_cell=True)


def check_zone(who: str, zone: str, *widths_us: int) -> None:
    """Raise TopologyError, naming `who`, if there is no such time zone, or if a width is no number of whole days: an
    hour of local time happens twice a year, or not at all.
    """
    try:
        if not _ZONE.fullmatch(zone):
            raise ValueError("no name of a region")
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise TopologyError(
            f"{who}: zone={zone!r} is no time zone that this Python knows ({error}); write one such as 'Europe/Berlin'"
        ) from error
    if any(width % (_UNITS["day"] * MICROSECONDS) for width in widths_us):
        raise TopologyError(f"{who}: zone={zone!r} is for windows and slides of whole days; hours are those of UTC")


def width_us(who: str, name: str, given: str) -> int:
    """Return a width such as `10 minutes` in microseconds. Raises TopologyError, naming `who` and the argument.

    >>> width_us("rooms", "window", "1 hour")
    3600000000
    """
    found = _WIDTH.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise TopologyError(f"{who}: {name}={given!r} is no width; write a number of seconds, minutes, hours or days")
    return int(found[1]) * _UNITS[found[2]] * MICROSECONDS
