"""A trace as plain text and as JSON: the current row, a line per contribution, and whether they add up."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from txtopo.reports.as_json import document, plain
from txtopo.reports.formatting import NOTHING, THIN_SPACE, clean, count, counted, instant, table
from txtopo.reports.stored_description import RowTable
from txtopo.reports.trace import Contribution, Trace

CODE_SHOWN = 12
"""Number of hex digits of a code hash."""


def trace_text(trace: Trace) -> str:
    """Return the row, its contributions oldest first, and the verdict."""
    target = trace.target
    key = ", ".join(
        f"{column} is NULL" if value is None else f"{column} = {value}" for column, value in trace.key.items()
    )
    row = "there is no such row" if trace.row is None else _listed(trace.row)
    lines = [
        f"{clean(target.tables.target)}  {clean(key)}",
        f"row now   {clean(row)}",
        f"made by   committer {clean(target.committer)} of topology {clean(target.topology)}: {_counted(trace)}",
    ]
    if trace.contributions:
        numbers = target.tables.numbers
        header = ["txid", "what", *numbers, "committed at", "attempt", "epoch", "code", "files"]
        left = ("what", "committed at", "code", "files")
        lines += ["", table(header, [_cells(one, numbers) for one in trace.contributions], left=left), ""]
    return "\n".join([*lines, _verdict(trace)])


def trace_json(trace: Trace) -> str:
    """Return schema `txtopo.trace/1`; numbers are decimal digits as text, too large for JSON's."""
    target = trace.target
    contributions = [{**plain(one), "numbers": _digits(one.numbers)} for one in trace.contributions]
    values = {
        "topology": target.topology,
        "committer": target.committer,
        "table": target.tables.target,
        "key": dict(trace.key),
        "row": None if trace.row is None else _digits(trace.row),
        "contributions": contributions,
        "count": trace.count,
        "sums": None if trace.sums is None else _digits(trace.sums),
        "verdict": trace.verdict,
    }
    return document("txtopo.trace/1", {**values, "contributions": contributions})


def _counted(trace: Trace) -> str:
    shown = len(trace.contributions)
    part = f", the last {count(shown)} of them" if shown < trace.count else ""
    return (
        f"{counted(trace.count, 'contribution')}{part}, oldest first"
        if shown > 1
        else f"{counted(trace.count, 'contribution')}{part}"
    )


def _cells(one: Contribution, numbers: tuple[str, ...]) -> list[str]:
    return [
        str(one.txid),
        _what(one),
        *(_number(one.numbers[name]) for name in numbers),
        instant(one.committed_at) if one.committed_at else NOTHING,
        NOTHING if one.attempt is None else str(one.attempt),
        NOTHING if one.epoch is None else str(one.epoch),
        one.code_hash[:CODE_SHOWN] if one.code_hash else NOTHING,
        _files(one),
    ]


def _what(one: Contribution) -> str:
    if one.txid == 0:
        return "was there before"
    own = "own" if one.backfills is None else f"backfills {one.backfills}"
    what = own if one.reverses is None else f"reverses {one.reverses}"
    return what if one.state == "committed" else f"{what}, batch {one.state or 'not in the ledger'}"


def _files(one: Contribution) -> str:
    more = one.files - len(one.paths)
    named = ", ".join(one.paths)
    return (f"{named}, … and {count(more)} more" if more > 0 else named) or NOTHING


def _verdict(trace: Trace) -> str:
    if isinstance(trace.target.tables, RowTable):
        last = "no row" if trace.sums is None else f"the row {clean(_listed(trace.sums))}"
        return f"MATCH     its log leaves {last}" if trace.verdict == "MATCH" else f"MISMATCH  its log leaves {last}"
    if trace.verdict == "MATCH":
        return "MATCH     the contributions add up to the row"
    return f"MISMATCH  the contributions add up to {clean(_listed(trace.sums or {}))}"


def _listed(numbers: Mapping[str, Decimal | str | None]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in numbers.items())


def _number(value: Decimal | str | None) -> str:
    if isinstance(value, Decimal):
        return f"{value:,f}".replace(",", THIN_SPACE)
    return NOTHING if value is None else clean(value)


def _digits(numbers: Mapping[str, Decimal | str | None]) -> dict[str, str | None]:
    return {name: f"{value:f}" if isinstance(value, Decimal) else value for name, value in numbers.items()}
