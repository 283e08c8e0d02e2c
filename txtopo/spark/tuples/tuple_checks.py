"""Judges a run of tuple tasks whose jobs succeeded: all tasks reported, all reports agree, no tuples were lost, the
tasks ran the leader's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from txtopo.core.values import EdgeCount, Failure, RejectedRow, gravity
from txtopo.spark.frames.frame_checks import unread_part
from txtopo.spark.jobs import RunReports
from txtopo.spark.reports import TupleReport
from txtopo.spark.tuples.tuple_graphs import LEAVES, MAIN, Graphs
from txtopo.spark.tuples.tuple_work import SeenRun
from txtopo.tuples.acking import ack_failure, causes_of
from txtopo.tuples.edge_checks import edges as edges_of
from txtopo.tuples.edge_checks import judge, reject_failure
from txtopo.tuples.message import TaskReport, TupleFailure


class TupleChecks:
    """The reports of one run, and what follows from them. Reports are given by (graph, component, index)."""

    def __init__(self, graphs: Graphs, seen: SeenRun, reports: RunReports) -> None:
        self._graphs = graphs
        self._seen = seen
        self._reports: Mapping[tuple[str, str, int], Sequence[TupleReport]] = reports
        self._order = [LEAVES, *graphs.by_name]

    def failure(self, *, code_hash: bytes, version: str) -> Failure | None:
        """Return why the run must not commit; None if it may. Causes come before their possible consequences."""
        return (
            self._other_code(code_hash, version)
            or self._conflict()
            or self._judged()
            or reject_failure(self._graphs.topology, self._of_spout)
            or self._acks()
            or self._error()
            or self._lost_rows()
        )

    def causes(self) -> list[TupleFailure]:
        """Return every failure that names the tuple it happened on, or may do so with tracing: failures of sources
        first, then level by level.
        """
        found = [failure for report in self._sorted() for failure in report.task.failures]
        return found or causes_of(self._seen.acks, self._acks())

    def reported(self) -> Failure | None:
        """Return the failure that a task nearest to the sources reported, failures of the data before others."""
        for graph in self._order:
            found = _first_failure(self._tasks(graph))
            if found is not None:
                return found
        return None

    def edges(self) -> tuple[EdgeCount, ...]:
        """Return what was sent and received over each edge; an edge in several graphs is listed once."""
        found: dict[str, EdgeCount] = {}
        for name, graph in self._graphs.by_name.items():
            for edge in edges_of(graph, self._tasks(name)):
                found.setdefault(edge.edge, edge)
        return tuple(found.values())

    @property
    def read(self) -> int:
        """Number of source records of all spouts; a spout in several graphs counts once."""
        return sum(task.read for item in self._graphs.topology.spouts for task in self._of_spout(item.name))

    @property
    def rejected_rows(self) -> tuple[RejectedRow, ...]:
        """Return rejected records by spout, part, and their order in the source."""
        return tuple(
            row for item in self._graphs.topology.spouts for task in self._of_spout(item.name) for row in task.rejects
        )

    def _of_spout(self, spout: str) -> list[TaskReport]:
        for graph in self._order:
            tasks = [task for task in self._tasks(graph) if task.component == spout]
            if tasks:
                return tasks
        return []

    def _tasks(self, graph: str) -> list[TaskReport]:
        return [report.task for report in self._sorted(graph)]

    def _sorted(self, graph: str | None = None) -> list[TupleReport]:
        """The first report of each task, by graph, level, component and task."""

        def place(key: tuple[str, str, int]) -> tuple[int, int, int, int]:
            name, component, index = key
            node = self._graphs.by_name[name].nodes.get(component) if name in self._graphs.by_name else None
            return self._order.index(name), node.level if node else 0, node.ordinal if node else 0, index

        return [self._reports[key][0] for key in sorted(self._reports, key=place) if graph in (None, key[0])]

    def _other_code(self, code_hash: bytes, version: str) -> Failure | None:
        """Check the code hash. An attempt commits only if all its tasks ran the leader's code (R12)."""
        for report in (report for found in self._reports.values() for report in found):
            if report.code_hash == code_hash and report.version == version:
                continue
            what = (
                f"ran other code of the topology ({report.code_hash.hex()[:12]})"
                if report.code_hash != code_hash
                else f"has another txtopo installed ({report.version} instead of {version})"
            )
            return Failure(kind="data", component=report.task.component, message=f"host {report.host} {what}")
        return None

    def _conflict(self) -> Failure | None:
        """Check repeated tasks. A task that ran twice must report the same twice (K3: input or code that is not
        deterministic).
        """
        for report in self._sorted():
            found = self._reports[report.key]
            if len(found) > 1:
                first, second = found[:2]
                name = report.task.component
                return Failure(
                    kind="data",
                    component=name,
                    message=f"{name}: task {report.task.index + 1} ran twice with different outcomes: "
                    f"{_said(first)} on {first.host}; {_said(second)} on {second.host}",
                )
        return None

    def _judged(self) -> Failure | None:
        for name in self._order:
            if name not in self._seen.specs:
                continue
            if name == LEAVES:
                failure = _first_failure(self._tasks(LEAVES)) or self._unread()
            else:
                failure = judge(self._graphs.by_name[name], self._seen.specs[name], self._tasks(name))
            if failure is not None:
                return failure
        return None

    def _unread(self) -> Failure | None:
        for spout, count in self._seen.specs[LEAVES].sources.items():
            for index in range(count):
                if (LEAVES, spout, index) not in self._reports:
                    return unread_part(self._graphs.topology, spout, index, count)
        return None

    def _acks(self) -> Failure | None:
        acks = self._seen.acks
        if acks is None:
            return None
        graph = self._graphs.main
        names = {node.name for node in graph.sources}
        emitted = sum(task.emitted for task in self._tasks(MAIN) if task.component in names)
        return ack_failure(graph, acks, emitted)

    def _error(self) -> Failure | None:
        error = self._seen.error
        if error is None:
            return None
        return Failure(
            kind="data",
            message=str(error),
            component=error.component,
            position=error.position,
            detail=error.detail,
            cause=error.cause,
        )

    def _lost_rows(self) -> Failure | None:
        """Check that no rows vanish or appear in DataFrame bolts, as far as these promise (`rows`)."""
        for graph in self._graphs.by_name.values():
            for node in graph.sources:
                found = self._entered(node.name) if node.kind == "frame" else None
                if found is None:
                    continue
                before, entered, promise = found
                left = sum(task.emitted for task in self._first(node.name))
                if left == entered or (promise == "fewer" and left < entered):
                    continue
                expected = "as many" if promise == "same" else "at most as many"
                return Failure(
                    kind="data",
                    component=node.name,
                    message=f"{entered} tuples of {before} entered and {left} left bolt {node.name}; {expected} were "
                    f"expected, by the rows= of the bolts on the way",
                )
        return None

    def _first(self, component: str) -> list[TaskReport]:
        """Return the reports of a DataFrame bolt as a source, from the first graph that reads it."""
        for graph in self._graphs.by_name:
            tasks = [
                task
                for task in self._tasks(graph)
                if task.component == component and not self._graphs.by_name[graph].nodes[component].level
            ]
            if tasks:
                return tasks
        return []

    def _entered(self, name: str) -> tuple[str, int, str] | None:
        """Return (source, tuples, promise) of what entered the DataFrame bolts upstream of a DataFrame; None if one
        promises nothing or joins.
        """
        bolts = {bolt.name: bolt for bolt in self._graphs.topology.frame_bolts}
        promise = "same"
        while name in bolts:
            bolt = bolts[name]
            if bolt.rows == "any" or len(bolt.inputs) != 1:
                return None
            promise = "fewer" if bolt.rows == "fewer" else promise
            source = bolt.inputs[0].source
            if not self._graphs.is_on_leaves(name):
                received = [rows for task in self._tasks(name) if task.component == name for _, rows in task.received]
                return source, sum(received), promise
            name = source
        return name, sum(task.emitted for task in self._tasks(LEAVES) if task.component == name), promise


def _first_failure(tasks: Iterable[TaskReport]) -> Failure | None:
    failures = [failure.failure for task in tasks for failure in task.failures]
    return min(failures, key=gravity, default=None)


def _said(report: TupleReport) -> str:
    task = report.task
    if task.failures:
        return task.failures[0].failure.message
    sent, received = sum(rows for _, rows in task.sent), sum(rows for _, rows in task.received)
    return f"{task.read} read, {len(task.rejects)} rejected, {received} received, {sent} sent"
