"""Users' functions are called with the driver's own session: put back what one of them changes of it, and fail its
batch by name.

Settings are looked at when Spark analyses, so a plan that was made behind such a call would count by other rules than
the one before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

from txtopo.errors import BatchDataError
from txtopo.spark.session.spark_settings import changed_settings


@contextlib.contextmanager
def settings_kept(spark: SparkSession, component: str) -> Iterator[None]:
    """Raise BatchDataError, naming `component`, where a setting that results depend on is another one behind the body;
    it is put back in any case.
    """
    try:
        yield
    except BaseException:
        _put_back(spark)
        raise
    if changed := _put_back(spark):
        raise BatchDataError(
            f"{component} changes the Spark session: {', '.join(changed)}, and results depend on it",
            component=component,
        )


def _put_back(spark: SparkSession) -> list[str]:
    """Says what was changed."""
    changed = changed_settings(spark.conf.get)
    for name, _, value in changed:
        spark.conf.set(name, value)
    return [f"{name} was {actual} instead of {value}" for name, actual, value in changed]
