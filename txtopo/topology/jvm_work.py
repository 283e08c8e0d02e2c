"""Decides what the driver's JVM has to do for a topology: a pure function of the topology."""

from __future__ import annotations

from enum import StrEnum

from txtopo.topology.components import Topology


class JvmWork(StrEnum):
    """What the JVM computes, and so which of its code Java's optimising compiler, C2, is worth."""

    MESSAGES = "messages"
    """It only passes on messages of the tuple runtime, which Python tasks compute: C1, the fast compiler, is enough.
    C2, which optimises for long loops over rows, would cost more CPU than it saves.
    """
    GROUPS = "groups"
    """It adds up what Python tasks have counted, with Spark's code alone. With many different keys the tasks send them
    one by one, so the loops over rows are worth C2, but nothing else is.
    """
    ROWS = "rows"
    """It runs functions over DataFrames or spouts that give one, with code of users and of any library."""


def jvm_work(topology: Topology) -> JvmWork:
    """Return what the JVM has to compute for this topology."""
    if topology.frame_bolts or any(item.spout.emits_frame for item in topology.spouts):
        return JvmWork.ROWS
    return JvmWork.MESSAGES if topology.has_tuples else JvmWork.GROUPS
