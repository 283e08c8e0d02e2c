"""Sends what one task emits: record batches of a stream become messages to the tasks that read it, counted by edge and
task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from txtopo.tuples import acking
from txtopo.tuples.graph import Edge, Node, TaskGraph
from txtopo.tuples.groupings import RowFailed, TaskChooser, grouping_of, named_tasks
from txtopo.tuples.message import DRIVER, Kind, Message, RunSpec
from txtopo.tuples.partial_groups import PartialGroups, tuples_in
from txtopo.tuples.roots import COLUMN, Roots

REPORT_OK, REPORT_FAILED = 0, 1
"""`Message.seq` of a REPORT: the second says that its source task failed, so that downstream tasks do not finish the
batch.
"""


class _Way:
    """One edge, seen from one source task."""

    __slots__ = ("bases", "edge", "grouping", "groups", "sent", "seqs", "targets")

    def __init__(
        self, edge: Edge, targets: Sequence[int], source: int, grouping: TaskChooser | None, *, tracked: bool
    ) -> None:
        self.edge = edge
        self.targets = targets
        self.grouping = grouping
        """None: the emitter names the task."""
        self.sent = [0] * len(targets)
        self.seqs = [0] * len(targets)
        self.bases = [acking.way_base(source, edge.number, target) for target in targets]
        self.groups: list[PartialGroups] | None = None
        """The tuples on their way to each target, if they are sent in groups."""
        if edge.partial is not None and not tracked:
            share = len(targets) if grouping is None else grouping.reach(len(targets))
            self.groups = [PartialGroups(edge.partial, edge.fields, share=share) for _ in targets]


class Router:
    """The output of sources and bolts: one for each attempt and task."""

    def __init__(
        self, graph: TaskGraph, node: Node, source: int, *, run_index: int, run: RunSpec, fold: acking.Fold | None
    ) -> None:
        """`source` is the task's id. `fold` stores the ids of sent tuples; None: there are no ackers."""
        self._run = run_index
        self._source = source
        self._fold = fold
        index = graph.task_of(source)[1]
        tasks = len(node.tasks) or run.sources[node.name]
        self._ways: dict[str, list[_Way]] = {}
        for edge in node.outputs:
            targets = graph.nodes[edge.target].tasks
            grouping = (
                None
                if edge.grouping == "direct"
                else grouping_of(edge, source=source, index=index, tasks=tasks, targets=targets)
            )
            way = _Way(edge, targets, source, grouping, tracked=run.traced or fold is not None)
            self._ways.setdefault(edge.stream, []).append(way)
        self._out: list[Message] = []

    def prepare(self) -> None:
        """Call once before anything is sent. Raises what custom groupings raise."""
        for ways in self._ways.values():
            for way in ways:
                if way.grouping is not None:
                    way.grouping.prepare()

    def direct_tasks(self, stream: str) -> frozenset[int]:
        """Return the tasks that read a stream with a direct grouping."""
        return frozenset(target for way in self._ways.get(stream, ()) if way.grouping is None for target in way.targets)

    def is_grouped(self, stream: str) -> bool:
        """True if all tuples of a stream are grouped before they leave."""
        ways = self._ways.get(stream, ())
        return bool(ways) and all(way.groups is not None for way in ways)

    def send(
        self, stream: str, batch: pa.RecordBatch, roots: Roots | None = None, named: Sequence[int] | None = None
    ) -> None:
        """Route one batch. `roots` are the roots of its rows if they are known: for tracked tuples, and at the source.
        `named`: the task of each row, on direct streams.
        """
        if not batch.num_rows:
            return
        for way in self._ways.get(stream, ()):
            if way.grouping is not None:
                try:
                    choice = way.grouping.choose(batch)
                except RowFailed as failed:
                    failed.roots = roots.of_row(failed.row) if roots is not None else ()
                    raise
            elif named is not None:
                choice = named_tasks(named, way.targets)
            else:
                continue
            if way.groups is not None:
                for share in choice.shares:
                    self._group(way, way.groups[share[0]], share[0], choice.rows_of(batch, share))
                continue
            moved = roots.take(choice.order) if roots is not None and choice.order is not None else roots
            for share in choice.shares:
                position, first, rows = share
                mine = moved.slice(first, rows) if moved is not None else None
                self._put(way, position, choice.rows_of(batch, share), mine)

    def drain(self) -> list[Message]:
        """Return the messages made since the last call."""
        out, self._out = self._out, []
        return out

    def reports(self, *, failed: bool) -> list[Message]:
        """Return the groups that are not sent yet, then the number of tuples sent to every task of every edge, 0
        included (CoordinatedBolt). Called once, at the end.
        """
        for way in (way for ways in self._ways.values() for way in ways):
            for position, groups in enumerate(way.groups or ()):
                self._send_groups(way, position, groups.end())
        seq = REPORT_FAILED if failed else REPORT_OK
        return self.drain() + [
            Message(self._run, target, self._source, Kind.REPORT, way.edge.number, seq, way.sent[position])
            for ways in self._ways.values()
            for way in ways
            for position, target in enumerate(way.targets)
        ]

    def sent(self) -> tuple[tuple[int, int], ...]:
        """Return (edge, number of tuples) sent to all tasks of each edge."""
        return tuple(sorted((way.edge.number, sum(way.sent)) for ways in self._ways.values() for way in ways))

    def _group(self, way: _Way, groups: PartialGroups, position: int, tuples: pa.RecordBatch) -> None:
        """Count tuples as sent. They leave in groups, and are counted again where these arrive."""
        way.sent[position] += tuples.num_rows
        self._send_groups(way, position, groups.take(tuples))

    def _send_groups(self, way: _Way, position: int, groups: Iterable[pa.RecordBatch]) -> None:
        for batch in groups:
            rows = tuples_in(batch)
            target, seq = way.targets[position], way.seqs[position]
            self._out.append(Message(self._run, target, self._source, Kind.DATA, way.edge.number, seq, rows, batch))
            way.seqs[position] += 1

    def _put(self, way: _Way, position: int, rows: pa.RecordBatch, roots: Roots | None) -> None:
        if roots is not None:
            if self._fold is not None:
                self._fold.add_tuples(way.bases[position], way.sent[position], roots)
            rows = rows.append_column(COLUMN, roots.column)
        self._out.append(
            Message(
                self._run,
                way.targets[position],
                self._source,
                Kind.DATA,
                way.edge.number,
                way.seqs[position],
                rows.num_rows,
                rows,
            )
        )
        way.sent[position] += rows.num_rows
        way.seqs[position] += 1


class Results:
    """The output of a committer's or receiver's task: rows for the driver."""

    def __init__(self, source: int, *, run_index: int) -> None:
        self._run = run_index
        self._source = source
        self._count = 0
        self._out: list[Message] = []

    def put(self, batch: pa.RecordBatch, number: int) -> None:
        """Send rows; `number` is the committer's number, or the edge's for tuples that are passed on unchanged."""
        self._out.append(
            Message(self._run, DRIVER, self._source, Kind.RESULT, number, self._count, batch.num_rows, batch)
        )
        self._count += 1

    def drain(self) -> list[Message]:
        """Return the messages made since the last call."""
        out, self._out = self._out, []
        return out

    def end(self, number: int, arrived: int) -> Message:
        """Return the last message: how many tuples arrived, and, as `seq`, how many messages were sent before it."""
        return Message(self._run, DRIVER, self._source, Kind.END, number, self._count, arrived)
