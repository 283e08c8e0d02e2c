"""What a leader needs from its environment, as Protocols whose docstrings are the contracts. `tests/contracts` checks
every implementation, the memory stores included.

Every method may be called from several threads, unless its docstring says otherwise.

"Fenced" in a docstring means: the method checks the lead, and raises `Fenced` without changing anything if another
driver has taken it. A store in Postgres compares epoch, nonce, incarnation and code hash with the fence row in the same
database transaction. A store in ZooKeeper checks the version of the epoch znode in the same multi.
"""

from txtopo.core.values import Order, Processed
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
    LedgerRunSession,
    LedgerSession,
    LedgerTotals,
    MirrorEntry,
)
from txtopo.ports.staging import Staging, StagingPlace, StagingTable, StagingWriter

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
    "LedgerRunSession",
    "LedgerSession",
    "LedgerTotals",
    "MirrorEntry",
    "NodeExists",
    "NodeMissing",
    "Operation",
    "Order",
    "Processed",
    "SessionState",
    "SetNode",
    "Staging",
    "StagingPlace",
    "StagingTable",
    "StagingWriter",
    "Tell",
    "VersionDiffers",
    "tell_nobody",
]
