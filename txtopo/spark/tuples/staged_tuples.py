"""Large results of tuple topologies (R10): which committers may have them, which had them, and what the driver makes of
messages whose rows tasks have stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from txtopo.core.values import CommitterResult, Staged, StagedPart
from txtopo.errors import BatchDataError, invariant
from txtopo.ports import Staging, StagingTable
from txtopo.spark.bounded_results import TooManyRows
from txtopo.spark.failures import is_about_size
from txtopo.spark.frames.frame_jobs import TOO_LARGE
from txtopo.spark.frames.staged_jobs import StagedJobs
from txtopo.spark.jobs import JobError, Run
from txtopo.spark.tuples.storing_task import StoredRows, StoringMessages
from txtopo.tuples.executor_halves import executor_half
from txtopo.tuples.graph import TaskGraph
from txtopo.tuples.message import Kind, Message
from txtopo.tuples.wire import DDL

Tables = Mapping[int, StagingTable]
"""By the number of the committer."""


class RowsOfCommitters:
    """Counts the result rows of each committer while messages come, see `collect_at_most`."""

    def __init__(self, tasks: Mapping[int, int]) -> None:
        """`tasks`: id of a task -> the number of its committer; rows of others do not count."""
        self._tasks = tasks
        self._rows: defaultdict[int, int] = defaultdict(int)

    def __call__(self, batch: pa.RecordBatch) -> int:
        """Return the rows of the committer that has most of them."""
        results = batch.select(["source", "rows"]).filter(pc.equal(batch.column("kind"), int(Kind.RESULT)))
        for source, rows in zip(results.column("source").to_pylist(), results.column("rows").to_pylist(), strict=True):
            if source in self._tasks:
                self._rows[self._tasks[source]] += rows
        return max(self._rows.values(), default=0)

    def above(self, rows_max: int) -> frozenset[int]:
        """Return the numbers of the committers with more rows."""
        return frozenset(number for number, rows in self._rows.items() if rows > rows_max)


class StagedTuples:
    """The committers of one topology whose rows tasks may store."""

    def __init__(self, graph: TaskGraph) -> None:
        self._numbers = {item.name: number for number, item in enumerate(graph.topology.committers)}
        here = [item for item in graph.topology.committers if item.bolt.can_be_staged and item.name in graph.nodes]
        # What a component of a later phase gets is in the driver in any case.
        mine = {item.name: item for item in here if graph.nodes[item.name].kind == "committer"}
        self._why_not = {name: executor_half(item).why_not_apart(item) for name, item in mine.items()}
        self._can = {self._numbers[name]: item for name, item in mine.items() if self._why_not[name] is None}
        self.tasks = {task: number for number, item in self._can.items() for task in graph.nodes[item.name].tasks}
        """Id of a task -> the number of its committer."""
        self._jobs = StagedJobs()

    def counting(self, tables: Tables) -> RowsOfCommitters:
        """Return what counts the rows of the committers that have no table."""
        return RowsOfCommitters({task: number for task, number in self.tasks.items() if number not in tables})

    def why_not(self, committer: str) -> str | None:
        """Return why tasks cannot store the rows of a committer although they store those of its kind; None: they can,
        or they never do.
        """
        return self._why_not.get(committer)

    def found_large(self, error: Exception, rows: RowsOfCommitters, rows_max: int) -> bool:
        """Take in why a job failed; returns True if some result was too large, and is stored the next time."""
        large: set[str] = set()
        if isinstance(error, TooManyRows):
            large = {self._can[number].name for number in rows.above(rows_max)}
        elif isinstance(error, BatchDataError) and error.fault == TOO_LARGE:
            large = {item.name for item in self._can.values() if item.name == error.component}
        elif isinstance(error, JobError) and is_about_size(error.__cause__):
            large = {item.name for item in self._can.values()}
        new = large - self._jobs.large
        self._jobs.large |= new
        return bool(new)

    @contextmanager
    def tables(self, staging: Staging, runs: Sequence[Run]) -> Iterator[Tables]:
        """Create the tables of this run, see StagedJobs.tables."""
        large = [item for item in self._can.values() if item.name in self._jobs.large]
        if not large:
            yield {}
            return
        with self._jobs.tables(staging, runs, large) as made:
            yield {self._numbers[item.name]: table for item, table in zip(large, made, strict=True)}

    def storing(self, messages: DataFrame, tables: Tables, connections: int) -> DataFrame:
        """Return the plan of these messages with tasks that store rows: at most so many, with a connection each."""
        stored = {number: StoredRows(self._can[number], table.writer) for number, table in tables.items()}
        tasks = {task: number for task, number in self.tasks.items() if number in tables}
        return messages.coalesce(connections).mapInArrow(StoringMessages(stored=stored, tasks=tasks), DDL)

    def placed(
        self, results: Sequence[CommitterResult], messages: Sequence[Message], tables: Tables, rows_max: int
    ) -> list[CommitterResult]:
        """Return the results, those that were stored with their places."""
        placed = {self._can[number].name: self._staged(number, table, messages) for number, table in tables.items()}
        for name, staged in placed.items():
            self._jobs.note(name, staged, rows_max)
        return [
            replace(result, row_count=placed[result.committer].rows, staged=placed[result.committer])
            if result.committer in placed
            else result
            for result in results
        ]

    def _staged(self, number: int, table: StagingTable, messages: Sequence[Message]) -> Staged:
        rows: defaultdict[tuple[int, int], int] = defaultdict(int)
        sent = 0
        for message in messages:
            if message.kind == Kind.STORED and message.edge == number:
                rows[message.seq, message.source] += message.rows
            elif message.kind == Kind.RESULT and self.tasks.get(message.source) == number:
                invariant(message.body is None, "rows came to the driver that were to be stored")
                sent += message.rows
        parts = tuple(
            StagedPart(part=part, task_attempt=task, rows=count) for (part, task), count in sorted(rows.items())
        )
        staged = Staged(table=table.name, parts=parts)
        invariant(len({part.part for part in parts}) == len(parts), "a part was stored by two task attempts")
        invariant(staged.rows == sent, f"tasks stored {staged.rows} of {sent} rows of {self._can[number].name}")
        return staged


def without_stored(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that tasks of the topology sent."""
    return [message for message in messages if message.kind != Kind.STORED]
