"""Times that the server knows and Python does not are read all the same."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from txtopo.reports.formatting import instant
from txtopo.reports.times import FIRST, LAST, any_time

TIMES = {
    "2026-11-22 13:00:00+00": datetime(2026, 11, 22, 13, tzinfo=UTC),
    "2026-11-22 13:00:00.1234+05:30": datetime(2026, 11, 22, 7, 30, 0, 123_400, tzinfo=UTC),
    "1890-01-01 00:19:32.5+00:19:32": datetime(1890, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC),
    "0044-03-15 00:00:00+00 BC": FIRST,
    "0001-01-01 00:00:00+05": FIRST,
    "-infinity": FIRST,
    "9999-12-31 23:00:00-05": LAST,
    "294276-12-31 00:00:00+00": LAST,
    "infinity": LAST,
}


@pytest.mark.parametrize("text", TIMES)
def test_every_time_of_the_server_is_one_here(text: str) -> None:
    """Those that Python has keep their instant; the others become the first or the last there is. Each can be told."""
    read = any_time(text, None)

    assert read == TIMES[text]
    assert read is not None and instant(read).endswith("Z")


def test_no_time_stays_none() -> None:
    """NULL."""
    assert any_time(None, None) is None
