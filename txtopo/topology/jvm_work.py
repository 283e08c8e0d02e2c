"""Decides what the driver's JVM has to do for a topology: a pure function of the topology."""

from __future__ import annotations

from txtopo.topology.components import Topology
from txtopo.topology.partial_counts import PartialCount, counted_in_spout


def is_light_for_the_jvm(topology: Topology) -> bool:
    """Return True if the JVM only passes on what Python tasks compute: messages of the tuple runtime, or groups that
    the tasks of the spouts count. False if it computes with rows: functions over DataFrames, spouts that give a
    DataFrame, tuples that are counted one by one.

    Then its fast compiler, C1, is enough: C2, which optimises for long loops over rows, would cost more CPU than it
    saves.
    """
    if topology.frame_bolts or any(item.spout.emits_frame for item in topology.spouts):
        return False
    counted = (counted_in_spout(topology, item.name) for item in topology.spouts)
    return topology.has_tuples or all(isinstance(found, PartialCount) for found in counted)
