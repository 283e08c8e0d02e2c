"""Compares the dead letters that were kept with the ledger's number, and tells which records of the files they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.audit.verdicts import Findings
from txtopo.reports.text import counted

ROWS = "dead_letters.rows"


def check_dead_letters(findings: Findings, row: Any, kept: Sequence[Any]) -> None:
    """`kept`: the dead letters of one batch. What they say is covered by the batch's seal."""
    number = len(kept)
    findings.equal(
        ROWS,
        number == (row.dead_lettered or 0),
        f"kept: {counted(number, 'dead letter')}; the ledger says {row.dead_lettered or 0}",
        row.txid,
    )
    if row.state == "quarantined" and number:
        findings.wrong("quarantine.empty", f"it is quarantined, but has {counted(number, 'dead letter')}", row.txid)


def lines_by_path(kept: Sequence[Any], spout: str, paths: frozenset[str]) -> tuple[Mapping[str, frozenset[int]], int]:
    """Where the dead letters of one spout stand in these files, by path; and how many name no line of them."""
    found: dict[str, set[int]] = {}
    nowhere = 0
    for one in kept:
        if one.spout != spout:
            continue
        path, _, line = one.position.rpartition(":")
        if path in paths and line.isascii() and line.isdigit() and len(line) < 19:
            found.setdefault(path, set()).add(int(line))
        else:
            nowhere += 1
    return {path: frozenset(lines) for path, lines in found.items()}, nowhere
