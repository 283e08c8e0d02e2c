"""Track fed tuples as Storm's collectors, spouts and ackers do between them, on a clock that is told the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from operator import xor
from typing import Any

from txtopo.topology.streams import Origin, Tuple
from txtopo.tuples.acker import Acker, AckerAnswer, Pending, TreeVerdict, acker_of
from txtopo.tuples.hashing import mix_int


class FedTuple(Tuple):
    """A tuple with what tracking needs of it: fixed in size by the number of its roots, not by what is anchored on
    it.
    """

    __slots__ = ("ids", "value")

    def __init__(self, values: Sequence[Any], origin: Origin, ids: dict[int, int]) -> None:
        super().__init__(values, origin)
        self.ids = ids
        """Id of the tuple in the tree of each root; none where it is not tracked."""
        self.value = 0
        """XOR of the ids of all that was anchored on it (Storm's ackVal)."""


class Ids:
    """Ids of tuples and roots: scattered as Storm's are, and yet the same in every run."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """One that was not there before; never 0."""
        self._last += 1
        return mix_int(self._last) or self.next()

    def anchored(self, anchors: Sequence[Tuple]) -> dict[int, int]:
        """The ids of a new tuple in the trees of its anchors: a new edge for each anchor, the same one twice
        included.
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
"""Task of the spout, message id, and whether it is acked: else it failed."""


class Tracker:
    """All ackers, and what each task of a spout waits for."""

    def __init__(self, spouts: Sequence[int], tell: Tell, *, ackers: int, timeout_s: float, timeouts: bool) -> None:
        """`spouts` are the ids of their tasks; without `ackers` nothing is tracked and every message is acked at
        once.
        """
        self._tell = tell
        self._ids = Ids()
        self._ackers = [Acker(timeout_s=timeout_s, timeouts=timeouts) for _ in range(ackers)]
        self._pending = {task: Pending[int](timeout_s=timeout_s, timeouts=timeouts) for task in spouts}
        self._messages: dict[int, Hashable] = {}
        """By root, all there ever were: late tuples still name theirs."""

    def root(self, task: int, message: Hashable | None) -> int | None:
        """A spout's task emits a tuple: the root of its tree; None where it is not tracked, since it has no message id
        or there are no ackers.
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
        """Ids of one tuple that leaves the spout."""
        return {} if root is None else {root: self._ids.next()}

    def init(self, task: int, root: int, edges: Sequence[int]) -> None:
        """All tuples of a root have left the spout, with those ids; none where nobody reads them."""
        self._heed(self._acker(root).init(root, reduce(xor, edges, 0), task))

    def anchored(self, anchors: Sequence[Tuple]) -> dict[int, int]:
        """Ids of one tuple that leaves a bolt."""
        return self._ids.anchored(anchors)

    def ack(self, tup: Tuple) -> None:
        """A bolt is done with a tuple."""
        if isinstance(tup, FedTuple):
            for root, edge in tup.ids.items():
                self._heed(self._acker(root).ack(root, edge ^ tup.value))

    def fail(self, tup: Tuple) -> None:
        """A bolt gives a tuple up."""
        if isinstance(tup, FedTuple):
            for root in tup.ids:
                self._heed(self._acker(root).fail(root))

    def reset(self, tup: Tuple) -> None:
        """A bolt asks for more time."""
        if isinstance(tup, FedTuple):
            for root in tup.ids:
                self._heed(self._acker(root).reset(root))

    def advance(self, now: float) -> None:
        """It is `now`: what has waited too long has failed."""
        for acker in self._ackers:
            acker.advance(now)
        for task, pending in self._pending.items():
            for root in pending.advance(now):
                self._tell(task, self._messages[root], False)

    @property
    def next_s(self) -> float:
        """When something may fall due."""
        return min(pending.next_s for pending in self._pending.values())

    def waits_for(self, task: int) -> int:
        """Tuples of a spout's task that are neither acked nor failed."""
        return len(self._pending[task])

    def messages(self, roots: Sequence[int]) -> tuple[Hashable, ...]:
        """Message ids of roots."""
        return tuple(self._messages[root] for root in roots)

    def _acker(self, root: int) -> Acker:
        return self._ackers[acker_of(root, len(self._ackers))]

    def _heed(self, verdict: TreeVerdict | None) -> None:
        if verdict is None:
            return
        pending = self._pending[verdict.task]
        if verdict.answer is AckerAnswer.RESET:
            pending.reset(verdict.root)
        elif pending.take(verdict.root) is not None:  # Else its time was over: Storm ignores the answer.
            self._tell(verdict.task, self._messages[verdict.root], verdict.answer is AckerAnswer.ACK)
