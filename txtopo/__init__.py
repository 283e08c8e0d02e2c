"""Transactional batch topologies on Spark: exactly-once batches into Postgres. This is the public face; names load when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txtopo.committers.counting import CountCommitter
    from txtopo.committers.seen import NewIds
    from txtopo.core.values import TransactionAttempt
    from txtopo.errors import Fenced, Halted, TxtopoError
    from txtopo.spouts.files import FileSpout
    from txtopo.topology.builder import TopologyBuilder
    from txtopo.topology.class_style import ClassTopology
    from txtopo.topology.components import Topology
    from txtopo.topology.specs import Grouping, spec

__version__ = "0.1.0"

_HOMES = {
    "ClassTopology": "txtopo.topology.class_style",
    "CountCommitter": "txtopo.committers.counting",
    "Fenced": "txtopo.errors",
    "FileSpout": "txtopo.spouts.files",
    "Grouping": "txtopo.topology.specs",
    "Halted": "txtopo.errors",
    "NewIds": "txtopo.committers.seen",
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


def __getattr__(name: str) -> Any:
    # PEP 562: commands that need neither Arrow nor SQLAlchemy must not wait for them.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
