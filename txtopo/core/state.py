"""The state of the machine: what a leader knows about its uncommitted batches, and its work on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from txtopo.core import limits
from txtopo.core.events import Action, End
from txtopo.core.patience import Tries
from txtopo.core.plan import Plan
from txtopo.core.replacing import replace
from txtopo.core.values import Failure, Left, Order, Processed, Quarantine, TransactionAttempt

PoisonPolicy = Literal["halt", "quarantine_batch", "dead_letter_rows"]
"""What happens to a batch whose attempts are used up: the topology halts; or the batch is quarantined and later batches
continue; or the source records that a tuple bolt fails on are removed from it, and it halts only if that does not help.
"""


ProofOf = Literal["processing", "commit"]
"""The failed step of a batch, which is tried on input that is known to be good."""


class Phase(Enum):
    """The phase of an uncommitted batch."""

    PLANNED = "planned"
    PROCESSING = "processing"
    PROCESSED = "processed"
    PROVING = "proving"
    """Its attempts are used up. Before it is quarantined, the failed step is tried on input that is known to be
    good.
    """
    QUARANTINED = "quarantined"
    """It will have no effect; waits until it is next to commit, like a processed one (R14)."""
    COMMITTING = "committing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings that the machine uses."""

    spout_pending_max: int = limits.SPOUT_PENDING_MAX
    workers: int = limits.WORKERS
    attempts_max: int = limits.ATTEMPTS_MAX
    on_poison: PoisonPolicy = "halt"
    quarantined_in_row_max: int = limits.QUARANTINED_IN_ROW_MAX
    message_timeout_s: float = limits.MESSAGE_TIMEOUT_S
    session_s: float = limits.ZOOKEEPER_SESSION_S
    postgres_away_max_s: float = limits.POSTGRES_AWAY_MAX_S
    spout_poll_s: float = limits.SPOUT_POLL_S
    results_bytes_max: int = limits.RESULTS_BYTES_MAX
    wave_txids_max: int = limits.WAVE_TXIDS_MAX
    wave_bytes_max: int = limits.WAVE_BYTES_MAX
    """0: no waves."""
    run_txids_max: int = limits.RUN_TXIDS_MAX
    """1: no commit runs."""
    joins_mirrors: bool = True
    """True: the commit of a batch that is ready alone mirrors its plan, too (R9)."""
    checkpoint_every_s: float = limits.CHECKPOINT_EVERY_S
    opaque: bool = False
    """True if an attempt may plan its batch again. A property of the topology's spouts, not a setting."""
    once: bool = False
    """True if the run ends with its input; then it waits for a source only for a limited time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The failures of an opaque batch: they survive its plan, which is made again."""

    data_failures: int = 0
    other_failures: int = 0
    unread: int = 0
    unread_file: str | None = None
    read_before: int = 0
    suspect: bool = False
    once: bool = False
    runs_alone: int = 0
    rows_lost: int = 0
    dead_letter: bool = False
    not_before: float = 0.0
    last_failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)  # without slots: `replace` copies its __dict__
