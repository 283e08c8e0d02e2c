"""The context of a task of one attempt: its place in the graph, whether its tuples are tracked, and the failures it
noted.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from txtopo.core.values import Failure
from txtopo.topology.streams import Origin, Tuple
from txtopo.topology.tuple_bolts import TopologyContext
from txtopo.tuples import acking
from txtopo.tuples.columns import Refused
from txtopo.tuples.graph import Edge, Node, TaskGraph, is_hidden, surroundings, task_ids
from txtopo.tuples.groupings import RowFailed
from txtopo.tuples.message import Message, RunSpec, TupleFailure
from txtopo.tuples.roots import COLUMN, Ints, Roots
from txtopo.tuples.user_errors import failure_of, one_line, shown

CAUGHT = (Exception, SystemExit, Refused)
"""Errors that user code may raise without ending the process: `sys.exit()` in a bolt is a failure of the bolt, not of
the worker.
"""


class Prepared(Protocol):
    """Something that user code must prepare."""

    def prepare(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """One task of one attempt."""

    graph: TaskGraph
    node: Node
    task: int
    """Its id; below 0 for sources."""
    run_index: int
    run: RunSpec
    failures_max: int = 1
    failures: list[TupleFailure] = field(default_factory=list)
    fold: acking.Fold | None = None
    """Collects acks; None if there are no ackers."""

    @property
    def index(self) -> int:
        """Number of the task in its component, from 0."""
        return self.graph.task_of(self.task)[1]

    @property
    def tracked(self) -> bool:
        """True if tuples carry their roots through every bolt."""
        return self.run.traced or self.graph.ackers is not None

    @property
    def counting(self) -> bool:
        """True if counts are compared and acks have an effect."""
        return self.graph.topology.acking != "off"

    @property
    def wants_acks(self) -> bool:
        """True if every tuple that a RichBolt receives must be acked or failed; False if acking is off, as with
        `topology.acker.executors` 0.
        """
        return self.counting and self.graph.wants_acks

    def context(self, config: Mapping[str, Any]) -> TopologyContext:
        """Return what `prepare` gets."""
        topology = self.graph.topology
        return TopologyContext(
            topology=topology.name,
            component=self.node.name,
            task_id=self.task,
            task_index=self.index,
            tasks={name: ids for name, ids in task_ids(topology).items() if not is_hidden(name)},
            attempt=self.run.attempt,
            config={**copy.deepcopy(dict(topology.config)), **copy.deepcopy(dict(config))},
            **surroundings(topology, self.node.name),
        )

    def fail(self, error: BaseException, *, on: str | None = None, roots: Sequence[int] = ()) -> None:
        """Note that user code raised."""
        if isinstance(error, RowFailed):
            on, roots, error = error.shown, error.roots, error.error
        elif isinstance(error, Refused):
            error = error.error.with_traceback(error.__traceback__)
        self.note(failure_of(error, self.node.name, on=on), roots)

    def prepared(self, router: Prepared) -> bool:
        """Prepare the router. Returns False if a custom grouping raised, which is noted; then nothing may be sent."""
        try:
            router.prepare()
        except CAUGHT as error:
            self.fail(error)
            return False
        return True

    @property
    def has_room(self) -> bool:
        """True if another failure may be recorded."""
        return len(self.failures) < self.failures_max

    def note(self, failure: Failure, roots: Sequence[int] = ()) -> None:
        """Note a failure, unless the limit is reached."""
        if self.has_room:
            self.failures.append(TupleFailure(failure=failure, roots=tuple(roots)))

    def problem(self, message: str) -> None:
        """Note that tuples were lost or are too many."""
        self.note(Failure(kind="data", message=one_line(message), component=self.node.name))


class Arrived:
    """A DATA message, taken apart."""

    def __init__(
        self, task_context: TaskContext, edge: Edge, message: Message, body: pa.RecordBatch, first: int
    ) -> None:
        """`first` is the number of its first tuple among those on the way from one task to the other."""
        width = len(edge.fields.items)
        names = body.schema.names
        self.edge = edge
        self.batch: pa.RecordBatch = (
            body if len(names) == width else pa.RecordBatch.from_arrays(body.columns[:width], names=names[:width])
        )
        """The fields without the roots."""
        self._column: pa.Array | None = body.column(width) if names[width:] == [COLUMN] else None
        # The ids depend only on the way and the place on it, which sender and receiver know: so they need not be sent.
        self._base = (
            acking.way_base(message.source, edge.number, message.target) if task_context.fold is not None else 0
        )
        self._first = first
        self.origin = Origin(edge.source, edge.stream, message.source, edge.fields)

    @cached_property
    def roots(self) -> Roots | None:
        """Roots of each tuple; None if they are not tracked and do not come directly from a source. Without tracking
        only a failure reads them.
        """
        return Roots.of_column(self._column) if self._column is not None else None

    def ack(self, task_context: TaskContext) -> None:
        """Ack all these tuples."""
        if task_context.fold is not None and self.roots is not None:
            task_context.fold.add_tuples(self._base, self._first, self.roots)

    @property
    def ids(self) -> Ints:
        """The id of each tuple, if there are ackers."""
        return acking.ids(self._base, self._first, self.batch.num_rows)

    def rows(self) -> Any:
        """Return an iterator over the values of each tuple."""
        return zip(*[column.to_pylist() for column in self.batch.columns], strict=True)

    def first_unreadable(self) -> int:
        """Return the number of the first tuple with a value that Python cannot hold; 0 if there is none."""
        for row in range(self.batch.num_rows):
            try:
                self.batch.slice(row, 1).to_pylist()
            except CAUGHT:
                return row
        return 0

    def roots_of(self, row: int) -> tuple[int, ...]:
        """Return the ids of the spout tuples that a row came from, as far as they are known."""
        return self.roots.of_row(row) if self.roots is not None else ()

    def shown(self, row: int) -> str:
        """Return a row as text for people."""
        try:
            values = self.batch.slice(row, 1).to_pylist()[0].values()
        except CAUGHT as error:
            # The bolt may have failed because of this.
            return f"a tuple with a value that Python cannot hold ({error})"
        return shown(dict(zip(self.edge.fields.names, values, strict=True)))


def shown_tuple(tup: Tuple) -> str:
    """Return a tuple as text for people."""
    return shown(tup.as_dict())
