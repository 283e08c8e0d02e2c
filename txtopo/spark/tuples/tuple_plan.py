"""Compiles the graphs of a tuple topology to DataFrames of messages: sources, one exchange per level, and the edges to
DataFrame bolts.

Data is not sent row by row: a row is a message, with many tuples in its body. Between two levels rows go to the
partition that runs their target (`repartitionById`), and are sorted there, so that a task sees its input in the same
order wherever and however often it runs. Small batches need no exchange: their whole graph runs in one task, with a
plan that is made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame

from txtopo.errors import invariant
from txtopo.spark.frames.aggregate import column_called, spark_schema
from txtopo.spark.frames.earlier_calls import EarlierCalls
from txtopo.spark.frames.frame_plan import call_bolt, call_spout, compare_fields
from txtopo.spark.frames.persisted import let_go, let_go_on_error
from txtopo.spark.frames.planned_frames import settled
from txtopo.spark.frames.source_nodes import check_leaves, leaf_of, leaves_in
from txtopo.spark.frames.source_nodes import unread as unread_leaves
from txtopo.spark.jobs import JobContext
from txtopo.spark.signatures import Signer
from txtopo.spark.tuples.tuple_graphs import LEAVES, MAIN, Graphs
from txtopo.spark.tuples.tuple_order import Ordered, TupleOrder
from txtopo.spark.tuples.tuple_tasks import (
    FrameTask,
    GraphTask,
    LeafTask,
    LevelTask,
    PartsTask,
    ReceivingTask,
    TaskWiring,
)
from txtopo.topology.components import BoltComponent
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import Node, TaskGraph
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

    def one_task(self, signer: Signer) -> OneTask | None:
        """Return a copy of that plan; None if the topology contains a DataFrame."""
        if self._graphs.frames:
            return None
        return OneTask(copy=signer.copy, messages=self._in_one_task(self.wiring(MAIN, None, signer)))

    def plan(self, runs: Sequence[Ordered], signer: Signer, *, failures_max: int = 1, alone: bool = False) -> Planned:
        """Plan these runs, with the order inside the plan. `alone`: in one task, if that is possible. Raises
        BatchDataError if a bolt raises.
        """
        planning = _Planning(self, self._context, self._graphs, runs, signer, failures_max)
        if alone and not self._graphs.frames:
            specs, order = planning.ordered(MAIN, {})
            wiring = self.wiring(MAIN, order.text(), signer, failures_max)
            return Planned(messages=self._in_one_task(wiring), specs={MAIN: specs})
        with let_go_on_error(planning.given):
            messages = planning.messages(MAIN)
            unread = unread_leaves(planning.given, planning.read)
        return Planned(messages=messages, specs=planning.specs, given=planning.given, unread=unread)

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
            partitions = max(1, min(tasks, self._slices_max))
            moved = self.between(rows, level).repartitionById(partitions, "part")
            rows = self._map(moved.sortWithinPartitions(*KEY), LevelTask(wiring=wiring, level=level))
        return rows

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

    def frame_rows(self, frame: DataFrame, task: FrameTask) -> DataFrame:
        """Return the messages of a DataFrame's partitions."""
        return self._map(frame, task)

    def leaf(self, spout: str, order: TupleOrder, wiring: TaskWiring) -> DataFrame:
        """Return the tuples of a spout that only DataFrame bolts read."""
        total = len(order.source_tasks([spout]))
        numbers = self._context.spark.range(0, total, 1, min(total, self._slices_max))
        task = LeafTask(wiring=wiring, name=spout, spout=self._spouts[spout])
        return leaf_of(numbers, task, spark_schema(self._spouts[spout].fields))

    def _in_one_task(self, wiring: TaskWiring) -> DataFrame:
        return self._map(self._context.spark.range(0, 1, 1, 1), GraphTask(wiring=wiring, spouts=self._spouts))

    def _map(self, frame: DataFrame, task: Any) -> DataFrame:
        return leaf_of(frame, task, DDL)


