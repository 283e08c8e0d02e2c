"""The values that are passed between machine, runner and ports: small, frozen, complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from txtopo.core.positions import Unit, told_position
from txtopo.errors import Patience


class TransactionAttempt(NamedTuple):
    """One attempt at one batch, as a named tuple (Storm's TransactionAttempt). Txids start at 1, attempts of a txid at
    0; neither ever decreases.
    """

    txid: int
    """The place of the batch in the commit order; the same for every attempt."""
    attempt: int
    """Number of the attempt, from 0."""

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Proof that this driver may write: compared with the fence row in every database transaction (R4)."""

    topology: str
    incarnation: str
    """UUID of this life of the topology, the same in both stores (R11)."""
    epoch: int
    """Fencing token, from Postgres (R1)."""
    owner_nonce: str
    """UUID of this candidacy."""
    code_hash: bytes
    """sha-256 of the code that this driver runs (R12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The fence row as read: who may write and how far the topology got."""

    incarnation: str
    owner_nonce: str
    epoch: int
    code_hash: bytes
    last_txid: int


FailureKind = Literal["data", "infrastructure", "suspect", "halt"]
"""data: the batch or the user's code is at fault. infrastructure: a store or an executor. suspect: ended without a
verdict. halt: no batch is at fault, every batch would fail in the same way: the topology halts at this one immediately,
with the failure's message, after the batches below it are committed. Such a failure is never counted, and no batch is
ever quarantined for it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt failed, in words for the operator."""

    kind: FailureKind
    message: str
    """One line: the cause; the user's own file and line first, if there is one."""
    component: str | None = None
    position: str | None = None
    """`file:line` in the source."""
    detail: str | None = None
    """Traceback or raw record."""
    cause: str | None = None
    """Equal if the cause is equal (W7): component, kind of error and place, as `cause_of` combines them. Never the
    message, which contains values.
    """
    next_command: str | None = None
    """What to do about a failure of kind halt."""
    of_whole: bool = False
    """True if the failure concerns the batch as a whole, such as too many rejected records, so that removing records
    that bolts fail on cannot help.
    """


def gravity(failure: Failure) -> int:
    """Return the priority among several failures of one attempt; the lowest number counts: no batch at fault, then the
    data, then the rest.
    """
    return {"halt": 0, "data": 1}.get(failure.kind, 2)


def cause_of(component: str | None, error: str, place: str | None) -> str:
    """Return the cause of a failure (W7). `error` is its kind: a class of exceptions, an SQLSTATE. `place` is the
    user's line, otherwise the object that the server named: a constraint, a column, a table.

    >>> cause_of("parse", "ValueError", "app.py:12")
    'ValueError in parse at app.py:12'
    """
    where = f" in {component}" if component else ""
    return f"{error}{where}{f' at {place}' if place else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCount:
    """What one side of an edge sent and the other received (CoordinatedBolt)."""

    edge: str
    sent: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A source record that does not parse under the declared schema: committed with its batch, in addition to the
    counts.
    """

    spout: str = ""
    """Set by the executor, which knows the spout's name."""
    path: str
    line: int
    """Where the record starts in its file, in `unit`s; the header of a text file is line 1."""
    reason: str
    raw: bytes
    """The record as in the file, without its line end, or as JSON if `unit` is `row`; its first
    `REJECTED_RAW_BYTES_MAX` bytes.
    """
    raw_bytes: int
    """Bytes of the complete record."""
    unit: Unit = "line"
    """What `line` counts."""

    @property
    def position(self) -> str:
        """Return its place as text."""
        return told_position(self.path, self.line, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A source record that was read but removed from its batch, because a bolt failed on it
    (`on_poison="dead_letter_rows"`).
    """

    spout: str
    position: str
    """Its place: `file:line`, or partition and number if the source has no lines."""
    component: str
    """The bolt that failed on it, or on a tuple that was made from it."""
    reason: str
    """The failure in one line, the user's own line first."""
    raw: bytes
    """The record as in the source, or its values as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """The result rows that one task attempt stored in Postgres: its COMMIT was confirmed to it."""

    part: int
    """Number of the task in its job."""
    task_attempt: int
    """Id of the task attempt. Rows of another attempt at the same part are in the table too, and count nothing."""
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The result rows of a committer that lie in a staging table of their attempt (R10), and not in the driver."""

    table: str
    """Name of the table in the schema of staging tables."""
    parts: tuple[StagedPart, ...]
    """The rows that count: those of one attempt at each part."""

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterResult:
    """What the executor half of one committer passes to its driver half, for one attempt; or additional input of a bolt
    downstream of committers.
    """

    committer: str
    """Name of the committer, or of that bolt."""
    arrived: int
    """Tuples that reached the committer, counted by the tasks and not from `rows`."""
    rows: Any
    """A `pyarrow.Table` of result rows, with the committer's result fields as columns; the core does not read it."""
    row_count: int
    bytes: int
    """Size in the driver's memory, in bytes."""
    deferred: tuple[tuple[str, str, Any], ...] = ()
    """(source, stream, `pyarrow.Table` of its tuples) for a component downstream of a committer, which runs in the
    commit of its batch, in the driver.
    """
    staged: Staged | None = None
    """Where the rows are if they are not in `rows`, which is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """An attempt whose processing phase succeeded: ready to commit when it is next."""

    attempt: TransactionAttempt
    code_hash: bytes
    """Hash of the code that the tasks ran, as they reported it (R12)."""
    read: int
    """Source records of the plan."""
    rejected: int = 0
    """Number of these that did not parse under the declared schema, as the tasks counted them."""
    rejected_rows: tuple[RejectedRow, ...] = ()
    """Each rejected record."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """Records removed because a bolt failed on them; part of `read`, and of no downstream count."""
    results: tuple[CommitterResult, ...]
    """One for each committer of the topology, also if no tuple arrived."""
    edges: tuple[EdgeCount, ...] = ()
    spans: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, e.g. `processing`."""

    @property
    def dead_lettered(self) -> int:
        """Number of dead letters."""
        return len(self.dead_letters)

    @property
    def bytes(self) -> int:
        """Memory that the results hold in the driver, in bytes."""
        return sum(result.bytes for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An attempt whose processing phase failed."""

    attempt: TransactionAttempt
    failure: Failure


Outcome = Processed | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterCount:
    """The numbers of one committer in one batch (docs/protocol.md): each from its own source."""

    committer: str
    arrived: int
    counted: int
    results: int
    written: int
    ignored: int = 0
    reversed: int = 0
    digest: int
    """Sum of 64-bit hashes of the applied rows, independent of their order, returned by the apply statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """COMMIT was seen, or the ledger says that it happened (R7)."""

    txid: int
    counts: tuple[CommitterCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """The ledger has this txid with this digest: nothing was applied now (R5)."""

    txid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The database transaction certainly did not commit (R7)."""

    txid: int
    failure: Failure
    patience: Patience = "store"
    """For an infrastructure failure."""
    rows_lost: bool = False
    """True: rows that tasks stored do not exist any more, so that only another attempt can be committed (R10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """COMMIT was sent and its outcome is unknown; resolved under the fence lock before anything else is committed
    (R7).
    """

    txid: int
    message: str


CommitOutcome = Committed | AlreadyCommitted | Aborted | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A commit run ended (R19), for all of its batches or only for the first ones."""

    outcomes: tuple[CommitOutcome, ...]
    """One for each of these batches, in ascending order."""
    locked_s: float | None = None
    """Seconds from the lock of the fence row to the answer of COMMIT, if it was committed together."""
    travel_s: float = 0.0
    """How many of them the round trips to the store took by themselves: as many as of one batch."""

    @property
    def own_s(self) -> float | None:
        """Seconds under the lock that depend on the size of the run (R24)."""
        return None if self.locked_s is None else max(0.0, self.locked_s - self.travel_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed:
    """A commit run was rolled back. It says nothing about any of its batches: each is committed alone now (R25)."""

    first: int
    last: int
    message: str
    patience: Patience | None = None
    """Set if the store failed: how long a commit is retried then."""
    off: str | None = None
    """Why there are no more commit runs under this leader; None: there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """A row of table `attempt`: the record of one attempt."""

    attempt: TransactionAttempt
    epoch: int
    state: str
    """`begun`, `applied`, `failed` or `cancelled`."""
    kind: FailureKind | None
    alone: bool
    """True: it ran alone, because an earlier attempt was a suspect."""
    code_hash: bytes
    """Hash of the code that ran it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The decision that a batch has no effect: a ledger row in sequence, never a missing row (R14)."""

    attempt: TransactionAttempt
    """The last attempt that was made, or attempt 0 of a batch that was never tried."""
    reason: str
    """For the ledger row: why, in words."""
    order_id: int | None = None
    """The operator's order to skip it; None: `on_poison` decided."""
    cause: str | None = None
    """For a decision of `on_poison`: see `Failure.cause`."""


class Left(NamedTuple):
    """A batch in the ledger, for counting consecutive quarantines (W7, W8)."""

    txid: int
    cause: str | None
    """Why `on_poison` quarantined it, as returned by `cause_of`; None: it was applied, with at least one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redone:
    """The ledger's data about a batch that is about to be redone."""

    state: Literal["applied", "quarantined"]
    by: int | None
    """Txid of the applied batch that redoes it already; None if there is none."""
    holders: Mapping[str, int] = field(default_factory=dict)
    """Committer -> the applied backfill that has counted the batch into it. All others hold it themselves."""

    def holder(self, txid: int, committer: str) -> int:
        """Return the batch that holds what batch `txid`, which this describes, contributed to a committer (R32)."""
        return self.holders.get(committer, txid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """The ledger's data about a batch that is about to be counted into a committer that lacks it (R32)."""

    redone_by: int | None
    """Txid of the applied batch that redoes it: all committers count that one. None if there is none."""
    counted_by: int | None
    """Txid of the batch that this committer has counted for it: itself or an applied backfill; None: it lacks it."""

    @property
    def refused(self) -> str | None:
        """Why nothing is counted now; None: it is."""
        if self.redone_by is not None:
            return f"already redone as batch {self.redone_by}"
        return None if self.counted_by is None else f"already counted by batch {self.counted_by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBatch:
    """A batch in the ledger with its plan, as needed for a redo."""

    txid: int
    state: Literal["applied", "quarantined"]
    redo_of: int | None
    plan: bytes
    """Canonical bytes of its plan."""
    backfills: int | None = None
    """The batch that it counts into one committer alone; None: it is no backfill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """An applied batch in effect that a committer has not counted (R32)."""

    txid: int
    plan: bytes | None
    """Canonical bytes of its plan; None if retention has removed it."""
    tried: tuple[tuple[int, int | None, str | None], ...] = ()
    """Its backfills that are quarantined, oldest first: txid, order id, reason."""


IN_FOLDER = "  # in "
"""Separates the command line of a script that runs a topology from the folder in which it was started."""
IN_NOTEBOOK = "in the notebook or session that has "
"""In place of a command line, where a notebook or an interactive session ran the topology that is named after it."""

OrderKind = Literal["stop", "retry", "skip", "redrive", "replan", "recompute", "backfill"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An operator's order to the leader, a row of `txtopo.request`."""

    order_id: int
    kind: OrderKind
    txids: tuple[int, ...] = ()
    """The batches that it names; for a retry, empty means every failed batch."""
    reason: str | None = None
    committer: str | None = None
    """The committer that a backfill fills."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    """Data that a leader recorded while it carried the order out (`replan`: the digests of the plans it discards)."""
    acted: bool = False
    """True if the action log has a row of this order: an earlier leader carried it out, at least in part, and died
    before it answered.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """A row of the append-only action log: written in the same database transaction as the change."""

    command: str
    """`retry`, `skip`, …, or `on_poison` if the leader acted by its own rules."""
    txid: int | None = None
    order_id: int | None = None
    """The order, which has actor, host and reason; None: the leader itself acted."""
    reason: str | None = None
    """Reason of the leader's own action."""
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    """States before and after, as JSON values."""
