"""The phases of the commit of one batch. Components downstream of committers run here, in the driver, on the tuple
engine.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from txtopo.committers.protocol.result_order import Gathered, in_order
from txtopo.committers.protocol.user_code import INSTALL_HERE, bolt_of
from txtopo.config import Settings
from txtopo.core import limits
from txtopo.core.fields import Fields
from txtopo.core.values import CommitterResult, EdgeCount, Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError, DriverFull, NoBatchAtFault, PostgresUnavailable, TxtopoError, unreachable
from txtopo.ports import Assignment
from txtopo.topology.components import CommitterComponent, Tally, Topology
from txtopo.topology.outputs import fields_of, parse_outputs
from txtopo.topology.phases import PROCESSING
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.topology.user_exceptions import is_of_code
from txtopo.tuples.edge_checks import edges
from txtopo.tuples.graph import TaskGraph, build_graph, root_place, sinks_of
from txtopo.tuples.local import LocalRun, run_here
from txtopo.tuples.message import Kind, Message, RunSpec, TupleFailure
from txtopo.tuples.tracing import Again, Place, Tracing
from txtopo.tuples.user_errors import failure_of, is_of_memory

BEAT_S = 1.0
"""Seconds without a statement after which the driver sends one, so that the server knows that it is alive."""
ROWS_PER_MESSAGE = 10_000
"""Rows of one message. The driver can report to the server between two messages."""

KeepAlive = Callable[[], None]
"""Sends a statement that does nothing. Raises PostgresUnavailable."""


def commit_phases(topology: Topology) -> range:
    """Return the phases at whose ends committers are applied during the commit of a batch, in order. The first one
    needs no engine.
    """
    return range(max([*topology.phases.values(), *topology.applied_in.values()], default=PROCESSING) + 1)


def committers_of(topology: Topology, phase: int) -> tuple[CommitterComponent, ...]:
    """Return the committers that are applied at the end of one phase, in order: those that read tables first, the
    others as they were set.
    """
    applied = topology.applied_in
    return tuple(item for item in topology.committers if applied[item.name] == phase)


class EmittedRows:
    """The CommitCollector of one committer in one commit: checks the tuples that it emits, and stores them."""

    def __init__(self, component: CommitterComponent, count: Callable[[str], None]) -> None:
        """`count` is called with the component's name for each tuple, before the tuple is stored."""
        self._name = component.name
        self._count = count
        declared = component.outputs or parse_outputs(f"committer {component.name!r}", bolt_of(component).outputs)
        self._streams = {name: Gathered(self._name, name, fields_of(stream)) for name, stream in declared.items()}

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Store one tuple. Raises BatchDataError if the stream is not declared or the number of values is wrong. Types
        are checked after `commit` has returned.
        """
        if stream not in self._streams:
            raise BatchDataError(
                f"committer {self._name} emits on stream {stream!r}; it declares {', '.join(self._streams) or 'none'}",
                component=self._name,
                fault="undeclared stream",
            )
        self._count(self._name)
        self._streams[stream].add(values)

    def tables(self) -> Iterator[tuple[str, Fields, pa.Table]]:
        """Yield stream, fields and tuples of the declared types. Raises BatchDataError with field and value if one does
        not fit.
        """
        for stream, gathered in self._streams.items():
            yield stream, gathered.fields, gathered.table()


def _wants_acks(topology: Topology) -> bool:
    """True if a RichBolt must ack its tuples although there is no acker task; False if the topology configures no
    ackers.
    """
    return topology.acking == "batch" or Settings().with_topology(topology.config).ackers > 0


class CommitPhases:
    """The components downstream of the committers of one batch.

    Each of their phases is an ordinary run of the tuple engine. Its sources are the tuples that committers emitted, and
    those that earlier phases stored for it.
    """

    def __init__(
        self, topology: Topology, attempt: TransactionAttempt, handed: Sequence[CommitterResult], keep_alive: KeepAlive
    ) -> None:
        """`handed` are the results of the processing phase. Raises BatchDataError if tuples are missing in them."""
        self._topology = topology
        self._attempt = attempt
        self._watch = _Watch(attempt, keep_alive)
        self._given: dict[tuple[str, str], pa.Table] = {}
        """(component, stream) -> tuples in canonical order: the same in every attempt, whichever tasks emitted them."""
        self._results: dict[str, CommitterResult] = {}
        self._edges: dict[str, EdgeCount] = {}
        self._take(handed, PROCESSING)

    @property
    def edges(self) -> Sequence[EdgeCount]:
        """Tuples that components of the commit phases sent and received, counted on both sides."""
        return tuple(self._edges.values())

    def collector(self, component: CommitterComponent) -> EmittedRows | None:
        """Return the collector for `commit` of a BatchCommitter, and for the values that a counting committer passes
        on; None for a committer that emits nothing.
        """
        return EmittedRows(component, self._watch.emitted) if component.bolt.runs_code or component.outputs else None

    def applied(self, component: CommitterComponent, emitted: EmittedRows | None) -> None:
        """Store what an applied committer emitted, for the next phases."""
        for stream, fields, table in emitted.tables() if emitted is not None else ():
            self._keep(component.name, stream, fields, table)

    def result(self, component: CommitterComponent) -> CommitterResult:
        """Return the input of the committer's driver half; its phase was entered."""
        return self._results[component.name]

    def enter(self, phase: int) -> None:
        """Run all components of a phase except the driver halves of its committers. Call it after all committers of
        lower phases are applied.

        Raises BatchDataError with component, line and tuple if user code fails, or if it blocks the database
        transaction for too long; NoBatchAtFault if a module is missing.
        """
        if phase == PROCESSING:
            return
        graph = build_graph(
            self._topology,
            sinks_of(self._topology, phase),
            ackers=0,
            phase=phase,
            wants_acks=_wants_acks(self._topology),
        )
        before = self._watch.tuples

        def run(again: Again) -> tuple[Outcome, Sequence[TupleFailure]]:
            self._watch.begin(graph, before)
            ran = self._run(graph, again)
            if ran.failure is not None and is_of_memory(ran.failure.message):
                raise DriverFull(ran.failure.message)  # this process is out of memory; the batch is not at fault
            return self._outcome(ran), ran.causes()

        outcome, causes = run(Again())
        if isinstance(outcome, Failed) and outcome.failure.kind == "data":
            assignment = Assignment(attempt=self._attempt, metadata={})
            tracing = Tracing(self._topology, partial(_place, graph), assignment, {}, run, said=_said)
            outcome = tracing.explained(outcome.failure, causes)
        self._watch.look()
        if isinstance(outcome, Failed):
            raise self._error(outcome.failure)
        for edge in outcome.edges:
            # Tuples that an earlier phase stored were counted by that phase.
            self._edges.setdefault(edge.edge, edge)
        self._take(outcome.results, phase)

    def _run(self, graph: TaskGraph, again: Again) -> LocalRun:
        sources = {node.name: len(node.streams) for node in graph.sources}
        spec = RunSpec(run=str(self._attempt), attempt=self._attempt, sources=sources, traced=again.traced)

        def emit(run_index: int, source: str, index: int, tally: Tally) -> Iterator[pa.RecordBatch]:
            table = self._given.get((source, graph.nodes[source].streams[index]))
            yield from table.to_batches(max_chunksize=ROWS_PER_MESSAGE) if table is not None else ()

        try:
            return run_here(graph, spec, emit, watch=self._watch)
        except BaseException as error:
            if isinstance(error, Exception) or not is_of_code(error):
                raise
            raise self._error(failure_of(error, self._watch.at or next(iter(graph.nodes)))) from error

    def _outcome(self, ran: LocalRun) -> Outcome:
        if ran.failure is not None:
            return Failed(attempt=self._attempt, failure=ran.failure)
        return Processed(
            attempt=self._attempt,
            code_hash=b"",
            read=0,
            results=tuple(ran.results),
            edges=edges(ran.graph, ran.reports),
        )

    def _error(self, failure: Failure) -> TxtopoError:
        component = failure.component or ""
        if failure.kind == "halt":
            return NoBatchAtFault(
                failure.message, txid=self._attempt.txid, component=component, next_command=INSTALL_HERE
            )
        return BatchDataError(
            failure.message, component=component, position=failure.position, detail=failure.detail, cause=failure.cause
        )

    def _take(self, results: Sequence[CommitterResult], phase: int) -> None:
        for result in results:
            if self._topology.phases.get(result.committer, PROCESSING) > phase:
                self._take_deferred(result)
                continue
            self._results[result.committer] = result
            if phase and result.bytes > limits.RESULTS_BYTES_MAX:
                raise _too_large(result.committer, result.bytes)

    def _take_deferred(self, result: CommitterResult) -> None:
        name = result.committer
        kept = sum(table.num_rows for _, _, table in result.deferred)
        if kept != result.arrived:
            raise BatchDataError(
                f"{name}: {result.arrived} tuples arrived at its tasks, {kept} were passed to the commit of the batch",
                component=name,
            )
        for source, stream, table in result.deferred:
            # Every reader of a stream receives all of it, so one copy serves all.
            if (source, stream) not in self._given:
                fields = self._topology.fields_of(source, stream) or unreachable(f"{source} declares no fields")
                self._keep(source, stream, fields, table)

    def _keep(self, component: str, stream: str, fields: Fields, table: pa.Table) -> None:
        if table.nbytes > limits.RESULTS_BYTES_MAX:
            raise _too_large(component, table.nbytes)
        self._given[component, stream] = in_order(table, fields, component)


