"""Compares a whole target table, key by key, with what follows from all contributions: sums, and minima and maxima of
those that count. The server aggregates; no rows are kept here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from txtopo.audit.check_views import check_averages, check_views
from txtopo.audit.verdicts import TXIDS_MAX, Findings
from txtopo.reports.cursors import stream
from txtopo.reports.formatting import batches_named, counted
from txtopo.reports.stored_description import CommitterTables, StoredAggregate, quoted

CHECK = "target.keys"
KEYS_NAMED_MAX = 10
"""Number of different keys of a table that are named; the rest is counted."""


def check_target(
    findings: Findings, connection: Connection, committer: CommitterTables, parts: Sequence[CommitterTables]
) -> None:
    """Check each key of either side: it exists once, with the same numbers. A key whose contributions were all reversed
    may be missing. Then check what follows from the table: columns, and views, also from the tables of its `parts`.
    """
    (keys,) = next(stream(connection, f"select count(*) from {committer.target_sql} where %(one)s = 1", one=1))
    wrong = 0
    named: list[Sequence[Any]] = []
    for row in stream(connection, _differences(committer), one=1):
        wrong += 1
        if len(named) < KEYS_NAMED_MAX:
            named.append(tuple(row))
    findings.compared(CHECK, keys)
    for row in named:
        key = row[: len(committer.keys)]
        txids = _contributors(connection, committer, key)
        said = f"table {committer.target}, {_difference(committer, row, txids)}"
        findings.wrong(CHECK, said, *txids, look=_trace(committer, key))
    if wrong > len(named):
        findings.wrong(CHECK, f"table {committer.target}: and {counted(wrong - len(named), 'more key')}")
    check_computed(findings, connection, committer, parts)


def check_computed(
    findings: Findings, connection: Connection, committer: CommitterTables, parts: Sequence[CommitterTables]
) -> None:
    """Check what the server computes from the rows of a table: columns and views."""
    check_averages(findings, connection, committer, committer.target_sql, f"table {committer.target}", CHECK)
    _check_window_ends(findings, connection, committer)
    check_views(findings, connection, committer, parts, CHECK)


def check_total(findings: Findings, connection: Connection, committer: CommitterTables, expected: int) -> None:
    """Without contributions: compare the total of the table with that of the batches in effect, from the ledger."""
    sql = f"select coalesce(sum({quoted(committer.count)}), 0)::bigint from {committer.target_sql} where %(one)s = 1"
    (total,) = next(stream(connection, sql, one=1))
    findings.equal(
        CHECK, total == expected, f"table {committer.target} counts {total} in all, the batches in effect {expected}"
    )


def _differences(committer: CommitterTables) -> str:
    keys = ", ".join(f"k{at}" for at in range(len(committer.keys)))
    extremes = [committer.extremes.get(name) for name in committer.numbers]

    def side(alias: str, mark: int, counts: str = "") -> str:
        columns = [f"{alias}.{quoted(name)} as k{at}" for at, name in enumerate(committer.keys)]
        for at, (name, extreme) in enumerate(zip(committer.numbers, extremes, strict=True)):
            value = f"{alias}.{quoted(name)}"
            if extreme is None:
                columns.append(f"{value}::numeric as n{at}")
            else:
                plain = f'{value}::text collate "C"' if extreme.type == "text" else value
                columns.append(f"case when {counts} then {plain} end as n{at}" if counts else f"{plain} as n{at}")
        return f"select {', '.join(columns)}, {mark} as target"

    # What a batch contributed counts until another batch reverses it.
    counts = (
        f"c.reverses is null and c.txid not in (select reverses from {committer.contributions_sql} where reverses is "
        f"not null)"
    )
    made, equal, gone = [], [], []
    for at, extreme in enumerate(extremes):
        function = "sum" if extreme is None else _function(extreme)
        made += [
            f"{function}(n{at}) filter (where target = {mark}) as {name}{at}" for mark, name in ((1, "t"), (0, "c"))
        ]
        equal.append(f"t{at} = c{at}" if extreme is None else f"t{at} is not distinct from c{at}")
        gone.append(f"c{at} = 0" if extreme is None else f"c{at} is null")
    values = ", ".join(f"{name}{at}" for name in ("t", "c") for at in range(len(extremes)))
    return f"""
