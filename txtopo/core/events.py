"""The inputs of the machine (events) and its outputs (actions): frozen values.

Each action states what must be durable before it is performed. The runner performs actions and reports their results as
events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from txtopo.core.plan import Plan
from txtopo.core.values import (
    ActionRecord,
    CommitOutcome,
    Failure,
    Order,
    Outcome,
    Processed,
    Quarantine,
    RunFailed,
    TransactionAttempt,
)
from txtopo.errors import Patience

Store = Literal["postgres", "zookeeper", "source"]


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of an event, and a random number for jitter: the machine's only sources of time and chance."""

    now: float
    """Monotonic seconds."""
    chance: float = 0.5
    """In [0, 1)."""


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Redo:
    """One batch that an order redoes under a new txid at the end of the order."""

    order_id: int
    kind: Literal["redrive", "recompute"]
    txid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The next batch that an order counts into a committer which has not counted it (R32)."""

    order_id: int
    committer: str
    above: int
    """Batches up to this one are decided already."""
    planned: tuple[int, ...] = ()
    """Batches above it for which a backfill is planned and not committed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed. `progress` maps running attempts to a number that grows with their progress."""

    progress: Mapping[TransactionAttempt, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlansCut:
    """A Cut ended: these plans are durable in ZooKeeper. If there are none, the source had no more input."""

    plans: tuple[Plan, ...]
    exhausted: bool
    """No more input will come (`once` runs)."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Source bytes by txid, if known; they limit waves."""
    ready_in_s: float = math.inf
    """Seconds after which the source may have input, if there is none now and the source knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WavesRefused:
    """The executor has found that attempts of this topology may not share a job."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CutFailed:
    """A Cut failed because a store or the source was unavailable."""

    store: Store
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """The plans up to this txid are durable in Postgres (R9)."""

    txid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFailed:
    """Postgres was unavailable; it is not known whether anything was mirrored."""

    message: str
    patience: Patience = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The processing phase of an attempt has ended."""

    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptNotBegun:
    """A store was unavailable before the attempt emitted anything; the same attempt id is tried again."""

    attempt: TransactionAttempt
    store: Store
    message: str
    patience: Patience = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEnded:
    """A Commit or a Resolve ended with these outcomes (R7)."""

    outcomes: tuple[CommitOutcome, ...]
    """Of the first batches of the action, in ascending order: usually of all."""
    locked_s: float | None = None
    """`own_s` of RunEnded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRunFailed:
    """A Commit of several batches was rolled back (R25)."""

    failed: RunFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A Prove ended."""

    txid: int
    failure: Failure | None
    """The failure of a step that does not depend on the batch; of kind infrastructure: nothing is known yet. None: all
    steps passed, so the batch itself is at fault.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveFailed:
    """Postgres was unavailable, so the outcome of a commit is still unknown."""

    message: str
    patience: Patience = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """ZooKeeper knows that everything up to `last_txid` is committed; metadata below `keep_from` is removed (R8)."""

    last_txid: int
    keep_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed:
    """ZooKeeper was unavailable."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAnswered:
    """A heartbeat was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSilent:
    """A heartbeat failed."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSeen:
    """State of the session: connected, or suspended. Lost is LeadGone."""

    suspended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWanted:
    """An operator wants the run to end: after the batches in processing, or immediately after an open commit."""

    at_once: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRequired:
    """Evidence was found that forbids continuing (R17: a halt is loud and total)."""

    reason: str
    txid: int | None = None
    next_command: str | None = None
    planning: bool = False
    """The txid whose planning found it: the batches below it are good and are committed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersSeen:
    """Open orders of operators that this leader has not received yet, oldest first."""

    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoCut:
    """A CutRedo ended: the redo is planned, was planned or done before, or is not possible."""

    redo: Redo | Backfill
    plan: Plan | None = None
    """The plan, now durable in ZooKeeper; the next txid."""
    by: int | None = None
    """Txid that already redoes it for this very order: planned by an earlier leader, or committed."""
    refused: str | None = None
    """The reason why there is nothing to redo."""
    named: int | None = None
    """For a backfill: the batch that was found; None: no further one is to be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadGone:
    """This driver must not lead any more: fenced by another epoch, or the session is lost."""

    fenced: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSeen:
    """A check of the lock that the current commit waits for: `words` names the lock and its holder; None: it waits for
    no lock.
    """

    words: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorGone:
    """The executor of this process has stopped and cannot be restarted (K11): a new process must take over."""

    message: str


Event = (
    Tick
    | PlansCut
    | WavesRefused
    | CutFailed
    | Mirrored
    | MirrorFailed
    | AttemptEnded
    | AttemptNotBegun
    | CommitEnded
    | CommitRunFailed
    | Proven
    | ResolveFailed
    | OrdersSeen
    | RedoCut
    | Checkpointed
    | CheckpointFailed
    | PostgresAnswered
    | PostgresSilent
    | ZooKeeperSeen
    | StopWanted
    | HaltRequired
    | LeadGone
    | ExecutorGone
    | LockSeen
)


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Plan up to `count` batches from `first_txid` on. Each plan must be in ZooKeeper before its PlansCut (R3)."""

    first_txid: int
    count: int
    last_txid: int = 0
    """Highest committed txid."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """Opaque topologies: for txids that were planned before, the first unused attempt id; for all others it is 0."""
    given_up: frozenset[int] = frozenset()
    """Opaque topologies: the txids, planned before, that an order skips. If the source gives no input for them, they
    are planned empty.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRedo:
    """Plan one redo as `first_txid`. Its plan must be in ZooKeeper before its RedoCut (R3)."""

    first_txid: int
    redo: Redo | Backfill
    open_redos: tuple[tuple[int, int, int | None], ...]
    """(redo_of, txid, order id) of the uncommitted batches that redo one."""
    last_txid: int = 0
    attempts: Mapping[int, int] = field(default_factory=dict)
    """As in Cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Run these attempts. Their plans are durable in ZooKeeper; their begin must be durable in both stores before
    anything is emitted.
    """

    attempts: tuple[tuple[TransactionAttempt, Plan], ...]
    alone: bool
    """True: no other attempt runs meanwhile, because an earlier attempt was a suspect."""
    dead_letter: bool = False
    """True: source records that a bolt fails on are removed from the batch, up to a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop the work of an attempt."""

    attempt: TransactionAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEnd:
    """Record how an attempt ended without a commit."""

    attempt: TransactionAttempt
    state: Literal["failed", "cancelled"]
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Write consecutive plans into Postgres (R9). They must be in ZooKeeper."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitItem:
    """A batch that is next to commit."""

    plan: Plan
    processed: Processed


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Commit the next batches in order, in one database transaction (R19). Their plans must be durable in both
    stores, unless the database transaction mirrors them.
    """

    items: tuple[CommitItem, ...]
    """Consecutive, ascending; usually one."""
    mirrors: bool = False
    """Mirror the plan of the only batch in the same database transaction (R9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Find out, under the fence lock, whether a COMMIT happened (R7, R26), before anything else is committed."""

    plans: tuple[Plan, ...]
    """All that were to be committed by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prove:
    """Try the step that used up a batch's attempts on input that is known to be good (W4): processing without rows, or
    a commit that is rolled back.
    """

    plan: Plan
    attempt: TransactionAttempt
    """Its last attempt."""
    step: Literal["processing", "commit"]
    processed: Processed | None = None
    """For a commit: the results that were to be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitQuarantine:
    """Write the quarantine of a batch as its ledger row, in sequence (R14). Its plan must be mirrored (R9)."""

    plan: Plan
    quarantine: Quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Close an operator's order."""

    order_id: int
    state: Literal["done", "refused"]
    answer: str
    action: ActionRecord | None = None
    """For the action log, if closing the order is the change itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAction:
    """Append to the action log what the leader itself did."""

    action: ActionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Advance the counter in ZooKeeper and remove metadata below the durable mark (R8). Only after COMMIT is known
    (R7).
    """

    last_txid: int
    keep_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Print one line for the operator."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Stop performing; the last action."""

    kind: Literal["finished", "stopped", "halted", "fenced", "lead_lost", "executor_lost", "replan"]
    """replan: the plans that were never mirrored are discarded at the next takeover, which this process attempts
    immediately.
    """
    reason: str
    txid: int | None = None
    next_command: str | None = None


Action = (
    Cut
    | CutRedo
    | Process
    | Cancel
    | RecordEnd
    | Mirror
    | Commit
    | CommitQuarantine
    | Resolve
    | Prove
    | Answer
    | LogAction
    | Checkpoint
    | Say
    | End
)
