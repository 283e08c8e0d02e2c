"""The end of the demo: the table next to the recount, a summary of the batches, and everything that is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from txtopo.audit.audit_text import headline
from txtopo.audit.verdicts import AuditReport, Verdict
from txtopo.demo.recount import Totals
from txtopo.demo.watching import CommittedBatch

SHOWN_MAX = 10
"""Maximum number of differences that are listed; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """How a driver got the lead."""

    driver: str
    """Such as `driver 2`."""
    epoch: int
    seconds: float | None
    """Seconds since the previous driver died; None for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalNames:
    """What the totals are called."""

    keys: tuple[str, str] = ("carrier", "origin")
    rows: str = "flights"
    amount: str = "miles"
    by: str = "csv"
    """What the recount uses."""
    batch: str = "a file each"
    """What a batch is."""
    rejected: str = "lines, each kept with its file and number"
    """What the rejected records are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything in the report."""

    totals: Totals
    """The table in Postgres."""
    recounted: Totals
    """The same totals, counted without txtopo."""
    columns: TotalNames = TotalNames()
    rejected: int = 0
    """Number of records that the recount does not take for records."""
    ledger: Sequence[CommittedBatch]
    """In the order of the commits."""
    batches: int
    """Number of files, each of which must be one batch."""
    takeovers: Sequence[Takeover]
    drivers: int
    """Number of drivers that committed batches."""
    seconds: float
    """Wall time of the demo in seconds."""
    audited: AuditReport | None = None
    """The report of `txtopo audit`."""


def report(outcome: Outcome) -> str:
    """Return the whole report as text for stdout."""
    return "\n".join([*_table(outcome), "", *_fared(outcome), "", *_verdict(outcome), ""])


def differences(outcome: Outcome) -> list[str]:
    """Return what is wrong, in sentences; empty if every total agrees and the ledger is right."""
    return [*_wrong_totals(outcome), *_wrong_ledger(outcome), *_wrong_audit(outcome)]


def _wrong_totals(outcome: Outcome) -> Iterator[str]:
    totals, recounted = outcome.totals, outcome.recounted
    for key in sorted({*totals, *recounted}):
        there, right = totals.get(key), recounted.get(key)
        if there != right:
            sides = (_pair(one, outcome.columns) for one in (there, right))
            yield f"{' '.join(key)}: the table has {next(sides)}, the recount {next(sides)}"


def _wrong_ledger(outcome: Outcome) -> Iterator[str]:
    ledger = outcome.ledger
    if [row.txid for row in ledger] != list(range(1, outcome.batches + 1)):
        yield f"the ledger does not hold each of the txids 1 to {outcome.batches} once and in order: {len(ledger)} rows"
    if [row.epoch for row in ledger] != sorted(row.epoch for row in ledger):
        yield "a driver committed after its successor had"
    if (committed := len({row.epoch for row in ledger})) != outcome.drivers:
        yield f"{committed} drivers committed, expected {outcome.drivers}"
    for row in ledger:
        if row.state != "applied" or (row.read or 0) - (row.rejected or 0) != row.arrived or row.arrived != row.counted:
            yield (
                f"batch {row.txid} is {row.state}: {row.read} read, {row.rejected} rejected, {row.arrived} "
                f"arrived, {row.counted} counted"
            )
    read, rejected = sum(row.read or 0 for row in ledger), sum(row.rejected or 0 for row in ledger)
    counted = sum(count for count, _ in outcome.recounted.values())
    if read != counted + outcome.rejected:
        yield f"the ledger says that {read:,} rows were read, the recount {counted + outcome.rejected:,}"
    if rejected != outcome.rejected:
        yield f"the ledger says that {rejected:,} rows were rejected, the recount {outcome.rejected:,}"


def _wrong_audit(outcome: Outcome) -> Iterator[str]:
    if outcome.audited is not None and outcome.audited.verdict is not Verdict.MATCH:
        yield f"the audit says {headline(outcome.audited)}"
        yield from (f"{one.verdict}: {one.message}" for one in outcome.audited.findings)


def _pair(value: tuple[int, int] | None, columns: TotalNames) -> str:
    return "nothing" if value is None else f"{value[0]:,} {columns.rows} and {value[1]:,} {columns.amount}"


def _table(outcome: Outcome) -> Iterator[str]:
    """Yield the rows with the keys of both sides, so that a missing key is visible."""
    columns = outcome.columns
    one, two = columns.keys
    yield f"{'':<17}{'table in Postgres':>24}{f'recount with {columns.by}':>24}"
    yield f"{one:<9}{two:<8}" + f"{columns.rows:>10}{columns.amount:>14}" * 2
    for one, two in sorted({*outcome.totals, *outcome.recounted}):
        yield _row(one, two, outcome.totals.get((one, two)), outcome.recounted.get((one, two)))
    yield _row("total", "", _sum(outcome.totals), _sum(outcome.recounted))


def _row(one: str, two: str, there: tuple[int, int] | None, right: tuple[int, int] | None) -> str:
    mark = "" if there == right else "  differs"
    return f"{one:<9}{two:<8}{_cells(there)}{_cells(right)}{mark}"


def _cells(value: tuple[int, int] | None) -> str:
    return f"{'-':>10}{'-':>14}" if value is None else f"{value[0]:>10,}{value[1]:>14,}"


def _sum(totals: Totals) -> tuple[int, int]:
    return sum(rows for rows, _ in totals.values()), sum(amount for _, amount in totals.values())


def _fared(outcome: Outcome) -> Iterator[str]:
    ledger = outcome.ledger
    attempts, orphaned = sum(row.attempts for row in ledger), sum(row.orphaned for row in ledger)
    failed = attempts - orphaned - len(ledger)
    again = [row.txid for row in ledger if row.attempts > 1]
    yield f"batches    {len(ledger)} of {outcome.batches} committed, {outcome.columns.batch}, strictly in order"
    yield (
        f"attempts   {attempts}: {len(ledger)} committed, {orphaned} lost with their driver, {failed} failed; run "
        f"again: {spans(again) or 'none'}"
    )
    if outcome.rejected:
        yield f"rejected   {outcome.rejected} {outcome.columns.rejected}"
    by_epoch = _by_epoch(ledger)
    for takeover in outcome.takeovers:
        after = "" if takeover.seconds is None else f", took over {takeover.seconds:.1f} s after the one before it died"
        mine = spans(by_epoch.get(takeover.epoch, [])) or "nothing"
        yield f"{takeover.driver:<10} epoch {takeover.epoch}, committed {mine}{after}"
    yield f"wall time  {outcome.seconds:.1f} s, services and Spark started on the way"


def _by_epoch(ledger: Sequence[CommittedBatch]) -> Mapping[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for row in ledger:
        found[row.epoch].append(row.txid)
    return found


def _verdict(outcome: Outcome) -> Iterator[str]:
    if outcome.audited is not None:
        yield f"audit      {headline(outcome.audited)}"
    wrong = differences(outcome)
    if not wrong:
        rows, amount = _sum(outcome.totals)
        columns = outcome.columns
        yield (
            f"MATCH      all {len(outcome.totals)} totals agree with the recount: {rows:,} {columns.rows}, {amount:,} "
            f"{columns.amount}, each counted once"
        )
        return
    yield f"MISMATCH   {len(wrong)} {'difference' if len(wrong) == 1 else 'differences'}"
    yield from (f"  {sentence}" for sentence in wrong[:SHOWN_MAX])
    if len(wrong) > SHOWN_MAX:
        yield f"  and {len(wrong) - SHOWN_MAX} more"


def spans(txids: Sequence[int]) -> str:
    """Return ascending numbers in short form: `1-3, 7`."""
    parts: list[list[int]] = []
    for txid in txids:
        if parts and txid == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], txid]
        else:
            parts.append([txid])
    return ", ".join("-".join(map(str, part)) for part in parts)
