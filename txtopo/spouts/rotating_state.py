"""Rotating state: a value for each txid, old ones dropped, as Storm's coordinators and emitters keep theirs (RotatingTransactionalState).

For coordinator halves that want it and for tests of them. txtopo's own metadata is not kept so: in ZooKeeper a txid's metadata is create-only (R3).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from txtopo.errors import TxtopoError
from txtopo.spouts.json_values import json_value


class OutOfOrderError(TxtopoError):
    """With strict order: a txid is asked for whose predecessor has no value, or behind which others have one already."""


class NodeThereError(Exception):
    """A node that is to be created exists."""


class NodeGoneError(Exception):
    """A node that is to be changed or deleted does not exist."""


class StateStore(Protocol):
    """Nodes named by txid, holding bytes; several clients may write at once."""

    def txids(self) -> Iterable[int]:
        """Of all nodes."""

    def read(self, txid: int) -> bytes:
        """Raises NodeGoneError."""

    def create(self, txid: int, data: bytes) -> None:
        """Raises NodeThereError."""

    def set(self, txid: int, data: bytes) -> None:
        """Raises NodeGoneError."""

    def delete(self, txid: int) -> None:
        """Raises NodeGoneError."""


class MemoryStateStore:
    """A StateStore in memory."""

    def __init__(self) -> None:
        self.nodes: dict[int, bytes] = {}

    def txids(self) -> Iterable[int]:
        return tuple(self.nodes)

    def read(self, txid: int) -> bytes:
        if txid not in self.nodes:
            raise NodeGoneError(txid)
        return self.nodes[txid]

    def create(self, txid: int, data: bytes) -> None:
        if txid in self.nodes:
            raise NodeThereError(txid)
        self.nodes[txid] = data

    def set(self, txid: int, data: bytes) -> None:
        if txid not in self.nodes:
            raise NodeGoneError(txid)
        self.nodes[txid] = data

    def delete(self, txid: int) -> None:
        if self.nodes.pop(txid, None) is None:
            raise NodeGoneError(txid)


class RotatingState:
    """A write-through map of txid to a JSON value, loaded once when it is made. A stored null is a value like any other."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._values: dict[int, Any] = {txid: json.loads(store.read(txid)) for txid in store.txids()}

    @property
    def txids(self) -> tuple[int, ...]:
        """Those that have a value, ascending."""
        return tuple(sorted(self._values))

    def get_state(self, txid: int, init: Callable[[int, Any], Any]) -> Any:
        """The value of `txid`. Where there is none it becomes `init(txid, value of the nearest lower txid or None)`.

        Behind a txid that other ones follow already nothing can be put any more: it gets null, and `init` is not called.
        """
        if txid not in self._values:
            self._check_order(txid)
            followed = any(other > txid for other in self._values)
            self.override_state(txid, None if followed else init(txid, self.get_previous_state(txid)))
        return self._values[txid]

    def get_state_or_create(self, txid: int, init: Callable[[int, Any], Any]) -> Any:
        """The value of `txid`; None where it was made only now."""
        if txid in self._values:
            return self._values[txid]
        self.get_state(txid, init)
        return None

    def get_last_state(self) -> Any:
        """The value of the highest txid, or None."""
        return self._values[max(self._values)] if self._values else None

    def get_previous_state(self, txid: int) -> Any:
        """The value of the nearest lower txid, or None."""
        known = self.txids
        at = bisect_left(known, txid)
        return self._values[known[at - 1]] if at else None

    def has_cache(self, txid: int) -> bool:
        """Has the txid a value, null included?"""
        return txid in self._values

    def override_state(self, txid: int, value: Any) -> None:
        """Set the value, whatever there was."""
        value = json_value(value, f"state of txid {txid}", "rotating state")
        data = json.dumps(value).encode("ascii")
        try:
            self._store.create(txid, data)
        except NodeThereError:  # STORM-1114: also where it has appeared only now
            self._set(txid, data)
        self._values[txid] = value

    def remove_state(self, txid: int) -> None:
        """Forget the value; nothing to do where there is none."""
        if txid in self._values:
            del self._values[txid]
            self._delete(txid)

    def cleanup_before(self, txid: int) -> None:
        """Forget the values of all lower txids."""
        for old in [other for other in self.txids if other < txid]:
            self.remove_state(old)

    def _check_order(self, txid: int) -> None:
        """Any order will do."""

    def _set(self, txid: int, data: bytes) -> None:
        try:
            self._store.set(txid, data)
        except NodeGoneError:  # another client deleted it in between
            self._store.create(txid, data)

    def _delete(self, txid: int) -> None:
        try:
            self._store.delete(txid)
        except NodeGoneError:  # STORM-1114: another client was faster, which is what was wanted
            pass


class RotatingTransactionalState(RotatingState):
    """The same; with `strict_order` txids get their values one after the other, from 1 on, and never in between."""

    def __init__(self, store: StateStore, *, strict_order: bool = False) -> None:
        super().__init__(store)
        self._strict_order = strict_order

    def _check_order(self, txid: int) -> None:
        if not self._strict_order:
            return
        if any(other > txid for other in self._values):
            raise OutOfOrderError(f"txid {txid} is asked for, but txid {max(self._values)} has a value already")
        if txid != 1 and txid - 1 not in self._values:
            raise OutOfOrderError(f"txid {txid} is asked for, but txid {txid - 1} has no value")
