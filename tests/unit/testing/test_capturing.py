"""What hidden committers keep for a harness goes with it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

from tests.kit.tuple_runs import Keeping
from txtopo import FileSpout, TopologyBuilder
from txtopo.testing import TopologyHarness, capturing


class Tells(Keeping):
    """Tells in the commit phase how many rows there were."""

    outputs = ("n bigint",)

    def commit(self, transaction: Any, rows: Any, collector: Any) -> None:
        collector.emit((len(rows),))


def test_what_committers_emitted_is_let_go_with_the_harness(tmp_path: Path) -> None:
    """A test session with many harnesses does not keep the tuples of all of them."""
    (tmp_path / "a.csv").write_text("word\na\nb\n")
    builder = TopologyBuilder("telling")
    builder.set_spout("source", FileSpout(tmp_path, "word string"))
    builder.set_committer_bolt("tells", Tells()).shuffle_grouping("source")
    gc.collect()
    before = len(capturing._COMMITTED)
    harness = TopologyHarness(builder.build())
    with harness:
        harness.run()

    assert [found.values for found in harness.emitted("tells")] == [(2,)]
    assert len(capturing._COMMITTED) == before + 1

    del harness
    gc.collect()
    assert len(capturing._COMMITTED) == before
