"""What `MemoryLedger` keeps in place of Postgres: rows as plain values, one mutex, locks of fence rows that outlive no session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from txtopo.committers.applying import Column
from txtopo.core.values import CommitterCount, EdgeCount, Failure, Fence
from txtopo.errors import PostgresUnavailable

Key = tuple[Any, ...]
Numbers = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A final ledger row with its counts."""

    digest: bytes
    epoch: int
    attempt: int = 0
    redo_of: int | None = None
    read: int = 0
    rejected: int = 0
    dead_lettered: int = 0
    counts: tuple[CommitterCount, ...] = ()
    edges: tuple[EdgeCount, ...] = ()


@dataclass(slots=True)
class AttemptRow:
    """A try at a batch."""

    epoch: int
    alone: bool
    state: str = "begun"
    failure: Failure | None = None
    spans: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class RequestRow:
    """An operator's order."""

    kind: str
    arguments: Mapping[str, Any]
    state: str = "open"
    answer: str | None = None


@dataclass(slots=True)
class TopologyRows:
    """Everything of one topology. Transactions replace what they change, as a whole, at their end."""

    fence: Fence
    ledger: dict[int, LedgerRow]
    plans: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Digest and bytes by txid."""
    sources: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    """Fingerprint and txid by (spout, path)."""
    attempts: dict[tuple[int, int], AttemptRow] = field(default_factory=dict)
    life: dict[str, Any] = field(default_factory=dict)
    """The row of table `topology`."""
    holder: object | None = None
    """The session that holds the lock of the fence row."""


class MemoryPostgres:
    """A store that several `MemoryLedger`s share, as drivers share a database. For tests and simulation; may be used from several threads."""

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
        self.requests: dict[int, tuple[str, RequestRow]] = {}
        """(topology, order) by id."""
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

    def ask(self, topology: str, kind: str, arguments: Mapping[str, Any] | None = None) -> int:
        """Leave an order for the leader, as the command line does; returns its id."""
        with self.transaction():
            request_id = len(self.requests) + 1
            self.requests[request_id] = (topology, RequestRow(kind, dict(arguments or {})))
            return request_id

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
