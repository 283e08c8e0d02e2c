"""The Postgres side of one topology: the fence, the ledger, and the database transaction that commits a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from txtopo.core.plan import Metadata, Plan
from txtopo.core.values import (
    ActionRecord,
    AttemptRecord,
    CommitOutcome,
    CommitterCount,
    CommitterResult,
    DeadLetter,
    EdgeCount,
    Failure,
    Fence,
    Filled,
    Lacking,
    Lead,
    LedgerBatch,
    Left,
    Order,
    Redone,
    RejectedRow,
    TransactionAttempt,
)
from txtopo.errors import Halted
from txtopo.ports.staging import Staging, StagingPlace
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent, Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a new leader writes when it claims the fence (R1, the epoch comes from Postgres)."""

    topology: str
    owner_nonce: str
    code_hash: bytes
    epoch_above: int
    """The epoch found in ZooKeeper. The new epoch is above it and above the one in Postgres."""
    incarnation: str | None
    """The incarnation found in ZooKeeper; None: ZooKeeper holds nothing. The claim raises Halted if the fence row has
    another one, or if there is no fence row and this is not None (R11, both stores are compared at takeover).
    """
    new_incarnation: str
    """The incarnation to use if neither store knows the topology."""
    host: str
    pid: int
    application: str
    """`file.py:topology` as given to `run`. Other commands find the application by it."""
    description: Mapping[str, Any]
    opaque: bool = False
    """True if a batch may be planned again until one of its plans is mirrored (opaque spouts)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What the new leader reads while it holds the lock of the fence row."""

    lead: Lead
    last_txid: int
    last_digest: bytes
    """Digest of ledger row `last_txid`. The next plan contains it."""
    last_metadata: Metadata | None
    """Metadata of the highest committed txid that is not a redo; None before the first batch."""
    plans: Sequence[bytes]
    """Mirrored plans of last_txid + 1, last_txid + 2, …, as bytes."""
    attempts: Sequence[AttemptRecord]
    """Attempts of txids above `last_txid`."""
    system_identifier: str
    """Identifies the Postgres cluster."""
    recent: Sequence[Left] = ()
    """The last batches that read a record, and those that `on_poison` quarantined, oldest first, at most
    `RECENT_TXIDS`. They are counted by W7 (several quarantined in a row) and W8 (more than half of the last 20).
    """
    orders: Sequence[Order] = ()
    """Orders that are still open, oldest first."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """The description of the topology under the last leader that started its work; empty for a new topology."""
    staging_tables: Sequence[str] | None = None
    """Tables that tasks of former leaders of the topology left, of which no more can be created (R10); None: there is
    no schema of such tables.
    """
    last_epoch: int = 0
    """The epoch that committed `last_txid`. Only leaders with this epoch or a higher one can have died in the commit of
    the next batch.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEntry:
    """A plan to mirror into Postgres, with the inputs that it consumes."""

    plan: Plan
    inputs: Mapping[str, Sequence[Input]]
    """spout -> inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """An attempt that is about to run. `inputs` is a short summary of what the batch reads, by spout; only people read
    it.
    """

    attempt: TransactionAttempt
    alone: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The ledger row of a batch when it is inserted, with state `applying`."""

    plan: Plan
    attempt: TransactionAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTotals:
    """The values that make a ledger row final. `spans` are seconds, by name."""

    read: int
    rejected: int
    dead_lettered: int
    committers: int
    spans: Mapping[str, float]


