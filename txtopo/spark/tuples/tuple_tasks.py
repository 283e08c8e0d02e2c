"""The functions that Spark's tasks run for the tuple runtime: sources, levels, whole graphs, and the edges to
DataFrames.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from txtopo.core.fields import Fields
from txtopo.spark.reports import TupleReport
from txtopo.spark.session.ship_modules import package_version
from txtopo.spark.session.used_workers import end_if_used
from txtopo.spark.signatures import Signer
from txtopo.spark.tuples.tuple_order import Ordered, SourceTask, TupleOrder, parse_order
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import Spout, Tally
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.tuples.columns import Columns
from txtopo.tuples.cuts import cut
from txtopo.tuples.engine import Engine
from txtopo.tuples.message import Kind, TaskReport, TupleFailure
from txtopo.tuples.task_context import CAUGHT
from txtopo.tuples.user_errors import spout_failure_of
from txtopo.tuples.wire import decode, encode

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, kw_only=True)
class TaskWiring:
    """What all tasks of one graph's plan share."""

    engine: Engine
    graph: str
    """Name of the graph in its topology; part of the key of every report."""
    code_hash: bytes
    reports: Accumulator[Any]
    signer: Signer
    """Signs for the copy of the plan that contains the tasks."""
    order: str | None = None
    """The order itself; None: it is sent as a local property of the job, so that one plan serves all waves."""

    def ordered(self, leaves: Sequence[str] = ("",)) -> tuple[int, TupleOrder | None]:
        """Sign for these leaves; returns the number of the order, and the order. The order is None in runs over no
        rows, which only start workers.
        """
        number, text = self.signer.order(self.order, leaves)
        return number, parse_order(text) if text else None

    def report(self, report: TaskReport) -> None:
        """Send a task's report to the driver, once the Spark task has succeeded; there a key identifies it, so that
        retries do not count twice (K4).
        """
        end_if_used(noted.failure for noted in report.failures)
        named = replace(report, rejects=tuple(replace(row, spout=report.component) for row in report.rejects))
        self.reports.add(
            [
                TupleReport(
                    task=named,
                    graph=self.graph,
                    code_hash=self.code_hash,
                    version=package_version(),
                    host=socket.gethostname(),
                )
            ]
        )


@dataclass(frozen=True, kw_only=True)
class PartsTask:
    """Source tasks: input rows are numbers of `TupleOrder.source_tasks`, output rows are messages."""

    wiring: TaskWiring
    names: Sequence[str]
    """The sources whose tasks are numbered: spouts, and DataFrames without any partition."""
    spouts: Mapping[str, Spout]

    def __call__(self, batches: Batches) -> Batches:
        """Emit the parts named in `batches`."""
        wiring = self.wiring
        signed, order = wiring.ordered(self.names)
        tasks = order.source_tasks(self.names) if order is not None else []
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if order is None or number >= len(tasks):
                    continue
                task = tasks[number]
                run = order.runs[task.run]
                tally = Tally(attempt=run.spec.attempt)
                emitted = emit(self.spouts.get(task.name), run, task, tally)
                sent = wiring.engine.source(task.run, run.spec, task.name, task.index, emitted, tally, wiring.report)
                yield from encode(sent, signed)


@dataclass(frozen=True, kw_only=True)
class FrameTask:
    """Source tasks of a DataFrame, one per partition: input rows are its rows, output rows are messages. An empty
    partition reports as well.
    """

    wiring: TaskWiring
    name: str
    first: int
    """Spark's number of its first partition in the stage that reads it."""
    fields: Fields

    def __call__(self, batches: Batches) -> Batches:
        """Pass on the rows in `batches`."""
        wiring, context = self.wiring, TaskContext.get()
        signed, order = wiring.ordered([self.name])
        if order is None or context is None:
            return
        tally = Tally()
        emitted = counted(cut(typed(batch, self.fields) for batch in batches), tally)
        index = context.partitionId() - self.first
        sent = wiring.engine.source(0, order.runs[0].spec, self.name, index, emitted, tally, wiring.report)
        yield from encode(sent, signed)


@dataclass(frozen=True, kw_only=True)
class LevelTask:
    """The tasks of one level: sorted messages in, messages out."""

    wiring: TaskWiring
    level: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the level's tasks that `batches` are addressed to."""
        signed, order = self.wiring.ordered()
        if order is not None:
            wiring = self.wiring
            sent = wiring.engine.level(order.specs, decode(batches, packed=True), self.level, wiring.report)
            yield from encode(sent, signed)


