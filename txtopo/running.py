"""Runs a topology for a Python program: `txtopo.run` returns how it ended or raises, `run_cli` is for the end of a
script.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from txtopo.driver.run_result import RunResult
from txtopo.errors import ConfigurationError, InvariantBroken, TopologyTypeError, TxtopoError, format_error
from txtopo.run_settings import RunSettings
from txtopo.topology.components import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_THE_SESSION = ("master", "conf")
"""Settings that say how Spark is to be started."""


def run(topology: Topology, *, spark: SparkSession | None = None, **settings: Unpack[RunSettings]) -> RunResult:
    """Run a topology in the foreground and return how it ended. Progress is told on stderr unless `quiet=True`.

    `spark` is a session that stays the caller's to stop; without it the session that this process has is used, and
    where there is none one is started and stopped. `settings` are those of `txtopo run`: once=True,
    dsn="postgresql://…", zookeeper="host:2181/chroot", workers=4, …; what is not given comes from the environment and
    `txtopo.toml`.

    Raises TxtopoError: ConfigurationError where nothing was started since a setting or the topology is wrong, Halted
    where a person must look, Fenced where another driver leads, StoreUnavailable where Postgres or ZooKeeper does not
    answer, ExecutorLost where Spark is gone for good. Each has an `exit_code`.
    """
    from txtopo import app
    from txtopo.config import load_settings

    if not isinstance(topology, Topology):
        shown = topology.__name__ if isinstance(topology, type) else type(topology).__name__
        raise TopologyTypeError(f"{shown} is no topology: give run() what build() returns")
    if spark is not None and (unused := [name for name in OF_THE_SESSION if settings.get(name) is not None]):
        raise ConfigurationError(
            f"{' and '.join(unused)} would change nothing: the Spark session that was given runs already; "
            "give them to its builder"
        )
    found = load_settings(settings, cwd=Path.cwd(), environment=os.environ, target=settings.get("target"))
    executor = app.spark_executor if spark is None else partial(app.executor_on, spark)
    return app.drive_to_end(topology, app.own_script(topology.name), found, executor)


def run_cli(topology: Topology, **settings: Unpack[RunSettings]) -> int:
    """`run` for the end of a script: errors are told on stderr as by `txtopo run`, and their exit code is returned.

    Only InvariantBroken is raised: it is a mistake in txtopo.
    """
    from txtopo.core.connect_strings import masked

    try:
        return run(topology, **settings).exit_code
    except InvariantBroken:
        raise
    except TxtopoError as error:
        print(masked(format_error(error)), file=sys.stderr, flush=True)
        return error.exit_code
