"""The data of `MemoryLedger`: rows as plain values, one mutex, and locks of fence rows that end with their session."""

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
    Order,
    OrderKind,
    RejectedRow,
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
    backfills: int | None = None
    committer: str | None = None
    read: int | None = None
    rejected: int | None = None
    dead_lettered: int | None = None
    counts: tuple[CommitterCount, ...] = ()
    edges: tuple[EdgeCount, ...] = ()


@dataclass(slots=True)
class StoredAttempt:
    """An attempt of a batch."""

    epoch: int
    alone: bool
    code_hash: bytes
    state: str = "begun"
    failure: Failure | None = None
    spans: Mapping[str, float] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StoredOrder:
    """An operator's order."""

    kind: OrderKind
    txids: tuple[int, ...] = ()
    reason: str | None = None
    committer: str | None = None
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
"""Receives a statement and its parameters and returns its rows; it may raise what the database would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAction:
    """A row of the action log."""

    topology: str
    actor: str
    reason: str | None
    action: ActionRecord


@dataclass(slots=True)
class TopologyRows:
    """All rows of one topology. Database transactions replace whole values when they commit."""

    fence: Fence
    ledger: dict[int, StoredBatch]
    plans: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """txid -> digest and bytes."""
    sources: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    """(spout, path) -> fingerprint and txid."""
    attempts: dict[tuple[int, int], StoredAttempt] = field(default_factory=dict)
    life: dict[str, Any] = field(default_factory=dict)
    """The row of table `topology`."""
    spoke_at: float = 0.0
    """Time of the last report of its leader, by the monotonic clock of this process."""
    opaque: bool = False
    """True if the topology of the leader is opaque, as in the fence row."""
    holder: object | None = None
    """The session that holds the lock of the fence row."""


class MemoryPostgres:
    """A store that several `MemoryLedger`s share, as drivers share a database. For tests and simulation.
    Thread-safe.
    """

    def __init__(self, lock_timeout_s: float = 2.0) -> None:
        self.tables: dict[str, dict[Key, Numbers]] = {}
        """`schema.table` -> key -> count and sums."""
        self.contributions: dict[str, list[tuple[Any, ...]]] = {}
        """`schema.table` of the target -> rows (txid, reverses, key…, count, sum…)."""
        self.columns: dict[str, tuple[Column, ...]] = {}
        self.targets: dict[str, tuple[str, str]] = {}
        """`schema.table` -> (topology, committer)."""
        self.staging: dict[str, list[tuple[int, int, tuple[Any, ...]]]] = {}
        """Staging table -> rows with their part and task attempt in front."""
        self.not_plain: dict[str, str] = {}
        """`schema.table` -> what it has, such as a CHECK, that allows no commit runs (R20)."""
        self.topologies: dict[str, TopologyRows] = {}
        self.parts: dict[str, bytes] = {}
        self.orders: dict[int, tuple[str, StoredOrder]] = {}
        """id -> (topology, order)."""
        self.rejected: list[StoredReject] = []
        self.dead_letters: list[StoredDeadLetter] = []
        self.executed: list[Executed] = []
        """Statements that custom committers executed in committed batches, in the order of the commits."""
        self.answers: Answers | None = None
        """Returns the rows of their statements; None: no statement returns a row."""
        self.actions: list[StoredAction] = []
        self.unavailable = False
        """True: every call fails and every open session ends, as if the server were down."""
        self._next_commit: Literal["lost", "aborted"] | None = None
        self._lock_timeout_s = lock_timeout_s
        self._changed = threading.Condition(threading.RLock())

    def fail_next_commit(self, how: Literal["lost", "aborted"]) -> None:
        """Leave the next COMMIT without an answer: it happened (`lost`) or did not (`aborted`)."""
        self._next_commit = how

    def take_failure(self) -> Literal["lost", "aborted"] | None:
        """Return how this COMMIT fails, None if it does not, and clear it."""
        how, self._next_commit = self._next_commit, None
        return how

    def ask(
        self,
        topology: str,
        kind: OrderKind,
        txids: Sequence[int] = (),
        reason: str | None = None,
        committer: str | None = None,
    ) -> int:
        """Record an order for the leader, as the command line does; returns its id."""
        with self.transaction():
            order_id = len(self.orders) + 1
            self.orders[order_id] = (topology, StoredOrder(kind, tuple(txids), reason, committer))
            return order_id

    def open_orders(self, topology: str) -> list[Order]:
        """Return the open orders, oldest first."""
        return [
            Order(
                order_id=order_id,
                kind=row.kind,
                txids=row.txids,
                reason=row.reason,
                committer=row.committer,
                progress=row.progress,
                acted=any(one.topology == topology and one.action.order_id == order_id for one in self.actions),
            )
            for order_id, (asked, row) in self.orders.items()
            if asked == topology and row.state == "open"
        ]

    def action_row(self, topology: str, action: ActionRecord) -> StoredAction:
        """Return the row of the action log. Actor and reason are those of the order, if the action belongs to one."""
        if action.order_id is None:
            return StoredAction(topology=topology, actor="leader", reason=action.reason, action=action)
        asked, order = self.orders.get(action.order_id, (None, None))
        if order is None or asked != topology:
            unreachable(f"{action.command} names order {action.order_id}, which topology {topology} never received")
        return StoredAction(topology=topology, actor="operator", reason=order.reason or action.reason, action=action)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One database transaction that does not need the lock of a fence row."""
        with self._changed:
            if self.unavailable:
                raise PostgresUnavailable("connection refused")
            yield

    def hold(self, rows: TopologyRows, session: object) -> None:
        """Lock a fence row for a session. Waits for the session that holds it, at most the lock timeout; then raises
        PostgresUnavailable.
        """
        deadline = time.monotonic() + self._lock_timeout_s
        with self._changed:
            while rows.holder is not None and rows.holder is not session:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PostgresUnavailable("canceling statement due to lock timeout (SQLSTATE 55P03)")
                self._changed.wait(left)
            rows.holder = session

    def release(self, rows: TopologyRows, session: object) -> None:
        """Unlock a fence row if this session holds it."""
        with self._changed:
            if rows.holder is session:
                rows.holder = None
                self._changed.notify_all()
