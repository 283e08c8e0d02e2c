"""Send what one task emits: record batches of a stream become messages to the tasks that read it, counted by edge and task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from txtopo.tuples import acking
from txtopo.tuples.graph import Edge, Node, TaskGraph, root_id
from txtopo.tuples.groupings import Grouping, RowFailed, grouping_of
from txtopo.tuples.message import DRIVER, Kind, Message, RunSpec

REPORT_OK, REPORT_FAILED = 0, 1
"""`Message.seq` of a REPORT: the second says that its source task failed, so that tasks behind it do not finish the batch."""


class _Way:
    """One edge, seen from one source task."""

    __slots__ = ("bases", "edge", "grouping", "sent", "seqs", "targets", "width")

    def __init__(self, edge: Edge, targets: Sequence[int], source: int, grouping: Grouping | None) -> None:
        self.edge = edge
        self.targets = targets
        self.grouping = grouping
        """None: the emitter names the task."""
        self.width = len(edge.fields.items)
        self.sent = [0] * len(targets)
        self.seqs = [0] * len(targets)
        self.bases = [acking.way_base(source, edge.number, target) for target in targets]


class Router:
    """The outlet of sources and bolts: one for each attempt and task."""

    def __init__(
        self, graph: TaskGraph, node: Node, source: int, *, run_index: int, run: RunSpec, tracked: bool,
        fold: acking.Fold | None,
    ) -> None:  # fmt: skip
        """`source` is the task's id. `tracked`: tuples carry ids and roots. `fold` is where the ids of what is sent are kept; None: there are no ackers."""
        self._run = run_index
        self._tracked = tracked
        self._source = source
        self._fold = fold
        self._node = node
        self._index = index = graph.task_of(source)[1]
        tasks = len(node.tasks) or run.sources[node.name]
        self._ways: dict[str, list[_Way]] = {}
        for edge in node.outputs:
            targets = graph.nodes[edge.target].tasks
            grouping = (
                None
                if edge.grouping == "direct"
                else grouping_of(edge, source=source, index=index, tasks=tasks, targets=targets)
            )
            self._ways.setdefault(edge.stream, []).append(_Way(edge, targets, source, grouping))
        self._out: list[Message] = []

    def prepare(self) -> None:
        """Call once before anything is sent. Raises what groupings of the user's own raise."""
        for ways in self._ways.values():
            for way in ways:
                if way.grouping is not None:
                    way.grouping.prepare()

    def direct_tasks(self, stream: str) -> frozenset[int]:
        """Tasks that read a stream with a direct grouping."""
        return frozenset(target for way in self._ways.get(stream, ()) if way.grouping is None for target in way.targets)

    def send(self, stream: str, batch: pa.RecordBatch, named: Sequence[int] | None = None) -> None:
        """Route one batch: the stream's fields, and behind them what travels along (`$number` or `$roots`). `named`: the task of each row, on direct streams."""
        if not batch.num_rows:
            return
        for way in self._ways.get(stream, ()):
            if way.grouping is not None:
                try:
                    routed = way.grouping.route(batch)
                except RowFailed as failed:
                    failed.roots = self._roots_of(batch, failed.row)
                    raise
                for position, rows in routed:
                    self._put(way, position, rows)
            elif named is not None:
                chosen = np.asarray(named, dtype=np.int64)
                for position, target in enumerate(way.targets):
                    rows = batch.take(pa.array(np.flatnonzero(chosen == target)))
                    if rows.num_rows:
                        self._put(way, position, rows)

    def drain(self) -> list[Message]:
        """Messages made since the last call."""
        out, self._out = self._out, []
        return out

    def reports(self, *, failed: bool) -> list[Message]:
        """How many tuples went to every task of every edge, 0 included (CoordinatedBolt)."""
        seq = REPORT_FAILED if failed else REPORT_OK
        return [
            Message(self._run, target, self._source, Kind.REPORT, way.edge.number, seq, way.sent[position])
            for ways in self._ways.values()
            for way in ways
            for position, target in enumerate(way.targets)
        ]

    def sent(self) -> tuple[tuple[int, int], ...]:
        """(edge, tuples) to all its tasks."""
        return tuple(sorted((way.edge.number, sum(way.sent)) for ways in self._ways.values() for way in ways))

    def _roots_of(self, batch: pa.RecordBatch, row: int) -> tuple[int, ...]:
        if self._tracked:
            return tuple(batch.column(acking.ROOTS)[row].as_py())
        if acking.NUMBER not in batch.schema.names:
            return ()
        return (root_id(self._node, self._index, batch.column(acking.NUMBER)[row].as_py()),)

    def _put(self, way: _Way, position: int, rows: pa.RecordBatch) -> None:
        count = rows.num_rows
        if self._tracked:
            ids = acking.ids(way.bases[position], way.sent[position], count)
            roots = rows.column(way.width)
            if self._fold is not None:
                self._fold.add_tuples(ids, roots)
        self._out.append(
            Message(
                self._run, way.targets[position], self._source, Kind.DATA, way.edge.number, way.seqs[position], count, rows
            )
        )  # fmt: skip
        way.sent[position] += count
        way.seqs[position] += 1


class Results:
    """The outlet of a committer's or receiver's task: rows for the driver."""

    def __init__(self, source: int, *, run_index: int) -> None:
        self._run = run_index
        self._source = source
        self._count = 0
        self._out: list[Message] = []

    def put(self, batch: pa.RecordBatch, number: int) -> None:
        """Send rows; `number` is the committer's, or the edge's for tuples that are passed on as they are."""
        self._out.append(
            Message(self._run, DRIVER, self._source, Kind.RESULT, number, self._count, batch.num_rows, batch)
        )
        self._count += 1

    def drain(self) -> list[Message]:
        """Messages made since the last call."""
        out, self._out = self._out, []
        return out

    def end(self, number: int, arrived: int) -> Message:
        """The last word: how many tuples arrived, and, as `seq`, how many messages went before it."""
        return Message(self._run, DRIVER, self._source, Kind.END, number, self._count, arrived)
