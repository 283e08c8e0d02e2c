"""Large results: tasks store the rows of a committer in Postgres, in a table of their attempt, and the commit merges
them (R10). The driver holds numbers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from txtopo.core import limits
from txtopo.core.values import TransactionAttempt
from txtopo.topology.components import CommitterComponent


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingPlace:
    """Where and when tasks store result rows."""

    dsn: str
    """Connection string for the tasks, without any secret: it goes to them with Spark's plan. Their password is in the
    environment or the password file of their host.
    """
    rows_max: int = limits.RESULT_ROWS_MAX
    """Result rows of one committer in one batch that still go through the driver."""
    connections: int = limits.STAGING_CONNECTIONS
    """Connections that the tasks of one driver open together."""


class StagingWriter(Protocol):
    """Stores rows in one staging table. It is sent to tasks, and holds neither a connection nor a password."""

    def store(self, part: int, task_attempt: int, tables: Iterator[Any]) -> int:
        """Store the rows of these `pyarrow.Table`s, in one database transaction; returns their number when its COMMIT
        is confirmed. Without a row nothing is connected. Raises StagingFailed.
        """


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A staging table that was created for one committer in one attempt."""

    name: str
    writer: StagingWriter


class Staging(Protocol):
    """The staging tables of one leader. Methods may be called from several threads."""

    @property
    def place(self) -> StagingPlace | None:
        """Where tasks store rows; None: large results are refused."""

    def begin(self) -> None:
        """Called once, before anything is processed: remove what other leaders of this topology left, and create the
        schema of the tables if tasks may use it. Fenced. Raises ConfigurationError if this role may not create it.
        """

    def create(self, attempt: TransactionAttempt, committer: CommitterComponent) -> StagingTable:
        """Create a table for the result rows of a committer in this attempt. Its name is used once. Fenced."""

    def drop(self, name: str) -> None:
        """Remove a table that no commit needs. What cannot be removed now, because a task still writes into it, is
        removed later. Never raises.
        """

    def settled(self, txid: int) -> None:
        """Remove the tables of batches up to `txid`, which are in the ledger. Never raises."""

    def close(self) -> None:
        """Remove the tables of this leader: it commits no more. Never raises; the next leader removes what is left."""
