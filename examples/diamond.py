"""One stream, two ways through the topology, two committers in one database transaction: txtopo run
examples/diamond.py:topology --once

          +-> measure -+
texts ----|            +-> compare -> lengths (table)
          +-> shout ---+---> initials (table)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txtopo import CountCommitter, TopologyBuilder, TransactionAttempt
from txtopo.bolts import BasicBolt, BasicOutputCollector, Stream, Tuple
from txtopo.spouts import NOTHING, PartitionedTransactionalSpout

LINES_MAX = 10
"""Of each text in a batch."""


class Texts(PartitionedTransactionalSpout):
    """Partition n is the n-th text of a folder, by its name."""

    outputs = ["line string"]

    def __init__(self, folder: Path) -> None:
        self.texts = sorted(folder.glob("*.txt"))

    def number_of_partitions(self) -> int:
        return len(self.texts)

    def next_range(self, partition: int, last: Any) -> Any:
        start = last["end"] if last else 0
        end = min(start + LINES_MAX, len(self._lines(partition)))
        return {"start": start, "end": end} if end > start else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[tuple[str]]:
        for line in self._lines(partition)[metadata["start"] : metadata["end"]]:
            yield (line,)

    def _lines(self, partition: int) -> list[str]:
        return self.texts[partition].read_text(encoding="utf-8").splitlines()


class Measure(BasicBolt):
    """The length of each word, once a word; lines without words go to a separate stream."""

    outputs = ["length int", Stream("line string", name="silent")]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        words = re.findall(r"[a-z']+", tup["line"].lower())
        for word in words:
            collector.emit((len(word),))
        if not words:
            collector.emit((tup["line"],), stream="silent")


class Shout(BasicBolt):
    """Each word in capitals, with its first letter."""

    outputs = ["initial string", "word string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        for word in re.findall(r"[A-Z']+", tup["line"].upper()):
            collector.emit((word.strip("'")[:1], word))


class Compare(BasicBolt):
    """Where both ways meet: lengths come from the one, words from the other, silent lines from a third stream."""

    outputs = ["seen string", "length int"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        if tup.stream == "silent":
            collector.emit(("silent", 0))
        elif tup.component == "measure":
            collector.emit(("measured", tup["length"]))
        else:
            collector.emit(("shouted", len(tup["word"])))


folder = Path(os.environ.get("TEXTS_FOLDER", Path(__file__).parent / "texts"))
builder = TopologyBuilder("diamond")
builder.set_spout("texts", Texts(folder))
builder.set_bolt("measure", Measure(), parallelism_hint=2).shuffle_grouping("texts")
builder.set_bolt("shout", Shout(), parallelism_hint=2).shuffle_grouping("texts")
compare = builder.set_bolt("compare", Compare(), parallelism_hint=2).fields_grouping("measure", ["length"])
compare.shuffle_grouping("measure", stream="silent").shuffle_grouping("shout")
lengths = CountCommitter("word_lengths", ["seen", "length"], count="words")
builder.set_committer_bolt("lengths", lengths).fields_grouping("compare", ["seen", "length"])
initials = CountCommitter("word_initials", ["initial"], count="words")
builder.set_committer_bolt("initials", initials).fields_grouping("shout", ["initial"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
