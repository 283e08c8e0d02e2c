"""The leaves that txtopo puts upstream of the users' functions, each with a unique name: they show whose tuples a plan
reads.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame

from txtopo.errors import BatchDataError, unreachable

_NUMBERS = itertools.count(1)
_NAME = re.compile(r"\btxtopo_leaf_\d+\b")


def leaf_of(frame: DataFrame, task: Callable[[Any], Any], schema: Any) -> DataFrame:
    """Return `mapInArrow` with a name that no other leaf of this process has."""

    def emit(batches: Any) -> Any:
        return task(batches)

    emit.__name__ = f"txtopo_leaf_{next(_NUMBERS)}"
    return frame.mapInArrow(emit, schema)


def leaves_in(frames: Iterable[DataFrame]) -> frozenset[str]:
    """Return the names of all leaves in the analysed plans of these DataFrames, also inside views and subqueries."""
    found: set[str] = set()
    for frame in frames:
        analysed: Any = frame._jdf.queryExecution().analyzed()
        found.update(_NAME.findall(analysed.toString()))
    return frozenset(found)


def check_leaves(component: str, made: DataFrame, own: frozenset[str]) -> None:
    """Raise BatchDataError if the result of a component reads a leaf that is not among its plan's `own`: the tuples of
    another batch.
    """
    if leaves_in([made]) - own:
        raise BatchDataError(
            "reads tuples of another plan: a view or a DataFrame that an earlier call made, or another batch's",
            component=component,
            fault="tuples of another plan",
        )


def unread(leaves: Iterable[DataFrame], frames: Iterable[DataFrame]) -> list[DataFrame]:
    """Return the leaves that Spark removes from the plans of all these DataFrames because their rows cannot matter, for
    example after a filter that is never true.
    """
    texts = [str(frame._jdf.queryExecution().optimizedPlan().toString()) for frame in frames]
    read = {name for text in texts for name in _NAME.findall(text)}
    return [leaf for leaf in leaves if _name_of(leaf) not in read]


def _name_of(leaf: DataFrame) -> str:
    # The analysed plan is read from the top down.
    found = _NAME.search(leaf._jdf.queryExecution().analyzed().toString())
    return found[0] if found is not None else unreachable("a leaf without a name")
