"""Look at what Spark made of a plan: may it be used again, what does it read, how many partitions will it have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from txtopo.spark.timeless import is_timeless

_PURE_NODES = frozenset(
    {
        "WholeStageCodegen", "InputAdapter", "Range", "MapInArrow", "Coalesce", "ColumnarToRow", "Project", "Filter", "Generate", "Expand", "Sort",
        "HashAggregate", "ObjectHashAggregate", "SortAggregate", "BatchEvalPython", "ArrowEvalPython", "MapInPandas",
    }
)  # fmt: skip
"""Physical nodes that keep nothing between two runs. An exchange is not among them: it keeps its files, and a second run would read the first's."""
_BATCH_BOUND = re.compile(
    r"current_?(?:timestamp|date|time)|localtimestamp|\bnow\(|\brand[ns]?\(|\buuid\(|\bshuffle\(", re.IGNORECASE
)
"""Expressions whose value Spark fixes when it plans."""


def is_reusable(frame: DataFrame, stream: DataFrame) -> bool:
    """Is every node of its physical plan a pure function of one partition, with nothing that Spark fixed while planning?

    `stream` is the part of it that users wrote: what is counted behind numbers its rows, which Spark calls not deterministic.
    """
    plan: Any = frame._jdf.queryExecution().executedPlan()
    analysed: Any = stream._jdf.queryExecution().analyzed()
    if not plan.subqueriesAll().isEmpty() or not is_timeless(analysed, frame.sparkSession):
        return False
    if _BATCH_BOUND.search(analysed.toString()):
        return False
    return all(node.nodeName().partition(" ")[0] in _PURE_NODES for node in _nodes(plan))


def partitions(frame: DataFrame) -> int:
    """How many partitions it will have; adaptive execution, which would decide later, is off."""
    execution: Any = frame._jdf.queryExecution()
    return int(execution.executedPlan().execute().getNumPartitions())


def partitions_of(frame: DataFrame) -> int:
    """The same, asked of the plan where it knows; only else of what Spark would execute, which is more work."""
    execution: Any = frame._jdf.queryExecution()
    return int(execution.executedPlan().outputPartitioning().numPartitions()) or partitions(frame)


def columns_read(frames: Iterable[DataFrame]) -> set[str]:
    """Lower-case names of all attributes that any node of their optimised plans reads: never fewer than the leaf's columns that matter."""
    names: set[str] = set()
    for frame in frames:
        for node in _nodes(frame._jdf.queryExecution().optimizedPlan()):
            references = node.references().toSeq()
            names |= {references.apply(index).name().lower() for index in range(references.size())}
    return names


def _nodes(plan: Any) -> list[Any]:
    children = plan.children()
    nodes = [plan]
    for index in range(children.size()):
        nodes.extend(_nodes(children.apply(index)))
    return nodes
