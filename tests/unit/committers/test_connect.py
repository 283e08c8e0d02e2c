"""Connection strings in every spelling, passwords in none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from txtopo.committers.postgres import connect
from txtopo.committers.postgres.connect import check_version_and_encoding, make_engine, mask_dsn, normalise_dsn
from txtopo.committers.postgres.sql_errors import is_unknown, translate, translate_apply
from txtopo.committers.postgres.statements import statement
from txtopo.errors import BatchDataError, ConfigurationError, PostgresUnavailable

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgres://u:s3cret@h:5433/db", ("u", "h", 5433, "db")),
        ("postgresql://u:s3cret@h/db", ("u", "h", None, "db")),
        ("postgresql+psycopg2://u:s3cret@h/db", ("u", "h", None, "db")),
        ("host=h port=5433 dbname=db user=u password=s3cret", ("u", "h", 5433, "db")),
        ("service=flights", (None, None, None, None)),
        ("", (None, None, None, None)),
    ],
)
def test_every_spelling_is_read_as_psql_does(dsn: str, expected: tuple[Any, ...]) -> None:
    """URL, key=value, service and nothing at all select psycopg2."""
    url = normalise_dsn(dsn)

    assert url.drivername == "postgresql+psycopg2"
    assert (url.username, url.host, url.port, url.database) == expected
    assert url.password == (SECRET if SECRET in dsn else None)
    assert SECRET not in repr(url)


def test_sockets_and_several_hosts_pass() -> None:
    """What libpq takes is handed on."""
    assert normalise_dsn("postgresql:///db?host=/run/pg&port=5433").query == {"host": "/run/pg", "port": "5433"}
    assert normalise_dsn("postgresql://a:1,b:2/db?target_session_attrs=read-write").query["host"] == "a,b"
    assert normalise_dsn("service=flights").query == {"service": "flights"}


@pytest.mark.parametrize("dsn", ["nonsense password=s3cret", "password='s3cret", "postgresql://u:s3@cret@h/db"])
def test_unreadable_string_is_refused_without_its_password(dsn: str) -> None:
    """A clear error that tells no secret."""
    with pytest.raises(ConfigurationError) as refused:
        normalise_dsn(dsn)

    assert refused.value.__cause__ is None
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach postgresql://u:s3cret@h/db now",
        "postgresql://u:s3cret@s3cret@h/db",
        "host=h password=s3cret user=u",
        "password = 's3cret with \\' blanks s3cret'",
        r"password=s3cret\ s3cret",
        "PASSWORD=s3cret",
        "postgresql://h/db?password=s3cret&user=u",
        "sslpassword=s3cret",
    ],
)
def test_passwords_are_masked(text: str) -> None:
    """No password in any message."""
    assert SECRET not in mask_dsn(text)
    assert "***" in mask_dsn(text)


def test_pool_is_bounded() -> None:
    """At most eight connections a driver."""
    engine = make_engine("postgresql://h/db", "test")

    assert engine.pool.size() + engine.pool._max_overflow == connect.CONNECTIONS_MAX == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("row", "message"), [((140011, "14.11", "UTF8"), "too old"), ((150000, "15.0", "SQL_ASCII"), "needs UTF8")]
)
def test_unfit_server_is_refused(row: tuple[Any, ...], message: str) -> None:
    """P14: Postgres 15 or later, UTF8."""

    class Answer:
        def exec_driver_sql(self, _: str) -> Answer:
            return self

        def one(self) -> tuple[Any, ...]:
            return row

    with pytest.raises(ConfigurationError, match=message):
        check_version_and_encoding(Answer())  # type: ignore[arg-type]


class ServerError(psycopg2.Error):  # type: ignore[misc]
    """An error with an SQLSTATE."""

    def __init__(self, state: str | None) -> None:
        super().__init__("trouble")
        self.state = state

    @property
    def pgcode(self) -> str | None:
        return self.state


@pytest.mark.parametrize("state", [None, "08006", "40003", "57P01", "57P02", "57P03", "XX000"])
def test_silence_during_commit_is_unknown(state: str | None) -> None:
    """P2: no SQLSTATE, 08*, 40003, 57P01..3, XX* leave the outcome unknown, but only of a COMMIT."""
    assert is_unknown(ServerError(state))

    committing, before = translate(ServerError(state), "x", committing=True), translate(ServerError(state), "x")
    assert isinstance(committing, PostgresUnavailable)
    assert isinstance(before, PostgresUnavailable)
    assert (committing.definite, before.definite) == (False, True)


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "57014", "53100"])
def test_refusals_that_pass_are_definite(state: str) -> None:
    """P10: deadlock, serialization failure, lock and statement timeout, disk full: surely aborted, tried again,
    nobody's fault.
    """
    for error in (
        translate(ServerError(state), "x", committing=True),
        translate_apply(ServerError(state), "c", 1, ledger_held=True),
    ):
        assert isinstance(error, PostgresUnavailable)
        assert error.definite


@pytest.mark.parametrize("error", [ServerError("22003"), ServerError("23514"), ValueError("NUL"), "\ud800"])
def test_rows_at_fault_name_the_committer(error: Exception | str) -> None:
    """P14: what does not fit is the batch's fault, also where Python refuses it without an SQLSTATE."""
    if isinstance(error, str):
        with pytest.raises(UnicodeEncodeError) as caught:
            error.encode()
        error = caught.value

    translated = translate_apply(error, "by_route", 1, ledger_held=False)

    assert isinstance(translated, BatchDataError)
    assert translated.component == "by_route"


def test_every_statement_is_there_and_used() -> None:
    """One statement a file, each called by its name."""
    room = Path(connect.__file__).parent
    code = "".join(path.read_text() for path in room.glob("*.py"))

    for path in (room / "sql").glob("*.sql"):
        assert re.match(r"(select|insert|update|with|set)\b", statement(path.stem)), path.name
        assert f'"{path.stem}"' in code or f"'{path.stem}'" in code, f"{path.name} is not used"
