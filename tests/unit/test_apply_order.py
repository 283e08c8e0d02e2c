"""Rows of a target are locked in key order, within a statement and over all its pieces: whoever else locks them meets them in one order (P10)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.committers import applying
from txtopo.committers.applying import Applier
from txtopo.core.values import CommitterResult


def test_rows_are_applied_in_key_order_over_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "ROWS_PER_STATEMENT", 2)
    builder = TopologyBuilder("t")
    builder.set_spout("rows", FileSpout("rows", "k string, l string"))
    builder.set_committer_bolt("counts", CountCommitter("counts", ["k", "l"], count="n")).fields_grouping("rows", ["k"])
    applier = Applier(builder.build().committers[0])
    rows = pa.table({"k": ["d", "a", "c", "b", "a"], "l": ["x", "z", "x", "x", "y"], "n": [1, 2, 3, 4, 5]})
    result = CommitterResult(committer="counts", arrived=15, rows=rows, row_count=5, bytes=1)

    pieces = [piece.column("k").to_pylist() for piece in applier._chunks(result)]

    assert pieces == [["a", "a"], ["b", "c"], ["d"]]
    assert 'order by "k", "l"' in applier._last
    assert 'order by "k", "l"' in applier._part
