"""Compiles the graphs of a tuple topology to DataFrames of messages: sources, one exchange per level, and the edges to
DataFrame bolts.

Data is not sent row by row: a row is a message, with many tuples in its body. Between two levels rows go to the
partition that runs their target (`repartitionById`), and are sorted there, so that a task sees its input in the same
order wherever and however often it runs. Small batches need no exchange: their whole graph runs in one task, with a
plan that is made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, StructField, StructType

from txtopo.core.fields import Fields
from txtopo.spark.emit import HIDDEN
from txtopo.spark.frames.aggregate import spark_schema
from txtopo.spark.frames.earlier_calls import EarlierCalls
from txtopo.spark.frames.persisted import let_go, let_go_on_error
from txtopo.spark.frames.source_nodes import leaf_of
from txtopo.spark.frames.source_nodes import unread as unread_leaves
from txtopo.spark.jobs import JobContext, Run
from txtopo.spark.signatures import Signer
from txtopo.spark.tuples.graph_planning import GraphPlanning
from txtopo.spark.tuples.shared_planning import SharedPlanning
from txtopo.spark.tuples.shared_tasks import Share, SharedFrameTask, SharedLeafTask, SharedReceivingTask, share_of_leaf
from txtopo.spark.tuples.tuple_graphs import MAIN, Graphs
from txtopo.spark.tuples.tuple_order import Ordered, TupleOrder
from txtopo.spark.tuples.tuple_tasks import FrameTask, GraphTask, LeafTask, LevelTask, PartsTask, TaskWiring
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import Edge, TaskGraph
from txtopo.tuples.message import RunSpec
from txtopo.tuples.wire import DDL, KEY

PARTITIONS_PER_CORE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan of some runs."""

    messages: DataFrame
    """The messages to the driver."""
    specs: Mapping[str, Sequence[RunSpec]]
    """By graph: its runs, with the number of its source tasks."""
    given: Sequence[DataFrame] = ()
    """The DataFrames that DataFrame bolts read."""
    unread: Sequence[DataFrame] = ()
    """Those of them that no plan reads, because their rows cannot matter: their tasks have to run all the same."""

    def let_go(self) -> None:
        """Unpersist what DataFrame bolts persisted, once the job has ended."""
        let_go(self.given)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTask:
    """The plan for all waves with one part per spout; the order is sent with the job."""

    copy: int
    """Its number: it serves one order at a time."""
    messages: DataFrame