class _Planning:
    """Plans some runs once: DataFrames in the order of their dependencies, each with its number of partitions."""

    def __init__(
        self,
        compiler: TupleCompiler,
        context: JobContext,
        graphs: Graphs,
        runs: Sequence[Ordered],
        signer: Signer,
        failures_max: int,
    ) -> None:
        self._compiler = compiler
        self._context = context
        self._graphs = graphs
        self._runs = runs
        self._signer = signer
        self._failures_max = failures_max
        self._frames: dict[str, DataFrame] = {}
        self._bolts = {bolt.name: bolt for bolt in graphs.topology.frame_bolts}
        self.specs: dict[str, Sequence[RunSpec]] = {}
        self.given: list[DataFrame] = []
        """The DataFrames of DataFrame bolts."""
        self.read: list[DataFrame] = []
        """The DataFrames that the graphs read."""

    def ordered(self, graph: str, frames: Mapping[str, int]) -> tuple[list[RunSpec], TupleOrder]:
        """Return the runs of one graph, given the numbers of partitions of its DataFrames."""
        names = [node.name for node in self._graphs.by_name[graph].sources]
        return self._order({name: frames.get(name) for name in names})

    def messages(self, name: str) -> DataFrame:
        """Return the plan of a graph up to its messages to the driver."""
        graph = self._graphs.by_name[name]
        made = [node for node in graph.sources if node.name in self._graphs.frames]
        frames = {node.name: self._settled(node) for node in made}
        partitions = {source: count for source, (_, count) in frames.items()}
        self.specs[name], order = self.ordered(name, partitions)
        wiring = self._compiler.wiring(name, order.text(), self._signer, self._failures_max)
        rows, first = [], 0
        # A DataFrame without any partition has one task all the same, which reports that there is nothing.
        numbered = [node.name for node in graph.sources if not partitions.get(node.name)]
        if numbered or len(graph.sources) > 1:
            # A union zips children with the same partitioning instead of appending them; no DataFrame has the
            # partitioning of two ranges.
            slices_min = 2 if partitions else 1
            tasks, first = self._compiler.source_rows(numbered, order, wiring, slices_min=slices_min)
            rows.append(tasks)
        for node in graph.sources:
            if partitions.get(node.name):
                task = FrameTask(wiring=wiring, name=node.name, first=first, fields=_emitted_fields(node))
                rows.append(self._compiler.frame_rows(frames[node.name][0], task))
                first += partitions[node.name]
        united = reduce(DataFrame.union, rows)
        invariant(not partitions or settled(united)[1] == first, f"{name}: a source lost partitions in a union")
        return self._compiler.levels(united, graph, wiring, len(self._runs))

    def _settled(self, node: Node) -> tuple[DataFrame, int]:
        """Return the fields of a DataFrame that it emits, fixed for this graph: another graph reads it again."""
        names = _emitted_fields(node).names
        self.read.append(self.frame(node.name).select(*map(column_called, names)))
        return settled(self.read[-1])

    def frame(self, name: str) -> DataFrame:
        """Return the DataFrame of a DataFrame bolt, or of a spout that gives one."""
        if name not in self._frames:
            self._frames[name] = self._called(self._bolts[name]) if name in self._bolts else self._of_spout(name)
        return self._frames[name]

    def _called(self, bolt: BoltComponent) -> DataFrame:
        if self._graphs.is_on_leaves(bolt.name):
            inputs = [self._on_leaf(item.source) for item in bolt.inputs]
        else:
            messages = self.messages(bolt.name)
            inputs = [
                leaf_of(messages, ReceivingTask(edge=edge.number, fields=edge.fields), spark_schema(edge.fields))
                for edge in self._graphs.by_name[bolt.name].nodes[bolt.name].inputs
            ]
        self.given += inputs
        frame = call_bolt(bolt, inputs, self._compiler.earlier)
        check_leaves(bolt.name, frame, leaves_in(self.given))
        if bolt.fields is not None:
            compare_fields(bolt.name, bolt.fields, frame.schema, set())
        return frame

    def _on_leaf(self, source: str) -> DataFrame:
        if source in self._bolts:
            return self.frame(source)
        specs, order = self._order({source: None})
        self.specs[LEAVES] = [
            replace(spec, sources={**known.sources, **spec.sources})
            for spec, known in zip(specs, self.specs.get(LEAVES, specs), strict=True)
        ]
        wiring = replace(self._compiler.wiring(MAIN, order.text(), self._signer, self._failures_max), graph=LEAVES)
        return self._compiler.leaf(source, order, wiring)

    def _of_spout(self, name: str) -> DataFrame:
        component = next(item for item in self._graphs.topology.spouts if item.name == name)
        metadata = self._runs[0].metadata.get(name)
        if metadata is None:
            return self._context.spark.createDataFrame([], spark_schema(component.spout.fields))
        return call_spout(component, self._context.spark, metadata)

    def _order(self, partitions: Mapping[str, int | None]) -> tuple[list[RunSpec], TupleOrder]:
        runs = []
        for run in self._runs:
            found = {
                name: max(1, len(run.parts[name]) if count is None else count) for name, count in partitions.items()
            }
            runs.append(replace(run, spec=replace(run.spec, sources=found)))
        order = TupleOrder(runs=tuple(runs))
        return list(order.specs), order


def _emitted_fields(node: Node) -> Any:
    return node.outputs[0].fields
