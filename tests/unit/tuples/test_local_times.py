"""Local times of whole columns are those of Python, one by one."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from txtopo.audit.recount import _days
from txtopo.topology.event_windows import KeySource
from txtopo.tuples.aggregate_batches import key_values
from txtopo.tuples.local_times import local_moments

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Monrovia", "Pacific/Apia", "America/Nuuk"]
)
def test_local_times_are_those_of_python(zone: str) -> None:
    """Before 1970, when a clock was put forward by 44.5 minutes, on days without midnight, and after 2037."""
    chance, rules = random.Random(zone), ZoneInfo(zone)
    moments = [EPOCH + timedelta(microseconds=chance.randrange(-(10**16), 10**16)) for _ in range(2000)]
    moments += [datetime(1972, 1, 7, 0, 44, 29, 999_999, tzinfo=UTC), datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)]
    moments += [datetime(2040, 7, 1, tzinfo=UTC) + timedelta(minutes=number) for number in range(1500)]
    array = pa.array([*map(micros, moments), None], pa.int64())
    for given in (array, pa.chunked_array([array, array.slice(5)])):
        found = local_moments(given, zone)
        assert found.null_count == given.null_count
        expected = [None if at is None else at.astimezone(rules).replace(tzinfo=UTC) for at in [*moments, None]]
        assert found.to_pylist()[: len(expected)] == [None if at is None else micros(at) for at in expected]
    times = pc.cast(array, pa.timestamp("us", "UTC"))
    for days in (1, 7):
        source = KeySource("at", days * 86_400_000_000, zone=zone)
        assert key_values(source, times).to_pylist() == [_days(at, source.width_us, zone) for at in [*moments, None]]


def test_moments_that_python_does_not_have_keep_the_next_offset() -> None:
    """Their windows are in no year that Python has, so their batch fails: they do not move into a year before."""
    for moment in (datetime(9999, 12, 31, 23, 30, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)):
        zone = "Asia/Tokyo" if moment.year > 1 else "America/New_York"
        [local] = local_moments(pa.array([micros(moment)], pa.int64()), zone).to_pylist()
        assert (local - micros(moment) > 3 * 3600 * 10**6) == (moment.year > 1)
    beyond = pa.array([2**62, -(2**62)], pa.int64())
    assert pc.subtract(local_moments(beyond, "Asia/Tokyo"), beyond).to_pylist()[0] == 9 * 3600 * 10**6
