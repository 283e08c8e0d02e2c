"""Restores settings of the driver's session that a user's function changes, and fails its batch with the names of the
settings.

Users' functions are called with the driver's own session. Spark reads settings when it analyses, so a plan made after
such a call would follow other rules than the previous plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

from txtopo.errors import BatchDataError
from txtopo.spark.session.spark_settings import changed_settings


@contextlib.contextmanager
def settings_kept(spark: SparkSession, component: str) -> Iterator[None]:
    """Raise BatchDataError, naming `component`, if the body changed a setting that results depend on; the setting is
    restored in any case.
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
            fault="changed session",
        )


def _put_back(spark: SparkSession) -> list[str]:
    """Return in words what was changed."""
    changed = changed_settings(spark.conf.get)
    for name, _, value in changed:
        spark.conf.set(name, value)
    return [f"{name} was {actual} instead of {value}" for name, actual, value in changed]
