"""A spout of given batches, for streams: each batch is a list of parts, each part a list of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from txtopo.core.fields import parse_fields
from txtopo.core.values import TransactionAttempt
from txtopo.spouts import NOTHING, PartitionedTransactionalSpout


class RowBatches(PartitionedTransactionalSpout):
    """Batch n has the n-th list of parts; part p of it is emitted as partition p."""

    def __init__(self, fields: str, *batches: Sequence[Sequence[Any]]) -> None:
        self.fields = parse_fields(fields)
        self.batches = batches

    def number_of_partitions(self) -> int:
        return max(len(parts) for parts in self.batches)

    def next_range(self, partition: int, last: Any) -> Any:
        number = 0 if last is None else last + 1
        return number if number < len(self.batches) else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        parts = self.batches[metadata]
        yield from parts[partition] if partition < len(parts) else ()


def texts(*batches: Sequence[str]) -> RowBatches:
    """A spout of lines, each batch in two parts."""
    return RowBatches("line string", *[[[(line,) for line in batch[at::2]] for at in range(2)] for batch in batches])
