"""Runs one task of one attempt: takes its messages, checks that they are complete, and yields what it emits, its counts
and its report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from txtopo.errors import invariant, unreachable
from txtopo.topology.components import CommitterComponent, TupleBoltComponent
from txtopo.tuples import acking
from txtopo.tuples.bolt_runner import TaskRunner
from txtopo.tuples.coordination import Coordination
from txtopo.tuples.executor_halves import executor_half
from txtopo.tuples.graph import Edge
from txtopo.tuples.message import DRIVER, Kind, Message, TakeReport, TaskReport
from txtopo.tuples.partial_groups import tuples_in
from txtopo.tuples.rich_and_arrow_runners import runner_of
from txtopo.tuples.router import REPORT_FAILED, Results, Router
from txtopo.tuples.task_context import Arrived, TaskContext
from txtopo.tuples.wire import unpack


class PassRunner(TaskRunner):
    """Receiver: passes tuples to the driver unchanged."""

    def __init__(self, task_context: TaskContext, results: Results) -> None:
        self._task_context = task_context
        self._results = results

    def take(self, arrived: Arrived) -> None:
        arrived.ack(self._task_context)
        self._results.put(arrived.batch, arrived.edge.number)


class Task:
    """A bolt's, committer's or receiver's task in one attempt."""

    def __init__(self, task_context: TaskContext, reporter: TakeReport) -> None:
        self._task_context = task_context
        self._reporter = reporter
        graph, node = task_context.graph, task_context.node
        self._edges: Mapping[int, Edge] = {edge.number: edge for edge in node.inputs}
        self._coordination = Coordination(
            {edge.number: graph.source_tasks(edge, task_context.run.sources) for edge in node.inputs},
            {edge.number: edge.name for edge in node.inputs},
        )
        self._results = Results(task_context.task, run_index=task_context.run_index)
        self._number = 0
        self._router: Router | None = None
        self._runner = self._made()

    def run(self, messages: Iterator[Message]) -> Iterator[Message]:
        """Process all messages to this task, in order; yields what it sends. Reads `messages` to their end in any
        case.
        """
        runner, drain = self._runner, (self._router or self._results).drain
        try:
            runner.stopped = self._router is not None and not self._task_context.prepared(self._router)
            runner.prepare()
            for message in messages:
                self._take(message)
                yield from drain()
            self._complete()
            yield from drain()
        finally:
            runner.cleanup()
        yield from drain()
        yield from self._last_words()

    def _take(self, message: Message) -> None:
        if message.kind == Kind.REPORT:
            self._coordination.report(message.edge, message.source, message.rows, failed=message.seq == REPORT_FAILED)
            return
        invariant(message.kind == Kind.DATA, f"a task got a message of kind {message.kind}")
        body = unpack(message.body)
        edge = self._edges.get(message.edge)
        partial = edge.partial if edge is not None and not self._task_context.tracked else None
        # What arrives is counted here, in what arrives: groups say how many tuples they have.
        rows = message.rows if body is None else body.num_rows if partial is None else tuples_in(body)
        first = self._coordination.take(message.edge, message.source, rows)
        if self._runner.stopped or body is None or edge is None:
            return
        if partial is not None:
            self._runner.take_groups(body, partial)
        else:
            self._runner.take(Arrived(self._task_context, edge, message, body, first))

    def _complete(self) -> None:
        """Finish the batch, as CoordinatedBolt does, only when every source task has reported and all counts agree."""
        task_context, coordination, runner = self._task_context, self._coordination, self._runner
        if not coordination.upstream_failed:
            if task_context.counting and not coordination.finish():
                task_context.problem(coordination.shortfall() or unreachable("a task finished its batch twice"))
            elif not task_context.failures and not runner.stopped:
                runner.finish()
        if not runner.stopped:
            runner.flush()

    def _last_words(self) -> Iterator[Message]:
        task_context = self._task_context
        received = self._coordination.received()
        failed = bool(task_context.failures) or self._coordination.upstream_failed
        self._reporter(report_of(task_context, router=self._router, received=tuple(sorted(received.items()))))
        yield from last_messages(task_context, self._router, failed=failed)
        if self._router is None:
            yield self._results.end(self._number, sum(received.values()))

    def _made(self) -> TaskRunner:
        task_context, topology = self._task_context, self._task_context.graph.topology
        if task_context.node.kind == "receiver":
            return PassRunner(task_context, self._results)
        for committer in topology.committers:
            if committer.name == task_context.node.name:
                return self._committer(committer)
        for bolt in topology.bolts:
            if bolt.name == task_context.node.name and isinstance(bolt, TupleBoltComponent):
                self._router = router_of(task_context)
                return runner_of(bolt.bolt)(task_context, bolt.bolt, bolt.bolt.config, bolt.outputs, self._router)
        return unreachable(f"there is no component {task_context.node.name}")

    def _committer(self, committer: CommitterComponent) -> TaskRunner:
        task_context, topology, results = self._task_context, self._task_context.graph.topology, self._results
        self._number = number = topology.committers.index(committer)
        return executor_half(committer).runner(task_context, committer, results, number)


def router_of(task_context: TaskContext) -> Router:
    """Return the router of a bolt's or source's task."""
    return Router(
        task_context.graph,
        task_context.node,
        task_context.task,
        run_index=task_context.run_index,
        run=task_context.run,
        fold=task_context.fold,
    )


def last_messages(task_context: TaskContext, router: Router | None, *, failed: bool) -> Iterator[Message]:
    """Yield the last messages of any task except an acker's: its acks and its counts."""
    graph = task_context.graph
    if task_context.fold is not None and graph.ackers is not None:
        yield from acking.to_ackers(task_context.fold, graph.ackers.tasks, task_context.run_index, task_context.task)
    if router is not None:
        yield from router.reports(failed=failed)


def ack_task(
    task_context: TaskContext, messages: Iterator[Message], expected: frozenset[int], reporter: TakeReport
) -> Iterator[Message]:
    """Run an acker's task: fold what all other tasks report about their tuples."""
    fold = acking.Fold()
    missing = set(expected)
    arrived = 0
    for message in messages:
        body = unpack(message.body)
        if message.kind != Kind.ACK or body is None or message.source not in missing:
            task_context.problem(
                f"an acker got a message of kind {message.kind} from task {message.source} that it did not expect"
            )
            continue
        missing.discard(message.source)
        arrived += message.rows
        roots, values, failed = acking.told(body)
        fold.add(roots, values)
        fold.fail(failed)
    if missing:
        task_context.problem(f"the acks of task {min(missing)} did not come")
    reporter(report_of(task_context))
    yield from acking.outcome_messages(fold, task_context.run_index, task_context.task, DRIVER, arrived)


def report_of(
    task_context: TaskContext, *, router: Router | None = None, received: tuple[tuple[int, int], ...] = ()
) -> TaskReport:
    """Return the report of a task that is no source."""
    return TaskReport(
        run=task_context.run.run,
        component=task_context.node.name,
        index=task_context.index,
        sent=router.sent() if router is not None else (),
        received=received,
        failures=tuple(task_context.failures),
    )