class LedgerSession(Protocol):
    """The database transaction that commits one batch: one method for each statement, in the order of docs/protocol.md.
    One thread uses it, once.

    Every method may raise PostgresUnavailable; only `commit` raises it with `definite` False. An implementation may
    delay a statement and send it together with the next one, to save a round trip. After `finish` nothing is delayed.
    """

    def lock_fence(self) -> Fence:
        """Begin, set the timeouts, lock the fence row FOR NO KEY UPDATE and return it (R4, a commit locks the fence
        row). Raises Fenced if there is no row.
        """

    def ledger_digest(self, txid: int) -> bytes | None:
        """Return the digest of a ledger row, or None if there is no row (R5, the three-way compare uses it)."""

    def mirror(self, entry: MirrorEntry) -> None:
        """Do what `Ledger.mirror` does for the plan of this batch, in this database transaction: plan and ledger row
        become durable together (R9). Called after `lock_fence`, and raises the errors of `Ledger.mirror`.
        """

    def append_ledger(self, entry: LedgerEntry) -> None:
        """Insert the row with state `applying`. From here on the server refuses a COMMIT before `finish` (P9, user code
        that ends the database transaction).
        """

    def apply(
        self, committer: CommitterComponent, result: CommitterResult, collector: CommitCollector | None = None
    ) -> CommitterCount:
        """Apply the rows of one committer and record its count. Numbers and digest come from the apply statement itself
        (P4: a check in another statement proves nothing).

        For a BatchCommitter, call `commit` of the component's bolt with the rows in canonical order and with
        `collector`, and record what it returned. Raises BatchDataError with the committer and the line in the user's
        code for any exception of that code, for a failed statement, and for a statement that would end the database
        transaction (P9). A batch fails even if the code caught the error of its statement.

        For a redo, first reverse the contributions of the batch that it redoes, in separate statements: they are added
        negated, with `reverses`, and counted as `reversed`; target rows whose count becomes 0 are deleted. The other
        numbers count only the apply itself.

        Raises BatchDataError with the committer if the rows do not fit the table (overflow, NUL), or if the rows to
        reverse do not exist.
        """

    def last_contributed(self, committer: CommitterComponent) -> CommitterResult | None:
        """Return what the last batch contributed to a counting committer, as a result that can be applied again; None
        if nothing of it is stored.
        """

    def check_deferred(self, committer: CommitterComponent) -> None:
        """Check now the constraints of the committer's table that are deferred to COMMIT. Raises the errors of
        `apply`.
        """

    def keep_alive(self) -> None:
        """Send a statement that changes nothing, so that the server does not end the database transaction while the
        driver works (P6: it ends one that is idle for 5 s).
        """

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        """Store the tuple counts of edges. Does nothing if there are none."""

    def append_rejected(self, rows: Sequence[RejectedRow]) -> None:
        """Store the rejected records of the batch. Does nothing if there are none. Text that Postgres cannot hold is
        escaped; `raw` keeps the bytes unchanged.
        """

    def append_dead_letters(self, rows: Sequence[DeadLetter]) -> None:
        """Store the dead letters of the batch, in the same way as `append_rejected`. Raises BatchDataError if a record
        occurs twice.
        """

    def append_action(self, action: ActionRecord) -> None:
        """Append a row to the action log. Actor, host and reason are those of the order, or of this leader if there is
        no order.
        """

    def read_redone(self, txid: int) -> Redone | None:
        """Return the state of the batch that this one redoes, and which applied batch has redone it already; None if it
        is not in the ledger.
        """

    def read_filled(self, txid: int, committer: str) -> Filled | None:
        """Return the state of the batch that this one counts into a committer, and which batch has its rows there
        already; None if it is not applied (R32).
        """

    def finish(self, totals: LedgerTotals) -> None:
        """Make the ledger row final, advance the fence by exactly one, and mark the attempt applied.

        Checks that the database transaction is healthy and is the one that was begun (P1, COMMIT of a failed database
        transaction is a ROLLBACK; P9, user code may end it). Raises PostgresUnavailable otherwise.
        """

    def finish_quarantined(self, reason: str) -> None:
        """Make the ledger row final without effect (R14, quarantine is a ledger row in sequence): state `quarantined`,
        no committers, nothing read. Advance the fence by exactly one.

        Makes the checks of `finish`. An attempt that has ended keeps its state; one with state `begun` becomes
        `cancelled`.
        """

    def commit(self) -> None:
        """COMMIT. Returns only if the server confirmed it. Raises PostgresUnavailable: `definite=True` if the server
        refused it, `definite=False` if there was no answer (R7, an unknown outcome is resolved).
        """


