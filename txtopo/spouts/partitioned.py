"""PartitionedTransactionalSpout: one range per partition and txid, kept together as the metadata of the batch (Storm's
IPartitionedTransactionalSpout).

The metadata of a batch is `{"txid": n, "count": k, "partitions": [one entry per partition]}`. An entry is never null:
`{"range": m}` - emit the range with metadata m; `{"after": m}` - nothing in this batch, the partition's last range was
m; `{"untouched": true}` - the partition has had no range yet. In an opaque topology, `"from"` is the metadata of the
range before, if there was one; `"away": m` marks a partition that had a range after m (null: from its beginning) for a
batch that was planned again, and has no input now.

Partitions are numbers from 0, and an entry has the place of its number. A source whose partitions come and go names
them: then the metadata has `"names"`, one for each entry, and no `"count"`. New names are appended and never sorted
again, so an entry keeps its place until its partition is dropped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
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
Partition = int | str
"""A partition: its number from 0, or its name."""
NAME_CHARS_MAX = 500
"""Maximum length of the name of a partition; all of them are in the metadata of each batch."""


class Nothing:
    """The type of NOTHING, which `next_range` returns for a partition without new input; a special value, because None
    could be a mistake.
    """

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing()


class RangeCoordinator(Protocol):
    """What coordinator halves with numbered and with named partitions have in common.

    Optional methods, asked for if they are there: `is_exhausted()` returns False in a `--once` run that is to continue
    although no partition has input now; `ready_in_s()` returns the seconds after which it is worth asking again;
    `range_again(partition, metadata)` returns the metadata of the same range for a redo, as the source is now;
    `lag()` returns by partition how many records were in no committed batch at the last look, for `txtopo status`.
    """

    def next_range(self, partition: Any, last: Any) -> Any:
        """Return the metadata of the next range of a partition - any JSON value except None - or NOTHING if there is no
        new input.

        `last` is the metadata of the partition's last range, None if there was none. Decide by `last` and the source
        alone: do not keep a position.
        """

    def is_ready(self) -> bool:
        """Return True if a batch may be planned now. Called before the partitions are asked for ranges."""

    def close(self) -> None:
        """Release all resources."""


class PartitionedCoordinator(RangeCoordinator, Protocol):
    """Decides the range of each partition in a batch; runs in the driver, in one thread (Storm's
    IPartitionedTransactionalSpout.Coordinator).
    """

    def number_of_partitions(self) -> int:
        """Return the current number of partitions. It is fixed for a txid when the txid is planned; partitions added
        later start with `last` None.
        """


class NamedCoordinator(RangeCoordinator, Protocol):
    """The same for partitions that appear and disappear, each with a name.

    An optional method: `is_gone(partition, last)` is asked for a known partition that `partition_names` did not return.
    True: it never comes back, its entry is dropped from the next batch on, and a partition of that name would
    start again. Without the method such a partition keeps its place and its last range for ever.
    """

    def partition_names(self, known: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the partitions that can be asked for ranges now. New ones follow the known ones, in the
        order in which they are returned here, and start with `last` None.

        `known` has the names in the previous batch, in their order, with the metadata of their last range, None if
        there was none.
        """


class PartitionedEmitter(Protocol):
    """Emits ranges; runs in tasks, one task per partition (Storm's IPartitionedTransactionalSpout.Emitter)."""

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: Any, metadata: Any) -> Iterable[Any]:
        """Return the tuples of one range: sequences of values, Arrow record batches, or both; exactly the same ones
        every time.
        """


