"""Every error of txtopo in one tree. The message is what an operator reads: what failed, why, what to do next.

An error whose name ends in Error means that an input is wrong: a setting, a topology, data. The others name the state
in which a run ended (Halted, Fenced) or what was unavailable (PostgresUnavailable, ExecutorLost); the input may be
correct. They keep the names of release 0.1.0, which programs catch.
"""

from __future__ import annotations

import errno
import traceback
from typing import Literal, NoReturn

Patience = Literal["store", "lock", "time", "once"]
"""How long a commit that was aborted because of the store is retried (W5). store: up to a limit, while Postgres answers
heartbeats. lock: without a limit, since another session holds the lock. time: a few times after a statement timeout,
then the batch is at fault. once: on a fresh connection, then never.
"""


class Stopped(SystemExit):
    """Ends the process on a signal, before anything runs that needs an orderly stop."""


class TxtopoError(Exception):
    """Base of all errors that txtopo raises on purpose. `exit_code` is the exit code of the command line."""

    exit_code = 5


class ConfigurationError(TxtopoError):
    """A setting, a flag or an application is invalid; nothing was started."""

    exit_code = 2


class NotFoundError(TxtopoError):
    """The topology or batch named does not exist."""

    exit_code = 1


class TopologyError(ConfigurationError, ValueError):
    """The topology is invalid. Raised before Spark starts."""


class TopologyTypeError(TopologyError, TypeError):
    """A topology argument has the wrong type: a class instead of an instance, text instead of a list, 5.4 as a number
    of tasks.
    """


class UnknownStreamError(TopologyError, KeyError):
    """A component reads a stream that the source component does not declare."""

    def __str__(self) -> str:
        # KeyError would show the repr of its message.
        return Exception.__str__(self)


class StoreUnavailable(TxtopoError):
    """Postgres or ZooKeeper did not answer, so the outcome is unknown; a retry may help."""

    exit_code = 3

    def __init__(self, store: str, message: str) -> None:
        super().__init__(f"{store}: {message}")
        self.store = store
        """`postgres` or `zookeeper`."""


class PostgresUnavailable(StoreUnavailable):
    """Postgres is unreachable, or refused for a transient reason (deadlock, serialization failure, lock timeout)."""

    def __init__(self, message: str, *, definite: bool = True, patience: Patience = "store") -> None:
        super().__init__("postgres", message)
        self.definite = definite
        """True: the database transaction certainly did not commit. False: its outcome is unknown (R7)."""
        self.patience: Patience = patience
        """How long the commit is retried (W5)."""


class ZooKeeperUnavailable(StoreUnavailable):
    """ZooKeeper is unreachable or the session is suspended; the last write may or may not have happened."""

    def __init__(self, message: str) -> None:
        super().__init__("zookeeper", message)


class ExecutorLost(TxtopoError):
    """Spark has stopped in this process and cannot be restarted here (K11); a new process may take over."""

    exit_code = 3


class DriverFull(ExecutorLost):
    """This process is out of memory. No batch is blamed for it: a new process takes over, and the batches that were
    running become suspects.
    """

    def __init__(self, what: BaseException | str) -> None:
        """`what` is the error that says so, or a text that names the place."""
        if isinstance(what, BaseException):
            frames = traceback.extract_tb(what.__traceback__)
            said = ": ".join(filter(None, [type(what).__name__, *str(what).splitlines()[:1]]))
            what = f"{frames[-1].filename}:{frames[-1].lineno}: {said}" if frames else said
        super().__init__(
            f"this driver is out of memory ({what}); give it more memory, or lower spout_pending_max or workers, and "
            f"start `txtopo run` again"
        )


class Fenced(TxtopoError):
    """Another driver leads: the fence (R4) or ZooKeeper (R2) has a newer epoch. This driver must stop writing."""

    exit_code = 4


class LeadLost(TxtopoError):
    """This driver has lost the lead (session lost, Postgres unreachable for too long, an unexpected plan); it may try
    to lead again.
    """

    exit_code = 3


