"""One timeline of a topology from the rows of several tables: attempts, plans, batches, orders, actions, the last
leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from sqlalchemy import Connection

from txtopo.reports.interventions import backfills_of, committer_of, txids_of
from txtopo.reports.list_batches import one, rows

EventKind = Literal[
    "leader_started",
    "leader_ended",
    "order_given",
    "order_done",
    "order_refused",
    "planned",
    "attempt_begun",
    "attempt_failed",
    "attempt_cancelled",
    "committed",
    "quarantined",
    "action",
]
"""Events of the same moment are in this order."""

LATE_TXIDS = 100
"""While following: number of batches below the last one that are read again, since the end of an attempt may be
recorded after the commit of its batch.
"""
LATE_S = 60
"""The same for orders, which are answered in any order, and for actions."""
AT_ONCE_MAX = 10_000
"""Maximum number of rows of a table in one read while following: more than can arrive between two reads."""
_ALL = 2**63 - 1
_RANKS = {kind: rank for rank, kind in enumerate(get_args(EventKind))}

NOW = """
select f.last_txid, clock_timestamp() as now, t.state, t.host, t.pid, t.epoch, t.started_at, t.heartbeat_at, t.reason,
  t.halted_txid
  from txtopo.fence f left join txtopo.topology t using (topology) where f.topology = :topology
"""

PLANS = """
select txid, cut, created_at, epoch from txtopo.plan
 where topology = :topology and txid between :low and :high order by txid desc, cut desc limit :rows
"""

ATTEMPTS = """
select txid, attempt, epoch, state, alone, kind, component, position, message, host, started_at, ended_at from
  txtopo.attempt
 where topology = :topology and txid between :low and :high
 order by coalesce(ended_at, started_at) desc, txid desc, attempt desc limit :rows
"""
"""Batches whose attempts changed last: an old batch may be tried for days."""

_BATCH = """
select txid, state, attempt, epoch, read, rejected, reason, redo_of, (to_jsonb(l) ->> 'backfills')::bigint as backfills,
  to_jsonb(l) ->> 'committer' as committer, committed_at
  from txtopo.ledger l"""

LEDGER = f"""{_BATCH}
 where topology = :topology and txid > 0 and txid between :low and :high order by txid desc limit :rows
"""

REDOS = f"""{_BATCH}
 where topology = :topology and redo_of = :high order by txid desc limit :rows
"""

FILLED_BY = f"""{_BATCH}
 where topology = :topology and backfills = :txid and backfills is not null and state = 'applied' order by txid desc
 limit :rows
"""

ORDERS = """
select request_id as order_id, kind, arguments, reason, actor, host, created_at, state, answer, done_at
  from txtopo.request
 where topology = :topology
   and (cast(:txid as bigint) is null or arguments -> 'txids' @> to_jsonb(cast(:txid as bigint))
        or request_id in (select a.request_id from txtopo.action a where a.topology = :topology and a.txid = :txid))
   and (cast(:since as timestamptz) is null or state = 'open' or done_at >= :since)
 order by coalesce(done_at, created_at) desc, request_id desc limit :rows
"""

ACTIONS = """
select action_id, at, actor, host, command, reason, request_id as order_id, txid, before, after from txtopo.action
 where topology = :topology and (cast(:txid as bigint) is null or txid = :txid) and (cast(:since as timestamptz) is
 null or at >= :since)
 order by action_id desc limit :rows
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """Something that happened."""

    at: datetime
    kind: EventKind
    txid: int | None = None
    attempt: int | None = None
    order_id: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that depend on the kind; unknown ones are missing."""
    identity: tuple[object, ...] = field(default=(), metadata={"in_tables": False})
    """Identifies the event, also when it is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The range of rows that are read."""

    topology: str
    txid: int | None
    low: int
    high: int
    since: datetime | None
    rows: int

    @property
    def bound(self) -> dict[str, Any]:
        """Return the bound values of the statements."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


class Timeline:
    """Reads the events of a topology, or of one of its batches, and returns each event once."""

    def __init__(self, topology: str, txid: int | None = None) -> None:
        self._topology = topology
        self._txid = txid
        self._seen: frozenset[tuple[object, ...]] = frozenset()
        self._next: tuple[int, datetime] | None = None
        """First txid and first time of the next read."""

    def last(self, connection: Connection, limit: int, *, is_followed: bool = False) -> list[TimelineEvent] | None:
        """Return the last `limit` events, oldest first; None if the topology is unknown. `is_followed`: `new` will be
        called afterwards.
        """
        now = one(connection, NOW, topology=self._topology)
        if now is None:
            return None
        # Events after the commit of a batch concern higher txids: the ledger is in order.
        depth = max(limit, LATE_TXIDS) if is_followed else limit
        low = max(1, now["last_txid"] - depth + 1)
        return self._look(connection, now, low, None, AT_ONCE_MAX if is_followed else limit)[-limit:]

    def new(self, connection: Connection) -> list[TimelineEvent]:
        """Return events that no earlier read returned, oldest first."""
        now = one(connection, NOW, topology=self._topology)
        if now is None or self._next is None:
            return []
        return self._look(connection, now, *self._next, AT_ONCE_MAX)

    def _look(
        self, connection: Connection, now: Mapping[Any, Any], low: int, since: datetime | None, limit: int
    ) -> list[TimelineEvent]:
        window = _Window(
            topology=self._topology,
            txid=self._txid,
            low=self._txid or low,
            high=self._txid or _ALL,
            since=since,
            rows=limit,
        )
        found = sorted(
            _events(connection, now, window), key=lambda event: (event.at, _RANKS[event.kind], event.txid or 0)
        )
        fresh = [event for event in found if event.identity not in self._seen]
        self._seen = frozenset(event.identity for event in found)
        self._next = (max(1, now["last_txid"] - LATE_TXIDS + 1), now["now"] - timedelta(seconds=LATE_S))
        return fresh


