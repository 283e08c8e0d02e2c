"""What an error of SQLAlchemy or psycopg2 means: certainly aborted, unknown, fenced, or caused by the batch (P1, P2,
P10, P14).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from txtopo.committers.postgres.sqlstates import (
    BROKEN_CONNECTION,
    CLIENT,
    CONSTRAINT_VIOLATION,
    INSUFFICIENT_PRIVILEGE,
    NOT_MIGRATED,
    QUERY_CANCELED,
    RAISED,
    UNIQUE_VIOLATION,
    Fault,
    Owner,
    may_have_committed,
    of_owner,
    verdict_on,
)
from txtopo.committers.protocol.rules import describe_counts
from txtopo.core.limits import STATEMENT_TIMEOUT_MS
from txtopo.core.remedies import RESTORE, RUN_AGAIN
from txtopo.core.values import cause_of
from txtopo.errors import (
    BatchDataError,
    ConfigurationError,
    Fenced,
    Halted,
    InvariantBroken,
    NoBatchAtFault,
    Patience,
    PostgresUnavailable,
    TxtopoError,
)

_STALE_PLAN = re.compile(r"plan (\d+) of epoch (\d+), but the fence has epoch (\d*), last (\d*)")
_RAISED_BY_TXTOPO = re.compile(r"\btxtopo\.\w+\(")
"""The function that the first line of the server's context names; the words around it depend on `lc_messages`."""
_LOCK_TIMED_OUT = "ProcessInterrupts"
"""Function of the server that ends a wait for a lock."""
_PATIENCE: dict[Fault, Patience] = {Fault.LOCK: "lock", Fault.TIME: "time", Fault.ONCE: "once"}
EDGES = "edges"
"""Component of errors about the counts of edges."""
Answers = Callable[[], bool]
"""Returns True if the connection is intact and a new one works too (W1)."""


def sqlstate(error: BaseException) -> str | None:
    """Return the server's five-letter code; None if the connection broke or the error was raised in Python."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return getattr(origin, "pgcode", None)


def is_unknown(error: BaseException) -> bool:
    """True if the server may have committed although COMMIT raised this error (P2, a COMMIT without an answer)."""
    state = sqlstate(error)
    return state is None or may_have_committed(state)


def one_line(error: BaseException) -> str:
    """Return the error in one line, without statement, rows or passwords."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    primary = _diagnosis(error, "message_primary")
    text = " ".join(str(primary or origin or type(origin).__name__).split())
    text = re.sub(r"(://[^:@/\s]*:)\S*(@)", r"\1***\2", text)
    state = sqlstate(error)
    return f"{text} (SQLSTATE {state})" if state else text


def table_of(error: BaseException) -> tuple[str | None, str | None]:
    """Return schema and table that the server names in its error."""
    return _diagnosis(error, "schema_name"), _diagnosis(error, "table_name")


def verdict_of(error: BaseException, owner: Owner, answers: Answers | None = None) -> Fault:
    """Return who is at fault. `answers` is called only if it decides (W1, trouble of a store); without it, a code about
    connections is believed.
    """
    state = sqlstate(error)
    origin = error.orig if isinstance(error, DBAPIError) else error
    if state is not None:
        verdict = verdict_on(state, owner)
    elif isinstance(origin, psycopg2.ProgrammingError | psycopg2.DataError | psycopg2.NotSupportedError):
        verdict = of_owner(CLIENT, owner)
    elif isinstance(error, SQLAlchemyError | psycopg2.Error):
        verdict = of_owner(BROKEN_CONNECTION, owner)
    else:
        verdict = of_owner(CLIENT, owner)
    if verdict is Fault.LOCK and _diagnosis(error, "source_function") not in (None, _LOCK_TIMED_OUT):
        # W1: raised by a trigger, or for a lock without a wait: neither proves that somebody holds the lock.
        return Fault.STORE
    if verdict is Fault.BROKEN:
        return Fault.DATA if answers is not None and answers() else Fault.STORE
    return verdict