class Batch:
    """An uncommitted batch."""

    plan: Plan
    attempt: int
    """The running attempt, or the next one to run."""
    phase: Phase = Phase.PLANNED
    not_before: float = 0.0
    """Monotonic seconds before which no new attempt starts."""
    data_failures: int = 0
    other_failures: int = 0
    """Infrastructure failures and unavailable stores; they only lengthen the backoff."""
    unread: int = 0
    """Consecutive failures to read the same file of its source."""
    unread_file: str | None = None
    read_before: int = 0
    """`State.read` at the first of them."""
    suspect: bool = False
    """True: an earlier attempt ended without a verdict, and the next one runs alone."""
    once: bool = False
    """For a suspect: it shared that end, the driver's, with others, and only once. Its next attempt may share a wave
    with such suspects, with no other attempt running; if that one also ends without a verdict, the next one runs alone.
    """
    runs_alone: int = 0
    rows_lost: int = 0
    """Number of times that rows which tasks stored did not exist when it was to be committed."""
    dead_letter: bool = False
    """Its attempts are used up: from now on, records that a bolt fails on are removed."""
    source_bytes: int = 0
    """0: unknown."""
    wave: TransactionAttempt | None = None
    """First attempt of the wave in which its last attempt began; the attempt itself if it ran separately."""
    in_wave: bool = False
    """True if its last attempt shared a wave with other batches."""
    progress: int = 0
    progress_at: float = 0.0
    """Time of the last progress."""
    processed: Processed | None = None
    pinned: bool = False
    """Opaque topologies: its plan is mirrored, or about to be, and will never be replaced."""
    quarantine: Quarantine | None = None
    """If set, the batch is written as quarantined when it is next to commit."""
    last_failure: Failure | None = None
    proof_of: ProofOf = "processing"
    """PROVING: the step that used up its attempts."""
    proof_tries: int = 0
    """Proofs without a result, because a store or an executor was unavailable."""

    @property
    def transaction_attempt(self) -> TransactionAttempt:
        return TransactionAttempt(self.plan.txid, self.attempt)

    @property
    def is_ready(self) -> bool:
        """True if it only waits until it is next to commit."""
        return self.phase in (Phase.PROCESSED, Phase.QUARANTINED)

    @property
    def may_share(self) -> bool:
        """True if its next attempt may run in a wave; False after its own failure, since then only separate runs
        are conclusive. An attempt that could not begin, or ended for a cause of others, is no such failure.
        """
        return not (self.suspect or self.data_failures or self.unread or self.dead_letter)

    @property
    def has_failed(self) -> bool:
        """True if its last attempt failed and no new one has started."""
        return self.phase in (Phase.PLANNED, Phase.PROVING) and self.last_failure is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInWork:
    """An operator's order that is being carried out."""

    order: Order
    todo: tuple[int, ...] = ()
    """Batches that are still to be planned as redos."""
    waiting: Mapping[int, int] = field(default_factory=dict)
    """Txid whose commit is awaited -> the batch that the order named."""
    results: tuple[tuple[bool, str], ...] = ()
    """The outcome of each batch: True for success, and words. Of a backfill only of those that are not counted."""
    seeks: bool = False
    """A backfill: there may be further batches to count."""
    above: int = 0
    """A backfill: the batches up to this one are decided."""
    backfilled: int = 0
    """A backfill: number of batches that this leader has counted."""

    @property
    def is_carried_out(self) -> bool:
        """True if there is nothing left to do or to wait for."""
        return not self.todo and not self.waiting and not self.seeks


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """A stop in progress."""

    at_once: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Halting:
    """A halt in progress: batches below `txid` are still committed, in order."""

    txid: int
    reason: str
    next_command: str | None


