"""One value of each key in turn."""

from __future__ import annotations

import pytest

from txtopo.tuples.fair_queue import FairQueue


def filled(*values: str) -> FairQueue[str, str]:
    """A queue of values whose letter is their key."""
    queue = FairQueue[str, str]()
    for value in values:
        queue.add(value[0], value)
    return queue


def drained(queue: FairQueue[str, str]) -> list[str]:
    return [queue.take() for _ in range(len(queue))]


def test_keys_take_turns() -> None:
    """KF-01: add a1, a2, a3, b1, c1, c2 and take six."""
    assert drained(filled("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_key_that_comes_back_stands_at_the_end() -> None:
    """A key leaves the ring when its queue empties."""
    queue = filled("a1", "b1", "b2", "c1")

    assert queue.take() == "a1"
    queue.add("a", "a2")
    assert drained(queue) == ["b1", "c1", "a2", "b2"]


def test_the_last_key_of_the_ring_is_followed_by_the_first() -> None:
    """The turn wraps around, also where the last key leaves."""
    assert drained(filled("a1", "a2", "a3", "b1")) == ["a1", "b1", "a2", "a3"]


def test_nothing_is_taken_from_an_empty_queue_which_may_be_filled_again() -> None:
    """An empty queue says so, and forgets nothing it needs."""
    queue = filled("a1")
    drained(queue)

    with pytest.raises(IndexError, match="empty"):
        queue.take()
    queue.add("b", "b1")
    assert (drained(queue), len(queue)) == (["b1"], 0)
