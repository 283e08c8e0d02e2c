"""The values that travel between machine, runner and ports: small, frozen, complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, order=True)
class TransactionAttempt:
    """One try at one batch: Storm's TransactionAttempt. Txids count from 1, attempts of a txid from 0 and never go back."""

    txid: int
    """The batch's place in the commit order; the same for every attempt."""
    attempt: int
    """Which try this is."""

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Proof that this driver may write: compared with the fence row in every database transaction (R4)."""

    topology: str
    incarnation: str
    """UUID of this life of the topology, the same in both stores (R11)."""
    epoch: int
    """Fencing token, from Postgres (R1)."""
    owner_nonce: str
    """UUID of this candidacy."""
    code_hash: bytes
    """sha-256 of the code that this driver runs (R12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The fence row as read: who may write and how far the topology got."""

    incarnation: str
    owner_nonce: str
    epoch: int
    code_hash: bytes
    last_txid: int


FailureKind = Literal["data", "infrastructure", "suspect"]
"""data: the batch or the user's code is at fault. infrastructure: a store or an executor. suspect: ended without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt failed, in words for the operator."""

    kind: FailureKind
    message: str
    """One line: the cause, the user's own file and line first where there is one."""
    component: str | None = None
    position: str | None = None
    """`file:line` in the source."""
    detail: str | None = None
    """Traceback or raw record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCount:
    """What one side of an edge sent and the other received (CoordinatedBolt)."""

    edge: str
    sent: int
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterResult:
    """What the executor half of one committer hands to its driver half, for one attempt."""

    committer: str
    arrived: int
    """Tuples that reached the committer, counted by the tasks and not from `rows`."""
    rows: Any
    """A `pyarrow.Table` of result rows, columns as the committer's result fields; opaque to the core."""
    row_count: int
    bytes: int
    """Size in the driver's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """An attempt whose processing phase succeeded: ready to commit in its turn."""

    attempt: TransactionAttempt
    code_hash: bytes
    """Of the code that the tasks ran, as they reported it (R12)."""
    read: int
    """Source records of the plan."""
    rejected: int = 0
    dead_lettered: int = 0
    results: tuple[CommitterResult, ...]
    """One of each committer of the topology, also where nothing arrived."""
    edges: tuple[EdgeCount, ...] = ()
    spans: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, e.g. `processing`."""

    @property
    def bytes(self) -> int:
        """Memory that the results hold in the driver."""
        return sum(result.bytes for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An attempt that did not get through its processing phase."""

    attempt: TransactionAttempt
    failure: Failure


Outcome = Processed | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterCount:
    """The numbers of one committer in one batch (docs/protocol.md): each from its own source."""

    committer: str
    arrived: int
    counted: int
    results: int
    written: int
    ignored: int = 0
    reversed: int = 0
    digest: int
    """Order-free sum of 64-bit hashes of the rows applied, returned by the apply statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """COMMIT was seen, or the ledger says that it happened (R7)."""

    txid: int
    counts: tuple[CommitterCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """The ledger has this txid with this digest: nothing was applied now (R5)."""

    txid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The database transaction certainly did not commit (R7)."""

    txid: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """COMMIT was sent and its outcome is not known; to be resolved under the fence lock before anything else is committed (R7)."""

    txid: int
    message: str


CommitOutcome = Committed | AlreadyCommitted | Aborted | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """A row of table `attempt`: what is remembered of one try."""

    attempt: TransactionAttempt
    epoch: int
    state: str
    """`begun`, `applied`, `failed` or `cancelled`."""
    kind: FailureKind | None
    alone: bool
    """Ran with nothing beside it, because an earlier attempt was a suspect."""
