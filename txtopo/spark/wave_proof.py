"""Decides whether a first wave has to be compared with separate runs of its batches."""

from __future__ import annotations

from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.text_spout import TextSpout
from txtopo.topology.components import Topology

_SPOUTS = (FileSpout, TextSpout)
"""They read each part of each batch by itself, and keep nothing between two of them."""


def is_apart_by_construction(topology: Topology) -> bool:
    """Return True if no code that could keep something of one batch for another sees the rows of a wave: no bolt, no
    custom spout, no custom committer; only what txtopo brings, whose separation its own tests prove.

    Anything else is compared. A tuple bolt has a copy for each attempt, but a variable of its module is shared; a
    function over DataFrames may remember what it saw; and a subclass of a spout may change what it inherits.
    """
    # Without tuples, committers only say what is counted: their code sees no row.
    return (
        not topology.bolts and not topology.has_tuples and all(type(item.spout) in _SPOUTS for item in topology.spouts)
    )
