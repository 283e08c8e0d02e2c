"""Recomputes from the tables of rows what a commit recorded of them: number and digest of the rows of every batch."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit.check_contributions import KNOWN, ROWS, Contributed
from txtopo.audit.check_redos import REVERSED, Chains
from txtopo.audit.check_target import CHECK, KEYS_NAMED_MAX, shown
from txtopo.audit.verdicts import Findings
from txtopo.reports.cursors import stream
from txtopo.reports.formatting import counted
from txtopo.reports.stored_description import LastRows, RowTable, listed, quoted

_RESULTS = """select results from txtopo.committer_count
 where topology = :topology and txid = :txid and committer = :committer"""


def read_rows(connection: Connection, table: RowTable, first: int, last: int) -> dict[int, Contributed]:
    """Return the rows by txid, from every row of the table in the range; only sums are kept in memory."""
    found: dict[int, Contributed] = {}
    sql = (
        f"select r.txid, row({listed(table.hashed, 'r')})::text from {table.log_sql} r"
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
    redone = chains.applied_redos(txid if row.backfills is None else row.backfills)
    if redone:
        findings.equal(
            ROWS,
            own.rows == 0,
            f"{who} has {counted(own.rows, 'row')} in {table.log}, although batch {redone[0]} redoes it",
            txid,
        )
        return
    findings.equal(
        ROWS,
        own.rows == counts.results == counts.counted,
        f"{who} has {counted(own.rows, 'row')} in {table.log}, its batch recorded {counts.results}",
        txid,
    )
    findings.equal(
        ROWS,
        own.digest == int(counts.digest),
        f"{who}: its rows in {table.log} are not those that were committed (digest {own.digest}, committed "
        f"{counts.digest})",
        txid,
    )


def check_removed(
    findings: Findings, connection: Connection, topology: str, row: Any, counts: Any, chains: Chains
) -> None:
    """Check how many rows a redo recorded as removed: all that the redone batch had added."""
    due = 0
    if row.redo_of is not None and chains.is_applied(row.redo_of):
        holder = chains.holder(row.redo_of, counts.committer)
        bound = {"topology": topology, "txid": holder, "committer": counts.committer}
        due = connection.execute(text(_RESULTS), bound).scalar_one_or_none() or 0
    findings.equal(
        REVERSED,
        counts.reversed == due,
        f"committer {counts.committer} removed {counted(counts.reversed, 'row')}, batch {row.redo_of} had {due}",
        row.txid,
    )


def check_last_rows(findings: Findings, connection: Connection, table: RowTable, last: LastRows) -> None:
    """Compare a table, row by row, with the last row of each key in its log. The server finds those that differ."""
    (there,) = next(stream(connection, f"select count(*) from {table.target_sql} where %(one)s = 1", one=1))
    wrong = 0
    named: list[tuple[int, list[Any]]] = []
    for side, *key in stream(connection, _differences(table, last), one=1):
        wrong += 1
        if len(named) < KEYS_NAMED_MAX:
            named.append((side, key))
    findings.compared(CHECK, there)
    for side, key in named:
        said = ", ".join(f"{name} {shown(value)}" for name, value in zip(last.keys, key, strict=True))
        what = "a row that is not the last one of its log" if side else "not the last row of its log"
        findings.wrong(CHECK, f"table {table.target}, key {said}: the table has {what}")
    if wrong > len(named):
        findings.wrong(CHECK, f"table {table.target}: and {counted(wrong - len(named), 'more row')}")


def _differences(table: RowTable, last: LastRows) -> str:
    """Return the query for rows that only one side has: ranked by a window, which commits do not use. Fields have
    numbers in it, since one may be called like a column of the query.
    """
    fields = [*last.front, *table.fields]
    numbered = {name: f"f{at}" for at, name in enumerate(fields)}
    order = [f"r.{quoted(name)} desc nulls last" for name in last.version]
    order += ["r.origin desc", *([] if last.whole else ["r.n desc"])]  # all rows of a batch have one place
    named = ", ".join(f"r.{quoted(name)} as {number}" for name, number in numbered.items())
    numbers, keys = ", ".join(numbered.values()), ", ".join(numbered[name] for name in last.keys)
    kept = f" and {numbered[last.deleted]} is not true" if last.deleted is not None else ""
    return f"""
with ranked as (
  select {named}, rank() over (partition by {listed(last.keys, "r")} order by {", ".join(order)}) as place
  from {table.log_sql} r),
both_sides as (
  select 1 as side, {named} from {table.target_sql} r
  union all select 0, {numbers} from ranked where place = 1{kept}),
spelled as (select side, {keys}, row({numbers})::text as spelling from both_sides),
paired as (
  select *, count(*) over (partition by spelling) as number, sum(side) over (partition by spelling) as of_target
  from spelled)
select side, {keys} from paired where %(one)s = 1 and (number, of_target) <> (2, 1) order by side desc"""


def check_stray_rows(findings: Findings, table: RowTable, left: dict[int, Contributed]) -> None:
    """Report rows that belong to no applied batch of the ledger."""
    for txid, one in sorted(left.items()):
        findings.wrong(
            KNOWN,
            f"table {table.log} has {counted(one.rows, 'row')} of batch {txid}, which the ledger has not applied to it",
            txid,
        )