select {keys}, present, {values} from (
  select {keys}, sum(target) as present, {", ".join(made)} from (
    {side("t", 1)} from {committer.target_sql} t
    union all {side("c", 0, counts)} from {committer.contributions_sql} c) both_sides
  group by {keys}) compared
where %(one)s = 1 and ((present = 1 and {" and ".join(equal)}) or (present = 0 and {" and ".join(gone)})) is not true"""


def _function(extreme: StoredAggregate) -> str:
    if extreme.type == "boolean":
        return "bool_and" if extreme.kind == "min" else "bool_or"
    return extreme.kind


def _check_window_ends(findings: Findings, connection: Connection, committer: CommitterTables) -> None:
    for one in committer.windows:
        start, end = (f"extract(epoch from t.{quoted(name)})" for name in (one.start, one.end))
        sql = (
            f"select count(*) from {committer.target_sql} t where %(one)s = 1 and {end} is distinct from {start} + "
            f"{one.width_us // 1_000_000}"
        )
        (wrong,) = next(stream(connection, sql, one=1))
        findings.equal(
            CHECK,
            wrong == 0,
            f"table {committer.target}: {counted(wrong, 'row')} whose {one.end} is not the end of the window",
        )


def _trace(committer: CommitterTables, key: Sequence[Any]) -> str:
    """Return the command that shows what made this row. If no shell line can contain a value, the reader must name
    it.
    """
    words = ["txtopo trace", "--table", shlex.quote(committer.target)]
    for name, value in zip(committer.keys, key, strict=True):
        plain = "..." if isinstance(value, memoryview) or not str(value).isprintable() else str(value)
        words += ["--null", shlex.quote(name)] if value is None else ["--key", shlex.quote(f"{name}={plain}")]
    return " ".join(words)


def _contributors(connection: Connection, committer: CommitterTables, key: Sequence[Any]) -> list[int]:
    same = " and ".join(f"c.{quoted(name)} is not distinct from %(k{at})s" for at, name in enumerate(committer.keys))
    sql = (
        f"select distinct c.txid from {committer.contributions_sql} c where {same} and c.txid <> %(genesis)s order "
        f"by c.txid"
    )
    values = {f"k{at}": value for at, value in enumerate(key)}
    return [row[0] for row in connection.exec_driver_sql(sql, {**values, "genesis": 0})]


def _difference(committer: CommitterTables, row: Sequence[Any], txids: Sequence[int]) -> str:
    width, numbers = len(committer.keys), len(committer.numbers)
    key = ", ".join(f"{name} {shown(value)}" for name, value in zip(committer.keys, row, strict=False))
    present, there, right = row[width], row[width + 1 : width + 1 + numbers], row[width + 1 + numbers :]
    if not present:
        has = "the table has no such row"
    elif present > 1:
        has = f"the table has {present} such rows"
    else:
        has = f"the table has {_numbers(committer, there)}"
    ought = (
        "no batch contributed to it" if right[0] is None else f"contributions add up to {_numbers(committer, right)}"
    )
    more = f" and {len(txids) - TXIDS_MAX} more" if len(txids) > TXIDS_MAX else ""
    by = f" ({batches_named(txids[:TXIDS_MAX])}{more})" if txids else ""
    return f"key {key}: {has}, {ought}{by}"


def _numbers(committer: CommitterTables, values: Sequence[Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(committer.numbers, values, strict=True))


def shown(value: Any) -> str:
    """Return a key's value for a message."""
    if value is None:
        return "NULL"
    return (
        repr(bytes(value)) if isinstance(value, memoryview) else repr(value) if isinstance(value, str) else str(value)
    )
