"""Bisection alone: the first row that fails by itself is found in few runs, and none is blamed where several together
fail.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from txtopo.spark.frames.bisect import Ranges, first_bad


class Runs:
    """Fails where `is_bad` says so of the tuples chosen, and counts how often it was asked."""

    def __init__(self, is_bad: Callable[[set[tuple[int, int]]], bool]) -> None:
        self.is_bad = is_bad
        self.count = 0

    def __call__(self, ranges: Ranges) -> bool:
        self.count += 1
        return self.is_bad({(part, at) for part, (start, end) in ranges.items() for at in range(start, end)})


@pytest.mark.parametrize("counts", [[1], [2], [3], [7], [64], [0, 1, 0], [5, 0, 4, 1], [1000, 24, 0, 3]])
def test_each_single_bad_row_is_found_in_the_promised_number_of_runs(counts: Sequence[int]) -> None:
    """At most 2*log2(n)+2 runs, whichever row it is; one of them (the count) is not ours."""
    rows = [(part, at) for part, count in enumerate(counts) for at in range(count)]
    for bad in rows if len(rows) < 100 else random.Random(1).sample(rows, 50):
        runs = Runs({bad}.issubset)

        assert first_bad(counts, runs) == bad
        assert runs.count + 1 <= 2 * math.log2(len(rows)) + 2


def test_of_several_bad_rows_the_first_is_found() -> None:
    bad = {(1, 2), (0, 7), (2, 0)}

    assert first_bad([10, 10, 10], Runs(lambda chosen: bool(bad & chosen))) == (0, 7)


@pytest.mark.parametrize("together", [{(0, 0), (2, 3)}, {(0, 1), (0, 2)}, {(1, 8), (1, 9)}])
def test_where_only_several_rows_together_fail_none_is_blamed(together: set[tuple[int, int]]) -> None:
    """Overflow of a sum: no row does it alone."""
    runs = Runs(lambda chosen: together <= chosen)

    assert first_bad([5, 10, 5], runs) is None
    assert runs.count + 1 <= 2 * math.log2(20) + 2


def test_a_failure_that_does_not_come_back_blames_no_row() -> None:
    assert first_bad([9], Runs(lambda chosen: False)) is None


def test_a_row_that_just_failed_alone_is_not_run_again() -> None:
    """Two rows, the first is bad: one run tells."""
    runs = Runs(lambda chosen: (0, 0) in chosen)

    assert first_bad([2], runs) == (0, 0)
    assert runs.count == 1


def test_nothing_was_emitted() -> None:
    assert first_bad([0, 0], Runs(lambda chosen: True)) is None
