"""What people and leaders did about a batch (redos, orders, rows of the action log), and the source records that it
rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import RowMapping

from txtopo.reports import report_statements
from txtopo.reports.list_batches import rows, tried_states
from txtopo.reports.model import ActionRow, BackfillLink, DeadLetterRow, OrderRow, RedoLink, RejectedRecord
from txtopo.reports.stored_plans import stored_plan

RAW_SHOWN_BYTES_MAX = 2000
"""Bytes of each rejected record; the complete record is in its file."""

_REDOS = """
select txid, redo_of, state from txtopo.ledger where topology = :topology and redo_of is not null order by txid
"""


@dataclass(frozen=True, slots=True)
class Redos:
    """All redos of a topology."""

    first: dict[int, int]
    """Txid of a redo -> the batch at the head of its family."""
    applied: dict[int, int]
    """Batch at the head of a family -> its last applied redo."""

    def applied_for(self, txid: int) -> int | None:
        """Return the applied redo that counts instead of this batch, possibly the batch itself; None: no redo of its
        family was applied.
        """
        return self.applied.get(self.first.get(txid, txid))


def read_redos(connection: Connection, topology: str) -> Redos:
    """Return all redos, read from the ledger through the index of redos."""
    found = Redos({}, {})
    for row in rows(connection, _REDOS, topology=topology):  # In txid order: a batch comes before its redos.
        head = found.first[row["txid"]] = found.first.get(row["redo_of"], row["redo_of"])
        if row["state"] == "applied":
            found.applied[head] = row["txid"]
    return found


def txids_of(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the txids of an order, from its arguments; rows written by hand may contain anything."""
    found = arguments.get("txids") if isinstance(arguments, Mapping) else None
    return tuple(txid for txid in found if isinstance(txid, int)) if isinstance(found, list) else ()


def committer_of(arguments: Mapping[str, Any]) -> str | None:
    """Return the committer that an order names, from its arguments."""
    found = arguments.get("committer") if isinstance(arguments, Mapping) else None
    return found if isinstance(found, str) else None


def links_of(
    connection: Connection, topology: str, txid: int, last_txid: int
) -> tuple[tuple[RedoLink, ...], tuple[BackfillLink, ...]]:
    """Return the batches that redo this one, and the backfills that count it: those in the ledger, then those
    planned.
    """
    redos = [RedoLink(**row) for row in rows(connection, report_statements.REDOS, topology=topology, txid=txid)]
    backfills = [BackfillLink(**row) for row in backfills_of(connection, report_statements.FILLED_BY, topology, txid)]
    plans = rows(connection, report_statements.OPEN_PLAN_BYTES, topology=topology, last=last_txid)
    planned = [plan for row in plans if (plan := stored_plan(row["bytes"])) and txid in (plan.redo_of, plan.backfills)]
    tried = tried_states(connection, topology, last_txid) if planned else {}
    for plan in planned:
        state = tried.get(plan.txid, "planned")
        if plan.committer is None:
            redos.append(RedoLink(txid=plan.txid, state=state))
        else:
            backfills.append(BackfillLink(txid=plan.txid, committer=plan.committer, state=state))
    return tuple(redos), tuple(backfills)


def backfills_of(
    connection: Connection, statement: str, topology: str, txid: int, **values: object
) -> Sequence[RowMapping]:
    """Return the rows of a statement about the backfills that count this batch; none on the schema of an earlier
    release.
    """
    (known,) = rows(connection, report_statements.KNOWS_BACKFILLS)
    return rows(connection, statement, topology=topology, txid=txid, **values) if known["known"] else ()


def rejected_rows(connection: Connection, topology: str, txid: int, limit: int | None) -> tuple[RejectedRecord, ...]:
    """Return rejected records in the order of spout, file and line, at most `limit`; None: all."""
    found = rows(
        connection,
        report_statements.REJECTED_ROWS,
        topology=topology,
        txid=txid,
        raw_bytes_max=RAW_SHOWN_BYTES_MAX,
        limit=limit,
    )
    return tuple(
        RejectedRecord(**{**row, "raw": bytes(row["raw"]).decode("utf-8", "backslashreplace")}) for row in found
    )


def dead_letters(connection: Connection, topology: str, txid: int, limit: int | None) -> tuple[DeadLetterRow, ...]:
    """Return dead letters in the order of spout and position, at most `limit`; None: all."""
    bound = {"topology": topology, "txid": txid, "raw_bytes_max": RAW_SHOWN_BYTES_MAX, "limit": limit}
    return tuple(
        DeadLetterRow(**{**row, "raw": bytes(row["raw"]).decode("utf-8", "backslashreplace")})
        for row in rows(connection, report_statements.DEAD_LETTERS, **bound)
    )


def actions_about(connection: Connection, topology: str, txid: int) -> tuple[ActionRow, ...]:
    """Return the rows of the action log about this batch, oldest first."""
    return tuple(
        ActionRow(**row) for row in rows(connection, report_statements.ACTIONS_ABOUT, topology=topology, txid=txid)
    )


def orders_about(
    connection: Connection, topology: str, txid: int, actions: Sequence[ActionRow]
) -> tuple[OrderRow, ...]:
    """Return the orders that name this batch, or that caused one of the actions, oldest first."""
    ids = sorted({action.order_id for action in actions if action.order_id is not None})
    found = rows(connection, report_statements.ORDERS_ABOUT, topology=topology, txid=txid, order_ids=ids)
    return tuple(order_row(dict(row)) for row in found)


def read_orders(
    connection: Connection, topology: str, *, state: str | None = None, order_id: int | None = None, limit: int = 100
) -> list[OrderRow]:
    """Return the newest orders of a topology first, at most `limit`; those in this state, or the one with this id."""
    bound = {"topology": topology, "state": state, "order_id": order_id, "limit": limit}
    return [order_row(dict(row)) for row in rows(connection, report_statements.ORDERS_OF, **bound)]


def order_row(row: Mapping[str, Any]) -> OrderRow:
    """Return a row of `txtopo.request` as a value."""
    given = row["arguments"]
    named = {name: row[name] for name in row if name != "arguments"}
    return OrderRow(txids=txids_of(given), committer=committer_of(given), **named)
