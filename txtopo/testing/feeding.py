"""Runs a topology of tuple bolts tuple by tuple in this process, without Spark, on a clock that the test advances: with
Storm's ack API, unchanged.

A batch has no clock. This module is for bolts that keep tuples until later ones arrive, and shows which tuple of a
spout is acked when. Bolts, streams, groupings and anchors are those of a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.plan import Metadata
from txtopo.core.values import TransactionAttempt
from txtopo.errors import TopologyError, unreachable
from txtopo.testing.feeding_tracking import FedTuple, Tracker
from txtopo.testing.feeding_tuples import FedCollector, FedEmission, FedRouter, FedTask, Way, values_of
from txtopo.topology.components import Input, Spout, SpoutContext, SpoutCoordinator, Tally, Topology
from txtopo.topology.phases import PROCESSING
from txtopo.topology.streams import DEFAULT_STREAM, Stream, Tuple
from txtopo.topology.tuple_bolts import TopologyContext, TupleBolt
from txtopo.tuples.graph import Node, TaskGraph, build_graph, surroundings

TIMEOUT = "topology.message.timeout.secs"
TIMEOUTS = "topology.enable.message.timeouts"
ACKERS = "topology.acker.executors"
SPOUT_PENDING = "topology.max.spout.pending"
DEFAULTS: Mapping[str, Any] = {TIMEOUT: 30.0, TIMEOUTS: True, ACKERS: 1, SPOUT_PENDING: None}
"""Storm's defaults; None: no limit."""


class FeederSpout(Spout):
    """A spout that emits the tuples fed by a test (Storm's FeederSpout). It has fields but no source."""

    is_fed = True

    def __init__(self, fields: str | Fields) -> None:
        self.fields = parse_fields(fields)

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        """Raise TopologyError: a FeederSpout has no coordinator half."""
        raise TopologyError(f"spout {context.spout!r} is a FeederSpout: it is fed by a test and cannot be run")

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        unreachable("a FeederSpout has no batches")

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        unreachable("a FeederSpout has no batches")

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return ()

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "feeder", "fields": self.fields.ddl}


@dataclass(slots=True)
class _FedSpout:
    """One task of a spout, with the rows and message ids that it may not emit yet."""

    router: FedRouter
    waiting: deque[tuple[pa.RecordBatch, Hashable | None]] = field(default_factory=deque)