@dataclass(frozen=True, kw_only=True)
class GraphTask:
    """The whole graph in one task, for small batches: the input is only the row that starts it, the output is the
    messages to the driver.
    """

    wiring: TaskWiring
    spouts: Mapping[str, Spout]

    def __call__(self, batches: Batches) -> Batches:
        """Run every task of every run."""
        wiring = self.wiring
        signed, order = wiring.ordered(list(self.spouts))
        for batch in batches:
            if order is None:
                for spout in self.spouts.values():
                    spout.warm_up()
            elif batch.num_rows:
                yield from encode(wiring.engine.run_local(order.specs, self._sources(order), wiring.report), signed)

    def _sources(self, order: TupleOrder) -> Callable[[int, str, int, Tally], Batches]:
        def emitted(run: int, name: str, index: int, tally: Tally) -> Batches:
            return emit(self.spouts.get(name), order.runs[run], SourceTask(run=run, name=name, index=index), tally)

        return emitted


@dataclass(frozen=True, kw_only=True)
class ReceivingTask:
    """The edge to a DataFrame bolt: what its receivers got over one edge, as rows of that stream."""

    edge: int
    fields: Fields

    def __call__(self, batches: Batches) -> Batches:
        """Unpack the messages to the driver: the receivers have checked the counts."""
        for message in decode(batches):
            if message.kind == Kind.RESULT and message.edge == self.edge and message.body is not None:
                yield typed(message.body, self.fields)


@dataclass(frozen=True, kw_only=True)
class LeafTask:
    """A spout that only DataFrame bolts read: input rows are numbers of `TupleOrder.source_tasks`, output rows are its
    tuples.
    """

    wiring: TaskWiring
    name: str
    spout: Spout

    def __call__(self, batches: Batches) -> Batches:
        """Emit the parts named in `batches`, and report as source tasks do."""
        _, order = self.wiring.ordered([self.name])
        tasks = order.source_tasks([self.name]) if order is not None else []
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if order is not None:
                    yield from self._emit(order, tasks[number])

    def _emit(self, order: TupleOrder, task: SourceTask) -> Batches:
        run = order.runs[task.run]
        tally = Tally(attempt=run.spec.attempt)
        failures: tuple[TupleFailure, ...] = ()
        excluded = run.spec.excluded.get(task.name, {}).get(task.index, frozenset())
        emitted = 0
        try:
            declared = Columns(task.name, DEFAULT_STREAM, self.spout.fields)
            for batch in without(map(declared.fitted, emit(self.spout, run, task, tally)), excluded):
                emitted += batch.num_rows
                yield batch
        except CAUGHT as error:  # A failure is reported. A failed task would be tried four times by Spark.
            failures = (TupleFailure(failure=spout_failure_of(error, task.name)),)
        self.wiring.report(
            TaskReport(
                run=run.spec.run,
                component=task.name,
                index=task.index,
                read=tally.read,
                emitted=emitted,
                rejects=tuple(tally.rejects),
                failures=failures,
            )
        )


def emit(spout: Spout | None, run: Ordered, task: SourceTask, tally: Tally) -> Batches:
    """Yield what a source task emits; nothing for a spout that is idle in this batch, and for a DataFrame without any
    partition.
    """
    metadata, parts = run.metadata.get(task.name), run.parts.get(task.name, ())
    # A generator: if a spout raises before its first tuple, the error is raised where failures are noted, and fails no
    # Spark task.
    if spout is not None and metadata is not None and task.index < len(parts):
        yield from spout.emit_part(metadata, parts[task.index], tally)


def without(batches: Batches, numbers: Collection[int]) -> Batches:
    """Yield the tuples except those with these numbers, counted from 0."""
    first = 0
    for batch in batches:
        gone = [number - first for number in numbers if first <= number < first + batch.num_rows]
        first += batch.num_rows
        yield batch.take(pa.array(sorted(set(range(batch.num_rows)) - set(gone)), pa.int64())) if gone else batch


def typed(batch: pa.RecordBatch, fields: Fields) -> pa.RecordBatch:
    """Return the batch with exactly the declared columns and types, as Spark or a receiver gave them."""
    schema = arrow_schema(fields)
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for field, column in zip(schema, (batch.column(field.name) for field in schema), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def counted(batches: Batches, tally: Tally) -> Batches:
    """Yield the same batches; each record counts as read."""
    for batch in batches:
        tally.read += batch.num_rows
        yield batch
