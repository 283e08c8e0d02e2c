"""Where batches come from: each source has a coordinator half on the driver and an emitter half in the tasks. No Spark in here.

The spouts that a user derives from or sets load when they are used: `from txtopo.spouts import TransactionalSpout`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txtopo.spouts.acked import ReliableSpout, RichSpout, SpoutOutputCollector, UnreliableSpout
    from txtopo.spouts.files import FileSpout
    from txtopo.spouts.opaque import OpaquePartitionedTransactionalSpout
    from txtopo.spouts.partitioned import NOTHING, PartitionedTransactionalSpout
    from txtopo.spouts.transactional import EmitterContext, TransactionalSpout

_HOMES = {
    "NOTHING": "txtopo.spouts.partitioned",
    "EmitterContext": "txtopo.spouts.transactional",
    "FileSpout": "txtopo.spouts.files",
    "OpaquePartitionedTransactionalSpout": "txtopo.spouts.opaque",
    "PartitionedTransactionalSpout": "txtopo.spouts.partitioned",
    "ReliableSpout": "txtopo.spouts.acked",
    "RichSpout": "txtopo.spouts.acked",
    "SpoutOutputCollector": "txtopo.spouts.acked",
    "TransactionalSpout": "txtopo.spouts.transactional",
    "UnreliableSpout": "txtopo.spouts.acked",
}

__all__ = [
    "NOTHING",
    "EmitterContext",
    "FileSpout",
    "OpaquePartitionedTransactionalSpout",
    "PartitionedTransactionalSpout",
    "ReliableSpout",
    "RichSpout",
    "SpoutOutputCollector",
    "TransactionalSpout",
    "UnreliableSpout",
]


def __getattr__(name: str) -> Any:
    # PEP 562: who reads files must not wait for the others, and nobody for Arrow before it is needed.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
