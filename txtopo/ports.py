"""What the runner needs of the world: Protocols with contract docstrings. Every implementation, memory included, passes `txtopo.testing.contracts`.

All methods may be called from several threads unless they say otherwise. "Fenced" means that the method compares the lead (epoch, nonce, incarnation, code) with the
fence row inside its own database transaction, or checks the epoch znode's version in the same multi, and raises `Fenced` when they differ, having changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    Outcome,
    Processed,
    Redone,
    RejectedRow,
    Request,
    TransactionAttempt,
)
from txtopo.errors import Halted
from txtopo.nodes import (
    CheckNode,
    CoordinatorSession,
    CreateNode,
    DeleteNode,
    NodeExists,
    NodeMissing,
    Operation,
    SessionState,
    SetNode,
    VersionDiffers,
)
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent, Input


class Clock(Protocol):
    """Time, handed in."""

    def monotonic(self) -> float:
        """Seconds that never go back; what every decision uses."""

    def wait(self, seconds: float) -> None:
        """Let `seconds` pass; the simulated clock only advances."""


# ---------------------------------------------------------------------------------------------------------------------------------- ZooKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorView:
    """What ZooKeeper holds of one topology."""

    incarnation: str | None
    """None: nothing there, never used or wiped."""
    epoch: int
    system_identifier: str | None
    """Of the Postgres cluster that the topology lived in when the epoch was written (R11)."""
    mark: int
    """`currtx` - the highest txid known committed; may lag."""
    plans: Mapping[int, bytes] = field(default_factory=dict)
    """Metadata nodes, by txid."""
    cuts: Mapping[int, Mapping[int, bytes]] = field(default_factory=dict)
    """Those of opaque topologies, by txid and by the attempt that they were cut for."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """Highest attempt id begun, by txid."""


class Coordinator(Protocol):
    """Metadata, attempt ids and epoch of one topology in ZooKeeper, written against a CoordinatorSession."""

    def read(self, plans_above: int = 0) -> CoordinatorView:
        """What there is; of the plans only those of txids above `plans_above`, since kept ones may be thousands and each costs a round trip.

        Stale unless `write_epoch` came before on the same session (Z8). Unreadable nodes raise Halted with the path (Z14).
        """

    def write_epoch(self, lead: Lead, system_identifier: str) -> None:
        """Compare-and-set the epoch (R2); the barrier before `read`. Raises Fenced when ZooKeeper has this epoch already or a newer one.

        From then on every write of this object checks the epoch node's version in the same multi and raises Fenced.
        """

    def record_plans(self, plans: Sequence[Plan]) -> None:
        """Create the metadata nodes of consecutive txids, create-only (R3), and remember the attempt of each, in as few multis as fit.

        The attempt is 0; in an opaque topology it is the plan's `cut`, and each cut of a txid has a node of its own.
        Durable on return. A node that is there with the same bytes is mine (a lost reply, Z6). With other bytes: raises LeadLost, so that the
        next candidacy adopts what is there. A plan above METADATA_BYTES_MAX is an InvariantBroken.
        """

    def restore_plan(self, plan: Plan) -> None:
        """Put back the metadata of a mirrored plan (R9); there with the same bytes: nothing to do; other bytes: Halted."""

    def record_attempts(self, attempts: Mapping[int, int]) -> None:
        """Remember the highest attempt id of each uncommitted txid, so that ids never go back. Attempt 0 needs no call."""

    def drop_plans(self, plans: Mapping[int, bytes]) -> None:
        """R3's one exception, by an operator (`replan`): delete the metadata of these txids, the whole suffix in one multi under R2.

        The bytes are those found; raises LeadLost, having changed nothing, where a node has others or more follow behind them.
        Attempt ids are kept: they never go back. Nodes that are gone already: nothing. Raises Halted where one multi cannot hold them.
        """

    def checkpoint(self, last_txid: int, keep_from: int) -> None:
        """Advance the mark to `last_txid` and delete metadata of txids below `keep_from` (R8). Idempotent; a node that is gone is done."""


class Candidacy(Protocol):
    """One try to become leader on one session."""

    def enter(self) -> None:
        """Join the queue."""

    def leader(self) -> str | None:
        """Who stands first, in words (`host pid since`), or None if it is me."""

    def wait(self, seconds: float) -> bool:
        """Wait until I stand first, at most `seconds`; True when I do. Raises ZooKeeperUnavailable when the session is lost."""

    def confirm(self) -> None:
        """Version-checked write to my own node right before the fence is claimed, so that a woken candidate does not bump the epoch. Raises LeadLost."""

    def check_place(self) -> None:
        """Raise LeadLost when my node is gone from the queue although my session lives: somebody removed it. Raises ZooKeeperUnavailable."""


# ----------------------------------------------------------------------------------------------------------------------------------- Postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a new leader says when it takes the fence (R1)."""

    topology: str
    owner_nonce: str
    code_hash: bytes
    epoch_above: int
    """The epoch found in ZooKeeper; the new one is above both."""
    incarnation: str | None
    """Found in ZooKeeper; None: nothing there. A fence row with another incarnation, or none while this is set, raises Halted (R11)."""
    new_incarnation: str
    """Used when neither store knows the topology."""
    host: str
    pid: int
    application: str
    """`file.py:topology` as given to `run`, to tell other commands."""
    description: Mapping[str, Any]
    opaque: bool = False
    """May a batch be cut again, until one of its plans is mirrored?"""


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
    """The last batches that read a record, and those that `on_poison` left out, oldest first, at most `RECENT_TXIDS` (W7, W8)."""
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
    """One database transaction that commits one batch: one method a statement, in this order (docs/protocol.md). One thread uses it, once.

    Any method may raise PostgresUnavailable: `definite` False only from `commit`. An implementation may hold a statement back and send
    it with the next one to save a round trip; `finish` leaves nothing held back.
    """

    def lock_fence(self) -> Fence:
        """Begin, set the timeouts, lock the fence row FOR NO KEY UPDATE and read it (R4). Raises Fenced when there is no row."""

    def ledger_digest(self, txid: int) -> bytes | None:
        """Digest of a ledger row, for the three-way compare (R5)."""

    def append_ledger(self, entry: LedgerEntry) -> None:
        """Insert the row as `applying`; from here the server refuses an early COMMIT (P9)."""

    def apply(
        self, committer: CommitterComponent, result: CommitterResult, collector: CommitCollector | None = None
    ) -> CommitterCount:
        """Apply one committer's rows and record its count; numbers and digest come from the apply statement itself (P4).

        Of a BatchCommitter it calls `commit` of the component's bolt, with the rows in their canonical order and `collector`, and records what it
        returned. It raises BatchDataError naming the committer and the user's line for whatever that code raises, for a statement that fails on its
        own account and for one that would end the database transaction (P9); one that was swallowed still fails the batch.

        The apply of a redo first takes back the contributions of the batch that it redoes, in statements of their own: negated, with `reverses`,
        counted as `reversed`; target rows whose count becomes 0 go. The other numbers speak of the apply alone.
        Raises BatchDataError naming the committer where the rows do not fit the table (overflow, NUL), or where the rows to be taken back are not there.
        """

    def last_contributed(self, committer: CommitterComponent) -> CommitterResult | None:
        """What the last batch brought to a counting committer, as a result that can be applied again; None where nothing of it is kept."""

    def check_deferred(self, committer: CommitterComponent) -> None:
        """Have checked now what the constraints of its table put off to COMMIT. Raises as `apply`."""

    def keep_alive(self) -> None:
        """Tell the server that the driver is at work while no statement is due, so that it does not end the database transaction (P6). Changes nothing."""

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        """Record the counts of tuple edges; nothing to do for none."""

    def append_rejected(self, rows: Sequence[RejectedRow]) -> None:
        """Keep the rejected records of the batch; nothing to do for none. Text that Postgres cannot hold is made readable, `raw` is kept as it is."""

    def append_dead_letters(self, rows: Sequence[DeadLetter]) -> None:
        """Keep the dead letters of the batch, as `append_rejected` keeps rejected records. Raises BatchDataError where a record comes twice."""

    def append_action(self, action: ActionRecord) -> None:
        """Write a row of the action log, with actor, host and reason of the order where it names one, else of this leader."""

    def read_redone(self, txid: int) -> Redone | None:
        """State of the batch that the one at hand redoes, and which applied batch redoes it already; None: it is not in the ledger."""

    def finish(self, totals: LedgerTotals) -> None:
        """Make the ledger row final, advance the fence by exactly one, mark the attempt applied.

        Checks that the database transaction is healthy and still the one that was begun (P1, P9); else raises PostgresUnavailable.
        """

    def finish_quarantined(self, reason: str) -> None:
        """Make the ledger row final without effect (R14): state `quarantined`, no committers, nothing read; advance the fence by exactly one.

        Checks like `finish`. The attempt row, if there is one, stays as it ended; one that is still `begun` becomes `cancelled`.
        """

    def commit(self) -> None:
        """COMMIT. Returns only if the server confirmed it. A refusal is PostgresUnavailable(definite=True), silence definite=False (R7)."""


