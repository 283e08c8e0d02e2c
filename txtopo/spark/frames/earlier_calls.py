"""Finds rows that an earlier call of a user's function kept as an RDD: they belong to another batch, or to the start,
which has no rows.

Spark reads checkpointed or cached rows without a task on a leaf, so nothing signs for them (`txtopo.spark.signatures`).
Spark numbers RDDs in the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from txtopo.errors import BatchDataError

_HOLDS_RDD = ("LogicalRDD", "ExternalRDD")


class EarlierCalls:
    """Calls of the functions of one topology in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._first = self.now()
        """Rows that a script checkpointed earlier belong to no batch: a lookup table, for example."""

    def now(self) -> int:
        """Return a number above the numbers of all existing RDDs."""
        return int(self._context.newRddId())

    def check(self, component: str, made: DataFrame, inputs: Sequence[DataFrame], called: int) -> None:
        """Raise BatchDataError if `made`, by a call that began at `called`, reads such rows; rows that `inputs` read
        belong to its own batch.
        """
        kept = {number for number in _kept([made]) if self._first <= number < called}
        if kept and kept - set(_kept(inputs)):
            raise BatchDataError(
                "reads rows that an earlier call checkpointed or cached, which are not its batch's; make what all "
                "batches read before the topology is built",
                component=component,
                fault="rows of an earlier call",
            )


def _kept(frames: Sequence[DataFrame]) -> Iterator[int]:
    """Return the numbers of the RDDs upstream of these DataFrames that Spark reads as stored."""
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
