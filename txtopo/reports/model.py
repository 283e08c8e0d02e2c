"""The values of the reading commands: frozen, made from the rows of schema `txtopo`, before any formatting."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from txtopo.core import limits
from txtopo.core.positions import Unit
from txtopo.core.values import IN_FOLDER, IN_NOTEBOOK, FailureKind, OrderKind

TopologyState = Literal["RUNNING", "STALLED", "STOPPED", "FINISHED", "HALTED"]
"""RUNNING: its leader's heartbeat is fresh. STALLED: the last state is running and the heartbeat is old, or nothing was
committed for too long.
"""

BatchState = Literal["committed", "quarantined", "planned", "failed"]
"""planned: planned and not yet in the ledger. failed: the same, and the last attempt that was not cancelled failed."""
AttemptState = Literal["begun", "applied", "failed", "cancelled"]
OrderState = Literal["open", "done", "refused"]

TXIDS_NAMED_MAX = 10
ORDERS_NAMED_MAX = 10
"""Number of txids that `status` names; the counts include all."""


def after_failure(topology: str, txid: int) -> tuple[str, ...]:
    """Return the two commands for a failed batch: retry it, or skip it."""
    return (f"txtopo retry {topology}", f'txtopo skip {topology} {txid} --reason "…"')


def told_advice(advice: str | None) -> str | None:
    """Return what a halt said to do next, unless that is only to look at the batch."""
    return None if advice is None or advice.startswith("txtopo show") else advice or None


def how_to_run(application: str | None) -> str:
    """Return the command that runs an application again: `txtopo run APP`, or its own script, with its folder if that
    differs; for a notebook what its user does there.
    """
    name = application or "APP"
    _, is_notebook, topology = name.partition(IN_NOTEBOOK)
    if is_notebook:
        return f"call txtopo.run(…) again {IN_NOTEBOOK}{topology}"
    script, _, folder = name.partition(IN_FOLDER)
    if not name.startswith("python "):
        script = f"txtopo run {shlex.quote(script)}"
        folder = "" if folder == _here() else folder
    return f"cd {shlex.quote(folder)} && {script}" if folder else script


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # The folder was removed.
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCounts:
    """Failed attempts by kind; only data failures count towards `attempts_max`."""

    data: int
    infrastructure: int
    suspect: int
    halt: int = 0
    """Every batch would have failed in the same way."""

    @property
    def total(self) -> int:
        """Return the sum of all kinds."""
        return self.data + self.infrastructure + self.suspect + self.halt


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLeader:
    """The driver that last held the lead."""

    host: str
    pid: int
    since: datetime
    heartbeat_at: datetime
    heartbeat_age_s: float
    """Seconds since the heartbeat, by the clock of the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOrder:
    """An order that no leader has answered yet."""

    order_id: int
    kind: OrderKind
    txids: tuple[int, ...]
    """The txids that the order names; empty if it concerns the whole topology."""
    committer: str | None = None
    """The committer that a backfill fills."""
    filled: int | None = None
    """The number of batches that backfills have counted into it so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyStatus:
    """One topology as the database knows it."""

    topology: str
    state: TopologyState
    epoch: int
    incarnation: str
    application: str | None
    """`file.py:topology` of the last run; None if no leader recorded it."""
    last_txid: int
    """Highest committed txid; 0 before the first batch."""
    last_committed_at: datetime | None
    planned_txid: int
    """Highest txid planned."""
    problem: str | None
    """What a running leader waits for."""
    waiting: Mapping[str, Any] = field(default_factory=dict)
    """The next batch to commit: `txid`, `attempt`, `phase`, `for_s` seconds since the last commit; empty if no batch
    waits or no driver leads.
    """
    lag: Mapping[str, Any] = field(default_factory=dict)
    """For each spout that knows it, from the last heartbeat: the number of `records` that are in no committed batch, of
    `lagging` partitions, and the `partitions` where most of them wait; empty if no driver leads.
    """
    reason: str | None
    """Why it ended."""
    halted_txid: int | None
    advice: str | None = None
    """What the halt said to do next."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings for batches that the last driver received by flags or environment."""
    failed_attempts: int
    failures: FailureCounts
    """The failed attempts by kind."""
    failed_txids: tuple[int, ...]
    """Uncommitted batches whose last attempt that was not cancelled failed, lowest first, at most `TXIDS_NAMED_MAX`."""
    failed_inputs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The first inputs of each of these batches, in words; batches with unknown inputs are missing."""
    quarantined: int
    """Batches in the ledger without effect (quarantined)."""
    holes: int
    """Quarantined batches that are not redone and are not redos themselves."""
    hole_txids: tuple[int, ...]
    """The lowest of the holes, at most `TXIDS_NAMED_MAX`."""
    rejected: int
    """Source records in the ledger that did not parse under the declared schema."""
    dead_lettered: int
    """Source records in the ledger that were removed because a bolt failed on them."""
    failed_runs: int = 0
    """Commit runs that failed under the last leader, so that their batches were committed one by one; each is in the
    action log with its cause.
    """
    failed_runs_total: int = 0
    """The same under all leaders."""
    open_order_count: int
    open_orders: tuple[OpenOrder, ...]
    """The oldest open orders, at most `ORDERS_NAMED_MAX`."""
    leader: LastLeader | None

    @property
    def planned_ahead(self) -> int:
        """Number of batches planned and not yet committed."""
        return max(0, self.planned_txid - self.last_txid)

    @property
    def is_led(self) -> bool:
        """True if a leader is alive. A stalled leader is alive, too, and carries out orders."""
        alive = self.leader is not None and self.leader.heartbeat_age_s <= limits.STALLED_AFTER_S
        return self.state == "RUNNING" or (self.state == "STALLED" and alive)

    @property
    def who_leads(self) -> str:
        """Return in words who carries an order out, or will."""
        if self.is_led and self.leader is not None:
            return f"the leader on {self.leader.host}, pid {self.leader.pid}"
        return "the next leader"

    @property
    def is_bad(self) -> bool:
        """True if an operator must act or look."""
        return self.state in ("STALLED", "HALTED")

    @property
    def next_commands(self) -> tuple[str, ...]:
        """Return the commands to type if an operator must act."""
        ordered = {txid for order in self.open_orders if order.kind == "redrive" for txid in order.txids}
        holes = [txid for txid in self.hole_txids if txid not in ordered]
        redrive = (f"txtopo redrive {self.topology} {holes[0]}",) if holes else ()
        return (*self._going_on, *redrive)

    @property
    def _going_on(self) -> tuple[str, ...]:
        run = how_to_run(self.application)
        txid = self.halted_txid
        if any(order.kind != "stop" for order in self.open_orders) and not self.is_led:
            return (run,)  # The next run carries out the order before it processes anything.
        if self.state == "STALLED" and self.is_led and self.waiting:
            stuck = self.waiting["txid"]
            return (f"txtopo show {self.topology} {stuck}", f"txtopo events {self.topology} {stuck}")
        if self.state == "HALTED" and (advice := told_advice(self.advice)):
            return (advice,)
        # The last heartbeat before a halt may not have known that the batch was planned.
        is_planned = txid is not None and (txid <= self.planned_txid or txid in self.failed_txids)
        if self.state != "HALTED" or not is_planned:
            return (run,) if self.is_bad or self.state == "STOPPED" else ()
        show = f"txtopo show {self.topology} {txid}"
        if txid in self.failed_txids:
            return (show, *after_failure(self.topology, txid))
        return (show, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterNumbers:
    """A row of `committer_count`: four numbers of one committer, each from another source."""

    committer: str
    arrived: int
    counted: int
    results: int
    written: int
    ignored: int
    reversed: int
    digest: str
    """Decimal digits as text: too large for JSON's numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One line of `batches`."""

    txid: int
    state: BatchState
    attempts: int
    """Number of attempts begun; the first has the id 0."""
    failed_attempts: int
    files: int
    """Number of inputs that it consumes; before its plan is mirrored, those of its last attempt; 0 if it has none."""
    read: int | None
    """Source records; None until committed."""
    rejected: int | None
    redo_of: int | None
    """The batch that this one redoes; known after it is in the ledger."""
    backfills: int | None = None
    """The batch that this one counts into `committer` alone; known after it is in the ledger."""
    committer: str | None = None
    committers: tuple[CommitterNumbers, ...]
    committed_at: datetime | None
    duration_s: float | None
    """Seconds from the start of the applied attempt to its commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """An input of a batch."""

    spout: str
    path: str
    size: int | None
    """Bytes; None if the plan's file list is stored elsewhere."""
    fingerprint: str
    """sha-256 or a similar digest, in hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One attempt at a batch."""

    attempt: int
    epoch: int
    state: AttemptState
    alone: bool
    kind: FailureKind | None
    """The message of a failure."""
    component: str | None
    position: str | None
    message: str | None
    detail: str | None
    host: str | None
    started_at: datetime
    ended_at: datetime | None
    spans: Mapping[str, float]
    """Seconds by phase."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Its inputs, by spout and shortened; empty if an earlier release began it."""
    cause: str | None = None
    """Cause of a failure, without values: failures of the same cause are counted in a row (W7). None if an earlier
    release ended it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeNumbers:
    """A row of `edge_count`."""

    edge: str
    sent: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSummary:
    """The ledger row of a batch."""

    state: Literal["committed", "quarantined"]
    attempt: int
    epoch: int
    read: int | None
    rejected: int | None
    dead_lettered: int | None
    reason: str | None
    redo_of: int | None
    committed_at: datetime
    code_hash: str
    seal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecord:
    """A row of `rejected_row`: a source record that was committed with its batch and counted by no committer."""

    spout: str
    path: str
    line: int
    """Where it starts in its file, in `unit`s; the header of a text file is line 1."""
    unit: Unit = "line"
    """What `line` counts."""
    reason: str
    raw: str
    """Its first `RAW_SHOWN_BYTES_MAX` bytes as text; bytes that are not UTF-8 are escaped."""
    raw_bytes: int
    """Bytes of the complete record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """A row of `dead_letter`: a source record that was removed from its batch because a bolt failed on it."""

    spout: str
    position: str
    """`file:line`, or partition and number."""
    component: str
    """The bolt that failed."""
    reason: str
    raw: str
    """Its first `RAW_SHOWN_BYTES_MAX` bytes as text; bytes that are not UTF-8 are escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoLink:
    """A batch that redoes another one."""

    txid: int
    state: BatchState
    """Planned or failed while it is not yet next to commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillLink:
    """A batch that counts another one into a committer that was added later."""

    txid: int
    committer: str
    state: BatchState
    """Planned or failed while it is not yet next to commit. One that is quarantined counts nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRow:
    """A complete row of `txtopo.request`: who wanted what, and the outcome."""

    order_id: int
    kind: OrderKind
    txids: tuple[int, ...]
    committer: str | None = None
    """The committer that a backfill fills."""
    reason: str | None
    actor: str | None
    host: str | None
    created_at: datetime
    state: OrderState
    answer: str | None
    done_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRow:
    """A row of the action log: what was changed, by whom and why."""

    action_id: int
    at: datetime
    actor: str
    host: str
    command: str
    reason: str | None
    order_id: int | None
    """The order that caused it; None: the leader acted by its own rules."""
    txid: int | None
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDetail:
    """Everything about one batch."""

    topology: str
    txid: int
    state: BatchState
    application: str | None
    advice: str | None = None
    """What the halt over this batch said to do next; None if the topology has not halted over it, or if that only names
    `txtopo show`.
    """
    digest: str | None
    """Identity of the batch, hex; None until its plan is mirrored."""
    planned_at: datetime | None
    plan_problem: str | None
    """Why the stored plan cannot be read."""
    metadata: Mapping[str, Any]
    """By spout, as planned; before the plan is mirrored shortened, as in its last attempt; empty if unknown."""
    ledger: LedgerSummary | None
    files: tuple[SourceFile, ...]
    attempts: tuple[AttemptRow, ...]
    committers: tuple[CommitterNumbers, ...]
    edges: tuple[EdgeNumbers, ...]
    targets: Mapping[str, str]
    """Committer -> target table."""
    redo_of: int | None
    """The batch that this one redoes, according to its ledger row or its plan."""
    redone_as: tuple[RedoLink, ...]
    """Batches that redo this one, in txid order."""
    backfills: int | None = None
    """The batch that it counts into `committer` alone, according to its ledger row or its plan."""
    committer: str | None = None
    counted_by: tuple[BackfillLink, ...] = ()
    """Batches that count this one into committers that were added later, in txid order."""
    rejected_rows: tuple[RejectedRecord, ...]
    """As many as requested; the ledger row counts all."""
    dead_letters: tuple[DeadLetterRow, ...] = ()
    """As many as requested; the ledger row counts all."""
    orders: tuple[OrderRow, ...]
    """Orders that name this batch, oldest first."""
    actions: tuple[ActionRow, ...]
    """Rows of the action log about this batch, oldest first."""

    @property
    def failures(self) -> FailureCounts:
        """Return its failed attempts by kind."""
        kinds = [attempt.kind for attempt in self.attempts if attempt.state == "failed"]
        return FailureCounts(
            data=kinds.count("data"),
            infrastructure=kinds.count("infrastructure"),
            suspect=kinds.count("suspect"),
            halt=kinds.count("halt"),
        )

    @property
    def _may_be_at_fault(self) -> bool:
        """True if the batch or the code caused its last failure. A failure of a store, or one that every batch would
        have, is no reason to skip it.
        """
        kinds = [attempt.kind for attempt in self.attempts if attempt.state == "failed"]
        return kinds[-1:] not in (["infrastructure"], ["halt"])

    @property
    def is_redone(self) -> bool:
        """True if a batch that is in the ledger, or will be, redoes this one."""
        return any(link.state != "quarantined" for link in self.redone_as)

    @property
    def next_commands(self) -> tuple[str, ...]:
        """Return what to type next."""
        status = f"txtopo status {self.topology}"
        if any(order.state == "open" for order in self.orders):
            return (
                status,
                how_to_run(self.application),
            )  # The current leader carries it out, or the next one when it starts.
        if self.state == "failed":
            if self.advice:
                return (self.advice, status)
            again, without = after_failure(self.topology, self.txid)
            return (again, without, status) if self._may_be_at_fault else (again, status)
        if (
            self.state == "quarantined" and self.redo_of
        ):  # It has not been redone: what to do depends on the batch itself.
            return (f"txtopo show {self.topology} {self.redo_of}", status)
        if self.state == "quarantined" and self.backfills:  # R32: it is not redone; another backfill tries again
            return (f"txtopo backfill {self.topology} {self.committer}", status)
        if self.state == "quarantined" and not self.is_redone:
            return (f"txtopo redrive {self.topology} {self.txid}", status)
        return (status, f"txtopo batches {self.topology}")
