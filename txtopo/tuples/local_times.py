"""Local times of a zone, of whole columns. By the rules of Python: Arrow 26 has no daylight saving time after 2037."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import unreachable

_UNIT_US = 900_000_000
"""Offsets are looked up once for each quarter of an hour; where it changes within one, for each moment."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
"""The first and last moments that have a local time everywhere; earlier and later ones have the offsets of these."""


def local_moments(moments: pa.Array | pa.ChunkedArray, zone: str) -> pa.Array:
    """Return what a clock in this zone shows, in microseconds since 1970-01-01 00:00 as it shows them, for moments in
    microseconds since 1970-01-01 00:00 UTC. The local time of NULL is NULL.
    """
    found = moments.combine_chunks() if isinstance(moments, pa.ChunkedArray) else moments
    coded = pc.dictionary_encode(pc.subtract(pc.divide(found, _UNIT_US), pc.cast(pc.less(found, 0), pa.int64())))
    offsets = pa.array([_offset_within(zone, unit) for unit in coded.dictionary.to_pylist()], pa.int64())
    of_each = offsets.take(coded.indices)
    if offsets.null_count:
        pairs = zip(found.to_pylist(), of_each.to_pylist(), strict=True)
        of_each = pa.array(
            [_offset(zone, at) if offset is None and at is not None else offset for at, offset in pairs], pa.int64()
        )
    return pc.add(found, of_each)


@lru_cache(maxsize=100_000)
def _offset_within(zone: str, unit: int) -> int | None:
    """Return the offset of a whole unit; None if it changes within. What is divided towards 0, less 1 if it is
    negative, is the unit or the one before it: both are checked.
    """
    first = _offset(zone, unit * _UNIT_US)
    return first if first == _offset(zone, (unit + 2) * _UNIT_US) else None


def _offset(zone: str, moment_us: int) -> int:
    """Return how many microseconds local time is ahead of UTC at this moment."""
    try:
        at = min(max(_EPOCH + timedelta(microseconds=moment_us), _FIRST), _LAST)
    except OverflowError:
        at = _FIRST if moment_us < 0 else _LAST
    offset = at.astimezone(ZoneInfo(zone)).utcoffset()
    return unreachable(f"{zone} has no offset") if offset is None else offset // timedelta(microseconds=1)
