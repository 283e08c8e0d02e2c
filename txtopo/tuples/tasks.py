"""Run one task of one attempt: take its messages in, check that they are complete, and give out what it emits, its
counts and its report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.errors import invariant, unreachable
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.components import CommitterComponent, TupleBoltComponent
from txtopo.topology.streams import DEFAULT_STREAM, Stream
from txtopo.tuples import acking
from txtopo.tuples.aggregate_batches import Aggregator, Overflow
from txtopo.tuples.bolt_runner import TaskRunner
from txtopo.tuples.coordination import Coordination
from txtopo.tuples.graph import Edge
from txtopo.tuples.message import DRIVER, Kind, Message, TakeReport, TaskReport
from txtopo.tuples.rich_and_arrow_runners import work_of
from txtopo.tuples.roots import Roots
from txtopo.tuples.router import REPORT_FAILED, Results, Router
from txtopo.tuples.task_context import Arrived, TaskContext
from txtopo.tuples.wire import unpack


class CountRunner(TaskRunner):
    """The executor half of a CountCommitter: partial counts and sums, exact."""

    def __init__(self, setting: TaskContext, committer: CommitterComponent, results: Results, number: int) -> None:
        self._setting = setting
        self._aggregator = Aggregator(committer.bolt.aggregation(), committer.result_fields)
        self._results = results
        self._number = number

    def take(self, arrived: Arrived) -> None:
        arrived.ack(self._setting)
        try:
            self._aggregator.add(arrived.batch)
        except (Overflow, pa.ArrowInvalid) as error:
            self._setting.fail(error)
            self.stopped = True

    def finish(self) -> None:
        for batch in self._aggregator.partial().combine_chunks().to_batches():
            self._results.put(batch, self._number)


class PassRunner(TaskRunner):
    """Receiver: tuples that go to the driver as they are."""

    def __init__(self, setting: TaskContext, results: Results) -> None:
        self._setting = setting
        self._results = results

    def take(self, arrived: Arrived) -> None:
        arrived.ack(self._setting)
        self._results.put(arrived.batch, arrived.edge.number)


class Task:
    """A bolt's, committer's or receiver's task in one attempt."""

    def __init__(self, setting: TaskContext, reporter: TakeReport) -> None:
        self._setting = setting
        self._reporter = reporter
        graph, node = setting.graph, setting.node
        self._edges: Mapping[int, Edge] = {edge.number: edge for edge in node.inputs}
        self._coordination = Coordination(
            {edge.number: graph.source_tasks(edge, setting.run.sources) for edge in node.inputs},
            {edge.number: edge.name for edge in node.inputs},
        )
        self._results = Results(setting.task, run_index=setting.run_index)
        self._number = 0
        self._router: Router | None = None
        self._work = self._made()

    def run(self, messages: Iterator[Message]) -> Iterator[Message]:
        """All messages to this task, in order; yields what it sends. Reads `messages` to their end, whatever
        happens.
        """
        work, drain = self._work, (self._router or self._results).drain
        try:
            work.stopped = self._router is not None and not self._setting.prepared(self._router)
            work.prepare()
            for message in messages:
                self._take(message)
                yield from drain()
            self._complete()
            yield from drain()
        finally:
            work.cleanup()
        yield from drain()
        yield from self._last_words()

    def _take(self, message: Message) -> None:
        if message.kind == Kind.REPORT:
            self._coordination.report(message.edge, message.source, message.rows, failed=message.seq == REPORT_FAILED)
            return
        invariant(message.kind == Kind.DATA, f"a task got a message of kind {message.kind}")
        body = unpack(message.body)
        edge = self._edges.get(message.edge)
        first = self._coordination.take(message.edge, message.source, message.rows if body is None else body.num_rows)
        if not self._work.stopped and body is not None and edge is not None:
            self._work.take(Arrived(self._setting, edge, message, body, first))

    def _complete(self) -> None:
        """CoordinatedBolt: the batch is finished only when every source task has reported and all counts agree."""
        setting, coordination, work = self._setting, self._coordination, self._work
        if not coordination.upstream_failed:
            if setting.counting and not coordination.finish():
                setting.problem(coordination.shortfall() or unreachable("a task finished its batch twice"))
            elif not setting.failures and not work.stopped:
                work.finish()
        if not work.stopped:
            work.flush()

    def _last_words(self) -> Iterator[Message]:
        setting = self._setting
        received = self._coordination.received()
        failed = bool(setting.failures) or self._coordination.upstream_failed
        self._reporter(report_of(setting, router=self._router, received=tuple(sorted(received.items()))))
        yield from last_messages(setting, self._router, failed=failed)
        if self._router is None:
            yield self._results.end(self._number, sum(received.values()))

    def _made(self) -> TaskRunner:
        setting, topology = self._setting, self._setting.graph.topology
        if setting.node.kind == "receiver":
            return PassRunner(setting, self._results)
        for committer in topology.committers:
            if committer.name == setting.node.name:
                return self._committer(committer)
        for bolt in topology.bolts:
            if bolt.name == setting.node.name and isinstance(bolt, TupleBoltComponent):
                self._router = router_of(setting)
                arguments = (
                    setting,
                    bolt.bolt,
                    bolt.bolt.config,
                    bolt.outputs,
                    self._router.send,
                    self._router.direct_tasks,
                )
                return work_of(bolt.bolt)(*arguments)
        return unreachable(f"there is no component {setting.node.name}")

    def _committer(self, committer: CommitterComponent) -> TaskRunner:
        setting, topology, results = self._setting, self._setting.graph.topology, self._results
        self._number = number = topology.committers.index(committer)
        bolt = committer.bolt
        if not isinstance(bolt, BatchCommitter):
            return CountRunner(setting, committer, results, number)
        fields: Fields = committer.result_fields

        def send(stream: str, batch: pa.RecordBatch, roots: Roots | None, named: Sequence[int] | None) -> None:
            # Rows for the driver belong to no tuple tree.
            results.put(batch, number)

        streams = {DEFAULT_STREAM: Stream(fields)}
        return work_of(bolt)(setting, bolt, bolt.config, streams, send, lambda stream: frozenset())


