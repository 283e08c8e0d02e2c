"""Plans several runs as one job where functions over DataFrames are among tuple bolts: each row carries the number of
its source task past the functions, if these treat each row by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from txtopo.errors import invariant
from txtopo.spark.emit import HIDDEN
from txtopo.spark.frames.aggregate import column_called
from txtopo.spark.frames.frame_plan import call_bolt, carried, check_own_code
from txtopo.spark.frames.planned_frames import settled
from txtopo.spark.frames.row_local_check import CarriedFrame, NotCarriedError
from txtopo.spark.frames.user_jobs import own_jobs
from txtopo.spark.jobs import Run
from txtopo.spark.tuples.graph_planning import FrameSource, GraphPlanning, emitted_fields
from txtopo.spark.tuples.shared_tasks import Share, SharedFrameTask, share_of_receivers
from txtopo.spark.tuples.tuple_tasks import TaskWiring
from txtopo.topology.components import BoltComponent
from txtopo.tuples.graph import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carrier:
    """What carries the numbers to a DataFrame."""

    leaf: DataFrame
    """With the column HIDDEN."""
    share: Share
    way: tuple[str, ...]
    """The DataFrame bolts between the leaf and the DataFrame."""


class SharedPlanning(GraphPlanning):
    """Plans several runs. Raises NotCarriedError with the function that may see more than its own batch."""

    def __init__(self, *arguments: Any, waiting: Sequence[Run] = ()) -> None:
        """`waiting` are the runs that the plan is for; none at the start."""
        super().__init__(*arguments)
        self._waiting = waiting
        self._carriers: dict[str, _Carrier] = {}
        self._without_messages = False

    def check(self) -> str | None:
        """Call all functions, and carry the numbers past them, without planning what is upstream of their tasks.
        Returns the first with code that is not Spark's own.
        """
        self._without_messages = True
        for item in self._graphs.topology.spouts:
            if item.spout.emits_frame:
                raise NotCarriedError(f"spout {item.name} returns a DataFrame that does not show the batch of a row")
        found = [self._carried(bolt.name).foreign for bolt in self._graphs.topology.frame_bolts]
        return next(filter(None, found), None)

    def _source(self, node: Node) -> FrameSource:
        rows, foreign = self._carried(node.name)
        check_own_code(foreign, compares=self._compiler.compares)
        share = self._carriers[node.name].share
        self.read.append(rows.select(*map(column_called, [*emitted_fields(node).names, HIDDEN])))
        frame, partitions = settled(self.read[-1])
        if partitions not in (0, len(share.partitions)):
            raise NotCarriedError(f"bolt {node.name} has other partitions than what it reads")
        tasks = share.counts if partitions else [1] * len(self._runs)
        return FrameSource(frame=frame, partitions=partitions, tasks=tasks)

    def _frame_task(self, node: Node, wiring: TaskWiring, first: int) -> SharedFrameTask:
        share = self._carriers[node.name].share
        return SharedFrameTask(wiring=wiring, name=node.name, first=first, fields=emitted_fields(node), share=share)

    def _carried(self, name: str) -> CarriedFrame:
        """Return the DataFrame of a bolt with the numbers of its rows."""
        self.frame(name)
        carrier = self._carriers[name]
        return carried(carrier.way, self._frames, carrier.leaf, name)

    def _inputs(self, bolt: BoltComponent) -> list[DataFrame]:
        if len(bolt.inputs) > 1:
            raise NotCarriedError(f"bolt {bolt.name} reads several streams")
        source = bolt.inputs[0].source
        if self._graphs.is_on_leaves(bolt.name) and source in self._bolts:
            given = self.frame(source)
            carrier = self._carriers[source]
        else:
            carrier = self._of_leaf(source) if self._graphs.is_on_leaves(bolt.name) else self._of_receivers(bolt)
            given = carrier.leaf.drop(HIDDEN)
        self._carriers[bolt.name] = replace(carrier, way=(*carrier.way, bolt.name))
        return [given]

    def _call(self, bolt: BoltComponent, inputs: list[DataFrame]) -> DataFrame:
        with own_jobs(inputs[0].sparkSession) as own:
            frame = call_bolt(bolt, inputs, self._compiler.earlier)
        # Nothing else runs at the start, so a job in a thread that does not inherit the properties is noticed as well.
        if own.any() if self._waiting else own.any_in_process():
            raise NotCarriedError(f"bolt {bolt.name} runs a Spark job while it is called")
        return frame

    def _of_leaf(self, spout: str) -> _Carrier:
        order, wiring = self._leaf_order(spout)
        fields = next(item.spout.fields for item in self._graphs.topology.spouts if item.name == spout)
        _check_names(f"spout {spout}", fields.names)
        leaf, share = self._compiler.shared_leaf(spout, order, wiring)
        return _Carrier(leaf=leaf, share=share, way=())

    def _of_receivers(self, bolt: BoltComponent) -> _Carrier:
        node = self._graphs.by_name[bolt.name].nodes[bolt.name]
        (edge,) = node.inputs
        _check_names(f"{edge.source}", edge.fields.names)
        partitions = self._compiler.partitions(len(node.tasks) * len(self._runs))
        invariant(self._compiler.partitions(len(node.tasks)) == len(node.tasks), "a receiver task has no own partition")
        share = share_of_receivers(len(self._runs), node.tasks, partitions)
        messages = self._compiler.no_messages() if self._without_messages else self.messages(bolt.name)
        return _Carrier(leaf=self._compiler.shared_receivers(messages, edge, share), share=share, way=())


def _check_names(component: str, names: Sequence[str]) -> None:
    if HIDDEN in map(str.lower, names):
        raise NotCarriedError(f"{component} has a field that is called {HIDDEN}")
