"""The tasks at both ends of a function over DataFrames in a plan that several batches share: each row carries the
number of the source task that it would belong to if its batch ran alone.

The function does not see the number (`txtopo.spark.frames.row_local_check`). Downstream of it the rows of each number
are a source task of their batch, with the same rows in the same order as alone, so nothing that follows differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from txtopo.core.fields import Fields
from txtopo.errors import invariant
from txtopo.spark.emit import HIDDEN, numbered
from txtopo.spark.tuples.tuple_order import SourceTask, TupleOrder
from txtopo.spark.tuples.tuple_tasks import Batches, LeafTask, TaskWiring, counted, typed
from txtopo.topology.components import Tally
from txtopo.tuples.cuts import cut
from txtopo.tuples.message import Kind, Message
from txtopo.tuples.wire import decode, encode


@dataclass(frozen=True, kw_only=True)
class Share:
    """The source tasks that several batches have at one DataFrame, and which partition has the rows of which."""

    counts: tuple[int, ...]
    """Number of source tasks of each run: the number of partitions that the DataFrame has if the batch runs alone."""
    partitions: tuple[tuple[int, ...], ...]
    """By partition: the numbers of its source tasks, ascending. Each number is in one partition."""

    @cached_property
    def tasks(self) -> tuple[tuple[int, int], ...]:
        """Run and index of each source task, by its number."""
        return tuple((run, index) for run, count in enumerate(self.counts) for index in range(count))

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """Number of the first source task of each run."""
        return tuple(sum(self.counts[:run]) for run in range(len(self.counts)))


def share_of_leaf(parts: Sequence[int], slices_max: int) -> Share:
    """Return the share of a spout whose batches have these numbers of parts (`TupleCompiler.leaf`)."""
    counts = tuple(min(count, slices_max) for count in parts)
    total = sum(counts)
    slices = min(total, slices_max)
    ends = [at * total // slices for at in range(slices + 1)]
    partitions = tuple(tuple(range(first, end)) for first, end in itertools.pairwise(ends))
    return Share(counts=counts, partitions=partitions)


def share_of_receivers(runs: int, tasks: Sequence[int], partitions: int) -> Share:
    """Return the share of the receiver tasks of a DataFrame bolt, in so many partitions of an exchange
    (`TupleCompiler.levels`).
    """
    count = len(tasks)
    found: list[list[int]] = [[] for _ in range(partitions)]
    for run in range(runs):
        for task in tasks:
            # Messages go to the partition `run + target` of the exchange (wire.encode).
            found[(run + task) % partitions].append(run * count + task % count)
    return Share(counts=(count,) * runs, partitions=tuple(tuple(sorted(one)) for one in found))


@dataclass(frozen=True, kw_only=True)
class SharedLeafTask(LeafTask):
    """A spout that only DataFrame bolts read: input rows are numbers of partitions of the share, output rows its tuples
    with the number of their source task.
    """

    share: Share

    def __call__(self, batches: Batches) -> Batches:
        """Emit what belongs to the partitions named in `batches`."""
        _, order = self.wiring.ordered([self.name])
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                for number in self.share.partitions[partition] if order is not None else ():
                    yield from self._numbered(order, number)

    def _numbered(self, order: TupleOrder | None, number: int) -> Batches:
        run, index = self.share.tasks[number]
        if order is None:
            return
        parts, count = order.runs[run].spec.sources[self.name], self.share.counts[run]
        # So Spark divides a range among its partitions.
        for part in range(index * parts // count, (index + 1) * parts // count):
            for batch in self._emit(order, SourceTask(run=run, name=self.name, index=part)):
                yield numbered(batch, HIDDEN, number)


@dataclass(frozen=True, kw_only=True)
class SharedReceivingTask:
    """The edge to a DataFrame bolt: what its receivers got over one edge, as rows of that stream with the number of
    their source task.
    """

    edge: int
    fields: Fields
    share: Share

    def __call__(self, batches: Batches) -> Batches:
        """Unpack the messages to the driver: the receivers have checked the counts."""
        for message in decode(batches):
            if message.kind == Kind.RESULT and message.edge == self.edge and message.body is not None:
                count, first = self.share.counts[message.run], self.share.firsts[message.run]
                yield numbered(typed(message.body, self.fields), HIDDEN, first + message.source % count)


@dataclass(frozen=True, kw_only=True)
class SharedFrameTask:
    """Source tasks of a DataFrame that several batches share: input rows are its rows with their numbers, output rows
    are messages. A source task without rows reports as well.
    """

    wiring: TaskWiring
    name: str
    first: int
    """Spark's number of its first partition in the stage that reads it."""
    fields: Fields
    share: Share

    def __call__(self, batches: Batches) -> Batches:
        """Pass on the rows in `batches`."""
        context = TaskContext.get()
        signed, order = self.wiring.ordered([self.name])
        if order is not None and context is not None:
            mine = self.share.partitions[context.partitionId() - self.first]
            yield from encode(self._messages(order, mine, batches), signed)

    def _messages(self, order: TupleOrder, mine: Sequence[int], batches: Batches) -> Iterator[Message]:
        wiring, rows = self.wiring, ByNumber(self.name, batches)
        for number in mine:
            run, index = self.share.tasks[number]
            tally = Tally()
            emitted = counted(cut(typed(batch, self.fields) for batch in rows.of(number)), tally)
            yield from wiring.engine.source(run, order.runs[run].spec, self.name, index, emitted, tally, wiring.report)
            for _ in rows.of(number):  # A source task that failed did not read its rows to the end.
                pass
        rows.end()


class ByNumber:
    """The rows of one partition, in the order of their numbers. A row of another number would count for another batch:
    it ends the task.
    """

    def __init__(self, name: str, batches: Batches) -> None:
        self._name = name
        self._pieces = (piece for batch in batches for piece in _pieces(batch))
        self._next = next(self._pieces, None)

    def of(self, number: int) -> Batches:
        """Yield the rows of this number that were not read yet; rows of lower numbers must have been read."""
        while self._next is not None and self._next[0] == number:
            yield self._next[1]
            self._next = next(self._pieces, None)
        invariant(self._next is None or self._next[0] > number, self._said())

    def end(self) -> None:
        """Raise InvariantBroken if there are more rows."""
        invariant(self._next is None, self._said())

    def _said(self) -> str:
        return f"{self._name}: a row came to a partition that its batch has no source task in"


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    numbers = batch.column(HIDDEN).to_numpy(zero_copy_only=False)
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)] if len(numbers) else []
    first = 0
    for end in ends:
        yield int(numbers[first]), batch.slice(first, end - first)
        first = end
