"""Storm's acker as a pure state machine: which tuple trees are complete, which failed, and which have timed out.

Tests compare the batch runtime's vectorised folding with this model, and the feeding harness (`txtopo.testing.feeding`)
runs on it. `advance` sets the time: nothing in this module reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from txtopo.errors import unreachable

SPOUT_BUCKETS = 2
"""Storm's spouts fail a tuple after one to two timeouts: when it is emitted it is in the newest of two buckets."""
ACKER_BUCKETS = 3
"""Storm 2's acker keeps a record longer than the spout waits for it, so that a late answer does not create a second
record.
"""

_Value = TypeVar("_Value")


class AckerAnswer(Enum):
    """An acker's answer to a spout's task."""

    ACK = "ack"
    FAIL = "fail"
    RESET = "reset"
    """Restart the tuple's timeout."""


class TreeVerdict(NamedTuple):
    """An answer of an acker, for the spout task that emitted the root."""

    answer: AckerAnswer
    root: int
    task: int
    """Id of the spout's task, as INIT named it."""
    seconds: float
    """Seconds that the acker had a record of the root; 0 for a reset."""


class RotatingMap(Generic[_Value]):
    """Values that expire after a number of rotations (Storm's RotatingMap): a `put` moves a value to the newest bucket,
    `rotate` empties the oldest.
    """

    def __init__(self, buckets: int) -> None:
        if buckets < 2:
            unreachable("a rotating map has at least two buckets")
        self._buckets: list[dict[int, _Value]] = [{} for _ in range(buckets)]

    def put(self, key: int, value: _Value) -> None:
        """Put into the newest bucket, and remove from any other."""
        self.remove(key)
        self._buckets[0][key] = value

    def get(self, key: int) -> _Value | None:
        """Return the value, in whichever bucket it is; reading does not make it newer. None if it is missing."""
        return next((bucket[key] for bucket in self._buckets if key in bucket), None)

    def remove(self, key: int) -> _Value | None:
        """Remove and return the value; None if it is missing."""
        return next((bucket.pop(key) for bucket in self._buckets if key in bucket), None)

    def rotate(self) -> dict[int, _Value]:
        """Make a new newest bucket; returns the content of the oldest, in the order in which it was put."""
        expired = self._buckets.pop()
        self._buckets.insert(0, {})
        return expired

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[int]:
        """Iterate over the keys, oldest bucket first."""
        return (key for bucket in reversed(self._buckets) for key in bucket)


class Metronome:
    """Counts the ticks, one every `every_s` seconds from 0, in the time that passes. Times are absolute, so that no
    error accumulates.
    """

    def __init__(self, every_s: float) -> None:
        if not every_s > 0:
            raise ValueError(f"seconds between ticks must be more than 0, not {every_s!r}")
        self._every_s = every_s
        self._ticks = 0
        self.now = 0.0
        """Seconds since the start."""

    @property
    def next_s(self) -> float:
        """Time in seconds at which the next tick is due."""
        return (self._ticks + 1) * self._every_s

    def advance(self, now: float) -> int:
        """Set the time to `now`; returns the number of ticks since the last call, including one that is due exactly at
        `now`.
        """
        self.now = max(self.now, now)
        due = 0
        while self.next_s <= self.now:
            self._ticks += 1
            due += 1
        return due


class _Record:
    """Everything that is kept of a root, independent of the number of tuples in its tree."""

    __slots__ = ("failed", "started", "task", "value")

    def __init__(self, started: float) -> None:
        self.value = 0
        self.task: int | None = None
        """Unknown until INIT has arrived."""
        self.failed = False
        self.started = started


