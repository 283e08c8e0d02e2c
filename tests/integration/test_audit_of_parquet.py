"""Parquet files are counted exactly, with rejected rows, and the audit recounts them with another decoder."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.kit.audited import run_batches
from tests.kit.audits import Audited, findings
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.topology.components import Topology


def counted(folder: Path) -> Topology:
    """Counts orders by shop, in parts of single row groups."""
    builder = TopologyBuilder("orders")
    fields = "shop string not null, pieces int, _row bigint"
    spout = FileSpout(folder, fields, format="parquet", settled_s=0, part_bytes=1, rejected_max=0.5)
    builder.set_spout("files", spout)
    committer = CountCommitter("order_totals", ["shop"], sums={"pieces": "pieces", "_row": "numbers"})
    builder.set_committer_bolt("totals", committer).shuffle_grouping("files")
    return builder.build()


def write(path: Path, first: int) -> None:
    """Nine rows in row groups of two, of which two are no orders."""
    rows = [(f"shop {number % 3}", first + number) for number in range(7)] + [(None, 1), ("shop 0", 2**40)]
    table = pa.table({"pieces": [pieces for _, pieces in rows], "shop": [shop for shop, _ in rows]})
    parquet.write_table(table, path, row_group_size=2)


def test_the_audit_recounts_parquet(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """MATCH; MISMATCH for rejected rows and files that are not those of the batch; UNVERIFIED without DuckDB."""
    for number in (1, 2):
        write(audited.folder / f"{number}.parquet", 10 * number)
    assert run_batches(audited.dsn, counted(audited.folder)) == 2

    code, report = audited.audit()
    assert (code, report["findings"], report["verdict"]) == (0, [], "MATCH")

    with monkeypatch.context() as without:
        without.setitem(sys.modules, "duckdb", None)
        code, report = audited.audit()
        assert (code, report["verdict"]) == (3, "UNVERIFIED")
        assert "pip install 'txtopo[audit]'" in str(report)

    audited.plant("""update txtopo.rejected_row set raw = '{"shop": "x", "pieces": 1}' where txid = 1 and line = 8""")
    code, report = audited.audit()
    assert code == 1
    assert "1.parquet, row 8: the rejected record that was kept is not the one in the source" in str(findings(report))

    write(audited.folder / "2.parquet", 7)
    code, report = audited.audit("2")
    assert code == 1
    assert "2.parquet has changed" in str(findings(report))
