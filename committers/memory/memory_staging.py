"""`Staging` in memory: the same rules as on Postgres (R10)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from txtopo.committers.memory.memory_store import MemoryPostgres
from txtopo.committers.protocol.rules import compare_lead
from txtopo.core.values import Lead, TransactionAttempt
from txtopo.errors import PostgresUnavailable, StagingFailed, unreachable
from txtopo.ports import StagingPlace, StagingTable
from txtopo.topology.components import CommitterComponent


class MemoryStaging:
    """The staging tables of one leader."""

    def __init__(
        self, store: MemoryPostgres, lead: Lead, place: StagingPlace | None, left: Sequence[str] | None
    ) -> None:
        """`left` is `Claimed.staging_tables`."""
        self._store = store
        self._lead = lead
        self._place = place
        self._left = left or ()
        self._numbers = itertools.count(1)
        self._tables: dict[str, int] = {}

    @property
    def place(self) -> StagingPlace | None:
        """See Staging."""
        return self._place

    def begin(self) -> None:
        """See Staging."""
        with self._store.transaction():
            self._check_lead()
            for name in self._left:
                self._store.staging.pop(name, None)

    def create(self, attempt: TransactionAttempt, committer: CommitterComponent) -> StagingTable:
        """See Staging."""
        if self._place is None:
            unreachable("there is no place for staging tables")
        with self._store.transaction():
            self._check_lead()
            name = f"{self._prefix}{attempt.txid}/{attempt.attempt}/{next(self._numbers)}"
            self._store.staging[name] = []
            self._tables[name] = attempt.txid
        return StagingTable(name, MemoryWriter(self._store, name))

    def drop(self, name: str) -> None:
        """See Staging."""
        self._remove([name])

    def settled(self, txid: int) -> None:
        """See Staging."""
        self._remove([name for name, of in self._tables.items() if of <= txid])

    def close(self) -> None:
        """See Staging."""
        self._remove(list(self._tables))

    def _remove(self, names: list[str]) -> None:
        try:
            with self._store.transaction():
                for name in names:
                    self._store.staging.pop(name, None)
                    self._tables.pop(name, None)
        except PostgresUnavailable:
            return  # the next leader removes them

    @property
    def _prefix(self) -> str:
        return f"{self._lead.topology}/{self._lead.epoch}/{self._lead.owner_nonce}/"

    def _check_lead(self) -> None:
        rows = self._store.topologies.get(self._lead.topology)
        compare_lead(None if rows is None else rows.fence, self._lead)


class MemoryWriter:
    """`StagingWriter` for one table."""

    def __init__(self, store: MemoryPostgres, name: str) -> None:
        self._store = store
        self._name = name

    def store(self, part: int, task_attempt: int, tables: Iterator[Any]) -> int:
        """See StagingWriter."""
        rows = [
            (part, task_attempt, row)
            for table in tables
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
        ]
        if not rows:
            return 0
        try:
            with self._store.transaction():
                if self._name not in self._store.staging:
                    raise StagingFailed("infrastructure", f"staging table {self._name} does not exist")
                self._store.staging[self._name] += rows
        except PostgresUnavailable as error:
            raise StagingFailed("infrastructure", str(error)) from error
        return len(rows)
