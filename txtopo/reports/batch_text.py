"""One batch as plain text, one subject per paragraph: its content, its outcome, the orders and actions about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.core.positions import told_position
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
    place_of,
    size,
    table,
)
from txtopo.reports.inputs import other_inputs
from txtopo.reports.model import ActionRow, AttemptRow, BatchDetail, OrderRow, SourceFile

FILES_SHOWN_MAX = 50
"""Number of files of a batch that `show` lists; the JSON has all."""
RAW_CHARS_MAX = 120
"""Characters of a rejected record if the width of the terminal is unknown."""
METADATA_CHARS_MAX = 2000
"""Characters of a spout's metadata; the JSON has all."""
STATE_CHARS_MAX = 200
"""Characters of a state in the action log; the JSON has all."""


def batch_text(batch: BatchDetail, width: int | None = None) -> str:
    """Return everything about one batch, one subject per paragraph. Raw records are cut to `width`, the terminal's, if
    it is known.
    """
    paragraphs = [
        _batch_head(batch),
        _batch_files(batch.files),
        _batch_metadata(batch),
        _rejected(batch, width),
        _dead_letters(batch, width),
        _batch_attempts(batch.attempts),
        _batch_committers(batch),
        _batch_edges(batch),
        [line for order in batch.orders for line in order_lines(order)],
        [line for action in batch.actions for line in action_lines(action)],
        [
            f"next      {command}" if index == 0 else f"          {command}"
            for index, command in enumerate(batch.next_commands)
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _batch_head(batch: BatchDetail) -> list[str]:
    ledger = batch.ledger
    at = f" at {instant(ledger.committed_at)}" if ledger else ""
    lines = [f"batch {batch.txid} of {clean(batch.topology)}  {batch.state.upper()}{at}"]
    if ledger and ledger.reason:
        lines.append(_line("reason", ledger.reason))
    if batch.redo_of:
        lines.append(_line("redoes", f"batch {batch.redo_of}"))
    if batch.backfills:
        lines.append(_line("backfills", f"batch {batch.backfills}, into committer {batch.committer}"))
    for link in batch.redone_as:
        lines.append(_line("redone as", f"batch {link.txid}, {link.state}"))
    for filled in batch.counted_by:
        lines.append(_line("counted", f"into committer {filled.committer} by batch {filled.txid}, {filled.state}"))
    if batch.plan_problem:
        lines.append(_line("plan", f"cannot be read: {batch.plan_problem}"))
    if ledger and ledger.read is not None:
        taken_out = (
            f"{count_or_nothing(ledger.rejected)} rejected, {count_or_nothing(ledger.dead_lettered)} dead-lettered"
        )
        lines.append(_line("rows", f"{count(ledger.read)} read, {taken_out}"))
    if ledger:
        lines.append(_line("commit", f"attempt {ledger.attempt}, epoch {ledger.epoch}, code {ledger.code_hash[:12]}"))
    if batch.planned_at:
        lines.append(_line("planned", f"at {instant(batch.planned_at)}"))
    if batch.failures.total:
        lines.append(_line("failures", failures_text(batch.failures)))
    lines.append(_line("digest", batch.digest or "not in Postgres yet"))
    return lines


def _line(name: str, value: str) -> str:
    return f"{name:<10}{clean(value)}"


def _batch_files(files: Sequence[SourceFile]) -> list[str]:
    if not files:
        return []
    total = "" if any(file.size is None for file in files) else f", {size(sum(file.size or 0 for file in files))}"
    cells = [
        [file.path, NOTHING if file.size is None else size(file.size), file.fingerprint[:16], file.spout]
        for file in files[:FILES_SHOWN_MAX]
    ]
    more = (
        [f"and {count(len(files) - FILES_SHOWN_MAX)} more (--json lists all)"] if len(files) > FILES_SHOWN_MAX else []
    )
    noun = "file" if len(files) == 1 else "files"
    return [
        f"source: {count(len(files))} {noun}{total}",
        table(["file", "size", "fingerprint", "spout"], cells, left=("file", "fingerprint", "spout")),
        *more,
    ]


def _batch_metadata(batch: BatchDetail) -> list[str]:
    """Return the metadata of spouts without files: for a custom source, only this shows which input it was."""
    return [f"source: {clean(spout)} {clip(text, METADATA_CHARS_MAX)}" for spout, text in other_inputs(batch.metadata)]


def _rejected(batch: BatchDetail, width: int | None) -> list[str]:
    total = (batch.ledger.rejected if batch.ledger else None) or len(batch.rejected_rows)
    if not total:
        return []
    shown = len(batch.rejected_rows)
    part = f", {count(shown)} shown (--rejects all shows all)" if shown < total else ""
    lines = [f"rejected: {counted(total, 'source row')}{part}"]
    for row in batch.rejected_rows:
        lines.append(f"  {told_position(clean(row.path), row.line, row.unit)}  {clean(row.reason)}")
        lines.append(f"    {clip(row.raw, max(20, width - 4) if width else RAW_CHARS_MAX)}")
    return lines


def _dead_letters(batch: BatchDetail, width: int | None) -> list[str]:
    total = (batch.ledger.dead_lettered if batch.ledger else None) or len(batch.dead_letters)
    if not total:
        return []
    shown = len(batch.dead_letters)
    part = f", {count(shown)} shown (--rejects all shows all)" if shown < total else ""
    lines = [f"dead letters: {counted(total, 'source row')}{part}"]
    for row in batch.dead_letters:
        lines.append(f"  {clean(row.position)}  bolt {clean(row.component)}: {clean(row.reason)}")
        lines.append(f"    {clip(row.raw, max(20, width - 4) if width else RAW_CHARS_MAX)}")
    return lines


def order_lines(order: OrderRow) -> list[str]:
    """Return who wanted what, and the answer."""
    about = f" of {batches_named(order.txids)}" if order.txids else ""
    about += f" of {clean(order.committer)}" if order.committer is not None else ""
    lines = [f"order {order.order_id}: {clean(order.kind)}{about} at {instant(order.created_at)} {_by(order)}"]
    answer = f": {order.answer}" if order.answer else ""
    at = f" at {instant(order.done_at)}" if order.done_at else ""
    return [*lines, f"  {clean(f'{order.state}{at}{answer}')}"]


def action_lines(action: ActionRow) -> list[str]:
    """Return what was changed, by whom."""
    order = f", order {action.order_id}" if action.order_id is not None else ""
    lines = [f"action {action.action_id}: {clean(action.command)} at {instant(action.at)} {_by(action)}{order}"]
    return [*lines, f"  {changed(action.before, action.after)}"] if action.before or action.after else lines


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the states before and after, from the action log."""
    one, other = (
        clip(json.dumps(value, ensure_ascii=False, sort_keys=True), STATE_CHARS_MAX) for value in (before, after)
    )
    return f"{one} > {other}"


def _by(one: OrderRow | ActionRow) -> str:
    why = f": {one.reason}" if one.reason else ""
    return clean(f"by {one.actor or 'unknown'} on {one.host or 'unknown'}{why}")


def _batch_attempts(attempts: Sequence[AttemptRow]) -> list[str]:
    if not attempts:
        return ["no attempt has begun"]
    header = ["attempt", "state", "started", "took", "phases", "epoch", "host"]
    lines = [table(header, [_attempt_cells(row) for row in attempts], left=("state", "started", "phases", "host"))]
    told: list[tuple[str | None, ...]] = []
    for row in attempts:
        same = (row.component, row.position, row.message)
        if row.message and same in told:
            lines += ["", f"attempt {row.attempt} failed in the same way"]
        elif row.message:
            told.append(same)
            lines += ["", *_failure(row)]
    return lines


def _attempt_cells(row: AttemptRow) -> list[str]:
    kind = f" ({row.kind})" if row.kind else ""
    took = NOTHING if row.ended_at is None else duration((row.ended_at - row.started_at).total_seconds())
    phases = ", ".join(f"{name} {duration(seconds)}" for name, seconds in row.spans.items()) or NOTHING
    alone = " alone" if row.alone else ""
    return [
        str(row.attempt),
        f"{row.state}{kind}{alone}",
        instant(row.started_at),
        took,
        phases,
        str(row.epoch),
        row.host or NOTHING,
    ]


def _failure(row: AttemptRow) -> list[str]:
    place = place_of(row.component, row.position, row.message)
    detail = [f"    {line}" for line in clean(row.detail, lines=True).splitlines()] if row.detail else []
    cause = (
        [f"  cause: {clean(row.cause)}"] if row.cause else []
    )  # Counts towards the maximum of batches that are quarantined in a row.
    return [f"attempt {row.attempt} failed{clean(place)}: {clean(row.message or '')}", *cause, *detail]


def _batch_committers(batch: BatchDetail) -> list[str]:
    if not batch.committers:
        return []
    header = ["committer", "table", "arrived", "counted", "results", "written", "ignored", "reversed"]
    cells = [
        [
            numbers.committer,
            batch.targets.get(numbers.committer, NOTHING),
            *map(
                count,
                (numbers.arrived, numbers.counted, numbers.results, numbers.written, numbers.ignored, numbers.reversed),
            ),
        ]
        for numbers in batch.committers
    ]
    return [table(header, cells, left=("committer", "table"))]


def _batch_edges(batch: BatchDetail) -> list[str]:
    cells = [[edge.edge, count(edge.sent), count(edge.received)] for edge in batch.edges]
    return [table(["edge", "sent", "received"], cells, left=("edge",))] if cells else []
