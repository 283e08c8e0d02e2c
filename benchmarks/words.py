"""Word count by every kind of bolt, with counting and acking on and off, next to the same computation in bare PySpark,
in one run.

    make bench-words                  # or: python -m benchmarks.words [MILLION_WORDS]

Prints words a second and ratios, and writes build/bench_words.json. Only ratios of one run mean anything; leave the
machine alone meanwhile. What is measured is the processing phase: from the plan of a batch to its result rows in the
driver. The bare programs are in benchmarks/bare_words.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import bare_words
from txtopo import CountCommitter, TopologyBuilder
from txtopo.bolts import ArrowBolt, ArrowOutputCollector, BasicBolt, BasicOutputCollector, Tuple
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.local.java import java_environment
from txtopo.ports import Assignment
from txtopo.spouts.transactional import EmitterContext, TransactionalSpout
from txtopo.topology.components import Topology

FILES = 4
ROUNDS = 5
"""Each goes through all cases, so that a machine that grows warm or slow is so for all of them."""
ACKERS = os.cpu_count() or 1
"""`topology.acker.executors`: one a core, as Storm has one a worker."""


class Texts(TransactionalSpout):
    """All files as one batch, a file a task."""

    outputs = ["line string"]
    emitters = FILES

    def __init__(self, files: Sequence[str]) -> None:
        self.files = files

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        return {"all": True}

    def get_emitter(self, config: Any, context: EmitterContext) -> Any:
        return Share(self.files[context.index])


class Share:
    """One file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any) -> Iterator[pa.RecordBatch]:
        return bare_words.batches_of(self.path)


