"""Finds the tuple that makes a run fail, by running halves: a pure function over tuple numbers; the caller runs
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

Ranges = Mapping[int, tuple[int, int]]
"""Part index -> tuple numbers [from, to) of that part; parts that are not named emit nothing."""


def first_bad(counts: Sequence[int], fails: Callable[[Ranges], bool]) -> tuple[int, int] | None:
    """Return (part, number) of the first tuple that fails alone, or None if only several together fail. All of them
    together are known to fail.

    `counts` are the numbers of tuples of the parts. Calls `fails` at most ceil(log2(n)) + 1 times, n being the sum of
    `counts`: only the first half is run each time, because the second half must be the cause if the first is not, and
    the last call confirms that the tuple found fails alone.
    """
    starts = [0, *accumulate(counts)]
    low, high = 0, starts[-1]
    if high == 0:
        return None
    alone = high == 1
    while high - low > 1:
        middle = (low + high) // 2
        if fails(_ranges(starts, low, middle)):
            high = middle
            alone = high - low == 1
        else:
            low = middle
            alone = False
    if not alone and not fails(_ranges(starts, low, high)):
        return None
    part = bisect_right(starts, low) - 1
    return part, low - starts[part]


def _ranges(starts: Sequence[int], low: int, high: int) -> dict[int, tuple[int, int]]:
    """Return the tuples [low, high) of all parts in sequence, as tuple numbers of the parts that contain them."""
    found = {}
    for part, (start, end) in enumerate(pairwise(starts)):
        first, last = max(low, start), min(high, end)
        if first < last:
            found[part] = (first - start, last - start)
    return found
