"""Transactional batch topologies on Spark: exactly-once batches into Postgres. This is the public face; names load when
they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo._lazy import lazy_exports

if TYPE_CHECKING:
    from txtopo.committers.count_committer import CountCommitter
    from txtopo.committers.new_ids import NewIds
    from txtopo.core.values import TransactionAttempt
    from txtopo.errors import Fenced, Halted, TxtopoError
    from txtopo.spouts.file_spout import FileSpout
    from txtopo.topology.builder import TopologyBuilder
    from txtopo.topology.class_style import ClassTopology
    from txtopo.topology.components import Topology
    from txtopo.topology.specs import Grouping, spec

__version__ = "0.1.0"

_HOMES = {
    "ClassTopology": "txtopo.topology.class_style",
    "CountCommitter": "txtopo.committers.count_committer",
    "Fenced": "txtopo.errors",
    "FileSpout": "txtopo.spouts.file_spout",
    "Grouping": "txtopo.topology.specs",
    "Halted": "txtopo.errors",
    "NewIds": "txtopo.committers.new_ids",
    "Topology": "txtopo.topology.components",
    "TopologyBuilder": "txtopo.topology.builder",
    "TransactionAttempt": "txtopo.core.values",
    "TxtopoError": "txtopo.errors",
    "spec": "txtopo.topology.specs",
}

__all__ = [
    "ClassTopology",
    "CountCommitter",
    "Fenced",
    "FileSpout",
    "Grouping",
    "Halted",
    "NewIds",
    "Topology",
    "TopologyBuilder",
    "TransactionAttempt",
    "TxtopoError",
    "__version__",
    "spec",
]

# Commands that need neither Arrow nor SQLAlchemy must not wait for them.
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
