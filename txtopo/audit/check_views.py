"""Finds windows that slide, sessions and numbers of distinct values in the rows of the tables again, with separate
code, and compares them with the views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txtopo.audit.readers.text_values import WIDE
from txtopo.audit.verdicts import Findings
from txtopo.committers.postgres.sql_errors import one_line, sqlstate
from txtopo.committers.postgres.sqlstates import INSUFFICIENT_PRIVILEGE
from txtopo.reports.cursors import stream
from txtopo.reports.formatting import counted
from txtopo.reports.stored_description import CommitterTables, listed, quoted

REGISTERS = 4096
_RANKS = 64
_OF_THE_VIEW = ("22", "42")
"""Classes of errors that a definition causes: what it computes, and what it names."""
_UNIT_BITS = 53
"""No rank of a register is higher."""


class _Shown(NamedTuple):
    """A row of a view, without its key: a window, a session, or a row of the table."""

    start: Decimal | None
    end: Decimal | None
    """Moments in seconds, exactly: the end of a session may be in a year that Python does not have."""
    numbers: list[Any]


class _Slot(NamedTuple):
    """A row of the table, without its key."""

    start: Decimal | None
    first: Decimal | None
    last: Decimal | None
    """The times in it, if the committer has sessions."""
    numbers: list[Any]


def check_views(
    findings: Findings, connection: Connection, committer: CommitterTables, parts: Sequence[CommitterTables], check: str
) -> None:
    """Compare each view in the order of its keys, up to the first row that differs. `parts` have the values of the
    numbers of distinct values, in their order.
    """
    suffixes = [
        *(["_windows"] if committer.slides > 1 else []),
        *(["_sessions"] if committer.sessions is not None else []),
        *(["_distinct"] if committer.distinct else []),
    ]
    for suffix in suffixes:
        name, view = f"{committer.target}{suffix}", committer.view_sql(suffix)
        (there,) = next(stream(connection, "select to_regclass(%(view)s)", view=view.replace("%%", "%")))
        if there is None:
            findings.wrong(check, f"the view {name} is missing; `txtopo run` creates it")
            continue
        try:
            with connection.begin_nested():
                _check_view(findings, connection, committer, parts if suffix == "_distinct" else (), suffix, check)
        except DBAPIError as error:
            state = sqlstate(error) or ""
            if not state.startswith(_OF_THE_VIEW) or state == INSUFFICIENT_PRIVILEGE:
                raise
            findings.wrong(check, f"view {name} cannot be read: {one_line(error)}")


def _check_view(
    findings: Findings,
    connection: Connection,
    committer: CommitterTables,
    parts: Sequence[CommitterTables],
    suffix: str,
    check: str,
) -> None:
    name, view = f"{committer.target}{suffix}", committer.view_sql(suffix)
    wrong = _first_difference(connection, committer, parts, view)
    if wrong is not None:
        right, shown = (_told(committer, parts, one) for one in wrong)
        findings.wrong(check, f"view {name} has {shown}, where the rows of its tables give {right}")
    check_averages(findings, connection, committer, view, f"view {name}", check)


def check_averages(
    findings: Findings, connection: Connection, committer: CommitterTables, rows_sql: str, said: str, check: str
) -> None:
    """Compare each average of a table or view with the two columns that it is computed from."""
    for one in committer.averages:
        average, total, present = (f"t.{quoted(name)}" for name in one)
        sql = (
            f"select count(*) from {rows_sql} t where %(one)s = 1 and {average} is distinct from "
            f"{total} / nullif({present}, 0)"
        )
        (wrong,) = next(stream(connection, sql, one=1))
        findings.equal(
            check,
            wrong == 0,
            f"{said}: {counted(wrong, 'row')} whose {one.column} is not {one.total} / {one.present}",
        )


def _first_difference(
    connection: Connection, committer: CommitterTables, parts: Sequence[CommitterTables], view: str
) -> tuple[list[Any] | None, list[Any] | None] | None:
    """Return the first row that the tables give and the one that the view has in its place, if they differ."""
    keys, numbers = _keys(committer), [*_numbers(committer), *_counts(committer, parts)]
    times = [f"extract(epoch from v.{quoted(name)})" for name in _times(committer)]
    columns = [*(f"v.{quoted(name)}" for name in keys), *times, *(f"v.{quoted(name)}" for name in numbers)]
    order = [*keys, *_times(committer)[:1]]
    sql = f"select {', '.join(columns)} from {view} v where %(one)s = 1 order by {listed(order, 'v')}"
    with localcontext(WIDE):
        for right, there in zip_longest(_made(connection, committer, parts), map(list, stream(connection, sql, one=1))):
            if right is None or there is None or not all(map(_is_same, right, there)):
                return right, there
    return None


def _is_same(right: Any, there: Any) -> bool:
    if isinstance(right, _Estimate):
        return there is not None and abs(right.value - there) <= Decimal("0.500001")
    return bool(right == there)


class _Estimate(NamedTuple):
    """An estimate before it is rounded."""

    value: Decimal

    def __str__(self) -> str:
        return str(round(self.value))


def _made(connection: Connection, committer: CommitterTables, parts: Sequence[CommitterTables]) -> Iterator[list[Any]]:
    """Yield what the rows of a view must be, in the order of their keys. Only the rows of one key are kept."""
    width, has_times = len(_keys(committer)), bool(_times(committer))
    rows = stream(connection, _stored(committer, parts), one=1)
    for key, of_key in groupby(rows, key=lambda row: list(row[:width])):
        shown: list[_Shown] = []
        places: dict[Decimal | None, list[int]] = {}
        counts: list[Sequence[Any]] = []
        for part, some in groupby(of_key, key=lambda row: row[width]):
            own = (row[width + 1 :] for row in some)
            if part == 0:
                shown, places = _shown(committer, [_Slot(row[2], row[3], row[4], list(row[5:])) for row in own])
                counts = [[_nothing(one)] * len(shown) for one in parts]
            elif shown:
                counts[part - 1] = _distinct(parts[part - 1], own, places, len(shown))
        for at, one in enumerate(shown):
            times = [one.start, one.end] if has_times else []
            yield [*key, *times, *one.numbers, *(of_part[at] for of_part in counts)]


def _stored(committer: CommitterTables, parts: Sequence[CommitterTables]) -> str:
    """Return the query for the rows of the table and the values, key by key: the rows first, in the order of their
    times, then each value with the times that it has.
    """
    keys, named = _keys(committer), committer.sessions
    slot = committer.windows[0].start if committer.windows else None

    def seconds(name: str | None) -> str:
        return "null::numeric" if name is None else f"extract(epoch from t.{quoted(name)})"

    def branch(table: str, part: int, value: str, rank: str, numbers: Sequence[str]) -> str:
        ends = (named.first, named.last) if named is not None and not part else (None, None)
        times = map(seconds, (slot, *ends))
        own = [f"t.{quoted(name)} as k{at}" for at, name in enumerate(keys)]
        return f"select {', '.join([*own, str(part), value, rank, *times, *numbers])} from {table} t"

    own = _numbers(committer)
    branches = [branch(committer.target_sql, 0, "null::text", "0", [f"t.{quoted(name)}" for name in own])]
    for part, (table, value) in enumerate(zip(parts, _values(committer, parts), strict=True), 1):
        column = f"t.{quoted(value)}"
        spelled, rank = (f"{column} / {_RANKS}", f"mod({column}, {_RANKS})") if table.cells else (column, "0")
        rows = branch(table.target_sql, part, f"({spelled})::text", rank, ["null"] * len(own))
        branches.append(f"{rows} where {column} is not null")
    names = [*(f"k{at}" for at in range(len(keys))), "part", "value", "rank", "slot", "f", "l"]
    names += [f"n{at}" for at in range(len(own))]
    order = ", ".join([*names[: len(keys)], "part", 'value collate "C"', "slot"])
    return f"select * from ({' union all '.join(branches)}) r ({', '.join(names)}) where %(one)s = 1 order by {order}"


def _shown(committer: CommitterTables, slots: Sequence[_Slot]) -> tuple[list[_Shown], dict[Decimal | None, list[int]]]:
    """Return the windows, sessions or rows that slots are in, in their order, and for each slot the numbers of those
    that it is in.
    """
    if committer.sessions is not None:
        return _sessions(committer, slots)
    step = Decimal(committer.windows[0].width_us) / 1_000_000 if committer.windows else None
    found: dict[Decimal | None, list[Any]] = {}
    starts: dict[Decimal | None, list[Decimal | None]] = {}
    for slot in slots:
        starts[slot.start] = [slot.start]
        if slot.start is not None and step is not None:
            starts[slot.start] = [slot.start - step * number for number in range(committer.slides)]
        for start in starts[slot.start]:
            _fold(committer, found.setdefault(start, []), slot.numbers)
    order = sorted(found, key=lambda start: (start is None, start or 0))
    at = {start: number for number, start in enumerate(order)}
    width = None if step is None else step * committer.slides
    shown = [_Shown(start, None if start is None or width is None else start + width, found[start]) for start in order]
    return shown, {slot: [at[start] for start in several] for slot, several in starts.items()}


def _sessions(
    committer: CommitterTables, slots: Sequence[_Slot]
) -> tuple[list[_Shown], dict[Decimal | None, list[int]]]:
    gap = Decimal(committer.windows[0].width_us) / 1_000_000
    shown: list[_Shown] = []
    places: dict[Decimal | None, list[int]] = {}
    last: Decimal | None = None
    for slot in slots:
        if not shown or last is None or slot.first is None or slot.first - last > gap:
            shown.append(_Shown(slot.first, None, []))
        last = slot.last
        _fold(committer, shown[-1].numbers, slot.numbers)
        shown[-1] = shown[-1]._replace(end=None if last is None else last + gap)
        places[slot.start] = [len(shown) - 1]
    return shown, places


def _fold(committer: CommitterTables, numbers: list[Any], more: Sequence[Any]) -> None:
    """Add the numbers of a row to those of others."""
    if not numbers:
        numbers.extend(more)
        return
    for at, (name, value) in enumerate(zip(_numbers(committer), more, strict=True)):
        kind = committer.extremes[name].kind if name in committer.extremes else "sum"
        if kind == "sum":
            numbers[at] += value
        elif numbers[at] is None or value is None:
            numbers[at] = value if numbers[at] is None else numbers[at]
        else:
            numbers[at] = min(numbers[at], value) if kind == "min" else max(numbers[at], value)


def _distinct(
    part: CommitterTables, rows: Iterable[Sequence[Any]], places: Mapping[Decimal | None, Sequence[int]], number: int
) -> Sequence[Any]:
    """Return how many values, or registers of a sketch, there are in each row of the view, from the values in order."""
    present, totals = [0] * number, [0] * number
    for _, of_value in groupby(rows, key=lambda row: row[0]):
        ranks: dict[int, int] = {}
        for _, rank, slot, *_ in of_value:
            for place in places.get(slot, ()):
                ranks[place] = max(rank, ranks.get(place, 0))
        for place, rank in ranks.items():
            present[place] += 1
            totals[place] += 1 << (_UNIT_BITS - rank)
    return list(map(_estimated, present, totals)) if part.cells else present


def _estimated(present: int, total: int) -> _Estimate:
    """Return the estimate of HyperLogLog from the number of registers that have a rank, and the sum of their powers of
    a half; linear counting where many are empty.
    """
    empty = REGISTERS - present
    mean = Decimal(total) / (1 << _UNIT_BITS) + empty
    raw = Decimal("0.7213") / (1 + Decimal("1.079") / REGISTERS) * REGISTERS**2 / mean
    if empty and raw <= Decimal("2.5") * REGISTERS:
        raw = REGISTERS * (Decimal(REGISTERS) / empty).ln()
    return _Estimate(raw)


def _nothing(part: CommitterTables) -> Any:
    return _Estimate(Decimal(0)) if part.cells else 0


def _keys(committer: CommitterTables) -> Sequence[str]:
    """Return the keys besides the time."""
    return committer.keys[:-1] if committer.windows else committer.keys


def _times(committer: CommitterTables) -> Sequence[str]:
    """Return the columns of the views with start and end, if they have them."""
    if committer.sessions is not None:
        return committer.sessions.start, committer.sessions.end
    return [name for one in committer.windows for name in (one.start, one.end)]


def _numbers(committer: CommitterTables) -> Sequence[str]:
    hidden = () if committer.sessions is None else (committer.sessions.first, committer.sessions.last)
    return [name for name in committer.numbers if name not in hidden]


def _counts(committer: CommitterTables, parts: Sequence[CommitterTables]) -> Sequence[str]:
    return [one.column for one in committer.distinct] if parts else []


def _values(committer: CommitterTables, parts: Sequence[CommitterTables]) -> Sequence[str]:
    """Return the column of each part that has the values, or the cells."""
    pairs = zip(committer.distinct if parts else (), parts, strict=True)
    return [part.cells[0].column if part.cells else one.field for one, part in pairs]


def _told(committer: CommitterTables, parts: Sequence[CommitterTables], row: Sequence[Any] | None) -> str:
    if row is None:
        return "no more"
    keys, times = _keys(committer), _times(committer)
    names = [*keys, *times, *_numbers(committer), *_counts(committer, parts)]
    until = len(keys) + len(times)
    values = [*row[: len(keys)], *map(_moment, row[len(keys) : until]), *row[until:]]
    return ", ".join(f"{name} {'NULL' if value is None else value}" for name, value in zip(names, values, strict=True))


def _moment(seconds: Decimal | None) -> str | None:
    try:
        return None if seconds is None else str(datetime(1970, 1, 1) + timedelta(microseconds=int(seconds * 1_000_000)))
    except OverflowError:
        return f"{seconds} s after 1970-01-01"
