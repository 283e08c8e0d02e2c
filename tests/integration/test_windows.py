"""Windows of event time on real tables: a late row counts in its window, once; the audit finds the same windows with
its own code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.audited import Leader, select
from tests.kit.audits import Audited, findings
from txtopo import AggregateCommitter, FileSpout, TopologyBuilder
from txtopo.cli import main
from txtopo.topology.components import Topology

FIRST = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
"""An hour in which clocks in Europe go forward."""
MINUTES: Sequence[Sequence[int | None]] = ((0, 29, 30, 31), (95, None, 5), (-40_000_000, 0, 600, None), (1,))
"""Minutes after FIRST, by batch: late ones, one of 1949, NULL."""


def topology_of(folder: Path) -> Topology:
    """Sales by hour, and by hour every ten minutes."""
    builder = TopologyBuilder("sales")
    builder.set_spout("files", FileSpout(folder, "shop string, sold timestamp, price decimal(10,2)", settled_s=0))
    for name, slide in (("hourly", None), ("sliding", "10 minutes")):
        bolt = AggregateCommitter(
            name,
            ["shop"],
            averages={"price": "paid"},
            maxs={"sold": "last"},
            window="1 hour",
            slide=slide,
            time="sold",
        )
        builder.set_committer_bolt(name, bolt).fields_grouping("files", ["shop"])
    return builder.build()


def moment(minutes: int | None) -> datetime | None:
    return None if minutes is None else FIRST + timedelta(minutes=minutes)


def written(folder: Path) -> list[datetime | None]:
    for number, batch in enumerate(MINUTES):
        lines = [f"a,{moment(one) or ''},1.50" for one in batch]
        (folder / f"{number}.csv").write_text("\n".join(["shop,sold,price", *lines]) + "\n", encoding="utf-8")
    return [moment(one) for batch in MINUTES for one in batch]


def windows(times: Sequence[datetime | None], slide: timedelta) -> dict[Any, int]:
    """Start -> number of times in the hour from there on; each hour that begins at a slide and has one."""
    found: Counter[datetime | None] = Counter()
    epoch, hour = datetime(1900, 1, 1, tzinfo=UTC), timedelta(hours=1)
    for one in times:
        if one is None:
            found[None] += 1
            continue
        start = epoch + (one - epoch) // slide * slide
        while start > one - hour:
            found[start] += 1
            start -= slide
    return dict(found)


def test_late_rows_count_in_their_windows_once_and_the_audit_agrees(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a recompute; windows that slide are read from a view, and stored once."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    times = written(folder)
    audited = Audited(database, folder, capsys)
    with closing(Leader(database, topology_of(folder))) as leader:
        leader.cut()
    with closing(Leader(database, topology_of(folder))) as leader:
        leader.redo(2, "recompute")

    ask = "select window_start, count, window_end = window_start + interval '1 hour', paid from"
    for table, slide in {"hourly": timedelta(hours=1), "sliding_windows": timedelta(minutes=10)}.items():
        rows = select(database, f"{ask} {table}")
        assert {row[0]: row[1] for row in rows} == windows(times, slide), table
        assert len(rows) == len(windows(times, slide))
        assert {(row[2], str(row[3])[:4]) for row in rows if row[0]} == {(True, "1.50")}
    assert select(database, "select sum(count) from sliding") == [(len(times),)]
    code, report = audited.audit(topology="sales")
    assert (code, report["findings"]) == (0, []), report
    assert (
        main(["trace", "sales", "--table", "hourly", "--key", "shop=a", "--key", "window_start=2026-03-29 00:00Z"]) == 0
    )
    assert "MATCH" in capsys.readouterr().out

    late = "where window_start = '2026-03-29 00:00Z'"
    audited.plant(f"update hourly set window_start = '2026-03-28 00:00Z' {late}")
    code, report = audited.audit(topology="sales")
    assert (code, {one["check"] for one in findings(report)}) == (1, {"target.keys"})
    audited.plant(
        "update hourly set window_start = '2026-03-29 00:00Z' where window_start = '2026-03-28 00:00Z'",
        "alter table hourly drop column window_end, add column window_end timestamptz",
        "update hourly set window_end = window_start + interval '59 minutes'",
    )
    code, report = audited.audit(topology="sales")
    assert code == 1
    assert any("whose window_end is not the end of the window" in one["message"] for one in findings(report)), report
