"""Runs the code of a custom committer in the driver, and turns its exceptions into data failures that name the line."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from txtopo.committers.protocol.result_order import tuples_of
from txtopo.committers.protocol.user_transaction import UserTransaction
from txtopo.core.values import CommitterResult, cause_of
from txtopo.errors import BatchDataError, NoBatchAtFault, TxtopoError, raise_if_full, unreachable
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector
from txtopo.topology.components import CommitterComponent
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.topology.user_exceptions import is_of_code, said, user_line

DETAIL_CHARACTERS_MAX = 20_000
INSTALL_HERE = "install the module where the driver runs, then start `txtopo run` again"
"""What to do about code that the turn of a batch lacks: it runs in the driver."""


def bolt_of(component: CommitterComponent) -> BatchCommitter:
    """Return the custom committer of this component."""
    bolt = component.bolt
    return bolt if isinstance(bolt, BatchCommitter) else unreachable(f"committer {component.name} is no BatchCommitter")


class NoReaders:
    """Collector of a committer without downstream components."""

    def __init__(self, component: str) -> None:
        self._component = component

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Refused: the rows would be lost."""
        raise BatchDataError(
            f"committer {self._component} emits on stream {stream!r}, which it does not declare",
            component=self._component,
        )


def run_commit(
    component: CommitterComponent,
    result: CommitterResult,
    transaction: UserTransaction,
    collector: CommitCollector | None,
) -> int:
    """Call the driver half with the rows in canonical order; returns the number of rows that it reports as written.

    Raises BatchDataError with the user's line for an exception of its code, the failure of its statement if the data
    did not cause it, NoBatchAtFault if a module is missing.
    """
    bolt, name = bolt_of(component), component.name
    rows = tuples_of(result.rows, component.result_fields, name)
    try:
        written = bolt.commit(transaction, rows, collector or NoReaders(name))
    except BaseException as error:
        if not is_of_code(error):
            raise
        raise_if_full(error)  # of this process, not of the batch's data
        if isinstance(error, ImportError) and transaction.failure is None:
            raise _lacking(name, error, transaction.attempt.txid) from error
        raise own_failure(name, transaction.failure or error) from error
    if transaction.failure is not None:
        # The code went on as if nothing had happened; the database transaction did not (P1).
        raise own_failure(name, transaction.failure)
    return checked_written(name, written, len(rows))


def _lacking(name: str, error: ImportError, txid: int) -> NoBatchAtFault:
    where = user_line(error)
    what = f"committer {name}: {type(error).__name__}: {' '.join(str(error).split())}"
    return NoBatchAtFault(f"{where}: {what}" if where else what, txid=txid, component=name, next_command=INSTALL_HERE)


def checked_written(name: str, written: object, rows: int) -> int:
    """What `commit` returned, as a number of rows: None means all of them."""
    if written is None:
        return rows
    if isinstance(written, bool) or not isinstance(written, int) or not 0 <= written <= rows:
        raise BatchDataError(
            f"committer {name}: commit returned {written!r}; it got {rows} rows, so it is to return a number from 0 "
            f"to {rows}, or None for all",
            component=name,
        )
    return written


def own_failure(name: str, error: BaseException) -> TxtopoError:
    """The failure of the batch for what the code of committer `name` raised. A store that is away stays what it is: not
    the batch's fault.
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
    return BatchDataError(f"{where}: {what}" if where else what, component=component, detail=detail, cause=cause)
