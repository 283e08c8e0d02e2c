"""Places of records as text: each is read back as it was written, in whatever path it is."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txtopo.core.positions import Unit, lowest_number, read_position, told_position

PATHS = st.text(st.sampled_from("/a.:@, 0 1\nrowkeyline"), max_size=20)
UNITS: tuple[Unit, ...] = get_args(Unit)


@settings(deadline=None)
@given(PATHS, st.integers(0, 10**18 - 1), st.sampled_from(UNITS))
def test_a_place_is_read_back_as_it_was_written(path: str, number: int, unit: Unit) -> None:
    position = told_position(path, number, unit)

    assert read_position(position, {path, "/other"}) == (path, number)
    assert read_position(position, {path + "x", "/other"}) is None


@pytest.mark.parametrize("position", ["/a", "/a:", "/a:x", "/a:1x", "/a:-1", "/a:\u0661", "/a:" + "1" * 19, ":7"])
def test_what_is_no_place_is_not_read(position: str) -> None:
    """A position may be anything that a custom spout says."""
    assert read_position(position, {"/a"}) is None


def test_lines_and_rows_count_from_1() -> None:
    """The server refuses a smaller number, and memory stores do too."""
    assert {unit: lowest_number(unit) for unit in UNITS} == {"line": 1, "row": 1, "offset": 0, "key": 0}