@dataclass(frozen=True, kw_only=True)  # without slots: `replace` copies its __dict__
class State:
    """Everything the machine knows. Changed only by `machine.step`."""

    rules: Rules
    topology: str
    last_txid: int
    """Highest txid known as committed in Postgres in this epoch."""
    batches: Mapping[int, Batch] = field(default_factory=dict)
    """Planned and uncommitted: always last_txid + 1, + 2, … without holes."""
    running: frozenset[TransactionAttempt] = frozenset()
    """Attempts that occupy a worker thread, including cancelled ones that have not returned."""
    abandoned: frozenset[TransactionAttempt] = frozenset()
    """Those of `running` that were cancelled; their outcome will be ignored."""
    next_attempts: Mapping[int, int] = field(default_factory=dict)
    """The first unused attempt id of txids that were planned before, and whose plan was lost or discarded. Ids never
    decrease.
    """
    one_by_one: str | None = None
    """Why attempts do not share a job; None: they do."""
    read: int = 0
    """Number of attempts processed since the lead was taken: each could read its source."""
    waved: int = 0
    """Batches processed in waves since the lead was taken; waves grow with it. It begins at 1 if no first wave is
    compared.
    """
    quarantined: int = 0
    """Batches quarantined since the lead was taken (R14)."""
    cutting: bool = False
    cut_not_before: float = 0.0
    cut_failures: int = 0
    cut_stale: bool = False
    """The planning in progress follows a plan that was discarded meanwhile: its result is discarded."""
    cut_dry: bool = False
    """The last planning found no input."""
    input_next: bool = False
    """A backfill was planned last: new input comes before the next one."""
    cut_upto: int | None = None
    """Opaque topologies: nothing above this txid is planned; None: no bound."""
    deadly_txid: int | None = None
    """The batch that was next to commit when several drivers ended, as found at takeover; judged before it runs
    again.
    """
    owed: frozenset[int] = frozenset()
    """Opaque topologies: txids whose plans were discarded and that are planned again. A run with any of them has not
    finished.
    """
    source_away_since: float | None = None
    """Since when the source could not be read, or gave no input for a batch that is owed."""
    plans_input: bool = True
    """False: the run only commits planned batches and carries out orders."""
    carried: Mapping[int, Carried] = field(default_factory=dict)
    """By txid, for batches that are planned again."""
    last_digest: bytes | None = None
    """Digest of the batch `last_txid`, which the next plan chains to; None: unknown."""
    exhausted: bool = False
    mirrored_txid: int = 0
    """Plans up to here are durable in Postgres."""
    mirroring: bool = False
    mirror_not_before: float = 0.0
    mirror_failures: int = 0
    committing: bool = False
    """True: a Commit or a Resolve is in progress."""
    commit_not_before: float = 0.0
    commit_failures: int = 0
    answered: int = 0
    """Number of heartbeats that Postgres answered."""
    commit_tries: Tries = field(default_factory=Tries)
    """Failed commits of the next batch to commit."""
    mirror_tries: Tries = field(default_factory=Tries)
    begin_tries: Tries = field(default_factory=Tries)
    """Failures to begin an attempt, since the last one that began."""
    recent: tuple[Left, ...] = ()
    """The last batches in the order, at most `RECENT_TXIDS` - 1, oldest first: those that read a record, and those that
    `on_poison` quarantined.
    """
    unresolved: tuple[int, int] | None = None
    """First and last txid of the commit whose outcome is unknown (R7, R26); the first is last_txid + 1."""
    single_commits: str | None = None
    """Why batches are committed one by one (R20); None: several ready ones are committed together."""
    run_max: int = limits.RUN_TXIDS_FIRST
    """Maximum number of batches of the next commit run (R24)."""
    alone_upto: int = 0
    """Batches up to this txid are committed one by one, since a commit run of them has failed (R25)."""
    runs_failed: int = 0
    """Commit runs that failed since the last one that was committed."""
    held_bytes: int = 0
    """Memory of all uncommitted results, in bytes."""
    proving: frozenset[int] = frozenset()
    """Txids for which a proof is in progress."""
    checkpointing: bool = False
    checkpoint_not_before: float = 0.0
    checkpoint_failures: int = 0
    checkpointed_txid: int = 0
    cleaned_to: int = 0
    moved_at: float = 0.0
    """Time of the last commit, or, if no batch was waiting, of the last event: health depends on commits, not on
    running threads.
    """
    commit_log: tuple[tuple[float, int], ...] = ()
    """(second, highest txid committed by then), for K of R8; about one entry per second, for the last minute."""
    suspended_since: float | None = None
    postgres_away_since: float | None = None
    locked: str | None = None
    """The lock that the commit of last_txid + 1 waited for at the last check, and its holder."""
    problem: str | None = None
    """What the topology waits for, in words; shown by `status`."""
    orders: Mapping[int, OrderInWork] = field(default_factory=dict)
    """Operators' orders being carried out, by order id."""
    stopping: Stopping | None = None
    halting: Halting | None = None
    ended: End | None = None

    @property
    def trouble(self) -> str | None:
        """What the topology waits for, in words, the most important first; None: nothing unusual.

        A successful heartbeat says nothing about a failing commit or mirror: their messages remain until they succeed.
        """
        commit = self.commit_tries.words
        problem = None if self.locked is not None and self.problem == commit else self.problem
        begin = None if self.running else self.begin_tries.words
        told = (self.locked or commit, self.mirror_tries.words, begin, problem)
        return "; ".join(dict.fromkeys(words for words in told if words is not None)) or None

    @property
    def next_txid(self) -> int:
        """The first txid that is not planned yet."""
        return self.last_txid + len(self.batches) + 1

    @property
    def halts_at(self) -> int:
        """The first txid for which nothing begins: it is not planned yet, or a halt is there. A halt above all planned
        txids has nothing more to wait for.
        """
        return self.next_txid if self.halting is None else min(self.halting.txid, self.next_txid)

    @property
    def no_more_input(self) -> bool:
        """True if no new batch will be planned."""
        return self.exhausted or (self.cut_upto is not None and self.next_txid > self.cut_upto)

    def was_cut(self, txid: int) -> bool:
        """True for an uncommitted txid of an opaque topology that was planned before and will be planned again."""
        return txid in self.owed

    @property
    def planned_txid(self) -> int:
        """The highest txid that was ever planned, whether or not it is planned again."""
        return max([self.next_txid - 1, *self.owed])

    @property
    def has_end(self) -> bool:
        """True if the run ends by itself."""
        return self.rules.once or not self.plans_input

    @property
    def lowest(self) -> Batch | None:
        """The next batch to commit."""
        return self.batches.get(self.last_txid + 1)

    def is_in_commit(self, txid: int) -> bool:
        """True if the commit of this batch is in progress, or unknown: no order touches it (R27)."""
        first, last = self.unresolved or (0, -1)
        batch = self.batches.get(txid)
        return first <= txid <= last or (batch is not None and batch.phase is Phase.COMMITTING)

    def with_batch(self, batch: Batch) -> State:
        """Return the same state with this batch added or replaced."""
        return self.with_batches([batch])

    def with_batches(self, batches: Iterable[Batch]) -> State:
        """Return the same state with several batches: the data is copied once, not for each."""
        changed, held = dict(self.batches), self.held_bytes
        for batch in batches:
            held += _held(batch) - _held(changed.get(batch.plan.txid))
            changed[batch.plan.txid] = batch
        return replace(self, batches=changed, held_bytes=held)

    def without_batches(self, txids: Iterable[int]) -> State:
        """Return the same state without these batches: committed, or to be planned again."""
        left, held = dict(self.batches), self.held_bytes
        for txid in txids:
            held -= _held(left.pop(txid))
        return replace(self, batches=left, held_bytes=held)


