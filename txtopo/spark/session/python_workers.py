"""Checks the Python of Spark's workers before the first batch: if it is not the driver's Python, it may lack what every
task needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from txtopo.errors import ConfigurationError
from txtopo.spark.failures import is_jvm_gone

NEEDED = ("pyarrow", "numpy", "txtopo.spark.emit")
TASKS_MAX = 8
_checked: set[tuple[str, str]] = set()
"""Applications and their Python that were checked: a process may make several executors on one session."""


def check_workers(spark: SparkSession) -> None:
    """Let workers import what tasks need, once per session. Raises ConfigurationError that names their Python and what
    to set.
    """
    context: Any = spark.sparkContext
    known = (str(context.applicationId), str(context.pythonExec))
    if known in _checked:
        return
    needed = NEEDED

    def lacking(_: Any) -> Iterator[tuple[str, str, str]]:
        # Sent by value, and needs only the standard library.
        import importlib
        import socket
        import sys

        for name in needed:
            try:
                importlib.import_module(name)
            except Exception as error:  # A module that exists may belong to another Python.
                yield sys.executable, socket.gethostname(), f"{type(error).__name__}: {error}"

    tasks = max(1, min(context.defaultParallelism, TASKS_MAX))
    try:
        found = context.parallelize(range(tasks), tasks).mapPartitions(lacking).collect()
    except Exception as error:
        if is_jvm_gone(error):
            raise
        raise ConfigurationError(
            f"the Python of Spark's workers ({known[1]}) does not work: {_words(error)}; {_remedy()}"
        ) from error
    if found:
        python, host, what = found[0]
        raise ConfigurationError(
            f"the Python of Spark's workers ({python} on {host}) lacks a module: {what}; {_remedy()}"
        )
    _checked.add(known)


def _remedy() -> str:
    return f"set PYSPARK_PYTHON to one that has txtopo installed (here {sys.executable}) before the session starts"


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if "PYTHON_VERSION_MISMATCH" in line or "Cannot run program" in line]
    return next(iter([*telling, *filter(None, lines)]), type(error).__name__)
