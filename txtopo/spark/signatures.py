"""Checks which order a task ran with: every task on a leaf signs before its first row, and the driver compares
immediately.

A batch's order reaches its tasks through a property of the thread that starts the job, and the results belong to the
thread that asked. Nothing that passes through the users' functions could connect the two: an aggregate drops every
column that it does not know. So the leaves upstream of them do it. A *copy* of a plan serves one order at a time, its
leaves know the copy's number, and a signature names copy and order. As long as no signature of a copy names another
order than the one that holds it, every row that its results came from was emitted under that order; this includes
persisted rows and rows of tasks that ran twice.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from txtopo.errors import invariant
from txtopo.spark.session import used_workers

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

ORDER_PROPERTY = "txtopo.order"
"""Local property of the job: the order's number, then which batch its tasks emit. It is not part of the plan, so that
one plan serves all batches.
"""
NOTHING = "nothing"
"""Order of jobs at the start, over no rows."""
INSIDE = "inside"
"""Order of jobs whose plan contains the order, because it is too large for a local property."""
NOBODY = 0
"""The order of a copy that no order holds; orders are numbered from 1."""
REMEMBERED_MAX = 1024
"""Number of ended orders, the latest ones, whose description is remembered."""
_ORDERS = itertools.count(1)
_COPIES = itertools.count(1)
WHY = "threads are not pinned, a job was started in a separate thread, or a bolt kept rows of an earlier call"


class NoBatchError(Exception):
    """A job reads a spout without an order. It must fail: if it emitted nothing, the batch would look empty."""

    def __init__(self) -> None:
        super().__init__(
            "a job of no batch: a bolt ran an action in a separate thread; start it with pyspark.InheritableThread"
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """The fact that a task on a leaf ran."""

    copy: int
    leaf: str
    """Name of the spout or DataFrame; empty for tasks downstream of the leaves."""
    made_for: str | None
    """Name of the run that its plan was made for; None: the plan serves all runs."""
    order: int
    """Number of the order that its job carried."""


def new_copy() -> int:
    """Return a number for a copy of a plan; this process never uses it again."""
    return next(_COPIES)


def property_of(number: int, order: str | None) -> str:
    """Return the text of ORDER_PROPERTY. `order` None: the plan contains the order."""
    return f"{number} {order or INSIDE}"


@dataclass(frozen=True, kw_only=True)
class Signer:
    """What the function of a leaf needs to sign."""

    reports: Accumulator[Any]
    copy: int = field(default_factory=new_copy)
    made_for: str | None = None
    """See Signature."""

    def order(self, inside: str | None, leaves: Sequence[str] = ("",)) -> tuple[int, str | None]:
        """Sign, and return number and text of the order of this task's job. `inside` is the text if the plan contains
        the order. Text None: emit nothing. Raises NoBatchError.
        """
        context = TaskContext.get()
        if context is None:
            return 0, inside
        used_workers.begins()
        given = context.getLocalProperty(ORDER_PROPERTY)
        if given is None:
            raise NoBatchError
        number, _, text = given.partition(" ")
        self.reports.add([Signature(self.copy, leaf, self.made_for, int(number)) for leaf in leaves])
        return int(number), None if text == NOTHING else inside or text


@dataclass(slots=True)
class _Order:
    words: str
    runs: tuple[str, ...]
    ended: bool = False

    def told(self) -> str:
        return f"an earlier job of {self.words}" if self.ended else self.words


@dataclass(slots=True)
class _Holding:
    order: int
    leaves: set[str] = field(default_factory=set)


class Signatures:
    """The driver's record: which order holds which copy, and which runs are suspect. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: dict[int, _Order] = {}
        self._ended: deque[int] = deque()
        """Orders that have ended, the earliest first."""
        self._held: dict[int, _Holding] = {}
        self._open: set[str] = set()
        self._suspected: dict[str, str] = {}
        self._unsigned: dict[str, str] = {}

    @contextlib.contextmanager
    def order(self, words: str, runs: Sequence[str] = ()) -> Iterator[int]:
        """Yield the number of a new order of these runs, valid in the body; `words` as in "batch 7"."""
        number = next(_ORDERS)
        with self._lock:
            self._orders[number] = _Order(words, tuple(runs))
        try:
            yield number
        finally:
            with self._lock:
                self._orders[number].ended = True
                self._ended.append(number)
                if len(self._ended) > REMEMBERED_MAX:
                    del self._orders[self._ended.popleft()]

    @contextlib.contextmanager
    def held(self, copy: int, order: int, leaves: Collection[str] = ()) -> Iterator[None]:
        """Let the copy serve this order in the body. Every one of these leaves must sign at least once; otherwise the
        order's runs are not trusted.
        """
        with self._lock:
            invariant(copy not in self._held, f"copy {copy} of a plan serves two jobs at the same time")
            holding = self._held[copy] = _Holding(order)
        try:
            yield
            with self._lock:
                if missing := sorted(set(leaves) - holding.leaves):
                    for run in self._open.intersection(self._runs(order)):
                        self._unsigned[run] = f"no task read {', '.join(missing)} for it"
        finally:
            with self._lock:
                del self._held[copy]

    def receive(self, signature: Signature) -> None:
        """Compare a signature with the order that holds its copy, and the run that its plan was made for with the runs
        of the order.
        """
        with self._lock:
            holding = self._held.get(signature.copy)
            if holding is None or holding.order != signature.order:
                self._suspect(NOBODY if holding is None else holding.order, signature.order)
                return
            holding.leaves.add(signature.leaf)
            runs = self._runs(signature.order)
            if signature.made_for is not None and signature.made_for not in runs:
                what = (
                    f"a task of {self._words(signature.order)} read rows that were made for "
                    f"{_batch(signature.made_for)}: {WHY}"
                )
                self._note(what, *runs, signature.made_for)

    def mixed(self, order: int, other_order: int) -> None:
        """Note that the answer to one order had the number of another."""
        with self._lock:
            self._suspect(order, other_order)

    def mixed_copies(self, order: int, other_copy: int) -> None:
        """Note that the answer to one order came from a copy that another order holds."""
        with self._lock:
            holding = self._held.get(other_copy)
            self._suspect(order, NOBODY if holding is None else holding.order)

    def doubt(self, run: str, *, complete: bool) -> str | None:
        """Return why this run must not be trusted, whatever else is known about it; None if there is no reason.
        `complete`: the run is assumed to have read everything.
        """
        with self._lock:
            return self._suspected.get(run) or (self._unsigned.get(run) if complete else None)

    def open(self, run: str) -> None:
        """Begin a run."""
        with self._lock:
            self._open.add(run)

    def forget(self, run: str) -> None:
        """End a run."""
        with self._lock:
            self._open.discard(run)
            self._suspected.pop(run, None)
            self._unsigned.pop(run, None)

    def _suspect(self, holder: int, order: int) -> None:
        of = "a plan that nobody runs" if holder == NOBODY else self._words(holder)
        words = f"a task of {of} ran with the order of {self._words(order)}: {WHY}"
        self._note(words, *self._runs(holder), *self._runs(order))

    def _note(self, words: str, *runs: str) -> None:
        for run in self._open.intersection(runs):
            self._suspected.setdefault(run, words)

    def _runs(self, order: int) -> tuple[str, ...]:
        found = self._orders.get(order)
        return found.runs if found is not None else ()

    def _words(self, order: int) -> str:
        found = self._orders.get(order)
        return found.told() if found is not None else "no batch that is known"


def _batch(run: str) -> str:
    return f"batch {run.partition(':')[0]}"
