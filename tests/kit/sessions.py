"""Sessions and windows of plain Python, with which tables and Spark are compared; and a topology that has them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from txtopo import AggregateCommitter, FileSpout, TopologyBuilder
from txtopo.topology.components import Topology

Visit = tuple[str | None, datetime | None, str | None, int | None]
"""Who, when, page, price."""


GAP = timedelta(minutes=30)
DAY = datetime(2026, 3, 29, tzinfo=UTC)


def sessions_of(visits: Iterable[Visit], gap: timedelta) -> set[tuple[Any, ...]]:
    """Return who, start, end, rows, pages, sum of prices, highest price, of each session."""
    found: list[list[Visit]] = []
    for one in sorted(visits, key=lambda one: (one[0] or "", one[0] is None, one[1] is None, str(one[1]))):
        last = found[-1][-1] if found else None
        if last is not None and last[0] == one[0] and _is_near(last[1], one[1], gap):
            found[-1].append(one)
        else:
            found.append([one])
    return {_session(visits, gap) for visits in found}


def _is_near(before: datetime | None, after: datetime | None, gap: timedelta) -> bool:
    if before is None or after is None:
        return before is after
    return after - before <= gap


def _session(visits: list[Visit], gap: timedelta) -> tuple[Any, ...]:
    start, last = visits[0][1], visits[-1][1]
    prices = [price for *_, price in visits if price is not None]
    pages = {page for _, _, page, _ in visits if page is not None}
    end = None if last is None else last + gap
    return visits[0][0], start, end, len(visits), len(pages), sum(prices), max(prices, default=None)


def topology_of(folder: Path) -> Topology:
    """Sessions, hours that begin every 20 minutes, and local days, with numbers of distinct pages."""
    builder = TopologyBuilder("visits")
    spout = FileSpout(folder, "who string, at timestamp, page string, price int", settled_s=0, null_values=[""])
    builder.set_spout("files", spout)
    shared: dict[str, Any] = {"time": "at", "averages": {"price": "paid"}, "maxs": {"price": "top"}}
    sessions = AggregateCommitter("visits", ["who"], gap="30 minutes", distinct={"page": "pages"}, **shared)
    builder.set_committer_bolt("visits", sessions).fields_grouping("files", ["who"])
    estimated = AggregateCommitter(
        "near", [], gap="30 minutes", time="at", distinct={"page": "pages"}, approximate=True
    )
    builder.set_committer_bolt("near", estimated).shuffle_grouping("files")
    sliding = AggregateCommitter(
        "hours", ["who"], window="1 hour", slide="20 minutes", distinct={"page": "part", "price": "n0"}, **shared
    )
    builder.set_committer_bolt("hours", sliding).fields_grouping("files", ["who"])
    days = AggregateCommitter(
        "days", ["who"], window="1 day", zone="Europe/Berlin", time="at", distinct={"page": "pages"}
    )
    builder.set_committer_bolt("days", days).fields_grouping("files", ["who"])
    return builder.build()


def write_visits(folder: Path, number: int, visits: Sequence[Visit]) -> None:
    lines = [",".join("" if value is None else str(value) for value in visit) for visit in visits]
    (folder / f"{number}.csv").write_text("\n".join(["who,at,page,price", *lines]) + "\n", encoding="utf-8")


def visit(who: str | None, minutes: float | None, page: str | None = "a", price: int | None = 1) -> Visit:
    return who, None if minutes is None else DAY + timedelta(minutes=minutes), page, price


def history() -> list[list[Visit]]:
    """Batches of which the second joins what the first has apart, at the gap exactly; and many more."""
    chance = random.Random(7)
    apart: list[Visit] = [
        visit("a", 0),
        visit("a", 60, "b"),
        visit("a", 90.001, "c"),
        visit(None, 10),
        visit("a", None),
        visit("b", None),
    ]
    joining: list[Visit] = [
        visit("a", 30, "b", 5),
        visit("a", 60.0005),
        visit(None, None, None, None),
        visit(None, 39.9, None, None),
    ]
    # Arrow has no daylight saving time in 2040.
    far: list[Visit] = [("g", datetime(2040, 7, 1, hour, 30, tzinfo=UTC), "a", 1) for hour in (20, 21, 22, 23)]
    far += [visit("a", -40_000_000), visit("a", -40_000_030), visit("b", 10), visit("a", -40_000_060.0001)]
    batches = [apart, joining, far]
    for batch in batches:
        for _ in range(60):
            batch.append(
                visit(chance.choice("cdef"), chance.randrange(-1000, 3000), chance.choice("pqr"), chance.randrange(9))
            )
    return batches


def hours_of(visits: Sequence[Visit]) -> set[tuple[Any, ...]]:
    """Return who, start of each hour, rows, pages, prices."""
    step = timedelta(minutes=20)
    found: dict[Any, list[Visit]] = {}
    for one in visits:
        starts: list[datetime | None] = [None]
        if one[1] is not None:
            first = one[1] - (one[1] - datetime(1900, 1, 1, tzinfo=UTC)) % step
            starts = [first - number * step for number in range(3)]
        for start in starts:
            found.setdefault((one[0], start), []).append(one)
    return {
        (*key, len(rows), len({row[2] for row in rows} - {None}), len({row[3] for row in rows} - {None}))
        for key, rows in found.items()
    }


def days_of(visits: Sequence[Visit]) -> set[tuple[Any, ...]]:
    """Return who, local day in Berlin, rows, pages."""
    found: dict[Any, list[Visit]] = {}
    for one in visits:
        day = (
            None
            if one[1] is None
            else datetime.combine(one[1].astimezone(ZoneInfo("Europe/Berlin")), datetime.min.time())
        )
        found.setdefault((one[0], day), []).append(one)
    return {(*key, len(rows), len({row[2] for row in rows} - {None})) for key, rows in found.items()}