def _held(batch: Batch | None) -> int:
    return 0 if batch is None or batch.processed is None else batch.processed.bytes


def ended(state: State, end: End) -> tuple[State, list[Action]]:
    """Return the step that ends the run immediately."""
    return replace(state, ended=end), [end]


def first_state(
    rules: Rules,
    topology: str,
    last_txid: int,
    *,
    now: float,
    plans: tuple[Plan, ...] = (),
    mirrored_txid: int = 0,
    next_attempts: Mapping[int, int] | None = None,
    suspects: Mapping[int, int] | None = None,
    cut: bool = True,
    one_by_one: str | None = None,
    waves_proven: bool = False,
    sizes: Mapping[int, int] | None = None,
    last_digest: bytes | None = None,
    suspects_once: frozenset[int] = frozenset(),
    owed: frozenset[int] = frozenset(),
    recent: Sequence[Left] = (),
    single_commits: str | None = None,
) -> State:
    """Return the state of a driver that has just taken the lead. Without `cut` no new input is planned: the run commits
    what is planned and ordered, then ends.

    `plans` are the uncommitted ones, from last_txid + 1 on without holes. `suspects` maps the txids whose last attempt
    ended without a verdict to the number of times they ran alone; `suspects_once` are those that shared such an end,
    once. In an opaque topology the plans are those that are pinned; other txids that were planned before are `owed`:
    they are planned again, also without `cut`.
    """
    attempts, planned = next_attempts or {}, {plan.txid for plan in plans}
    # Only the batch that was next to commit may have ended the drivers: later ones were processed, and waited.
    most, lowest = limits.SUSPECT_RUNS_ALONE_MAX, last_txid + 1
    alone = {txid: min(runs, most - (txid > lowest)) for txid, runs in (suspects or {}).items()}
    batches = {
        plan.txid: Batch(
            plan=plan,
            attempt=attempts.get(plan.txid, 0),
            suspect=plan.txid in alone,
            once=plan.txid in suspects_once,
            runs_alone=alone.get(plan.txid, 0),
            source_bytes=(sizes or {}).get(plan.txid, 0),
            pinned=rules.opaque,
        )
        for plan in plans
    }
    carried = {
        txid: Carried(suspect=True, once=txid in suspects_once, runs_alone=runs)
        for txid, runs in alone.items()
        if txid not in planned
    }
    return State(
        rules=rules,
        topology=topology,
        last_txid=last_txid,
        batches=batches,
        mirrored_txid=max(mirrored_txid, last_txid),
        commit_log=((now, last_txid),),
        moved_at=now,
        exhausted=not cut and not rules.opaque,
        cut_upto=max([last_txid + len(plans), *owed]) if rules.opaque and not cut else None,
        next_attempts={txid: attempt for txid, attempt in attempts.items() if txid not in planned},
        carried=carried if rules.opaque else {},
        one_by_one=one_by_one,
        waved=int(waves_proven),
        last_digest=last_digest,
        recent=tuple(recent)[1 - limits.RECENT_TXIDS :],
        owed=owed,
        plans_input=cut,
        single_commits=single_commits,
        deadly_txid=lowest if alone.get(lowest, 0) >= most else None,
    )
