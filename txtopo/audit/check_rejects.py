"""Compares the rejected records that were kept with the ledger's number and with the files of their batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txtopo.audit.verdicts import Findings
from txtopo.reports.text import counted

ROWS, LINES = "rejects.rows", "rejects.lines"


def check_rejected_rows(findings: Findings, row: Any, kept: Sequence[Any], files: Sequence[Any]) -> int:
    """`kept`: how many of each spout and path. Returns how many there are in all.

    What they say is compared where the files are recounted: `rejects.lines`.
    """
    number: int = sum(one.number for one in kept)
    findings.equal(
        ROWS,
        number == (row.rejected or 0),
        f"kept: {counted(number, 'rejected record')}; the ledger says {row.rejected or 0}",
        row.txid,
    )
    strange = sorted({(one.spout, one.path) for one in kept} - {(one.spout, one.path) for one in files})
    findings.equal(
        ROWS,
        not strange,
        f"rejected records of {strange[0][1] if strange else ''}, which is not one of its files",
        row.txid,
    )
    return number
