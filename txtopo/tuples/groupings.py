"""Chooses the tasks that get each tuple of a batch: Storm's groupings, one object for each source task and edge.

A choice depends only on the source task, the edge and the tuples, so a rerun makes the same choice. "Local" means the
task with the source task's own number, if both components have the same number of tasks: a task is not bound to a
process, so no other task is nearer.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.errors import BatchDataError, unreachable
from txtopo.tuples import hashing
from txtopo.tuples.graph import Edge
from txtopo.tuples.user_errors import shown

Indices = npt.NDArray[np.intp]


class Choice(NamedTuple):
    """Which rows of a batch go to which task."""

    order: Indices | None
    """Numbers of the rows, grouped by target; None: the rows in their order."""
    shares: Sequence[tuple[int, int, int]]
    """(position among the targets, first, rows) of the rows in that order. Targets without rows are missing; positions
    ascend.
    """

    def rows_of(self, batch: pa.RecordBatch, share: tuple[int, int, int]) -> pa.RecordBatch:
        """Return the rows of one share. Each share separately: copies for many targets need not fit into one column
        together.
        """
        _, first, rows = share
        return (
            batch.slice(first, rows) if self.order is None else batch.take(pa.array(self.order[first : first + rows]))
        )


class RowFailed(Exception):
    """User code in a grouping raised for one row of a batch."""

    def __init__(self, error: BaseException, row: int, shown: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.row = row
        self.shown = shown
        """The row as text for people."""
        self.roots: tuple[int, ...] = ()
        """Ids of the spout tuples that it came from, if they are known."""


class TaskChooser(ABC):
    """How one source task sends over one edge."""

    def prepare(self) -> None:  # noqa: B027 - only the user's own have something to do here
        """Called before the first batch. Raises what the user's code raises."""

    @abstractmethod
    def choose(self, batch: pa.RecordBatch) -> Choice:
        """Divide a batch with the edge's fields among the targets. Rows of one target keep their order."""

    def reach(self, targets: int) -> int:
        """Return to how many of its targets it may send."""
        return targets

    def route(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return the same as pairs of position among the targets and rows."""
        choice = self.choose(batch)
        return [(share[0], choice.rows_of(batch, share)) for share in choice.shares]


class Whole(TaskChooser):
    """Whole batches to the same tasks: all, global, local, and everything if there is only one task."""

    def __init__(self, positions: Sequence[int]) -> None:
        self._positions = tuple(positions)

    def reach(self, targets: int) -> int:
        return len(self._positions)

    def choose(self, batch: pa.RecordBatch) -> Choice:
        return Choice(None, [(position, 0, batch.num_rows) for position in self._positions])


class Shuffle(TaskChooser):
    """Exactly even from each source task: the next batch continues with the next target. Neighbours stay together, so
    that no row is copied.
    """

    def __init__(self, count: int, start: int) -> None:
        self._count = count
        self._turn = start % count

    def choose(self, batch: pa.RecordBatch) -> Choice:
        each, more = divmod(batch.num_rows, self._count)
        sizes = [each] * self._count
        for step in range(more):
            sizes[(self._turn + step) % self._count] += 1
        self._turn = (self._turn + more) % self._count
        return Choice(None, _shares(sizes))


class ByFields(TaskChooser):
    """Tuples with equal values in some fields go to the same task."""

    def __init__(self, count: int, columns: Sequence[int]) -> None:
        self._count = count
        self._hasher = hashing.Hasher(columns)

    def choose(self, batch: pa.RecordBatch) -> Choice:
        return split(hashing.targets(self._hasher.rows(batch), self._count), self._count)


class PartialKey(TaskChooser):
    """Of the two tasks that a key may go to, the one to which this source task has sent less (Storm's
    PartialKeyGrouping).
    """

    def __init__(self, count: int, columns: Sequence[int]) -> None:
        self._count = count
        self._hasher = hashing.Hasher(columns)
        self._sent = [0] * count

    def choose(self, batch: pa.RecordBatch) -> Choice:
        hashes = self._hasher.rows(batch)
        first = hashing.targets(hashes, self._count)
        second = hashing.second_targets(hashes, first, self._count)
        chosen = [less_used((a, b), self._sent) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
        return split(np.array(chosen, dtype=np.intp), self._count)


def less_used(candidates: Sequence[int], sent: list[int]) -> int:
    """Return the candidate that got less until now, the first of equals, and count it (Storm's
    BalancedTargetSelector).
    """
    best = min(candidates, key=sent.__getitem__)
    sent[best] += 1
    return best


class Custom(TaskChooser):
    """A custom grouping."""

    def __init__(self, edge: Edge, task: int, targets: Sequence[int]) -> None:
        self._edge = edge
        self._grouping = edge.subscription.custom or unreachable(f"{edge.name} has no custom grouping")
        self._task = task
        self._targets = list(targets)
        self._positions: dict[object, int] = {target: position for position, target in enumerate(targets)}
        self._width = len(edge.fields.items)

    def prepare(self) -> None:
        """Make a fresh copy for each source task and attempt, without state of another one, and prepare it."""
        self._grouping = copy.deepcopy(self._grouping)
        self._grouping.prepare(self._edge.source, self._edge.stream, self._edge.fields, self._targets)

    def choose(self, batch: pa.RecordBatch) -> Choice:
        chosen: list[list[int]] = [[] for _ in self._positions]
        columns = [batch.column(at).to_pylist() for at in range(self._width)]
        for row, values in enumerate(zip(*columns, strict=True)):
            try:
                for target in self._listed(self._grouping.choose_tasks(self._task, values)):
                    chosen[self._position(target)].append(row)
            except (Exception, SystemExit) as error:
                raise RowFailed(error, row, shown(dict(zip(self._edge.fields.names, values, strict=True)))) from error
        return _grouped([np.array(rows, dtype=np.intp) for rows in chosen])

    def _listed(self, tasks: Sequence[int]) -> Sequence[int]:
        # The most frequent mistakes: one id instead of a list, and a forgotten `return`.
        if not isinstance(tasks, Iterable):
            raise BatchDataError(
                f"{self._edge.name}: choose_tasks of {type(self._grouping).__name__} returned {tasks!r}, which is not "
                f"a list of task ids",
                component=self._edge.source,
                fault="grouping returned no list",
            )
        return tasks

    def _position(self, target: object) -> int:
        position = self._positions.get(target)
        if position is None:
            raise BatchDataError(
                f"{self._edge.name}: {type(self._grouping).__name__} chose task {target!r}; "
                f"{self._edge.target} has the tasks {', '.join(map(str, self._positions))}",
                component=self._edge.source,
                fault="grouping chose no task of its target",
            )
        return position


def split(positions: Indices, count: int) -> Choice:
    """Return the rows of each position; each row has one of `count` positions."""
    sizes = np.bincount(positions, minlength=count)
    if len(positions) and sizes[positions[0]] == len(positions):
        return Choice(None, [(int(positions[0]), 0, len(positions))])
    # The narrow type lets numpy sort by radix.
    order = np.argsort(positions.astype(np.uint16 if count <= 65_536 else np.uint32), kind="stable")
    return Choice(order, _shares(sizes.tolist()))


def named_tasks(tasks: Sequence[int], targets: Sequence[int]) -> Choice:
    """Return the rows of each target if the emitter names the task of each row; some may be tasks of another
    component.
    """
    named = np.asarray(tasks, dtype=np.int64)
    return _grouped([np.flatnonzero(named == target) for target in targets])


def _grouped(rows: Sequence[Indices]) -> Choice:
    """Return a choice from the rows of each position."""
    return Choice(np.concatenate(rows), _shares(map(len, rows)))


def _shares(sizes: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return the shares of rows that are grouped by position."""
    shares, first = [], 0
    for position, size in enumerate(sizes):
        if size:
            shares.append((position, first, size))
        first += size
    return shares


def grouping_of(edge: Edge, *, source: int, index: int, tasks: int, targets: Sequence[int]) -> TaskChooser:
    """Return the grouping of source task `source`, the `index`-th of `tasks`, over an edge. The caller prepares it
    before use.
    """
    count = len(targets)
    match edge.grouping:
        case "all":
            return Whole(range(count))
        case "custom":
            return Custom(edge, source, targets)
        case "global":
            return Whole([0])
        case "local_or_shuffle" | "local_first" if tasks == count:
            return Whole([index])
    if count == 1:
        return Whole([0])
    match edge.grouping:
        case "fields":
            return ByFields(count, columns_of(edge)) if edge.subscription.fields else Whole([0])
        case "partial_key":
            return PartialKey(count, columns_of(edge) or [0])
        case "shuffle" | "none" | "local_or_shuffle" | "local_first" | "load_aware" | "load_aware_shuffle":
            # Storm chooses at random; different start positions avoid that the first tasks always get the additional
            # tuple.
            return Shuffle(count, start=index + edge.number)
    return unreachable(f"{edge.name}: unknown grouping {edge.grouping!r}")


def columns_of(edge: Edge) -> list[int]:
    """Return the positions of the fields that the grouping names."""
    names = edge.fields.names
    return [names.index(name) for name in edge.subscription.fields]
