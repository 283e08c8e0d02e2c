"""Passes one tuple at a time through a graph of tasks: checked and routed as in a batch, and given to any kind of
bolt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.storm_settings import TICK_SECONDS
from txtopo.testing.feeding_tracking import FedTuple, Tracker
from txtopo.topology.batching_bolt import SYSTEM, TICK, is_tick
from txtopo.topology.streams import DEFAULT_STREAM, Origin, Stream, Tuple
from txtopo.topology.tuple_bolts import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    FailedException,
    RichBolt,
    TopologyContext,
    TupleBolt,
)
from txtopo.tuples.acker import Metronome
from txtopo.tuples.columns import Columns
from txtopo.tuples.graph import Node, TaskGraph, source_id
from txtopo.tuples.groupings import TaskChooser, grouping_of

_TICK_FIELDS = parse_fields("seconds double")


class Way(NamedTuple):
    """One task that receives a tuple."""

    task: int
    origin: Origin
    """Fields of the tuples on this edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FedEmission:
    """One tuple that a component emitted."""

    component: str
    task: int
    """Id of the emitting task; below 0 for spouts."""
    stream: str
    values: tuple[Any, ...]
    to: tuple[int, ...]
    """Ids of the tasks that received it; empty if none did."""
    messages: tuple[Hashable, ...]
    """Message ids of the spout tuples whose trees contain it."""


class FedRouter:
    """The outputs of one task and their receivers, with the state of its groupings."""

    def __init__(self, graph: TaskGraph, node: Node, index: int, tasks: int, streams: Mapping[str, Stream]) -> None:
        self.component = node.name
        self.task = node.tasks[index] if node.tasks else source_id(node, index)
        self._streams = streams
        self._columns = {
            name: Columns(node.name, name, stream.fields)
            for name, stream in streams.items()
            if isinstance(stream.fields, Fields)
        }
        self._direct: list[tuple[str, Sequence[Way]]] = []
        self._grouped: list[tuple[str, Sequence[Way], TaskChooser]] = []
        for edge in node.outputs:
            targets = graph.nodes[edge.target].tasks
            origin = Origin(node.name, edge.stream, self.task, edge.fields)
            ways = [Way(task, origin) for task in targets]
            if streams[edge.stream].direct:
                self._direct.append((edge.stream, ways))
            else:
                grouping = grouping_of(edge, source=self.task, index=index, tasks=tasks, targets=targets)
                grouping.prepare()
                self._grouped.append((edge.stream, ways, grouping))

    def row(self, stream: str, values: Sequence[Any]) -> pa.RecordBatch:
        """Return the values as a batch holds them. Raises ValueError for a stream that is not declared, BatchDataError
        for values that do not fit its fields.
        """
        if stream not in self._columns:
            declared = ", ".join(self._columns) or "none"
            raise ValueError(f"{self.component} declares no stream {stream!r}; its streams: {declared}")
        return self._columns[stream].row(values)

    def choose(self, stream: str, row: pa.RecordBatch, task: int | None) -> list[Way]:
        """Return every task that receives a row, once for each delivery; `task` is the one that the emitter names.
        Raises ValueError if it must not name one, or must.
        """
        if task is None:
            if self._streams[stream].direct:
                raise ValueError(f"stream {stream!r} of {self.component} is direct: name the task with emit_direct")
            read = [(ways, grouping) for name, ways, grouping in self._grouped if name == stream]
            routed = [(ways[at], part) for ways, grouping in read for at, part in grouping.route(row)]
            return [way for way, part in routed for _ in range(part.num_rows)]
        if not self._streams[stream].direct:
            raise ValueError(f"stream {stream!r} of {self.component} is not declared direct: use emit")
        chosen = [way for name, ways in self._direct if name == stream for way in ways if way.task == task]
        if not chosen:
            raise ValueError(f"task {task!r} does not read stream {stream!r} of {self.component} directly")
        return chosen


def values_of(row: pa.RecordBatch) -> tuple[Any, ...]:
    """Return the values of a row as a bolt receives them."""
    return tuple(column[0].as_py() for column in row.columns)


