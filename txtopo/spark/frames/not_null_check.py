"""Checks the `not null` fields that functions over DataFrames declare: the same plan tests each value that something
downstream reads.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from txtopo.core.fields import Fields
from txtopo.spark.frames.aggregate import column_called


def assert_not_null(bolt: str, declared: Fields | None, made: DataFrame) -> DataFrame:
    """Return `made` with an error, naming bolt and field, in place of each NULL that is not allowed; return `made`
    itself if Spark knows that there is no NULL.
    """
    wanted = {field.name for field in declared.items if not field.nullable} if declared is not None else set()
    doubtful = {field.name for field in made.schema.fields if field.nullable} & wanted
    return made.withColumns({name: _checked(bolt, name) for name in sorted(doubtful)}) if doubtful else made


def _checked(bolt: str, name: str) -> Column:
    words = f"bolt {bolt}: field {name} is NULL, but it is declared NOT NULL"
    return F.coalesce(column_called(name), F.raise_error(F.lit(words)))
