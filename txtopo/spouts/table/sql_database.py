"""Connections to the database of a table through SQLAlchemy: where it is, said by each host for itself, which table is
meant, and what errors mean.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo.errors import BatchDataError, ConfigurationError, TopologyError
from txtopo.spouts.planned_file import COMPONENT

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

URL_VARIABLE = "TXTOPO_TABLE_URL"
"""Has the URL of the database on each host, if the spout names no other variable."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TIME_LIMITS: Mapping[str, Mapping[str, Any]] = {
    "psycopg2": {"connect_timeout": 10, "tcp_user_timeout": 60_000, "options": "-c statement_timeout=300s"},
    "psycopg": {"connect_timeout": 10, "tcp_user_timeout": 60_000, "options": "-c statement_timeout=300s"},
    "pymysql": {"connect_timeout": 10, "read_timeout": 300},
    "mysqldb": {"connect_timeout": 10, "read_timeout": 300},
    "pysqlite": {"timeout": 60},
}
"""Arguments of clients, by their name in SQLAlchemy, with which nothing waits for ever; the URL may set others."""
_OF_THE_TABLE = re.compile(r"no such (table|column)|syntax error")
"""SQLite says these as if it could not be reached."""


@dataclass(frozen=True, slots=True)
class SqlDatabase:
    """Where a process finds the URL; holds no secret, so it may be in plans and tasks."""

    url_env: str = URL_VARIABLE

    def url(self) -> URL:
        """Return the URL. Raises ConfigurationError, without its text."""
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError

        text = os.environ.get(self.url_env, "")
        if not text.strip():
            raise ConfigurationError(
                f"no database for SqlTableSpout: set {self.url_env} to a URL such as mysql+pymysql://user@host/name "
                f"on every host"
            )
        try:
            url = make_url(text)
            url.get_dialect()
        except (ArgumentError, ValueError):
            raise ConfigurationError(f"{self.url_env} is no URL of a database") from None
        except NoSuchModuleError:
            raise ConfigurationError(f"{self.url_env} names a database that SQLAlchemy has no client for") from None
        if url.get_backend_name() == "sqlite" and (not url.database or url.database == ":memory:"):
            raise ConfigurationError(f"{self.url_env} names a database in memory, which each process has for itself")
        return url

    @contextmanager
    def connected(self, what: str) -> Iterator[Connection]:
        """Yield a new connection. Raises ConfigurationError, and what `said_by_database` returns."""
        from sqlalchemy import create_engine
        from sqlalchemy.exc import DBAPIError
        from sqlalchemy.pool import NullPool

        url = self.url()
        if url.get_backend_name() == "sqlite" and "uri" not in url.query and not Path(str(url.database)).exists():
            # SQLite would make an empty one.
            raise FileNotFoundError(errno.ENOENT, "there is no such database", str(url.database))
        limits = {
            name: value for name, value in _TIME_LIMITS.get(url.get_driver_name(), {}).items() if name not in url.query
        }
        try:
            engine = create_engine(url, poolclass=NullPool, connect_args=limits, hide_parameters=True)
        except ImportError as error:
            raise ConfigurationError(f"the client of {url.get_backend_name()} is not installed: {error.name}") from None
        try:
            with engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise said_by_database(error, what) from None
        finally:
            engine.dispose()


def database_of(url_env: str | None) -> SqlDatabase:
    """Return the database that a spout was given. Raises TopologyError."""
    if url_env is None:
        return SqlDatabase()
    if not isinstance(url_env, str) or not _VARIABLE.fullmatch(url_env):
        # The text is not shown: it may be a URL with a password.
        raise TopologyError("SqlTableSpout: url_env is the name of an environment variable, never a URL")
    return SqlDatabase(url_env)


def identity_of(url: URL) -> str:
    """Return which database a URL means, without user, password and settings of the client.

    >>> from sqlalchemy.engine import make_url
    >>> identity_of(make_url("mysql+pymysql://ann:secret@db.example:3306/shop?charset=utf8mb4"))
    'mysql://db.example:3306/shop'
    """
    host = "" if url.host is None else f"{url.host}" if url.port is None else f"{url.host}:{url.port}"
    return f"{url.get_backend_name()}://{host}/{url.database or ''}"


def said_by_database(error: Any, what: str) -> Exception:
    """Return the exception to raise for an error of the client or the server while it reads `what`: what can pass is an
    OSError, all else is about the table.
    """
    from sqlalchemy.exc import InterfaceError, InternalError, OperationalError

    words = f"{error.orig}".strip().partition("\n")[0][:300] or type(error.orig).__name__
    passing = isinstance(error, OperationalError | InterfaceError | InternalError) or error.connection_invalidated
    if passing and not _OF_THE_TABLE.search(words):
        return TimeoutError(errno.ETIMEDOUT, f"the database does not answer: {words}", what)
    return BatchDataError(
        f"{what}: the database says: {words}", component=COMPONENT, position=what, fault="error of the database"
    )
