"""Operators' orders: places one, follows it until a leader has answered, and withdraws it."""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.connect import make_engine
from txtopo.committers.postgres.storable_text import storable_or_none
from txtopo.core.values import OrderKind
from txtopo.errors import TxtopoError
from txtopo.reports.interventions import read_orders
from txtopo.reports.list_batches import rows
from txtopo.reports.model import OrderRow, TopologyStatus
from txtopo.reports.read import read_topologies, reading, reading_error

POLL_S = 0.5
"""Seconds between two looks at an order."""
LEADERLESS_S = 5.0
"""Seconds without a living leader after which an order is given up on: a leader may take its lead anew, a standby may
follow it.
"""
TOLD_MAX = 1000
"""Attempts and commits that following an order tells of, at most."""

_LOCK = "select pg_advisory_xact_lock(hashtextextended('txtopo/order/' || :topology, 0))"
"""Two commands at the same moment place one order."""
_OPEN = """
select request_id, reason, actor from txtopo.request
 where topology = :topology and kind = :kind and state = 'open' and arguments = cast(:arguments as jsonb) order by
 request_id desc limit 1
"""
_PLACE = """
insert into txtopo.request (topology, kind, arguments, reason, actor, host)
values (:topology, :kind, cast(:arguments as jsonb), :reason, :actor, :host) returning request_id
"""
_WITHDRAW = """
update txtopo.request set state = 'refused', answer = :answer, done_at = clock_timestamp()
 where request_id = :order_id and state = 'open'
"""
_ATTEMPTS = """
select txid, attempt, state, message from txtopo.attempt
 where topology = :topology and txid = any(cast(:txids as bigint[])) order by txid, attempt limit :limit
"""
_COMMITTED = """
select txid, state, redo_of, reason from txtopo.ledger
 where topology = :topology and (txid = any(cast(:txids as bigint[])) or redo_of = any(cast(:txids as bigint[])))
 order by txid limit :limit
"""


class OrderStandsError(TxtopoError):
    """The order was given, and nobody has carried it out yet."""

    exit_code = 3


class RefusedError(TxtopoError):
    """What was asked for may not be done, or failed again."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOrder:
    """What an operator wants of a topology's leader, before it is placed."""

    topology: str
    kind: OrderKind
    txids: tuple[int, ...] = ()
    """What it is about; none where the kind speaks of the whole topology."""
    reason: str | None = None

    @property
    def arguments(self) -> str:
        """As it stands in the order's row: JSON."""
        return json.dumps({"txids": list(self.txids)} if self.txids else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An order in its table."""

    order_id: int
    is_new: bool
    """False: the same was open already, and is followed instead of doubled."""
    reason: str | None = None
    """Of the one that was open already: it is kept."""
    actor: str | None = None
    """Who gave that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How following an order ended."""

    order: OrderRow | None
    """As it stood last; None: the row is gone."""
    status: TopologyStatus | None
    """Of its topology, as it stood last."""

    @property
    def is_answered(self) -> bool:
        """True if a leader has closed it."""
        return self.order is None or self.order.state != "open"

    @property
    def is_led(self) -> bool:
        """True if a leader was alive at the end."""
        return self.status is not None and self.status.is_led

    @property
    def is_halted(self) -> bool:
        """True if the topology waits for an operator."""
        return self.status is not None and self.status.state == "HALTED"


def place(dsn: str, order: NewOrder) -> Placed:
    """Give the order in the name of this account and host, or find the same one that is open."""
    values = {"topology": order.topology, "kind": order.kind, "arguments": order.arguments}
    with _writing(dsn) as connection:
        connection.execute(text(_LOCK), {"topology": order.topology})
        there = connection.execute(text(_OPEN), values).one_or_none()
        if there is not None:
            return Placed(order_id=int(there[0]), is_new=False, reason=there[1], actor=there[2])
        given = {**values, "reason": storable_or_none(order.reason), "actor": _user(), "host": socket.gethostname()}
        return Placed(order_id=int(connection.execute(text(_PLACE), given).scalar_one()), is_new=True)


def withdraw(dsn: str, order_id: int, why: str) -> None:
    """Close an order that is still open, so that no later leader carries it out."""
    with _writing(dsn) as connection:
        connection.execute(text(_WITHDRAW), {"order_id": order_id, "answer": why})


def look(dsn: str, topology: str, order_id: int) -> Followed:
    """The order and its topology as they stand now."""
    with reading(dsn) as connection:
        return _look(connection, topology, order_id)


def follow(
    dsn: str,
    topology: str,
    order_id: int,
    *,
    timeout_s: float,
    leaderless_s: float = 0.0,
    tell: Callable[[Connection], None] | None = None,
) -> Followed:
    """Wait until the order is answered, no leader was alive for `leaderless_s`, the topology has halted, or the time is
    up.

    `tell` may read in each look's snapshot.
    """
    now = time.monotonic()
    deadline, led_at = now + timeout_s, now
    while True:
        with reading(dsn) as connection:
            found = _look(connection, topology, order_id)
            if tell is not None:
                tell(connection)
        now = time.monotonic()
        led_at = now if found.is_led else led_at
        is_left = not found.is_led and (found.is_halted or now - led_at >= leaderless_s)
        if found.is_answered or is_left or now >= deadline:
            return found
        time.sleep(min(POLL_S, max(0.0, deadline - now)))


class OrderFollower:
    """Says what happens to the batches of an order, each thing once; what had happened before it was made is left
    out.
    """

    def __init__(self, connection: Connection, topology: str, txids: Sequence[int], say: Callable[[str], None]) -> None:
        self._topology = topology
        self._txids = list(txids)
        self._say = say
        self._told = set(self._lines(connection))

    def __call__(self, connection: Connection) -> None:
        """Look again."""
        for line in self._lines(connection):
            if line not in self._told:
                self._told.add(line)
                self._say(line)

    def _lines(self, connection: Connection) -> Iterator[str]:
        named = {"topology": self._topology, "txids": self._txids, "limit": TOLD_MAX}
        for row in rows(connection, _ATTEMPTS, **named):
            if row["state"] in ("begun", "failed"):
                why = f": {row['message']}" if row["message"] else ""
                yield f"batch {row['txid']}: attempt {row['attempt']} {row['state']}{why}"
        for row in rows(connection, _COMMITTED, **named):
            instead = f" in place of batch {row['redo_of']}" if row["redo_of"] else ""
            why = f": {row['reason']}" if row["reason"] else ""
            yield f"batch {row['txid']}: {'committed' if row['state'] == 'applied' else row['state']}{instead}{why}"


def _look(connection: Connection, topology: str, order_id: int) -> Followed:
    status = read_topologies(connection, topology)
    order = read_orders(connection, topology, order_id=order_id)
    return Followed(order=order[0] if order else None, status=status[0] if status else None)


@contextmanager
def _writing(dsn: str) -> Iterator[Connection]:
    """One database transaction that may write; its errors are those of reading."""
    engine = make_engine(dsn, "txtopo/order", pooled=False)
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise reading_error(error, dsn) from error
    finally:
        engine.dispose()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        return "unknown"