Emit = Callable[[FedRouter, str, Sequence[Any], Sequence[Tuple], int | None], None]
"""The emitting task, stream, values, anchors, and the task that is named."""


class FedCollector:
    """The collector of every kind of bolt: emits, acks and fails."""

    def __init__(self, router: FedRouter, emit: Emit, tracker: Tracker) -> None:
        self._router = router
        self._emit = emit
        self.ack = tracker.ack
        self.fail = tracker.fail
        self.reset_timeout = tracker.reset
        self.anchor: tuple[Tuple, ...] = ()
        """The tuple being executed by a bolt with automatic anchoring."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | Tuple = ()) -> None:
        """Emit one tuple."""
        self._emit(self._router, stream, values, (*self.anchor, *_several(anchors)), None)

    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | Tuple = ()
    ) -> None:
        """Emit one tuple to one task."""
        self._emit(self._router, stream, values, (*self.anchor, *_several(anchors)), task)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM, anchors: pa.Array | None = None) -> None:
        """Emit the rows of a batch; the only possible anchor is the single input row."""
        on = () if anchors is None else self.anchor
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            self._emit(self._router, stream, values, on, None)


def _row_of(tup: Tuple) -> pa.RecordBatch:
    columns = Columns(tup.component, tup.stream, tup.fields)
    return columns.row(tuple(tup.values))


def _several(anchors: Sequence[Tuple] | Tuple) -> Sequence[Tuple]:
    return (anchors,) if isinstance(anchors, Tuple) else anchors


class FedTask:
    """One task of a bolt or committer."""

    def __init__(
        self, router: FedRouter, bolt: TupleBolt | None, collector: FedCollector, context: TopologyContext
    ) -> None:
        """Create a task. Without a `bolt`, its tuples are only recorded, and acked."""
        self.router = router
        self.bolt = bolt
        self.arrived: list[tuple[Any, ...]] = []
        """Values of its tuples, without ticks."""
        self._collector = collector
        self._context = context
        self._every_s = float(context.config.get(TICK_SECONDS) or 0)
        self.ticks = Metronome(self._every_s) if self._every_s and bolt is not None else None
        """Time of its next tick tuple; None: never."""

    def prepare(self) -> None:
        """Called once, before the first tuple of the topology."""
        config = self._context.config
        match self.bolt:
            case RichBolt():
                self.bolt.prepare(config, self._context, self._collector)
            case BatchBolt():
                self.bolt.prepare(config, self._context, self._collector, self._context.attempt)
            case BasicBolt() | ArrowBolt():
                self.bolt.prepare(config, self._context)

    def execute(self, tup: FedTuple) -> None:
        """Process one tuple. For bolts with automatic acking it is acked, or failed by a FailedException. Any other
        exception is raised.
        """
        if not is_tick(tup):
            self.arrived.append(tuple(tup.values))
        elif self.bolt is None or isinstance(self.bolt, ArrowBolt):
            return
        if isinstance(self.bolt, RichBolt):
            self.bolt.execute(tup)
            return
        self._collector.anchor = (tup,)
        try:
            match self.bolt:
                case BasicBolt():
                    self.bolt.execute(tup, self._collector)
                case BatchBolt():
                    self.bolt.execute(tup)
                case ArrowBolt():
                    self.bolt.execute(_row_of(tup), self._collector)
        except FailedException:
            self._collector.fail(tup)
        else:
            self._collector.ack(tup)
        finally:
            self._collector.anchor = ()

    def tick(self) -> FedTuple:
        """Execute a tick tuple of the system, which belongs to no tree."""
        return FedTuple((self._every_s,), Origin(SYSTEM, TICK, -1, _TICK_FIELDS), {})

    def finish_batch(self) -> None:
        """Call the bolt's `finish_batch`: all tuples have arrived."""
        match self.bolt:
            case ArrowBolt():
                self.bolt.finish_batch(self._collector)
            case BatchBolt() | RichBolt():
                self.bolt.finish_batch()
