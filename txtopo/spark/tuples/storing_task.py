"""The task that stores result rows of tuple topologies in Postgres, between the tasks of the committers and the driver
(R10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from txtopo.errors import unreachable
from txtopo.ports import StagingWriter
from txtopo.topology.components import CommitterComponent
from txtopo.tuples.executor_halves import executor_half
from txtopo.tuples.message import DRIVER, Kind, Message
from txtopo.tuples.readable_results import check_readable
from txtopo.tuples.wire import decode, encode, unpack


class StoredRows(NamedTuple):
    """A committer whose rows are stored, and where."""

    committer: CommitterComponent
    writer: StagingWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class StoringMessages:
    """The function passed to `mapInArrow`: messages to the driver in, the same out, but rows of some committers are
    stored.
    """

    stored: Mapping[int, StoredRows]
    """By the number of the committer."""
    tasks: Mapping[int, int]
    """Id of a task -> the number of its committer, for these."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Store rows as they come, and say so when their COMMIT is confirmed."""
        context = TaskContext.get() or unreachable("rows are stored by a task")
        yield from self.passed(batches, context.partitionId(), context.taskAttemptId())

    def passed(self, batches: Iterator[pa.RecordBatch], part: int, task_attempt: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages to the driver of this attempt at this part. Raises StagingFailed and BatchDataError."""
        numbered = ((order, self.tasks.get(message.source), message) for order, message in _ordered(batches))
        for (order, number), found in groupby(numbered, key=itemgetter(0, 1)):
            messages = (message for _, _, message in found)
            yield from encode(messages if number is None else self._store(number, messages, part, task_attempt), order)

    def _store(self, number: int, messages: Iterable[Message], part: int, task_attempt: int) -> Iterator[Message]:
        left: list[Message] = []
        rows = self.stored[number].writer.store(part, task_attempt, self._rows(number, messages, left))
        yield from left
        if rows:
            yield Message(left[0].run, DRIVER, task_attempt, Kind.STORED, number, part, rows)

    def _rows(self, number: int, messages: Iterable[Message], left: list[Message]) -> Iterator[pa.Table]:
        committer = self.stored[number].committer
        half = executor_half(committer)
        for message in messages:
            body = unpack(message.body)
            left.append(message._replace(body=None))
            if message.kind == Kind.RESULT and body is not None:
                table = half.rows(committer, [body])
                check_readable(committer.name, table)
                yield table


def _ordered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Message]]:
    for batch in batches:
        yield from zip(batch.column("order").to_pylist(), decode([batch], packed=True), strict=True)
