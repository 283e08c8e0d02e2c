"""Word count in bare PySpark, three ways: what `benchmarks/words.py` compares txtopo with. No txtopo in it, no
counting, no acking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

LINES = 10_000
"""Lines of one record batch."""


def dataframe(spark: SparkSession, files: Sequence[str]) -> dict[str, int]:
    """Everything in the JVM but the reading: split, explode, groupBy."""
    return collected(lines_of(spark, files).select(F.explode(F.split("line", " ")).alias("word")))


def arrow(spark: SparkSession, files: Sequence[str]) -> dict[str, int]:
    """A `mapInArrow` that splits whole record batches."""

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pc.split_pattern(batch.column(0), " ").flatten()], names=["word"])

    return collected(lines_of(spark, files).mapInArrow(split, "word string"))


def loop(spark: SparkSession, files: Sequence[str]) -> dict[str, int]:
    """The bare `mapInArrow` loop: a line at a time, a word at a time, in Python."""

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = []
            for line in batch.column(0).to_pylist():
                for word in line.split(" "):
                    words.append(word)  # noqa: PERF402 - what a tuple bolt does with one word
            yield pa.RecordBatch.from_arrays([pa.array(words, pa.string())], names=["word"])

    return collected(lines_of(spark, files).mapInArrow(split, "word string"))


def words_loop(spark: SparkSession, files: Sequence[str]) -> dict[str, int]:
    """Two of them: the second sees every word by itself, as a bolt behind the first does."""

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pc.split_pattern(batch.column(0), " ").flatten()], names=["word"])

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = []
            for word in batch.column(0).to_pylist():
                words.append(word)  # noqa: PERF402 - what a tuple bolt does with one word
            yield pa.RecordBatch.from_arrays([pa.array(words, pa.string())], names=["word"])

    return collected(lines_of(spark, files).mapInArrow(split, "word string").mapInArrow(each, "word string"))


def lines_of(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """The lines of text files, a file a task."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from batches_of(files[number])

    return spark.range(0, len(files), 1, len(files)).mapInArrow(read, "line string")


def batches_of(path: str) -> Iterator[pa.RecordBatch]:
    """The lines of one file as record batches."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a plain program
        lines = file.read().splitlines()
    for start in range(0, len(lines), LINES):
        yield pa.RecordBatch.from_arrays([pa.array(lines[start : start + LINES], pa.string())], names=["line"])


def collected(words: DataFrame) -> dict[str, int]:
    """Occurrences by word."""
    rows: list[Any] = words.groupBy("word").count().collect()
    return {row["word"]: row["count"] for row in rows}