class TupleCompiler:
    """Builds the plans of one tuple topology in one session."""

    def __init__(self, context: JobContext, graphs: Graphs) -> None:
        self._context = context
        self._graphs = graphs
        self._spouts = {item.name: item.spout for item in graphs.topology.spouts}
        self._slices_max = max(1, PARTITIONS_PER_CORE * context.spark.sparkContext.defaultParallelism)
        self.earlier = EarlierCalls(context.spark)
        """The components that are functions over DataFrames."""
        self.compares = True
        """See Compiler.compares."""

    def one_task(self, signer: Signer) -> OneTask | None:
        """Return a copy of that plan; None if the topology contains a DataFrame."""
        if self._graphs.frames:
            return None
        return OneTask(copy=signer.copy, messages=self._in_one_task(self.wiring(MAIN, None, signer)))

    def plan(
        self,
        runs: Sequence[Ordered],
        signer: Signer,
        *,
        failures_max: int = 1,
        alone: bool = False,
        waiting: Sequence[Run] = (),
    ) -> Planned:
        """Plan these runs, with the order inside the plan. `alone`: in one task, if that is possible. `waiting` are the
        runs that the plan is for. Raises BatchDataError if a bolt raises, NotCarriedError with the function over
        DataFrames that several runs cannot share.
        """
        arguments = (self, self._context, self._graphs, runs, signer, failures_max)
        planning = SharedPlanning(*arguments, waiting=waiting) if len(runs) > 1 else GraphPlanning(*arguments)
        if alone and not self._graphs.frames:
            specs, order = planning.ordered(MAIN, {})
            wiring = self.wiring(MAIN, order.text(), signer, failures_max)
            return Planned(messages=self._in_one_task(wiring), specs={MAIN: specs})
        with let_go_on_error(planning.given):
            messages = planning.messages(MAIN)
            unread = unread_leaves(planning.given, planning.read)
        return Planned(messages=messages, specs=planning.specs, given=planning.given, unread=unread)

    def check_shared(self, nothing: Ordered, signer: Signer) -> str | None:
        """Call the functions over DataFrames as for several runs, without a job. Returns the one with code that is not
        Spark's own (see CarriedFrame). Raises NotCarriedError with the one that several runs cannot share, and what the
        functions raise.
        """
        planning = SharedPlanning(self, self._context, self._graphs, [nothing], signer, 1)
        try:
            return planning.check()
        finally:
            let_go(planning.given)

    def wiring(self, graph: str, order: str | None, signer: Signer, failures_max: int = 1) -> TaskWiring:
        """Return what the tasks of a graph's plan share."""
        return TaskWiring(
            engine=Engine(self._graphs.by_name[graph], failures_max=failures_max),
            graph=graph,
            code_hash=self._context.code_hash,
            reports=self._context.accumulator,
            signer=signer,
            order=order,
        )

    def levels(self, rows: DataFrame, graph: TaskGraph, wiring: TaskWiring, runs: int) -> DataFrame:
        """Run the levels of a graph over the messages of its sources."""
        for level in range(1, graph.levels + 1):
            tasks = sum(len(node.tasks) for node in graph.at(level)) * runs
            moved = self.between(rows, level).repartitionById(self.partitions(tasks), "part")
            rows = self._map(moved.sortWithinPartitions(*KEY), LevelTask(wiring=wiring, level=level))
        return rows

    def partitions(self, tasks: int) -> int:
        """Return the number of partitions of an exchange to this number of tasks, of all runs."""
        return max(1, min(tasks, self._slices_max))

    def between(self, rows: DataFrame, level: int) -> DataFrame:
        """Return the messages on their way to a level, unchanged. Tests inject transport faults here."""
        return rows

    def source_rows(
        self, names: Sequence[str], order: TupleOrder, wiring: TaskWiring, *, slices_min: int = 1
    ) -> tuple[DataFrame, int]:
        """Return messages of the numbered tasks of some sources, and the number of their partitions."""
        # Spark would remove a range without rows from the plan; a number of no task is ignored.
        total = max(slices_min, len(order.source_tasks(names)))
        hints = {item.name: item.tasks for item in self._graphs.topology.spouts}
        counts = [(run.spec.sources[name], hints.get(name)) for run in order.runs for name in names]
        wanted = sum(min(count, hint or count) for count, hint in counts)
        slices = max(slices_min, min(wanted, self._slices_max))
        numbers = self._context.spark.range(0, total, 1, slices)
        return self._map(numbers, PartsTask(wiring=wiring, names=names, spouts=self._spouts)), slices

    def frame_rows(self, frame: DataFrame, task: FrameTask | SharedFrameTask) -> DataFrame:
        """Return the messages of a DataFrame's partitions."""
        return self._map(frame, task)

    def leaf(self, spout: str, order: TupleOrder, wiring: TaskWiring) -> DataFrame:
        """Return the tuples of a spout that only DataFrame bolts read."""
        total = len(order.source_tasks([spout]))
        numbers = self._context.spark.range(0, total, 1, min(total, self._slices_max))
        task = LeafTask(wiring=wiring, name=spout, spout=self._spouts[spout])
        return leaf_of(numbers, task, spark_schema(self._spouts[spout].fields))

    def shared_leaf(self, spout: str, order: TupleOrder, wiring: TaskWiring) -> tuple[DataFrame, Share]:
        """Return the same of several runs, with the numbers of their source tasks."""
        share = share_of_leaf([run.spec.sources[spout] for run in order.runs], self._slices_max)
        numbers = self._context.spark.range(0, len(share.partitions), 1, len(share.partitions))
        task = SharedLeafTask(wiring=wiring, name=spout, spout=self._spouts[spout], share=share)
        return leaf_of(numbers, task, _with_numbers(self._spouts[spout].fields)), share

    def shared_receivers(self, messages: DataFrame, edge: Edge, share: Share) -> DataFrame:
        """Return what the receivers of several runs got over an edge, with the numbers of their source tasks."""
        task = SharedReceivingTask(edge=edge.number, fields=edge.fields, share=share)
        return leaf_of(messages, task, _with_numbers(edge.fields))

    def no_messages(self) -> DataFrame:
        """Return messages of no task, for checks that run nothing."""
        return self._context.spark.createDataFrame([], DDL)

    def _in_one_task(self, wiring: TaskWiring) -> DataFrame:
        return self._map(self._context.spark.range(0, 1, 1, 1), GraphTask(wiring=wiring, spouts=self._spouts))

    def _map(self, frame: DataFrame, task: Any) -> DataFrame:
        return leaf_of(frame, task, DDL)


def _with_numbers(fields: Fields) -> StructType:
    return StructType([*spark_schema(fields).fields, StructField(HIDDEN, IntegerType(), nullable=False)])
