"""What an error of SQLAlchemy or psycopg2 means: surely aborted, unknown, fenced, or the batch's own fault (P1, P2, P10, P14)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from txtopo.committers.rules import describe_counts
from txtopo.core.limits import STATEMENT_TIMEOUT_MS
from txtopo.errors import (
    BatchDataError,
    ConfigurationError,
    Fenced,
    Halted,
    InvariantBroken,
    PostgresUnavailable,
    TxtopoError,
)

LOCK_NOT_AVAILABLE = "55P03"
QUERY_CANCELED = "57014"
_UNKNOWN = re.compile(r"^(08...|40003|57P0[123]|XX...)$")
# Data that does not fit (22), a constraint of the user's table (23), one row twice (21), a table changed or forbidden meanwhile (42), a
# trigger of the user's (P0): trying again changes nothing, so it counts as a data failure and comes before a person.
_DATA = re.compile(r"^(21|22|23|42|44|P0)...$")
# What says nothing about a statement: connections, deadlocks and lost races, resources, operators, the system itself (P2, P10).
_STORE = re.compile(r"^(08|40|53|55|57|58|XX)...$")
# A schema or table that is not there, a right that was not granted: the same for every batch, so none may be quarantined over it.
_NOT_PREPARED = ("3F000", "42P01", "42501")
_NOT_MIGRATED = ("3F000", "42P01", "42703", "42883")
_STALE_PLAN = re.compile(r"plan (\d+) of epoch (\d+), but the fence has epoch (\d*), last (\d*)")


def sqlstate(error: BaseException) -> str | None:
    """The server's five-letter verdict; None when the connection broke or the error came from Python."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return getattr(origin, "pgcode", None)


def is_unknown(error: BaseException) -> bool:
    """Asked of an error during COMMIT: may the server have committed all the same (P2)?"""
    state = sqlstate(error)
    return state is None or _UNKNOWN.match(state) is not None


def one_line(error: BaseException) -> str:
    """The error in one line, without statement, rows or passwords."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    primary = getattr(getattr(origin, "diag", None), "message_primary", None)
    text = " ".join(str(primary or origin or type(origin).__name__).split())
    text = re.sub(r"(://[^:@/\s]*:)\S*(@)", r"\1***\2", text)
    state = sqlstate(error)
    return f"{text} (SQLSTATE {state})" if state else text


def table_of(error: BaseException) -> tuple[str | None, str | None]:
    """Schema and table that the server names in its error."""
    diagnosis: Any = getattr(getattr(error, "orig", error), "diag", None)
    return getattr(diagnosis, "schema_name", None), getattr(diagnosis, "table_name", None)


def translate(error: Exception, doing: str, *, committing: bool = False) -> TxtopoError:
    """The typed error for what went wrong while `doing`; `committing` when COMMIT had been sent."""
    state = sqlstate(error)
    message = f"{doing}: {one_line(error)}"
    if committing and is_unknown(error):
        return PostgresUnavailable(message, definite=False)
    if state == "P0001" and "txtopo:" in message:
        return _refused_by_ledger(message)
    if state == "23505" and table_of(error) == ("txtopo", "attempt"):
        return InvariantBroken(f"an attempt id is used again: {message}")
    if state in _NOT_MIGRATED:
        return ConfigurationError(f"{message}; schema txtopo is missing or old: run `txtopo migrate`")
    if state == "42501":
        return ConfigurationError(f"{message}; grant the role what it needs")
    if state is not None and re.match(r"^2[23]", state):
        return Halted(f"Postgres refuses: {message}")
    return PostgresUnavailable(message)


def translate_apply(error: Exception, committer: str, txid: int, *, ledger_held: bool) -> TxtopoError:
    """The typed error for what went wrong while a committer's rows were applied."""
    state = sqlstate(error)
    if ledger_held and table_of(error) == ("txtopo", "ledger"):
        return Halted(f"the ledger refuses batch {txid}: {one_line(error)}", txid=txid)
    if table_of(error) == ("txtopo", "committer_count"):
        return BatchDataError(f"committer {committer}: {_numbers(error)}", component=committer)
    if state in _NOT_PREPARED:
        return _not_prepared(error, committer, txid)
    if (state is not None and _DATA.match(state)) or isinstance(error, (ValueError, OverflowError)):
        # P14: NUL and lone surrogates are refused by the client, in Python, without an SQLSTATE.
        reason = "text with a lone surrogate" if isinstance(error, UnicodeEncodeError) else one_line(error)
        return BatchDataError(f"committer {committer}: its rows do not fit the table: {reason}", component=committer)
    return translate(error, f"applying committer {committer} of batch {txid}")


