"""The model as plain text: aligned tables, thin spaces between thousands, durations with a unit, times in UTC with Z, no escape codes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from txtopo.audit.model import AttemptRow, BatchDetail, BatchRow, CommitterNumbers, SourceFile, TopologyStatus

NOTHING = "-"
"""Stands where there is no value."""
THIN_SPACE = "\N{THIN SPACE}"
FILES_SHOWN_MAX = 50
"""Files of a batch that `show` lists; the JSON has all."""


def status_text(topologies: Sequence[TopologyStatus]) -> str:
    """One block a topology; a sentence where there is none."""
    if not topologies:
        return "No topology has run on this database yet. Start one with `txtopo run APP`."
    return "\n\n".join("\n".join(_status_lines(one)) for one in topologies)


def batches_text(topology: str, batches: Sequence[BatchRow]) -> str:
    """A table, newest batch first; a sentence where there is none."""
    if not batches:
        return f"{topology} has no such batches."
    committers = sorted({numbers.committer for row in batches for numbers in row.committers})
    header = ["txid", "state", "attempts", "files", "read", "rejected", *committers, "committed at", "duration"]
    rows = [_batch_cells(row, committers) for row in batches]
    return table(header, rows, left=("state", "committed at"))


def batch_text(batch: BatchDetail) -> str:
    """Everything about one batch, one subject a paragraph."""
    paragraphs = [
        _batch_head(batch),
        _batch_files(batch.files),
        _batch_attempts(batch.attempts),
        _batch_committers(batch),
        _batch_edges(batch),
        [
            f"next      {command}" if index == 0 else f"          {command}"
            for index, command in enumerate(batch.next_commands)
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


# -------------------------------------------------------------------------------------------------------------------------------------- status


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
    if one.problem:
        yield _fact("waits for", one.problem)
    yield _fact(
        "failures", f"{count(one.failed_attempts)} failed attempts, {count(one.quarantined)} batches quarantined"
    )
    if one.leader is not None:
        spoke = (
            f"heartbeat {duration(one.leader.heartbeat_age_s)} ago" if one.state in ("RUNNING", "STALLED") else "ended"
        )
        yield _fact("leader", f"{one.leader.host} pid {one.leader.pid} since {instant(one.leader.since)}, {spoke}")
    yield _fact("epoch", str(one.epoch))
    if one.open_requests:
        yield _fact("requests", f"{count(one.open_requests)} open")
    for index, command in enumerate(one.next_commands):
        yield _fact("next" if index == 0 else "", command)


def _fact(name: str, value: str) -> str:
    return f"  {name:<10}{clean(value)}".rstrip()


# ------------------------------------------------------------------------------------------------------------------------------------- batches


def _batch_cells(row: BatchRow, committers: Sequence[str]) -> list[str]:
    by_name = {numbers.committer: numbers for numbers in row.committers}
    failed = f" ({row.failed_attempts} failed)" if row.failed_attempts else ""
    return [
        str(row.txid),
        row.state,
        f"{row.attempts}{failed}",
        count(row.files) if row.files else NOTHING,
        _count(row.read),
        _count(row.rejected),
        *(_written(by_name.get(name)) for name in committers),
        instant(row.committed_at) if row.committed_at else NOTHING,
        NOTHING if row.duration_s is None else duration(row.duration_s),
    ]


def _written(numbers: CommitterNumbers | None) -> str:
    return NOTHING if numbers is None else f"{count(numbers.arrived)} > {count(numbers.written)}"


def _count(value: int | None) -> str:
    return NOTHING if value is None else count(value)


# ---------------------------------------------------------------------------------------------------------------------------------------- show


def _batch_head(batch: BatchDetail) -> list[str]:
    ledger = batch.ledger
    at = f" at {instant(ledger.committed_at)}" if ledger else ""
    lines = [f"batch {batch.txid} of {clean(batch.topology)}  {batch.state.upper()}{at}"]
    if ledger and ledger.reason:
        lines.append(_line("reason", ledger.reason))
    if ledger and ledger.redo_of:
        lines.append(_line("redoes", f"batch {ledger.redo_of}"))
    if batch.plan_problem:
        lines.append(_line("plan", f"cannot be read: {batch.plan_problem}"))
    if ledger and ledger.read is not None:
        taken_out = f"{_count(ledger.rejected)} rejected, {_count(ledger.dead_lettered)} dead-lettered"
        lines.append(_line("rows", f"{count(ledger.read)} read, {taken_out}"))
    if ledger:
        lines.append(_line("commit", f"attempt {ledger.attempt}, epoch {ledger.epoch}, code {ledger.code_hash[:12]}"))
    if batch.planned_at:
        lines.append(_line("planned", f"at {instant(batch.planned_at)}"))
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
    place = (
        " in " + " at ".join(part for part in (row.component, row.position) if part and part not in (row.message or ""))
        if row.component or row.position
        else ""
    )
    detail = [f"    {line}" for line in clean(row.detail, lines=True).splitlines()] if row.detail else []
    return [f"attempt {row.attempt} failed{clean(place)}: {clean(row.message or '')}", *detail]


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


# ---------------------------------------------------------------------------------------------------------------------------------------- parts


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> str:
    """Columns two blanks apart, numbers to the right, those named in `left` to the left."""
    lines = [[clean(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    aligned = ["<" if name in left else ">" for name in header]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, aligned, widths, strict=True)).rstrip()
        for line in lines
    )


def count(value: int) -> str:
    """12 400 with a thin space."""
    return f"{value:,}".replace(",", THIN_SPACE)


def size(value: int) -> str:
    """Bytes in binary units: 512 B, 1.5 MiB."""
    if value < 1024:
        return f"{value} B"
    amount = value / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if amount < 1023.95:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float) -> str:
    """350 ms, 1.85 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. A clock that went back shows as 0."""
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
    """2026-11-21T07:44:01.235Z: always UTC, always milliseconds."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str, *, lines: bool = False) -> str:
    """`text` with control characters spelled out: what comes from files and tracebacks must not steer the reader's terminal."""
    keep = "\n\t" if lines else ""
    return _CONTROL.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode("ascii"), text
    )
