"""Inspects what Spark made of a plan: whether it can be used again, what it reads, and how many partitions it will
have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from txtopo.spark.frames.current_time_check import is_timeless

_PURE_NODES = frozenset(
    {
        "WholeStageCodegen",
        "InputAdapter",
        "Range",
        "MapInArrow",
        "Coalesce",
        "ColumnarToRow",
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "Sort",
        "HashAggregate",
        "ObjectHashAggregate",
        "SortAggregate",
        "BatchEvalPython",
        "ArrowEvalPython",
        "MapInPandas",
    }
)
"""Physical nodes that keep nothing between two runs. An exchange is not among them: it keeps its files, and a second
run would read the files of the first.
"""
_BATCH_BOUND = re.compile(
    r"current_?(?:timestamp|date|time)|localtimestamp|\bnow\(|\brand[ns]?\(|\buuid\(|\bshuffle\(", re.IGNORECASE
)
"""Expressions whose value Spark fixes when it plans."""


def is_reusable(frame: DataFrame, stream: DataFrame) -> bool:
    """True if every node of its physical plan is a pure function of one partition, with nothing that Spark fixed while
    planning.

    `stream` is the part that users wrote: the counting downstream of it numbers rows, which Spark calls not
    deterministic.
    """
    plan: Any = frame._jdf.queryExecution().executedPlan()
    analysed: Any = stream._jdf.queryExecution().analyzed()
    if not plan.subqueriesAll().isEmpty() or not is_timeless(analysed, frame.sparkSession):
        return False
    if _BATCH_BOUND.search(analysed.toString()):
        return False
    return all(node.nodeName().partition(" ")[0] in _PURE_NODES for node in _nodes(plan))


def partitions_of(frame: DataFrame) -> int | None:
    """Return the maximum number of partitions it will have; None if its plan does not show it, as with adaptive
    execution, which decides only while it runs.

    Reads only the plan: asking what Spark would execute runs stages of the users' plan, which then run again.
    """
    execution: Any = frame._jdf.queryExecution()
    return _partitions(execution.executedPlan())


def _partitions(plan: Any) -> int | None:
    if known := int(plan.outputPartitioning().numPartitions()):
        return known
    name = plan.nodeName().partition(" ")[0]
    children = plan.children()
    below = [_partitions(children.apply(index)) for index in range(children.size())]
    # For example nodes that Spark knows nothing about after a Python function: they keep their partitions.
    if name == "Union" or (len(below) == 1 and name in _PURE_NODES):
        return None if None in below else sum(filter(None, below))
    if name == "BroadcastHashJoin":  # A broadcast has one partition.
        return None if None in below else max(filter(None, below))
    return None


def settled(frame: DataFrame) -> tuple[DataFrame, int]:
    """Return the rows of a DataFrame, and the number of their partitions: exactly those of its last stage.

    Spark optimises nothing across a Python function, so this loses nothing. If adaptive execution has to run stages to
    determine the number, they are not run again: their files are read.
    """
    execution: Any = frame._jdf.queryExecution()
    rows = execution.toRdd()
    session: Any = frame.sparkSession._jsparkSession
    made = session.internalCreateDataFrame(rows, frame._jdf.schema(), False)
    return DataFrame(made, frame.sparkSession), int(rows.getNumPartitions())


def columns_read(frames: Iterable[DataFrame]) -> set[str]:
    """Return the lower-case names of all attributes that any node of their optimised plans reads: at least the leaf's
    columns that matter.
    """
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
