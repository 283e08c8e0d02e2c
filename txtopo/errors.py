"""Every error of txtopo in one tree. The message is what an operator reads: what failed, why, what to do next.

Names that end in Error say that what was given is wrong. The others say in which state a run has ended (Halted, Fenced)
or what was away (PostgresUnavailable, ExecutorLost): nothing that was given need be wrong. Programs catch them by these
names since release 0.1.0.
"""

from __future__ import annotations

import traceback
from typing import Literal, NoReturn

Patience = Literal["store", "lock", "time", "once"]
"""How long a commit that was aborted through trouble of the store is tried again (W5). store: up to a bound while
Postgres answers heartbeats. lock:
without a bound, somebody else holds it. time: a statement's time was up; a few times, then it is the batch's. once: on
a fresh connection, then never.
"""


class Stopped(SystemExit):
    """A signal ends the process where nothing runs yet that could be stopped in order."""


class TxtopoError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what the command line ends with."""

    exit_code = 5


class ConfigurationError(TxtopoError):
    """A setting, a flag or an application is wrong; nothing was started."""

    exit_code = 2


class NotFoundError(TxtopoError):
    """The topology or batch named does not exist."""

    exit_code = 1


class TopologyError(ConfigurationError, ValueError):
    """The topology cannot be built as written; found before Spark starts."""


class TopologyTypeError(TopologyError, TypeError):
    """Something of the wrong type stands in a topology: a class for an instance, text for a list, 5.4 for a number of
    tasks.
    """


class UnknownStreamError(TopologyError, KeyError):
    """A component is to be read on a stream that it does not declare."""

    def __str__(self) -> str:
        # KeyError would show the repr of its message.
        return Exception.__str__(self)


class StoreUnavailable(TxtopoError):
    """Postgres or ZooKeeper did not answer, so nothing is known; trying again may help."""

    exit_code = 3

    def __init__(self, store: str, message: str) -> None:
        super().__init__(f"{store}: {message}")
        self.store = store
        """`postgres` or `zookeeper`."""


class PostgresUnavailable(StoreUnavailable):
    """Postgres is away, or refused for a reason that passes (deadlock, serialization failure, lock timeout)."""

    def __init__(self, message: str, *, definite: bool = True, patience: Patience = "store") -> None:
        super().__init__("postgres", message)
        self.definite = definite
        """True: the database transaction certainly did not commit. False: its outcome is unknown (R7)."""
        self.patience: Patience = patience
        """How long it is tried again (W5)."""


class ZooKeeperUnavailable(StoreUnavailable):
    """ZooKeeper is away or the session is suspended; the last write may or may not have happened."""

    def __init__(self, message: str) -> None:
        super().__init__("zookeeper", message)


class ExecutorLost(TxtopoError):
    """Spark is gone for good in this process (K11); a new process may take over."""

    exit_code = 3


class DriverFull(ExecutorLost):
    """This process has no memory left. No batch is judged by it: a new process takes over, and what was running are
    suspects.
    """

    def __init__(self, what: BaseException | str) -> None:
        """`what` shows where: the error, or words that name the place."""
        if isinstance(what, BaseException):
            frames = traceback.extract_tb(what.__traceback__)
            said = ": ".join(filter(None, [type(what).__name__, *str(what).splitlines()[:1]]))
            what = f"{frames[-1].filename}:{frames[-1].lineno}: {said}" if frames else said
        super().__init__(
            f"this driver has no memory left ({what}); give it more, or hold less at once (spout_pending_max, "
            f"workers), "
            "and start `txtopo run` again"
        )


class Fenced(TxtopoError):
    """Another driver has the lead: a newer epoch stands in the fence (R4) or in ZooKeeper (R2). This driver must stop
    writing.
    """

    exit_code = 4


class LeadLost(TxtopoError):
    """This driver no longer may lead (session lost, Postgres away for too long, a plan it did not expect); it may
    campaign again.
    """

    exit_code = 3


class Halted(TxtopoError):
    """The topology must stop until a person has looked (R17). Names the evidence and the next command."""

    exit_code = 1

    def __init__(self, reason: str, *, txid: int | None = None, next_command: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.txid = txid
        self.next_command = next_command


class NoBatchAtFault(Halted):
    """A step of a batch failed for a reason that would be the same for every batch (W2): a table that is gone, a right
    that was taken away.
    """

    def __init__(self, reason: str, *, txid: int, component: str, next_command: str | None = None) -> None:
        super().__init__(reason, txid=txid, next_command=next_command)
        self.component = component
        """Name of the spout, bolt or committer."""


class BatchDataError(TxtopoError):
    """The data or the user's code of one batch is at fault: component, position and cause are named."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        component: str,
        position: str | None = None,
        detail: str | None = None,
        cause: str | None = None,
    ) -> None:
        super().__init__(message)
        self.component = component
        """Name of the spout, bolt or committer."""
        self.position = position
        """Where in the source: `file:line`; None where it is not known."""
        self.detail = detail
        """Traceback or raw record, for the log and `show`."""
        self.cause = cause
        """Equal where the cause is (W7), as `cause_of` makes it; None: to be read out of the message."""


class InvariantBroken(TxtopoError):
    """A programmer's mistake inside txtopo: the topology stops rather than go on with wrong data (R18)."""


def format_error(error: TxtopoError) -> str:
    """The error as an operator reads it: what failed and why, then what to type next."""
    following = getattr(error, "next_command", None)
    return f"txtopo: {error}" + (f"\n  next: {following}" if following else "")


def raise_if_full(error: BaseException) -> None:
    """Raise DriverFull where `error` is a MemoryError of this process, or came of one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            raise DriverFull(cause) from error
        cause = cause.__cause__


def invariant(condition: object, message: str) -> None:
    """Stop the topology when `condition` does not hold. Unlike `assert` it stays on under `-O` (R18)."""
    if not condition:
        unreachable(message)


def unreachable(message: str) -> NoReturn:
    """Raise `InvariantBroken`; for branches that cannot be reached."""
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
