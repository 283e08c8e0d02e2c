"""`MemoryTransaction`: a CommitTransaction that records the statements of a custom committer and returns the answers of
a test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from txtopo.committers.memory.memory_store import Answers, Executed
from txtopo.committers.protocol.rules import describe_counts
from txtopo.committers.protocol.user_code import run_commit
from txtopo.committers.protocol.user_transaction import UserTransaction
from txtopo.core.values import CommitterCount, CommitterResult, TransactionAttempt
from txtopo.errors import BatchDataError, TxtopoError
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent
from txtopo.topology.keyed_table import KeyedTable


class MemoryTransaction(UserTransaction):
    """Records statements without executing them, to test the driver half of a committer without a database.

    `answers` is called with each statement and its parameters and returns its rows. Without it, statements return no
    rows.

        >>> transaction = MemoryTransaction("words", TransactionAttempt(1, 0), lambda statement, parameters: [(7,)])
        >>> transaction.execute("select count(*) from words where n > %s", [3])
        [(7,)]
        >>> transaction.statements
        [('select count(*) from words where n > %s', [3])]
    """

    def __init__(
        self,
        committer: str,
        attempt: TransactionAttempt,
        answers: Answers | None = None,
        tables: Callable[[str], Sequence[Mapping[str, Any]]] | None = None,
    ) -> None:
        """`tables` returns the rows of a table by its name, as this database transaction sees them; KeyError if there
        is no such table. Without it, all tables are empty.
        """
        super().__init__(committer, attempt)
        self._answers = answers
        self._tables = tables
        self.statements: list[tuple[str, Sequence[Any] | Mapping[str, Any]]] = []
        """Statements with their parameters, in order."""

    def executed(self, topology: str) -> Iterator[Executed]:
        """Yield the recorded statements as rows of the store."""
        for statement, parameters in self.statements:
            yield Executed(
                topology=topology,
                txid=self._attempt.txid,
                committer=self._committer,
                statement=statement,
                parameters=parameters,
            )

    def _execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        self.statements.append((statement, parameters))
        try:
            return [tuple(row) for row in self._answers(statement, parameters)] if self._answers is not None else []
        except TxtopoError:
            raise
        except Exception as error:  # any error that the test lets the database raise
            raise BatchDataError(f"committer {self._committer}: {error}", component=self._committer) from error

    def _rows_of(
        self, table: KeyedTable, keys: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        wanted = set(keys)
        try:
            rows = () if self._tables is None else self._tables(table.table)
            for row in rows:
                key = tuple(row[name] for name in table.keys.names)
                if key in wanted:
                    yield key, tuple(row[name] for name in table.values.names)
        except KeyError as error:
            raise BatchDataError(
                f"committer {self._committer}: {table.table} cannot be read: there is no {error}",
                component=self._committer,
            ) from error


def apply_user_committer(
    committer: CommitterComponent,
    result: CommitterResult,
    transaction: MemoryTransaction,
    collector: CommitCollector | None,
) -> CommitterCount:
    """Run the driver half and return the count, as the ledger on Postgres does."""
    written = run_commit(committer, result, transaction, collector)
    rows = list(zip(*(column.to_pylist() for column in result.rows.columns), strict=True))
    if result.row_count != len(rows):
        numbers = describe_counts(result.arrived, result.arrived, result.row_count, written, len(rows) - written)
        raise BatchDataError(f"committer {committer.name}: {numbers}", component=committer.name)
    return CommitterCount(
        committer=committer.name,
        arrived=result.arrived,
        counted=result.arrived,
        results=result.row_count,
        written=written,
        ignored=len(rows) - written,
        digest=sum(_hash(row) for row in rows),
    )


def _hash(row: tuple[Any, ...]) -> int:
    text = repr([value if value is None else (type(value).__name__, str(value)) for value in row])
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True)
