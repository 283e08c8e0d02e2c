"""What the reading commands know: frozen values made from the rows of schema `txtopo`, before any formatting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

TopologyState = Literal["RUNNING", "STALLED", "STOPPED", "FINISHED", "HALTED"]
"""RUNNING: its leader's heartbeat is fresh. STALLED: it says running, and its heartbeat is old."""

BatchState = Literal["committed", "quarantined", "planned", "failed"]
"""planned: cut and not yet in the ledger. failed: the same, and its last attempt failed."""

BATCH_STATES: tuple[BatchState, ...] = ("committed", "quarantined", "planned", "failed")


def how_to_run(application: str | None) -> str:
    """The command that runs an application again: `txtopo run APP`, or its own script."""
    name = application or "APP"
    return name if name.startswith("python ") else f"txtopo run {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The driver that last held the lead."""

    host: str
    pid: int
    since: datetime
    heartbeat_at: datetime
    heartbeat_age_s: float
    """Seconds since the heartbeat, by the database's clock."""


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
    reason: str | None
    """Why it ended."""
    halted_txid: int | None
    failed_attempts: int
    quarantined: int
    """Batches in the ledger without effect."""
    open_requests: int
    leader: Leader | None

    @property
    def planned_ahead(self) -> int:
        """Batches planned and not yet committed."""
        return max(0, self.planned_txid - self.last_txid)

    @property
    def is_led(self) -> bool:
        """Is a leader alive?"""
        return self.state == "RUNNING"

    @property
    def is_bad(self) -> bool:
        """Must a person look?"""
        return self.state in ("STALLED", "HALTED")

    @property
    def next_commands(self) -> tuple[str, ...]:
        """What to type where a person must look."""
        run = how_to_run(self.application)
        if self.state == "HALTED" and self.halted_txid and self.halted_txid <= self.planned_txid:
            return (f"txtopo show {self.topology} {self.halted_txid}", run)
        return (run,) if self.is_bad else ()


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
    """Inputs that it consumes; 0 until its plan is mirrored."""
    read: int | None
    """Source records; None until committed."""
    rejected: int | None
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
    state: str
    """begun, applied, failed or cancelled."""
    alone: bool
    kind: str | None
    """Of a failure: data, infrastructure or suspect."""
    component: str | None
    position: str | None
    message: str | None
    detail: str | None
    host: str | None
    started_at: datetime
    ended_at: datetime | None
    spans: Mapping[str, float]
    """Seconds by phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeNumbers:
    """A row of `edge_count`."""

    edge: str
    sent: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
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
class BatchDetail:
    """Everything about one batch."""

    topology: str
    txid: int
    state: BatchState
    application: str | None
    digest: str | None
    """Identity of the batch, hex; None until its plan is mirrored."""
    planned_at: datetime | None
    plan_problem: str | None
    """Why the stored plan cannot be read."""
    metadata: Mapping[str, Any]
    """By spout, as planned; empty where the plan is unknown or expired."""
    ledger: Committed | None
    files: tuple[SourceFile, ...]
    attempts: tuple[AttemptRow, ...]
    committers: tuple[CommitterNumbers, ...]
    edges: tuple[EdgeNumbers, ...]
    targets: Mapping[str, str]
    """Committer -> target table."""

    @property
    def next_commands(self) -> tuple[str, ...]:
        """What to type next."""
        listing = f"txtopo batches {self.topology}"
        if self.state == "failed":
            return (how_to_run(self.application), f"txtopo status {self.topology}")
        return (f"txtopo status {self.topology}", listing)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """An operator's order and what became of it."""

    request_id: int
    state: str
    """open, done or refused."""
    answer: str | None
