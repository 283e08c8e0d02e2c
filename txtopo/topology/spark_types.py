"""PySpark's types in the signatures of functions and spouts on whole DataFrames. Only type checkers import them: a
topology is described without Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
else:
    DataFrame = SparkSession = Any

FrameFunction = Callable[..., DataFrame]
RowsPromise = Literal["same", "fewer", "any"]
"""How many rows a function returns compared with its input."""

__all__ = ["DataFrame", "FrameFunction", "RowsPromise", "SparkSession"]
