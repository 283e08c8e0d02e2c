"""Plans the graphs of a tuple topology for one run: DataFrames in the order of their dependencies, each with its number
of partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from txtopo.core.fields import Fields
from txtopo.errors import invariant
from txtopo.spark.frames.aggregate import column_called, spark_schema
from txtopo.spark.frames.frame_plan import call_bolt, call_spout, compare_fields
from txtopo.spark.frames.planned_frames import settled
from txtopo.spark.frames.source_nodes import check_leaves, leaf_of, leaves_in
from txtopo.spark.jobs import JobContext
from txtopo.spark.signatures import Signer
from txtopo.spark.tuples.shared_tasks import SharedFrameTask
from txtopo.spark.tuples.tuple_graphs import LEAVES, MAIN, Graphs
from txtopo.spark.tuples.tuple_order import Ordered, TupleOrder
from txtopo.spark.tuples.tuple_tasks import FrameTask, ReceivingTask, TaskWiring
from txtopo.topology.components import BoltComponent
from txtopo.tuples.graph import Node
from txtopo.tuples.message import RunSpec

if TYPE_CHECKING:
    from txtopo.spark.tuples.tuple_plan import TupleCompiler


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource:
    """A DataFrame that a graph reads."""

    frame: DataFrame
    partitions: int
    """0 if Spark removed all of its plan: then its source tasks have nothing to emit, and report it."""
    tasks: Sequence[int]
    """Number of its source tasks, by run."""


class GraphPlanning:
    """Plans one run, whose DataFrames have a source task for each partition."""

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

    def ordered(self, graph: str, frames: Mapping[str, Sequence[int]]) -> tuple[list[RunSpec], TupleOrder]:
        """Return the runs of one graph, given the numbers of source tasks that each run has at its DataFrames."""
        names = [node.name for node in self._graphs.by_name[graph].sources]
        return self._order({name: frames.get(name) for name in names})

    def messages(self, name: str) -> DataFrame:
        """Return the plan of a graph up to its messages to the driver."""
        graph = self._graphs.by_name[name]
        frames = {node.name: self._source(node) for node in graph.sources if node.name in self._graphs.frames}
        self.specs[name], order = self.ordered(name, {source: found.tasks for source, found in frames.items()})
        wiring = self._compiler.wiring(name, order.text(), self._signer, self._failures_max)
        rows, first = [], 0
        # A DataFrame without any partition has one task all the same, which reports that there is nothing.
        read = {source: found for source, found in frames.items() if found.partitions}
        numbered = [node.name for node in graph.sources if node.name not in read]
        if numbered or len(graph.sources) > 1:
            # A union zips children with the same partitioning instead of appending them; no DataFrame has the
            # partitioning of two ranges.
            slices_min = 2 if frames else 1
            tasks, first = self._compiler.source_rows(numbered, order, wiring, slices_min=slices_min)
            rows.append(tasks)
        for node in graph.sources:
            if node.name in read:
                rows.append(self._compiler.frame_rows(read[node.name].frame, self._frame_task(node, wiring, first)))
                first += read[node.name].partitions
        united = reduce(DataFrame.union, rows)
        invariant(not frames or settled(united)[1] == first, f"{name}: a source lost partitions in a union")
        return self._compiler.levels(united, graph, wiring, len(self._runs))

    def _source(self, node: Node) -> FrameSource:
        """Return the fields of a DataFrame that it emits, fixed for this graph: another graph reads it again."""
        self.read.append(self.frame(node.name).select(*map(column_called, emitted_fields(node).names)))
        frame, partitions = settled(self.read[-1])
        return FrameSource(frame=frame, partitions=partitions, tasks=[max(1, partitions)])

    def _frame_task(self, node: Node, wiring: TaskWiring, first: int) -> FrameTask | SharedFrameTask:
        return FrameTask(wiring=wiring, name=node.name, first=first, fields=emitted_fields(node))

    def frame(self, name: str) -> DataFrame:
        """Return the DataFrame of a DataFrame bolt, or of a spout that gives one."""
        if name not in self._frames:
            self._frames[name] = self._called(self._bolts[name]) if name in self._bolts else self._of_spout(name)
        return self._frames[name]

    def _called(self, bolt: BoltComponent) -> DataFrame:
        inputs = self._inputs(bolt)
        self.given += inputs
        frame = self._call(bolt, inputs)
        check_leaves(bolt.name, frame, leaves_in(self.given))
        if bolt.fields is not None:
            compare_fields(bolt.name, bolt.fields, frame.schema, set())
        return frame

    def _inputs(self, bolt: BoltComponent) -> list[DataFrame]:
        if self._graphs.is_on_leaves(bolt.name):
            return [self._on_leaf(item.source) for item in bolt.inputs]
        messages = self.messages(bolt.name)
        return [
            leaf_of(messages, ReceivingTask(edge=edge.number, fields=edge.fields), spark_schema(edge.fields))
            for edge in self._graphs.by_name[bolt.name].nodes[bolt.name].inputs
        ]

    def _call(self, bolt: BoltComponent, inputs: list[DataFrame]) -> DataFrame:
        return call_bolt(bolt, inputs, self._compiler.earlier)

    def _on_leaf(self, source: str) -> DataFrame:
        if source in self._bolts:
            return self.frame(source)
        return self._compiler.leaf(source, *self._leaf_order(source))

    def _leaf_order(self, source: str) -> tuple[TupleOrder, TaskWiring]:
        """Return the order and the wiring of a spout that only DataFrame bolts read."""
        specs, order = self._order({source: None})
        self.specs[LEAVES] = [
            replace(spec, sources={**known.sources, **spec.sources})
            for spec, known in zip(specs, self.specs.get(LEAVES, specs), strict=True)
        ]
        wiring = self._compiler.wiring(MAIN, order.text(), self._signer, self._failures_max)
        return order, replace(wiring, graph=LEAVES)

    def _of_spout(self, name: str) -> DataFrame:
        component = next(item for item in self._graphs.topology.spouts if item.name == name)
        metadata = self._runs[0].metadata.get(name)
        if metadata is None:
            return self._context.spark.createDataFrame([], spark_schema(component.spout.fields))
        return call_spout(component, self._context.spark, metadata)

    def _order(self, tasks: Mapping[str, Sequence[int] | None]) -> tuple[list[RunSpec], TupleOrder]:
        runs = []
        for at, run in enumerate(self._runs):
            found = {
                name: max(1, len(run.parts[name])) if counts is None else counts[at] for name, counts in tasks.items()
            }
            runs.append(replace(run, spec=replace(run.spec, sources=found)))
        order = TupleOrder(runs=tuple(runs))
        return list(order.specs), order


def emitted_fields(node: Node) -> Fields:
    """Return the fields of the tuples that a DataFrame emits."""
    return node.outputs[0].fields
