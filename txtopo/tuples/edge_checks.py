"""Judges a run by the reports of its tasks: all are present, none contradicts itself, nothing failed, no tuple was lost
on an edge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from txtopo.core.values import EdgeCount, Failure, RejectedRow, gravity
from txtopo.spouts.reject_limit import too_many_rejected
from txtopo.topology.components import Topology
from txtopo.tuples.graph import SOURCES, Node, TaskGraph
from txtopo.tuples.message import RunSpec, TaskReport, TupleFailure

Key = tuple[str, int]


def judge(graph: TaskGraph, run: RunSpec, reports: Sequence[TaskReport]) -> Failure | None:
    """Return why a run must not commit according to its tasks' reports; None if it may. The order of `reports` does not
    matter.
    """
    found = by_task(graph, reports)
    failures = failures_of(graph, reports)
    return (
        (failures[0].failure if failures else None)
        or _conflict(found)
        or _missing(graph, run, found)
        or reject_failure(graph.topology, lambda spout: [one[0] for (name, _), one in found.items() if name == spout])
        or _lost(graph, found)
    )


def by_task(graph: TaskGraph, reports: Sequence[TaskReport]) -> Mapping[Key, list[TaskReport]]:
    """Return reports by component and task, in the order of the graph; equal ones count once."""
    found: dict[Key, list[TaskReport]] = defaultdict(list)
    for report in reports:
        known = found[report.component, report.index]
        if report not in known:
            known.append(report)
    return {key: found[key] for key in sorted(found, key=lambda key: (*_place(graph, key[0]), key[1]))}


def failures_of(graph: TaskGraph, reports: Sequence[TaskReport]) -> list[TupleFailure]:
    """Return all reported failures: the gravest first, then from the sources downstream, in the order of tasks. A later
    one may be a consequence of an earlier one.
    """
    every = [item for found in by_task(graph, reports).values() for report in found for item in report.failures]
    return sorted(every, key=lambda item: gravity(item.failure))


def edges(graph: TaskGraph, reports: Sequence[TaskReport]) -> tuple[EdgeCount, ...]:
    """Return the tuples that all tasks of a component sent to all tasks of another, as counted on both sides."""
    found = [reports[0] for reports in by_task(graph, reports).values()]
    sent, received = (dict.fromkeys((edge.number for edge in graph.edges), 0) for _ in range(2))
    for report in found:
        for edge, rows in report.sent:
            sent[edge] += rows
        for edge, rows in report.received:
            received[edge] += rows
    return tuple(
        EdgeCount(edge=edge.name, sent=sent[edge.number], received=received[edge.number]) for edge in graph.edges
    )


def rejected_rows(graph: TaskGraph, reports: Sequence[TaskReport]) -> tuple[RejectedRow, ...]:
    """Return all rejected records: by spout, part, and their order in the source."""
    return tuple(row for found in by_task(graph, reports).values() for row in found[0].rejects)


def reject_failure(topology: Topology, reports_of: Callable[[str], Sequence[TaskReport]]) -> Failure | None:
    """Check the share of rejected records over the whole batch, not over a part: a wrong schema must not commit empty
    counts. `reports_of` returns the reports of a spout's tasks.
    """
    for item in topology.spouts:
        reports = reports_of(item.name)
        rejects = [row for report in reports for row in report.rejects]
        failure = too_many_rejected(item.name, item.spout.rejected_max, sum(one.read for one in reports), rejects)
        if failure is not None:
            return failure
    return None


def expected_tasks(graph: TaskGraph, run: RunSpec) -> Iterator[tuple[Node, int]]:
    """Yield the tasks that report, with their number in their component."""
    for node in graph.nodes.values():
        if node.kind in SOURCES:
            yield from ((node, index) for index in range(run.sources[node.name]))
        else:
            yield from ((node, index) for index in range(len(node.tasks)))


def _place(graph: TaskGraph, component: str) -> tuple[int, int]:
    node = graph.nodes[component]
    return node.level, node.ordinal


def _conflict(found: Mapping[Key, list[TaskReport]]) -> Failure | None:
    """Check repeated tasks. A task that ran twice must report the same twice (K3: input or code that is not
    deterministic).
    """
    for (component, index), reports in found.items():
        if len(reports) > 1:
            first, second = reports[:2]
            differing = [name for name in TaskReport.__slots__ if getattr(first, name) != getattr(second, name)]
            message = f"task {index + 1} of {component} ran twice with different outcomes: " + "; ".join(
                f"{name} {getattr(first, name)} and {getattr(second, name)}" for name in differing
            )
            return Failure(kind="data", component=component, message=message)
    return None


def _missing(graph: TaskGraph, run: RunSpec, found: Mapping[Key, list[TaskReport]]) -> Failure | None:
    for node, index in expected_tasks(graph, run):
        if (node.name, index) not in found:
            total = len(node.tasks) or run.sources[node.name]
            message = f"{node.name}: task {index + 1} of {total} gave no report"
            return Failure(kind="suspect", component=node.name, message=message)
    return None


def _lost(graph: TaskGraph, found: Mapping[Key, list[TaskReport]]) -> Failure | None:
    """Compare whole edges, as CoordinatedBolt does: one side received what the other sent."""
    if graph.topology.acking == "off":
        return None
    for edge, count in zip(graph.edges, edges(graph, [reports[0] for reports in found.values()]), strict=True):
        if count.sent != count.received:
            message = f"{edge.name}: {count.sent} tuples were sent and {count.received} received"
            return Failure(kind="data", component=edge.target, message=message)
    return None
