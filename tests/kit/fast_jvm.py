"""Makes Spark's JVMs start in half the time: the tests start some thirty drivers, each with a JVM that lives for
seconds. The archive of classes is the product's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from txtopo.errors import ConfigurationError
from txtopo.local.java import java_environment
from txtopo.spark.session.class_archive import VARIABLE, archive_file

CACHE = Path(sys.prefix) / "cache"
"""In the virtual environment, whose PySpark it is made of."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile quickly rather than well, and collect garbage without helper threads."""
WRITE_S = 300.0
_WRITERS: list[subprocess.Popen[bytes]] = []


def use() -> None:
    """Every Spark that this process and its children start from now on has these options. What is already set there
    stays.
    """
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
    os.environ["XDG_CACHE_HOME"] = str(CACHE)
    os.environ[VARIABLE] = "read"


def archive() -> Path | None:
    """Where the archive stands that drivers and executors of the tests use."""
    return archive_file({**os.environ, **java_environment()})


def with_archive() -> str:
    """Options for executors, which have Spark's class path."""
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive()}"


def begin_archive() -> None:
    """Have the archive written unless it is there: where several workers run, by one of them and beside the tests.
    JVMs that start before it is whole go on without.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    # Without the archive, or without a Java, the tests are slower and prove the same.
    with contextlib.suppress(subprocess.TimeoutExpired, ConfigurationError, OSError):
        file = archive()
        if file is None or file.exists() or worker not in (None, "gw0"):
            return
        command = [sys.executable, "-m", "txtopo.archive_classes"]
        folder = Path(__file__).parents[2]
        nothing = subprocess.DEVNULL
        _WRITERS.append(
            subprocess.Popen(command, cwd=folder, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        )
        if worker is None:
            _WRITERS[-1].wait(WRITE_S)


def end_archive() -> None:
    """End what still writes when the tests have ended; the next run begins again."""
    while _WRITERS:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(_WRITERS[-1].pid, signal.SIGKILL)
        _WRITERS.pop().wait()