class Acker:
    """One acker task (Storm's Acker): INIT, ACK, FAIL and RESET of a root in any order; each returns the answer that is
    due, or None.

    A message that comes before INIT creates a record that waits for it. A root that is answered is forgotten; messages
    that come later create an orphan record, which expires silently. `val == 0` has priority over `failed`.
    """

    def __init__(self, *, timeout_s: float = 30.0, timeouts: bool = True) -> None:
        self._records: RotatingMap[_Record] = RotatingMap(ACKER_BUCKETS)
        self._metronome = Metronome(timeout_s)
        self._timeouts = timeouts

    def init(self, root: int, value: int, task: int) -> TreeVerdict | None:
        """Note that a spout's task has emitted the root's tuples; `value` is the XOR of their ids."""
        record = self._record(root)
        record.value ^= value
        record.task = task
        return self._verdict(root, record)

    def ack(self, root: int, value: int) -> TreeVerdict | None:
        """Note that a tuple of the tree is done; `value` is its id XOR the ids of all tuples that were anchored on
        it.
        """
        record = self._record(root)
        record.value ^= value
        return self._verdict(root, record)

    def fail(self, root: int) -> TreeVerdict | None:
        """Note that a tuple of the tree failed."""
        record = self._record(root)
        record.failed = True
        self._records.put(root, record)
        return self._verdict(root, record)

    def reset(self, root: int) -> TreeVerdict | None:
        """Give the root more time: its record becomes new, and the answer tells the spout's task."""
        record = self._record(root)
        self._records.put(root, record)
        verdict = self._verdict(root, record)
        if verdict is None and record.task is not None:
            return TreeVerdict(AckerAnswer.RESET, root, record.task, 0.0)
        return verdict

    def advance(self, now: float) -> None:
        """Set the time to `now`: records without messages for too long are forgotten silently, as in Storm. The spout's
        own map informs the spout.
        """
        for _ in range(self._metronome.advance(now)):
            if self._timeouts:
                self._records.rotate()

    @property
    def roots(self) -> tuple[int, ...]:
        """Roots with a record, orphans included; oldest first."""
        return tuple(self._records)

    def _record(self, root: int) -> _Record:
        record = self._records.get(root)
        if record is None:
            record = _Record(self._metronome.now)
            self._records.put(root, record)
        return record

    def _verdict(self, root: int, record: _Record) -> TreeVerdict | None:
        if record.task is None or (record.value and not record.failed):
            return None
        self._records.remove(root)
        answer = AckerAnswer.FAIL if record.value else AckerAnswer.ACK
        return TreeVerdict(answer, root, record.task, self._metronome.now - record.started)


class Pending(Generic[_Value]):
    """Messages that one spout task waits for (the `pending` map of Storm's spout executor), by root; they fail after
    one to two timeouts.
    """

    def __init__(self, *, timeout_s: float = 30.0, timeouts: bool = True) -> None:
        self._messages: RotatingMap[_Value] = RotatingMap(SPOUT_BUCKETS)
        self._metronome = Metronome(timeout_s)
        self._timeouts = timeouts

    def add(self, root: int, message: _Value) -> None:
        """Note that the root was emitted."""
        self._messages.put(root, message)

    def take(self, root: int) -> _Value | None:
        """Return and remove the message of an answered root; None if it has timed out already: such an answer is
        ignored.
        """
        return self._messages.remove(root)

    def reset(self, root: int) -> None:
        """Restart the root's timeout; does nothing if it has timed out."""
        message = self._messages.remove(root)
        if message is not None:
            self._messages.put(root, message)

    def advance(self, now: float) -> list[_Value]:
        """Set the time to `now`; returns the messages that have timed out, oldest first. The caller fails them."""
        expired: list[_Value] = []
        for _ in range(self._metronome.advance(now)):
            if self._timeouts:
                expired += self._messages.rotate().values()
        return expired

    @property
    def next_s(self) -> float:
        """Time in seconds at which the next rotation is due."""
        return self._metronome.next_s

    def __len__(self) -> int:
        return len(self._messages)


def acker_of(root: int, ackers: int) -> int:
    """Return which of `ackers` acker tasks has a root: Storm's fields grouping on one long, floorMod(31 + hash,
    ackers).
    """
    bits = root & 0xFFFF_FFFF_FFFF_FFFF
    hashed = (31 + (bits ^ bits >> 32)) & 0xFFFF_FFFF
    return (hashed - (1 << 32) if hashed >> 31 else hashed) % ackers  # A Java int, which wraps around.
