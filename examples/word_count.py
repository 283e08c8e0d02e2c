"""Words of real texts, exactly once, with tuple bolts: txtopo run examples/word_count.py:topology --once"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from txtopo import CountCommitter, TopologyBuilder, TransactionAttempt
from txtopo.bolts import BasicBolt, BasicOutputCollector, BatchBolt, BatchOutputCollector, TopologyContext, Tuple
from txtopo.spouts import TransactionalSpout


class Texts(TransactionalSpout):
    """One text file, one batch, in the order of their names. The metadata of a batch is its file's name, so that of the last one says what comes next."""

    outputs = ["line string"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.planned = ""

    def get_coordinator(self, config: Mapping[str, Any], context: Any) -> Any:
        coordinator: Any = super().get_coordinator(config, context)
        coordinator.planned = context.previous["file"] if context.previous else ""
        return coordinator

    def is_ready(self) -> bool:
        return bool(self._behind(self.planned))

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        self.planned = self._behind(previous["file"] if previous else "")[0]
        return {"file": self.planned}

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any) -> Iterator[tuple[str]]:
        for line in (self.folder / metadata["file"]).read_text(encoding="utf-8").splitlines():
            yield (line,)

    def _behind(self, name: str) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.txt") if path.name > name)


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


texts = Texts(Path(os.environ.get("TEXTS_FOLDER", Path(__file__).parent / "texts")))
builder = TopologyBuilder("word_count")
builder.set_spout("texts", texts)
builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("texts")
builder.set_bolt("count", Count(), parallelism_hint=2).fields_grouping("split", ["word"])
words = CountCommitter("words", ["word"], count="batches", sums={"n": "n"})
builder.set_committer_bolt("words", words).fields_grouping("count", ["word"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run())
