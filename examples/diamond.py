"""One stream, two ways through the topology, two committers in one database transaction: txtopo run examples/diamond.py:topology --once

          +-> measure -+
texts ----|            +-> compare -> lengths (table)
          +-> shout ---+---> initials (table)
"""

from __future__ import annotations

import re

from word_count import Texts

from txtopo import CountCommitter, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, Stream, Tuple


class Measure(BasicBolt):
    """The length of each word, once a word; lines without words go to a stream of their own."""

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


builder = TopologyBuilder("diamond")
builder.set_spout("texts", Texts())
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
    raise SystemExit(topology.run())
