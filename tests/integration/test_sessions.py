"""Sessions on real tables: late rows join them, a recompute takes them apart again, and the audit finds the same with
its own code. Numbers of distinct values of sessions and of windows that slide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy import create_engine

from tests.kit.audited import Leader, select
from tests.kit.audits import Audited, findings
from tests.kit.sessions import DAY, GAP, Visit, days_of, history, hours_of, sessions_of, topology_of, write_visits
from txtopo import AggregateCommitter, FileSpout, TopologyBuilder
from txtopo.audit.check_target import check_computed
from txtopo.audit.verdicts import Findings
from txtopo.errors import Halted
from txtopo.reports.stored_description import committers_of, parts_of

OTHERWISE = (
    ("visits_sessions", "<=", "<"),
    ("visits_distinct", r"count\(DISTINCT ", "count("),
    ("hours_windows", r"generate_series\(0,", "generate_series(1,"),
    ("hours_windows", r"\bmax\(", "min("),
    ("hours_windows", r"NULLIF\(paid_count, 0\)", "NULLIF(paid_count, 2)"),
    ("hours_distinct", r"count\(DISTINCT ", "count("),
    ("days_distinct", r"count\([a-z_.]*page\)", "count(*)"),
    ("near_distinct", r"\bln\(", "2 * ln("),
)
"""View, what its definition has, and what a stranger puts there."""


def stored(dsn: str, view: str) -> list[tuple[Any, ...]]:
    return select(dsn, f"select who, session_start, session_end, count, pages, paid_sum, top from {view}")


def audited_views(dsn: str) -> list[str]:
    """What the audit says of the views alone."""
    findings, engine = Findings(), create_engine("postgresql+psycopg2://", creator=lambda: psycopg2.connect(dsn))
    with engine.connect() as connection:
        [(description,)] = connection.exec_driver_sql("select description from txtopo.topology").all()
        committers = committers_of(description)
        for one in committers.values():
            check_computed(findings, connection, one, parts_of(one, committers))
    engine.dispose()
    return [one.message for one in findings.findings()]


def check(dsn: str, visits: Sequence[Visit]) -> None:
    expected = sessions_of(visits, GAP)
    rows = stored(dsn, "visits_distinct")
    assert (len(rows), set(rows)) == (len(expected), expected)
    rows = select(dsn, "select who, session_start, session_end, count, paid_sum, top, paid from visits_sessions")
    assert {row[:4] for row in rows} == {one[:4] for one in expected}
    assert all(row[6] is None or abs(float(row[6]) - float(row[4]) / row[3]) < 1 for row in rows)
    hours = select(dsn, "select who, window_start, count, part, n0 from hours_distinct")
    assert (len(hours), set(hours)) == (len(hours_of(visits)), hours_of(visits))
    days = select(dsn, "select who, window_start, count, pages, window_end - window_start from days_distinct")
    assert {row[:4] for row in days} == days_of(visits)
    assert {row[4] for row in days} == {timedelta(days=1), None}
    alone = sessions_of([(None, *one[1:]) for one in visits], GAP)
    near = select(dsn, "select null::text, session_start, session_end, count, pages from near_distinct")
    assert set(near) == {one[:5] for one in alone}


def test_sessions_grow_together_and_apart_and_the_audit_agrees(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order of batches: a session is what the rows in effect make of it."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    batches = history()
    for number, batch in enumerate(batches):
        write_visits(folder, number, batch)
    audited, topology = Audited(database, folder, capsys), topology_of(folder)
    assert topology.single_commits is None
    with closing(Leader(database, topology)) as leader:
        leader.cut()
        check(database, [one for batch in batches for one in batch])
        write_visits(folder, 1, batches[1][1:])
        leader.redo(2, "recompute")
    check(database, [*batches[0], *batches[1][1:], *batches[2]])
    ends = select(
        database, "select session_end from visits_sessions where who = 'a' and session_start = '2026-03-29 00:00Z'"
    )
    assert ends == [(DAY + GAP,)]
    code, report = audited.audit(topology="visits")
    assert (code, report["findings"]) == (0, []), report

    for view, made, otherwise in OTHERWISE:
        definition = select(database, f"select pg_get_viewdef('{view}'::regclass)")[0][0]
        other = re.sub(made, otherwise, definition, count=1)
        assert other != definition, definition
        audited.plant(f"create or replace view {view} as {other}")
        said = audited_views(database)
        assert said, (view, made)
        assert f"view public.{view}" in said[0] and len(said) <= 4, said  # also one that reads it
        with pytest.raises(Halted, match=rf"public\.{view} is not the view on public\.\w+; txtopo would create"):
            Leader(database, topology)
        audited.plant(f"create or replace view {view} as {definition}")
    audited.plant(f"create or replace view {view} as {other}")
    code, report = audited.audit(topology="visits")
    assert (code, [one["check"] for one in findings(report)]) == (1, ["target.keys"]), view
    audited.plant(f"create or replace view {view} as {definition}", "drop view visits_sessions cascade")
    code, report = audited.audit(topology="visits")
    assert (code, findings(report)[0]["message"]) == (
        1,
        "the view public.visits_sessions is missing; `txtopo run` creates it",
    )
    with closing(Leader(database, topology)):
        assert audited.audit(topology="visits")[0] == 0
    audited.plant("update visits set last_time = last_time + interval '1 minute' where who = 'b'")
    assert audited.audit(topology="visits")[0] == 1


def test_sessions_and_windows_that_were_added_later_are_filled(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, with what was redone meanwhile: tables and views are as if they had been there from the start."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    batches = history()
    for number, batch in enumerate(batches):
        write_visits(folder, number, batch)
    whole = topology_of(folder)
    before = replace(whole, committers=tuple(one for one in whole.committers if one.name.startswith("days")))
    with closing(Leader(database, before)) as leader:
        leader.cut()
    with closing(Leader(database, whole, code_hash=b"d" * 32)) as leader:
        for name in ("visits", "near", "hours"):
            assert select(database, f"select count(*) from {name}") == [(0,)]
            for txid in (3, 1, 2):
                leader.backfill(txid, name)
        check(database, [one for batch in batches for one in batch])
        write_visits(folder, 1, batches[1][1:])
        leader.redo(2, "recompute")
    check(database, [*batches[0], *batches[1][1:], *batches[2]])
    code, report = Audited(database, folder, capsys).audit(topology="visits")
    assert (code, report["findings"]) == (0, []), report


def test_one_key_is_read_without_the_others(database: str, tmp_path: Path) -> None:
    """A condition on a key reaches the table below windows of SQL."""
    with closing(Leader(database, topology_of(tmp_path))):
        for view in ("visits_sessions", "visits_distinct", "hours_distinct"):
            plan = select(database, f"explain (costs off) select * from {view} where who = 'a'")
            text = "\n".join(line for (line,) in plan)
            scans = text.count(" on visits") + text.count(" on hours")
            assert text.count("(who = 'a'::text)") >= scans > 0, text


def test_a_session_may_end_in_a_year_that_python_does_not_have(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time that stands for "never" is in the last minutes of the year 9999."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    times = ["9999-12-31 23:59:59Z", "9999-12-31 23:35:00Z", "0001-01-02 00:00:00Z"]
    (tmp_path / "1.csv").write_text("\n".join(["at", *times]) + "\n", encoding="utf-8")
    builder = TopologyBuilder("visits")
    builder.set_spout("files", FileSpout(tmp_path, "at timestamp", settled_s=0))
    sessions = AggregateCommitter("visits", [], gap="30 minutes", time="at")
    builder.set_committer_bolt("visits", sessions).shuffle_grouping("files")
    with closing(Leader(database, builder.build())) as leader:
        leader.cut()
    rows = select(database, "select session_start::text, session_end::text, count from visits_sessions order by 1 desc")
    assert [row[2] for row in rows] == [2, 1]
    assert rows[0][1].startswith("10000-01-01")
    assert Audited(database, tmp_path, capsys).audit(topology="visits")[0] == 0
    Audited(database, tmp_path, capsys).plant(
        "create or replace view visits_sessions as select * from ("
        + select(database, "select rtrim(pg_get_viewdef('visits_sessions'::regclass), ';')")[0][0]
        + ") v where count = 1"
    )
    code, report = Audited(database, tmp_path, capsys).audit(topology="visits")
    assert (code, "has no more, where" in findings(report)[0]["message"]) == (1, True), report
