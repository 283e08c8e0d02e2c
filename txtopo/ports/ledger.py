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
    Lead,
    LedgerBatch,
    Left,
    Redone,
    RejectedRow,
    Request,
    TransactionAttempt,
)
from txtopo.errors import Halted
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent, Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a new leader says when it takes the fence (R1)."""

    topology: str
    owner_nonce: str
    code_hash: bytes
    epoch_above: int
    """The epoch found in ZooKeeper; the new one is above both."""
    incarnation: str | None
    """Found in ZooKeeper; None: nothing there. A fence row with another incarnation, or none while this is set, raises
    Halted (R11).
    """
    new_incarnation: str
    """Used when neither store knows the topology."""
    host: str
    pid: int
    application: str
    """`file.py:topology` as given to `run`, to tell other commands."""
    description: Mapping[str, Any]
    opaque: bool = False
    """True if a batch may be cut again until one of its plans is mirrored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What the new leader learns under the lock of the fence row."""

    lead: Lead
    last_txid: int
    last_digest: bytes
    """Of the ledger row `last_txid`; the next plan chains to it."""
    last_metadata: Metadata | None
    """Metadata of the highest committed txid that redoes nothing; None before the first batch."""
    plans: Sequence[bytes]
    """Mirrored plans of last+1, last+2, …, as bytes."""
    attempts: Sequence[AttemptRecord]
    """Attempts of txids above last."""
    system_identifier: str
    """Of the Postgres cluster."""
    recent: Sequence[Left] = ()
    """The last batches that read a record, and those that `on_poison` left out, oldest first, at most `RECENT_TXIDS`
    (W7, W8).
    """
    requests: Sequence[Request] = ()
    """Orders that are still open, oldest first."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """What the topology was under the last leader that got under way; empty for a new one."""
    last_epoch: int = 0
    """Epoch that committed `last_txid`: only leaders from this one on can have died in the turn of the next batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEntry:
    """A plan on its way into Postgres, with the inputs that it consumes."""

    plan: Plan
    inputs: Mapping[str, Sequence[Input]]
    """By spout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """An attempt about to run; `inputs` is what the batch reads, by spout and in short, for people only."""

    attempt: TransactionAttempt
    alone: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The ledger row of a batch as appended, state `applying`."""

    plan: Plan
    attempt: TransactionAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTotals:
    """The final values of a ledger row."""

    read: int
    rejected: int
    dead_lettered: int
    committers: int
    spans: Mapping[str, float]


class LedgerSession(Protocol):
    """One database transaction that commits one batch: one method a statement, in this order (docs/protocol.md). One
    thread uses it, once.

    Any method may raise PostgresUnavailable: `definite` False only from `commit`. An implementation may hold a
    statement back and send
    it with the next one to save a round trip; `finish` leaves nothing held back.
    """

    def lock_fence(self) -> Fence:
        """Begin, set the timeouts, lock the fence row FOR NO KEY UPDATE and read it (R4). Raises Fenced when there is
        no row.
        """

    def ledger_digest(self, txid: int) -> bytes | None:
        """Digest of a ledger row, for the three-way compare (R5)."""

    def append_ledger(self, entry: LedgerEntry) -> None:
        """Insert the row as `applying`; from here the server refuses an early COMMIT (P9)."""

    def apply(
        self, committer: CommitterComponent, result: CommitterResult, collector: CommitCollector | None = None
    ) -> CommitterCount:
        """Apply one committer's rows and record its count; numbers and digest come from the apply statement itself
        (P4).

        Of a BatchCommitter it calls `commit` of the component's bolt, with the rows in their canonical order and
        `collector`, and records what it
        returned. It raises BatchDataError naming the committer and the user's line for whatever that code raises, for a
        statement that fails on its
        own account and for one that would end the database transaction (P9); one that was swallowed still fails the
        batch.

        The apply of a redo first takes back the contributions of the batch that it redoes, in statements of their own:
        negated, with `reverses`,
        counted as `reversed`; target rows whose count becomes 0 go. The other numbers speak of the apply alone.
        Raises BatchDataError naming the committer where the rows do not fit the table (overflow, NUL), or where the
        rows to be taken back are not there.
        """

    def last_contributed(self, committer: CommitterComponent) -> CommitterResult | None:
        """What the last batch brought to a counting committer, as a result that can be applied again; None where
        nothing of it is kept.
        """

    def check_deferred(self, committer: CommitterComponent) -> None:
        """Have checked now what the constraints of its table put off to COMMIT. Raises as `apply`."""

    def keep_alive(self) -> None:
        """Tell the server that the driver is at work while no statement is due, so that it does not end the database
        transaction (P6). Changes nothing.
        """

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        """Record the counts of tuple edges; nothing to do for none."""

    def append_rejected(self, rows: Sequence[RejectedRow]) -> None:
        """Keep the rejected records of the batch; nothing to do for none. Text that Postgres cannot hold is made
        readable, `raw` is kept as it is.
        """

    def append_dead_letters(self, rows: Sequence[DeadLetter]) -> None:
        """Keep the dead letters of the batch, as `append_rejected` keeps rejected records. Raises BatchDataError where
        a record comes twice.
        """

    def append_action(self, action: ActionRecord) -> None:
        """Write a row of the action log, with actor, host and reason of the order where it names one, else of this
        leader.
        """

    def read_redone(self, txid: int) -> Redone | None:
        """State of the batch that the one at hand redoes, and which applied batch redoes it already; None: it is not in
        the ledger.
        """

    def finish(self, totals: LedgerTotals) -> None:
        """Make the ledger row final, advance the fence by exactly one, mark the attempt applied.

        Checks that the database transaction is healthy and still the one that was begun (P1, P9); else raises
        PostgresUnavailable.
        """

    def finish_quarantined(self, reason: str) -> None:
        """Make the ledger row final without effect (R14): state `quarantined`, no committers, nothing read; advance the
        fence by exactly one.

        Checks like `finish`. The attempt row, if there is one, stays as it ended; one that is still `begun` becomes
        `cancelled`.
        """

    def commit(self) -> None:
        """COMMIT. Returns only if the server confirmed it. A refusal is PostgresUnavailable(definite=True), silence
        definite=False (R7).
        """


