"""Makes a Topology of a plan: steps between two repartitions become one bolt, everything else is a component that
exists already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txtopo.errors import TopologyError, unreachable
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Acking, Guarantee, Topology
from txtopo.topology.declarer import BoltDeclarer
from txtopo.topology.tuple_bolts import CustomStreamGrouping
from txtopo.trident.chain import StepChain
from txtopo.trident.checks import checked_name
from txtopo.trident.links import Link
from txtopo.trident.nodes import (
    ANNOTATIONS,
    BoltNode,
    CommitterNode,
    FrameNode,
    HintNode,
    LinkNode,
    MergeNode,
    NameNode,
    PlanNode,
    QueryNode,
    RegroupNode,
    SpoutNode,
    StreamPlan,
    name_of,
)

TASKS = 4
"""Tasks of steps without a hint, unless what they read decides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEdge:
    """One input of a component."""

    source: str
    tasks: int | None
    """Tasks of the source; None: one for each part of a batch."""
    grouping: str | None = None
    """None: the plan says nothing of it."""
    names: tuple[str, ...] = ()
    custom: CustomStreamGrouping | None = None


class StreamCompiler:
    """Compiles one plan once."""

    def __init__(self, plan: StreamPlan, *, acking: Acking, guarantee: Guarantee, config: Mapping[str, Any]) -> None:
        self._plan = plan
        self._builder = TopologyBuilder(plan.topology, acking=acking, guarantee=guarantee, config=config)
        self._tracked = acking == "tuple"
        self._edges: dict[PlanNode, Sequence[InputEdge]] = {}
        self._numbers: dict[str, int] = {}
        self._taken = {name for node in plan.nodes if (name := name_of(node)) is not None}
        kept = self._ancestors()
        self._readers: dict[PlanNode, int] = {}
        for node in kept:
            for parent in node.parents:
                self._readers[parent] = self._readers.get(parent, 0) + 1

    def build(self, module_file: str | None) -> Topology:
        """Return the topology. Raises TopologyError for a stream that nothing keeps, and as TopologyBuilder does."""
        self._check_ends()
        for node in self._plan.nodes:
            if isinstance(node, SpoutNode):
                self._builder.set_spout(node.step.stream, node.spout, node.tasks)
        for sink in self._plan.sinks:
            self._output(sink)
        return self._builder.build(module_file=module_file)

    def _check_ends(self) -> None:
        read = {parent for node in self._plan.nodes for parent in node.parents}
        for node in self._plan.nodes:
            if node not in read and not isinstance(node, CommitterNode):
                before = node
                while isinstance(before, ANNOTATIONS):
                    before = before.parents[0]
                step = before.step
                end = (
                    f"ends at step {step.number} {step.label} at {step.at}"
                    if step.number
                    else f"at {step.at} has no step"
                )
                raise TopologyError(
                    f"stream {step.stream!r} {end}, and nothing keeps it: write persistent_aggregate or persist, or "
                    f"remove it"
                )

    def _ancestors(self) -> list[PlanNode]:
        found: dict[PlanNode, None] = {}
        waiting: list[PlanNode] = [*self._plan.sinks]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found[node] = None
                waiting.extend(node.parents)
        return list(found)

    def _output(self, node: PlanNode) -> Sequence[InputEdge]:
        """Return what to read for the tuples of a node; its components are made once."""
        if node not in self._edges:
            self._edges[node] = self._made(node)
        return self._edges[node]

    def _made(self, node: PlanNode) -> Sequence[InputEdge]:
        match node:
            case SpoutNode():
                return [InputEdge(source=node.step.stream, tasks=node.tasks)]
            case RegroupNode():
                return self._regrouped(node)
            case MergeNode():
                return self._merged(node)
            case BoltNode():
                return self._bolt(node)
            case FrameNode():
                return self._frame(node)
            case CommitterNode():
                return self._committer(node)
            case QueryNode():
                return self._state_query(node)
        return self._chain(node)

    def _regrouped(self, node: RegroupNode) -> Sequence[InputEdge]:
        edges = self._output(node.parents[0])
        if any(edge.grouping is not None for edge in edges):
            # Two repartitions in a row: between them stands a chain without steps.
            edges = [self._identity(node.parents[0], edges)]
        return [replace(edge, grouping=node.grouping, names=node.names, custom=node.custom) for edge in edges]

    def _merged(self, node: MergeNode) -> Sequence[InputEdge]:
        found: list[InputEdge] = []
        for parent in node.parents:
            for edge in self._output(parent):
                twice = any(edge.source == other.source for other in found)
                found.append(self._identity(parent, [edge]) if twice else edge)
        return found

    def _chain(self, node: PlanNode) -> Sequence[InputEdge]:
        """Return the edge of a component with the steps up to a node: all that no other stream reads in between."""
        links: list[Link] = []
        tasks: int | None = None
        name: str | None = None
        top: PlanNode = node
        while isinstance(top, LinkNode | HintNode | NameNode) and (top is node or self._readers[top] == 1):
            if isinstance(top, LinkNode):
                links.insert(0, top.link)
            elif isinstance(top, HintNode):
                tasks = top.tasks
            elif not isinstance(top.parents[0], FrameNode | QueryNode):
                name = name or top.name
            top = top.parents[0]
        if not links and tasks is None and isinstance(top, FrameNode | QueryNode):
            return self._output(top)
        return [self._component(node, links, self._output(top), name, tasks)]

    def _identity(self, node: PlanNode, edges: Sequence[InputEdge]) -> InputEdge:
        return self._component(node, [], edges, None, None)

    def _component(
        self, node: PlanNode, links: Sequence[Link], inputs: Sequence[InputEdge], name: str | None, hint: int | None
    ) -> InputEdge:
        name = name or self._new_name(node)
        tasks = hint or self._tasks(node, inputs)
        bolt = StepChain(links, node.fields, tracked=self._tracked)
        self._read(node, self._builder.set_bolt(name, bolt, parallelism_hint=tasks), inputs, tasks)
        return InputEdge(source=name, tasks=tasks)

    def _tasks(self, node: PlanNode, inputs: Sequence[InputEdge]) -> int:
        """Return the number of tasks of steps without a hint: one after `global_`, otherwise as many as what they
        read has, so that tuples stay where they are.
        """
        groupings = {edge.grouping for edge in inputs}
        if groupings == {"global"}:
            return 1
        found = {edge.tasks for edge in inputs if edge.tasks is not None}
        return max(found) if len(found) and groupings <= {None, "identity", "local_or_shuffle"} else TASKS

    def _bolt(self, node: BoltNode) -> Sequence[InputEdge]:
        inputs = self._output(node.parents[0])
        tasks = node.tasks or self._tasks(node, inputs)
        self._read(node, self._builder.set_bolt(node.name, node.bolt, parallelism_hint=tasks), inputs, tasks)
        return [InputEdge(source=node.name, tasks=tasks)]

    def _frame(self, node: FrameNode) -> Sequence[InputEdge]:
        parent = node.parents[0]
        inputs = self._output(parent)
        if any(edge.grouping is not None for edge in inputs):
            raise TopologyError(
                f"{node.step.who}: a function over DataFrames gets whole DataFrames, so the repartition before it has "
                f"no effect: remove it"
            )
        if len(inputs) > 1:
            inputs = [self._identity(parent, inputs)]
        name = self._name_after(node) or self._new_name(node)
        self._builder.set_bolt(name, node.function, inputs=inputs[0].source, fields=node.fields, rows=node.rows)
        return [InputEdge(source=name, tasks=None)]

    def _name_after(self, node: PlanNode) -> str | None:
        return next(
            (one.name for one in self._plan.nodes if isinstance(one, NameNode) and one.parents == (node,)), None
        )

    def _committer(self, node: CommitterNode) -> Sequence[InputEdge]:
        parent = node.parents[0]
        inputs = self._output(parent)
        if len(inputs) > 1:
            inputs = [self._identity(parent, inputs)]
        tasks = self._tasks(node, inputs)
        # New values cost a statement a batch.
        bolt = node.emitting if node.emitting is not None and self._readers.get(node) else node.committer
        declarer = self._builder.set_committer_bolt(node.name, bolt, parallelism_hint=tasks)
        self._read(node, declarer, inputs, tasks)
        return [InputEdge(source=node.name, tasks=1)]

    def _state_query(self, node: QueryNode) -> Sequence[InputEdge]:
        inputs = self._output(node.parents[0])
        name = self._name_after(node) or self._new_name(node)
        tasks = self._tasks(node, inputs)
        self._read(node, self._builder.set_committer_bolt(name, node.query, parallelism_hint=tasks), inputs, tasks)
        return [InputEdge(source=name, tasks=1)]

    def _read(self, node: PlanNode, declarer: BoltDeclarer, inputs: Sequence[InputEdge], tasks: int) -> None:
        for edge in inputs:
            try:
                _grouped(node, declarer, edge, tasks)
            except TopologyError as error:
                if str(error).startswith("stream "):
                    raise
                raise TopologyError(f"{node.step.who}: {error}") from error

    def _new_name(self, node: PlanNode) -> str:
        while True:
            number = self._numbers[node.base] = self._numbers.get(node.base, 0) + 1
            name = f"{node.base}_{number}"
            if name not in self._taken:
                self._taken.add(name)
                try:
                    return checked_name(node.step.who, name)
                except TopologyError as error:
                    raise TopologyError(f"{error}; give the step a shorter one with .name(…)") from error


def _grouped(node: PlanNode, declarer: BoltDeclarer, edge: InputEdge, tasks: int) -> None:
    match edge.grouping:
        case None | "local_or_shuffle":
            declarer.local_or_shuffle_grouping(edge.source)
        case "identity":
            if edge.tasks != tasks:
                has = "a task for each part of a batch" if edge.tasks is None else f"{edge.tasks} tasks"
                raise TopologyError(
                    f"{node.step.who}: identity_partition needs as many tasks on both sides; {edge.source} has {has}, "
                    f"and this step {tasks}: set both with parallelism_hint"
                )
            declarer.local_or_shuffle_grouping(edge.source)
        case "shuffle":
            declarer.shuffle_grouping(edge.source)
        case "fields":
            declarer.fields_grouping(edge.source, edge.names)
        case "global":
            declarer.global_grouping(edge.source)
        case "all":
            declarer.all_grouping(edge.source)
        case "custom":
            declarer.custom_grouping(edge.source, edge.custom or unreachable("a custom grouping has an object"))
        case _:
            unreachable(f"unknown grouping {edge.grouping!r}")
