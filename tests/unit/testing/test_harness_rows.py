"""The harness shows rows as the server would, with what it computes, and the views on them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.kit.sessions import GAP, days_of, history, hours_of, sessions_of, topology_of, write_visits
from txtopo import AppendCommitter, FileSpout, ReplaceCommitter, TopologyBuilder, UpsertCommitter
from txtopo.testing import TopologyHarness


def test_views_are_those_of_plain_python(tmp_path: Path) -> None:
    """Sessions, windows that slide and local days, with numbers of distinct values."""
    batches = history()
    for number, batch in enumerate(batches):
        write_visits(tmp_path, number, batch)
    visits = [one for batch in batches for one in batch]
    with TopologyHarness(topology_of(tmp_path)) as harness:
        harness.run()
        found = {name: harness.rows(name) for name in ("visits", "visits_sessions", "public.visits_distinct")}
        near, hours, days = (harness.rows(f"{name}_distinct") for name in ("near", "hours", "days"))
        with pytest.raises(
            KeyError, match=r"no committer writes public.gone: there is public\.days, public\.days_distinct"
        ):
            harness.rows("gone")

    def values(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row[name] for name in names) for row in rows), key=repr)

    columns = ("who", "session_start", "session_end", "count", "pages", "paid_sum", "top")
    assert values(found["public.visits_distinct"], *columns) == sorted(sessions_of(visits, GAP), key=repr)
    expected = sessions_of([(None, *one[1:]) for one in visits], GAP)
    assert values(near, "session_start", "session_end", "count", "pages") == sorted(
        (one[1:5] for one in expected), key=repr
    )
    assert values(hours, "who", "window_start", "count", "part", "n0") == sorted(hours_of(visits), key=repr)
    assert values(days, "who", "window_start", "count", "pages") == sorted(days_of(visits), key=repr)
    assert {row["window_end"] - row["window_start"] for row in days if row["window_end"]} == {timedelta(days=1)}
    assert {row["slot_end"] - row["slot_start"] for row in found["visits"] if row["slot_end"]} == {GAP}
    assert sum(row["count"] for row in found["visits"]) == len(visits)
    [joined] = [row for row in found["visits_sessions"] if row["who"] == "a" and row["count"] == 4]
    assert (joined["paid"], "pages" in joined) == (Decimal(2), False)
    assert isinstance(joined["session_start"], datetime)


def test_rows_of_other_committers_are_shown(tmp_path: Path) -> None:
    """Of tables that are no counts."""
    (tmp_path / "1.csv").write_text("who,what\nann,1\nbob,2\nann,3\n", encoding="utf-8")
    builder = TopologyBuilder("rows")
    builder.set_spout("files", FileSpout(tmp_path, "who string, what int", settled_s=0))
    builder.set_committer_bolt("all", AppendCommitter("all_rows")).shuffle_grouping("files")
    last = UpsertCommitter("last", ["who"], version="what")
    builder.set_committer_bolt("last", last).fields_grouping("files", ["who"])
    builder.set_committer_bolt("new", ReplaceCommitter("new", partition="who")).shuffle_grouping("files")
    with TopologyHarness(builder.build()) as harness:
        harness.run()
        found = {name: harness.rows(name) for name in ("all_rows", "last", "new")}
    assert [(row["n"], row["who"], row["what"]) for row in found["all_rows"]] == [
        (1, "ann", 1),
        (2, "ann", 3),
        (3, "bob", 2),
    ]
    assert sorted((row["who"], row["what"]) for row in found["last"]) == [("ann", 3), ("bob", 2)]
    assert sorted((row["who"], row["what"]) for row in found["new"]) == [("ann", 1), ("ann", 3), ("bob", 2)]