class _Watch:
    """Checks that a commit stays within its limits, and tells the server that the driver is alive (P6, the server ends
    a database transaction that is idle for 5 s).
    """

    def __init__(self, attempt: TransactionAttempt, keep_alive: KeepAlive) -> None:
        self._attempt = attempt
        self._keep_alive = keep_alive
        self._told_s = 0.0
        self.tuples = 0
        """Number of tuples that committers and bolts have emitted in this commit."""
        self._owner: Mapping[int, Any] = {}
        self.at: str | None = None
        """The component whose code has run since the last check."""

    def begin(self, graph: TaskGraph, tuples: int) -> None:
        """Called when a run of the engine starts, after `tuples` tuples were emitted. The server has just answered a
        statement.
        """
        self._owner, self.at, self._told_s, self.tuples = graph.owner, None, time.monotonic(), tuples

    def emitted(self, component: str) -> None:
        """Count a tuple that a committer emits."""
        self._add(1, component)

    def sent(self, message: Message) -> None:
        """See engine.Watch."""
        if message.kind == Kind.DATA and message.source > 0:
            self._add(message.rows, self._owner[message.source].name)

    def taken(self, component: str) -> None:
        """See engine.Watch."""
        self.look()
        self.at = component

    def look(self) -> None:
        """Send a statement to the server about once a second. Raises BatchDataError if user code ran for so long that
        the server has ended the database transaction.
        """
        waited_s = time.monotonic() - self._told_s
        if waited_s < BEAT_S:
            return
        try:
            self._keep_alive()
        except PostgresUnavailable:
            if self.at is None or waited_s * 1000 < limits.IDLE_IN_TRANSACTION_TIMEOUT_MS:
                raise
            raise BatchDataError(
                f"{self.at} let the database transaction of the batch wait for {waited_s:.1f} s in one call, "
                f"downstream of a committer; the server allows "
                f"{limits.IDLE_IN_TRANSACTION_TIMEOUT_MS / 1000:g} s: do the work upstream of the committer",
                component=self.at,
                fault="slow call in the commit",
            ) from None
        self._told_s = time.monotonic()

    def _add(self, tuples: int, component: str) -> None:
        self.tuples += tuples
        if self.tuples > limits.TURN_TUPLES_MAX:
            raise BatchDataError(
                f"{component}: in the commit of a batch committers and the bolts downstream of them may emit "
                f"{limits.TURN_TUPLES_MAX} tuples "
                f"together, and batch {self._attempt.txid} has more: make batches smaller, or do the work upstream "
                f"of the committer",
                component=component,
                fault="too many tuples in the commit",
            )


def _place(graph: TaskGraph, root: int) -> Place:
    """Where a tuple of an earlier phase comes from: component and stream, and its number in canonical order."""
    name, index, number = root_place(graph, root)
    stream = graph.nodes[name].streams[index]
    return Place(name if stream == DEFAULT_STREAM else f"{name}:{stream}", 0, number)


def _said(place: Place) -> str:
    return f"tuple {place.number + 1} of {place.spout} in this batch"


def _too_large(component: str, size: int) -> BatchDataError:
    return BatchDataError(
        f"{component}: its tuples take {size / 2**20:.0f} MiB in the commit of a batch, and at most "
        f"{limits.RESULTS_BYTES_MAX / 2**20:.0f} MiB are allowed: make batches smaller",
        component=component,
        fault="too many bytes in the commit",
    )


def fresh(component: CommitterComponent) -> CommitterComponent:
    """Return the component with a copy of its bolt if the bolt is custom code, so that no attempt sees what another one
    left in it.
    """
    if not component.bolt.runs_code:
        return component
    return replace(component, bolt=copy.deepcopy(component.bolt))
