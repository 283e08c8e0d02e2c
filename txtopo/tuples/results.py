"""Makes results in the driver from the messages of one run: the result of each committer, and the outcome of the
ackers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.core.values import CommitterResult
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import CommitterComponent
from txtopo.tuples import acking
from txtopo.tuples.executor_halves import executor_half
from txtopo.tuples.graph import Node, TaskGraph
from txtopo.tuples.message import Kind, Message, RunSpec
from txtopo.tuples.readable_results import check_readable
from txtopo.tuples.wire import unpack


def merge(
    graph: TaskGraph, run: RunSpec, messages: Sequence[Message]
) -> tuple[list[CommitterResult], acking.AckOutcome | None]:
    """Return the results of the committers in the graph, in the order of the topology, then the tuples that receivers
    got for bolts of later phases; and the outcome of the ackers, None without ackers.

    `messages` are the messages of this run to the driver, in any order. Result rows are in the order of the tasks and
    of their emission, counts in the order of their keys. Raises BatchDataError if a task's last message or any of its
    results is missing, or came twice, and if Python cannot read a result.
    """
    gathered = _Gathered(graph, messages)
    results = [_result(graph, gathered, item) for item in graph.topology.committers if item.name in graph.nodes]
    bolts = [graph.nodes[bolt.name] for bolt in graph.topology.tuple_bolts if bolt.name in graph.nodes]
    results += [_received(gathered, node) for node in bolts if node.kind == "receiver"]
    if graph.ackers is None:
        return results, None
    ended = gathered.ended(graph.ackers)
    return results, acking.outcome_of(gathered.bodies(graph.ackers), [unpack(end.body) for end in ended])


class _Gathered:
    """Messages by the task that sent them."""

    def __init__(self, graph: TaskGraph, messages: Sequence[Message]) -> None:
        self._results: Mapping[int, list[Message]] = defaultdict(list)
        self._ends: Mapping[int, list[Message]] = defaultdict(list)
        for message in sorted(messages, key=lambda message: message[:6]):
            (self._ends if message.kind == Kind.END else self._results)[message.source].append(message)

    def ended(self, node: Node) -> list[Message]:
        """Return the last message of each task of a node. Raises BatchDataError if messages are missing or too many."""
        found = []
        for task in node.tasks:
            ends, results = self._ends[task], self._results[task]
            if len(ends) != 1:
                words = "did not say that it is done" if not ends else f"said {len(ends)} times that it is done"
                raise BatchDataError(f"task {task} of {node.name} {words}", component=node.name)
            # A receiver has one count for all its edges.
            if sorted(message.seq for message in results) != list(range(ends[0].seq)):
                raise BatchDataError(
                    f"task {task} of {node.name} sent {ends[0].seq} messages with results, {len(results)} arrived",
                    component=node.name,
                )
            found.append(ends[0])
        return found

    def bodies(self, node: Node, edge: int | None = None) -> list[pa.RecordBatch]:
        """Return the record batches that the tasks of a node sent, of one edge or of all, in order."""
        return [
            unpack(message.body)
            for task in node.tasks
            for message in sorted(self._results[task], key=lambda message: message.seq)
            if message.body is not None and edge in (None, message.edge)
        ]


def _result(graph: TaskGraph, gathered: _Gathered, item: CommitterComponent) -> CommitterResult:
    node = graph.nodes[item.name]
    if node.kind == "receiver":
        return _received(gathered, node)
    arrived = sum(end.rows for end in gathered.ended(node))
    return _made(item.name, arrived, executor_half(item).rows(item, gathered.bodies(node)))


def _received(gathered: _Gathered, node: Node) -> CommitterResult:
    """Return what a component of a later phase reads of this one."""
    deferred = tuple(
        (edge.source, edge.stream, pa.Table.from_batches(gathered.bodies(node, edge.number), arrow_schema(edge.fields)))
        for edge in node.inputs
    )
    return _made(node.name, sum(end.rows for end in gathered.ended(node)), pa.table({}), deferred)


def _made(name: str, arrived: int, rows: pa.Table, deferred: tuple[tuple[str, str, Any], ...] = ()) -> CommitterResult:
    for table in (rows, *(table for _, _, table in deferred)):
        check_readable(name, table)
    held = rows.nbytes + sum(table.nbytes for _, _, table in deferred)
    return CommitterResult(
        committer=name, arrived=arrived, rows=rows, row_count=rows.num_rows, bytes=held, deferred=deferred
    )
