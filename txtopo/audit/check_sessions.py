"""Finds the sessions in the rows of a table again, with separate code, and compares them with the view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection

from txtopo.audit.readers.text_values import WIDE
from txtopo.audit.verdicts import Findings
from txtopo.reports.cursors import stream
from txtopo.reports.stored_description import CommitterTables, StoredSessions, listed, quoted


def check_sessions(findings: Findings, connection: Connection, committer: CommitterTables, check: str) -> None:
    """Compare the sessions in the order of their keys, up to the first that differs."""
    named = committer.sessions
    if named is None:
        return
    view = committer.sessions_sql
    (found,) = next(stream(connection, "select to_regclass(%(view)s)", view=view.replace("%%", "%")))
    if found is None:
        findings.wrong(check, f"the view {committer.target}_sessions is missing; `txtopo run` creates it")
        return
    keys, numbers = committer.keys[:-1], _numbers(committer, named)
    columns = [listed(keys, "v"), _seconds(named.start, "v"), _seconds(named.end, "v"), listed(numbers, "v")]
    order = listed([*keys, named.start], "v")
    sql = f"select {', '.join(filter(None, columns))} from {view} v where %(one)s = 1 order by {order}"
    with localcontext(WIDE):
        both = zip_longest(_sessions(connection, committer, named, numbers), map(list, stream(connection, sql, one=1)))
        wrong = next((pair for pair in both if pair[0] != pair[1]), None)
    if wrong is not None:
        right, there = (_shown(keys, named, numbers, one) for one in wrong)
        said = f"view {committer.target}_sessions has {there}, where the rows of the table give {right}"
        findings.wrong(check, said)


def _seconds(name: str, alias: str) -> str:
    """Return SQL for a time in seconds, exactly: the end of a session may be in a year that Python does not have."""
    return f"extract(epoch from {alias}.{quoted(name)})"


def _numbers(committer: CommitterTables, named: StoredSessions) -> list[str]:
    return [name for name in committer.numbers if name not in (named.first, named.last)]


def _sessions(
    connection: Connection, committer: CommitterTables, named: StoredSessions, numbers: Sequence[str]
) -> Iterator[list[Any]]:
    """Yield each session: keys, start, end, numbers. Only rows of one session are kept."""
    *keys, slot = committer.keys
    gap = Decimal(committer.windows[0].width_us) / 1_000_000
    kinds = {one.column: one.kind for one in committer.aggregates}
    columns = [listed(keys, "t"), _seconds(named.first, "t"), _seconds(named.last, "t"), listed(numbers, "t")]
    sql = (
        f"select {', '.join(filter(None, columns))} from {committer.target_sql} t where %(one)s = 1 order by "
        f"{listed([*keys, slot], 't')}"
    )
    session: list[Any] = []
    last: Decimal | None = None
    for row in stream(connection, sql, one=1):
        key, first, values = list(row[: len(keys)]), row[len(keys)], row[len(keys) + 2 :]
        if session and last is not None and first is not None and key == session[: len(keys)] and first - last <= gap:
            pairs = enumerate(zip(numbers, values, strict=True), len(keys) + 2)
            for at, (name, value) in pairs:
                session[at] = _both(kinds.get(name, "sum"), session[at], value)
        else:
            if session:
                yield session
            session = [*key, first, None, *values]
        last = row[len(keys) + 1]
        session[len(keys) + 1] = None if last is None else last + gap
    if session:
        yield session


def _both(kind: str, one: Any, other: Any) -> Any:
    if kind in ("sum", "count"):
        return one + other
    if one is None or other is None:
        return other if one is None else one
    return min(one, other) if kind == "min" else max(one, other)


def _shown(keys: Sequence[str], named: StoredSessions, numbers: Sequence[str], row: Sequence[Any] | None) -> str:
    if row is None:
        return "no more"
    values = [*row[: len(keys)], *map(_moment, row[len(keys) : len(keys) + 2]), *row[len(keys) + 2 :]]
    names = [*keys, named.start, named.end, *numbers]
    return ", ".join(f"{name} {'NULL' if value is None else value}" for name, value in zip(names, values, strict=True))


def _moment(seconds: Decimal | None) -> str | None:
    try:
        return None if seconds is None else str(datetime(1970, 1, 1) + timedelta(microseconds=int(seconds * 1_000_000)))
    except OverflowError:
        return f"{seconds} s after 1970-01-01"