class Halted(TxtopoError):
    """The topology stops until an operator decides (R17). Has the evidence (`reason`) and the next command."""

    exit_code = 1

    def __init__(self, reason: str, *, txid: int | None = None, next_command: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.txid = txid
        self.next_command = next_command


class NoBatchAtFault(Halted):
    """A step of a batch failed for a reason that would fail every batch (W2), such as a dropped table or a revoked
    permission.
    """

    def __init__(self, reason: str, *, txid: int, component: str, next_command: str | None = None) -> None:
        super().__init__(reason, txid=txid, next_command=next_command)
        self.component = component
        """Name of the spout, bolt or committer."""


class StagedRowsLost(TxtopoError):
    """Rows that tasks stored for a batch are not there when it is committed (P5: unlogged tables are empty after a
    crash of the server). No data is at fault: the batch is processed again.
    """


class StagingFailed(TxtopoError):
    """A task could not store result rows in Postgres. `kind` says who is at fault: infrastructure, data or halt."""

    def __init__(self, kind: Literal["infrastructure", "data", "halt"], message: str) -> None:
        super().__init__(kind, message)
        self.kind: Literal["infrastructure", "data", "halt"] = kind
        self.message = message

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class RunRefused(TxtopoError):
    """The tables of this topology allow no commit of several batches in one database transaction (R20): its batches are
    committed one by one from now on. No batch is at fault.
    """


class BatchDataError(TxtopoError):
    """The data of one batch, or user code that processes it, is at fault. Names the component, the position and the
    cause.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        component: str,
        position: str | None = None,
        detail: str | None = None,
        cause: str | None = None,
        fault: str | None = None,
        halts: bool = False,
    ) -> None:
        super().__init__(message)
        self.halts = halts
        """True: no batch is at fault (W2), so the topology halts, whatever its policy for failed batches."""
        self.component = component
        """Name of the spout, bolt or committer."""
        self.position = position
        """Place in the source, as `file:line`; None if unknown."""
        self.detail = detail
        """Traceback or raw record, for the log and `show`."""
        self.fault = fault
        """What is wrong, in a few words without values, the same for every batch: `file changed`."""
        self.cause = cause if cause is not None or fault is None else cause_of_fault(component, fault)
        """A key that is equal for equal causes (W7), as `cause_of` makes it; None: component and kind."""


def cause_of_fault(component: str, fault: str) -> str:
    """Return the cause of a failure (W7) for a fault that txtopo itself finds in the data or in what user code returns.

    >>> cause_of_fault("files", "file changed")
    'data (file changed) in files'
    """
    return f"data ({fault}) in {component}"


class InvariantBroken(TxtopoError):
    """A bug in txtopo: the topology stops rather than continue with wrong data (R18)."""


def format_error(error: TxtopoError) -> str:
    """The error as text for an operator: what failed and why, then the next command."""
    following = getattr(error, "next_command", None)
    return f"txtopo: {error}" + (f"\n  next: {following}" if following else "")


def raise_if_full(error: BaseException) -> None:
    """Raise DriverFull if `error` says that this process gets no more memory, or was caused by an error that does."""
    cause: BaseException | None = error
    while cause is not None:
        if is_full(cause):
            raise DriverFull(cause) from error
        cause = cause.__cause__


def is_full(error: BaseException) -> bool:
    """Return True for a MemoryError, ENOMEM, and a thread whose stack found no room: Python has no class for that."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (type(error) is RuntimeError and str(error) == "can't start new thread")


def invariant(condition: object, message: str) -> None:
    """Raise InvariantBroken unless `condition` holds. Unlike `assert`, it stays on under `-O` (R18)."""
    if not condition:
        unreachable(message)


def unreachable(message: str) -> NoReturn:
    """Raise InvariantBroken, for branches that cannot be reached."""
    raise InvariantBroken(message)


__all__ = [
    "BatchDataError",
    "ConfigurationError",
    "DriverFull",
    "ExecutorLost",
    "Fenced",
    "Halted",
    "InvariantBroken",
    "LeadLost",
    "NoBatchAtFault",
    "NotFoundError",
    "PostgresUnavailable",
    "StoreUnavailable",
    "TopologyError",
    "TopologyTypeError",
    "TxtopoError",
    "UnknownStreamError",
    "ZooKeeperUnavailable",
]
