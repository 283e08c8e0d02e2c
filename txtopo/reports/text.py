"""The model as plain text: aligned tables, thin spaces between thousands, durations with a unit, times in UTC with Z,
no escape codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from txtopo.reports.model import BatchRow, CommitterNumbers, FailureCounts, OpenOrder, TopologyStatus

NOTHING = "-"
"""Shown if there is no value."""
INPUTS_CHARS_MAX = 300
"""Characters of the inputs of a failed batch in `status`; `show` has all."""
THIN_SPACE = "\N{THIN SPACE}"


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
    redos = any(row.redo_of for row in batches)
    numbers = ["attempts", "files", "read", "rejected", *(["redo of"] if redos else [])]
    header = ["txid", "state", *numbers, *committers, "committed at", "duration"]
    rows = [_batch_cells(row, committers, with_redos=redos) for row in batches]
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
        yield _fact("left out", f"{counted(one.dead_lettered, 'source row')} in all, as dead letters")
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


def _turn(waiting: Mapping[str, Any]) -> str:
    since = duration(float(waiting["for_s"]))
    return f"batch {waiting['txid']} attempt {waiting['attempt']}, {waiting['phase']}; nothing committed for {since}"


def _holes(one: TopologyStatus) -> str:
    if not one.holes:
        return f"none: {counted(one.quarantined, 'quarantined batch')}, each redone or itself a redo"
    more = ", …" if one.holes > len(one.hole_txids) else ""
    verb = "is" if one.holes == 1 else "are"
    return (
        f"{batches_named(one.hole_txids)}{more} {verb} quarantined and not redone ({count(one.holes)} of "
        f"{count(one.quarantined)} quarantined)"
    )


def _open_order(order: OpenOrder) -> str:
    about = f" of {batches_named(order.txids)}" if order.txids else ""
    return f"{order.kind}{about} (order {order.order_id})"


def _fact(name: str, value: str) -> str:
    return f"  {name:<10}{clean(value)}".rstrip()


# ----------------------------------------------------------------------------------------------------------------------


def _batch_cells(row: BatchRow, committers: Sequence[str], *, with_redos: bool) -> list[str]:
    by_name = {numbers.committer: numbers for numbers in row.committers}
    failed = f" ({row.failed_attempts} failed)" if row.failed_attempts else ""
    return [
        str(row.txid),
        row.state,
        f"{row.attempts}{failed}",
        count(row.files) if row.files else NOTHING,
        count_or_nothing(row.read),
        count_or_nothing(row.rejected),
        *([str(row.redo_of) if row.redo_of else NOTHING] if with_redos else []),
        *(_written(by_name.get(name)) for name in committers),
        instant(row.committed_at) if row.committed_at else NOTHING,
        NOTHING if row.duration_s is None else duration(row.duration_s),
    ]


def _written(numbers: CommitterNumbers | None) -> str:
    return NOTHING if numbers is None else f"{count(numbers.arrived)} > {count(numbers.written)}"


# ----------------------------------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> str:
    """Return columns two blanks apart, numbers right-aligned, the columns in `left` left-aligned."""
    lines = [[clean(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    aligned = ["<" if name in left else ">" for name in header]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, aligned, widths, strict=True)).rstrip()
        for line in lines
    )


def count(value: int) -> str:
    """Return 12 400 with a thin space."""
    return f"{value:,}".replace(",", THIN_SPACE)


def count_or_nothing(value: int | None) -> str:
    """Return the same, or a dash if the number is unknown."""
    return NOTHING if value is None else count(value)


def counted(value: int, noun: str) -> str:
    """Return 1 batch, 2 batches, 3 source rows."""
    if value == 1:
        return f"1 {noun}"
    return f"{count(value)} {noun}es" if noun.endswith("ch") else f"{count(value)} {noun}s"


def batches_named(txids: Sequence[int]) -> str:
    """Return batch 7; batches 7, 9."""
    return f"batch{'es' if len(txids) > 1 else ''} {', '.join(map(str, txids))}"


def failures_text(failures: FailureCounts) -> str:
    """Return each kind separately: they have different meanings."""
    kinds = (
        f"{count(failures.data)} data, {count(failures.infrastructure)} infrastructure, "
        f"{count(failures.suspect)} suspect"
    )
    kinds += f", {count(failures.halt)} halt" if failures.halt else ""
    return f"{counted(failures.total, 'failed attempt')}{f': {kinds}' if failures.total else ''}"


def clip(text: str, width: int | None) -> str:
    """Return `text` without control characters in at most `width` characters, with an ellipsis if it was cut; None: the
    whole text.
    """
    text = clean(text)
    return text if width is None or len(text) <= width else text[: max(0, width - 1)] + "…"


def size(value: int) -> str:
    """Return bytes in binary units: 512 B, 1.5 MiB."""
    if value < 1024:
        return f"{value} B"
    amount = value / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if amount < 1023.95:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float) -> str:
    """Return 350 ms, 1.85 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. After a clock went back: 0."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def instant(when: datetime) -> str:
    """Return 2026-11-21T07:44:01.235Z: always UTC, always milliseconds."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, change the direction of writing, are invisible, or that no terminal can encode."""


def clean(text: str, *, lines: bool = False) -> str:
    """Return `text` with control characters escaped: text from files and tracebacks must not control the reader's
    terminal.
    """
    keep = "\n\t" if lines else ""
    return _CONTROL.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode("ascii"), text
    )


def place_of(component: str | None, position: str | None, message: str | None) -> str:
    """Return " in COMPONENT at POSITION", as far as they are known and the message does not contain the position;
    otherwise an empty text.
    """
    said = position if position and position not in (message or "") else None
    place = " at ".join(part for part in (component, said) if part)
    return f" in {place}" if place else ""
