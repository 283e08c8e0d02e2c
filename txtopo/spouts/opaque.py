"""OpaquePartitionedTransactionalSpout: the ranges of a txid may differ between attempts (Storm's
IOpaquePartitionedTransactionalSpout).
"""

from __future__ import annotations

from txtopo.spouts.partitioned import PartitionedTransactionalSpout


class OpaquePartitionedTransactionalSpout(PartitionedTransactionalSpout):
    """A source whose ranges may differ when a batch is retried: input was deleted, a partition is unavailable or new.

    Written like a PartitionedTransactionalSpout. The difference is what a retry does: the coordinator half is asked
    again, with the metadata of the previous txid, for this txid and for all later ones. Nothing is skipped and nothing
    is in two successful batches, because every range begins where the range of the previous batch ends: `next_range`
    must decide by `last` and the source alone. For a partition that is temporarily unavailable, `next_range` returns
    NOTHING; the partition continues after its last range later.
    """

    kind = "opaque"
    described_as = "opaque partitioned transactional spout"
