"""Base of every CommitTransaction: it checks each statement, and accepts none after the first failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from txtopo.committers.protocol.statement_guard import objection
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, TxtopoError
from txtopo.topology.keyed_table import KeyedTable, can_be_stored


class UserTransaction(ABC):
    """The CommitTransaction of one committer in one batch. It remembers its first failure."""

    def __init__(self, committer: str, attempt: TransactionAttempt) -> None:
        self._committer = committer
        self._attempt = attempt
        self._failure: TxtopoError | None = None
        self._is_open = True

    @property
    def attempt(self) -> TransactionAttempt:
        """See CommitTransaction."""
        return self._attempt

    @property
    def failure(self) -> TxtopoError | None:
        """Error of the first statement that failed, or None. Nothing can be committed after it (P1), even if user code
        catches the error.
        """
        return self._failure

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[Sequence[Any]]:
        """See CommitTransaction."""
        if self._failure is not None:
            raise self._failure
        try:
            # P9: user code must not end the database transaction.
            reason = objection(statement) if self._is_open else "the commit of its batch has ended"
            if reason is not None:
                raise BatchDataError(
                    f"committer {self._committer} may not execute {statement!r:.200}: {reason}",
                    component=self._committer,
                    fault="refused statement",
                )
            return self._execute(statement, parameters)
        except TxtopoError as error:
            self._failure = error
            raise

    def rows_of(self, table: KeyedTable, keys: Iterable[Sequence[Any]]) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """See CommitTransaction."""
        if self._failure is not None:
            raise self._failure
        wanted = [key for key in dict.fromkeys(map(tuple, keys)) if can_be_stored(key)]
        try:
            if not self._is_open:
                raise BatchDataError(
                    f"committer {self._committer} may not read {table.table}: the commit of its batch has ended",
                    component=self._committer,
                    fault="refused statement",
                )
            return dict(self._rows_of(table, wanted)) if wanted else {}
        except TxtopoError as error:
            self._failure = error
            raise

    @abstractmethod
    def _execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Execute a statement that was checked. Raises BatchDataError or StoreUnavailable."""

    @abstractmethod
    def _rows_of(
        self, table: KeyedTable, keys: Sequence[tuple[Any, ...]]
    ) -> Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return key and values of the rows with these keys, which are different. Raises as `_execute`."""
