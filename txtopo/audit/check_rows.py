"""Recomputes from the tables of rows what a commit recorded of them: number and digest of the rows of every batch."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit.check_contributions import KNOWN, ROWS, Contributed
from txtopo.audit.check_redos import REVERSED, Chains
from txtopo.audit.verdicts import Findings
from txtopo.reports.cursors import stream
from txtopo.reports.formatting import counted
from txtopo.reports.stored_description import RowTable, listed

_RESULTS = """select results from txtopo.committer_count
 where topology = :topology and txid = :txid and committer = :committer"""


def read_rows(connection: Connection, table: RowTable, first: int, last: int) -> dict[int, Contributed]:
    """Return the rows by txid, from every row of the table in the range; only sums are kept in memory."""
    found: dict[int, Contributed] = {}
    sql = (
        f"select r.txid, row({listed(table.hashed, 'r')})::text from {table.target_sql} r"
        f" where r.txid between (%(first)s)::bigint and %(last)s"
    )
    for txid, row in stream(connection, sql, first=first, last=last):
        one = found.setdefault(txid, Contributed())
        one.rows += 1
        one.weight += 1
        one.digest += int.from_bytes(hashlib.sha256(row.encode()).digest()[:8], "big", signed=True)
    return found


def check_rows(findings: Findings, row: Any, counts: Any, table: RowTable, own: Contributed, chains: Chains) -> None:
    """Compare the rows of one applied batch with the recorded numbers. A batch that was redone has none."""
    txid, who = row.txid, f"committer {table.name}"
    findings.compared(KNOWN, 1)
    redone = chains.applied_redos(txid)
    if redone:
        findings.equal(
            ROWS,
            own.rows == 0,
            f"{who} has {counted(own.rows, 'row')} in {table.target}, although batch {redone[0]} redoes it",
            txid,
        )
        return
    findings.equal(
        ROWS,
        own.rows == counts.results == counts.counted,
        f"{who} has {counted(own.rows, 'row')} in {table.target}, its batch recorded {counts.results}",
        txid,
    )
    findings.equal(
        ROWS,
        own.digest == int(counts.digest),
        f"{who}: its rows in {table.target} are not those that were committed (digest {own.digest}, committed "
        f"{counts.digest})",
        txid,
    )


def check_removed(
    findings: Findings, connection: Connection, topology: str, row: Any, counts: Any, chains: Chains
) -> None:
    """Check how many rows a redo recorded as removed: all that the redone batch had added."""
    due = 0
    if row.redo_of is not None and chains.is_applied(row.redo_of):
        bound = {"topology": topology, "txid": row.redo_of, "committer": counts.committer}
        due = connection.execute(text(_RESULTS), bound).scalar_one_or_none() or 0
    findings.equal(
        REVERSED,
        counts.reversed == due,
        f"committer {counts.committer} removed {counted(counts.reversed, 'row')}, batch {row.redo_of} had {due}",
        row.txid,
    )


def check_stray_rows(findings: Findings, table: RowTable, left: dict[int, Contributed]) -> None:
    """Report rows that belong to no applied batch of the ledger."""
    for txid, one in sorted(left.items()):
        findings.wrong(
            KNOWN,
            f"table {table.target} has {counted(one.rows, 'row')} of batch {txid}, which the ledger has not applied "
            f"to it",
            txid,
        )