class Split(BasicBolt):
    """A line becomes its words, one by one."""

    outputs = ["word string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        for word in tup.values[0].split(" "):
            collector.emit((word,))


class Each(BasicBolt):
    """Sees every word by itself."""

    outputs = ["word string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tup.values)


class ArrowSplit(ArrowBolt):
    """Many lines become their words together."""

    outputs = ["word string"]

    def execute(self, batch: pa.RecordBatch, collector: ArrowOutputCollector) -> None:
        split = pc.split_pattern(batch.column(0), " ")
        words = pa.RecordBatch.from_arrays([split.flatten()], names=["word"])
        collector.emit_batch(words, anchors=pc.list_parent_indices(split))


def exploded(lines: Any) -> Any:
    """The DataFrame bolt."""
    return lines.selectExpr("explode(split(line, ' ')) as word")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    bare: Callable[..., dict[str, int]]
    acking: str
    bolt: Any
    behind: Any = None
    """A bolt that reads the first one's words."""
    times: int = 1
    """Runs in each round: short ones tell less."""


CASES = (
    Case("DataFrame bolts, counting off", bare_words.dataframe, "off", exploded, times=2),
    Case("DataFrame bolts", bare_words.dataframe, "batch", exploded, times=2),
    Case("Arrow bolts, counting off", bare_words.arrow, "off", ArrowSplit()),
    Case("Arrow bolts", bare_words.arrow, "batch", ArrowSplit()),
    Case("Arrow bolts, acking by tuple", bare_words.arrow, "tuple", ArrowSplit()),
    Case("tuple bolts, counting off", bare_words.loop, "off", Split()),
    Case("tuple bolts", bare_words.loop, "batch", Split()),
    Case("tuple bolts, acking by tuple", bare_words.loop, "tuple", Split()),
    Case("a tuple bolt on every word, counting off", bare_words.words_loop, "off", ArrowSplit(), Each()),
    Case("a tuple bolt on every word", bare_words.words_loop, "batch", ArrowSplit(), Each()),
)
TO_REACH = (
    ("counting costs, DataFrame bolts", "DataFrame bolts", "DataFrame bolts, counting off", 0.10),
    ("counting costs, Arrow bolts", "Arrow bolts", "Arrow bolts, counting off", 0.40),
    ("counting costs, tuple bolts", "tuple bolts", "tuple bolts, counting off", 0.30),
    ("acking by tuple costs on top, Arrow bolts", "Arrow bolts, acking by tuple", "Arrow bolts", 0.30),
    ("acking by tuple costs on top, tuple bolts", "tuple bolts, acking by tuple", "tuple bolts", 0.30),
)


def main(arguments: Sequence[str]) -> None:
    """Write the texts, start Spark once, measure every case next to its bare program, best of some runs."""
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.words", allow_abbrev=False)
    parser.add_argument("million", nargs="?", type=float, default=10.0, help="million words (default: 10)")
    million: float = parser.parse_args(arguments).million
    os.environ.update(java_environment())
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_") as folder:
        files, words = write_texts(Path(folder), int(million * 1e6))
        spark = start_session(SessionOptions(app_name="bench", log_folder=Path(folder)))
        try:
            rows = measured(spark, files, words)
        finally:
            stop_session()
    tell(rows, words)


def write_texts(folder: Path, words: int) -> tuple[list[str], int]:
    """Real English: the topics of Python's help, over and over, in files of equal size; returns how many words there
    are.
    """
    lines = [" ".join(line.split()) for text in topics.values() for line in text.splitlines()]
    lines = [line for line in lines if line]
    once = sum(len(line.split(" ")) for line in lines)
    times = -(-words // (FILES * once))
    files = []
    for number in range(FILES):
        path = folder / f"{number}.txt"
        path.write_text("\n".join(lines * times) + "\n")
        files.append(str(path))
    return files, once * times * FILES


def topology_of(case: Case, files: Sequence[str]) -> Topology:
    """The topology of a case."""
    builder = TopologyBuilder("words", acking=case.acking)  # type: ignore[arg-type]
    builder.set_spout("texts", Texts(files))
    if callable(case.bolt):
        builder.set_bolt("split", case.bolt, inputs="texts", fields="word string")
    else:
        builder.set_bolt("split", case.bolt, parallelism_hint=FILES).local_or_shuffle_grouping("texts")
    last = "split"
    if case.behind is not None:
        last = "each"
        builder.set_bolt("each", case.behind, parallelism_hint=FILES).local_or_shuffle_grouping("split")
    builder.set_committer_bolt(
        "count", CountCommitter("words", ["word"]), parallelism_hint=FILES
    ).local_or_shuffle_grouping(last)
    return builder.build()


def measured(spark: Any, files: Sequence[str], words: int) -> list[dict[str, Any]]:
    """Each case, best of some rounds, each time next to a run of the bare program."""
    from txtopo.spark.executor import SparkExecutor

    executors = [
        SparkExecutor(
            topology_of(case, files), b"bench", session=spark, py_files=(str(bare_words.__file__),), ackers=ACKERS
        )
        for case in CASES
    ]
    for executor in executors:
        executor.start()
    best = {(case.name, what): float("inf") for case in CASES for what in ("txtopo", "bare")}
    for number in range(ROUNDS):
        for case, executor in zip(CASES, executors, strict=True):
            for again in range(case.times):
                attempt = TransactionAttempt(1, number * case.times + again)
                for what, seconds in timed(spark, case, executor, attempt, files).items():
                    best[case.name, what] = min(best[case.name, what], seconds)
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
    for executor in executors:
        executor.close()
    return [
        {
            "case": case.name,
            "words_per_s": round(words / best[case.name, "txtopo"]),
            "bare_words_per_s": round(words / best[case.name, "bare"]),
            "bare_program": f"benchmarks/bare_words.py: {case.bare.__name__}",
        }
        for case in CASES
    ]


def timed(spark: Any, case: Case, executor: Any, attempt: TransactionAttempt, files: Sequence[str]) -> dict[str, float]:
    """Seconds of the bare program, and of the case behind it."""
    began = time.perf_counter()
    expected = case.bare(spark, files)
    bare = time.perf_counter() - began
    assignment = Assignment(attempt=attempt, metadata={"texts": {"txid": 1, "metadata": {"all": True}}})
    began = time.perf_counter()
    (outcome,) = executor.process([assignment])
    seconds = time.perf_counter() - began
    check(outcome, expected)
    return {"bare": bare, "txtopo": seconds}


def check(outcome: Any, expected: dict[str, int]) -> None:
    """A figure of a wrong result is worth nothing."""
    if not isinstance(outcome, Processed):
        raise RuntimeError(outcome.failure.message)
    table = outcome.results[0].rows
    found = dict(zip(table.column("word").to_pylist(), map(int, table.column("count").to_pylist()), strict=True))
    if found != expected:
        raise RuntimeError("the words are counted differently")


def tell(rows: Sequence[dict[str, Any]], words: int) -> None:
    """Print and keep the figures."""
    print(
        f"{words / 1e6:.1f} M words in {FILES} files, one batch; best of {ROUNDS}; {ACKERS} ackers; million words a "
        f"second"
    )
    print(f"{'case':<44}{'txtopo':>9}{'bare':>9}{'ratio':>8}   bare program")
    for row in rows:
        ratio = row["words_per_s"] / row["bare_words_per_s"]
        print(
            f"{row['case']:<44}{row['words_per_s'] / 1e6:>9.2f}{row['bare_words_per_s'] / 1e6:>9.2f}{ratio:>8.2f}   "
            f"{row['bare_program']}"
        )
    pace = {row["case"]: row["words_per_s"] for row in rows}
    for what, slower, faster, most in TO_REACH:
        print(f"{what}: {pace[faster] / pace[slower] - 1:+.0%} (at most {most:.0%} is the goal)")
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    (folder / "bench_words.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
