"""The messages between tasks of one attempt: tuples, their counts, acks, results."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from txtopo.core.values import Failure, RejectedRow, TransactionAttempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

DRIVER = 0
"""Target of messages to the driver; ids of tasks count from 1."""


class Kind(IntEnum):
    """Kinds of messages."""

    DATA = 0
    """Tuples of one stream: `rows` of them in `body`. The last column is `$roots` (see roots.Roots) if tuples are
    tracked, or if they come directly from a source. To a counting committer that can count them so, tuples that are not
    tracked go in groups (see partial_groups).
    """
    REPORT = 1
    """The coordination row of CoordinatedBolt: `rows` tuples were sent from `source` to `target` over `edge`, 0
    included. One for each edge and pair of tasks.
    """
    ACK = 2
    """To an acker task: `rows` roots, with the value to XOR into the record of each, and the failed ones (see
    acking.told).
    """
    RESULT = 3
    """To the driver: result rows of one committer task (`edge` is the committer's number), or of an acker task (`edge`
    -1). One or more per task; the last one has kind END.
    """
    END = 4
    """To the driver: the committer or acker task `source` is done; `rows` tuples arrived at it."""
    STORED = 5
    """To the driver: attempt `source` at Spark's task `seq` has stored `rows` result rows of committer number `edge` in
    Postgres (R10). The messages of kind RESULT that had them come without a body.
    """


class Message(NamedTuple):
    """One message. A task gets its messages sorted by (run, target, source, kind, edge, seq): always in the same order,
    in any process.
    """

    run: int
    """Index of the attempt in its wave."""
    target: int
    source: int
    """Id of the sending task; below 0 for sources (see graph.source_id)."""
    kind: int
    edge: int
    seq: int
    """Number of the message among those of one kind, edge and pair of tasks, from 0."""
    rows: int
    body: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One attempt of a wave, as every task of its job knows it."""

    run: str
    """Name in its reports; differs for every call of `process`."""
    attempt: TransactionAttempt
    sources: Mapping[str, int]
    """Number of source tasks of each spout (its parts, at least 1) and of each DataFrame that feeds the tuple runtime.
    """
    traced: bool = False
    """Track every tuple although the topology does not: a failed attempt runs again in this way, so that the source
    tuple can be named.
    """
    excluded: Mapping[str, Mapping[int, frozenset[int]]] = field(default_factory=dict)
    """By spout and part: numbers of tuples that are skipped, because a bolt fails on them (dead letters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleFailure:
    """A failure of a component in one attempt."""

    failure: Failure
    roots: tuple[int, ...] = ()
    """Ids of the spout tuples that it came from (graph.root_id), if they are known: always for tuples directly from a
    spout, otherwise with tracing.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task of one attempt, as the task reports it. A rerun of the task must report the same (K3: input or code that
    is not deterministic).
    """

    run: str
    component: str
    index: int
    """Number of the task in its component; for a spout, number of the part."""
    read: int = 0
    """For a spout: number of source records, including rejected ones."""
    emitted: int = 0
    """For a spout: number of tuples that it emitted."""
    rejects: tuple[RejectedRow, ...] = ()
    sent: tuple[tuple[int, int], ...] = ()
    """(edge, number of tuples) sent to all tasks of the edge."""
    received: tuple[tuple[int, int], ...] = ()
    """(edge, number of tuples) received from all tasks of the edge."""
    failures: tuple[TupleFailure, ...] = ()
    """Why the attempt must not commit; with dead letters, all failures, at most their limit + 1."""


class TakeReport(Protocol):
    """Receives the reports of tasks."""

    def __call__(self, report: TaskReport, /) -> None: ...