class Ledger(Protocol):
    """The Postgres side of one topology. Each method is one database transaction; Postgres away raises
    PostgresUnavailable.
    """

    def claim_fence(self, claim: Claim) -> Claimed:
        """R1: one database transaction, fence row FOR UPDATE; creates fence and genesis row for a new topology. Raises
        Halted (R11).

        Refuses orders to stop that are still open: they were meant for the leader before.
        """

    def read_fence(self) -> Fence | None:
        """The fence row as it is now, without a lock."""

    def prepare_targets(self, lead: Lead, committers: Sequence[CommitterComponent]) -> None:
        """Create or check each counting committer's table and contribution table, and register the target (fenced). A
        BatchCommitter has none.

        Raises Halted where a table has other columns, belongs to another committer, or holds rows and is not adopted.
        Repeatable.
        """

    def describe(self, lead: Lead, description: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> None:
        """From now on the topology is this, and runs with these settings, for audits and operators (fenced). Called
        once it is found to fit what is committed.
        """

    def consumed(self, spout: str) -> Mapping[str, bytes]:
        """Path -> fingerprint of all that was mirrored into some batch."""

    def plans_below(self, txid: int, count: int) -> Sequence[tuple[int, bytes]]:
        """The last mirrored plans below this txid, newest first, at most `count`, each with its txid. Those that
        retention has removed are missing.
        """

    def store_part(self, data: bytes) -> str:
        """Keep a content-addressed piece of metadata; returns its sha-256 in hex. Repeatable."""

    def read_part(self, digest: str) -> bytes:
        """The piece with that digest, verified. Raises Halted when it is missing or differs."""

    def mirror(self, lead: Lead, entries: Sequence[MirrorEntry]) -> None:
        """R9: plans and their inputs, in one database transaction, fence row FOR KEY SHARE (fenced), in txid order
        without holes.

        A row there with the same digest is fine; another digest, or an input that another batch consumed, raises
        Halted.
        """

    def begin_attempts(self, lead: Lead, starts: Sequence[AttemptStart]) -> None:
        """Remember, before anything is emitted, that these attempts run (fenced)."""

    def end_attempt(self, lead: Lead, attempt: TransactionAttempt, state: str, failure: Failure | None) -> None:
        """Remember how an attempt ended: `failed` or `cancelled` (fenced). Applied ones are marked by the commit
        itself.
        """

    def session(self, lead: Lead) -> AbstractContextManager[LedgerSession]:
        """A session for one commit; leaving it rolls back whatever was not committed."""

    def resolve(self, lead: Lead, txid: int, digest: bytes) -> CommitOutcome:
        """R7: new connection, lock the fence row, look for the ledger row. Returns Committed or Aborted; raises Fenced,
        Halted (other digest).
        """

    def heartbeat(
        self, lead: Lead, state: str, problem: str | None, planned_txid: int, waiting: Mapping[str, Any] | None = None
    ) -> Sequence[Request]:
        """Say that the leader is `running` or `stalled`, why, how far it planned and which batch it waits for; returns
        open requests (fenced).
        """

    def waits_for(self) -> str | None:
        """Which locks drivers of this topology wait for right now and who holds them, in words; None: for none. Locks
        nothing. Raises PostgresUnavailable.
        """

    def answer_request(
        self, lead: Lead, request_id: int, state: str, answer: str, action: ActionRecord | None = None
    ) -> None:
        """Close a request: `done` or `refused`, with a row of the action log where something was changed (fenced).
        Closed already: nothing.
        """

    def note_progress(self, lead: Lead, request_id: int, progress: Mapping[str, Any]) -> None:
        """Remember with an open request what is about to be done about it (fenced)."""

    def redo_chain(self, txid: int) -> Sequence[LedgerBatch]:
        """The batch and every batch in the ledger that redoes it, or redoes one of those, in txid order; empty where it
        is not in the ledger.

        A plan that retention has removed raises Halted.
        """

    def note_halt(self, halt: Halted) -> None:
        """Say of the topology that a driver halted which does not lead, for `status`; not where a leader has just
        spoken, nor of an unknown one.
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
        """The last word of a leader: `stopped`, `finished` or `halted` with reason and next command, and how far it
        planned (fenced).
        """

    def close(self) -> None:
        """Roll back and close every connection (R15). Safe to repeat."""