def translate(error: Exception, doing: str, *, committing: bool = False) -> TxtopoError:
    """Return the typed error for a statement on schema txtopo that failed while `doing`. `committing`: COMMIT had been
    sent.
    """
    state = sqlstate(error)
    message = f"{doing}: {one_line(error)}"
    if committing and is_unknown(error):
        return PostgresUnavailable(message, definite=False)
    if is_of_ledger(error):
        return _refused_by_ledger(message)
    if state == UNIQUE_VIOLATION and table_of(error) == ("txtopo", "attempt"):
        return InvariantBroken(f"an attempt id is used again: {message}")
    if state in NOT_MIGRATED:
        remedy = "run `txtopo migrate`, which also says whether a newer release migrated it"
        return ConfigurationError(f"{message}; schema txtopo is missing or old: {remedy}")
    if state == INSUFFICIENT_PRIVILEGE:
        return ConfigurationError(f"{message}; grant the role the missing privilege")
    verdict = verdict_of(error, Owner.LEDGER)
    if verdict is Fault.BUG:
        return InvariantBroken(message)
    if verdict in (Fault.STORE, Fault.LOCK, Fault.ONCE):
        return PostgresUnavailable(message, patience=_PATIENCE.get(verdict, "store"))
    return Halted(f"Postgres refuses: {message}", next_command=RUN_AGAIN)


def translate_apply(
    error: Exception,
    committer: str,
    txid: int,
    *,
    ledger_held: bool,
    answers: Answers | None = None,
    compare: Callable[[], str | None] | None = None,
) -> TxtopoError:
    """Return the typed error for a failed apply of a committer's rows. `compare` returns what is wrong with its
    tables.
    """
    if (refused := _refusal(error, txid, ledger_held=ledger_held)) is not None:
        return refused
    if table_of(error) == ("txtopo", "committer_count") and (sqlstate(error) or "").startswith(CONSTRAINT_VIOLATION):
        return _data(error, committer, f"committer {committer}: {_numbers(error)}")
    verdict = verdict_of(error, Owner.TARGET, answers)
    if verdict is Fault.DATA:
        # P14: NUL and lone surrogates are refused by the client, in Python, without an SQLSTATE.
        reason = "text with a lone surrogate" if isinstance(error, UnicodeEncodeError) else one_line(error)
        return _data(error, committer, f"committer {committer}: its rows do not fit the table: {reason}")
    wrong = compare() if verdict is Fault.HALT and compare is not None else None
    return _judged(error, verdict, f"committer {committer} of batch {txid}", txid, committer, wrong)


def translate_user(
    error: Exception, committer: str, txid: int, *, ledger_held: bool, answers: Answers | None = None
) -> TxtopoError:
    """Return the typed error for a statement of a custom committer. The user's code is at fault, unless the store
    is.
    """
    # No trigger refuses the ledger row that may be sent first: what one refuses here, the user's statement did.
    if not is_of_ledger(error) and (refused := _refusal(error, txid, ledger_held=ledger_held)) is not None:
        return refused
    verdict = verdict_of(error, Owner.CUSTOM, answers)
    if verdict is Fault.DATA:
        # The statement timeout ended it while user code held the database transaction; a retry would end in the same
        # way.
        more = f"; a statement may take {STATEMENT_TIMEOUT_MS // 1000} s" if sqlstate(error) == QUERY_CANCELED else ""
        return _data(error, committer, f"committer {committer}: {one_line(error)}{more}")
    return _judged(error, verdict, f"committer {committer} of batch {txid}", txid, committer)


def translate_kept(
    error: Exception, kept: str, component: str, txid: int, *, answers: Answers | None = None
) -> TxtopoError:
    """Return the typed error for records that no committer counts and that could not be stored: rejected records, dead
    letters, counts of edges.
    """
    if (refused := _refusal(error, txid)) is not None:
        return refused
    verdict = verdict_of(error, Owner.TARGET, answers)
    if verdict is Fault.DATA:
        whose = "" if component == EDGES else "spout "
        return _data(error, component, f"{whose}{component}: its {kept} cannot be kept: {one_line(error)}")
    return _judged(error, verdict, f"keeping the {kept} of batch {txid}", txid, component)


