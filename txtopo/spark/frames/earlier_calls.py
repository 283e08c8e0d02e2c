"""Finds in what a user's function made the rows that an earlier call of it kept as an RDD: another batch's, or those of
the start, which are none.

Rows that were checkpointed or cached are read without a task on a leaf, so nobody signs for them
(`txtopo.spark.signatures`). Spark numbers RDDs as they are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from txtopo.errors import BatchDataError

_HOLDS_RDD = ("LogicalRDD", "ExternalRDD")


class EarlierCalls:
    """Of the functions of one topology in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._first = self.now()
        """What a script checkpoints before is nobody's batch: a table to look values up in, say."""

    def now(self) -> int:
        """A number above those of all RDDs that there are."""
        return int(self._context.newRddId())

    def check(self, component: str, made: DataFrame, inputs: Sequence[DataFrame], called: int) -> None:
        """Raise BatchDataError where `made`, by a call that began at `called`, reads such rows; those that `inputs`
        read are its batch's own.
        """
        kept = {number for number in _kept([made]) if self._first <= number < called}
        if kept and kept - set(_kept(inputs)):
            raise BatchDataError(
                "reads rows that an earlier call checkpointed or cached, which are not its batch's; make what all "
                "batches read before the topology is built",
                component=component,
            )


def _kept(frames: Sequence[DataFrame]) -> Iterator[int]:
    """Numbers of the RDDs below these DataFrames that are read where they lie."""
    for frame in frames:
        analysed: Any = frame._jdf.queryExecution().analyzed()
        if any(name in analysed.toString() for name in _HOLDS_RDD):
            for plan in (analysed, *_items(analysed.subqueriesAll())):
                for leaf in _items(plan.collectLeaves()):
                    if leaf.nodeName().startswith(_HOLDS_RDD):
                        yield from _kept_below(leaf.rdd())


def _kept_below(rdd: Any) -> Iterator[int]:
    seen: set[int] = set()
    left = [rdd]
    while left:
        one = left.pop()
        number = int(one.id())
        if number in seen:
            continue
        seen.add(number)
        if one.isCheckpointed() or one.getStorageLevel().isValid():
            yield number
        left.extend(dependency.rdd() for dependency in _items(one.dependencies()))


def _items(seq: Any) -> list[Any]:
    return [seq.apply(index) for index in range(seq.size())]
