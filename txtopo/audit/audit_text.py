"""An audit's report as plain text: the verdict, what is wrong, what could not be found out, then how it was compared and how the batches fared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median

from txtopo.audit.text import clean, count, duration, instant, table
from txtopo.audit.verdicts import AuditReport, Finding, Verdict

SHOWN_MAX = 50
"""Findings and failures listed; the JSON has all."""


def audit_text(report: AuditReport) -> str:
    """One subject a paragraph, exceptions first."""
    paragraphs = [
        [headline(report)],
        _findings(report),
        list(_limits(report)),
        _checks(report),
        list(_totals(report)),
        list(_phases(report)),
        list(_failures(report)),
        list(_next(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def headline(report: AuditReport) -> str:
    """The verdict in one line."""
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
    lines = [_finding(one) for one in report.findings[:SHOWN_MAX]]
    if len(report.findings) > SHOWN_MAX:
        lines.append(f"and {count(len(report.findings) - SHOWN_MAX)} more (--json lists all)")
    return lines


def _finding(one: Finding) -> str:
    # Where several batches are concerned, the message says which.
    where = f"batch {one.txids[0]}: " if len(one.txids) == 1 else ""
    return f"{one.verdict}  {where}{clean(one.message)}  [{one.check}]"


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
    recounted = [batch for batch in report.batches if batch.recounted is not None]
    read = sum(batch.read or 0 for batch in report.batches)
    again = sum(batch.recounted or 0 for batch in recounted)
    yield f"records    {count(read)} read by the runs, {count(again)} counted again in the files of {count(len(recounted))} batches"
    attempts = ", ".join(f"{count(number)} {state}" for state, number in sorted(report.attempts.items()))
    yield f"attempts   {attempts or 'none'}"
    yield f"as of      {instant(report.generated_at)}"


def _phases(report: AuditReport) -> Iterator[str]:
    timed = [batch for batch in report.batches if batch.wall_s is not None]
    if not timed:
        return
    spent: dict[str, list[float]] = defaultdict(list)
    for batch in timed:
        for name, seconds in batch.phases_s.items():
            spent[name].append(seconds)
    walls = [batch.wall_s or 0.0 for batch in timed]
    rows = [[name, *_spread(seconds)] for name, seconds in (*spent.items(), ("from plan to commit", walls))]
    yield table(["phase", "sum", "median", "longest"], rows, left=("phase",))


def _spread(seconds: list[float]) -> list[str]:
    return [duration(sum(seconds)), duration(median(seconds)), duration(max(seconds))]


def _failures(report: AuditReport) -> Iterator[str]:
    if report.failures:
        yield "failed attempts of these batches"
    for one in report.failures[:SHOWN_MAX]:
        place = " at ".join(part for part in (one.component, one.position) if part)
        yield f"  {one.txid}:{one.attempt} {one.kind}{' in ' + clean(place) if place else ''}: {clean(one.message)}"
    if len(report.failures) > SHOWN_MAX:
        yield f"  and {count(len(report.failures) - SHOWN_MAX)} more (--json lists all)"


def _next(report: AuditReport) -> Iterator[str]:
    named = next((one.txids[0] for one in sorted(report.findings, key=lambda one: len(one.txids)) if one.txids), None)
    if named:
        yield f"next       txtopo show {report.topology} {named}"
