"""PartitionedTransactionalSpout: one range per partition and txid, kept together as the metadata of the batch (Storm's
IPartitionedTransactionalSpout).

The metadata of a batch is `{"txid": n, "count": k, "partitions": [one entry per partition]}`. An entry is never null:
`{"range": m}` - emit the range with metadata m; `{"after": m}` - nothing in this batch, the partition's last range was
m; `{"untouched": true}` - the partition has had no range yet. In an opaque topology, `"from"` is the metadata of the
range before, if there was one; `"away": m` marks a partition that had a range after m (null: from its beginning) for a
batch that was planned again, and has no input now.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

from txtopo.core.plan import Metadata
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, unreachable
from txtopo.spouts.metadata_values import stored_metadata
from txtopo.spouts.transactional import attempt_of
from txtopo.spouts.user_spout import UserSpout, check_settled_method, errors_of, must_have, wants_settled_calls
from txtopo.topology.components import Position, SpoutContext, SpoutCoordinator, Tally

if TYPE_CHECKING:
    import pyarrow as pa

Entry = Mapping[str, Any]
UNTOUCHED: Final[Entry] = {"untouched": True}


class Nothing:
    """The type of NOTHING, which `next_range` returns for a partition without new input; a special value, because None
    could be a mistake.
    """

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing()


class PartitionedCoordinator(Protocol):
    """Decides the range of each partition in a batch; runs in the driver, in one thread (Storm's
    IPartitionedTransactionalSpout.Coordinator).
    """

    def number_of_partitions(self) -> int:
        """Return the current number of partitions. It is fixed for a txid when the txid is planned; partitions added
        later start with `last` None.
        """

    def next_range(self, partition: int, last: Any) -> Any:
        """Return the metadata of the next range of a partition - any JSON value except None - or NOTHING if there is no
        new input.

        `last` is the metadata of the partition's last range, None if there was none. Decide by `last` and the source
        alone: do not keep a position.
        """

    def is_ready(self) -> bool:
        """Return True if a batch may be planned now. Called before the partitions are asked for ranges."""

    def close(self) -> None:
        """Release all resources."""


class PartitionedEmitter(Protocol):
    """Emits ranges; runs in tasks, one task per partition (Storm's IPartitionedTransactionalSpout.Emitter)."""

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterable[Any]:
        """Return the tuples of one range: sequences of values, Arrow record batches, or both; exactly the same ones
        every time.
        """


class PartitionedTransactionalSpout(UserSpout):
    """A source with partitions that can be read again: a txid has the same ranges in every attempt.

    Storm's `emitPartitionBatchNew` decides a range while it emits it. In txtopo nothing may be emitted before its
    metadata is durable, so there are two methods: `next_range` decides in the driver, `emit_partition_batch` emits in a
    task. Define them on the class itself, or return separate objects from `get_coordinator` and `get_emitter`.

    >>> class Log(PartitionedTransactionalSpout):
    ...     outputs = ["line string"]
    ...
    ...     def number_of_partitions(self):
    ...         return 3
    ...
    ...     def next_range(self, partition, last):
    ...         start = 0 if last is None else last["end"]
    ...         return {"start": start, "end": start + 1} if start < 2 else NOTHING
    ...
    ...     def emit_partition_batch(self, attempt, partition, metadata):
    ...         for number in range(metadata["start"], metadata["end"]):
    ...             yield (f"line {number} of partition {partition}",)
    """

    described_as = "partitioned transactional spout"
    empty_batches: ClassVar[bool] = False
    """True: a batch is planned whenever `is_ready` returns True, even if no partition has input, as in Storm."""

    def _check_methods(self) -> None:
        for name in ("number_of_partitions", "next_range"):
            must_have(self, PartitionedTransactionalSpout, (name, "get_coordinator"))
        must_have(self, PartitionedTransactionalSpout, ("emit_partition_batch", "get_emitter"))
        wants_settled_calls(self)

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> PartitionedCoordinator:
        """Return the coordinator half for a driver that has just taken the lead; by default a shallow copy of the
        spout, see TransactionalSpout.
        """
        return copy.copy(self)

    def get_emitter(self, config: Mapping[str, Any], partition: int) -> PartitionedEmitter:
        """Return a new emitter half, for one partition and attempt; by default a deep copy of the spout."""
        return copy.deepcopy(self)

    def number_of_partitions(self) -> int:
        """See PartitionedCoordinator."""
        unreachable("the spout has a separate coordinator")

    def next_range(self, partition: int, last: Any) -> Any:
        """See PartitionedCoordinator."""
        unreachable("the spout has a separate coordinator")

    def is_ready(self) -> bool:
        """See PartitionedCoordinator. Returns True by default: then a batch is planned if a partition has input."""
        return True

    def close(self) -> None:
        """See PartitionedCoordinator."""

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterable[Any]:
        """See PartitionedEmitter."""
        unreachable("the spout has a separate emitter")

    def bytes_of(self, partition: int, metadata: Any) -> int:
        """Return the approximate size of a range in bytes, to limit waves; 0 if unknown."""
        return 0

    # -------------------------------------------------------------------------------------------------- the port, which

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        with errors_of(context.spout, "get_coordinator"):
            user = self.get_coordinator({**context.config, **self.config}, context)
        check_settled_method(context.spout, self, user)
        return PartitionedCoordinating(user, context, empty_batches=self.empty_batches, opaque=self.kind == "opaque")

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        """Return one part for each partition with a range; a batch without ranges has one part, which emits nothing."""
        found = [{"partition": at} for at, entry in enumerate(metadata["partitions"]) if "range" in entry]
        return found or [{"partition": None}]

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        from txtopo.spouts.tuple_emitter import emit_tuples

        partition = part["partition"]
        if partition is None:
            return iter(())
        emitter = self.get_emitter(self.config, partition)
        planned = metadata["partitions"][partition]["range"]
        emitted = emitter.emit_partition_batch(attempt_of(metadata, tally), partition, planned)
        return emit_tuples(emitted, self.fields, tally, f"partition {partition}")

    def batch_bytes(self, metadata: Metadata) -> int:
        return sum(
            self.bytes_of(at, entry["range"]) for at, entry in enumerate(metadata["partitions"]) if "range" in entry
        )

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        from txtopo.spouts.tuple_emitter import locate_tuple

        batches = self.emit_part(metadata, part, Tally())
        return locate_tuple(batches, number, f"partition {part['partition']}")

    def warm_up(self) -> None:
        import txtopo.spouts.tuple_emitter  # noqa: F401


class PartitionedCoordinating:
    """Implements `OpaqueCoordinator`: its answers depend on the previous metadata and the source alone. Its attributes
    only avoid asking twice.
    """

    def __init__(
        self, user: PartitionedCoordinator, context: SpoutContext, *, empty_batches: bool, opaque: bool = False
    ) -> None:
        self._user = user
        self._spout = context.spout
        self._once = context.once
        self._empty_batches = empty_batches
        self._opaque = opaque
        self._last = context.previous
        """Metadata of the batch that was planned last: `is_ready` looks for input after it."""
        self._composed: tuple[Metadata | None, Metadata] | None = None
        self._exhausted = False

    def is_ready(self) -> bool:
        with errors_of(self._spout, "is_ready"):
            ready = bool(self._user.is_ready())
        if ready and not self._empty_batches:
            metadata = self._compose(self._last)
            # The ranges found here are the ones planned, so that a batch exists whenever this returns True, and each
            # range is asked for once.
            self._composed = (self._last, metadata)
            ready = any("range" in entry for entry in metadata["partitions"])
        if not ready and self._once and (away := _away(self._last)):
            # Not the end of the input: ranges that these partitions gave before are in no batch.
            raise OSError(
                f"{self._spout}: {_which(away)} gave input for a batch that was planned again, and nothing since"
            )
        self._exhausted = not ready
        return ready

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        composed, self._composed = self._composed, None
        found = composed[1] if composed is not None and composed[0] == previous else self._compose(previous)
        self._last = {"txid": txid, **found}
        return self._last

    def initialize_again(self, txid: int, previous: Metadata | None, discarded: Metadata | None) -> Metadata:
        """See OpaqueCoordinator. Does not call the user's `is_ready`."""
        self._composed = None
        found = self._compose(previous, () if discarded is None else self._entries(discarded))
        away = _away(found)
        if away and not any("range" in entry for entry in found["partitions"]):
            raise OSError(
                f"{self._spout}: {_which(away)} gave input for batch {txid}, which is to be planned again, and gives "
                f"nothing now"
            )
        self._last = {"txid": txid, **found}
        return self._last

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        return metadata

    def is_exhausted(self) -> bool:
        return self._exhausted

    def settled(self, txid: int, metadata: Metadata, state: Literal["applied", "quarantined"]) -> None:
        """Notify the user's coordinator half with the ranges of the batch by partition."""
        ranges = {at: entry["range"] for at, entry in enumerate(metadata["partitions"]) if "range" in entry}
        told: Any = self._user
        with errors_of(self._spout, "settled"):
            told.settled(txid, ranges, state)

    def close(self) -> None:
        close = getattr(self._user, "close", None)
        if close is not None:
            close()

    def _compose(self, previous: Metadata | None, discarded: Sequence[Entry] = ()) -> dict[str, Any]:
        """Return the entries of all partitions. A partition that the source no longer has keeps its entry, so its
        metadata is never lost.
        """
        before = self._entries(previous)
        with errors_of(self._spout, "number_of_partitions"):
            count = self._user.number_of_partitions()
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise BatchDataError(f"number_of_partitions gave {count!r}, which is not a count", component=self._spout)
        both = list(zip_longest(before, discarded, fillvalue=UNTOUCHED))
        entries = [self._entry(at, *(both[at] if at < len(both) else (UNTOUCHED, UNTOUCHED))) for at in range(count)]
        entries += [_idle(entry, _owing(entry, gave)) for entry, gave in both[count:]]
        return {"count": count, "partitions": entries}

    def _entry(self, partition: int, before: Entry, gave: Entry) -> Entry:
        """Return the partition's entry after `before`. `gave` is its entry in the discarded plan of this txid."""
        last = before.get("range", before.get("after"))
        found, owing = self._ask(partition, last), _owing(before, gave)
        if isinstance(found, Nothing) and owing:
            # The input of its discarded range may be in earlier batches now. Then the source still returns it for the
            # position where it began.
            owing = [began for began in owing if isinstance(self._ask(partition, began), Nothing)]
            found = self._ask(partition, last)
        if isinstance(found, Nothing):
            return _idle(before, owing)
        entry = {"range": stored_metadata(found, f"metadata of partition {partition}", self._spout)}
        return entry if last is None or not self._opaque else {**entry, "from": last}

    def _ask(self, partition: int, last: Any) -> Any:
        with errors_of(self._spout, f"next_range of partition {partition}"):
            return self._user.next_range(partition, last)

    def _entries(self, previous: Metadata | None) -> Sequence[Entry]:
        if previous is None:
            return ()
        if "partitions" not in previous:
            raise BatchDataError(
                f"the last batch of {self._spout} was planned by another kind of spout: give this one another name",
                component=self._spout,
            )
        entries: Sequence[Entry] = previous["partitions"]
        return entries


def _idle(before: Entry, owing: Sequence[Any]) -> Entry:
    idle = {"after": before["range"]} if "range" in before else {key: before[key] for key in before if key != "away"}
    return {**idle, "away": owing[0]} if owing else idle


def _owing(before: Entry, gave: Entry) -> list[Any]:
    """Return the starts of ranges that the partition returned for discarded plans only: for these starts it must return
    input again.
    """
    from_gave = [gave.get("from")] if "range" in gave else []
    return from_gave + [entry["away"] for entry in (before, gave) if "away" in entry]


def _away(metadata: Metadata | None) -> list[int]:
    return [] if metadata is None else [at for at, entry in enumerate(metadata["partitions"]) if "away" in entry]


def _which(partitions: Sequence[int]) -> str:
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"