class LedgerRunSession(Protocol):
    """The database transaction that commits a commit run: several consecutive batches (R19). One method for each
    statement, in the order of docs/protocol.md. One thread uses it, once.

    The mappings have one item for each batch of the run, by txid. Every method may raise PostgresUnavailable; only
    `commit` raises it with `definite` False. Whatever else is raised says nothing about any batch of the run (R25).
    """

    @property
    def travel_s(self) -> float:
        """Seconds that the round trips from the lock to the answer of COMMIT take by themselves (R24)."""

    def prepare_run(
        self, committer: CommitterComponent, results: Mapping[int, CommitterResult], attempts: Mapping[int, int]
    ) -> None:
        """Do what `apply_run` of these results, made by these attempts, needs and what needs no lock. Called before
        `lock_fence` (R21). Raises BatchDataError if a result has other columns than the table.
        """

    def prepare_kept(
        self,
        edges: Mapping[int, Sequence[EdgeCount]],
        rejected: Mapping[int, Sequence[RejectedRow]],
        dead_letters: Mapping[int, Sequence[DeadLetter]],
    ) -> None:
        """Do what needs no lock for the tuple counts of edges, the rejected records and the dead letters of each batch;
        `finish_run` stores them. Called before `lock_fence` (R21), once.
        """

    def lock_fence(self) -> Fence:
        """Begin, set the timeouts, lock the fence row FOR NO KEY UPDATE and return it (R4). Raises Fenced if there is
        no row.
        """

    def ledger_digests(self, txids: Sequence[int]) -> Mapping[int, bytes]:
        """Return the digests of those ledger rows that exist, by txid (R21)."""

    def append_run(self, entries: Sequence[LedgerEntry]) -> None:
        """Insert the rows of all batches with state `applying`, in ascending order without a gap. From here on the
        server refuses a COMMIT before `finish_run`.
        """

    def apply_run(
        self, committer: CommitterComponent, results: Mapping[int, CommitterResult]
    ) -> Mapping[int, CommitterCount]:
        """Apply the rows of one committer for all batches, and record the count of each batch (R22).

        Of a counting committer each row of the target is written once, with the sum of all batches; contributions are
        inserted for each batch. `counted` and `digest` of a batch come from its contribution rows as the statement
        inserted them, `written` counts its result rows whose key is among the target rows that the statement returned.
        Of a committer of rows all three come from the rows of the batch that are in its table, or log, then; what
        follows from a log is set once. Raises BatchDataError if the rows do not fit the table, or if a batch has a key
        twice.
        """

    def finish_run(self, totals: Mapping[int, LedgerTotals]) -> None:
        """Store what was given to `prepare_kept`.

        For each batch in ascending order: make its ledger row final, which seals it, advance the fence by exactly
        one, and mark its attempt applied (R22, R23). Then check the deferred constraints on the ledger, so that COMMIT
        has no work left that no timeout ends.

        Makes the checks of `LedgerSession.finish`, and raises RunRefused if a committer's table is not plain any more
        (R20): a constraint, trigger or index would see one sum instead of each batch.
        """

    def commit(self) -> None:
        """COMMIT. Returns only if the server confirmed it. Raises PostgresUnavailable: `definite=True` if the server
        refused it, `definite=False` if there was no answer (R26).
        """


