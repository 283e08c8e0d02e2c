"""The plan of a Trident topology: steps as pure data, each with its fields, its parents and the caller's line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import Spout
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.spark_types import FrameFunction, RowsPromise
from txtopo.topology.tuple_bolts import CustomStreamGrouping, TupleBolt
from txtopo.trident.links import Link
from txtopo.trident.state_query import StateQuery

_ROOM = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """Where a step stands: what errors and `explain` say of it."""

    stream: str
    number: int
    """From 1, in its stream; 0 is the start of the stream."""
    label: str
    """Such as `map(clean)`."""
    at: str
    """`file:line` of the call."""

    @property
    def who(self) -> str:
        """The step in an error of the program that declares it."""
        if not self.number:
            return f"stream {self.stream!r} at {self.at}"
        return f"stream {self.stream!r}, step {self.number} {self.label} at {self.at}"

    @property
    def place(self) -> str:
        """The step in the failure of a batch."""
        return f"step {self.number} {self.label} of stream {self.stream}, {self.at}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanNode:
    """One step of the plan; its tuples have `fields`."""

    step: StreamStep
    fields: Fields
    parents: tuple[PlanNode, ...] = ()
    turn: str | None = None
    """Name of a committer upstream of it; None: it runs in the processing phase."""
    base: str
    """What names of components that are made for it begin with."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpoutNode(PlanNode):
    """The start of a stream."""

    spout: Spout
    tasks: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkNode(PlanNode):
    """A step that runs inside a chain."""

    link: Link


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegroupNode(PlanNode):
    """A repartition: how tuples reach the tasks of the next component."""

    grouping: str
    names: tuple[str, ...] = ()
    custom: CustomStreamGrouping | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MergeNode(PlanNode):
    """Tuples of several streams with equal fields."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoltNode(PlanNode):
    """A bolt of the user."""

    name: str
    bolt: TupleBolt
    tasks: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameNode(PlanNode):
    """A function over DataFrames."""

    function: FrameFunction
    rows: RowsPromise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitterNode(PlanNode):
    """What keeps a stream; its fields are those that it emits downstream, if it does."""

    name: str
    committer: CommitterBolt
    emitting: CommitterBolt | None = None
    """The same committer if its new values are read; None: `committer` serves both."""
    table: KeyedTable | None = None
    """What can be asked; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueryNode(PlanNode):
    """A step that asks a state."""

    state: CommitterNode
    query: StateQuery


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HintNode(PlanNode):
    """The number of tasks of the steps back to the last repartition."""

    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NameNode(PlanNode):
    """The name of the component that runs the step before."""

    name: str


ANNOTATIONS = (HintNode, NameNode)
"""Nodes that say something of the step before, and do nothing with tuples."""


@dataclass(slots=True, eq=False)
class StreamPlan:
    """All nodes of a topology, in the order of the calls that made them."""

    topology: str
    query: str | None = None
    """Name of the query that it answers outside of batches; None: it is the plan of the topology."""
    main: StreamPlan | None = None
    """The plan of the topology whose states a query asks."""
    nodes: list[PlanNode] = field(default_factory=list)

    def add(self, node: PlanNode) -> None:
        """Add a node; its parents are there already."""
        self.nodes.append(node)

    @property
    def sinks(self) -> list[CommitterNode]:
        """Return what keeps streams, in the order of the calls."""
        return [node for node in self.nodes if isinstance(node, CommitterNode)]

    def check_new(self, who: str, name: str) -> None:
        """Raise TopologyError if something durable, or a bolt of the user, has this name already."""
        for node in self.nodes:
            if name_of(node) == name:
                raise TopologyError(f"{who}: the name {name!r} is taken by {node.step.who}")


ANSWER = "the_answer"
"""Component at the end of a query."""


def query_end(plan: StreamPlan) -> PlanNode:
    """Return the node whose tuples are the answer of a query. Raises TopologyError unless there is exactly one end."""
    read = {parent for node in plan.nodes for parent in node.parents}
    ends = [node for node in plan.nodes if node not in read]
    if len(ends) > 1:
        at = ", ".join(f"step {node.step.number} {node.step.label} at {node.step.at}" for node in ends)
        raise TopologyError(f"query {plan.query!r} has {len(ends)} ends, {at}: merge them, or remove all but one")
    if isinstance(ends[0], SpoutNode):
        raise TopologyError(f"query {plan.query!r} at {ends[0].step.at} has no step")
    return ends[0]


def check_together(who: str, one: StreamPlan, other: StreamPlan) -> None:
    """Raise TopologyError if two streams cannot meet."""
    if one is other:
        return
    query = one.query or other.query
    if query is None or {one.query, other.query} - {query, None}:
        raise TopologyError(f"{who}: the other stream belongs to another topology or query")
    raise TopologyError(f"{who}: query {query!r} is answered outside of batches, and cannot meet a stream of batches")


def name_of(node: PlanNode) -> str | None:
    """Return the name that the user gave to a component; None: it gets one."""
    match node:
        case SpoutNode():
            return node.step.stream
        case BoltNode() | CommitterNode() | NameNode():
            return node.name
    return None


def chain_before(node: PlanNode) -> Iterator[PlanNode]:
    """Yield a node and what stands before it, back to the last repartition, merge or component."""
    while True:
        yield node
        if not isinstance(node, LinkNode | HintNode | NameNode):
            return
        node = node.parents[0]


def caller() -> str:
    """Return `file:line` of the innermost call from outside of this room."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(Path(frame.f_code.co_filename).parent) == _ROOM:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
