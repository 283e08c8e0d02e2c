"""Storm's acker as a pure state machine: which tuple trees are complete, which failed, and which have run out of time.

It is the model that the batch runtime's vectorised folding is held against, and what the feeding harness
(`txtopo.testing.feeding`) runs on. Time is what `advance` is told: nothing in here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from txtopo.errors import unreachable

SPOUT_BUCKETS = 2
"""Storm's spouts fail a tuple after one to two timeouts: it is in the newest of two buckets when it is emitted."""
ACKER_BUCKETS = 3
"""Storm 2's acker keeps a record longer than the spout waits for it, so that a late answer does not begin a second
record.
"""

_Value = TypeVar("_Value")


class AckerAnswer(Enum):
    """What an acker tells a spout's task."""

    ACK = "ack"
    FAIL = "fail"
    RESET = "reset"
    """Begin the tuple's time anew."""


class TreeVerdict(NamedTuple):
    """An answer of an acker, for the spout task that emitted the root."""

    answer: AckerAnswer
    root: int
    task: int
    """Id of the spout's task, as INIT named it."""
    seconds: float
    """How long the acker had a record of the root; 0 for a reset."""


class RotatingMap(Generic[_Value]):
    """Values that expire after so many rotations (Storm's RotatingMap): a `put` moves to the newest bucket, `rotate`
    empties the oldest.
    """

    def __init__(self, buckets: int) -> None:
        if buckets < 2:
            unreachable("a rotating map has at least two buckets")
        self._buckets: list[dict[int, _Value]] = [{} for _ in range(buckets)]

    def put(self, key: int, value: _Value) -> None:
        """Put into the newest bucket, out of any other."""
        self.remove(key)
        self._buckets[0][key] = value

    def get(self, key: int) -> _Value | None:
        """The value, wherever it is; looking does not make it newer."""
        return next((bucket[key] for bucket in self._buckets if key in bucket), None)

    def remove(self, key: int) -> _Value | None:
        """Take out; None where it is not there."""
        return next((bucket.pop(key) for bucket in self._buckets if key in bucket), None)

    def rotate(self) -> dict[int, _Value]:
        """Make a new newest bucket; returns what was in the oldest, in the order in which it was put."""
        expired = self._buckets.pop()
        self._buckets.insert(0, {})
        return expired

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[int]:
        """Keys, oldest bucket first."""
        return (key for bucket in reversed(self._buckets) for key in bucket)


class Metronome:
    """Says how many ticks, one every `every_s` seconds from 0, fall into the time that passes. Times are absolute, so
    that nothing adds up.
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
        """When the next tick is due."""
        return (self._ticks + 1) * self._every_s

    def advance(self, now: float) -> int:
        """It is `now`; returns the ticks since it last was, one that is due at this very moment included."""
        self.now = max(self.now, now)
        due = 0
        while self.next_s <= self.now:
            self._ticks += 1
            due += 1
        return due


class _Record:
    """All that is kept of a root, however many tuples its tree has."""

    __slots__ = ("failed", "started", "task", "value")

    def __init__(self, started: float) -> None:
        self.value = 0
        self.task: int | None = None
        """Unknown until INIT is there."""
        self.failed = False
        self.started = started


class Acker:
    """One acker task (Storm's Acker): INIT, ACK, FAIL and RESET of a root in any order; each returns the answer that is
    due, None where none is.

    What comes before INIT makes a record and waits for it. A root that is answered is forgotten; what still comes makes
    an orphan record, which ages out without a word. `val == 0` wins over `failed`.
    """

    def __init__(self, *, timeout_s: float = 30.0, timeouts: bool = True) -> None:
        self._records: RotatingMap[_Record] = RotatingMap(ACKER_BUCKETS)
        self._metronome = Metronome(timeout_s)
        self._timeouts = timeouts

    def init(self, root: int, value: int, task: int) -> TreeVerdict | None:
        """A spout's task has emitted the root's tuples; `value` is the XOR of their ids."""
        record = self._record(root)
        record.value ^= value
        record.task = task
        return self._verdict(root, record)

    def ack(self, root: int, value: int) -> TreeVerdict | None:
        """A tuple of the tree is done; `value` is its id XOR the ids of all that were anchored on it."""
        record = self._record(root)
        record.value ^= value
        return self._verdict(root, record)

    def fail(self, root: int) -> TreeVerdict | None:
        """A tuple of the tree failed."""
        record = self._record(root)
        record.failed = True
        self._records.put(root, record)
        return self._verdict(root, record)

    def reset(self, root: int) -> TreeVerdict | None:
        """Somebody needs more time: the record is as new, and the spout's task is told."""
        record = self._record(root)
        self._records.put(root, record)
        verdict = self._verdict(root, record)
        if verdict is None and record.task is not None:
            return TreeVerdict(AckerAnswer.RESET, root, record.task, 0.0)
        return verdict

    def advance(self, now: float) -> None:
        """It is `now`: records that nobody has touched for too long are forgotten, silently, as in Storm. The spout's
        own map tells the spout.
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
    """What one spout task waits for (the `pending` map of Storm's spout executor): message by root, failed after one to
    two timeouts.
    """

    def __init__(self, *, timeout_s: float = 30.0, timeouts: bool = True) -> None:
        self._messages: RotatingMap[_Value] = RotatingMap(SPOUT_BUCKETS)
        self._metronome = Metronome(timeout_s)
        self._timeouts = timeouts

    def add(self, root: int, message: _Value) -> None:
        """The root was emitted."""
        self._messages.put(root, message)

    def take(self, root: int) -> _Value | None:
        """The root is answered; None where its time was over already: such an answer is ignored."""
        return self._messages.remove(root)

    def reset(self, root: int) -> None:
        """Begin the root's time anew; nothing where it is over."""
        message = self._messages.remove(root)
        if message is not None:
            self._messages.put(root, message)

    def advance(self, now: float) -> list[_Value]:
        """It is `now`; returns the messages whose time is over, oldest first. They are to be failed."""
        expired: list[_Value] = []
        for _ in range(self._metronome.advance(now)):
            if self._timeouts:
                expired += self._messages.rotate().values()
        return expired

    @property
    def next_s(self) -> float:
        """When the next rotation is due."""
        return self._metronome.next_s

    def __len__(self) -> int:
        return len(self._messages)


def acker_of(root: int, ackers: int) -> int:
    """Which of so many acker tasks has a root: Storm's fields grouping on one long, floorMod(31 + hash, ackers)."""
    bits = root & 0xFFFF_FFFF_FFFF_FFFF
    hashed = (31 + (bits ^ bits >> 32)) & 0xFFFF_FFFF
    return (hashed - (1 << 32) if hashed >> 31 else hashed) % ackers  # an int of Java, which wraps around
