"""Words of real texts, exactly once, with tuple bolts: txtopo run examples/word_count.py:topology --once"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from txtopo import CountCommitter, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, BatchBolt, BatchOutputCollector, TopologyContext, Tuple
from txtopo.core.values import TransactionAttempt
from txtopo.spouts.transactional import TransactionalSpout

TEXTS = Path(os.environ.get("TEXTS_FOLDER", Path(__file__).parent / "texts"))


class Texts(TransactionalSpout):
    """One text file, one batch, in the order of their names. The last batch's name says which file comes next."""

    outputs = ["line string"]

    def __init__(self) -> None:
        self.last: str | None = None

    def _after(self, previous: str | None) -> list[str]:
        return [path.name for path in sorted(TEXTS.glob("*.txt")) if previous is None or path.name > previous]

    def get_coordinator(self, config: Mapping[str, Any], context: Any) -> Texts:
        coordinator = Texts()
        coordinator.last = context.previous["file"] if context.previous else None
        return coordinator

    def is_ready(self) -> bool:
        return bool(self._after(self.last))

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        self.last = self._after(previous["file"] if previous else None)[0]
        return {"file": self.last}

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any) -> Iterator[tuple[str]]:
        for line in (TEXTS / metadata["file"]).read_text().splitlines():
            yield (line,)


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


builder = TopologyBuilder("word_count")
builder.set_spout("texts", Texts())
builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("texts")
builder.set_bolt("count", Count(), parallelism_hint=2).fields_grouping("split", ["word"])
words = CountCommitter("words", ["word"], count="batches", sums={"n": "n"})
builder.set_committer_bolt("words", words).fields_grouping("count", ["word"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run())