class FeederTopology:
    """Runs a topology of tuple bolts on tuples fed by a test. When `feed` returns, everything that follows from the
    tuple has happened.

    Settings are Storm's, from the topology's `config`; `settings` overrides them: `topology.message.timeout.secs` (30
    by default), `topology.enable.message.timeouts` (True), `topology.acker.executors` (1; 0: acked immediately),
    `topology.max.spout.pending` (no limit). Committers record their input (`arrived`), and nothing is committed: bolts
    downstream of committers do not run. Raises TopologyError for a topology with functions on DataFrames.

        with FeederTopology(topology) as feeder:
            feeder.feed("lines", ["a line"], message_id=1)
            assert feeder.acked == [1]
    """

    def __init__(self, topology: Topology, settings: Mapping[str, Any] | None = None) -> None:
        for bolt in topology.frame_bolts:
            raise TopologyError(
                f"{bolt.name!r} is a function on DataFrames: only tuple bolts can be fed tuple by tuple"
            )
        self.topology = topology
        self.settings = {**DEFAULTS, **topology.config, **(settings or {})}
        self.now = 0.0
        """Seconds since the start."""
        self.acked: list[Hashable] = []
        """Ids of acked messages, in the order of the acks."""
        self.failed: list[Hashable] = []
        """Ids of messages that failed or timed out, in order."""
        self.emissions: list[FedEmission] = []
        """All emissions of all components, in order."""
        self._of: dict[tuple[str, bool], list[Hashable]] = {}
        self._queue: deque[tuple[int, FedTuple]] = deque()
        # Nothing is committed here, so there is nothing for what is downstream of a committer.
        early = [bolt.name for bolt in topology.bolts if topology.phases[bolt.name] == PROCESSING]
        sinks = [*early, *(committer.name for committer in topology.committers)]
        self._graph = build_graph(topology, sinks, ackers=0)
        self._spouts = {
            (spout.name, index): _FedSpout(self._router(_source(self._graph, spout.name), index, spout.tasks or 1))
            for spout in topology.spouts
            for index in range(spout.tasks or 1)
        }
        self._tracker = Tracker(
            [spout.router.task for spout in self._spouts.values()],
            self._told,
            ackers=0 if topology.acking == "off" else int(self._setting(ACKERS)),
            timeout_s=float(self._setting(TIMEOUT)),
            timeouts=bool(self._setting(TIMEOUTS)),
        )
        nodes = [node for node in self._graph.nodes.values() if node.tasks]
        self._tasks = {task: self._task(node, index) for node in nodes for index, task in enumerate(node.tasks)}
        for fed in self._tasks.values():
            fed.prepare()

    def __enter__(self) -> FeederTopology:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------------------

    def feed(self, spout: str, values: Sequence[Any], message_id: Hashable | None = None, *, task: int = 0) -> bool:
        """Let a spout task emit one tuple; with a message id, it is tracked. Returns False if the tuple has to wait
        because `topology.max.spout.pending` tuples of that task are neither acked nor failed. Raises the exception of a
        bolt, except FailedException in a BasicBolt or BatchBolt, which fails the tuple.
        """
        fed = self._spout(spout, task)
        fed.waiting.append((fed.router.row(DEFAULT_STREAM, values), message_id))
        self._run()
        return not fed.waiting

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`: timeouts and ticks occur in order, each with all its consequences. Raises
        ValueError for a negative number.
        """
        if not seconds >= 0:
            raise ValueError(f"time does not go back: {seconds!r}")
        end = self.now + seconds
        while True:
            due = [task.ticks.next_s for task in self._tasks.values() if task.ticks]
            self.now = min([*due, self._tracker.next_s, end])
            self._tracker.advance(self.now)
            for task in self._tasks.values():
                for _ in range(task.ticks.advance(self.now) if task.ticks else 0):
                    self._queue.append((task.router.task, task.tick()))
            self._run()
            if self.now == end:
                return

    def tick(self, component: str) -> None:
        """Send one tick tuple to every task of a bolt now."""
        for task in self._tasks_of(component):
            self._queue.append((task.router.task, task.tick()))
        self._run()

    def finish_batch(self) -> None:
        """Call `finish_batch` of every bolt, upstream bolts first."""
        for task in self._tasks.values():
            task.finish_batch()
            self._run()

    def close(self) -> None:
        """Call `cleanup` of every bolt."""
        for task in self._tasks.values():
            if task.bolt is not None:
                task.bolt.cleanup()

    # ------------------------------------------------------------------------------------------------------------------

    def acked_of(self, spout: str) -> list[Hashable]:
        """Return the ids of acked messages of one spout."""
        return self._of.get((self._spout(spout).router.component, True), [])

    def failed_of(self, spout: str) -> list[Hashable]:
        """Return the ids of failed messages of one spout."""
        return self._of.get((self._spout(spout).router.component, False), [])

    def pending(self, spout: str, *, task: int = 0) -> int:
        """Return the number of tuples of a spout task that are neither acked nor failed."""
        return self._tracker.waits_for(self._spout(spout, task).router.task)

    def waiting(self, spout: str, *, task: int = 0) -> int:
        """Return the number of tuples that were fed to a spout task and not emitted yet."""
        return len(self._spout(spout, task).waiting)

    def emitted(self, component: str, stream: str = DEFAULT_STREAM) -> list[tuple[Any, ...]]:
        """Return the values of all emissions of a component on a stream, in order."""
        return [item.values for item in self.emissions if (item.component, item.stream) == (component, stream)]

    def arrived(self, component: str) -> list[tuple[Any, ...]]:
        """Return the values of all tuples that arrived at a bolt or committer, task by task, without ticks."""
        return [values for task in self._tasks_of(component) for values in task.arrived]

    def bolt(self, component: str, index: int = 0) -> TupleBolt:
        """Return the running copy of a bolt in one of its tasks. Raises ValueError if `component` is not a bolt."""
        bolt = self._tasks_of(component)[index].bolt
        if bolt is None:
            raise ValueError(f"{component!r} is a committer: see what arrived there")
        return bolt

    # ------------------------------------------------------------------------------------------------------------------

    def _setting(self, name: str) -> Any:
        """A setting of this class; Storm writes None for "not set"."""
        value = self.settings[name]
        return DEFAULTS[name] if value is None else value

    def _task(self, node: Node, index: int) -> FedTask:
        component = next((bolt for bolt in self.topology.tuple_bolts if bolt.name == node.name), None)
        bolt = None if component is None else deepcopy(component.bolt)
        router = self._router(node, index, len(node.tasks))
        context = TopologyContext(
            topology=self.topology.name,
            component=node.name,
            task_id=router.task,
            task_index=index,
            attempt=TransactionAttempt(1, 0),
            tasks={one.name: one.tasks for one in self._graph.nodes.values() if one.tasks},
            config={**self.settings, **(bolt.config if bolt is not None else {})},
            **surroundings(self.topology, node.name),
        )
        return FedTask(router, bolt, FedCollector(router, self._emit, self._tracker), context)

    def _router(self, node: Node, index: int, tasks: int) -> FedRouter:
        return FedRouter(self._graph, node, index, tasks, _streams(self.topology, node.name))

    def _run(self) -> None:
        """Process the queue in order until it is empty, so that every run is the same. Then raises the first exception
        of a bolt.
        """
        first: Exception | None = None
        while self._queue or self._spout_emits():
            while self._queue:
                task, tup = self._queue.popleft()
                try:
                    self._tasks[task].execute(tup)
                except Exception as error:
                    first = first or error
        if first is not None:
            raise first

    def _spout_emits(self) -> bool:
        """Let one spout emit a waiting tuple, if one may; True if it did."""
        most = self._setting(SPOUT_PENDING)
        for spout in self._spouts.values():
            task = spout.router.task
            if not spout.waiting or (most is not None and self._tracker.waits_for(task) >= most):
                continue
            row, message = spout.waiting.popleft()
            root = self._tracker.root(task, message)
            ways = [(way, self._tracker.edge(root)) for way in spout.router.choose(DEFAULT_STREAM, row, None)]
            self._send(spout.router, DEFAULT_STREAM, row, ways, () if root is None else (root,))
            if root is not None:
                self._tracker.init(task, root, [ids[root] for _, ids in ways])
            return True
        return False

    def _emit(
        self, router: FedRouter, stream: str, values: Sequence[Any], anchors: Sequence[Tuple], task: int | None
    ) -> None:
        row = router.row(stream, values)
        ways = [(way, self._tracker.anchored(anchors)) for way in router.choose(stream, row, task)]
        roots = dict.fromkeys(root for anchor in anchors if isinstance(anchor, FedTuple) for root in anchor.ids)
        self._send(router, stream, row, ways, tuple(roots))

    def _send(
        self,
        router: FedRouter,
        stream: str,
        row: pa.RecordBatch,
        ways: Sequence[tuple[Way, dict[int, int]]],
        roots: Sequence[int],
    ) -> None:
        values = values_of(row)
        for way, ids in ways:
            self._queue.append((way.task, FedTuple(values, way.origin, ids)))
        self.emissions.append(
            FedEmission(
                component=router.component,
                task=router.task,
                stream=stream,
                values=values,
                to=tuple(way.task for way, _ in ways),
                messages=self._tracker.messages(roots),
            )
        )

    def _told(self, task: int, message: Hashable, acked: bool) -> None:
        spout = next(spout.router for spout in self._spouts.values() if spout.router.task == task)
        (self.acked if acked else self.failed).append(message)
        self._of.setdefault((spout.component, acked), []).append(message)

    def _spout(self, name: str, index: int = 0) -> _FedSpout:
        found = self._spouts.get((name, index))
        if found is None:
            known = ", ".join(dict.fromkeys(spout for spout, _ in self._spouts))
            raise ValueError(f"{self.topology.name} has no spout {name!r} with a task {index}; its spouts: {known}")
        return found

    def _tasks_of(self, component: str) -> Sequence[FedTask]:
        node = self._graph.nodes.get(component)
        if node is None or not node.tasks:
            known = ", ".join(node.name for node in self._graph.nodes.values() if node.tasks)
            raise ValueError(f"{self.topology.name} has no bolt {component!r}; its bolts and committers: {known}")
        return [self._tasks[task] for task in node.tasks]


def _streams(topology: Topology, component: str) -> Mapping[str, Stream]:
    """The streams that tuples of a component are emitted on, with parsed fields."""
    for bolt in topology.tuple_bolts:
        if bolt.name == component:
            return bolt.outputs
    for spout in topology.spouts:
        if spout.name == component:
            return {DEFAULT_STREAM: Stream(spout.spout.fields)}
    return {}


def _source(graph: TaskGraph, spout: str) -> Node:
    """The node of a spout; a new one if no component reads the spout."""
    return graph.nodes.get(spout) or Node(name=spout, kind="spout", ordinal=len(graph.nodes), level=0)
