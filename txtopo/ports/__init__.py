"""What a leader needs of the world: Protocols whose docstrings are contracts. Every implementation, memory included,
passes `tests/contracts`.

All methods may be called from several threads unless they say otherwise. "Fenced" means that the method compares the
lead (epoch, nonce, incarnation,
code) with the fence row inside its own database transaction, or checks the epoch znode's version in the same multi, and
raises `Fenced` when they differ,
having changed nothing.
"""

from txtopo.core.values import Processed, Request
from txtopo.ports.clock import Clock
from txtopo.ports.coordinator import Candidacy, Coordinator, CoordinatorView
from txtopo.ports.coordinator_session import (
    CheckNode,
    CoordinatorSession,
    CreateNode,
    DeleteNode,
    NodeExists,
    NodeMissing,
    Operation,
    SessionState,
    SetNode,
    VersionDiffers,
)
from txtopo.ports.executor import Assignment, Executor, Tell, tell_nobody
from txtopo.ports.ledger import (
    AttemptStart,
    Claim,
    Claimed,
    Ledger,
    LedgerEntry,
    LedgerSession,
    LedgerTotals,
    MirrorEntry,
)

__all__ = [
    "Assignment",
    "AttemptStart",
    "Candidacy",
    "CheckNode",
    "Claim",
    "Claimed",
    "Clock",
    "Coordinator",
    "CoordinatorSession",
    "CoordinatorView",
    "CreateNode",
    "DeleteNode",
    "Executor",
    "Ledger",
    "LedgerEntry",
    "LedgerSession",
    "LedgerTotals",
    "MirrorEntry",
    "NodeExists",
    "NodeMissing",
    "Operation",
    "Processed",
    "Request",
    "SessionState",
    "SetNode",
    "Tell",
    "VersionDiffers",
    "tell_nobody",
]
