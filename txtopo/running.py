"""Runs a topology for a Python program: `txtopo.run` returns how the run ended or raises an error; `run_cli` is for the
end of a script.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from txtopo.driver.application_names import own_script
from txtopo.driver.run_result import RunResult
from txtopo.errors import ConfigurationError, InvariantBroken, TopologyTypeError, TxtopoError, format_error
from txtopo.run_settings import RunSettings
from txtopo.topology.components import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_THE_SESSION = ("master", "conf")
"""Settings that are used only when Spark is started."""


def run(topology: Topology, *, spark: SparkSession | None = None, **settings: Unpack[RunSettings]) -> RunResult:
    """Run a topology in the foreground and return how the run ended. Prints progress to stderr unless `quiet=True`.

    `spark` is a session to run on; the caller must stop it. Without it, the run uses the session of this process; if
    there is none, it starts one and stops it at the end. `settings` are those of `txtopo run`: once=True,
    dsn="postgresql://…", zookeeper="host:2181/chroot", workers=4, …; a setting that is not given comes from the
    environment or `txtopo.toml`.

    Raises TxtopoError: ConfigurationError or TopologyError if a setting or the topology is wrong and nothing was
    started, Halted if an operator must decide, Fenced if another driver leads, StoreUnavailable if Postgres or
    ZooKeeper does not answer, ExecutorLost if Spark stopped and cannot be restarted. Each has an `exit_code`.
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
    return app.drive_to_end(topology, own_script(topology.name), found, executor)


def run_cli(topology: Topology, **settings: Unpack[RunSettings]) -> int:
    """Do what `run` does, for the end of a script: errors are printed to stderr as by `txtopo run`. Returns the exit
    code.

    Raises only InvariantBroken, which is a bug in txtopo.
    """
    from txtopo.core.connect_strings import masked

    try:
        return run(topology, **settings).exit_code
    except InvariantBroken:
        raise
    except TxtopoError as error:
        print(masked(format_error(error)), file=sys.stderr, flush=True)
        return error.exit_code
