"""Where batches come from: each source has a coordinator half on the driver and an emitter half in the tasks. No Spark in here.

The spouts that a user derives from or sets load when they are used: `from txtopo.spouts import TransactionalSpout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.lazily import names_when_used

if TYPE_CHECKING:
    from txtopo.spouts.acked import ReliableSpout, RichSpout, SpoutOutputCollector, UnreliableSpout
    from txtopo.spouts.files import FileSpout
    from txtopo.spouts.opaque import OpaquePartitionedTransactionalSpout
    from txtopo.spouts.partitioned import NOTHING, PartitionedTransactionalSpout
    from txtopo.spouts.texts import TextSpout
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
    "TextSpout": "txtopo.spouts.texts",
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
    "TextSpout",
    "TransactionalSpout",
    "UnreliableSpout",
]

# Who reads files must not wait for the others, and nobody for Arrow before it is needed.
__getattr__, __dir__ = names_when_used(__name__, _HOMES)
