"""What `explain` says can be done with the batches of each kind of committer, tried: recompute, audit by key, trace,
backfill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.audited import Leader, select
from tests.kit.audits import Audited, findings
from txtopo import (
    AggregateCommitter,
    AppendCommitter,
    CountCommitter,
    FileSpout,
    ReplaceCommitter,
    TopologyBuilder,
    UpsertCommitter,
)
from txtopo.bolts import BatchCommitter
from txtopo.cli import main
from txtopo.cli.explaining import cannot_of
from txtopo.reports.stored_description import CommitterTables, RowTable, committers_of, quoted, row_tables_of
from txtopo.topology.batch_committer import CommitCollector, CommitTransaction
from txtopo.topology.components import Topology
from txtopo.topology.streams import Tuple

FIELDS = "who string, at timestamp, page string, price int"
VISITS = (
    ("a,2026-03-29 00:10:00Z,p,1", "a,2026-03-29 00:20:00Z,q,2", ",2026-03-29 02:00:00Z,p,3"),
    ("b,2026-03-29 00:45:00Z,p,1", "a,2026-03-29 00:30:00Z,q,7"),
)


class Own(BatchCommitter):
    """Stores nothing."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None: ...


def topology_of(folder: Path) -> Topology:
    """Every kind of committer over one source, keys without NULL for those that want it."""
    builder = TopologyBuilder("visits")
    builder.set_spout("files", FileSpout(folder, FIELDS, settled_s=0, null_values=["NULL"]))
    shared: dict[str, Any] = {"time": "at", "maxs": {"price": "top"}}
    for name, bolt in (
        ("counts", CountCommitter("counts", ["who"], sums=["price"])),
        ("hours", AggregateCommitter("hours", ["who"], window="1 hour", slide="20 minutes", **shared)),
        ("stays", AggregateCommitter("stays", ["who"], gap="30 minutes", **shared)),
        ("pages", AggregateCommitter("pages", ["who"], distinct={"page": "pages"})),
        ("near", AggregateCommitter("near", ["who"], distinct={"page": "pages"}, approximate=True)),
        ("rows", AppendCommitter("rows")),
        ("last", UpsertCommitter("last", ["who"], version="at")),
        ("stock", ReplaceCommitter("stock", partition="who")),
        ("bare", CountCommitter("bare", ["who"], contributions=False)),
        ("own", Own()),
    ):
        builder.set_committer_bolt(name, bolt).shuffle_grouping("files")
    return builder.build()


def only(topology: Topology, *names: str) -> Topology:
    return replace(topology, committers=tuple(one for one in topology.committers if one.name in names))


def key_of(dsn: str, description: Mapping[str, Any], name: str) -> list[str]:
    """The options of `trace` for a row of a committer's table; empty if its table has no key."""
    found: dict[str, CommitterTables | RowTable] = {**committers_of(description), **row_tables_of(description)}
    tables = found.get(name)
    if tables is None or not tables.keys:
        return ["--key", "who=a"]
    columns = ", ".join(f"{quoted(key)}::text" for key in tables.keys)
    row = select(dsn, f"select {columns} from {tables.target} order by {columns} limit 1")[0]
    return [word for key, value in zip(tables.keys, row, strict=True) for word in ("--key", f"{key}={value}")]


def test_each_kind_of_committer_allows_what_explain_says_and_nothing_else(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word in the list that does not hold would be found when the data is wrong, and it is too late."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    for number, lines in enumerate(VISITS):
        (folder / f"{number}.csv").write_text("\n".join(["who,at,page,price", *lines]) + "\n", encoding="utf-8")
    whole, audited = topology_of(folder), Audited(database, folder, capsys)
    cannot = {one.name: cannot_of(whole, one) for one in whole.committers}
    able = [name for name, found in cannot.items() if "backfill" not in found]
    assert set(cannot) - set(able) == {"bare", "own", "pages_pages", "near_pages"}
    parts = [name for name, found in cannot.items() if "is a part of" in found.get("backfill", "")]

    with closing(Leader(database, only(whole, "counts"))) as leader:
        leader.cut()
    with closing(Leader(database, only(whole, *able, *parts), code_hash=b"d" * 32)) as leader:
        for name in (one for one in able if one != "counts"):
            assert [leader.backfill(txid, name) for txid in (1, 2)]
        leader.redo(1, "recompute")
    code, report = audited.audit(topology="visits")
    assert (code, findings(report)) == (0, []), report
    by_key = {one["reason"].split()[0] for one in report["by_design"] if one["check"] == "source.keys"}
    assert by_key == {name for name in [*able, *parts] if "audit by key" in cannot[name]}
    [(description,)] = select(database, "select description from txtopo.topology")
    for name in [*able, *parts]:
        table = next(one.bolt.describe()["table"] for one in whole.committers if one.name == name)
        code = main(["trace", "visits", "--table", table, *key_of(database, description, name)])
        said = capsys.readouterr()
        assert (code, "MATCH" in said.out) == ((3, False) if "trace" in cannot[name] else (0, True)), (name, said)

    (folder / "2.csv").write_text("who,at,page,price\na,2026-03-29 00:10:00Z,p,1\n", encoding="utf-8")
    with closing(Leader(database, whole, code_hash=b"e" * 32)) as leader:
        leader.cut()
        code, report = audited.audit(topology="visits")
        assert (code, findings(report)) == (0, []), report
        for name in ("bare", "own"):
            assert set(cannot[name]) == {"recompute", "audit by key", "trace", "backfill"}
            assert [one for one in report["by_design"] if f"{name} " in one["reason"]], report["by_design"]
            assert main(["trace", "visits", "--table", name, "--key", "who=a"]) != 0
        with pytest.raises(AssertionError, match=r"committer bare .* cannot be reversed"):
            leader.redo(leader.txid, "recompute")