def router_of(setting: TaskContext) -> Router:
    """The outlet of a bolt's or source's task."""
    return Router(
        setting.graph, setting.node, setting.task, run_index=setting.run_index, run=setting.run, fold=setting.fold
    )


def last_messages(setting: TaskContext, router: Router | None, *, failed: bool) -> Iterator[Message]:
    """The end of any task but an acker's: its acks and its counts."""
    graph = setting.graph
    if setting.fold is not None and graph.ackers is not None:
        yield from acking.to_ackers(setting.fold, graph.ackers.tasks, setting.run_index, setting.task)
    if router is not None:
        yield from router.reports(failed=failed)


def ack_task(
    setting: TaskContext, messages: Iterator[Message], expected: frozenset[int], reporter: TakeReport
) -> Iterator[Message]:
    """Run an acker's task: fold what all other tasks tell about their tuples."""
    fold = acking.Fold()
    missing = set(expected)
    arrived = 0
    for message in messages:
        body = unpack(message.body)
        if message.kind != Kind.ACK or body is None or message.source not in missing:
            setting.problem(
                f"an acker got a message of kind {message.kind} from task {message.source} that it did not expect"
            )
            continue
        missing.discard(message.source)
        arrived += message.rows
        roots, values, failed = acking.told(body)
        fold.add(roots, values)
        fold.fail(failed)
    if missing:
        setting.problem(f"the acks of task {min(missing)} did not come")
    reporter(report_of(setting))
    yield from acking.outcome_messages(fold, setting.run_index, setting.task, DRIVER, arrived)


def report_of(
    setting: TaskContext, *, router: Router | None = None, received: tuple[tuple[int, int], ...] = ()
) -> TaskReport:
    """What a task that is no source says of itself."""
    return TaskReport(
        run=setting.run.run,
        component=setting.node.name,
        index=setting.index,
        sent=router.sent() if router is not None else (),
        received=received,
        failures=tuple(setting.failures),
    )
