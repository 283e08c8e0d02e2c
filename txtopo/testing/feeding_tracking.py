"""Tracks fed tuples as Storm's collectors, spouts and ackers do together, on a clock that is set by the test."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from operator import xor
from typing import Any

from txtopo.topology.streams import Origin, Tuple
from txtopo.tuples.acker import Acker, AckerAnswer, Pending, TreeVerdict, acker_of
from txtopo.tuples.hashing import mix_int


class FedTuple(Tuple):
    """A tuple with the data for its tracking. Its size depends on the number of its roots, not on the tuples anchored
    on it.
    """

    __slots__ = ("ids", "value")

    def __init__(self, values: Sequence[Any], origin: Origin, ids: dict[int, int]) -> None:
        super().__init__(values, origin)
        self.ids = ids
        """Id of the tuple in the tree of each root; empty if it is not tracked."""
        self.value = 0
        """XOR of the ids of all tuples that were anchored on it (Storm's ackVal)."""


class Ids:
    """Ids of tuples and roots: spread like Storm's random ids, but the same in every run."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Return a new id; never 0."""
        self._last += 1
        return mix_int(self._last) or self.next()

    def anchored(self, anchors: Sequence[Tuple]) -> dict[int, int]:
        """Return the ids of a new tuple in the trees of its anchors: one new edge for each anchor, also if an anchor is
        given twice.
        """
        ids: dict[int, int] = {}
        for anchor in anchors:
            if isinstance(anchor, FedTuple) and anchor.ids:
                edge = self.next()
                anchor.value ^= edge
                for root in anchor.ids:
                    ids[root] = ids.get(root, 0) ^ edge
        return ids


Tell = Callable[[int, Hashable, bool], None]
"""Task of the spout, message id, and True if the message is acked, False if it failed."""


class Tracker:
    """All ackers, and the pending tuples of each spout task."""

    def __init__(self, spouts: Sequence[int], tell: Tell, *, ackers: int, timeout_s: float, timeouts: bool) -> None:
        """Create a tracker. `spouts` are the ids of the spouts' tasks. Without `ackers` nothing is tracked and every
        message is acked immediately.
        """
        self._tell = tell
        self._ids = Ids()
        self._ackers = [Acker(timeout_s=timeout_s, timeouts=timeouts) for _ in range(ackers)]
        self._pending = {task: Pending[int](timeout_s=timeout_s, timeouts=timeouts) for task in spouts}
        self._messages: dict[int, Hashable] = {}
        """All roots that ever existed: late tuples still refer to theirs."""

    def root(self, task: int, message: Hashable | None) -> int | None:
        """Return the root of the tree of a tuple that a spout task emits; None if it is not tracked, because it has no
        message id or there are no ackers.
        """
        if message is None:
            return None
        if not self._ackers:
            self._tell(task, message, True)
            return None
        root = self._ids.next()
        self._messages[root] = message
        self._pending[task].add(root, root)
        return root

    def edge(self, root: int | None) -> dict[int, int]:
        """Return the ids of one tuple that leaves the spout."""
        return {} if root is None else {root: self._ids.next()}

    def init(self, task: int, root: int, edges: Sequence[int]) -> None:
        """All tuples of a root have left the spout, with these ids; empty if no component reads them."""
        self._heed(self._acker(root).init(root, reduce(xor, edges, 0), task))

    def anchored(self, anchors: Sequence[Tuple]) -> dict[int, int]:
        """Return the ids of one tuple that leaves a bolt."""
        return self._ids.anchored(anchors)

    def ack(self, tup: Tuple) -> None:
        """A bolt has acked a tuple."""
        if isinstance(tup, FedTuple):
            for root, edge in tup.ids.items():
                self._heed(self._acker(root).ack(root, edge ^ tup.value))

    def fail(self, tup: Tuple) -> None:
        """A bolt has failed a tuple."""
        if isinstance(tup, FedTuple):
            for root in tup.ids:
                self._heed(self._acker(root).fail(root))

    def reset(self, tup: Tuple) -> None:
        """A bolt has reset the timeout of a tuple."""
        if isinstance(tup, FedTuple):
            for root in tup.ids:
                self._heed(self._acker(root).reset(root))

    def advance(self, now: float) -> None:
        """Set the time to `now`: what has been pending for too long fails."""
        for acker in self._ackers:
            acker.advance(now)
        for task, pending in self._pending.items():
            for root in pending.advance(now):
                self._tell(task, self._messages[root], False)

    @property
    def next_s(self) -> float:
        """Return the time of the next possible timeout."""
        return min(pending.next_s for pending in self._pending.values())

    def waits_for(self, task: int) -> int:
        """Return the tuples of a spout task that are neither acked nor failed."""
        return len(self._pending[task])

    def messages(self, roots: Sequence[int]) -> tuple[Hashable, ...]:
        """Return the message ids of roots."""
        return tuple(self._messages[root] for root in roots)

    def _acker(self, root: int) -> Acker:
        return self._ackers[acker_of(root, len(self._ackers))]

    def _heed(self, verdict: TreeVerdict | None) -> None:
        if verdict is None:
            return
        pending = self._pending[verdict.task]
        if verdict.answer is AckerAnswer.RESET:
            pending.reset(verdict.root)
        elif pending.take(verdict.root) is not None:  # Otherwise it timed out before: Storm ignores the answer.
            self._tell(verdict.task, self._messages[verdict.root], verdict.answer is AckerAnswer.ACK)
