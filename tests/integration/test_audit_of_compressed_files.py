"""Compressed files are counted exactly, and the audit recounts them with its own decoders, or says that it has none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kit.archives import ENDINGS, WRITERS
from tests.kit.audited import run_batches
from tests.kit.audits import Audited, findings
from tests.kit.orders import write_orders
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.topology.components import Topology


def counted(folder: Path) -> Topology:
    """Counts orders by shop."""
    builder = TopologyBuilder("orders")
    fields = "id int, shop string, pieces int"
    builder.set_spout("files", FileSpout(str(folder), fields, settled_s=0, files_per_batch=2))
    committer = CountCommitter("order_totals", ["shop"], sums={"pieces": "pieces"})
    builder.set_committer_bolt("totals", committer).shuffle_grouping("files")
    return builder.build()


def test_the_audit_recounts_compressed_files(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """MATCH, with a bad record among them; UNVERIFIED without a decoder; MISMATCH for a file that changed."""
    kinds = list(WRITERS)
    for kind, path in zip(kinds, write_orders(audited.folder, len(kinds)), strict=True):
        data = path.read_bytes() + b'x,shop 1,a1,"1\n'
        at = data.find(b"\n", 200) - 3  # Inside a record.
        path.with_name(path.name + ENDINGS[kind]).write_bytes(WRITERS[kind](data[:at]) + WRITERS[kind](data[at:]))
        path.unlink()
    assert run_batches(audited.dsn, counted(audited.folder)) == 3

    code, report = audited.audit()
    assert (code, report["findings"]) == (0, [])
    assert report["verdict"] == "MATCH"

    with monkeypatch.context() as without:
        without.setitem(sys.modules, "zstandard", None)
        _, report = audited.audit()
        assert report["verdict"] == "UNVERIFIED"
        assert "pip install 'txtopo[audit]'" in str(report)

    changed = audited.folder / f"order_0001.csv{ENDINGS[kinds[0]]}"
    changed.write_bytes(WRITERS[kinds[0]](b"id,shop,pieces\n1,shop 1,1\n"))
    code, report = audited.audit()
    assert code == 1
    assert "has changed" in str(findings(report))
