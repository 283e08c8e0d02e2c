"""Decides whether a first wave has to be compared with separate runs of its batches."""

from __future__ import annotations

from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.known_formats import is_own
from txtopo.spouts.kafka_spout import KafkaSpout
from txtopo.spouts.sql_table_spout import SqlTableSpout
from txtopo.spouts.table_spout import TableSpout
from txtopo.spouts.tail_spout import TailSpout
from txtopo.spouts.text_spout import TextSpout
from txtopo.topology.components import Spout, Topology
from txtopo.topology.phases import PROCESSING

_SPOUTS = (FileSpout, TailSpout, TextSpout)
"""They read each part of each batch by itself, and keep nothing between two of them, as long as their format is one of
txtopo's own.
"""


def is_apart_by_construction(topology: Topology, *, foreign: str | None = None) -> bool:
    """Return True if no code that could keep something of one batch for another sees the rows of a wave: no custom
    spout or format, no tuple bolt, no custom grouping, no executor half of a custom committer, and no function over
    DataFrames whose plan contains other code than that of Spark; `foreign` names such code. Only what txtopo and Spark
    bring, whose separation the tests of txtopo prove.

    Anything else is compared. A tuple bolt has a copy for each attempt, but a variable of its module is shared; a
    Python function in a column may remember what it saw; and a subclass of a spout may change what it inherits. What
    runs in the commit of a batch sees no wave.
    """
    phases = topology.phases
    processing = [item for item in topology.committers if phases[item.name] == PROCESSING]
    return (
        foreign is None
        and all(_is_known(item.spout) for item in topology.spouts)
        and all(phases[bolt.name] != PROCESSING for bolt in topology.tuple_bolts)
        and all(item.custom is None for committer in processing for item in committer.inputs)
        and not any(item.bolt.runs_code_in_tasks() for item in processing)
    )


def _is_known(spout: Spout) -> bool:
    # Values are read by their layout, so always by txtopo's code.
    if type(spout) in (KafkaSpout, SqlTableSpout, TableSpout):
        return True
    return isinstance(spout, FileSpout | TailSpout) and type(spout) in _SPOUTS and is_own(spout.format)
