"""A queue that is fair to its keys: one value of each in turn (Storm's KeyedRoundRobinQueue)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class FairQueue(Generic[_Key, _Value]):
    """Values by key, taken one key after the other; the values of a key in the order in which they came.

    For bolts that hold tuples back and must let no key starve another. The runtime needs none: where Storm's KeyedFairBolt shares one task among
    batches, here each attempt has tasks of its own. A key whose last value is taken leaves the ring; when it comes back it stands at the end. One
    thread uses it.
    """

    def __init__(self) -> None:
        self._queues: dict[_Key, deque[_Value]] = {}
        self._ring: list[_Key] = []
        self._at = 0

    def add(self, key: _Key, value: _Value) -> None:
        """Put a value behind the others of its key."""
        if key not in self._queues:
            self._queues[key] = deque()
            self._ring.append(key)
        self._queues[key].append(value)

    def take(self) -> _Value:
        """The next value in turn. Raises IndexError where there is none."""
        if not self._ring:
            raise IndexError("take from an empty fair queue")
        key = self._ring[self._at]
        queue = self._queues[key]
        value = queue.popleft()
        if queue:
            self._at = (self._at + 1) % len(self._ring)
        else:
            del self._queues[key], self._ring[self._at]
            self._at %= max(len(self._ring), 1)
        return value

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))
