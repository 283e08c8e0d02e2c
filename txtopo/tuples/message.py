"""What tasks of one attempt send each other: tuples, the counts that go with them, acks, results."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from txtopo.core.values import Failure, RejectedRow, TransactionAttempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

DRIVER = 0
"""Target of what goes to the driver; ids of tasks count from 1."""


class Kind(IntEnum):
    """What a message is."""

    DATA = 0
    """Tuples of one stream: `rows` of them in `body`. The last column is `$roots` (see roots.Roots) where tuples are
    tracked, and straight from a source.
    """
    REPORT = 1
    """The coordination row of CoordinatedBolt: `rows` tuples were sent from `source` to `target` over `edge`, 0
    included. One for each edge and pair of tasks.
    """
    ACK = 2
    """To an acker task: `rows` roots, with what is to be XORed into the record of each, and which of them failed (see
    acking.told).
    """
    RESULT = 3
    """To the driver: result rows of one committer task (`edge` is the committer's number), or of an acker task (`edge`
    -1). One or more a task; the last one has kind END.
    """
    END = 4
    """To the driver: the committer or acker task `source` is done; `rows` tuples arrived at it."""


class Message(NamedTuple):
    """One message. Sorted by (run, target, source, kind, edge, seq) they are what a task gets: always in the same
    order, wherever it runs.
    """

    run: int
    """Index of the attempt in its wave."""
    target: int
    source: int
    """Id of the sending task; below 0 for sources (see graph.source_id)."""
    kind: int
    edge: int
    seq: int
    """Counts the messages of one kind, edge and pair of tasks from 0."""
    rows: int
    body: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One attempt of a wave, as every task of its job knows it."""

    run: str
    """Name that reports carry; differs for every call of `process`."""
    attempt: TransactionAttempt
    sources: Mapping[str, int]
    """Number of source tasks of each spout (its parts, at least 1) and of each DataFrame that feeds the tuple runtime.
    """
    traced: bool = False
    """Track every tuple although the topology does not: a failed attempt runs again so, that the source tuple can be
    named.
    """
    excluded: Mapping[str, Mapping[int, frozenset[int]]] = field(default_factory=dict)
    """By spout and part: numbers of tuples that are left out, since a bolt fails on them (dead letters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleFailure:
    """A failure of a component in one attempt."""

    failure: Failure
    roots: tuple[int, ...] = ()
    """Ids of the spout tuples behind it (graph.root_id), where they are known: always for tuples straight from a spout,
    else with tracing.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task of one attempt, as it saw itself. A rerun of the task must say the same (K3)."""

    run: str
    component: str
    index: int
    """Which of the component's tasks; the part, of a spout."""
    read: int = 0
    """Of a spout: source records, rejected ones included."""
    emitted: int = 0
    """Of a spout: tuples that left it."""
    rejects: tuple[RejectedRow, ...] = ()
    sent: tuple[tuple[int, int], ...] = ()
    """(edge, tuples) sent to all tasks of the edge."""
    received: tuple[tuple[int, int], ...] = ()
    """(edge, tuples) received from all tasks of the edge."""
    failures: tuple[TupleFailure, ...] = ()
    """Why the attempt must not commit; with dead letters wanted, as many as there are, at most their limit + 1."""


class TakeReport(Protocol):
    """Where tasks put their reports."""

    def __call__(self, report: TaskReport, /) -> None: ...