def _events(connection: Connection, now: Mapping[Any, Any], window: _Window) -> Iterator[TimelineEvent]:
    if window.txid is None:
        yield from _of_leader(now)
    else:
        for row in rows(connection, REDOS, **window.bound):
            yield _of_batch(row)
        for row in backfills_of(connection, FILLED_BY, window.topology, window.txid, rows=window.rows):
            yield _of_batch(row)
    for row in rows(connection, PLANS, **window.bound):
        yield TimelineEvent(
            at=row["created_at"],
            kind="planned",
            txid=row["txid"],
            facts={"epoch": row["epoch"]},
            identity=("planned", row["txid"], row["cut"]),
        )
    for row in rows(connection, ATTEMPTS, **window.bound):
        yield from _of_attempt(row)
    for row in rows(connection, LEDGER, **window.bound):
        yield _of_batch(row)
    for row in rows(connection, ORDERS, **window.bound):
        yield from _of_order(row)
    for row in rows(connection, ACTIONS, **window.bound):
        facts = _known(row, "action_id", "command", "actor", "host", "reason", "before", "after")
        yield TimelineEvent(
            at=row["at"],
            kind="action",
            txid=row["txid"],
            order_id=row["order_id"],
            facts=facts,
            identity=("action", row["action_id"]),
        )


def _of_leader(now: Mapping[Any, Any]) -> Iterator[TimelineEvent]:
    """Return the event of the last leader only: each takeover overwrites what the previous one recorded."""
    if now["state"] is None:
        return
    who = _known(now, "host", "pid", "epoch")
    identity = (now["epoch"], now["started_at"])
    yield TimelineEvent(at=now["started_at"], kind="leader_started", facts=who, identity=("leader_started", *identity))
    if now["state"] != "running":
        yield TimelineEvent(
            at=now["heartbeat_at"],
            kind="leader_ended",
            txid=now["halted_txid"],
            facts={**who, **_known(now, "state", "reason")},
            identity=("leader_ended", *identity),
        )


def _of_attempt(row: Mapping[Any, Any]) -> Iterator[TimelineEvent]:
    """Return the begin of an attempt and, unless it was applied, its end: the commit of the batch shows which attempt
    was applied.
    """
    txid, attempt = row["txid"], row["attempt"]
    facts = {**_known(row, "epoch", "host"), **({"alone": True} if row["alone"] else {})}
    yield TimelineEvent(
        at=row["started_at"],
        kind="attempt_begun",
        txid=txid,
        attempt=attempt,
        facts=facts,
        identity=("attempt_begun", txid, attempt),
    )
    if row["state"] in ("failed", "cancelled"):
        yield TimelineEvent(
            at=row["ended_at"],
            kind="attempt_failed" if row["state"] == "failed" else "attempt_cancelled",
            txid=txid,
            attempt=attempt,
            facts=_known(row, "epoch", "kind", "component", "position", "message"),
            identity=("attempt_ended", txid, attempt),
        )


def _of_batch(row: Mapping[Any, Any]) -> TimelineEvent:
    return TimelineEvent(
        at=row["committed_at"],
        kind="quarantined" if row["state"] == "quarantined" else "committed",
        txid=row["txid"],
        attempt=row["attempt"],
        facts=_known(row, "epoch", "read", "rejected", "reason", "redo_of", "backfills", "committer"),
        identity=("batch", row["txid"]),
    )


def _of_order(row: Mapping[Any, Any]) -> Iterator[TimelineEvent]:
    order = {"order": row["kind"], "txids": list(txids_of(row["arguments"]))}
    committer = committer_of(row["arguments"])
    if committer is not None:
        order["committer"] = committer
    order_id = row["order_id"]
    yield TimelineEvent(
        at=row["created_at"],
        kind="order_given",
        order_id=order_id,
        facts={**order, **_known(row, "actor", "host", "reason")},
        identity=("order_given", order_id),
    )
    if row["done_at"] is not None:
        yield TimelineEvent(
            at=row["done_at"],
            kind="order_done" if row["state"] == "done" else "order_refused",
            order_id=order_id,
            facts={**order, **_known(row, "answer")},
            identity=("order_answered", order_id),
        )


def _known(row: Mapping[Any, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names if row[name] is not None}
