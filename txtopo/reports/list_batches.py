"""Lists batches: their txids first, then the rows of each table, joined here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine import RowMapping

from txtopo.reports import report_statements
from txtopo.reports.model import BatchRow, BatchState, CommitterNumbers

Span = tuple[int | None, int | None]
"""First and last txid; None: open at that end."""


def rows(connection: Connection, statement: str, **values: object) -> Sequence[RowMapping]:
    """Return all rows of a statement."""
    return connection.execute(text(statement), values).mappings().all()


def one(connection: Connection, statement: str, **values: object) -> RowMapping | None:
    """Return the row of a statement that returns at most one."""
    return connection.execute(text(statement), values).mappings().one_or_none()


def list_batches(
    connection: Connection,
    topology: str,
    last_txid: int,
    spans: Sequence[Span],
    state: BatchState | None,
    limit: int,
) -> list[BatchRow]:
    """Return the newest batches within `spans` (empty: all) in this state, or in any, at most `limit`; those above
    `last_txid` are uncommitted.
    """
    picked: list[Mapping[str, Any]] = []
    if state in (None, "planned", "failed"):
        uncommitted = [row for row in _open(connection, topology, last_txid) if state in (None, row["state"])]
        picked += [row for row in uncommitted if not spans or any(_within(row["txid"], span) for span in spans)][:limit]
    if state in (None, "committed", "quarantined"):
        stored = "applied" if state == "committed" else state
        room = limit - len(picked)
        ends = [(first or 1, last_txid if last is None else min(last, last_txid)) for first, last in spans] or [
            (1, last_txid)
        ]
        found = rows(
            connection,
            report_statements.LEDGER_ROWS,
            topology=topology,
            low=min(first for first, _ in ends),
            high=max(last for _, last in ends),
            firsts=[first for first, _ in ends],
            lasts=[last for _, last in ends],
            state=stored,
            limit=room,
        )
        picked += [dict(row) for row in found]
    return _complete(connection, topology, picked)


def _within(txid: int, span: Span) -> bool:
    first, last = span
    return (first or 1) <= txid and (last is None or txid <= last)


def _open(connection: Connection, topology: str, last_txid: int) -> list[Mapping[str, Any]]:
    """Return uncommitted batches, newest first: at most as many as may be pending. An attempt may be known before its
    plan is mirrored.
    """
    planned = [row["txid"] for row in rows(connection, report_statements.OPEN_PLANS, topology=topology, last=last_txid)]
    states = {**dict.fromkeys(planned, "planned"), **tried_states(connection, topology, last_txid)}
    return [{"txid": txid, "state": states[txid]} for txid in sorted(states, reverse=True)]


def tried_states(connection: Connection, topology: str, last_txid: int) -> dict[int, BatchState]:
    """Return the state of each uncommitted batch that was tried, in txid order."""
    tried = rows(connection, report_statements.OPEN_ATTEMPTS, topology=topology, last=last_txid)
    return {row["txid"]: open_state([row["state"]]) for row in tried}


def open_state(attempts: Sequence[str]) -> BatchState:
    """Return the state of an uncommitted batch whose attempts are in these states, in order. A cancelled attempt, for
    example after a halt of another batch, changes nothing.

    >>> open_state(["failed", "cancelled"]), open_state(["failed", "begun"])
    ('failed', 'planned')
    """
    said = [state for state in attempts if state != "cancelled"]
    return "failed" if said[-1:] == ["failed"] else "planned"


def _complete(connection: Connection, topology: str, picked: Sequence[Mapping[str, Any]]) -> list[BatchRow]:
    txids = [row["txid"] for row in picked]
    attempts = _by_txid(rows(connection, report_statements.ATTEMPTS_OF, topology=topology, txids=txids))
    numbers = _by_txid(rows(connection, report_statements.COMMITTERS_OF, topology=topology, txids=txids))
    files = {
        row["txid"]: row["files"]
        for row in rows(connection, report_statements.FILES_OF, topology=topology, txids=txids)
    }
    return [
        BatchRow(
            txid=row["txid"],
            state=row["state"],
            attempts=len(attempts[row["txid"]]),
            failed_attempts=sum(attempt["state"] == "failed" for attempt in attempts[row["txid"]]),
            files=files.get(row["txid"], 0),
            read=row.get("read"),
            rejected=row.get("rejected"),
            redo_of=row.get("redo_of"),
            backfills=row.get("backfills"),
            committer=row.get("committer"),
            committers=tuple(_numbers(item) for item in numbers[row["txid"]]),
            committed_at=row.get("committed_at"),
            duration_s=_duration_s(row, attempts[row["txid"]]),
        )
        for row in picked
    ]


def _by_txid(found: Sequence[RowMapping]) -> defaultdict[int, list[RowMapping]]:
    grouped: defaultdict[int, list[RowMapping]] = defaultdict(list)
    for row in found:
        grouped[row["txid"]].append(row)
    return grouped


def _numbers(row: RowMapping) -> CommitterNumbers:
    return CommitterNumbers(**{name: value for name, value in row.items() if name != "txid"})


def _duration_s(row: Mapping[str, Any], attempts: Sequence[RowMapping]) -> float | None:
    """Return the seconds from the start of the applied attempt to its commit."""
    if row["state"] != "committed":
        return None
    started = [attempt["started_at"] for attempt in attempts if attempt["attempt"] == row["attempt"]]
    return (row["committed_at"] - started[0]).total_seconds() if started else None