class Ledger(Protocol):
    """The Postgres side of one topology. Each method is one database transaction, and raises PostgresUnavailable if
    Postgres does not answer.
    """

    def claim_fence(self, claim: Claim) -> Claimed:
        """Claim the fence in one database transaction, with the fence row locked FOR UPDATE (R1). Creates the fence row
        and the genesis row of a new topology. Returns what the new leader needs. Raises Halted if the stores contradict
        each other (R11, both stores are compared at takeover).

        Refuses open `stop` orders: they were meant for the previous leader.
        """

    def read_fence(self) -> Fence | None:
        """Return the fence row as it is now, without a lock; None if there is none."""

    def prepare_targets(
        self,
        lead: Lead,
        committers: Sequence[CommitterComponent],
        description: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Create or check the table and the contribution table of each counting committer, and register the target
        (fenced). A BatchCommitter has none. Then store `description` and settings of the topology, if given, for
        audits and operators. All of it happens, or nothing. May be repeated.

        Raises Halted if a table has other columns, belongs to another committer, or has rows and is not adopted.
        """

    def consumed(self, spout: str, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return path -> last fingerprint of those of `paths` that are inputs of this spout in a mirrored batch."""

    def not_consumed(self, spout: str, paths: Sequence[str]) -> set[str]:
        """Return those of `paths` that are not inputs of this spout in a mirrored batch."""

    def consumed_after(self, spout: str, path: str, count: int) -> Sequence[tuple[str, bytes]]:
        """Return (path, last fingerprint) of inputs of this spout in mirrored batches, sorted by path as the store
        sorts, from the first one after `path` on, at most `count`.
        """

    def plans_below(self, txid: int, count: int) -> Sequence[tuple[int, bytes]]:
        """Return the last mirrored plans below `txid` as (txid, bytes), newest first, at most `count`. Plans that
        retention has removed are missing.
        """

    def store_part(self, data: bytes) -> str:
        """Store a part of long metadata under its content hash. Returns its sha-256 in hex. May be repeated."""

    def read_part(self, digest: str) -> bytes:
        """Return the part with this sha-256, verified. Raises Halted if it is missing or has other content."""

    def mirror(self, lead: Lead, entries: Sequence[MirrorEntry]) -> None:
        """Mirror plans and their inputs in one database transaction, with the fence row locked FOR KEY SHARE, in txid
        order without gaps (R9, the plan is mirrored before the first commit; fenced).

        A row that exists with the same digest is not changed. Raises Halted if it has another digest, or if another
        batch has consumed one of the inputs.
        """

    def begin_attempts(self, lead: Lead, starts: Sequence[AttemptStart]) -> None:
        """Record that these attempts run, before anything is emitted (fenced)."""

    def end_attempt(self, lead: Lead, attempt: TransactionAttempt, state: str, failure: Failure | None) -> None:
        """Record how an attempt ended: `failed` or `cancelled` (fenced). The commit marks applied ones."""

    def session(self, lead: Lead) -> AbstractContextManager[LedgerSession]:
        """Return a session for one commit. Leaving it rolls back everything that was not committed."""

    def single_commits(self, committers: Sequence[CommitterComponent]) -> str | None:
        """Return why the tables of these counting committers allow no commit runs (R20); None: they do. Called after
        `prepare_targets`. `finish_run` checks the same again, under the locks.
        """

    def run_session(self, lead: Lead) -> AbstractContextManager[LedgerRunSession]:
        """Return a session for one commit run. Leaving it rolls back everything that was not committed."""

    def resolve(self, lead: Lead, plans: Sequence[tuple[int, bytes]]) -> Sequence[CommitOutcome]:
        """Resolve an unknown COMMIT of one batch (R7) or of a commit run (R26): on a new connection, lock the fence row
        and look for the ledger rows of these txids, with these digests, in one look. Returns Committed for each of
        them, or Aborted for each. Raises Fenced; Halted if the ledger has only some of them, or another batch.
        """

    def log_action(self, lead: Lead, action: ActionRecord) -> None:
        """Append a row to the action log that belongs to no order and to no commit (fenced), unless the newest row of
        its command says the same: then the answer to this call was lost, or nothing has changed.
        """

    def heartbeat(
        self, lead: Lead, state: str, problem: str | None, planned_txid: int, waiting: Mapping[str, Any] | None = None
    ) -> Sequence[Order]:
        """Record that the leader is `running` or `stalled`, the problem, the highest planned txid and the batch that it
        waits for, and under `lag` how many records of its spouts wait (fenced). Returns the open orders.
        """

    def waits_for(self) -> str | None:
        """Return which locks drivers of this topology wait for now and who holds them, as text; None if they wait for
        none. Locks nothing. Raises PostgresUnavailable.
        """

    def answer_order(
        self, lead: Lead, order_id: int, state: str, answer: str, action: ActionRecord | None = None
    ) -> None:
        """Close an order as `done` or `refused`, with a row of the action log if something was changed (fenced). Does
        nothing if it is closed already.
        """

    def note_progress(self, lead: Lead, order_id: int, progress: Mapping[str, Any]) -> None:
        """Record with an open order what is about to be done for it (fenced)."""

    def redo_chain(self, txid: int) -> Sequence[LedgerBatch]:
        """Return the batch and every batch in the ledger that redoes it, directly or through another redo, in txid
        order; empty if it is not in the ledger. Raises Halted if retention has removed one of the plans.
        """

    def lacking(self, committer: str, above: int, planned: Sequence[int]) -> Lacking | None:
        """Return the lowest applied batch above `above`, not in `planned`, that is in effect and that this committer
        lacks: it has counted neither the batch itself nor a backfill of it (R32). None if there is none.
        """

    def batches_after(self, txid: int) -> Sequence[LedgerBatch]:
        """Return the batches in the ledger above `txid`, in txid order. Those whose plan was removed by retention are
        missing.
        """

    def note_halt(self, halt: Halted) -> None:
        """Record, for `status`, that a driver that does not lead has halted. Does nothing if a leader has reported
        recently, or if the topology is unknown.
        """

    def note_end(
        self,
        lead: Lead,
        state: str,
        reason: str | None,
        txid: int | None,
        planned_txid: int,
        next_command: str | None = None,
    ) -> None:
        """Record the end of a leader: `stopped`, `finished` or `halted` with reason and next command, and the highest
        planned txid (fenced).
        """

    def staging(self, lead: Lead, place: StagingPlace | None, left: Sequence[str] | None) -> Staging:
        """Return the staging tables of this leader (R10). `left` is `Claimed.staging_tables`. Connects when there is
        something to do.
        """

    def close(self) -> None:
        """Roll back and close every connection (R15, a step-down discards all state). May be repeated."""
