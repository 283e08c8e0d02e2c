"""Which partition has the rows of which source task in a job that several batches share, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txtopo.errors import InvariantBroken
from txtopo.spark.emit import HIDDEN
from txtopo.spark.tuples.shared_tasks import ByNumber, Share, share_of_leaf, share_of_receivers


def each_once(share: Share) -> bool:
    """Each source task is in one partition, and each partition has its numbers in order."""
    numbers = [number for partition in share.partitions for number in partition]
    assert all(list(partition) == sorted(partition) for partition in share.partitions)
    assert sorted(numbers) == list(range(sum(share.counts))) == list(range(len(share.tasks)))
    return True


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(1, 12))
def test_each_source_task_of_a_spout_is_in_one_partition(parts: list[int], slices_max: int) -> None:
    share = share_of_leaf(parts, slices_max)

    assert each_once(share)
    assert share.counts == tuple(min(count, slices_max) for count in parts)
    assert len(share.partitions) == min(sum(share.counts), slices_max) and all(share.partitions)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 50), st.integers(4, 40))
def test_each_receiver_is_in_the_partition_that_its_messages_go_to(runs: int, first: int, slices_max: int) -> None:
    tasks = range(first, first + 4)
    partitions = min(runs * 4, slices_max)
    share = share_of_receivers(runs, tasks, partitions)

    assert each_once(share)
    for run in range(runs):
        for task in tasks:
            number = share.firsts[run] + task % share.counts[run]
            assert share.tasks[number] == (run, task % 4), "alone it is in partition task % 4 of 4"
            assert number in share.partitions[(run + task) % partitions]


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": [10 * number for number in numbers], HIDDEN: list(numbers)})


def test_rows_are_divided_by_their_numbers_whatever_they_came_with() -> None:
    found = ByNumber("clean", iter([rows(2, 2, 3), rows(), rows(3, 7)]))

    values = {number: [v for one in found.of(number) for v in one["v"].to_pylist()] for number in (1, 2, 3, 5, 7)}

    assert values == {1: [], 2: [20, 20], 3: [30, 30], 5: [], 7: [70]}
    found.end()


@pytest.mark.parametrize(("numbers", "mine"), [((2, 1), (1, 2)), ((3,), (1, 2)), ((1, 2, 1), (1, 2))])
def test_a_row_of_another_batch_ends_the_task(numbers: tuple[int, ...], mine: tuple[int, ...]) -> None:
    """It would count for a batch that it does not belong to, or for none."""
    found = ByNumber("clean", iter([rows(*numbers)]))

    with pytest.raises(InvariantBroken, match="clean: a row came to a partition"):
        for number in mine:
            list(found.of(number))
        found.end()
