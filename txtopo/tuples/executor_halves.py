"""Executor halves of committers that run as tuple tasks, one for each kind of committer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.components import CommitterComponent
from txtopo.topology.partial_counts import PartialCount
from txtopo.topology.streams import DEFAULT_STREAM, Stream
from txtopo.tuples.aggregate_batches import Aggregator, Overflow
from txtopo.tuples.bolt_runner import TaskRunner
from txtopo.tuples.rich_and_arrow_runners import runner_of
from txtopo.tuples.roots import Roots
from txtopo.tuples.router import Results
from txtopo.tuples.storable_keys import check_keys, check_row_keys
from txtopo.tuples.task_context import Arrived, TaskContext


class ExecutorHalf(Protocol):
    """What this room needs of a kind of committer."""

    def runner(
        self, task_context: TaskContext, committer: CommitterComponent, results: Results, number: int
    ) -> TaskRunner:
        """Return what runs one task. It puts record batches into `results` under `number`."""

    def rows(self, committer: CommitterComponent, bodies: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the result rows made of what all tasks put into their results, in the order of the tasks. Raises
        BatchDataError.
        """

    def why_not_apart(self, committer: CommitterComponent) -> str | None:
        """Return why the rows of each message cannot be stored by themselves (R10), as text: `rows` makes something
        else of all of them; None: they can.
        """


class CountHalf:
    """The half of a counting committer: its aggregation, in two steps."""

    def runner(
        self, task_context: TaskContext, committer: CommitterComponent, results: Results, number: int
    ) -> TaskRunner:
        """See ExecutorHalf."""
        return CountRunner(task_context, committer, results, number)

    def rows(self, committer: CommitterComponent, bodies: Sequence[pa.RecordBatch]) -> pa.Table:
        """See ExecutorHalf. A sum that is too large, or a key that is too long, fails the batch."""
        aggregation = committer.bolt.aggregation()
        aggregator = Aggregator(aggregation, committer.result_fields)
        for body in bodies:
            aggregator.merge(pa.Table.from_batches([body]))
        try:
            rows = aggregator.rows()
        except Overflow as error:
            raise BatchDataError(
                f"{committer.name}: {error}", component=committer.name, fault="sum too large"
            ) from error
        check_keys(committer.name, rows, len(aggregation.sources))
        return rows

    def why_not_apart(self, committer: CommitterComponent) -> str | None:
        """See ExecutorHalf. One task has all tuples of a key, and puts each key into one message."""
        read, keys = committer.input, committer.bolt.aggregation().keys
        by_key = read.grouping == "fields" and set(read.fields) <= set(keys)
        if committer.tasks == 1 or read.grouping == "global" or by_key:
            return None
        fields = f" by {', '.join(keys)}" if keys else ""
        return (
            f"several tasks of {committer.name} may have rows of one key, since it reads {read.source} by "
            f"{read.grouping}_grouping: use fields_grouping{fields}, or one task"
        )


class _ToDriver:
    """Where the rows of a BatchCommitter's task go."""

    def __init__(self, results: Results, number: int) -> None:
        self._results = results
        self._number = number

    def send(
        self, stream: str, batch: pa.RecordBatch, roots: Roots | None = None, named: Sequence[int] | None = None
    ) -> None:
        """See Output. Rows for the driver belong to no tuple tree."""
        self._results.put(batch, self._number)

    def direct_tasks(self, stream: str) -> frozenset[int]:
        """See Output."""
        return frozenset()

    def is_grouped(self, stream: str) -> bool:
        """See Output."""
        return False


class CodeHalf:
    """The half of a BatchCommitter: it runs as a bolt whose only output is the rows for the driver."""

    def runner(
        self, task_context: TaskContext, committer: CommitterComponent, results: Results, number: int
    ) -> TaskRunner:
        """See ExecutorHalf."""
        bolt = committer.bolt_as(BatchCommitter)  # type: ignore[type-abstract]
        streams = {DEFAULT_STREAM: Stream(committer.result_fields)}
        return runner_of(bolt)(task_context, bolt, bolt.config, streams, _ToDriver(results, number))

    def rows(self, committer: CommitterComponent, bodies: Sequence[pa.RecordBatch]) -> pa.Table:
        """See ExecutorHalf."""
        return pa.Table.from_batches(bodies, arrow_schema(committer.result_fields))

    def why_not_apart(self, committer: CommitterComponent) -> str | None:
        """See ExecutorHalf."""
        return f"the code of {committer.name} gets all rows of a batch in the driver"


class RowsHalf:
    """The half of a committer that stores the tuples themselves: they are passed on unchanged."""

    def runner(
        self, task_context: TaskContext, committer: CommitterComponent, results: Results, number: int
    ) -> TaskRunner:
        """See ExecutorHalf."""
        return RowsRunner(task_context, results, number)

    def rows(self, committer: CommitterComponent, bodies: Sequence[pa.RecordBatch]) -> pa.Table:
        """See ExecutorHalf. A key that is NULL or too long, or twice without an order, fails the batch."""
        rows = pa.Table.from_batches(bodies, arrow_schema(committer.result_fields))
        check_row_keys(committer.name, committer.bolt.row_keys, rows)
        return rows

    def why_not_apart(self, committer: CommitterComponent) -> str | None:
        """See ExecutorHalf. Two rows of a key in different messages are found by the commit."""
        return None


EXECUTOR_HALVES: Mapping[str, ExecutorHalf] = {
    "aggregate": CountHalf(),
    "append": RowsHalf(),
    "code": CodeHalf(),
    "replace": RowsHalf(),
    "upsert": RowsHalf(),
}
"""Kind of committer -> its half in this room."""


def executor_half(committer: CommitterComponent) -> ExecutorHalf:
    """Return the half for this committer's kind."""
    return EXECUTOR_HALVES[committer.bolt.committer_kind]


class RowsRunner(TaskRunner):
    """The executor half of a committer that stores the tuples themselves."""

    def __init__(self, task_context: TaskContext, results: Results, number: int) -> None:
        self._task_context = task_context
        self._results = results
        self._number = number

    def take(self, arrived: Arrived) -> None:
        arrived.ack(self._task_context)
        self._results.put(arrived.batch, self._number)


class CountRunner(TaskRunner):
    """The executor half of a counting committer: partial counts and aggregates, exact."""

    def __init__(self, task_context: TaskContext, committer: CommitterComponent, results: Results, number: int) -> None:
        self._task_context = task_context
        self._aggregator = Aggregator(committer.bolt.aggregation(), committer.result_fields)
        self._results = results
        self._number = number

    def take(self, arrived: Arrived) -> None:
        arrived.ack(self._task_context)
        try:
            self._aggregator.add(arrived.batch)
        except (Overflow, pa.ArrowInvalid) as error:
            self._task_context.fail(error)
            self.stopped = True

    def take_groups(self, groups: pa.RecordBatch, partial: PartialCount) -> None:
        try:
            self._aggregator.add_groups(groups, partial)
        except (Overflow, pa.ArrowInvalid) as error:
            self._task_context.fail(error)
            self.stopped = True

    def finish(self) -> None:
        for batch in self._aggregator.partial().combine_chunks().to_batches():
            self._results.put(batch, self._number)
