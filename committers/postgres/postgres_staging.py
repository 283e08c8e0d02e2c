"""`Staging` on Postgres: tables of one attempt, which the leader creates and removes; tasks only insert (R10)."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.sql_errors import sqlstate
from txtopo.committers.postgres.sqlstates import INSUFFICIENT_PRIVILEGE
from txtopo.committers.postgres.staging_copy import PART, SCHEMA, TASK, CopyWriter, of_topology
from txtopo.committers.postgres.transactions import Database, opening, tag
from txtopo.committers.sql_names import column_type, quoted
from txtopo.core.values import Lead, TransactionAttempt
from txtopo.errors import ConfigurationError, Fenced, TxtopoError, invariant, unreachable
from txtopo.ports import StagingPlace, StagingTable
from txtopo.topology.components import CommitterComponent

NAME_BYTES_MAX = 63
_REMOVING = "removing a staging table"
_log = logging.getLogger(__name__)


class PostgresStaging:
    """The staging tables of one leader.

    A name has the topology, the lead and a number that the leader uses once, so a task that continues after the
    end of its attempt, its leader or its table (K1) finds no table, or one that no commit reads. Tables are created and
    those of others removed in database transactions that hold the fence row and compare the lead: a former leader that
    continues can do neither, and what it created is there when the next one removes it.
    """

    def __init__(self, database: Database, lead: Lead, place: StagingPlace | None, left: Sequence[str] | None) -> None:
        """`left` is `Claimed.staging_tables`."""
        self._database = database
        self._lead = lead
        self._place = place
        self._left = left
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._tables: dict[str, int] = {}
        """Tables of this leader that were not removed yet, with their txid."""
        self._dropping: set[str] = set()
        """Those that no commit needs."""
        self._others: set[str] = set()
        """Tables of other leaders that were not removed yet."""

    @property
    def place(self) -> StagingPlace | None:
        """See Staging."""
        return self._place

    def begin(self) -> None:
        """See Staging."""
        if self._place is not None and self._left is None:
            self._create_schema()
        self._others.update(self._left or ())
        self._sweep_others()

    def create(self, attempt: TransactionAttempt, committer: CommitterComponent) -> StagingTable:
        """See Staging."""
        place = self._place or unreachable("there is no place for staging tables")
        fields = committer.result_fields
        name = f"{_prefix(self._lead)}{attempt.txid}_{attempt.attempt}_{next(self._numbers)}"
        invariant(len(name) <= NAME_BYTES_MAX, f"the name of staging table {name} is too long")
        columns = "".join(f", {quoted(field.name)} {column_type(field.type)}" for field in fields.items)
        with self._lock:
            self._tables[name] = attempt.txid  # before it exists: a lost answer must not leave it behind
        with self._database.fenced(self._lead, "creating a staging table") as connection:
            connection.exec_driver_sql(
                f"create unlogged table {SCHEMA}.{quoted(name)} ({quoted(PART)} integer not null, "
                f"{quoted(TASK)} bigint not null{columns}) with (autovacuum_enabled = off)",
                {},
            )
        application = f"txtopo/{self._lead.topology}/staging"[:NAME_BYTES_MAX]
        return StagingTable(name, CopyWriter(place.dsn, name, fields.names, application, committer.name))

    def drop(self, name: str) -> None:
        """See Staging."""
        with self._lock:
            self._dropping.add(name)
        self._sweep()

    def settled(self, txid: int) -> None:
        """See Staging."""
        with self._lock:
            if not self._tables and not self._others:
                return
            self._dropping |= {name for name, of in self._tables.items() if of <= txid}
        self._sweep()

    def close(self) -> None:
        """See Staging."""
        with self._lock:
            self._dropping |= self._tables.keys()
        self._sweep()

    def _sweep(self) -> None:
        with self._lock:
            names = sorted(self._dropping)
        for name in names:
            # Its own tables are nobody else's: this needs no lead.
            if self._remove(name, self._database.transaction(_REMOVING)):
                with self._lock:
                    self._dropping.discard(name)
                    self._tables.pop(name, None)
        if self._others:
            with contextlib.suppress(Fenced):
                self._sweep_others()

    def _sweep_others(self) -> None:
        for name in sorted(self._others):
            # A former leader that goes on must not remove a table of the one after it. Raises Fenced.
            if self._remove(name, self._database.fenced(self._lead, _REMOVING)):
                self._others.discard(name)

    def _remove(self, name: str, begun: AbstractContextManager[Connection]) -> bool:
        """Remove a table; returns False if that has to wait: a task that still writes into it holds a lock. Raises
        Fenced.
        """
        try:
            with begun as connection:
                connection.exec_driver_sql(*opening(tag(self._lead)))
                connection.exec_driver_sql(f"drop table if exists {SCHEMA}.{quoted(name)}", {})
        except Fenced:
            raise
        except TxtopoError as error:
            _log.warning("staging table %s stays for now: %s", name, error)
            return False
        return True

    def _create_schema(self) -> None:
        with self._database.transaction("creating the schema of staging tables") as connection:
            connection.exec_driver_sql(*opening(tag(self._lead)))
            try:
                connection.exec_driver_sql(f"create schema if not exists {SCHEMA}", {})
            except SQLAlchemyError as error:
                if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                    raise
                raise ConfigurationError(
                    f"staging_dsn is given, but this role may not create schema {SCHEMA}: create schema {SCHEMA} "
                    "authorization (this role); or take staging_dsn away, then large results are refused"
                ) from error


def _prefix(lead: Lead) -> str:
    """Return the beginning of the names of one leader. The epoch alone may come again if the fence row was lost."""
    nonce = hashlib.sha256(lead.owner_nonce.encode()).hexdigest()[:8]
    return f"{of_topology(lead.topology)}{lead.epoch}_{nonce}_"
