"""Finds the cause of a failed run of tuple tasks by running its batch again, with the same tag and with reports under
separate names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from txtopo.core.values import CommitterResult, Failed, Failure, Outcome
from txtopo.spark.jobs import BatchWork, JobContext, Run, RunReports
from txtopo.spark.tuples.tuple_checks import TupleChecks
from txtopo.spark.tuples.tuple_graphs import Graphs
from txtopo.spark.tuples.tuple_work import seen_of
from txtopo.tuples.message import TupleFailure
from txtopo.tuples.tracing import Again, Tracing


class Runs(Protocol):
    """Jobs that can run a batch once more."""

    def run_again(
        self, runs: Sequence[Run], works: Sequence[BatchWork], names: Sequence[str], again: Again
    ) -> list[list[CommitterResult]]:
        """Run these runs with reports under other names. Raises JobError, CancelledError."""

    def outcome(self, run: Run, work: BatchWork, results: Sequence[CommitterResult], reports: RunReports) -> Outcome:
        """Return the verdict on a run."""


def explained(
    jobs: Runs,
    context: JobContext,
    graphs: Graphs,
    run: Run,
    work: BatchWork,
    failure: Failure,
    causes: Sequence[TupleFailure],
) -> Outcome:
    """Return the failure of a run with the source tuple that caused it, or its batch without dead letters. `causes` are
    the failures that the run reported.
    """
    # Late reports of one run must not count for another (K1: tasks that continue after they were cancelled).
    numbers = count(1)

    def rerun(again: Again) -> tuple[Outcome, Sequence[TupleFailure]]:
        name = f"{run.name}/{next(numbers)}"
        context.reports.open(name)
        try:
            (results,) = jobs.run_again([run], [work], [name], again)
        finally:
            found = context.reports.take(name)
        outcome = jobs.outcome(run, work, results, found)
        return outcome, TupleChecks(graphs, seen_of(work), found).causes()

    tracing = Tracing(context.topology, graphs.place, work.assignment, work.parts, rerun)
    try:
        return tracing.explained(failure, causes)
    # If a rerun ended in another way, its own failure counts, for example a worker that died.
    except Exception as error:
        judged = context.judge(error, run, {})
        return Failed(attempt=run.attempt, failure=judged if judged.kind != "data" else failure)
