"""The graphs of a topology with tuple bolts: one that ends in the committers, and one upstream of each DataFrame bolt
that reads tuples.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import cached_property
from typing import Any

from txtopo.errors import unreachable
from txtopo.topology.components import BoltComponent, Topology
from txtopo.tuples.graph import TaskGraph, build_graph, root_place, sinks_of

MAIN = "committers"
"""Name of the graph whose sinks are the committers. The others have the name of the DataFrame bolt that they feed."""
LEAVES = "leaves"
"""Graph name in the reports of spouts that only DataFrame bolts read."""


class Graphs:
    """The graphs of a topology: a pure function of it."""

    def __init__(self, topology: Topology, ackers: int) -> None:
        self.topology = topology
        # Functions over DataFrames stay in the driver: they may contain a session, which no task can have.
        bare = replace(
            topology,
            bolts=tuple(
                replace(bolt, function=_not_here) if isinstance(bolt, BoltComponent) else bolt
                for bolt in topology.bolts
            ),
        )
        self._on_leaves = _on_leaves(topology)
        self.by_name: dict[str, TaskGraph] = {
            bolt.name: build_graph(bare, [bolt.name], ackers=0, wants_acks=topology.acking == "batch" or ackers > 0)
            for bolt in topology.frame_bolts
            if bolt.name not in self._on_leaves
        }
        """All graphs; a graph that feeds a DataFrame comes before the graph that reads it."""
        self.by_name[MAIN] = build_graph(bare, sinks_of(topology), ackers=ackers)

    @property
    def main(self) -> TaskGraph:
        """The graph that ends in the committers."""
        return self.by_name[MAIN]

    def place(self, root: int) -> tuple[str, int, int]:
        """Return (source, part, number) of a root id, whichever graph it comes from."""
        for graph in self.by_name.values():
            with contextlib.suppress(StopIteration):
                return root_place(graph, root)
        return unreachable("a root of no source")

    def is_on_leaves(self, bolt: str) -> bool:
        """True if only spouts and DataFrame bolts are upstream of this DataFrame bolt."""
        return bolt in self._on_leaves

    @cached_property
    def frames(self) -> tuple[str, ...]:
        """Return everything that is a DataFrame at some place: DataFrame bolts, and spouts that give one."""
        spouts = tuple(item.name for item in self.topology.spouts if item.spout.emits_frame)
        return (*spouts, *(bolt.name for bolt in self.topology.frame_bolts))


def _on_leaves(topology: Topology) -> frozenset[str]:
    """Return the DataFrame bolts with only spouts that emit parts, and bolts of this kind, upstream."""
    known = {item.name for item in topology.spouts if not item.spout.emits_frame}
    spouts = set(known)
    for bolt in topology.frame_bolts:
        if all(item.source in known for item in bolt.inputs):
            known.add(bolt.name)
    return frozenset(known - spouts)


def _not_here(*frames: Any) -> Any:
    unreachable("a function over DataFrames was called in a task")
