"""Checks that Java and Python know the same rules of a time zone, so that a row is in one local day wherever it is
counted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from txtopo.errors import ConfigurationError
from txtopo.spark.frames.aggregate import local_time
from txtopo.topology.components import Topology
from txtopo.tuples.local_times import local_moments

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WEEK_US = 7 * 86_400_000_000
_FIRST_US, _LAST_US = (
    int((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * 10**6 for year in (1900, 2100)
)


def check_zones(spark: SparkSession, topology: Topology) -> None:
    """Compare the local time of each week from 1900 to 2100. Raises ConfigurationError that names the zone and the
    first difference.
    """
    bolts = (item.bolt for item in topology.committers if not item.bolt.takes_tuples)
    for zone in sorted({window.zone for bolt in bolts for window in bolt.aggregation().windows if window.zone}):
        weeks = spark.range(_FIRST_US, _LAST_US, _WEEK_US, 1)
        local = F.unix_micros(local_time(F.timestamp_micros("id"), zone).cast("timestamp"))
        by_java = weeks.select(local.alias("local")).toArrow().column(0).to_pylist()
        moments = pa.array(range(_FIRST_US, _LAST_US, _WEEK_US), pa.int64())
        by_python = local_moments(moments, zone).to_pylist()
        for moment, java, python in zip(moments.to_pylist(), by_java, by_python, strict=True):
            if java != python:
                at, shown, other = (
                    (_EPOCH + timedelta(microseconds=one)).replace(tzinfo=None) for one in (moment, java, python)
                )
                raise ConfigurationError(
                    f"Java and Python have other rules of the time zone {zone}: at {at} UTC its clocks show {shown} "
                    f"for Java, {other} for Python; use versions with the same tzdata"
                )
