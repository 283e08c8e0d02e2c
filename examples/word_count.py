"""Words of real texts, exactly once, with tuple bolts: txtopo run examples/word_count.py:topology --once"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txtopo import CountCommitter, TopologyBuilder, TransactionAttempt
from txtopo.bolts import BasicBolt, BasicOutputCollector, BatchBolt, BatchOutputCollector, TopologyContext, Tuple
from txtopo.spouts import TextSpout


class Split(BasicBolt):
    """A line becomes its words."""

    outputs = ["word string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        for word in re.findall(r"[a-z']+", tup["line"].lower()):
            collector.emit((word,))


class Count(BatchBolt):
    """Counts each word of its share of a batch; tells once the batch is complete."""

    outputs = ["word string", "n bigint"]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup["word"]] += 1

    def finish_batch(self) -> None:
        for word, n in self.counts.items():
            self.collector.emit((word, n))


# One text file, one batch, once it no longer changes. A file that comes late is input too, whatever its name.
texts = TextSpout(Path(os.environ.get("TEXTS_FOLDER", Path(__file__).parent / "texts")) / "*.txt")
builder = TopologyBuilder("word_count")
builder.set_spout("texts", texts)
builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("texts")
builder.set_bolt("count", Count(), parallelism_hint=2).fields_grouping("split", ["word"])
words = CountCommitter("words", ["word"], count="batches", sums={"n": "n"})
builder.set_committer_bolt("words", words).fields_grouping("count", ["word"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
