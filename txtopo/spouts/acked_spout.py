"""Spouts with Storm's ack API: `next_tuple` emits messages, `ack` and `fail` report their result (IRichSpout, JStorm's
IAckValueSpout).

They run in the driver. The messages that `next_tuple` emits become a batch whose tuples are stored in its metadata, so
the batch is the same in every attempt, whatever the source does. A message is acked when the COMMIT of its batch is
known.
"""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from txtopo.core.plan import Metadata
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts.user_spout import UserSpout, errors_of
from txtopo.topology.components import Position, SpoutContext, SpoutCoordinator, SpoutKind, Tally
from txtopo.topology.tuple_bolts import returned

if TYPE_CHECKING:
    import pyarrow as pa

MessageId = str | int | tuple[Any, ...]
"""The id by which the source identifies a message: text, an integer, or a tuple of these."""


class SpoutOutputCollector(Protocol):
    """Accepts the messages of a spout (Storm's SpoutOutputCollector)."""

    def emit(self, values: Sequence[Any], message_id: MessageId | None = None) -> None:
        """Emit one tuple. With a message id, it is acked or failed later; without, neither. Raises BatchDataError,
        naming the field, for a value that does not fit.
        """


class RichSpout(UserSpout):
    """A source of messages with ids (Storm's IRichSpout): at-least-once.

    A message is acked when its batch is committed, and failed when its batch is quarantined. If the driver dies in
    between, recently committed batches are acked again after the restart, so `ack` and `fail` must accept unknown ids.
    Messages that were planned before the restart and that the source delivers again are counted twice: declare the
    topology at-least-once, or drop repeated messages in a bolt (`NewIds`).
    """

    kind: SpoutKind = "at_least_once"
    wants_settled = True
    described_as = "spout with acks"
    parts_max = 1
    batch_size: ClassVar[int] = 1000
    """Maximum number of tuples in a batch; a batch is closed earlier if `next_tuple` emits nothing."""
    collector: SpoutOutputCollector
    """Set before `open` is called; can also be used to emit in `fail`."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if not isinstance(cls.batch_size, int) or isinstance(cls.batch_size, bool) or cls.batch_size < 1:
            raise TopologyError(
                f"{cls.__name__}.batch_size = {cls.batch_size!r} is not a number of tuples of 1 or more"
            )

    def open(self, config: Mapping[str, Any], context: SpoutContext) -> None:
        """Called once when a driver has taken the lead, on a shallow copy of the spout: initialise here what each
        leader needs for itself, such as connections.
        """

    @abstractmethod
    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        """Emit one or more messages; none if there are none now. Must not block."""

    def ack(self, message_id: Any) -> None:
        """Called when the batch with this message is committed: at least once for each committed message."""

    def fail(self, message_id: Any) -> None:
        """Called when the batch with this message was quarantined: the message has no effect."""

    def ack_value(self, message_id: Any, values: Sequence[Any]) -> None:
        """As `ack`, with the values of the message (JStorm's IAckValueSpout). By default calls `ack`."""
        self.ack(message_id)

    def fail_value(self, message_id: Any, values: Sequence[Any]) -> None:
        """As `fail`, with the values of the message. By default calls `fail`."""
        self.fail(message_id)

    def close(self) -> None:
        """Release all resources."""

    # -------------------------------------------------------------------------------------------------- the port, which

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        user = copy.copy(self)
        made = AckedCoordinator(user, context.spout)
        with errors_of(context.spout, "open"):
            user.open({**context.config, **self.config}, context)
        return made

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        return [{}]

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        from txtopo.spouts.tuple_emitter import emit_tuples
        from txtopo.spouts.value_codec import from_json

        return emit_tuples((from_json(entry[0], self.fields) for entry in metadata["tuples"]), self.fields, tally, "")

    def batch_bytes(self, metadata: Metadata) -> int:
        return len(json.dumps(metadata["tuples"]))

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        if number >= len(metadata["tuples"]):
            return None
        entry = metadata["tuples"][number]
        place = f"message {_id_of(entry)!r}" if len(entry) > 1 else f"tuple {number + 1}"
        raw = json.dumps(dict(zip(self.fields.names, entry[0], strict=True)), ensure_ascii=False)
        return Position(position=place, raw=raw if len(raw) <= 2000 else raw[:2000] + "…")

    def warm_up(self) -> None:
        import txtopo.spouts.tuple_emitter
        import txtopo.spouts.value_codec  # noqa: F401


class UnreliableSpout(RichSpout):
    """A source without acks: at-most-once, since messages that were emitted but not planned are lost if the driver
    dies.
    """

    kind: SpoutKind = "at_most_once"
    wants_settled = False
    described_as = "spout without acks"


class ReliableSpout(RichSpout):
    """Keeps its emitted messages and emits failed ones again, at most `max_fails` times, like pystorm's ReliableSpout.

    A failed message is emitted again in a separate batch, since another message of its batch may have caused the
    failure. Every message needs an id. An override of `ack` or `fail` must call the method of this class.
    """

    described_as = "spout with acks and retries"
    max_fails: ClassVar[int] = 3
    """Maximum number of retries of a message; after one more failure `give_up` is called."""

    @property
    def unacked(self) -> dict[Hashable, Sequence[Any]]:
        """Values of the messages that are neither acked nor given up, by id."""
        return self._books[0]

    @property
    def fails(self) -> Counter[Hashable]:
        """Number of failures of each of these messages, by id."""
        return self._books[1]

    def check_emit(self, values: Sequence[Any], message_id: Any) -> None:
        """Called by the collector for every emission. Raises ValueError for a message without id, or for an open id
        with other values.
        """
        if message_id is None:
            raise ValueError("a reliable spout needs an id for every message: emit(values, message_id=…)")
        kept = tuple(values)
        if self.unacked.setdefault(message_id, kept) != kept:
            raise ValueError(
                f"message {message_id!r} is neither acked nor failed yet, and is emitted again with other values"
            )

    def ack(self, message_id: Any) -> None:
        self.fails.pop(message_id, None)
        self.unacked.pop(message_id, None)

    def give_up(self, message_id: Any) -> None:
        """Called for a message that failed more than `max_fails` times and is in no table. Override it to keep the
        message elsewhere. By default the message is acked, as in pystorm.
        """
        self.ack(message_id)

    def fail(self, message_id: Any) -> None:
        if message_id not in self.unacked:
            return  # Emitted by an earlier driver: the source delivers the message again, because it was never acked.
        if self.fails[message_id] >= self.max_fails:
            self.give_up(message_id)
            ReliableSpout.ack(self, message_id)  # No longer tracked, whatever `give_up` did.
            return
        self.fails[message_id] += 1
        self.collector.emit(self.unacked[message_id], message_id)

    @property
    def _books(self) -> tuple[dict[Hashable, Sequence[Any]], Counter[Hashable]]:
        books = self.__dict__.get("_bookkeeping")
        if books is None:
            books = self.__dict__["_bookkeeping"] = ({}, Counter())
        found: tuple[dict[Hashable, Sequence[Any]], Counter[Hashable]] = books
        return found


class AckedCoordinator:
    """Implements `SpoutCoordinator`, `SettledListener` and `SpoutOutputCollector` for one leadership."""

    def __init__(self, user: RichSpout, spout: str) -> None:
        self._user = user
        self._spout = spout
        self._waiting: list[list[Any]] = []
        """Emitted messages that are not yet in a batch, in the form of the metadata."""
        self._again: deque[list[Any]] = deque()
        """The same, for messages emitted while failures were reported: each becomes a separate batch."""
        self._is_failing = False
        self._unsettled: set[int] = set()
        self._is_dry = False
        user.__dict__.pop("_bookkeeping", None)
        user.collector = self

    def emit(self, values: Sequence[Any], message_id: MessageId | None = None) -> None:
        from txtopo.spouts.value_codec import to_json

        if message_id is not None and not self._user.wants_settled:
            raise ValueError(f"{self._spout} is an unreliable spout: it emits without message ids")
        self._check(values, message_id)
        entry: list[Any] = [to_json(values, self._user.fields)]
        if message_id is not None:
            entry.append(_stored_id(message_id, self._spout))
        # Last, so that a refused message is not tracked anywhere.
        check = getattr(self._user, "check_emit", None)
        if check is not None:
            check(values, message_id)
        (self._again if self._is_failing else self._waiting).append(entry)

    def is_ready(self) -> bool:
        """Pull messages until a batch is full or no more come; True if there are any. Messages that were pulled before
        an error are kept for the next batch.
        """
        if self._again:
            return True
        while len(self._waiting) < self._user.batch_size:
            before = len(self._waiting)
            with errors_of(self._spout, "next_tuple"):
                if self._user.next_tuple(self) is not None:
                    returned("next_tuple")
            self._is_dry = len(self._waiting) == before
            if self._is_dry:
                break
        return bool(self._waiting)

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        if self._again:
            taken = [self._again.popleft()]
        else:
            taken = self._waiting[: self._user.batch_size]
            del self._waiting[: len(taken)]
        if self._user.wants_settled:
            self._unsettled.add(txid)
        return {"txid": txid, "tuples": taken}

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        return metadata

    def settled(self, txid: int, metadata: Metadata, state: Literal["applied", "quarantined"]) -> None:
        from txtopo.spouts.value_codec import from_json

        told, what = (self._user.ack_value, "ack") if state == "applied" else (self._user.fail_value, "fail")
        self._is_failing = state == "quarantined"
        try:
            for entry in metadata["tuples"]:
                if len(entry) > 1:  # AK-08: a message without an id is neither acked nor failed.
                    with errors_of(self._spout, what):
                        told(_id_of(entry), from_json(entry[0], self._user.fields))
        finally:
            self._is_failing = False
        self._unsettled.discard(metadata["txid"])  # The message was planned again, possibly under another txid.

    def is_exhausted(self) -> bool:
        """True if no more input will come; not before every batch is settled, since failed messages may be emitted
        again.
        """
        return self._is_dry and not self._waiting and not self._again and not self._unsettled

    def close(self) -> None:
        self._user.close()

    def _check(self, values: Sequence[Any], message_id: Any) -> None:
        from txtopo.spouts.tuple_emitter import check_value

        fields = self._user.fields
        of = "a message" if message_id is None else f"message {message_id!r}"
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or len(values) != len(fields.items):
            raise BatchDataError(
                f"{of}: {values!r} is no tuple of {len(fields.items)} values ({fields.ddl})", component=self._spout
            )
        for value, field in zip(values, fields.items, strict=True):
            if (why := check_value(value, field)) is not None:
                raise BatchDataError(f"{of}: field {field.name}: {value!r} {why}", component=self._spout)


def _stored_id(message_id: Any, spout: str) -> Any:
    """Return the id as JSON; a tuple becomes a list and is restored as a tuple."""
    if isinstance(message_id, tuple):
        return [_stored_id(item, spout) for item in message_id]
    if isinstance(message_id, bool) or not isinstance(message_id, str | int):
        raise BatchDataError(
            f"message id {message_id!r} is neither text nor a whole number nor a tuple of those", component=spout
        )
    return message_id


def _id_of(entry: Sequence[Any]) -> Any:
    return _restored(entry[1])


def _restored(stored: Any) -> Any:
    return tuple(_restored(item) for item in stored) if isinstance(stored, list) else stored
