"""Recomputes from the contribution tables what the apply statements returned: number of rows, weights and digest of
every batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from txtopo.audit.verdicts import Findings
from txtopo.reports.cursors import stream
from txtopo.reports.formatting import counted
from txtopo.reports.stored_description import CommitterTables, listed, quoted

ROWS, KNOWN = "contributions.rows", "contributions.known"


@dataclass(slots=True)
class Contributed:
    """The contributions of one batch to one committer's table, added up here."""

    rows: int = 0
    weight: int = 0
    digest: int = 0
    reversed_rows: int = 0
    """Number of rows that reverse contributions of another batch."""
    reversed_weight: int = 0
    """Of these rows, with the signs reversed: what was subtracted."""
    reversed_digest: int = 0
    """Of these rows, with the signs reversed: what was subtracted."""
    reversed_of: set[int] = field(default_factory=set)


def read_contributions(
    connection: Connection, committer: CommitterTables, first: int, last: int, also: Sequence[int] = ()
) -> dict[int, Contributed]:
    """Return the contributions by txid, from every row of the contribution table in the range and of the batches in
    `also`; only sums are kept in memory.
    """
    found: dict[int, Contributed] = {}
    for txid, reverses, weight, text in _rows(connection, committer, first, last, also):
        one = found.get(txid)
        if one is None:
            one = found[txid] = Contributed()
        digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
        if reverses is None:
            one.rows += 1
            one.weight += weight
            one.digest += digest
        else:
            one.reversed_rows += 1
            one.reversed_weight += weight
            one.reversed_digest += digest
            one.reversed_of.add(reverses)
    return found


def _rows(
    connection: Connection, committer: CommitterTables, first: int, last: int, also: Sequence[int]
) -> Iterator[tuple[int, int | None, int, str]]:
    """Yield rows. A row that reverses another has the signs of its sums changed, so that it equals the reversed one."""
    keys, count = listed(committer.keys, "c"), f"c.{quoted(committer.count)}"
    negated = ", ".join(f"{'-' if name in committer.added else ''}c.{quoted(name)}" for name in committer.numbers)
    sql = (
        f"select c.txid, c.reverses, case when c.reverses is null then {count} else -{count} end,"
        f" case when c.reverses is null then row({listed(committer.columns, 'c')})::text else row({keys}, "
        f"{negated})::text end"
        f" from {committer.contributions_sql} c where c.txid between (%(first)s)::bigint and %(last)s or c.txid = "
        f"any(%(also)s)"
    )
    return stream(connection, sql, first=first, last=last, also=list(also))


def check_contributions(
    findings: Findings, row: Any, counts: Any, committer: CommitterTables, contributed: Contributed
) -> None:
    """Compare one committer's contributions to one applied batch with the recorded numbers."""
    txid, who = row.txid, f"committer {committer.name}"
    findings.compared(KNOWN, 1)
    findings.equal(
        ROWS,
        contributed.rows == counts.results - counts.ignored,
        f"{who} has {counted(contributed.rows, 'contribution')}, its batch recorded {counts.results - counts.ignored}",
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
        f"{who}: its contributions are not those that were committed (digest {contributed.digest}, committed "
        f"{counts.digest})",
        txid,
    )


def check_strangers(
    findings: Findings, committer: CommitterTables, left: dict[int, Contributed], baseline: int | None
) -> None:
    """Report contributions that belong to no applied batch of the ledger; txid 0 is what existed before."""
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
            f"committer {committer.name} has {counted(one.rows + one.reversed_rows, 'contribution')} of batch "
            f"{txid}, which the ledger has not applied to it",
            txid,
        )
