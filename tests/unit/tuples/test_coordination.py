"""When a task has all tuples of its batch: what its sources report, compared with what came."""

from __future__ import annotations

import pytest

from txtopo.tuples.coordination import Coordination

A, B = 7, 8
"""Source tasks."""


def coordination(*sources: int) -> Coordination:
    """Of a task with one edge, number 0."""
    return Coordination({0: sources}, {0: "split -> count"})


def test_a_batch_is_complete_once_when_all_sources_agree() -> None:
    """CB-01, TB-01: three tuples, reports 2 and 1: not before the second report, then exactly once."""
    batch = coordination(A, B)
    batch.take(0, A, 2)
    batch.take(0, B, 1)
    batch.report(0, A, 2)

    assert not batch.finish()

    batch.report(0, B, 1)
    assert batch.finish()
    assert not batch.finish()
    assert batch.received() == {0: 3}


def test_counts_that_do_not_agree_fail_at_once_and_name_source_and_counts() -> None:
    """TB-02: three tuples, reports 2 and 2: finish never runs. Q 15: the error says the counts of the source task."""
    batch = coordination(A, B)
    batch.take(0, A, 2)
    batch.take(0, B, 1)
    batch.report(0, A, 2)
    batch.report(0, B, 2)

    assert not batch.finish()
    assert batch.shortfall() == "split -> count: task 8 sent 2 tuples, 1 arrived"


def test_a_tuple_too_many_from_one_source_does_not_make_up_for_one_lost_of_another() -> None:
    """Counts are compared source by source: the same total proves nothing."""
    batch = coordination(A, B)
    batch.take(0, A, 3)
    batch.report(0, A, 2)
    batch.report(0, B, 1)

    assert batch.shortfall() == "split -> count: task 7 sent 2 tuples, 3 arrived"


def test_a_report_that_is_repeated_is_one_and_one_that_differs_is_a_failure() -> None:
    """Reports are a set keyed by source task: Q 14, no second finish for an extra report."""
    batch = coordination(A)
    batch.take(0, A, 1)
    batch.report(0, A, 1)
    batch.report(0, A, 1)
    assert batch.finish()

    batch.report(0, A, 0)
    assert batch.shortfall() == "split -> count: task 7 reported 1 tuples sent, and then 0: two runs of one task differ"


def test_a_missing_report_is_named() -> None:
    """A lost coordination row: zero tuples without a report are not zero tuples."""
    batch = coordination(A, B)
    batch.report(0, A, 0)

    assert batch.shortfall() == "split -> count: task 8 did not report how many tuples it sent; 0 arrived"


@pytest.mark.parametrize("stray", ["tuples", "report"])
def test_what_comes_from_elsewhere_is_a_failure(stray: str) -> None:
    """A stale attempt's rows: a source task that this attempt does not have."""
    batch = coordination(A)
    batch.report(0, A, 0)

    batch.take(0, 9, 4) if stray == "tuples" else batch.report(0, 9, 4)

    assert "from task 9, which does not belong to this attempt" in str(batch.shortfall())
    assert not batch.finish()


def test_a_failed_source_keeps_the_batch_from_finishing() -> None:
    """CB-03, TB-05: one source failed; whatever is reported later, the batch never finishes."""
    batch = coordination(A, B)
    batch.take(0, A, 1)
    batch.report(0, A, 1)
    batch.report(0, B, 0, failed=True)

    assert not batch.finish()
    assert batch.upstream_failed


def test_a_task_without_sources_is_complete_at_once() -> None:
    """CB-06: nothing to wait for."""
    assert Coordination({}).finish()


def test_edges_are_counted_apart() -> None:
    """Q 16: two streams that meet in one bolt do not overwrite each other's counts."""
    batch = Coordination({0: [A], 1: [A]})
    batch.take(0, A, 2)
    batch.report(0, A, 1)
    batch.report(1, A, 1)

    assert batch.shortfall() == "edge 0: task 7 sent 1 tuples, 2 arrived"
