"""Operators' orders: places an order, follows it until a leader has answered, and withdraws it."""

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
"""Seconds between two reads of an order."""
LEADERLESS_S = 5.0
"""Seconds without a live leader after which following ends. Within them a leader may take its lead again, or a standby
may take over.
"""
TOLD_MAX = 1000
"""Largest number of attempts and of commits that following an order reports."""

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


class OrderOpenError(TxtopoError):
    """The order is placed and still open: no process has carried it out yet."""

    exit_code = 3


class RefusedError(TxtopoError):
    """The order was refused, or it failed again."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOrder:
    """An order of an operator to the leader of a topology, before it is placed."""

    topology: str
    kind: OrderKind
    txids: tuple[int, ...] = ()
    """The batches that it concerns; empty if its kind concerns the whole topology."""
    reason: str | None = None
    committer: str | None = None
    """The committer that a backfill fills."""

    @property
    def arguments(self) -> str:
        """The JSON that is stored in the order's row."""
        committer = {} if self.committer is None else {"committer": self.committer}
        return json.dumps({**({"txids": list(self.txids)} if self.txids else {}), **committer})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An order in its table."""

    order_id: int
    is_new: bool
    """False: the same order was open already, and is followed instead of placed twice."""
    reason: str | None = None
    """Reason of the order that was open already; it remains."""
    actor: str | None = None
    """Who placed that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How following an order ended."""

    order: OrderRow | None
    """The last state of the order; None: its row does not exist."""
    status: TopologyStatus | None
    """The last state of its topology."""

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
    """Place the order in the name of this account and host, or find the same order that is open. Returns it."""
    values = {"topology": order.topology, "kind": order.kind, "arguments": order.arguments}
    with _writing(dsn) as connection:
        connection.execute(text(_LOCK), {"topology": order.topology})
        there = connection.execute(text(_OPEN), values).one_or_none()
        if there is not None:
            return Placed(order_id=int(there[0]), is_new=False, reason=there[1], actor=there[2])
        given = {**values, "reason": storable_or_none(order.reason), "actor": _user(), "host": socket.gethostname()}
        return Placed(order_id=int(connection.execute(text(_PLACE), given).scalar_one()), is_new=True)


def withdraw(dsn: str, order_id: int, why: str) -> None:
    """Close an order that is open, so that no leader carries it out later."""
    with _writing(dsn) as connection:
        connection.execute(text(_WITHDRAW), {"order_id": order_id, "answer": why})


def look(dsn: str, topology: str, order_id: int) -> Followed:
    """Return the order and its topology as they are now."""
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
    """Wait until the order is answered, no leader has been alive for `leaderless_s` seconds, the topology has halted,
    or `timeout_s` is over. Returns how it ended.

    `tell` may read in the snapshot of each read.
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
    """Reports what happens to the batches of an order, each event once. Events before it was created are not
    reported.
    """

    def __init__(self, connection: Connection, topology: str, txids: Sequence[int], say: Callable[[str], None]) -> None:
        self._topology = topology
        self._txids = list(txids)
        self._say = say
        self._told = set(self._lines(connection))

    def __call__(self, connection: Connection) -> None:
        """Report what is new."""
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
    """One database transaction that may write. It raises the same errors as reading."""
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
