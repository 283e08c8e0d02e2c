"""TransactionalSpout: a coordinator decides what a batch consists of, emitters emit it any number of times (Storm's
ITransactionalSpout).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from txtopo.core.plan import Metadata
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, unreachable
from txtopo.spouts.metadata_values import stored_metadata
from txtopo.spouts.user_spout import UserSpout, check_settled_method, errors_of, must_have, wants_settled_calls
from txtopo.topology.components import Position, SpoutContext, SpoutCoordinator, Tally
from txtopo.topology.spark_types import DataFrame, SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


class Coordinator(Protocol):
    """Decides what a batch consists of; runs in the driver, in one thread (Storm's ITransactionalSpout.Coordinator)."""

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        """Return the metadata of a new batch: any JSON value except None, sufficient to emit the batch again. Called
        once for each txid.

        `previous` is the metadata of the previous batch, None for the first. Raise FailedException to be asked again
        later.
        """

    def is_ready(self) -> bool:
        """Return True if there is input for another batch now. Polled."""

    def close(self) -> None:
        """Release all resources."""


class EmitterContext:
    """The share of a batch that an emitter emits."""

    __slots__ = ("index", "tasks")

    def __init__(self, index: int, tasks: int) -> None:
        self.index = index
        """Index of this emitter among the emitters of the batch, from 0."""
        self.tasks = tasks
        """Number of emitters of the batch."""


class Emitter(Protocol):
    """Emits batches; runs in tasks (Storm's ITransactionalSpout.Emitter)."""

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any) -> Iterable[Any]:
        """Return the tuples of the batch: sequences of values, Arrow record batches, or both; the same ones in every
        attempt.
        """


class TransactionalSpout(UserSpout):
    """A source in which a txid has the same content in every attempt.

    Either define the methods of both halves on the class itself - `initialize_transaction`, `is_ready` and `close` run
    on a copy in the driver, `emit_batch` on copies in the tasks - or return separate objects from `get_coordinator` and
    `get_emitter`, as in Storm.

    >>> class Numbers(TransactionalSpout):
    ...     outputs = ["n bigint"]
    ...
    ...     def initialize_transaction(self, txid, previous):
    ...         start = 0 if previous is None else previous["end"]
    ...         return {"start": start, "end": start + 2}
    ...
    ...     def emit_batch(self, attempt, metadata):
    ...         return ((n,) for n in range(metadata["start"], metadata["end"]))
    >>> Numbers().fields.names
    ('n',)
    """

    described_as = "transactional spout"
    emitters: ClassVar[int] = 1
    """Number of tasks that share the emission of a batch; the EmitterContext tells each task its share."""

    def _check_methods(self) -> None:
        must_have(self, TransactionalSpout, ("initialize_transaction", "get_coordinator"))
        must_have(self, TransactionalSpout, ("emit_batch", "get_emitter", "emit_frame"))
        wants_settled_calls(self)

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> Coordinator:
        """Return the coordinator half for a driver that has just taken the lead; `context.previous` is the metadata of
        the last batch.

        By default a shallow copy of the spout: attributes made in `__init__` are shared by all coordinator halves of
        the process.
        """
        return copy.copy(self)

    def get_emitter(self, config: Mapping[str, Any], context: EmitterContext) -> Emitter:
        """Return a new emitter half, for one task and attempt; by default a deep copy of the spout."""
        return copy.deepcopy(self)

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        """See Coordinator."""
        unreachable("the spout has a separate coordinator")

    def is_ready(self) -> bool:
        """See Coordinator. Returns True by default: then a run never ends."""
        return True

    def close(self) -> None:
        """See Coordinator."""

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any) -> Iterable[Any]:
        """See Emitter."""
        unreachable("the spout has a separate emitter")

    def emit_frame(self, spark: SparkSession, metadata: Any) -> DataFrame:
        """With `emits_frame = True`: return the batch as a DataFrame of exactly the declared fields; the same metadata
        must give the same rows.
        """
        unreachable("the spout emits no DataFrame")

    def bytes_of(self, metadata: Any) -> int:
        """Return the approximate size of a batch in bytes, to limit waves; 0 if unknown."""
        return 0

    # -------------------------------------------------------------------------------------------------- the port, which

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        shown = replace(context, previous=users_metadata(context.previous, context.spout))
        with errors_of(context.spout, "get_coordinator"):
            user = self.get_coordinator({**context.config, **self.config}, shown)
        check_settled_method(context.spout, self, user)
        return _Coordinating(user, context.spout)

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        return [{"task": index} for index in range(self.emitters)]

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        from txtopo.spouts.tuple_emitter import emit_tuples

        emitter = self.get_emitter(self.config, EmitterContext(part["task"], self.emitters))
        emitted = emitter.emit_batch(attempt_of(metadata, tally), metadata["metadata"])
        return emit_tuples(emitted, self.fields, tally, self._place(part))

    def frame(self, spark: SparkSession, metadata: Metadata) -> DataFrame:
        return self.emit_frame(spark, metadata["metadata"])

    def batch_bytes(self, metadata: Metadata) -> int:
        return self.bytes_of(metadata["metadata"])

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        from txtopo.spouts.tuple_emitter import locate_tuple

        return locate_tuple(self.emit_part(metadata, part, Tally()), number, self._place(part))

    def warm_up(self) -> None:
        import txtopo.spouts.tuple_emitter  # noqa: F401

    def _place(self, part: Mapping[str, Any]) -> str:
        return "" if self.emitters == 1 else f"task {part['task']}"


def attempt_of(metadata: Metadata, tally: Tally) -> TransactionAttempt:
    """Return the attempt that emits, if the executor sets it; otherwise attempt 0 of the txid that the metadata was
    made for. A redo emits what the original batch emitted.
    """
    return tally.attempt or TransactionAttempt(metadata["txid"], 0)


def users_metadata(metadata: Metadata | None, spout: str) -> Any:
    """Return the metadata that the user's coordinator half made; None for no batch. Raises BatchDataError if another
    kind of spout made it.
    """
    if metadata is None:
        return None
    if "txid" not in metadata or "metadata" not in metadata:
        raise BatchDataError(
            f"the last batch of {spout} was planned by another kind of spout: give this one another name",
            component=spout,
        )
    return metadata["metadata"]


class _Coordinating:
    """Implements `SpoutCoordinator` over the user's coordinator half."""

    def __init__(self, user: Coordinator, spout: str) -> None:
        self._user = user
        self._spout = spout
        self._exhausted = False

    def is_ready(self) -> bool:
        with errors_of(self._spout, "is_ready"):
            ready = bool(self._user.is_ready())
        self._exhausted = not ready
        return ready

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        before = users_metadata(previous, self._spout)
        with errors_of(self._spout, "initialize_transaction"):
            made = self._user.initialize_transaction(txid, before)
        return {"txid": txid, "metadata": stored_metadata(made, "metadata", self._spout)}

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        return metadata

    def is_exhausted(self) -> bool:
        return self._exhausted

    def settled(self, txid: int, metadata: Metadata, state: Literal["applied", "quarantined"]) -> None:
        told: Any = self._user
        with errors_of(self._spout, "settled"):
            told.settled(txid, users_metadata(metadata, self._spout), state)

    def close(self) -> None:
        close = getattr(self._user, "close", None)
        if close is not None:
            close()
