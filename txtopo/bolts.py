"""Base classes, collectors and tuples for bolts, custom committers and custom groupings: `from txtopo.bolts import
BasicBolt, Tuple`.
"""

from __future__ import annotations

from txtopo.topology.batch_committer import BatchCommitter, CommitCollector, CommitTransaction
from txtopo.topology.batching_bolt import BatchingBolt, is_tick
from txtopo.topology.bloom import BloomFilter, DropRepeated
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.streams import DEFAULT_STREAM, Stream, Tuple
from txtopo.topology.tuple_bolts import (
    ArrowBolt,
    ArrowOutputCollector,
    BasicBolt,
    BasicOutputCollector,
    BatchBolt,
    BatchOutputCollector,
    CustomStreamGrouping,
    FailedException,
    OutputCollector,
    ReportedFailedException,
    RichBolt,
    TopologyContext,
    TupleBolt,
)

__all__ = [
    "DEFAULT_STREAM",
    "ArrowBolt",
    "ArrowOutputCollector",
    "BasicBolt",
    "BasicOutputCollector",
    "BatchBolt",
    "BatchCommitter",
    "BatchOutputCollector",
    "BatchingBolt",
    "BloomFilter",
    "CommitCollector",
    "CommitTransaction",
    "CustomStreamGrouping",
    "DropRepeated",
    "FailedException",
    "KeyedTable",
    "OutputCollector",
    "ReportedFailedException",
    "RichBolt",
    "Stream",
    "TopologyContext",
    "Tuple",
    "TupleBolt",
    "is_tick",
]
