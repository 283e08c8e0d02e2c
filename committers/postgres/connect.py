"""Connections to Postgres: connection strings in every form, bounded pools, checks of the server at the start."""

from __future__ import annotations

import re
from typing import Any

import psycopg2
import psycopg2.extensions
import sqlalchemy
from sqlalchemy import URL, Engine, event
from sqlalchemy.pool import NullPool, QueuePool

from txtopo.committers.postgres.joined_begin import JoinedBegin
from txtopo.committers.postgres.sql_errors import translating
from txtopo.errors import ConfigurationError, PostgresUnavailable

SERVER_VERSION_MIN = 150_000
"""Postgres 15: the first version with UNIQUE NULLS NOT DISTINCT."""
CONNECTIONS_MAX = 8
CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 10

_CONNECT_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    # Each side notices within about 11 s that the other is dead (P6).
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "client_encoding": "utf8",
}
_MASKS = (
    (re.compile(r"(://[^:@/\s]*:)\S*(@)"), r"\1***\2"),
    (
        re.compile(
            r"((?:pass(?:word|file)|sslpassword)\s*=\s*)(?:'(?:\\.|[^'\\])*'?|(?:\\.|[^\s&'\\])+)", re.IGNORECASE
        ),
        r"\1***",
    ),
)


def normalise_dsn(dsn: str) -> URL:
    """Return the URL for psycopg2 of a connection string in any form that libpq reads: URL, `key=value`, `service=`, or
    empty for libpq's defaults.

    SQLAlchemy 2.1 would choose another driver for a plain `postgresql://`. Raises ConfigurationError, without the
    password.
    """
    text = re.sub(r"^postgres(?:ql)?(?:\+\w+)?://", "postgresql://", dsn.strip())
    try:
        # libpq parses it, so this accepts exactly what psql accepts.
        values: dict[str, str] = psycopg2.extensions.parse_dsn(text)
        port = values.get("port", "")
        if not all(number.isdigit() for number in port.split(",") if number):
            raise ValueError("the port is not a number")
    except (psycopg2.Error, ValueError):
        # Neither the text nor the parser's message is shown: in a text that cannot be parsed, the end of the password
        # is unknown.
        raise ConfigurationError(
            "the DSN is not a Postgres connection string; write postgresql://user:password@host:5432/database or "
            "host=… "
            "dbname=…, "
            "and in a password / as %2F, @ as %40, : as %3A"
        ) from None
    host = values.get("host", "")
    if "@" in host[1:] or (
        "/" in host[1:] and not host.startswith("/")
    ):  # the end of a password that contains such a character
        raise ConfigurationError(f"{mask_dsn(dsn)!r}: write @ in a password as %40, / as %2F")
    single = bool(host) and not re.search(r"[,/@:]", host) and (not port or port.isdigit())
    own = {"user", "password", "dbname"} | ({"host", "port"} if single else set())
    return URL.create(
        "postgresql+psycopg2",
        username=values.get("user"),
        password=values.get("password"),
        host=host if single else None,
        port=int(port) if single and port else None,
        database=values.get("dbname"),
        query={name: value for name, value in values.items() if name not in own},
    )


def mask_dsn(text: str) -> str:
    """Return `text` with every password hidden, in URLs and in `key=value` form."""
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


def make_engine(dsn: str, application_name: str, *, pooled: bool = True, joined_begin: bool = False) -> Engine:
    """Return an engine with at most CONNECTIONS_MAX connections; with `pooled=False` each use opens a new one. Does not
    connect yet.

    `joined_begin`: BEGIN is sent with the first statement, and there are no cursors of the server (JoinedBegin).
    """
    url = normalise_dsn(dsn)
    arguments = {name: value for name, value in _CONNECT_ARGUMENTS.items() if name not in url.query}
    pool: dict[str, Any] = {"poolclass": NullPool}
    if pooled:
        pool = {"poolclass": QueuePool, "pool_size": CONNECTIONS_MAX, "max_overflow": 0, "pool_timeout": POOL_TIMEOUT_S}
    if joined_begin:
        arguments["connection_factory"] = JoinedBegin
    engine = sqlalchemy.create_engine(
        url,
        connect_args={**arguments, "application_name": application_name[:63]},
        hide_parameters=True,  # the users' rows must not be in messages
        use_native_hstore=False,  # or each new connection asks for a type that no table of txtopo has
        **pool,
    )
    event.listen(engine, "begin", _refuse_autocommit)
    return engine


def _refuse_autocommit(connection: sqlalchemy.Connection) -> None:
    # P8: without a database transaction the fence protects nothing.
    raw = connection.connection.dbapi_connection
    if getattr(raw, "autocommit", False) and not isinstance(raw, JoinedBegin):
        raise ConfigurationError("the connection to Postgres is in AUTOCOMMIT mode; txtopo needs database transactions")


def check_server(engine: Engine) -> None:
    """Raise ConfigurationError, with the fix, for a server that may lose a confirmed COMMIT or change text (P8,
    settings such as fsync; P14, encodings).

    Raises PostgresUnavailable for a standby, which may be promoted at any time (P7).
    """
    with translating("checking the server"), engine.connect() as connection:
        check_version_and_encoding(connection)
        if connection.exec_driver_sql("select pg_is_in_recovery()").scalar_one():
            raise PostgresUnavailable(
                "this server is a standby, which only reads; name the primary, or all servers and "
                "target_session_attrs=read-write in the DSN"
            )
        for name in ("fsync", "full_page_writes"):
            if connection.exec_driver_sql(f"show {name}").scalar_one() != "on":
                raise ConfigurationError(
                    f"Postgres runs with {name} = off: a crash loses committed batches; set {name} = on and restart it"
                )


def check_version_and_encoding(connection: sqlalchemy.Connection) -> None:
    """Raise ConfigurationError for Postgres before 15, and for a database that is not UTF8."""
    query = (
        "select current_setting('server_version_num')::int, current_setting('server_version'), "
        "current_setting('server_encoding')"
    )
    number, version, encoding = connection.exec_driver_sql(query).one()
    if number < SERVER_VERSION_MIN:
        raise ConfigurationError(f"Postgres {version} is too old; txtopo needs 15 or later (UNIQUE NULLS NOT DISTINCT)")
    if encoding != "UTF8":
        # P14: SQL_ASCII accepts any bytes, so the same text can have several encodings.
        raise ConfigurationError(
            f"the database has encoding {encoding}; txtopo needs UTF8: create database … encoding 'UTF8' template "
            f"template0"
        )
