"""Trident's three kinds of map state, over any backing map: what a value is stored with, and what an update of one
batch starts from. Pure: `begin_commit` says which batch it is.

In Trident's own timing a value is written before it is known that its batch is committed. So none of them is exact
where a batch may end in another way than by being repeated until it succeeds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Key = Hashable
Update = Callable[[Any], Any]
"""Makes the new value of a key from the value that it has; None: there is none. Returning None removes it."""


class StateError(Exception):
    """A stored record is newer than the batch that reads it: the store belongs to a later state of the topology."""


class StateRecord(NamedTuple):
    """What a store keeps of a key."""

    txid: int
    value: Any
    previous: Any = None
    """The value before this txid; opaque records only."""


class BackingMap(Protocol):
    """A store: records, or bare values, by key."""

    def multi_get(self, keys: Sequence[Key]) -> Sequence[Any]:
        """Return what is stored of each key, in their order; None: nothing."""

    def multi_put(self, records: Mapping[Key, Any]) -> None:
        """Store all of these; None removes a key."""


class MapState(ABC):
    """Values by key, in the batch that `begin_commit` named."""

    def __init__(self, store: BackingMap) -> None:
        self._store = store
        self._txid: int | None = None
        self._cache: dict[Key, Any] = {}
        """Stored records that this batch has read or written; it never lives longer than one attempt of a batch."""
        self._written: set[Key] = set()

    def begin_commit(self, txid: int | None) -> None:
        """Begin an attempt of a batch."""
        self._txid = txid
        self._cache.clear()
        self._written.clear()

    def commit(self, txid: int | None) -> None:
        """End the attempt."""
        self._txid = None
        self._cache.clear()
        self._written.clear()

    def multi_get(self, keys: Sequence[Key]) -> Sequence[Any]:
        """Return the value of each key, with what this attempt has written; None: there is none."""
        records = self._records(keys)
        return [self._current(record, key in self._written) for key, record in zip(keys, records, strict=True)]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> Sequence[Any]:
        """Update keys one after the other; equal keys in one call all count. Returns the new values."""
        self._records(keys)
        changed: dict[Key, Any] = {}
        results = []
        for key, update in zip(keys, updates, strict=True):
            record = self._cache[key]
            if self._is_done(record) and key not in self._written:
                results.append(record.value)
                continue
            value = update(self._base(record, key in self._written))
            self._cache[key] = changed[key] = self._made(record, value, key in self._written)
            self._written.add(key)
            results.append(value)
        if changed:
            self._store.multi_put(changed)
        return results

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Set values whatever was there."""
        self.multi_update(keys, [_setting(value) for value in values])

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove keys. A kind with txids keeps a record without value, so that a repeated attempt finds it."""
        self.multi_put(keys, [None] * len(keys))

    def _records(self, keys: Sequence[Key]) -> list[Any]:
        missing = [key for key in dict.fromkeys(keys) if key not in self._cache]
        if missing:
            self._cache.update(zip(missing, self._store.multi_get(missing), strict=True))
        return [self._cache[key] for key in keys]

    @abstractmethod
    def _current(self, record: Any, written: bool) -> Any:
        """Return what a reader of this batch sees."""

    @abstractmethod
    def _base(self, record: Any, written: bool) -> Any:
        """Return what an update of this batch starts from."""

    @abstractmethod
    def _made(self, record: Any, value: Any, written: bool) -> Any:
        """Return what is stored for a new value."""

    def _is_done(self, record: Any) -> bool:
        """Return True if an earlier attempt of this batch has written the final value."""
        return False


class NonTransactionalMap(MapState):
    """Bare values: a batch that is repeated counts again."""

    def _current(self, record: Any, written: bool) -> Any:
        return record

    def _base(self, record: Any, written: bool) -> Any:
        return record

    def _made(self, record: Any, value: Any, written: bool) -> Any:
        return value


class TransactionalMap(MapState):
    """(txid, value): what has the txid of the batch is not updated again. Right if a batch has the same tuples in every
    attempt.
    """

    def _current(self, record: StateRecord | None, written: bool) -> Any:
        return None if record is None else record.value

    def _base(self, record: StateRecord | None, written: bool) -> Any:
        return None if record is None else record.value

    def _made(self, record: StateRecord | None, value: Any, written: bool) -> Any:
        return StateRecord(_txid(self._txid), value)

    def _is_done(self, record: StateRecord | None) -> bool:
        return record is not None and record.txid == self._txid


class OpaqueMap(MapState):
    """(txid, value, previous): an update starts from the value before its own txid, so a repeated attempt may have
    other tuples.
    """

    def _current(self, record: StateRecord | None, written: bool) -> Any:
        return record.value if record is not None and written else self._base(record, written)

    def _base(self, record: StateRecord | None, written: bool) -> Any:
        if record is None:
            return None
        if written:
            return record.value
        return opaque_value(record, self._txid)

    def _made(self, record: StateRecord | None, value: Any, written: bool) -> Any:
        previous = record.previous if record is not None and written else self._base(record, written)
        return StateRecord(_txid(self._txid), value, previous)


def opaque_value(record: StateRecord, txid: int | None) -> Any:
    """Return the value as of the batch before `txid`; None: the newest. Raises StateError if the record is of a later
    batch.
    """
    if txid is None or txid > record.txid:
        return record.value
    if txid == record.txid:
        return record.previous
    raise StateError(f"the record is of batch {record.txid}, and batch {txid} reads it")


def _txid(txid: int | None) -> int:
    if txid is None:
        raise StateError("an update outside of a batch: call begin_commit first")
    return txid


def _setting(value: Any) -> Update:
    return lambda _: value