def translate_own(error: Exception, committer: str, txid: int, *, ledger_held: bool) -> TxtopoError:
    """The typed error for a statement of a committer of one's own. Its statements fail for its own reasons, except where the store is at fault."""
    state = sqlstate(error)
    if ledger_held and table_of(error) == ("txtopo", "ledger"):
        return Halted(f"the ledger refuses batch {txid}: {one_line(error)}", txid=txid)
    if state == QUERY_CANCELED:
        # The server's time for a statement was up while user code held the database transaction: it would be again.
        what = f"{one_line(error)}; a statement may take {STATEMENT_TIMEOUT_MS // 1000} s"
        return BatchDataError(f"committer {committer}: {what}", component=committer)
    if state in _NOT_PREPARED:
        return _not_prepared(error, committer, txid)
    is_store = state is None or _STORE.match(state) is not None
    if isinstance(error, psycopg2.Error) and is_store and not isinstance(error, psycopg2.ProgrammingError):
        return PostgresUnavailable(f"committer {committer} of batch {txid}: {one_line(error)}")
    return BatchDataError(f"committer {committer}: {one_line(error)}", component=committer)


def _not_prepared(error: Exception, committer: str, txid: int) -> Halted:
    return Halted(
        f"committer {committer} of batch {txid}: {one_line(error)}: no batch is at fault, so none is tried again or left out",
        txid=txid,
        next_command="make the table or grant what is missing, then start `txtopo run` again",
    )


def translate_rejected(error: Exception, spout: str, txid: int) -> TxtopoError:
    """The typed error for what went wrong while rejected records were kept."""
    state = sqlstate(error)
    if state is not None and re.match(r"^2[123]", state):
        return BatchDataError(f"spout {spout}: its rejected records cannot be kept: {one_line(error)}", component=spout)
    return translate(error, f"keeping the rejected records of batch {txid}")


def translate_dead_letters(error: Exception, component: str, txid: int) -> TxtopoError:
    """The typed error for what went wrong while dead letters were kept."""
    state = sqlstate(error)
    if state is not None and re.match(r"^2[123]", state):
        return BatchDataError(
            f"spout {component}: its dead letters cannot be kept: {one_line(error)}", component=component
        )
    return translate(error, f"keeping the dead letters of batch {txid}")


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """Turn errors of the driver into errors of txtopo; nothing was committed when one is raised in here."""
    try:
        yield
    except (SQLAlchemyError, psycopg2.Error) as error:
        raise translate(error, doing) from error


def _refused_by_ledger(message: str) -> TxtopoError:
    stale = _STALE_PLAN.search(message)
    if stale is not None and stale[2] != stale[3]:
        return Fenced(message)
    if "would go back" in message or "may not" in message:
        return InvariantBroken(message)
    return Halted(f"the ledger refuses: {message}")


def _numbers(error: Exception) -> str:
    """The four numbers out of `Failing row contains (topology, txid, committer, arrived, …)`."""
    detail = getattr(getattr(getattr(error, "orig", error), "diag", None), "message_detail", None) or ""
    values = re.findall(r"[^,()]+", detail.partition("(")[2])
    if len(values) < 8:
        return f"its numbers disagree: {one_line(error)}"
    arrived, counted, results, written, ignored = (value.strip() for value in values[3:8])
    return describe_counts(arrived, counted, results, written, ignored)
