"""Jobs whose result rows are too many for the driver: tasks store them in Postgres (R10), and say how many."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from txtopo.core.crash_points import CrashPoint, reach
from txtopo.core.values import CommitterResult, Staged, StagedPart
from txtopo.errors import invariant, unreachable
from txtopo.ports import Staging, StagingTable, StagingWriter
from txtopo.spark.frames.aggregate import CountJob
from txtopo.spark.frames.arrived_rows import Counted, Said, arrived, rows_of, said_together
from txtopo.spark.jobs import Run, check, collect_batches
from txtopo.topology.components import CommitterComponent

_SCHEMA = "part int, task_attempt bigint, stored bigint, said string"
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class StoringTask:
    """The function passed to `mapInArrow`: its input are groups, its output is one row that says what it stored. A task
    without groups gives none.
    """

    counted: Counted
    columns: tuple[int, ...]
    """Places of the committer's columns."""
    mark: str
    """Name of a column that only groups of this copy of the plan have."""
    writer: StagingWriter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Store the rows in one database transaction, then say so."""
        context = TaskContext.get() or unreachable("rows are stored by a task")
        part, task_attempt = context.partitionId(), context.taskAttemptId()
        said: list[Said] = []
        stored = self.writer.store(part, task_attempt, self._rows(batches, said))
        if said:
            words = json.dumps(said_together(self.counted, said))
            columns = [
                pa.array([part], pa.int32()),
                pa.array([task_attempt], pa.int64()),
                pa.array([stored], pa.int64()),
                pa.array([words], pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["part", "task_attempt", "stored", "said"])

    def _rows(self, batches: Iterator[pa.RecordBatch], said: list[Said]) -> Iterator[pa.Table]:
        for batch in batches:
            invariant(self.mark in batch.schema.names, "groups of another copy of the plan came to a task")
            table = pa.Table.from_batches([batch]).select(list(self.columns))
            if self.counted.by_run:
                invariant(not any(table.column(0).to_pylist()), "groups of another run came to a task")
                table = table.drop_columns([table.column_names[0]])
            more, rows = rows_of(self.counted, table)
            said.append(more)
            yield rows


@dataclass(slots=True)
class StagedJobs:
    """Runs such jobs for one topology, one after the other: so the tasks of this driver open a limited number of
    connections together.
    """

    large: set[str] = field(default_factory=set)
    """Committers whose last result was too large for the driver: the next is stored without trying."""
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def tables(
        self, staging: Staging, runs: Sequence[Run], components: Sequence[CommitterComponent]
    ) -> Iterator[list[StagingTable]]:
        """Wait until no other such job runs, then create a table for each of these committers of a run. They are
        removed if the job inside fails. Raises StoreUnavailable, Fenced, CancelledError.
        """
        [run] = runs
        while not self._turn.acquire(timeout=_LOOK_S):
            check(runs)
            run.waited.looks += 1
        made: list[StagingTable] = []
        try:
            check(runs)
            made += (staging.create(run.attempt, component) for component in components)
            yield made
        except BaseException:
            for table in made:
                staging.drop(table.name)
            raise
        finally:
            self._turn.release()
        reach(CrashPoint.STAGED, run.attempt.txid)

    def note(self, committer: str, staged: Staged, rows_max: int) -> None:
        """Remember how large the result of a committer was."""
        self.large.discard(committer) if staged.rows <= rows_max else self.large.add(committer)

    def run(
        self, staging: Staging, runs: Sequence[Run], job: CountJob, component: CommitterComponent
    ) -> CommitterResult:
        """Store the result rows of a job of one run and one committer. Raises StoreUnavailable, Fenced, CancelledError,
        and what Spark raises.
        """
        place = staging.place or unreachable("there is no place for large results")
        [counted] = job.committers
        with self.tables(staging, runs, [component]) as [table]:
            task = StoringTask(counted, job.columns[0], job.mark, table.writer)
            # At most so many tasks, with a connection each.
            stored = job.frame.coalesce(place.connections).mapInArrow(task, _SCHEMA)
            rows = [row for batch in collect_batches(stored) for row in batch.to_pylist()]
        parts = tuple(
            StagedPart(part=row["part"], task_attempt=row["task_attempt"], rows=row["stored"]) for row in rows
        )
        invariant(len({part.part for part in parts}) == len(parts), "a part was stored by two task attempts")
        staged = Staged(table=table.name, parts=parts)
        self.note(counted.name, staged, place.rows_max)
        said = said_together(counted, [json.loads(row["said"]) for row in rows])
        return CommitterResult(
            committer=counted.name,
            arrived=arrived(counted, said),
            rows=counted.schema.empty_table(),
            row_count=staged.rows,
            bytes=0,
            staged=staged,
        )
