"""What the reading commands know: frozen values made from the rows of schema `txtopo`, before any formatting."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from txtopo.core import limits
from txtopo.core.values import IN_FOLDER, FailureKind, OrderKind

TopologyState = Literal["RUNNING", "STALLED", "STOPPED", "FINISHED", "HALTED"]
"""RUNNING: its leader's heartbeat is fresh. STALLED: it says running and its heartbeat is old, or it has committed
nothing for too long.
"""

BatchState = Literal["committed", "quarantined", "planned", "failed"]
"""planned: cut and not yet in the ledger. failed: the same, and its last attempt that was not cancelled failed."""
AttemptState = Literal["begun", "applied", "failed", "cancelled"]
OrderState = Literal["open", "done", "refused"]

BATCH_STATES: tuple[BatchState, ...] = ("committed", "quarantined", "planned", "failed")


TXIDS_NAMED_MAX = 10
ORDERS_NAMED_MAX = 10
"""What `status` names; the numbers beside count all."""


def after_failure(topology: str, txid: int) -> tuple[str, ...]:
    """The two ways out of a failed batch: again as it was planned, or without it."""
    return (f"txtopo retry {topology}", f'txtopo skip {topology} {txid} --reason "…"')


def told_advice(advice: str | None) -> str | None:
    """What a halt said to do next, where that is more than to look at the batch."""
    return None if advice is None or advice.startswith("txtopo show") else advice or None


def how_to_run(application: str | None) -> str:
    """The command that runs an application again: `txtopo run APP`, or its own script, in its folder where that is
    another one.
    """
    name = application or "APP"
    script, _, folder = name.partition(IN_FOLDER)
    if not name.startswith("python "):
        script = f"txtopo run {shlex.quote(script)}"
        folder = "" if folder == _here() else folder
    return f"cd {shlex.quote(folder)} && {script}" if folder else script


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # somebody removed it
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCounts:
    """Failed attempts by kind, counted apart: only data failures count towards `attempts_max`."""

    data: int
    infrastructure: int
    suspect: int
    halt: int = 0
    """Any batch would have failed alike."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.data + self.infrastructure + self.suspect + self.halt


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLeader:
    """The driver that last held the lead."""

    host: str
    pid: int
    since: datetime
    heartbeat_at: datetime
    heartbeat_age_s: float
    """Seconds since the heartbeat, by the database's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOrder:
    """An order that no leader has answered yet."""

    order_id: int
    kind: OrderKind
    txids: tuple[int, ...]
    """What it is about; none where it speaks of the whole topology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyStatus:
    """One topology as the database knows it."""

    topology: str
    state: TopologyState
    epoch: int
    incarnation: str
    application: str | None
    """`file.py:topology` of the last run; None where no leader ever said it."""
    last_txid: int
    """Highest committed txid; 0 before the first batch."""
    last_committed_at: datetime | None
    planned_txid: int
    """Highest txid planned."""
    problem: str | None
    """What a running leader waits for."""
    waiting: Mapping[str, Any] = field(default_factory=dict)
    """The batch whose turn it is: `txid`, `attempt`, `phase`, `for_s` seconds since the last commit; empty where none
    waits or nobody leads.
    """
    reason: str | None
    """Why it ended."""
    halted_txid: int | None
    advice: str | None = None
    """What the halt said to do next."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the last driver was given by flags or its environment, of the settings that say how batches run."""
    failed_attempts: int
    failures: FailureCounts
    """The failed attempts by kind."""
    failed_txids: tuple[int, ...]
    """Uncommitted batches whose last attempt that was not cancelled failed, lowest first, at most `TXIDS_NAMED_MAX`."""
    failed_inputs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Of each of these what it reads, the first inputs in words; those of which it is not known are missing."""
    quarantined: int
    """Batches in the ledger without effect."""
    holes: int
    """Of these: neither redone nor themselves the redo of another batch."""
    hole_txids: tuple[int, ...]
    """The lowest of the holes, at most `TXIDS_NAMED_MAX`."""
    rejected: int
    """Source records in the ledger that were not parsable under the declared schema."""
    dead_lettered: int
    """Source records in the ledger that were left out because a bolt fails on them."""
    open_order_count: int
    open_orders: tuple[OpenOrder, ...]
    """The oldest open orders, at most `ORDERS_NAMED_MAX`."""
    leader: LastLeader | None

    @property
    def planned_ahead(self) -> int:
        """Batches planned and not yet committed."""
        return max(0, self.planned_txid - self.last_txid)

    @property
    def is_led(self) -> bool:
        """True if a leader is alive. A stalled leader is alive, too, and carries out orders."""
        alive = self.leader is not None and self.leader.heartbeat_age_s <= limits.STALLED_AFTER_S
        return self.state == "RUNNING" or (self.state == "STALLED" and alive)

    @property
    def who_leads(self) -> str:
        """In words: who carries an order out, or will."""
        if self.is_led and self.leader is not None:
            return f"the leader on {self.leader.host}, pid {self.leader.pid}"
        return "the next leader"

    @property
    def is_bad(self) -> bool:
        """True if an operator must look."""
        return self.state in ("STALLED", "HALTED")

    @property
    def next_commands(self) -> tuple[str, ...]:
        """What to type where a person must look."""
        ordered = {txid for order in self.open_orders if order.kind == "redrive" for txid in order.txids}
        holes = [txid for txid in self.hole_txids if txid not in ordered]
        redrive = (f"txtopo redrive {self.topology} {holes[0]}",) if holes else ()
        return (*self._going_on, *redrive)

    @property
    def _going_on(self) -> tuple[str, ...]:
        run = how_to_run(self.application)
        txid = self.halted_txid
        if any(order.kind != "stop" for order in self.open_orders) and not self.is_led:
            return (run,)  # carries out what was ordered, before anything is processed
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
    """A row of `committer_count`: four numbers of one committer from four places."""

    committer: str
    arrived: int
    counted: int
    results: int
    written: int
    ignored: int
    reversed: int
    digest: str
    """Decimal digits: too large for JSON's numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One line of `batches`."""

    txid: int
    state: BatchState
    attempts: int
    """Attempts begun; the first has the id 0."""
    failed_attempts: int
    files: int
    """Inputs that it consumes; before its plan is mirrored those that its last attempt was to read, 0 where it has had
    none.
    """
    read: int | None
    """Source records; None until committed."""
    rejected: int | None
    redo_of: int | None
    """The batch that this one redoes; known once it is in the ledger."""
    committers: tuple[CommitterNumbers, ...]
    committed_at: datetime | None
    duration_s: float | None
    """From the start of the attempt that was applied to its commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """An input of a batch."""

    spout: str
    path: str
    size: int | None
    """Bytes; None where the plan's file list lies elsewhere."""
    fingerprint: str
    """sha-256 or the like, in hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One try at a batch."""

    attempt: int
    epoch: int
    state: AttemptState
    alone: bool
    kind: FailureKind | None
    """Of a failure."""
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
    """What it was to read, by spout and in short; empty where an earlier release began it."""
    cause: str | None = None
    """Of a failure, without values: failures of the same cause are counted in a row (W7). None where an earlier release
    ended it.
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
    """A row of `rejected_row`: a source record that came with its batch without being counted by any committer."""

    spout: str
    path: str
    line: int
    """Where it starts in its file; the header is line 1."""
    reason: str
    raw: str
    """The first `RAW_SHOWN_BYTES_MAX` of it as text; what is no UTF-8 as escapes."""
    raw_bytes: int
    """Bytes of the whole record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    """A row of `dead_letter`: a source record that was taken out of its batch because a bolt failed on it."""

    spout: str
    position: str
    """`file:line`, or partition and number."""
    component: str
    """The bolt that failed."""
    reason: str
    raw: str
    """The first `RAW_SHOWN_BYTES_MAX` of it as text; what is no UTF-8 as escapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoLink:
    """A batch that redoes another one."""

    txid: int
    state: BatchState
    """Planned or failed while its own turn has not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRow:
    """A row of `txtopo.request` whole: who wanted what, and what became of it."""

    order_id: int
    kind: OrderKind
    txids: tuple[int, ...]
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
    """The order behind it; None: the leader acted by its own rules."""
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
    """What the halt over this batch said to do next; None where the topology has not halted over it, or where that only
    names `txtopo show`.
    """
    digest: str | None
    """Identity of the batch, hex; None until its plan is mirrored."""
    planned_at: datetime | None
    plan_problem: str | None
    """Why the stored plan cannot be read."""
    metadata: Mapping[str, Any]
    """By spout, as planned; before the plan is mirrored in short, as its last attempt had it; empty where nothing
    tells.
    """
    ledger: LedgerSummary | None
    files: tuple[SourceFile, ...]
    attempts: tuple[AttemptRow, ...]
    committers: tuple[CommitterNumbers, ...]
    edges: tuple[EdgeNumbers, ...]
    targets: Mapping[str, str]
    """Committer -> target table."""
    redo_of: int | None
    """The batch that this one redoes, from its ledger row or its plan."""
    redone_as: tuple[RedoLink, ...]
    """Batches that redo this one, in txid order."""
    rejected_rows: tuple[RejectedRecord, ...]
    """As many as were asked for; the ledger row counts all."""
    dead_letters: tuple[DeadLetterRow, ...] = ()
    """Likewise."""
    orders: tuple[OrderRow, ...]
    """Orders that name this batch, oldest first."""
    actions: tuple[ActionRow, ...]
    """Rows of the action log about this batch, oldest first."""

    @property
    def failures(self) -> FailureCounts:
        """Its failed attempts by kind."""
        kinds = [attempt.kind for attempt in self.attempts if attempt.state == "failed"]
        return FailureCounts(
            data=kinds.count("data"),
            infrastructure=kinds.count("infrastructure"),
            suspect=kinds.count("suspect"),
            halt=kinds.count("halt"),
        )

    @property
    def _may_be_at_fault(self) -> bool:
        """True if its last failure was caused by the batch or the code. A failure of a store, or one that any batch
        would have, is no reason to skip it.
        """
        kinds = [attempt.kind for attempt in self.attempts if attempt.state == "failed"]
        return kinds[-1:] not in (["infrastructure"], ["halt"])

    @property
    def is_redone(self) -> bool:
        """True if a batch that is in the ledger, or will be, redoes this one."""
        return any(link.state != "quarantined" for link in self.redone_as)

    @property
    def next_commands(self) -> tuple[str, ...]:
        """What to type next."""
        status = f"txtopo status {self.topology}"
        if any(order.state == "open" for order in self.orders):
            return (status, how_to_run(self.application))  # a leader carries it out, the next one at its start
        if self.state == "failed":
            if self.advice:
                return (self.advice, status)
            again, without = after_failure(self.topology, self.txid)
            return (again, without, status) if self._may_be_at_fault else (again, status)
        if (
            self.state == "quarantined" and self.redo_of
        ):  # its place is free again: what to do depends on the batch itself
            return (f"txtopo show {self.topology} {self.redo_of}", status)
        if self.state == "quarantined" and not self.is_redone:
            return (f"txtopo redrive {self.topology} {self.txid}", status)
        return (status, f"txtopo batches {self.topology}")
