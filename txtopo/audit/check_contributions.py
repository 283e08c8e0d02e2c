"""Recomputes from the contribution tables what the apply statements returned: rows, weights and digest of every batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from txtopo.audit.cursors import stream
from txtopo.audit.describing import CommitterTables, listed, quoted
from txtopo.audit.verdicts import Findings

ROWS, KNOWN = "contributions.rows", "contributions.known"


@dataclass(slots=True)
class Contributed:
    """What one batch brought to one committer's table, added up here."""

    rows: int = 0
    weight: int = 0
    digest: int = 0
    taken_back_rows: int = 0
    taken_back_weight: int = 0
    taken_back_of: set[int] = field(default_factory=set)


def read_contributions(
    connection: Connection, committer: CommitterTables, first: int, last: int
) -> dict[int, Contributed]:
    """By txid, from every row of the contribution table in the range; batches are kept in memory, rows are not."""
    found: dict[int, Contributed] = {}
    for txid, reverses, weight, text in _rows(connection, committer, first, last):
        one = found.get(txid)
        if one is None:
            one = found[txid] = Contributed()
        if reverses is None:
            one.rows += 1
            one.weight += weight
            one.digest += int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
        else:
            one.taken_back_rows += 1
            one.taken_back_weight += weight
            one.taken_back_of.add(reverses)
    return found


def _rows(
    connection: Connection, committer: CommitterTables, first: int, last: int
) -> Iterator[tuple[int, int | None, int, str]]:
    sql = (
        f"select c.txid, c.reverses, c.{quoted(committer.count)}, row({listed(committer.columns, 'c')})::text"
        f" from {committer.contributions_sql} c where c.txid between %(first)s and %(last)s"
    )
    return stream(connection, sql, first=first, last=last)


def check_contributions(
    findings: Findings, row: Any, counts: Any, committer: CommitterTables, contributed: Contributed
) -> None:
    """One committer's contributions to one applied batch against the numbers that were recorded with it."""
    txid, who = row.txid, f"committer {committer.name}"
    findings.compared(KNOWN, 1)
    findings.equal(
        ROWS,
        contributed.rows == counts.results - counts.ignored,
        f"{who} has {contributed.rows} contributions, its batch recorded {counts.results - counts.ignored}",
        txid,
    )
    findings.equal(
        ROWS,
        contributed.weight == counts.counted,
        f"{who}: its contributions weigh {contributed.weight}, its batch counted {counts.counted}",
        txid,
    )
    findings.equal(
        ROWS,
        contributed.digest == int(counts.digest),
        f"{who}: its contributions are not those that were committed (digest {contributed.digest}, committed {counts.digest})",
        txid,
    )
    findings.equal(
        ROWS,
        contributed.taken_back_rows == counts.reversed
        and contributed.taken_back_of <= ({row.redo_of} if row.redo_of else set()),
        f"{who} takes back {contributed.taken_back_rows} contributions of batches {sorted(contributed.taken_back_of)}, "
        f"its batch recorded {counts.reversed} of {row.redo_of or 'none'}",
        txid,
    )


def check_strangers(
    findings: Findings, committer: CommitterTables, left: dict[int, Contributed], baseline: int | None
) -> None:
    """Contributions that no applied batch of the ledger accounts for; txid 0 is what was there before."""
    before = left.pop(0, None)
    if baseline is not None:
        findings.equal(
            ROWS,
            (before or Contributed()).digest == baseline,
            f"committer {committer.name}: the rows that it took over are not those that were registered",
        )
    elif before is not None:
        left = {0: before, **left}
    for txid, one in sorted(left.items()):
        findings.wrong(
            KNOWN,
            f"committer {committer.name} has {one.rows + one.taken_back_rows} contributions of batch {txid}, which the ledger has not applied to it",
            txid,
        )
