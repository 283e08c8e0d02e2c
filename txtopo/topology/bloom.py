"""`BloomFilter`, a set of fixed size with false positives only, and `DropRepeated`, the bolt that drops repeated ids
with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import TopologyError
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.tuple_bolts import BatchBolt, BatchOutputCollector, FailedException, TopologyContext

if TYPE_CHECKING:
    from txtopo.topology.components import Subscription


class BloomFilter:
    """A set with false positives but no false negatives: with at most `capacity` ids, the probability of a false
    positive is at most `error_rate`. Raises TopologyError for a capacity below 1 or an error rate outside of 0 to 1.

    >>> seen = BloomFilter(1000, 0.01)
    >>> seen.add("a"), seen.add("a"), seen.add("b")
    (True, False, True)
    """

    def __init__(self, capacity: int, error_rate: float) -> None:
        if capacity < 1 or not 0 < error_rate < 1:
            raise TopologyError(
                f"a bloom filter needs a capacity of 1 or more and an error rate between 0 and 1, not {capacity}, "
                f"{error_rate}"
            )
        self.capacity = capacity
        self.error_rate = error_rate
        self.size_bits: int = max(8, math.ceil(-capacity * math.log(error_rate) / math.log(2) ** 2))
        self._hashes = max(1, round(self.size_bits / capacity * math.log(2)))
        self._bits = bytearray(-(-self.size_bits // 8))
        self.added: int = 0
        """Number of values that were new."""

    def add(self, value: Any) -> bool:
        """Add a value. Returns True if it was new, False if it was in the set or appears to be."""
        new = False
        for at in self._places(value):
            mask = 1 << (at & 7)
            new |= not self._bits[at >> 3] & mask
            self._bits[at >> 3] |= mask
        self.added += new
        return new

    def _places(self, value: Any) -> list[int]:
        # By content and type: the same in every process. All hash functions are computed from the two halves of one
        # hash.
        digest = blake2b(f"{type(value).__name__}:{value!r}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        first, second = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
        return [(first + number * second) % self.size_bits for number in range(self._hashes)]


class DropRepeated(BatchBolt):
    """Drops tuples whose id occurred earlier in the same batch, using fixed memory; for sources that repeat messages at
    short intervals.

    Guarantee: of the tuples in a batch with the same id, **at most one** is passed on. Error rate: if a task receives
    at most `capacity` different ids in a batch, each new tuple is dropped **by mistake** with a probability of at most
    `error_rate`; such tuples are lost. A task that receives more ids fails the batch. Each attempt starts with an empty
    filter, so repeats across batches are not detected: for an at-least-once source, add `txtopo.NewIds` downstream,
    which is exact. In several tasks the bolt must read its input with a fields grouping on the id, since each task
    knows only its own tuples. A NULL id is always passed on.

    >>> DropRepeated("order_id", "order_id string, amount bigint", capacity=100_000, error_rate=1e-6).outputs
    [Stream(fields='order_id string, amount bigint', name='default', direct=False)]
    """

    def __init__(self, id_field: str, fields: str, *, capacity: int, error_rate: float) -> None:
        if parse_fields(fields).get(id_field) is None:
            raise TopologyError(f"DropRepeated: {fields!r} has no field {id_field}")
        BloomFilter(capacity, error_rate)
        self.id_field = id_field
        self.capacity = capacity
        self.error_rate = error_rate
        self.outputs: Sequence[str | Stream] = [Stream(fields)]  # type: ignore[misc]
        self._fields = parse_fields(fields)

    def check_inputs(self, inputs: Sequence[Subscription], tasks: int) -> None:
        """Raise TopologyError unless equal ids are sent to the same task."""
        for one in inputs:
            if tasks > 1 and one.grouping != "global" and (one.grouping, one.fields) != ("fields", (self.id_field,)):
                raise TopologyError(
                    f"DropRepeated in {tasks} tasks reads {one.source!r} with a {one.grouping} grouping: each task "
                    f"knows only the ids that it got, "
                    f"so repeats would pass; write fields_grouping({one.source!r}, [{self.id_field!r}])"
                )

    def check_fields(self, fields: Fields) -> None:
        """Raise TopologyError unless the input has the declared fields, in any order; other fields are dropped."""
        missing = self._fields.missing_in(fields)
        if missing is not None:
            raise TopologyError(f"DropRepeated declares {self._fields.ddl}, and its input has {fields.ddl}: {missing}")

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Creates an empty filter for each attempt and task."""
        self._collector = collector
        self._seen = BloomFilter(self.capacity, self.error_rate)

    def execute(self, tup: Tuple) -> None:
        """Emits the tuple if its id is new. Raises FailedException after more than `capacity` different ids."""
        if tup[self.id_field] is not None and not self._seen.add(tup[self.id_field]):
            return
        if self._seen.added > self.capacity:
            raise FailedException(
                f"more than {self.capacity} different ids in a batch: the error rate of {self.error_rate} does not "
                f"hold; raise capacity"
            )
        # By name: it may read fields in another order.
        self._collector.emit([tup[name] for name in self._fields.names])

    def finish_batch(self) -> None:
        """Does nothing."""
