"""Connections to the database of a table: where it is, said by each host for itself, and what its errors mean."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.errors import BatchDataError, ConfigurationError, TopologyError
from txtopo.spouts.planned_file import COMPONENT

if TYPE_CHECKING:
    from collections.abc import Mapping

DSN_VARIABLE = "TXTOPO_TABLE_DSN"
"""Has the connection string on each host, if the spout names neither another variable nor a service."""
STATEMENT_S = 300
LOCK_S = 10
_ARGUMENTS: Mapping[str, Any] = {
    "connect_timeout": 10,
    # Each side notices within about a minute that the other is dead.
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "client_encoding": "utf8",
    "application_name": "txtopo table",
}
_SETTINGS = (
    "set local timezone = 'UTC'; set local datestyle = 'ISO, YMD'; set local intervalstyle = 'iso_8601'; "
    "set local bytea_output = 'hex'; set local extra_float_digits = 1; set local lc_monetary = 'C'; "
    f"set local row_security = off; set local statement_timeout = '{STATEMENT_S}s'; "
    f"set local lock_timeout = '{LOCK_S}s'"
)
"""So values have the same text in every session. With `row_security = off`, a policy that hides rows is an error."""
_REFUSED = re.compile(r"authentication failed|no password supplied|pg_hba|does not exist|permission denied")
_AWAY = re.compile(r"08|40|53|55P03|57")
"""SQLSTATEs of a server that is unreachable, busy, full or stopping (W1), and of a statement that took too long."""
_SERVICE = re.compile(r"[A-Za-z0-9._-]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class TableDatabase:
    """Where a process finds its connection string; holds no secret, so it may be in plans and tasks."""

    dsn_env: str = DSN_VARIABLE
    """Name of an environment variable."""
    service: str | None = None
    """Name of a service of libpq, used instead."""

    @property
    def stored(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"dsn_env": self.dsn_env} if self.service is None else {"service": self.service}

    def connect(self) -> Any:
        """Return a connection. Raises ConfigurationError, PermissionError if the server refuses, else OSError; no
        message has the connection string.
        """
        import psycopg2
        from psycopg2.extensions import parse_dsn

        dsn = f"service={self.service}" if self.service is not None else os.environ.get(self.dsn_env, "")
        if not dsn.strip():
            raise ConfigurationError(
                f"no database for TableSpout: set {self.dsn_env} to a connection string on every host, or declare "
                f"the spout with service="
            )
        try:
            given = parse_dsn(dsn)
            connection = psycopg2.connect(**{**_ARGUMENTS, **given})
            connection.autocommit = True  # BEGIN and its end are sent by `one_snapshot`.
            return connection
        except psycopg2.ProgrammingError:
            # Its message may have a part of the password.
            raise ConfigurationError(f"{self._where} is no connection string of Postgres") from None
        except psycopg2.Error as error:
            words = _first_line(error)
            if _REFUSED.search(words):
                raise PermissionError(errno.EACCES, f"the database refuses: {words}", self._where) from None
            raise TimeoutError(errno.ETIMEDOUT, f"the database cannot be reached: {words}", self._where) from None

    @property
    def _where(self) -> str:
        return self.dsn_env if self.service is None else f"service {self.service}"


def database_of(dsn_env: str | None, service: str | None) -> TableDatabase:
    """Return the database that a spout was given. Raises TopologyError."""
    if dsn_env is not None and service is not None:
        raise TopologyError("TableSpout: dsn_env= and service= both say where the database is: give one of them")
    if service is not None:
        if not isinstance(service, str) or not _SERVICE.fullmatch(service):
            raise TopologyError(f"TableSpout: service {service!r} is no name of a service of libpq")
        return TableDatabase(service=service)
    if dsn_env is None:
        return TableDatabase()
    if not isinstance(dsn_env, str) or not _VARIABLE.fullmatch(dsn_env):
        # The text is not shown: it may be a connection string.
        raise TopologyError("TableSpout: dsn_env is the name of an environment variable, never a connection string")
    return TableDatabase(dsn_env)


@contextmanager
def one_snapshot(connection: Any, what: str) -> Iterator[Any]:
    """Yield a cursor in a database transaction that reads one snapshot and writes nothing; then end it. Raises
    what `said_by_server` returns.
    """
    import psycopg2

    try:
        with connection.cursor() as cursor:
            cursor.execute("begin isolation level repeatable read, read only; " + _SETTINGS)
            yield cursor
            cursor.execute("rollback")
    except psycopg2.Error as error:
        raise said_by_server(error, what) from None


def said_by_server(error: Any, what: str) -> Exception:
    """Return the exception to raise for an error of the client or the server while it reads `what`."""
    words, code = _first_line(error), error.pgcode
    if code is None or _AWAY.match(code):
        return TimeoutError(errno.ETIMEDOUT, f"the database does not answer: {words}", what)
    if code in ("42501", "28000", "28P01"):
        return PermissionError(errno.EACCES, f"the database refuses: {words}", what)
    return BatchDataError(
        f"{what}: the database says: {words}", component=COMPONENT, position=what, fault=f"error {code} of the database"
    )


def _first_line(error: BaseException) -> str:
    return f"{error}".strip().partition("\n")[0][:300] or type(error).__name__