def translate_commit(
    error: Exception, committers: str, txid: int, doing: str | None = None, *, answers: Answers | None = None
) -> TxtopoError:
    """Return the typed error for a COMMIT of batch `txid`, or of a commit run that it begins: its outcome is unknown
    (R7), or a deferred constraint or trigger, of txtopo or of a user's table, refused it.
    """
    doing = doing or f"COMMIT of batch {txid}"
    if is_unknown(error) or is_of_ledger(error) or table_of(error)[0] == "txtopo":
        return translate(error, doing, committing=True)
    verdict = verdict_of(error, Owner.TARGET, answers)
    if verdict is Fault.DATA:
        return _data(error, committers, f"{doing}: a deferred constraint or trigger refuses it: {one_line(error)}")
    return _judged(error, verdict, doing, txid, committers)


def _judged(
    error: Exception, verdict: Fault, doing: str, txid: int, component: str, wrong: str | None = None
) -> TxtopoError:
    """The error for a verdict that is not about data."""
    message = f"{doing}: {one_line(error)}"
    if verdict is Fault.BUG:
        return InvariantBroken(message)
    if verdict is Fault.HALT:
        return NoBatchAtFault(
            f"{message}{f'; {wrong}' if wrong else ''}",
            txid=txid,
            component=component,
            next_command=f"create or grant what is missing; {RUN_AGAIN}",
        )
    return PostgresUnavailable(message, patience=_PATIENCE.get(verdict, "store"))


def _data(error: Exception, component: str, message: str) -> TxtopoError:
    place = _diagnosis(error, "constraint_name") or _diagnosis(error, "column_name") or _diagnosis(error, "table_name")
    kind = sqlstate(error) or type(error).__name__
    return BatchDataError(
        message, component=component, detail=_diagnosis(error, "message_detail"), cause=cause_of(component, kind, place)
    )


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """Raise errors of statements on schema txtopo as errors of txtopo. When one is raised here, nothing was
    committed.
    """
    try:
        yield
    except (SQLAlchemyError, psycopg2.Error) as error:
        raise translate(error, doing) from error


def _diagnosis(error: BaseException, name: str) -> str | None:
    """A part of the server's diagnosis."""
    diagnosis: Any = getattr(getattr(error, "orig", error), "diag", None)
    return getattr(diagnosis, name, None)


def is_of_ledger(error: BaseException) -> bool:
    """True if a function of schema txtopo raised it. The words alone do not prove it: a user's trigger may quote a
    value of the batch.
    """
    if sqlstate(error) != RAISED or not one_line(error).startswith("txtopo:"):
        return False
    context = _diagnosis(error, "context")
    return context is None or _RAISED_BY_TXTOPO.search(context.partition("\n")[0]) is not None


def _refusal(error: Exception, txid: int, *, ledger_held: bool = False) -> TxtopoError | None:
    """W2: return the error if the ledger refuses what a statement for this batch does, whatever else the statement
    does; None if it is not of the ledger. `ledger_held`: a ledger row was sent with the statement.
    """
    message = f"batch {txid}: {one_line(error)}"
    if is_of_ledger(error):
        return _refused_by_ledger(message, txid)
    if ledger_held and table_of(error) == ("txtopo", "ledger"):
        return Halted(f"the ledger refuses {message}", txid=txid, next_command=RESTORE)
    return None


def _refused_by_ledger(message: str, txid: int | None = None) -> TxtopoError:
    stale = _STALE_PLAN.search(message)
    if stale is not None and stale[2] != stale[3]:
        return Fenced(message)
    if "would go back" in message or "may not" in message:
        return InvariantBroken(message)
    return Halted(f"the ledger refuses: {message}", txid=txid, next_command=RESTORE)


def _numbers(error: Exception) -> str:
    """The four numbers in `Failing row contains (topology, txid, committer, arrived, …)`, as a sentence."""
    detail = getattr(getattr(getattr(error, "orig", error), "diag", None), "message_detail", None) or ""
    values = re.findall(r"[^,()]+", detail.partition("(")[2])
    if len(values) < 8:
        return f"its numbers disagree: {one_line(error)}"
    arrived, counted, results, written, ignored = (value.strip() for value in values[3:8])
    return describe_counts(arrived, counted, results, written, ignored)
