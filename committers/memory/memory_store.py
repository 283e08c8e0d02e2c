"""What `MemoryLedger` keeps in place of Postgres: rows as plain values, one mutex, locks of fence rows that outlive no
session.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from txtopo.committers.protocol.count_tables import Column
from txtopo.core.values import (
    ActionRecord,
    CommitterCount,
    DeadLetter,
    EdgeCount,
    Failure,
    Fence,
    RejectedRow,
    Request,
    RequestKind,
)
from txtopo.errors import PostgresUnavailable, unreachable

Key = tuple[Any, ...]
Numbers = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A final ledger row with its counts."""

    digest: bytes
    epoch: int
    attempt: int = 0
    state: Literal["genesis", "applied", "quarantined"] = "genesis"
    reason: str | None = None
    redo_of: int | None = None
    read: int | None = None
    rejected: int | None = None
    dead_lettered: int | None = None
    counts: tuple[CommitterCount, ...] = ()
    edges: tuple[EdgeCount, ...] = ()


@dataclass(slots=True)
class StoredAttempt:
    """A try at a batch."""

    epoch: int
    alone: bool
    code_hash: bytes
    state: str = "begun"
    failure: Failure | None = None
    spans: Mapping[str, float] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StoredRequest:
    """An operator's order."""

    kind: RequestKind
    txids: tuple[int, ...] = ()
    reason: str | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    state: str = "open"
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReject:
    """A rejected record of a committed batch."""

    topology: str
    txid: int
    row: RejectedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter:
    """A dead letter of a committed batch."""

    topology: str
    txid: int
    row: DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A statement that a custom committer executed in a committed batch."""

    topology: str
    txid: int
    committer: str
    statement: str
    parameters: Sequence[Any] | Mapping[str, Any]


Answers = Callable[[str, Sequence[Any] | Mapping[str, Any]], Sequence[Sequence[Any]]]
"""Statement and parameters -> the rows that it returns; may raise what the database would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAction:
    """A row of the action log."""

    topology: str
    actor: str
    reason: str | None
    action: ActionRecord


@dataclass(slots=True)
class TopologyRows:
    """Everything of one topology. Transactions replace what they change, as a whole, at their end."""

    fence: Fence
    ledger: dict[int, StoredBatch]
    plans: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Digest and bytes by txid."""
    sources: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    """Fingerprint and txid by (spout, path)."""
    attempts: dict[tuple[int, int], StoredAttempt] = field(default_factory=dict)
    life: dict[str, Any] = field(default_factory=dict)
    """The row of table `topology`."""
    spoke_at: float = 0.0
    """When its leader last spoke, by this process' monotonic clock."""
    opaque: bool = False
    """Of the leader's topology, as the fence row says it."""
    holder: object | None = None
    """The session that holds the lock of the fence row."""


class MemoryPostgres:
    """A store that several `MemoryLedger`s share, as drivers share a database. For tests and simulation; may be used
    from several threads.
    """

    def __init__(self, lock_timeout_s: float = 2.0) -> None:
        self.tables: dict[str, dict[Key, Numbers]] = {}
        """Count and sums by key, by `schema.table`."""
        self.contributions: dict[str, list[tuple[Any, ...]]] = {}
        """Rows (txid, reverses, key…, count, sum…) by `schema.table` of the target."""
        self.columns: dict[str, tuple[Column, ...]] = {}
        self.targets: dict[str, tuple[str, str]] = {}
        """(topology, committer) by `schema.table`."""
        self.topologies: dict[str, TopologyRows] = {}
        self.parts: dict[str, bytes] = {}
        self.requests: dict[int, tuple[str, StoredRequest]] = {}
        """(topology, order) by id."""
        self.rejected: list[StoredReject] = []
        self.dead_letters: list[StoredDeadLetter] = []
        self.executed: list[Executed] = []
        """What custom committers executed, in the order of their turns; a batch that was not committed left nothing."""
        self.answers: Answers | None = None
        """Answers their statements; None: no statement returns a row."""
        self.actions: list[StoredAction] = []
        self.unavailable = False
        """True: every call fails and every open session dies, as when the server is down."""
        self._next_commit: Literal["lost", "aborted"] | None = None
        self._lock_timeout_s = lock_timeout_s
        self._changed = threading.Condition(threading.RLock())

    def fail_next_commit(self, how: Literal["lost", "aborted"]) -> None:
        """The next COMMIT is not answered: it happened (`lost`) or did not (`aborted`)."""
        self._next_commit = how

    def take_failure(self) -> Literal["lost", "aborted"] | None:
        """How the COMMIT in hand fails; asked once."""
        how, self._next_commit = self._next_commit, None
        return how

    def ask(self, topology: str, kind: RequestKind, txids: Sequence[int] = (), reason: str | None = None) -> int:
        """Leave an order for the leader, as the command line does; returns its id."""
        with self.transaction():
            request_id = len(self.requests) + 1
            self.requests[request_id] = (topology, StoredRequest(kind, tuple(txids), reason))
            return request_id

    def open_requests(self, topology: str) -> list[Request]:
        """Orders that nobody has answered, oldest first."""
        return [
            Request(
                request_id=request_id,
                kind=row.kind,
                txids=row.txids,
                reason=row.reason,
                progress=row.progress,
                acted=any(one.topology == topology and one.action.request_id == request_id for one in self.actions),
            )
            for request_id, (asked, row) in self.requests.items()
            if asked == topology and row.state == "open"
        ]

    def action_row(self, topology: str, action: ActionRecord) -> StoredAction:
        """The row of the log: actor and reason are those of the order where the action names one."""
        if action.request_id is None:
            return StoredAction(topology=topology, actor="leader", reason=action.reason, action=action)
        asked, order = self.requests.get(action.request_id, (None, None))
        if order is None or asked != topology:
            unreachable(f"{action.command} names order {action.request_id}, which topology {topology} never got")
        return StoredAction(topology=topology, actor="operator", reason=order.reason or action.reason, action=action)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One database transaction that waits for nobody's fence lock."""
        with self._changed:
            if self.unavailable:
                raise PostgresUnavailable("connection refused")
            yield

    def hold(self, rows: TopologyRows, session: object) -> None:
        """Lock a fence row for a session; waits for the one that holds it, at most the lock timeout."""
        deadline = time.monotonic() + self._lock_timeout_s
        with self._changed:
            while rows.holder is not None and rows.holder is not session:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PostgresUnavailable("canceling statement due to lock timeout (SQLSTATE 55P03)")
                self._changed.wait(left)
            rows.holder = session

    def release(self, rows: TopologyRows, session: object) -> None:
        """Give a fence row back if this session holds it."""
        with self._changed:
            if rows.holder is session:
                rows.holder = None
                self._changed.notify_all()
