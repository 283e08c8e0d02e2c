"""Spark's daemon that forks Python workers, with the heavy imports done once before the first fork.

A worker ends with every error of a bolt and is started again for each of its tries, and the search for a bad row makes
many of them: each would spend most of a second of CPU on importing pandas, pyarrow and txtopo. Used on a `local` master
(`spark.python.daemon.module`).

The imported objects are then frozen: after every task a worker collects garbage, and would scan all of these modules,
which takes longer than reading a small file. Pages that it does not write stay shared with the daemon, too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib

from pyspark.daemon import manager

_PRELOADED = (
    "pyspark.worker",
    "pandas",
    "pyarrow.acero",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyspark.sql.pandas.serializers",
    "txtopo.spark.emit",
    "txtopo.spark.tuples.tuple_tasks",
)


def main() -> None:
    """Import, then fork workers until Spark closes stdin."""
    for name in _PRELOADED:
        # The first task that needs a missing module reports it. Nothing may be printed: Spark reads the port from
        # stdout.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Not the fingerprint of the sources: a worker imports what is missing here from the disk as it is then, so each
    # worker takes its own (R12: driver and tasks must agree).
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
