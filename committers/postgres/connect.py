"""How txtopo connects to Postgres: connection strings in any spelling, bounded pools, start-up checks of the server."""

from __future__ import annotations

import re
from typing import Any

import psycopg2
import psycopg2.extensions
import sqlalchemy
from sqlalchemy import URL, Engine, event
from sqlalchemy.pool import NullPool, QueuePool

from txtopo.committers.postgres.sql_errors import translating
from txtopo.errors import ConfigurationError, PostgresUnavailable

SERVER_VERSION_MIN = 150_000
"""Postgres 15: the first with UNIQUE NULLS NOT DISTINCT."""
CONNECTIONS_MAX = 8
CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 10

_CONNECT_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    # A dead peer is noticed within about 11 s on either side of the conversation (P6).
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
    """Read a connection string as libpq does (URL, `key=value`, `service=`, empty for libpq's defaults); always for
    psycopg2.

    A plain `postgresql://` would select another driver in SQLAlchemy 2.1. Raises ConfigurationError, without the
    password.
    """
    text = re.sub(r"^postgres(?:ql)?(?:\+\w+)?://", "postgresql://", dsn.strip())
    try:
        # libpq reads it, so that whatever psql understands is understood here, and nothing else.
        values: dict[str, str] = psycopg2.extensions.parse_dsn(text)
        port = values.get("port", "")
        if not all(number.isdigit() for number in port.split(",") if number):
            raise ValueError("the port is not a number")
    except (psycopg2.Error, ValueError):
        # Neither the text nor the parser's message is shown: where it cannot be read, nobody knows where the password
        # ends.
        raise ConfigurationError(
            "the DSN is not a Postgres connection string; write postgresql://user:password@host:5432/database or "
            "host=… "
            "dbname=…, "
            "and in a password / as %2F, @ as %40, : as %3A"
        ) from None
    host = values.get("host", "")
    if "@" in host[1:] or (
        "/" in host[1:] and not host.startswith("/")
    ):  # the end of a password with such a sign in it
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
    """`text` with every password in it hidden, in URLs and in `key=value` form."""
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


def make_engine(dsn: str, application_name: str, *, pooled: bool = True) -> Engine:
    """An engine with at most CONNECTIONS_MAX connections, or with a fresh one each time where `pooled` is False.
    Connects to nothing yet.
    """
    url = normalise_dsn(dsn)
    arguments = {name: value for name, value in _CONNECT_ARGUMENTS.items() if name not in url.query}
    pool: dict[str, Any] = {"poolclass": NullPool}
    if pooled:
        pool = {"poolclass": QueuePool, "pool_size": CONNECTIONS_MAX, "max_overflow": 0, "pool_timeout": POOL_TIMEOUT_S}
    engine = sqlalchemy.create_engine(
        url,
        connect_args={**arguments, "application_name": application_name[:63]},
        hide_parameters=True,  # rows of users do not belong into messages
        **pool,
    )
    event.listen(engine, "begin", _refuse_autocommit)
    return engine


def _refuse_autocommit(connection: sqlalchemy.Connection) -> None:
    # P8: without a database transaction the fence protects nothing.
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise ConfigurationError("the connection to Postgres is in AUTOCOMMIT mode; txtopo needs database transactions")


def check_server(engine: Engine) -> None:
    """Refuse a server on which an acknowledged COMMIT may be lost or text may be garbled (P8, P14). Raises
    ConfigurationError with the remedy.

    Raises PostgresUnavailable for a standby, which may be promoted any time (P7).
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
    """Refuse Postgres before 15 and databases that are not UTF8. Raises ConfigurationError."""
    query = (
        "select current_setting('server_version_num')::int, current_setting('server_version'), "
        "current_setting('server_encoding')"
    )
    number, version, encoding = connection.exec_driver_sql(query).one()
    if number < SERVER_VERSION_MIN:
        raise ConfigurationError(f"Postgres {version} is too old; txtopo needs 15 or later (UNIQUE NULLS NOT DISTINCT)")
    if encoding != "UTF8":
        # P14: SQL_ASCII takes any bytes, so that one text has several spellings.
        raise ConfigurationError(
            f"the database has encoding {encoding}; txtopo needs UTF8: create database … encoding 'UTF8' template "
            f"template0"
        )
