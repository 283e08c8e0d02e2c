"""Runs one attempt's tasks of a graph in this process, and judges them: returns results, or the failure with all that
is known about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txtopo.core.values import CommitterResult, Failure
from txtopo.errors import BatchDataError
from txtopo.tuples.acking import AckOutcome, ack_failure, causes_of
from txtopo.tuples.edge_checks import failures_of, judge
from txtopo.tuples.engine import Engine, Sources, Watch
from txtopo.tuples.graph import TaskGraph
from txtopo.tuples.message import RunSpec, TaskReport, TupleFailure
from txtopo.tuples.results import merge


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """The result of one run."""

    graph: TaskGraph
    reports: Sequence[TaskReport]
    results: Sequence[CommitterResult]
    """Empty if it failed."""
    failure: Failure | None
    acks: AckOutcome | None = None

    def causes(self) -> list[TupleFailure]:
        """Return every failure that names the tuple it happened on, or may do so with tracing."""
        return failures_of(self.graph, self.reports) or causes_of(
            self.acks, _ack_failure(self.graph, self.reports, self.acks)
        )


def run_here(
    graph: TaskGraph, spec: RunSpec, sources: Sources, *, failures_max: int = 1, watch: Watch | None = None
) -> LocalRun:
    """Run the graph, with its messages in memory. Raises errors of `sources` and `watch` that are not errors of user
    code.
    """
    reports: list[TaskReport] = []

    def report(task: TaskReport) -> None:
        rejects = tuple(replace(row, spout=task.component) for row in task.rejects)
        reports.append(replace(task, rejects=rejects))

    messages = list(Engine(graph, failures_max=failures_max).run_local([spec], sources, report, watch))
    failure = judge(graph, spec, reports)
    try:
        results, acks = merge(graph, spec, messages)
    except BatchDataError as error:
        failure = failure or Failure(
            kind="data",
            message=str(error),
            component=error.component,
            position=error.position,
            detail=error.detail,
            cause=error.cause,
        )
        return LocalRun(graph=graph, reports=reports, results=(), failure=failure)
    failure = failure or _ack_failure(graph, reports, acks)
    return LocalRun(graph=graph, reports=reports, results=() if failure else results, failure=failure, acks=acks)


def _ack_failure(graph: TaskGraph, reports: Sequence[TaskReport], acks: AckOutcome | None) -> Failure | None:
    if acks is None:
        return None
    sources = {node.name for node in graph.sources}
    emitted = sum(report.emitted for report in reports if report.component in sources)
    return ack_failure(graph, acks, emitted)
