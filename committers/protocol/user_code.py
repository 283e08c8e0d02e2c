"""Runs the code of a custom committer in the driver. Its exceptions become data failures that name the line."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from txtopo.committers.protocol.result_order import tuples_of
from txtopo.committers.protocol.user_transaction import UserTransaction
from txtopo.core.values import CommitterResult, cause_of
from txtopo.errors import BatchDataError, NoBatchAtFault, TxtopoError, raise_if_full
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector
from txtopo.topology.components import CommitterComponent
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.topology.user_exceptions import is_of_code, noted, said, user_line

DETAIL_CHARACTERS_MAX = 20_000
INSTALL_HERE = "install the module where the driver runs, then start `txtopo run` again"
"""The next command if a module is missing during a commit, which runs in the driver."""


def bolt_of(component: CommitterComponent) -> BatchCommitter:
    """Return the custom committer of this component."""
    return component.bolt_as(BatchCommitter)  # type: ignore[type-abstract]


class NoReaders:
    """Collector of a committer without downstream components."""

    def __init__(self, component: str) -> None:
        self._component = component

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Always raises BatchDataError: the tuple would be lost."""
        raise BatchDataError(
            f"committer {self._component} emits on stream {stream!r}, which it does not declare",
            component=self._component,
            fault="undeclared stream",
        )


def run_commit(
    component: CommitterComponent,
    result: CommitterResult,
    transaction: UserTransaction,
    collector: CommitCollector | None,
) -> int:
    """Call the driver half with the rows in canonical order. Returns the number of rows that it reports as written.

    Raises BatchDataError with the user's line for an exception of its code; the error of its statement if the data did
    not cause it; NoBatchAtFault if a module is missing.
    """
    bolt, name = bolt_of(component), component.name
    rows = tuples_of(result.rows, component.result_fields, name)
    try:
        written = bolt.commit(transaction, rows, collector or NoReaders(name))
    except BaseException as error:
        if not is_of_code(error):
            raise
        raise_if_full(error)  # this process is out of memory or disk; the batch is not at fault
        if isinstance(error, ImportError) and transaction.failure is None:
            raise _lacking(name, error, transaction.attempt.txid) from error
        raise user_failure(name, transaction.failure or error) from error
    if transaction.failure is not None:
        # The code continued after a failed statement. The database transaction has failed all the same (P1).
        raise user_failure(name, transaction.failure)
    return checked_written(name, written, len(rows))


def _lacking(name: str, error: ImportError, txid: int) -> NoBatchAtFault:
    where = user_line(error)
    what = f"committer {name}: {type(error).__name__}: {' '.join(str(error).split())}"
    return NoBatchAtFault(f"{where}: {what}" if where else what, txid=txid, component=name, next_command=INSTALL_HERE)


def checked_written(name: str, written: object, rows: int) -> int:
    """Return what `commit` returned as a number of rows; None means all. Raises BatchDataError for anything else."""
    if written is None:
        return rows
    if isinstance(written, bool) or not isinstance(written, int) or not 0 <= written <= rows:
        raise BatchDataError(
            f"committer {name}: commit returned {written!r}; it received {rows} rows, so it must return a number "
            f"from 0 to {rows}, or None for all",
            component=name,
            fault="no number of rows",
        )
    return written


def user_failure(name: str, error: BaseException) -> TxtopoError:
    """Return the failure of the batch for an exception of the code of committer `name`. The error of an unavailable
    store is returned unchanged: the batch is not at fault.
    """
    if isinstance(error, TxtopoError) and not isinstance(error, BatchDataError):
        return error
    where = user_line(error)
    if isinstance(error, BatchDataError):
        what, component, cause = (
            str(error),
            error.component,
            error.cause or cause_of(error.component, type(error).__name__, where),
        )
    else:
        what, component = (
            f"committer {name}: {type(error).__name__}: {' '.join(said(error).split())}".rstrip(": "),
            name,
        )
        cause = cause_of(name, type(error).__name__, where)
    trace = "".join(traceback.format_exception(error))
    detail = trace if len(trace) <= DETAIL_CHARACTERS_MAX else f"{trace[:DETAIL_CHARACTERS_MAX]}\n… (cut)"
    step, values = noted(error)
    message = ": ".join(filter(None, [step, where, what]))
    return BatchDataError(
        f"{message}; on {values}" if values else message, component=component, detail=detail, cause=cause
    )
