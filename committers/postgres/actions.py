"""Rows of the action log, and the orders that caused them. The caller has begun the database transaction."""

from __future__ import annotations

import json
import platform
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.storable_text import storable_json, storable_or_none
from txtopo.committers.postgres.transactions import run
from txtopo.core.values import ActionRecord, Order
from txtopo.errors import invariant


def append_action(connection: Connection, topology: str, action: ActionRecord) -> None:
    """Append one row. Actor, host and reason are those of the order, if the action belongs to one. Raises
    InvariantBroken if the topology has no such order.
    """
    written = run(connection, "append_action", **_values(topology, action), order_id=action.order_id).rowcount
    invariant(written == 1, f"{action.command} names order {action.order_id}, which topology {topology} never received")


def log_action(connection: Connection, topology: str, action: ActionRecord) -> None:
    """Append one row that belongs to no order, unless the newest row of its command says the same."""
    run(connection, "log_action", **_values(topology, action))


def _values(topology: str, action: ActionRecord) -> dict[str, Any]:
    return {
        "topology": topology,
        "actor": "leader",
        "host": platform.node() or "unknown",
        "command": action.command,
        "reason": storable_or_none(action.reason),
        "txid": action.txid,
        "before": storable_json(action.before),
        "after": storable_json(action.after),
    }


def order_of(row: Any) -> Order:
    """Return an order from its row: id, kind, arguments, reason, progress, acted. The schema ensures that txids are
    numbers.
    """
    order_id, kind, arguments, reason, progress, acted = row
    return Order(
        order_id=order_id,
        kind=kind,
        txids=tuple(int(txid) for txid in json.loads(arguments).get("txids", ())),
        committer=json.loads(arguments).get("committer"),
        reason=reason,
        progress=json.loads(progress),
        acted=acted,
    )