class PartitionedTransactionalSpout(UserSpout):
    """A source with partitions that can be read again: a txid has the same ranges in every attempt.

    Storm's `emitPartitionBatchNew` decides a range while it emits it. In txtopo nothing may be emitted before its
    metadata is durable, so there are two methods: `next_range` decides in the driver, `emit_partition_batch` emits in a
    task. Define them on the class itself, or return separate objects from `get_coordinator` and `get_emitter`.

    Partitions have numbers, or names with a method `partition_names(known)` in place of `number_of_partitions`, see
    NamedCoordinator; then `partition` is a name in every method.

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
        must_have(self, PartitionedTransactionalSpout, ("number_of_partitions", "partition_names", "get_coordinator"))
        must_have(self, PartitionedTransactionalSpout, ("next_range", "get_coordinator"))
        must_have(self, PartitionedTransactionalSpout, ("emit_partition_batch", "get_emitter"))
        wants_settled_calls(self)

    def get_coordinator(
        self, config: Mapping[str, Any], context: SpoutContext
    ) -> PartitionedCoordinator | NamedCoordinator:
        """Return the coordinator half for a driver that has just taken the lead; by default a shallow copy of the
        spout, see TransactionalSpout.
        """
        return copy.copy(self)

    def get_emitter(self, config: Mapping[str, Any], partition: Any) -> PartitionedEmitter:
        """Return a new emitter half, for one partition and attempt; by default a deep copy of the spout."""
        return copy.deepcopy(self)

    def number_of_partitions(self) -> int:
        """See PartitionedCoordinator."""
        unreachable("the spout has a separate coordinator")

    def next_range(self, partition: Any, last: Any) -> Any:
        """See PartitionedCoordinator."""
        unreachable("the spout has a separate coordinator")

    def is_ready(self) -> bool:
        """See PartitionedCoordinator. Returns True by default: then a batch is planned if a partition has input."""
        return True

    def close(self) -> None:
        """See PartitionedCoordinator."""

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: Any, metadata: Any) -> Iterable[Any]:
        """See PartitionedEmitter."""
        unreachable("the spout has a separate emitter")

    def bytes_of(self, partition: Any, metadata: Any) -> int:
        """Return the approximate size of a range in bytes, to limit waves; 0 if unknown."""
        return 0

    # -------------------------------------------------------------------------------------------------- the port, which

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        with errors_of(context.spout, "get_coordinator"):
            user = self.get_coordinator({**context.config, **self.config}, context)
        check_settled_method(context.spout, self, user)
        return PartitionedCoordinating(
            user,
            context,
            empty_batches=self.empty_batches,
            opaque=self.kind == "opaque",
            settings=self._planned_settings(),
        )

    def _planned_settings(self) -> Mapping[str, Any]:
        """Return what a spout of txtopo adds to the metadata of each batch: settings that reading depends on (R12)."""
        return {}

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        """Return one part for each partition with a range; a batch without ranges has one part, which emits nothing."""
        found = [{"partition": at} for at, entry in enumerate(metadata["partitions"]) if "range" in entry]
        return found or [{"partition": None}]

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        from txtopo.spouts.tuple_emitter import emit_tuples

        at = part["partition"]
        if at is None:
            return iter(())
        partition, planned = partition_of(metadata, at), metadata["partitions"][at]["range"]
        emitter = self.get_emitter(self.config, partition)
        emitted = emitter.emit_partition_batch(attempt_of(metadata, tally), partition, planned)
        return emit_tuples(emitted, self.fields, tally, f"partition {partition}")

    def batch_bytes(self, metadata: Metadata) -> int:
        return sum(self.bytes_of(partition, planned) for partition, planned in ranges_of(metadata).items())

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        from txtopo.spouts.tuple_emitter import locate_tuple

        batches = self.emit_part(metadata, part, Tally())
        at = part["partition"]
        return locate_tuple(batches, number, f"partition {None if at is None else partition_of(metadata, at)}")

    def warm_up(self) -> None:
        import txtopo.spouts.tuple_emitter  # noqa: F401


def partition_of(metadata: Metadata, at: int) -> Partition:
    """Return the number or the name of the partition with the entry at this place."""
    names: Sequence[str] | None = metadata.get("names")
    return at if names is None else names[at]


def ranges_of(metadata: Metadata) -> dict[Partition, Any]:
    """Return the metadata of the ranges of a batch, by partition."""
    return {
        partition_of(metadata, at): entry["range"]
        for at, entry in enumerate(metadata["partitions"])
        if "range" in entry
    }


class PartitionedCoordinating:
    """Implements `OpaqueCoordinator`: its answers depend on the previous metadata and the source alone. Its attributes
    only avoid asking twice.
    """

    def __init__(
        self,
        user: PartitionedCoordinator | NamedCoordinator,
        context: SpoutContext,
        *,
        empty_batches: bool,
        opaque: bool = False,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._user: Any = user
        self._is_named = getattr(user, "partition_names", None) is not None
        self._spout = context.spout
        self._once = context.once
        self._empty_batches = empty_batches
        self._opaque = opaque
        self._settings = settings
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
        found = self._compose(previous, discarded)
        away = _away(found)
        if away and not any("range" in entry for entry in found["partitions"]):
            raise OSError(
                f"{self._spout}: {_which(away)} gave input for batch {txid}, which is to be planned again, and gives "
                f"nothing now"
            )
        self._last = {"txid": txid, **found}
        return self._last

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        again = getattr(self._user, "range_again", None)
        if again is None:
            return {**metadata, **self._settings}
        entries = []
        for at, entry in enumerate(metadata["partitions"]):
            if "range" in entry:
                partition = partition_of(metadata, at)
                with errors_of(self._spout, f"range_again of partition {partition}"):
                    found = again(partition, entry["range"])
                entry = {**entry, "range": stored_metadata(found, f"metadata of partition {partition}", self._spout)}
            entries.append(entry)
        return {**metadata, **self._settings, "partitions": entries}

    def is_exhausted(self) -> bool:
        user = getattr(self._user, "is_exhausted", None)
        if not self._exhausted or user is None:
            return self._exhausted
        with errors_of(self._spout, "is_exhausted"):
            return bool(user())

    def ready_in_s(self) -> float:
        """See PacedCoordinator; infinity if the user's half does not know."""
        user = getattr(self._user, "ready_in_s", None)
        if user is None:
            return math.inf
        with errors_of(self._spout, "ready_in_s"):
            return float(user())

    def lag(self) -> Mapping[str, int]:
        """See LaggingCoordinator; empty if the user's half does not know."""
        user = getattr(self._user, "lag", None)
        if not callable(user):
            return {}
        with errors_of(self._spout, "lag"):
            return {str(partition): int(number) for partition, number in user().items()}

    def settled(self, txid: int, metadata: Metadata, state: Literal["applied", "quarantined"]) -> None:
        """Notify the user's coordinator half with the ranges of the batch by partition."""
        with errors_of(self._spout, "settled"):
            self._user.settled(txid, ranges_of(metadata), state)

    def close(self) -> None:
        close = getattr(self._user, "close", None)
        if close is not None:
            close()

    def _compose(self, previous: Metadata | None, discarded: Metadata | None = None) -> dict[str, Any]:
        """Return the entries of all partitions. A partition that the source does not have now keeps its entry, so its
        metadata is never lost.
        """
        before, gave = self._entries(previous), self._entries(discarded)
        current = self._partitions(before)
        entries: dict[Partition, Entry] = {}
        for partition in dict.fromkeys((*before, *gave, *current)):
            both = before.get(partition, UNTOUCHED), gave.get(partition, UNTOUCHED)
            if partition in current:
                entries[partition] = self._entry(partition, *both)
            elif (owing := _owing(*both)) or not self._is_gone(partition, both[0]):
                entries[partition] = _idle(both[0], owing)
        head = {"names": list(entries)} if self._is_named else {"count": len(current)}
        return {**self._settings, **head, "partitions": list(entries.values())}

    def _partitions(self, before: Mapping[Partition, Entry]) -> Mapping[Partition, None]:
        """Return the partitions that the source has now, in its order."""
        if not self._is_named:
            with errors_of(self._spout, "number_of_partitions"):
                count = self._user.number_of_partitions()
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise BatchDataError(
                    f"number_of_partitions gave {count!r}, which is not a count", component=self._spout
                )
            return dict.fromkeys(range(count))
        with errors_of(self._spout, "partition_names"):
            names = self._user.partition_names({name: _last(entry) for name, entry in before.items()})
            names = names if isinstance(names, str) else list(names)
        if isinstance(names, str) or not all(map(_is_name, names)) or len(set(names)) < len(names):
            raise BatchDataError(
                f"partition_names gave {names!r:.200}, which is not a list of different names (text of 1 to "
                f"{NAME_CHARS_MAX} characters that can be printed)",
                component=self._spout,
            )
        return dict.fromkeys(names)

    def _is_gone(self, partition: Partition, before: Entry) -> bool:
        """Return True if a partition that the source did not name has no place any more."""
        if not self._is_named or before == UNTOUCHED:
            return self._is_named
        user = getattr(self._user, "is_gone", None)
        if user is None:
            return False
        with errors_of(self._spout, f"is_gone of partition {partition}"):
            return bool(user(partition, _last(before)))

    def _entry(self, partition: Partition, before: Entry, gave: Entry) -> Entry:
        """Return the partition's entry after `before`. `gave` is its entry in the discarded plan of this txid."""
        last = _last(before)
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

    def _ask(self, partition: Partition, last: Any) -> Any:
        with errors_of(self._spout, f"next_range of partition {partition}"):
            return self._user.next_range(partition, last)

    def _entries(self, metadata: Metadata | None) -> Mapping[Partition, Entry]:
        if metadata is None:
            return {}
        if "partitions" not in metadata or ("names" in metadata) != self._is_named:
            raise BatchDataError(
                f"the last batch of {self._spout} was planned by another kind of spout: give this one another name",
                component=self._spout,
            )
        return {partition_of(metadata, at): entry for at, entry in enumerate(metadata["partitions"])}


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()


def _last(entry: Entry) -> Any:
    """Return the metadata of the partition's last range; None if there was none."""
    return entry.get("range", entry.get("after"))


def _idle(before: Entry, owing: Sequence[Any]) -> Entry:
    idle = {"after": before["range"]} if "range" in before else {key: before[key] for key in before if key != "away"}
    return {**idle, "away": owing[0]} if owing else idle


def _owing(before: Entry, gave: Entry) -> list[Any]:
    """Return the starts of ranges that the partition returned for discarded plans only: for these starts it must return
    input again.
    """
    from_gave = [gave.get("from")] if "range" in gave else []
    return from_gave + [entry["away"] for entry in (before, gave) if "away" in entry]


def _away(metadata: Metadata | None) -> list[Partition]:
    if metadata is None:
        return []
    return [partition_of(metadata, at) for at, entry in enumerate(metadata["partitions"]) if "away" in entry]


def _which(partitions: Sequence[Partition]) -> str:
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"
