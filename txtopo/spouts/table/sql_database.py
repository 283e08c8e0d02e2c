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
_PASSING = re.compile(
    r"(SQLITE_)(BUSY|CANTOPEN|FULL|INTERRUPT|IOERR|LOCKED|NOMEM|PROTOCOL)|(08|40|53|55P03|57)|"
    r"(1040|1053|1205|1213|2002|2003|2006|2013|3024)$"
)
"""How an error that can pass is named: by SQLite, by the SQLSTATE of Postgres, by the number of MySQL."""


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
            is_async = url.get_dialect().is_async
        except NoSuchModuleError:
            raise ConfigurationError(f"{self.url_env} names a database that SQLAlchemy has no client for") from None
        except (ArgumentError, ValueError):
            raise ConfigurationError(f"{self.url_env} is no URL of a database") from None
        except ImportError as error:
            raise ConfigurationError(f"the client of {url.get_backend_name()} is not installed: {error.name}") from None
        if is_async:
            raise ConfigurationError(f"{self.url_env} names client {url.get_driver_name()}, which is for asyncio only")
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_absolute():
            raise ConfigurationError(
                f"{self.url_env} names no file by its whole path: write sqlite:////folder/name.db, with four slashes; "
                f"a database in memory, or below the current folder, is another one in each process"
            )
        return url

    @contextmanager
    def connected(self, what: str) -> Iterator[Connection]:
        """Yield a new connection. Raises ConfigurationError, OSError if the database cannot be reached, and what
        `said_by_database` returns.
        """
        from sqlalchemy import create_engine
        from sqlalchemy.exc import DBAPIError, ProgrammingError
        from sqlalchemy.pool import NullPool

        url = self.url()
        if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
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
            connection = engine.connect()
        except (ProgrammingError, TypeError, ValueError):  # Their words may have a part of the URL.
            raise ConfigurationError(f"{self.url_env} has settings that the client does not know") from None
        except DBAPIError as error:
            words = _words_of(error, url)
            raise TimeoutError(errno.ETIMEDOUT, f"the database cannot be reached: {words}", self.url_env) from None
        try:
            with connection:
                yield connection
        except DBAPIError as error:
            raise said_by_database(error, what, url) from None


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


def said_by_database(error: Any, what: str, url: URL) -> Exception:
    """Return the exception to raise for an error of the client or the server while it reads `what`: what is known to
    pass is an OSError, all else is about the table, and is not waited for without an end.
    """
    words, orig = _words_of(error, url), error.orig
    names = [getattr(orig, name, None) for name in ("sqlite_errorname", "sqlstate", "pgcode")]
    names += [str(number) for number in getattr(orig, "args", ())[:1] if isinstance(number, int)]
    if error.connection_invalidated or any(name and _PASSING.match(name) for name in names):
        return TimeoutError(errno.ETIMEDOUT, f"the database does not answer: {words}", what)
    return BatchDataError(
        f"{what}: the database says: {words}", component=COMPONENT, position=what, fault="error of the database"
    )


def _words_of(error: Any, url: URL) -> str:
    """Return the first line of what a client says, without the password."""
    words = f"{error.orig}".strip().partition("\n")[0][:300] or type(error.orig).__name__
    for secret in (url.password, url.query.get("password")):
        words = words.replace(str(secret), "***") if secret else words
    return words
