"""Carries what committers emit in their turn to the committers that read them, whose both halves run here, in the driver."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from txtopo.committers.canonical import DRIVER_TASK, Gathered, declared_fields, tuples_of
from txtopo.committers.own_code import bolt_of, own_failure
from txtopo.core.fields import Fields
from txtopo.core.values import CommitterResult, EdgeCount, TransactionAttempt
from txtopo.errors import BatchDataError, broken
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.components import CommitterComponent, Subscription, Topology
from txtopo.topology.outputs import fields_of, parse_outputs
from txtopo.topology.streams import DEFAULT_STREAM, Tuple
from txtopo.topology.tuple_bolts import TopologyContext
from txtopo.tuples.aggregating import Aggregator, Overflow
from txtopo.tuples.graph import edge_name, task_ids


def in_turn(committers: Sequence[CommitterComponent]) -> tuple[CommitterComponent, ...]:
    """The order of application: each committer behind those that it reads, otherwise as they were set."""
    ordered: list[CommitterComponent] = []
    left = list(committers)
    while left:
        waiting = {one.name for one in left}
        ready = next((one for one in left if not any(item.source in waiting for item in one.inputs)), None)
        if ready is None:
            broken(f"committers {', '.join(sorted(waiting))} read each other")
        left.remove(ready)
        ordered.append(ready)
    return tuple(ordered)


class Emitted:
    """CommitCollector of one committer in one turn: checks what it emits and keeps it."""

    def __init__(self, component: CommitterComponent) -> None:
        self._name = component.name
        declared = component.outputs or parse_outputs(f"committer {component.name!r}", bolt_of(component).outputs)
        self._streams = {name: Gathered(self._name, name, fields_of(stream)) for name, stream in declared.items()}

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Keep one tuple. Raises BatchDataError for a stream that is not declared and a wrong number of values; their types are checked behind `commit`."""
        if stream not in self._streams:
            raise BatchDataError(
                f"committer {self._name} emits on stream {stream!r}; it declares {', '.join(self._streams) or 'none'}",
                component=self._name,
            )
        self._streams[stream].add(values)

    def tables(self) -> Iterator[tuple[str, Fields, pa.Table]]:
        """Stream, fields and tuples, of the declared types. Raises BatchDataError naming field and value."""
        for stream, gathered in self._streams.items():
            yield stream, gathered.fields, gathered.table()


class Feeding:
    """The committers of one batch, in their turn."""

    def __init__(self, attempt: TransactionAttempt, name: str, topology: Topology | None = None) -> None:
        """`name` is that of the topology, whose tasks and settings are told where it is given."""
        self._attempt = attempt
        self._name = name
        self._topology = topology
        self._streams: dict[tuple[str, str], tuple[Fields, pa.Table]] = {}
        self._applied: set[str] = set()
        self.edges: list[EdgeCount] = []
        """What committers sent each other and got, counted on either side."""

    def fresh(self, component: CommitterComponent) -> CommitterComponent:
        """The component with a copy of its bolt, where that is code of one's own: no attempt sees what another one has left in it."""
        if not isinstance(component.bolt, BatchCommitter):
            return component
        return replace(component, bolt=copy.deepcopy(component.bolt))

    def collector(self, component: CommitterComponent) -> Emitted | None:
        """For its `commit`; counting committers have none."""
        return Emitted(component) if isinstance(component.bolt, BatchCommitter) else None

    def applied(self, component: CommitterComponent, emitted: Emitted | None) -> None:
        """Its turn is over: what it emitted is there for the committers behind it."""
        self._applied.add(component.name)
        for stream, fields, table in emitted.tables() if emitted is not None else ():
            self._streams[component.name, stream] = fields, table

    def result(self, component: CommitterComponent, handed: CommitterResult) -> CommitterResult:
        """What its driver half gets: as handed over, or, where it reads a committer, what its executor half makes of all its tuples, here and now."""
        read = [item for item in component.inputs if item.source in self._applied]
        if not read:
            return handed
        deferred = sum(table.num_rows for _, _, table in handed.deferred)
        if deferred != handed.arrived:
            raise BatchDataError(
                f"committer {component.name}: {handed.arrived} tuples arrived at its tasks, {deferred} were handed over to its turn",
                component=component.name,
            )
        fed = [(item, *self._stream(item)) for item in read]
        if isinstance(component.bolt, BatchCommitter):
            rows, received = self._execute(component, handed, fed)
        else:
            rows = _counted([table for _, _, table in fed], component)
            received = [table.num_rows for _, _, table in fed]
        for (item, _, table), number in zip(fed, received, strict=True):
            self.edges.append(EdgeCount(edge=edge_name(item, component.name), sent=table.num_rows, received=number))
        arrived = handed.arrived + sum(table.num_rows for _, _, table in fed)
        return CommitterResult(
            committer=component.name, arrived=arrived, rows=rows, row_count=rows.num_rows, bytes=rows.nbytes
        )

    def _stream(self, item: Subscription) -> tuple[Fields, pa.Table]:
        return self._streams.get((item.source, item.stream)) or broken(
            f"committer {item.source} declares no stream {item.stream}"
        )

    def _execute(
        self,
        component: CommitterComponent,
        handed: CommitterResult,
        fed: Sequence[tuple[Subscription, Fields, pa.Table]],
    ) -> tuple[pa.Table, list[int]]:
        """The executor half, once: deferred inputs first, then those from committers. Returns its rows and what it took in of each of the latter."""
        bolt, name = bolt_of(component), component.name
        rows = _Rows(component)
        topology = self._topology
        config = {**(topology.config if topology else {}), **bolt.config}
        context = TopologyContext(
            topology=self._name, component=name, task_id=DRIVER_TASK, task_index=0, tasks=task_ids(topology) if topology else {},
            attempt=self._attempt, config=config,
        )  # fmt: skip
        try:
            bolt.prepare(config, context, rows, self._attempt)
            for source, stream, table in handed.deferred:
                _feed(bolt, tuples_of(table, declared_fields(table.schema), name, source=source, stream=stream))
            received = [
                _feed(bolt, tuples_of(table, fields, name, source=item.source, stream=item.stream))
                for item, fields, table in fed
            ]
            bolt.finish_batch()
        except (Exception, SystemExit) as error:
            raise own_failure(name, error) from error
        return rows.table(), received


class _Rows:
    """BatchOutputCollector of an executor half that runs in the driver."""

    def __init__(self, component: CommitterComponent) -> None:
        self._name = component.name
        self._rows = Gathered(self._name, DEFAULT_STREAM, component.result_fields)

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """One result row."""
        if stream != DEFAULT_STREAM:
            raise BatchDataError(
                f"committer {self._name}: its executor half emits result rows only, not stream {stream!r}",
                component=self._name,
            )
        self._rows.add(values)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Result rows have one receiver."""
        raise BatchDataError(f"committer {self._name}: nothing reads its result rows directly", component=self._name)

    def table(self) -> pa.Table:
        return self._rows.table()


def _counted(tables: Sequence[pa.Table], component: CommitterComponent) -> pa.Table:
    """The executor half of a counting committer."""
    aggregator = Aggregator(component.bolt.aggregation(), component.result_fields)
    for table in tables:
        for batch in table.to_batches():
            aggregator.add(batch)
    try:
        return aggregator.rows()
    except Overflow as error:
        raise BatchDataError(f"committer {component.name}: {error}", component=component.name) from error


def _feed(bolt: BatchCommitter, tuples: Sequence[Tuple]) -> int:
    received = 0
    for tup in tuples:
        bolt.execute(tup)
        received += 1
    return received