class Ledger(Protocol):
    """The Postgres side of one topology. Each method is one database transaction; Postgres away raises PostgresUnavailable."""

    def claim_fence(self, claim: Claim) -> Claimed:
        """R1: one database transaction, fence row FOR UPDATE; creates fence and genesis row for a new topology. Raises Halted (R11).

        Refuses orders to stop that are still open: they were meant for the leader before.
        """

    def read_fence(self) -> Fence | None:
        """The fence row as it is now, without a lock."""

    def prepare_targets(self, lead: Lead, committers: Sequence[CommitterComponent]) -> None:
        """Create or check each counting committer's table and contribution table, and register the target (fenced). A BatchCommitter has none.

        Raises Halted where a table has other columns, belongs to another committer, or holds rows and is not adopted. Repeatable.
        """

    def describe(self, lead: Lead, description: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> None:
        """From now on the topology is this, and runs with these settings, for audits and operators (fenced). Called once it is found to fit what is committed."""

    def consumed(self, spout: str) -> Mapping[str, bytes]:
        """Path -> fingerprint of all that was mirrored into some batch."""

    def plans_below(self, txid: int, count: int) -> Sequence[tuple[int, bytes]]:
        """The last mirrored plans below this txid, newest first, at most `count`, each with its txid. Those that retention has removed are missing."""

    def store_part(self, data: bytes) -> str:
        """Keep a content-addressed piece of metadata; returns its sha-256 in hex. Repeatable."""

    def read_part(self, digest: str) -> bytes:
        """The piece with that digest, verified. Raises Halted when it is missing or differs."""

    def mirror(self, lead: Lead, entries: Sequence[MirrorEntry]) -> None:
        """R9: plans and their inputs, in one database transaction, fence row FOR KEY SHARE (fenced), in txid order without holes.

        A row there with the same digest is fine; another digest, or an input that another batch consumed, raises Halted.
        """

    def begin_attempts(self, lead: Lead, starts: Sequence[AttemptStart]) -> None:
        """Remember, before anything is emitted, that these attempts run (fenced)."""

    def end_attempt(self, lead: Lead, attempt: TransactionAttempt, state: str, failure: Failure | None) -> None:
        """Remember how an attempt ended: `failed` or `cancelled` (fenced). Applied ones are marked by the commit itself."""

    def session(self, lead: Lead) -> AbstractContextManager[LedgerSession]:
        """A session for one commit; leaving it rolls back whatever was not committed."""

    def resolve(self, lead: Lead, txid: int, digest: bytes) -> CommitOutcome:
        """R7: new connection, lock the fence row, look for the ledger row. Returns Committed or Aborted; raises Fenced, Halted (other digest)."""

    def heartbeat(
        self, lead: Lead, state: str, problem: str | None, planned_txid: int, waiting: Mapping[str, Any] | None = None
    ) -> Sequence[Request]:
        """Say that the leader is `running` or `stalled`, why, how far it planned and which batch it waits for; returns open requests (fenced)."""

    def waits_for(self) -> str | None:
        """Which locks drivers of this topology wait for right now and who holds them, in words; None: for none. Locks nothing. Raises PostgresUnavailable."""

    def answer_request(
        self, lead: Lead, request_id: int, state: str, answer: str, action: ActionRecord | None = None
    ) -> None:
        """Close a request: `done` or `refused`, with a row of the action log where something was changed (fenced). Closed already: nothing."""

    def note_progress(self, lead: Lead, request_id: int, progress: Mapping[str, Any]) -> None:
        """Remember with an open request what is about to be done about it (fenced)."""

    def redo_chain(self, txid: int) -> Sequence[LedgerBatch]:
        """The batch and every batch in the ledger that redoes it, or redoes one of those, in txid order; empty where it is not in the ledger.

        A plan that retention has removed raises Halted.
        """

    def note_halt(self, halt: Halted) -> None:
        """Say of the topology that a driver halted which does not lead, for `status`; not where a leader has just spoken, nor of an unknown one."""

    def note_end(
        self, lead: Lead, state: str, reason: str | None, txid: int | None, planned_txid: int, next_command: str | None = None
    ) -> None:  # fmt: skip
        """The last word of a leader: `stopped`, `finished` or `halted` with reason and next command, and how far it planned (fenced)."""

    def close(self) -> None:
        """Roll back and close every connection (R15). Safe to repeat."""


# ----------------------------------------------------------------------------------------------------------------------------------- executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An attempt handed to the executor."""

    attempt: TransactionAttempt
    metadata: Mapping[str, Metadata]
    """By spout, complete: pieces kept in `plan_part` are put back. A spout that is idle in this batch is missing."""
    dead_letter_max: int = 0
    """So many source records at most are taken out of the batch where a tuple bolt fails on them; 0: none, the attempt fails instead."""


Tell = Callable[[Outcome], None]
"""Takes an outcome."""


def tell_nobody(outcome: Outcome) -> None:
    """A `Tell` for who waits for all."""


class Executor(Protocol):
    """Runs the processing phase. `process` is called from several threads at once, `cancel` from another."""

    @property
    def broken(self) -> str | None:
        """None, or why this executor will never work again (K11: its JVM is gone); the driver process then has to end."""

    @property
    def one_by_one(self) -> str | None:
        """None where the attempts of a wave share a job, or why they do not: which bolt looks at other rows. May turn from None to a reason, never back."""

    def start(self) -> None:
        """Be ready: start Spark, run every bolt once over empty input and compare its fields with those declared. Raises TopologyError, BatchDataError."""

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        """Process a wave of attempts and return one outcome for each, in the same order. Blocks. Never raises for trouble of a batch or of Spark.

        Each outcome is also told as soon as it counts, in that order, in this thread: attempts that run one after the other do not wait for the last one.
        What `tell` raises ends the call.

        Repeating an attempt's plan gives the same results. A wave whose shared work failed is a failure of none: each is run again alone, and only
        that counts.
        """

    def try_over_nothing(self) -> Failure | None:
        """Run every plan of the topology over no rows at all; returns what failed, None when all passed (W4). Blocks; never raises.

        It proves whether a batch is at fault: what fails without a row fails in every batch. `infrastructure`: nothing is known, it is asked again.
        """

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Stop an attempt's work if it runs; its `process` then returns soon with a `suspect` or `infrastructure` failure. Idempotent."""

    def progress(self, attempt: TransactionAttempt) -> int:
        """A number that grows whenever the attempt makes progress (a finished task); 0 for an unknown attempt."""

    def close(self) -> None:
        """Cancel everything and stop what was started. Safe to repeat."""


__all__ = [
    "Assignment", "AttemptStart", "Candidacy", "CheckNode", "Claim", "Claimed", "Clock", "Coordinator", "CoordinatorSession", "CoordinatorView", "CreateNode", "DeleteNode", "Executor",
    "Ledger", "LedgerEntry", "LedgerSession", "LedgerTotals", "MirrorEntry", "NodeExists", "NodeMissing", "Operation", "Processed", "Request", "SessionState", "SetNode", "VersionDiffers",
]  # fmt: skip
