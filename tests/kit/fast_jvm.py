"""Makes Spark's JVMs start in half the time: the tests start some thirty drivers, each with a JVM that lives for
seconds.

`python -m tests.kit.fast_jvm ARCHIVE` writes the archive of classes that this module's options name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from txtopo.errors import ConfigurationError
from txtopo.local.java import java_environment

if TYPE_CHECKING:
    import pyarrow as pa

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""In the virtual environment, since an archive fits one Java and one folder of PySpark only. Java ignores an archive
that is missing or does not fit.
"""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile quickly rather than well, and collect garbage without helper threads."""
WITH_ARCHIVE = f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}"
"""The same with classes that are parsed and verified already; for executors as well, which have Spark's class path."""
BUILD_S = 300.0


def use() -> None:
    """Every Spark that this process and its children start from now on has these options. What is already set there
    stays.
    """
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", WITH_ARCHIVE)


def ensure_archive() -> None:
    """Write the archive unless it is there. While another process writes it, this one goes on without."""
    if ARCHIVE.exists():
        return
    with ARCHIVE.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if ARCHIVE.exists():
            return
        written = ARCHIVE.with_suffix(".new")
        written.unlink(missing_ok=True)
        options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={written}"
        # Without the archive, or without a Java, the tests are slower and prove the same.
        with contextlib.suppress(subprocess.TimeoutExpired, ConfigurationError, OSError):
            subprocess.run(
                [sys.executable, "-m", "tests.kit.fast_jvm"],
                env={
                    **os.environ,
                    **java_environment(),
                    "SPARK_SUBMIT_OPTS": options,
                    "PYSPARK_PYTHON": sys.executable,
                },
                cwd=Path(__file__).parents[2],
                capture_output=True,
                timeout=BUILD_S,
                check=False,
            )
        if written.exists():
            written.replace(ARCHIVE)


def _doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        yield batch


def _touch_the_usual_classes() -> None:
    """Run jobs like those of a batch, then end the JVM in order: it writes the archive as it ends."""
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    numbers = spark.range(100).withColumn("name", functions.col("id").cast("string"))
    doubled = numbers.mapInArrow(_doubled, "id long, name string").withColumn("late", functions.col("id") > 50)
    counts = doubled.groupBy("name", "late").agg(functions.sum("id"), functions.count("*"))
    counts.toArrow()
    counts.createOrReplaceTempView("counts")
    spark.sql("select late, count(*) from counts a join counts b using (late) group by late").collect()
    spark.sparkContext.parallelize(range(10), 2).map(lambda number: (number % 2, number)).groupByKey().collect()
    spark.stop()


if __name__ == "__main__":
    _touch_the_usual_classes()
