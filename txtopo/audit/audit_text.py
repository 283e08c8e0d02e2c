"""An audit's report as JSON and as plain text: the verdict, what is wrong, what could not be determined, then how it
was compared and the state of the batches.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from txtopo.audit.verdicts import (
    TXIDS_MAX,
    ActionTaken,
    AttemptFailure,
    AuditReport,
    BatchVerdict,
    Finding,
    OrderGiven,
    Verdict,
)
from txtopo.reports.as_json import document, plain
from txtopo.reports.formatting import batches_named, clean, count, counted, duration, instant, table

SHOWN_MAX = 50
"""Number of findings and failures listed; the JSON has all."""


def audit_text(report: AuditReport) -> str:
    """Return one subject per paragraph, exceptions first."""
    paragraphs = [
        [headline(report)],
        _findings(report),
        list(_limits(report)),
        _checks(report),
        list(_totals(report)),
        list(_unbatched(report)),
        list(_staging_left(report)),
        list(_phases(report)),
        list(_failures(report)),
        list(_quarantined(report)),
        list(_redone(report)),
        list(_actions(report)),
        list(_orders(report)),
        list(_next(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def audit_json(report: AuditReport) -> str:
    """Return schema `txtopo.audit/1`; findings in the order of the text, batches by txid."""
    return document("txtopo.audit/1", {**plain(report), "exit_code": report.exit_code})


def headline(report: AuditReport) -> str:
    """Return the verdict in one line."""
    batches = len(report.batches)
    what = f"batches {report.first_txid} to {report.last_txid}" if batches else "no committed batches"
    mismatches = sum(one.verdict is Verdict.MISMATCH for one in report.findings)
    unknown = len(report.findings) - mismatches
    parts = [f"{count(mismatches)} wrong"] if mismatches else []
    parts += [f"{count(unknown)} could not be found out"] if unknown else []
    comparisons = sum(check.comparisons for check in report.checks)
    if batches and all(batch.recounted is None for batch in report.batches):
        what += ", sources not recounted"
    said = ", ".join(parts) or f"{count(comparisons)} comparisons agree"
    return f"{clean(report.topology)}  {report.verdict}  {what}: {said}"


def _findings(report: AuditReport) -> list[str]:
    """Return the findings. The same finding about many batches is one line; otherwise a shared reason would hide the
    others.
    """
    alike: dict[tuple[Any, ...], list[Finding]] = defaultdict(list)
    for number, one in enumerate(report.findings):
        alike[one.check, one.verdict, one.message, number if len(one.txids) != 1 else None].append(one)
    groups = list(alike.values())
    lines = [_finding(group) for group in groups[:SHOWN_MAX]]
    if len(groups) > SHOWN_MAX:
        lines.append(f"and {count(sum(map(len, groups[SHOWN_MAX:])))} more (--json lists all)")
    return lines


def _finding(alike: Sequence[Finding]) -> str:
    one = alike[0]
    # If one finding concerns several batches, the message says which.
    where = f"{_batches(sorted({txid for other in alike for txid in other.txids}))}: " if len(one.txids) == 1 else ""
    return f"{one.verdict}  {where}{clean(one.message)}  [{one.check}]"


def _batches(txids: Sequence[int]) -> str:
    if len(txids) > 2 and txids[-1] - txids[0] == len(txids) - 1:
        return f"batches {txids[0]} to {txids[-1]}"
    more = f" and {count(len(txids) - TXIDS_MAX)} more" if len(txids) > TXIDS_MAX else ""
    return f"{batches_named(txids[:TXIDS_MAX])}{more}"


def _limits(report: AuditReport) -> Iterator[str]:
    if report.by_design:
        yield "not compared, by design"
    for one in report.by_design:
        batches = f" ({count(one.batches)} batches)" if one.batches > 1 else ""
        yield f"  {one.check}: {clean(one.reason)}{batches}"


def _checks(report: AuditReport) -> list[str]:
    rows = [
        [
            check.name,
            str(check.verdict) if check.comparisons or check.findings else "-",
            count(check.comparisons),
            check.compared,
            check.against,
        ]
        for check in report.checks
    ]
    return [table(["check", "verdict", "comparisons", "what", "with"], rows, left=("check", "verdict", "what", "with"))]


def _totals(report: AuditReport) -> Iterator[str]:
    verdicts = Counter(batch.verdict for batch in report.batches)
    by = ", ".join(f"{count(verdicts[one])} {one}" for one in Verdict if verdicts[one]) or "none"
    yield f"batches    {by}; {count(report.planned_ahead)} planned ahead, not audited"
    recounted = [batch for batch in report.batches if batch.recounted is not None and batch.backfills is None]
    in_effect = [batch for batch in report.batches if batch.redone_as is None and batch.backfills is None]
    read = sum(batch.read or 0 for batch in in_effect)
    again = sum(batch.recounted or 0 for batch in recounted)
    yield (
        f"records    {count(read)} read by the runs, {count(again)} counted again in the files of "
        f"{count(len(recounted))} batches"
    )
    attempts = ", ".join(f"{count(number)} {state}" for state, number in sorted(report.attempts.items()))
    yield f"rejected   {count(sum(batch.rejected or 0 for batch in in_effect))} of these records"
    yield f"removed    {count(report.dead_lettered)} of these records, as dead letters"
    kinds = ", ".join(f"{count(number)} {kind}" for kind, number in sorted(report.failures_by_kind.items()))
    yield f"attempts   {attempts or 'none'}{f'; failed for: {kinds}' if kinds else ''}"
    yield f"as of      {instant(report.generated_at)}, by {_auditor(report)}"
    if report.head is not None:
        head = report.head
        yield f"head       batch {head.txid}, code {head.code_hash}"
        yield f"seal       {head.txid}:{head.seal or 'none'}"
    if report.last_action is not None:
        yield f"log        action {report.last_action.number}, seal {report.last_action.seal}"


def _auditor(report: AuditReport) -> str:
    who = report.auditor
    return f"{clean(who.user)}@{clean(who.host)} as role {clean(who.role)}, txtopo {who.version}"


def _unbatched(report: AuditReport) -> Iterator[str]:
    """Return the files that no batch has counted; this alone is no error."""
    for one in report.unbatched:
        if one.problem is not None:
            yield (
                f"spout {clean(one.spout)}: {clean(one.path)} cannot be read here, so it is unknown whether files of "
                f"it are in no batch: {clean(one.problem)}"
            )
            continue
        yield (
            f"spout {clean(one.spout)}: {counted(one.files, 'file')} of {clean(one.path)} in no batch: new, or "
            f"planned and not in Postgres yet; the next run takes what is new"
        )
        yield from (f"  {clean(name)}" for name in one.names)
        if one.files > len(one.names):
            yield f"  and {count(one.files - len(one.names))} more"


def _staging_left(report: AuditReport) -> Iterator[str]:
    """Return the tables that are left over; this alone is no error."""
    for name in report.staging_left:
        yield (
            f"table {clean(name)} has result rows that no batch needs: the next leader removes it, and one that is "
            f"alive does so soon after its commit"
        )


def _phases(report: AuditReport) -> Iterator[str]:
    timed = [batch for batch in report.batches if batch.wall_s is not None]
    if not timed:
        return
    spent: dict[str, list[float]] = defaultdict(list)
    for batch in timed:
        for name, seconds in batch.phases_s.items():
            spent[name].append(seconds)
    walls = [batch.wall_s or 0.0 for batch in timed]
    rows = [[name, *_spread(seconds)] for name, seconds in (*spent.items(), ("first attempt to commit", walls))]
    yield table(["phase", "sum", "median", "longest"], rows, left=("phase",))


def _spread(seconds: list[float]) -> list[str]:
    return [duration(sum(seconds)), duration(median(seconds)), duration(max(seconds))]


def _failures(report: AuditReport) -> Iterator[str]:
    return _section("failed attempts of these batches", [_failure(one) for one in report.failures])


def _failure(one: AttemptFailure) -> str:
    place = " at ".join(part for part in (one.component, one.position) if part)
    return f"{one.txid}:{one.attempt} {one.kind}{' in ' + clean(place) if place else ''}: {clean(one.message)}"


def _quarantined(report: AuditReport) -> Iterator[str]:
    lines = []
    for one in report.batches:
        if one.state == "quarantined":
            lines.append(f"{one.txid} {_place(one, report)}: {clean(one.reason or 'no reason')}")
    return _section("quarantined batches", lines)


def _place(one: BatchVerdict, report: AuditReport) -> str:
    """Return what happened to the records of a quarantined batch."""
    if one.redone_as is not None:
        return f"redone as {one.redone_as}"
    if one.redo_of is not None:
        return f"was to redo {one.redo_of}"
    if one.backfills is not None:
        return f"was to count {one.backfills} into {one.committer}"
    return "in no table" if one.txid in report.holes else "without effect"


def _redone(report: AuditReport) -> Iterator[str]:
    lines = [
        f"{one.txid} redone as {one.redone_as}"
        for one in report.batches
        if one.redone_as is not None and one.state != "quarantined"
    ]
    return _section("batches whose place a later one took", lines)


def _actions(report: AuditReport) -> Iterator[str]:
    return _section("actions", [_action(one) for one in report.actions])


def _action(one: ActionTaken) -> str:
    what = one.command if one.txid is None else f"{one.command} {one.txid}"
    order = f" (order {one.order_id})" if one.order_id is not None else ""
    states = f"  {clean(_states(one.before))} -> {clean(_states(one.after))}"
    return (
        f"{instant(one.at)} {clean(one.actor)}@{clean(one.host)} {clean(what)}{order}: "
        f"{clean(one.reason or 'no reason given')}{states}"
    )


def _states(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in values.items()) or "-"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _orders(report: AuditReport) -> Iterator[str]:
    return _section("orders", [_order(one) for one in report.orders])


def _order(one: OrderGiven) -> str:
    txids = " " + ", ".join(map(str, one.txids)) if one.txids else ""
    whose = f"{clean(one.actor or 'unknown')}@{clean(one.host or 'unknown')}"
    answer = f", {clean(one.answer)}" if one.answer else ""
    return (
        f"{one.order_id} {instant(one.at)} {whose} {clean(one.kind)}{txids}: "
        f"{clean(one.reason or 'no reason given')}  {one.state}{answer}"
    )


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield title
    yield from (f"  {line}" for line in lines[:SHOWN_MAX])
    if len(lines) > SHOWN_MAX:
        yield f"  and {count(len(lines) - SHOWN_MAX)} more (--json lists all)"


def _next(report: AuditReport) -> Iterator[str]:
    if report.holes:
        yield f"next       txtopo redrive {report.topology} {report.holes[0]}"
        return
    # A batch that only contributed to a wrong row may be correct itself: findings about one batch come first.
    own = [one for one in report.findings if one.txids and one.look is None]
    if own:
        yield f"next       txtopo show {report.topology} {min(own, key=lambda one: len(one.txids)).txids[0]}"
        return
    look = next((one.look for one in report.findings if one.look), None)
    if look:
        yield f"next       {look}"
