"""A tuple bolt and its test without services."""

from __future__ import annotations

from pathlib import Path

from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, Tuple
from txtopo.spouts import TextSpout
from txtopo.testing import TopologyHarness


class Split(BasicBolt):
    """A line becomes its words."""

    outputs = ["word string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        for word in tup["line"].split():
            collector.emit((word,))


def words(folder: Path) -> Topology:
    """How often each word comes."""
    builder = TopologyBuilder("words")
    builder.set_spout("texts", TextSpout(folder / "*.txt"))
    builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("texts")
    builder.set_committer_bolt("words", CountCommitter("words", ["word"])).fields_grouping("split", ["word"])
    return builder.build()


def test_words(folder: Path) -> None:
    """Two words in two lines."""
    (folder / "a.txt").write_text("a\nb\n")
    with TopologyHarness(words(folder), attempts_max=1, spout_pending_max=2) as harness:
        harness.run()

        assert harness.table("words") == {("a",): (1,), ("b",): (1,)}
        assert [batch.state for batch in harness.batches] == ["applied"]


if __name__ == "__main__":
    raise SystemExit(words(Path("texts")).run_cli(once=True))
