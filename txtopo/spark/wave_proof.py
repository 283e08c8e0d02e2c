"""Decides whether a first wave has to be compared with separate runs of its batches."""

from __future__ import annotations

from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.known_formats import is_own
from txtopo.spouts.text_spout import TextSpout
from txtopo.topology.components import Spout, Topology

_SPOUTS = (FileSpout, TextSpout)
"""They read each part of each batch by itself, and keep nothing between two of them, as long as their format is one of
txtopo's own.
"""


def is_apart_by_construction(topology: Topology) -> bool:
    """Return True if no code that could keep something of one batch for another sees the rows of a wave: no bolt, no
    custom spout or format, no custom committer; only what txtopo brings, whose separation its own tests prove.

    Anything else is compared. A tuple bolt has a copy for each attempt, but a variable of its module is shared; a
    function over DataFrames may remember what it saw; and a subclass of a spout may change what it inherits.
    """
    # Without tuples, committers only say what is counted: their code sees no row.
    return not topology.bolts and not topology.has_tuples and all(_is_known(item.spout) for item in topology.spouts)


def _is_known(spout: Spout) -> bool:
    return isinstance(spout, FileSpout) and type(spout) in _SPOUTS and is_own(spout.format)
