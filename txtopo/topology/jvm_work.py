"""Decides what the driver's JVM has to do for a topology: a pure function of the topology."""

from __future__ import annotations

from txtopo.topology.components import Topology


def is_light_for_the_jvm(topology: Topology) -> bool:
    """Return True if the JVM only passes on messages of the tuple runtime, which Python tasks compute. False if it may
    compute with rows: functions over DataFrames, spouts that give a DataFrame, and tuples of spouts that committers
    count without tuple bolts: with many different keys the tasks send them one by one.

    Then its fast compiler, C1, is enough: C2, which optimises for long loops over rows, would cost more CPU than it
    saves.
    """
    if topology.frame_bolts or any(item.spout.emits_frame for item in topology.spouts):
        return False
    return topology.has_tuples
