"""Runs the tasks of a graph, level by level, over messages: the same messages give the same result in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

import numpy as np
import pyarrow as pa

from txtopo.topology.components import Tally
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.tuples import acking
from txtopo.tuples.columns import Columns
from txtopo.tuples.graph import ROOT_PARTS_MAX, Node, TaskGraph, root_id, source_id
from txtopo.tuples.groupings import RowFailed
from txtopo.tuples.message import Message, RunSpec, TakeReport, TaskReport
from txtopo.tuples.roots import Ints, Roots
from txtopo.tuples.task_context import CAUGHT, TaskContext
from txtopo.tuples.tasks import Task, ack_task, last_messages, router_of
from txtopo.tuples.user_errors import spout_failure_of

Sources = Callable[[int, str, int, Tally], Iterator[pa.RecordBatch]]
"""(index of the run, source, index of its task, tally) -> what that source task emits."""


class Watch(Protocol):
    """Sees every message of a run in one process as it passes; may raise."""

    def sent(self, message: Message) -> None:
        """A task has made the message."""

    def taken(self, component: str) -> None:
        """A task of the component gets the next message; what ran since the last call was the component of that
        call.
        """


class Engine:
    """The tuple runtime of one graph. It can be pickled, and has no state between calls."""

    def __init__(self, graph: TaskGraph, *, failures_max: int = 1) -> None:
        """`failures_max`: the number of failing tuples that each task collects; after the last one it stops."""
        self._graph = graph
        self._failures_max = failures_max
        self._levels = {task: node.level for task, node in graph.owner.items()}

    def source(
        self,
        run_index: int,
        run: RunSpec,
        name: str,
        index: int,
        batches: Iterator[pa.RecordBatch],
        tally: Tally,
        reporter: TakeReport,
    ) -> Iterator[Message]:
        """Run source task `index` of spout or DataFrame `name` over what it emits. `tally` is complete when `batches`
        has ended.

        Skips the tuples in RunSpec.excluded. If a spout raises, its report contains a failure; it still reports how
        much it sent.
        """
        node = self._graph.nodes[name]
        task_context = self._task_context(run_index, run, source_id(node, index))
        router = router_of(task_context)
        excluded = np.array(sorted(run.excluded.get(name, {}).get(index, ())), dtype=np.int64)
        number = emitted = 0
        if not task_context.prepared(router):
            batches = iter(())
        try:
            for batch in _fitted(node, batches):
                numbers = np.arange(number, number + batch.num_rows, dtype=np.int64)
                number += batch.num_rows
                if len(excluded):
                    kept = ~np.isin(numbers, excluded)
                    batch, numbers = batch.filter(pa.array(kept)), numbers[kept]
                emitted += batch.num_rows
                router.send(
                    node.streams[index] if node.streams else DEFAULT_STREAM,
                    batch,
                    self._init(task_context, numbers, index),
                )
                yield from router.drain()
        except RowFailed as error:
            task_context.fail(error)
        except CAUGHT as error:
            task_context.note(spout_failure_of(error, name))
        reporter(
            TaskReport(
                run=run.run,
                component=name,
                index=index,
                read=tally.read,
                emitted=emitted,
                rejects=tuple(tally.rejects),
                sent=router.sent(),
                failures=tuple(task_context.failures),
            )
        )
        yield from last_messages(task_context, router, failed=bool(task_context.failures))

    def level(
        self,
        runs: Sequence[RunSpec],
        messages: Iterator[Message],
        level: int,
        reporter: TakeReport,
        watch: Watch | None = None,
    ) -> Iterator[Message]:
        """Run the tasks of one level that `messages` are addressed to; they are sorted by (run, target, source, kind,
        edge, seq).

        Messages to later levels and to the driver are passed on. Tasks run one after the other.
        """
        for (run_index, target), mine in groupby(messages, key=_address):
            if self._levels.get(target) != level:
                yield from mine
                continue
            run = runs[run_index]
            task_context = self._task_context(run_index, run, target)
            if watch is not None:
                mine = _taken(mine, watch, task_context.node.name)
            if task_context.node.kind == "acker":
                yield from ack_task(task_context, mine, self._tellers(run), reporter)
            else:
                yield from Task(task_context, reporter).run(mine)

    def run_local(
        self, runs: Sequence[RunSpec], sources: Sources, reporter: TakeReport, watch: Watch | None = None
    ) -> Iterator[Message]:
        """Run all levels of all runs in this process, in memory; yields the messages to the driver."""
        messages: list[Message] = []
        for run_index, run in enumerate(runs):
            for node in self._graph.sources:
                for index in range(run.sources[node.name]):
                    tally = Tally(attempt=run.attempt)
                    batches = sources(run_index, node.name, index, tally)
                    made = self.source(run_index, run, node.name, index, batches, tally, reporter)
                    messages.extend(_sent(made, watch))
        for level in range(1, self._graph.levels + 1):
            messages.sort(key=_order)
            messages = list(_sent(self.level(runs, iter(messages), level, reporter, watch), watch))
        messages.sort(key=_order)
        yield from messages

    def _task_context(self, run_index: int, run: RunSpec, task: int) -> TaskContext:
        graph = self._graph
        node = graph.task_of(task)[0]
        fold = acking.Fold() if graph.ackers is not None and node.kind != "acker" else None
        return TaskContext(
            graph=graph, node=node, task=task, run_index=run_index, run=run, failures_max=self._failures_max, fold=fold
        )

    def _init(self, task_context: TaskContext, numbers: Ints, index: int) -> Roots | None:
        """Return the roots of tuples number `numbers` of a source: the tuples themselves. None if nothing needs them
        and there are too many parts.
        """
        if not task_context.tracked and index >= ROOT_PARTS_MAX:
            return None
        roots = numbers + root_id(task_context.node, index, 0)
        if task_context.fold is not None:
            # Storm's INIT: the ackers know every spout tuple, also one that no task gets.
            task_context.fold.add(roots, np.zeros(len(roots), dtype=np.int64))
        return Roots.single(roots)

    def _tellers(self, run: RunSpec) -> frozenset[int]:
        """Return all tasks that report their tuples to the ackers."""
        graph = self._graph
        tasks = {task for task, node in graph.owner.items() if node.kind != "acker" and node.inputs}
        return frozenset(tasks).union(
            *[[source_id(node, index) for index in range(run.sources[node.name])] for node in graph.sources]
        )


def _fitted(node: Node, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches of a source with its declared fields: readers access values by position."""
    if not node.outputs or node.streams:
        return batches
    return map(Columns(node.name, DEFAULT_STREAM, node.outputs[0].fields).fitted, batches)


def _sent(messages: Iterator[Message], watch: Watch | None) -> Iterator[Message]:
    for message in messages:
        if watch is not None:
            watch.sent(message)
        yield message


def _taken(messages: Iterator[Message], watch: Watch, component: str) -> Iterator[Message]:
    for message in messages:
        watch.taken(component)
        yield message


def _address(message: Message) -> tuple[int, int]:
    return message.run, message.target


def _order(message: Message) -> tuple[int, ...]:
    return tuple(message[:6])
