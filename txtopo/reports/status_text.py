"""Health of topologies and lists of batches as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txtopo.reports.formatting import (
    NOTHING,
    batches_named,
    clean,
    clip,
    count,
    count_or_nothing,
    counted,
    duration,
    failures_text,
    instant,
    table,
)
from txtopo.reports.model import BatchRow, CommitterNumbers, OpenOrder, TopologyStatus

LAGGING_NAMED = 3
"""Partitions that `status` names where most records wait; its JSON has more."""
INPUTS_CHARS_MAX = 300
"""Characters of the inputs of a failed batch in `status`; `show` has all."""


def status_text(topologies: Sequence[TopologyStatus]) -> str:
    """Return one block per topology; a sentence if there is none."""
    if not topologies:
        return "No topology has run on this database yet. Start one with `txtopo run APP`."
    return "\n\n".join("\n".join(_status_lines(one)) for one in topologies)


def batches_text(topology: str, batches: Sequence[BatchRow]) -> str:
    """Return a table, newest batch first; a sentence if there is none."""
    if not batches:
        return f"{topology} has no such batches."
    committers = sorted({numbers.committer for row in batches for numbers in row.committers})
    again = {
        **({"redo of": _redone} if any(row.redo_of for row in batches) else {}),
        **({"backfill of": _filled} if any(row.backfills for row in batches) else {}),
    }
    header = ["txid", "state", "attempts", "files", "read", "rejected", *again, *committers, "committed at", "duration"]
    rows = [_batch_cells(row, committers, [of(row) for of in again.values()]) for row in batches]
    return table(header, rows, left=("state", "committed at"))


# ----------------------------------------------------------------------------------------------------------------------


def _status_lines(one: TopologyStatus) -> Iterator[str]:
    yield f"{clean(one.topology)}  {one.state}"
    if one.reason:
        named = one.halted_txid is None or f"batch {one.halted_txid}" in one.reason
        yield _fact("reason", one.reason if named else f"batch {one.halted_txid}: {one.reason}")
    when = f" at {instant(one.last_committed_at)}" if one.last_committed_at else ""
    yield _fact("committed", f"up to txid {count(one.last_txid)}{when}" if one.last_txid else "nothing yet")
    yield _fact(
        "planned",
        f"{count(one.planned_ahead)} ahead, up to txid {count(one.planned_txid)}"
        if one.planned_ahead
        else "nothing ahead",
    )
    for spout, lag in one.lag.items():
        yield _fact("lag", _lag(spout, lag))
    if one.waiting:
        yield _fact("turn of", _turn(one.waiting))
    if one.problem:
        yield _fact("waits for", one.problem)
    yield _fact("failures", failures_text(one.failures))
    if one.failed_txids:
        yield _fact("failed", f"{batches_named(one.failed_txids)} (last attempt failed, not committed)")
    for txid, inputs in one.failed_inputs.items():
        yield _fact("reads", f"batch {txid}: {clip(', '.join(inputs), INPUTS_CHARS_MAX)}")
    yield _fact("rejected", f"{counted(one.rejected, 'source row')} in all")
    if one.dead_lettered:
        yield _fact("removed", f"{counted(one.dead_lettered, 'source row')} in all, as dead letters")
    if one.failed_runs:
        failed = f"{counted(one.failed_runs, 'commit run')} failed under this leader"
        words = "their batches were committed one by one"
        yield _fact("runs", f"{failed}, {count(one.failed_runs_total)} in all: {words} (txtopo events)")
    if one.quarantined:
        yield _fact("holes", _holes(one))
    if one.leader is not None:
        spoke = (
            f"heartbeat {duration(one.leader.heartbeat_age_s)} ago" if one.state in ("RUNNING", "STALLED") else "ended"
        )
        yield _fact("leader", f"{one.leader.host} pid {one.leader.pid} since {instant(one.leader.since)}, {spoke}")
    yield _fact("epoch", str(one.epoch))
    if one.open_order_count:
        listed = ", ".join(_open_order(order) for order in one.open_orders)
        more = ", …" if one.open_order_count > len(one.open_orders) else ""
        yield _fact("orders", f"{count(one.open_order_count)} open: {listed}{more}")
    for index, command in enumerate(one.next_commands):
        yield _fact("next" if index == 0 else "", command)


def _lag(spout: str, lag: Mapping[str, Any]) -> str:
    if not lag["records"]:
        return f"{spout}: nothing"
    most = list(lag["partitions"].items())[:LAGGING_NAMED]
    named = [f"{name} {count(number)}" for name, number in most]
    more = ", …" if lag["lagging"] > len(named) else ""
    where = f"in {counted(lag['lagging'], 'partition')}: {', '.join(named)}{more}"
    return f"{spout}: {counted(lag['records'], 'record')} not committed, {where}"


def _turn(waiting: Mapping[str, Any]) -> str:
    since = duration(float(waiting["for_s"]))
    return f"batch {waiting['txid']} attempt {waiting['attempt']}, {waiting['phase']}; nothing committed for {since}"


def _holes(one: TopologyStatus) -> str:
    if not one.holes:
        return f"none: {counted(one.quarantined, 'quarantined batch')}, each redone, or itself a redo or a backfill"
    more = ", …" if one.holes > len(one.hole_txids) else ""
    verb = "is" if one.holes == 1 else "are"
    return (
        f"{batches_named(one.hole_txids)}{more} {verb} quarantined and not redone ({count(one.holes)} of "
        f"{count(one.quarantined)} quarantined)"
    )


def _open_order(order: OpenOrder) -> str:
    about = f" of {batches_named(order.txids)}" if order.txids else ""
    about = f" of {order.committer}" if order.committer is not None else about
    so_far = f", {counted(order.filled, 'batch')} counted so far" if order.filled is not None else ""
    return f"{order.kind}{about} (order {order.order_id}{so_far})"


def _fact(name: str, value: str) -> str:
    return f"  {name:<10}{clean(value)}".rstrip()


# ----------------------------------------------------------------------------------------------------------------------


def _redone(row: BatchRow) -> str:
    return str(row.redo_of) if row.redo_of else NOTHING


def _filled(row: BatchRow) -> str:
    return f"{row.backfills} into {clean(row.committer or NOTHING)}" if row.backfills else NOTHING


def _batch_cells(row: BatchRow, committers: Sequence[str], again: Sequence[str]) -> list[str]:
    by_name = {numbers.committer: numbers for numbers in row.committers}
    failed = f" ({row.failed_attempts} failed)" if row.failed_attempts else ""
    return [
        str(row.txid),
        row.state,
        f"{row.attempts}{failed}",
        count(row.files) if row.files else NOTHING,
        count_or_nothing(row.read),
        count_or_nothing(row.rejected),
        *again,
        *(_written(by_name.get(name)) for name in committers),
        instant(row.committed_at) if row.committed_at else NOTHING,
        NOTHING if row.duration_s is None else duration(row.duration_s),
    ]


def _written(numbers: CommitterNumbers | None) -> str:
    return NOTHING if numbers is None else f"{count(numbers.arrived)} > {count(numbers.written)}"
