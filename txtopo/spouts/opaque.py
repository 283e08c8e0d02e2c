"""OpaquePartitionedTransactionalSpout: a txid may have other ranges in each attempt (Storm's
IOpaquePartitionedTransactionalSpout).
"""

from __future__ import annotations

from txtopo.spouts.partitioned import PartitionedTransactionalSpout


class OpaquePartitionedTransactionalSpout(PartitionedTransactionalSpout):
    """A source whose ranges may come out differently when a batch is tried again: input that is gone, a partition that
    is away or new.

    Written like a PartitionedTransactionalSpout. The difference is what a retry does: the coordinator half is asked
    anew, with the metadata of the
    txid before, and so are those of all later txids. Nothing is skipped and nothing is in two successful batches,
    because every range begins
    where that of the batch before ends: `next_range` must decide by `last` and the source alone. A partition that is
    away for a while answers
    NOTHING, and goes on behind its last range later.
    """

    kind = "opaque"
    described_as = "opaque partitioned transactional spout"
