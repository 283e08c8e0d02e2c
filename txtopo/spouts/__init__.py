"""Sources of batches: each spout has a coordinator half in the driver and an emitter half in the tasks. This package
does not use Spark.

The public names are listed in `__all__` and are imported on first use: `from txtopo.spouts import TransactionalSpout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo._lazy import lazy_exports

if TYPE_CHECKING:
    from txtopo.spouts.acked_spout import MessageId, ReliableSpout, RichSpout, SpoutOutputCollector, UnreliableSpout
    from txtopo.spouts.file_spout import FileSpout
    from txtopo.spouts.kafka_spout import KafkaSpout
    from txtopo.spouts.opaque import OpaquePartitionedTransactionalSpout
    from txtopo.spouts.partitioned import (
        NOTHING,
        NamedCoordinator,
        PartitionedCoordinator,
        PartitionedEmitter,
        PartitionedTransactionalSpout,
    )
    from txtopo.spouts.sql_table_spout import SqlTableSpout
    from txtopo.spouts.table_spout import TableSpout
    from txtopo.spouts.tail_spout import TailSpout
    from txtopo.spouts.text_spout import TextSpout
    from txtopo.spouts.transactional import Coordinator, Emitter, EmitterContext, TransactionalSpout
    from txtopo.topology.components import Spout, SpoutContext

_HOMES = {
    "Coordinator": "txtopo.spouts.transactional",
    "Emitter": "txtopo.spouts.transactional",
    "EmitterContext": "txtopo.spouts.transactional",
    "FileSpout": "txtopo.spouts.file_spout",
    "KafkaSpout": "txtopo.spouts.kafka_spout",
    "MessageId": "txtopo.spouts.acked_spout",
    "NOTHING": "txtopo.spouts.partitioned",
    "NamedCoordinator": "txtopo.spouts.partitioned",
    "OpaquePartitionedTransactionalSpout": "txtopo.spouts.opaque",
    "PartitionedCoordinator": "txtopo.spouts.partitioned",
    "PartitionedEmitter": "txtopo.spouts.partitioned",
    "PartitionedTransactionalSpout": "txtopo.spouts.partitioned",
    "ReliableSpout": "txtopo.spouts.acked_spout",
    "RichSpout": "txtopo.spouts.acked_spout",
    "Spout": "txtopo.topology.components",
    "SpoutContext": "txtopo.topology.components",
    "SpoutOutputCollector": "txtopo.spouts.acked_spout",
    "SqlTableSpout": "txtopo.spouts.sql_table_spout",
    "TableSpout": "txtopo.spouts.table_spout",
    "TailSpout": "txtopo.spouts.tail_spout",
    "TextSpout": "txtopo.spouts.text_spout",
    "TransactionalSpout": "txtopo.spouts.transactional",
    "UnreliableSpout": "txtopo.spouts.acked_spout",
}

__all__ = [
    "Coordinator",
    "Emitter",
    "EmitterContext",
    "FileSpout",
    "KafkaSpout",
    "MessageId",
    "NOTHING",
    "NamedCoordinator",
    "OpaquePartitionedTransactionalSpout",
    "PartitionedCoordinator",
    "PartitionedEmitter",
    "PartitionedTransactionalSpout",
    "ReliableSpout",
    "RichSpout",
    "Spout",
    "SpoutContext",
    "SpoutOutputCollector",
    "SqlTableSpout",
    "TableSpout",
    "TailSpout",
    "TextSpout",
    "TransactionalSpout",
    "UnreliableSpout",
]

# A program that reads files should not import the other spouts, and Arrow is imported only when it is needed.
if not TYPE_CHECKING:  # a type checker would take it for a promise of every name
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
