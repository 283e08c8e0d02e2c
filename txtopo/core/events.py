"""What the machine is told (events) and what it asks for (actions): frozen values, nothing else.

Each action states what must be durable before it is performed; the runner performs actions and tells the machine how
they ended.
"""

from __future__ import annotations

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
    TransactionAttempt,
)
from txtopo.errors import Patience

Store = Literal["postgres", "zookeeper", "source"]


@dataclass(frozen=True, slots=True)
class Moment:
    """When an event arrived, and a number drawn for jitter: time and chance come in through the door."""

    now: float
    """Monotonic seconds."""
    chance: float = 0.5
    """In [0, 1)."""


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Redo:
    """One batch that an order wants redone as a new txid at the end of the order."""

    order_id: int
    kind: Literal["redrive", "recompute"]
    txid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed. `progress` maps running attempts to a number that grows with their progress."""

    progress: Mapping[TransactionAttempt, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlansCut:
    """A Cut ended: these plans are durable in ZooKeeper. None of them: the source had nothing more."""

    plans: tuple[Plan, ...]
    exhausted: bool
    """Nothing will come any more (`once` runs)."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Source bytes by txid, where they are known; they bound waves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WavesRefused:
    """The executor has found that attempts of this topology may not share a job."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CutFailed:
    """A Cut found a store or the source away."""

    store: Store
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """The plans up to this txid are durable in Postgres (R9)."""

    txid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFailed:
    """Postgres was away; nothing is known to be mirrored."""

    message: str
    patience: Patience = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The processing phase of an attempt has ended."""

    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptNotBegun:
    """A store was away before the attempt emitted anything; the same attempt id is tried again."""

    attempt: TransactionAttempt
    store: Store
    message: str
    patience: Patience = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEnded:
    """A Commit or a Resolve ended with this outcome (R7)."""

    outcome: CommitOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A Prove ended."""

    txid: int
    failure: Failure | None
    """What failed although the batch had no part in it; of kind infrastructure: nothing is known yet. None: all passed,
    so the batch itself is at fault.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveFailed:
    """Postgres was away, so the outcome of a commit is still unknown."""

    message: str
    patience: Patience = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """ZooKeeper knows that everything up to `last_txid` is committed; metadata below `keep_from` is gone (R8)."""

    last_txid: int
    keep_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed:
    """ZooKeeper was away."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAnswered:
    """The heartbeat went through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSilent:
    """The heartbeat did not go through."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSeen:
    """State of the session: connected, or suspended. Lost is LeadGone."""

    suspended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWanted:
    """An operator wants the run to end: after the batches in processing, or at once after an open commit."""

    at_once: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRequired:
    """Evidence was found that forbids going on (R17)."""

    reason: str
    txid: int | None = None
    next_command: str | None = None
    planning: bool = False
    """Found while planning `txid`: the batches below it are good and are committed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersSeen:
    """Operators' orders that are open and that this leader has not been told of yet, oldest first."""

    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoCut:
    """A CutRedo ended: the redo is planned, was planned or done before, or may not be."""

    redo: Redo
    plan: Plan | None = None
    """Durable in ZooKeeper now; the next txid."""
    by: int | None = None
    """Txid that redoes it already for this very order: planned by an earlier leader, or committed."""
    refused: str | None = None
    """Why there is nothing to redo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadGone:
    """This driver may not lead any more: fenced by another epoch, or the session is lost."""

    fenced: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSeen:
    """Someone looked what the commit under way waits for: `words` names the lock and its holder; None: it waits for no
    lock.
    """

    words: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorGone:
    """The executor of this process is gone for good (K11): a new process is to take over."""

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
    """Highest committed one."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """Opaque topologies: first attempt id never used of txids that were cut before; of all others it is 0."""
    given_up: frozenset[int] = frozenset()
    """Opaque topologies: of those that were cut before, the ones that an order skips. Where the source gives nothing
    they are planned empty.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRedo:
    """Plan one redo as `first_txid`. Its plan must be in ZooKeeper before its RedoCut (R3)."""

    first_txid: int
    redo: Redo
    open_redos: tuple[tuple[int, int, int | None], ...]
    """(redo_of, txid, order id) of the uncommitted batches that redo one."""
    last_txid: int = 0
    attempts: Mapping[int, int] = field(default_factory=dict)
    """As of Cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Run these attempts. Their plans are durable in ZooKeeper; their begin must be durable in both stores before
    anything is emitted.
    """

    attempts: tuple[tuple[TransactionAttempt, Plan], ...]
    alone: bool
    """Nothing runs beside it: an earlier attempt was a suspect."""
    dead_letter: bool = False
    """Source records that a bolt fails on are taken out of the batch, up to a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop the work of an attempt."""

    attempt: TransactionAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEnd:
    """Remember how an attempt ended without a commit."""

    attempt: TransactionAttempt
    state: Literal["failed", "cancelled"]
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Write consecutive plans into Postgres (R9). They must be in ZooKeeper."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Commit one batch in its turn (docs/protocol.md). Its plan must be durable in both stores."""

    plan: Plan
    processed: Processed


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Find out under the fence lock whether a COMMIT happened (R7), before anything else is committed."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Prove:
    """Try the step that used up a batch's attempts on what is known to be good (W4): processing over no rows at all, or
    a commit that is rolled back.
    """

    plan: Plan
    attempt: TransactionAttempt
    """Its last one."""
    step: Literal["processing", "commit"]
    processed: Processed | None = None
    """Of a commit: what was to be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitQuarantine:
    """Write the quarantine of a batch into its place in the order (R14). Its plan must be mirrored (R9)."""

    plan: Plan
    quarantine: Quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Close an operator's order."""

    order_id: int
    state: Literal["done", "refused"]
    answer: str
    action: ActionRecord | None = None
    """For the action log, where closing the order is the change itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Advance the counter in ZooKeeper and clean behind the durable mark (R8). Only after COMMIT is known (R7)."""

    last_txid: int
    keep_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Tell the operator one line."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Stop performing; the last action."""

    kind: Literal["finished", "stopped", "halted", "fenced", "lead_lost", "executor_lost", "replan"]
    """replan: the plans that were never mirrored are dropped at the next takeover, which this process tries for at
    once.
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
    | Checkpoint
    | Say
    | End
)
