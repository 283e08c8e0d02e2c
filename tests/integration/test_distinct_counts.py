"""Numbers of distinct values on real tables: right after late values, a second batch with the same, and a recompute
that takes the last one away.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.kit.audited import Leader, select
from tests.kit.audits import Audited, findings
from txtopo import AggregateCommitter, FileSpout, TopologyBuilder
from txtopo.errors import Halted
from txtopo.topology.components import Topology

BATCHES: Sequence[Sequence[tuple[str, str, str]]] = (
    (("a", "u1", "2026-01-01 00:10"), ("a", "u1", "2026-01-01 00:20"), ("a", "u2", "2026-01-01 01:00"), ("", "u1", "")),
    (("a", "u2", "2026-01-01 01:59"), ("b", "u3", "2026-01-01 00:00"), ("b", "", "2026-01-01 00:00"), ("", "u2", "")),
    (("b", "", "2026-01-01 05:00"), ("a", "u1", "2026-01-01 01:01")),
)
REDONE = (("a", "u4", "2026-01-01 01:59"), ("b", "", "2026-01-01 00:00"))
"""What the second file has when it is recomputed: u3 and a row without shop are gone."""


def topology_of(folder: Path) -> Topology:
    builder = TopologyBuilder("visits")
    spout = FileSpout(folder, "shop string, who string, at timestamp, price int", settled_s=0, null_values=[""])
    builder.set_spout("files", spout)
    bolt = AggregateCommitter(
        "visits",
        ["shop"],
        averages={"price": "paid"},
        distinct={"who": "visitors", "price": "prices"},
        window="1 hour",
        time="at",
    )
    builder.set_committer_bolt("visits", bolt).fields_grouping("files", ["shop"])
    return builder.build()


def write(folder: Path, number: int, rows: Sequence[Sequence[str]]) -> None:
    text = "\n".join(["shop,who,at,price", *(f"{','.join(row)},7" for row in rows)])
    (folder / f"{number}.csv").write_text(text + "\n", encoding="utf-8")


def expected(rows: Sequence[Sequence[str]]) -> dict[Any, tuple[int, int, int]]:
    """Shop and hour -> rows, distinct visitors, distinct prices."""
    groups: dict[Any, list[str]] = {}
    for shop, who, at in rows:
        groups.setdefault((shop or None, at[:13] or None), []).append(who)
    return {key: (len(found), len({one for one in found if one}), 1) for key, found in groups.items()}


def stored(dsn: str) -> dict[Any, tuple[int, int, int]]:
    hour = "to_char(window_start at time zone 'UTC', 'YYYY-MM-DD HH24')"
    rows = select(dsn, f"select shop, {hour}, count, visitors, prices, paid from visits_distinct")
    assert {str(row[5])[:3] for row in rows} == {"7.0"}
    return {tuple(row[:2]): tuple(row[2:5]) for row in rows}


def test_distinct_values_are_counted_after_any_history_and_audited(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values of each key are rows of a table, which a recompute takes away with their last row."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    for number, rows in enumerate(BATCHES):
        write(folder, number, rows)
    audited = Audited(database, folder, capsys)
    topology = topology_of(folder)
    assert [one.name for one in topology.committers] == ["visits_visitors", "visits_prices", "visits"]
    assert topology.single_commits is None
    with closing(Leader(database, topology)) as leader:
        leader.cut()
    assert stored(database) == expected([row for rows in BATCHES for row in rows])
    assert audited.audit(topology="visits")[0] == 0

    write(folder, 1, REDONE)
    with closing(Leader(database, topology)) as leader:
        leader.redo(2, "recompute")
    assert stored(database) == expected([*BATCHES[0], *REDONE, *BATCHES[2]])
    code, report = audited.audit(topology="visits")
    assert (code, report["findings"]) == (0, []), report

    audited.plant("delete from visits_visitors where who = 'u4'")
    code, report = audited.audit(topology="visits")
    assert code == 1
    assert [one["check"] for one in findings(report)] == ["target.keys"]
    assert "visits_visitors" in findings(report)[0]["message"]
    audited.plant("drop view visits_distinct; create table visits_distinct (shop text)")
    with pytest.raises(Halted, match=r"public\.visits_distinct is not the view on public\.visits; txtopo would create"):
        Leader(database, topology)


@pytest.mark.parametrize("field", ["who string", "who bigint"])
def test_an_estimate_is_near_and_the_same_in_every_order(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Cells of sketches are counted like keys, so they are taken back and recounted like them."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    values = {"few": 100, "some": 5_000, "many": 60_000}
    rows = [(shop, str(number)) for shop, count in values.items() for number in range(-3, count - 3)]
    for number, chosen in enumerate((rows[::2], rows[::-3], rows, [("few", ""), ("none", "")])):
        text = "\n".join(["shop,who", *map(",".join, chosen)])
        (folder / f"{number}.csv").write_text(text + "\n", encoding="utf-8")
    builder = TopologyBuilder("visits")
    builder.set_spout("files", FileSpout(folder, f"shop string, {field}", settled_s=0, null_values=[""]))
    bolt = AggregateCommitter("visits", ["shop"], distinct={"who": "visitors"}, approximate=True)
    builder.set_committer_bolt("visits", bolt).fields_grouping("files", ["shop"])
    topology = builder.build()

    with closing(Leader(database, topology)) as leader:
        leader.cut()
        found: dict[str, int] = dict(select(database, "select shop, visitors from visits_distinct"))
        leader.redo(1, "recompute")
    assert dict(select(database, "select shop, visitors from visits_distinct")) == found
    assert all(abs(found[shop] - count) <= 0.05 * count for shop, count in values.items()), found
    assert (abs(found["few"] - 100) <= 3, found["none"]) == (True, 0)
    [cells] = select(database, "select count(*), max(cell / 64), min(cell % 64), max(cell % 64) from visits_visitors")
    assert cells[0] < 0.6 * sum(values.values())
    assert (*cells[1:3], cells[3] < 54) == (4095, 1, True)
    assert Audited(database, folder, capsys).audit(topology="visits")[0] == 0
    (folder / "3.csv").write_text("shop,who\nfew,\nnone,\n", encoding="utf-8")
    with closing(Leader(database, topology)) as leader:
        for number in (5, 2, 3):
            leader.redo(number, "recompute")
    assert dict(select(database, "select shop, visitors from visits_distinct")) == found
    assert Audited(database, folder, capsys).audit(topology="visits")[0] == 0
