"""Compares the records that a batch does not count with the ledger's numbers and the files of the batch: rejected
records and dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from txtopo.audit.verdicts import Findings
from txtopo.core.positions import read_position
from txtopo.reports.formatting import counted

REJECTED, DEAD_LETTERS = "rejects.rows", "dead_letters.rows"


def check_rejected_rows(
    findings: Findings,
    row: Any,
    kept: Sequence[Any],
    files: Sequence[Any],
    partitions: Callable[[], Container[tuple[str, str]]] = frozenset,
) -> int:
    """Compare rejected records. `kept`: their numbers by spout and path. Returns the total number. `partitions`:
    returns spout and name of the partitions of which the plan has a range.

    Their content is compared when the files are recounted: `rejects.lines`.
    """
    number: int = sum(one.number for one in kept)
    findings.equal(
        REJECTED,
        number == (row.rejected or 0),
        f"kept: {counted(number, 'rejected record')}; the ledger says {row.rejected or 0}",
        row.txid,
    )
    strange = sorted({(one.spout, one.path) for one in kept} - {(one.spout, one.path) for one in files})
    ranges = partitions() if strange else ()
    strange = [place for place in strange if place not in ranges]
    findings.equal(
        REJECTED,
        not strange,
        f"rejected records of {strange[0][1] if strange else ''}, which is not one of its files",
        row.txid,
    )
    return number


def check_dead_letters(findings: Findings, row: Any, kept: Sequence[Any]) -> None:
    """Compare dead letters. `kept`: the dead letters of one batch. The batch's seal covers their content."""
    number = len(kept)
    findings.equal(
        DEAD_LETTERS,
        number == (row.dead_lettered or 0),
        f"kept: {counted(number, 'dead letter')}; the ledger says {row.dead_lettered or 0}",
        row.txid,
    )
    if row.state == "quarantined" and number:
        findings.wrong("quarantine.empty", f"it is quarantined, but has {counted(number, 'dead letter')}", row.txid)


def lines_by_path(kept: Sequence[Any], spout: str, paths: frozenset[str]) -> tuple[Mapping[str, frozenset[int]], int]:
    """Return the lines in these files that the dead letters of one spout name, by path; and the number of dead letters
    that name no such line.
    """
    found: dict[str, set[int]] = {}
    nowhere = 0
    for one in kept:
        if one.spout != spout:
            continue
        place = read_position(one.position, paths)
        if place is None:
            nowhere += 1
        else:
            found.setdefault(place[0], set()).add(place[1])
    return {path: frozenset(lines) for path, lines in found.items()}, nowhere
