"""Numbers the tasks and edges of a topology, and orders them in levels: a pure function of the topology, with the same
result in every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from txtopo.core.fields import Fields
from txtopo.errors import BatchDataError, unreachable
from txtopo.topology.components import (
    BoltComponent,
    CommitterComponent,
    Subscription,
    Topology,
    TupleBoltComponent,
)
from txtopo.topology.outputs import fields_of
from txtopo.topology.partial_counts import PartialCount, counted_before
from txtopo.topology.phases import PROCESSING
from txtopo.topology.streams import DEFAULT_STREAM

ACKER = "$acker"
RECEIVERS = 4
"""Number of tasks that receive the tuples of a DataFrame bolt."""
_PART_BITS = 32
_ROOT_PART_BITS = 14
ROOT_PARTS_MAX = 1 << _ROOT_PART_BITS
"""A batch with more parts than this has no root ids."""
PLACE_BITS = 40
"""Bits of a root id that contain its number in its part; the bits above them are the same for the whole part."""

NodeKind = Literal["spout", "frame", "given", "bolt", "committer", "receiver", "acker"]
"""`given`: a source whose tuples another phase has made. `receiver`: its tasks only receive, for a DataFrame or for a
later phase.
"""
SOURCES: tuple[NodeKind, ...] = ("spout", "frame", "given")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One subscription of one component to one stream."""

    number: int
    """From 0, in the order of the topology."""
    source: str
    stream: str
    target: str
    grouping: str
    """`fields`, `shuffle`, …"""
    subscription: Subscription
    fields: Fields
    """Fields of the stream's tuples."""
    partial: PartialCount | None = None
    """How tuples are grouped on their way to a counting committer, unless they are tracked; None: they are sent one by
    one.
    """

    @property
    def name(self) -> str:
        """See `edge_name`."""
        return edge_name(self.subscription, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A component in the graph."""

    name: str
    kind: NodeKind
    ordinal: int
    """Its number among all nodes."""
    level: int
    """Longest path from a source; sources have 0. Ackers come after all others."""
    tasks: tuple[int, ...] = ()
    """Ids of its tasks, ascending; empty for sources, whose number of tasks differs from batch to batch."""
    inputs: tuple[Edge, ...] = ()
    outputs: tuple[Edge, ...] = ()
    streams: tuple[str, ...] = ()
    """Streams that each task of a source emits on; empty: all of them use the default stream."""


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Everything that runs as tuple tasks for some sinks in one phase: their upstream components up to that phase's
    sources.
    """

    topology: Topology
    nodes: Mapping[str, Node]
    """Sources first, then by level."""
    edges: tuple[Edge, ...]
    levels: int
    """Levels 1 .. levels have tasks."""
    wants_acks: bool = True
    """True if every tuple that a RichBolt receives must be acked or failed unless acking is off."""

    @cached_property
    def owner(self) -> Mapping[int, Node]:
        """The node of each task id."""
        return {task: node for node in self.nodes.values() for task in node.tasks}

    @cached_property
    def sources(self) -> tuple[Node, ...]:
        """Spouts and DataFrames; in the commit phase tuples that committers emitted and earlier phases kept."""
        return tuple(node for node in self.nodes.values() if node.kind in SOURCES)

    @cached_property
    def ackers(self) -> Node | None:
        """The acker, if every tuple is tracked."""
        return self.nodes.get(ACKER)

    def at(self, level: int) -> tuple[Node, ...]:
        """Return the nodes whose tasks run at a level."""
        return tuple(node for node in self.nodes.values() if node.tasks and node.level == level)

    def task_of(self, source: int) -> tuple[Node, int]:
        """Return node and index of a sending task, by its id: also of sources, whose ids are below 0."""
        if source > 0:
            node = self.owner[source]
            return node, source - node.tasks[0]
        ordinal, index = divmod(-source - 1, 1 << _PART_BITS)
        return next(node for node in self.nodes.values() if node.ordinal == ordinal), index

    def source_tasks(self, edge: Edge, sources: Mapping[str, int]) -> Sequence[int]:
        """Return the ids of all tasks that report over an edge, in a run with these `sources` (RunSpec.sources)."""
        node = self.nodes[edge.source]
        return node.tasks or [source_id(node, index) for index in range(sources[node.name])]


def edge_name(read: Subscription, target: str) -> str:
    """Return an edge as reports and `edge_count` show it: `spout -> bolt`, with the stream unless it is the default
    one.
    """
    stream = "" if read.stream == DEFAULT_STREAM else f":{read.stream}"
    return f"{read.source}{stream} -> {target}"


def source_id(node: Node, index: int) -> int:
    """Return the id of the `index`-th task of a source: below 0, and different from all others."""
    return -(node.ordinal << _PART_BITS | index) - 1


def root_id(node: Node, part: int, number: int) -> int:
    """Return the id of a spout tuple: its spout, its part and its number among the tuples of the part, from 0. Raises
    BatchDataError for too many parts.
    """
    if part >= ROOT_PARTS_MAX:
        # Its bits would be those of another spout: another tuple would be blamed.
        raise BatchDataError(
            f"a batch has more than {ROOT_PARTS_MAX} parts: make batches smaller",
            component=node.name,
            fault="too many parts",
        )
    return (node.ordinal << _ROOT_PART_BITS | part) << PLACE_BITS | number


def root_place(graph: TaskGraph, root: int) -> tuple[str, int, int]:
    """Return (spout, part, number) of a root id."""
    head, number = divmod(root, 1 << PLACE_BITS)
    ordinal, part = divmod(head, 1 << _ROOT_PART_BITS)
    return next(node.name for node in graph.nodes.values() if node.ordinal == ordinal), part, number


def build_graph(
    topology: Topology, sinks: Sequence[str], *, ackers: int, phase: int = PROCESSING, wants_acks: bool | None = None
) -> TaskGraph:
    """Return the graph of the components that `sinks` need in one phase (see `phases_of`). A sink is a committer or
    bolt; a DataFrame bolt gets receiver tasks.

    `ackers` is the number of acker tasks; 0 if tuples are not tracked. A component of a later phase gets receiver tasks
    for what it reads of this one: its other inputs do not exist yet. Sources of the commit phase are committers, and
    components of earlier phases. Task ids are those of the whole topology, whatever the sinks and the phase.
    `wants_acks` says whether a RichBolt must ack or fail its tuples in a graph without ackers, as upstream of a
    DataFrame bolt and downstream of a committer; None: it depends on the topology's acking and on `ackers`.
    """
    asked = topology.acking == "batch" or ackers > 0 if wants_acks is None else wants_acks
    return replace(_Layout(topology, sinks, ackers, phase).graph(), wants_acks=asked)


def sinks_of(topology: Topology, phase: int = PROCESSING) -> list[str]:
    """Return the sinks of a phase: what passes tuples to later phases, and bolts that nothing reads.

    Bolts that nothing reads work for their side effects, without any guarantee, but they run.
    """
    read = {item.source for component in (*topology.bolts, *topology.committers) for item in component.inputs}
    ends = [bolt.name for bolt in topology.tuple_bolts if topology.phases[bolt.name] == phase and bolt.name not in read]
    return handed_over(topology, phase) + ends


def handed_over(topology: Topology, phase: int = PROCESSING) -> list[str]:
    """Return the names of the results of a phase: its committers, and components of later phases that read something of
    it.
    """
    phases = topology.phases
    components: Sequence[TupleBoltComponent | CommitterComponent] = (*topology.tuple_bolts, *topology.committers)
    committers = [item.name for item in topology.committers if phases[item.name] == phase]
    return committers + [
        one.name
        for one in components
        if phases[one.name] > phase and any(is_read_in(topology, item, phase) for item in one.inputs)
    ]


def is_read_in(topology: Topology, item: Subscription, phase: int) -> bool:
    """True if the tuples of this subscription, of a component of a later phase, already exist in `phase`."""
    is_committer = any(item.source == one.name for one in topology.committers)
    return not is_committer and topology.phases.get(item.source, PROCESSING) == phase


class _Layout:
    """Builds one graph."""

    def __init__(self, topology: Topology, sinks: Sequence[str], ackers: int, phase: int) -> None:
        self._topology = topology
        self._phase = phase
        self._sinks = sinks
        self._ackers = ackers
        self._names = [
            *(item.name for item in topology.spouts),
            *(bolt.name for bolt in topology.bolts),
            *(item.name for item in topology.committers),
        ]
        self._committers = {item.name: item for item in topology.committers}
        self._bolts = {bolt.name: bolt for bolt in topology.bolts}
        self._levels: dict[str, int] = {}
        self._edges: list[Edge] = []

    def graph(self) -> TaskGraph:
        tasks = task_ids(self._topology)
        for sink in self._sinks:
            self._visit(sink, sink=True)
        last = max(self._levels.values(), default=0)
        nodes = {
            name: Node(
                name=name,
                kind=self._kind(name),
                ordinal=self._names.index(name),
                level=self._levels[name],
                tasks=tuple(tasks[name]) if self._levels[name] else (),
                inputs=tuple(edge for edge in self._edges if edge.target == name),
                outputs=tuple(edge for edge in self._edges if edge.source == name),
                streams=self._given(name) if self._kind(name) == "given" else (),
            )
            for name in sorted(self._levels, key=lambda name: (self._levels[name], self._names.index(name)))
        }
        if self._ackers:
            first = max((task for ids in tasks.values() for task in ids), default=0) + 1
            last += 1
            nodes[ACKER] = Node(
                name=ACKER,
                kind="acker",
                ordinal=len(self._names),
                level=last,
                tasks=tuple(range(first, first + self._ackers)),
            )
        return TaskGraph(topology=self._topology, nodes=nodes, edges=tuple(self._edges), levels=last)

    def _visit(self, name: str, *, sink: bool = False) -> int:
        """Return the level of a component, after visiting everything upstream of it."""
        if name in self._levels:
            return self._levels[name]
        if not sink and self._is_source(name):
            self._levels[name] = 0
            return 0
        component = self._committers.get(name) or self._bolts[name]
        is_later = self._of_phase(name) > self._phase
        read = [item for item in component.inputs if not is_later or is_read_in(self._topology, item, self._phase)]
        level = 1 + max((self._visit(item.source) for item in read), default=0)
        self._levels[name] = level
        for item in read:
            fields = self._topology.fields_of(item.source, item.stream)
            # Receivers pass on everything: groupings are for the tasks that do the work.
            grouping = "shuffle" if is_later else item.grouping or "shuffle"
            self._edges.append(
                Edge(
                    number=len(self._edges),
                    source=item.source,
                    stream=item.stream,
                    target=name,
                    grouping=grouping,
                    subscription=item,
                    fields=fields if fields is not None else unreachable(f"{item.source} declares no fields"),
                    partial=self._partial(name, fields),
                )
            )
        return level

    def _partial(self, name: str, fields: Fields | None) -> PartialCount | None:
        """Return how tuples are grouped on their way to a component. In the commit phase nothing is: there every tuple
        is counted while it is emitted.
        """
        committer = self._committers.get(name)
        if committer is None or fields is None or self._phase != PROCESSING or self._of_phase(name) != PROCESSING:
            return None
        found = counted_before(committer, fields)
        return None if isinstance(found, str) else found

    def _is_frame(self, name: str) -> bool:
        return isinstance(self._bolts.get(name), BoltComponent)

    def _of_phase(self, name: str) -> int:
        return self._topology.phases.get(name, PROCESSING)

    def _is_source(self, name: str) -> bool:
        """True if its tuples exist when the phase begins."""
        is_early = name in self._committers or name not in self._bolts or self._of_phase(name) < self._phase
        return is_early if self._phase else name not in self._bolts or self._is_frame(name)

    def _given(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(edge.stream for edge in self._edges if edge.source == name))

    def _kind(self, name: str) -> NodeKind:
        if self._of_phase(name) > self._phase:
            return "receiver"
        if self._phase and not self._levels[name]:
            return "given"
        if name in self._committers:
            return "committer"
        if name not in self._bolts:
            return "spout"
        if self._is_frame(name):
            return "receiver" if self._levels[name] else "frame"
        return "bolt"


def is_hidden(component: str) -> bool:
    """True for a component that a test added, which no other component may see. Users' names cannot begin like it."""
    return component.startswith("$")


def surroundings(topology: Topology, component: str) -> dict[str, Any]:
    """Return the description of the components around this one, for a TopologyContext."""
    readers = {item.name: item.inputs for item in (*topology.bolts, *topology.committers)}
    streams = {(item.name, DEFAULT_STREAM): item.spout.fields for item in topology.spouts}
    for item in (*topology.bolts, *topology.committers):
        if isinstance(item, BoltComponent):
            streams |= {} if item.fields is None else {(item.name, DEFAULT_STREAM): item.fields}
        else:
            streams |= {(item.name, name): fields_of(stream) for name, stream in item.outputs.items()}
    return {
        "component_ids": (*(item.name for item in topology.spouts), *(name for name in readers if not is_hidden(name))),
        "this_sources": {(one.source, one.stream): one.grouping for one in readers.get(component, ())},
        "output_fields": {place: fields.names for place, fields in streams.items()},
    }


def task_ids(topology: Topology) -> Mapping[str, Sequence[int]]:
    """Return the ids of the tasks of every bolt and committer, from 1, in the order of the topology. A DataFrame bolt
    has ids for what it receives.
    """
    ids: dict[str, Sequence[int]] = {}
    first = 1
    for component in (*topology.bolts, *topology.committers):
        count = RECEIVERS if isinstance(component, BoltComponent) else component.tasks
        ids[component.name] = range(first, first + count)
        first += count
    return ids
