"""Starts the one Spark session of a driver without output and with the settings that results depend on, and stops it
completely.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from txtopo.errors import ConfigurationError, ExecutorLost
from txtopo.spark.session.jvm_process import Jvm, forget_an_archive_that_crashed, launch_jvm
from txtopo.spark.session.python_worker_sockets import SocketFolder
from txtopo.spark.session.spark_settings import (
    RESULT_SETTINGS,
    WORKER_MEMORY_SETTING,
    changed_settings,
    is_same_setting,
    machine_memory_bytes,
    worker_memory_mib,
)
from txtopo.topology.jvm_work import JvmWork

TASK_FAILURES_MAX = 4
"""Tries of a task. Spark's plain `local[N]` allows one, so that a dead Python worker would end the job."""
STOP_S = 10.0
"""Seconds the JVM gets to end by itself before it is killed."""
_DEFAULTS: Mapping[str, str] = {
    "spark.driver.maxResultSize": "256m",
    "spark.scheduler.mode": "FIFO",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.python.worker.reuse": "true",
    "spark.task.reaper.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_sockets = SocketFolder()
"""The lock of the one session that a process may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How to start Spark. No field holds a secret: Spark shows its configuration (UI, event log)."""

    app_name: str
    log_folder: Path
    """Folder for `spark.log` and the logging configuration; made when missing."""
    master: str | None = None
    """As for spark-submit; None is `local[N,4]` with N the number of CPUs."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Further Spark settings; settings in RESULT_SETTINGS must keep their value."""
    py_files: tuple[str, ...] = ()
    """Python files, zips and wheels for the executors."""
    work: JvmWork = JvmWork.ROWS
    """What the JVM computes: with messages alone it starts with FAST_COMPILER, otherwise with PATIENT_COMPILER, unless
    the user chooses a compiler.
    """

    @property
    def log_file(self) -> Path:
        """Path of the log with everything that Spark would have printed."""
        return self.log_folder / "spark.log"


def full_master(master: str | None, cpus: int | None = None) -> str:
    """Return the master with a number of task tries: `local`, `local[2]`, `local[*]` and None get one, everything else
    is unchanged.
    """
    if master is None:
        return f"local[{cpus or os.cpu_count() or 1},{TASK_FAILURES_MAX}]"
    match = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*\])?", master)
    return master if match is None else f"local[{match[1] or '1'},{TASK_FAILURES_MAX}]"


def settings(options: SessionOptions) -> dict[str, str]:
    """Return all Spark settings for these options. Raises ConfigurationError if the user's settings differ from one
    that results depend on.
    """
    for name, value in RESULT_SETTINGS.items():
        given = options.conf.get(name)
        if given is not None and not is_same_setting(name, given, value):
            raise ConfigurationError(f"{name}={given} would change results; txtopo needs {value}: leave it out")
    master = full_master(options.master)
    merged = {**_DEFAULTS, "spark.master": master, "spark.app.name": options.app_name}
    if master.startswith("local"):
        given_cores = master.partition("[")[2].partition(",")[0].rstrip("]")
        cores = int(given_cores) if given_cores.isdigit() else os.cpu_count() or 1
        merged |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(cores),
        }
        if master.startswith("local["):
            merged["spark.python.daemon.module"] = "txtopo.spark.session.worker_daemon"
        if master.startswith("local[") and "spark.executor.cores" not in options.conf:
            # Each worker may have all of it: Spark divides it by `spark.executor.cores`, which has no meaning on a
            # local master.
            merged[WORKER_MEMORY_SETTING] = f"{worker_memory_mib(machine_memory_bytes(), cores)}m"
    merged |= {**options.conf, **RESULT_SETTINGS}
    if options.py_files:
        merged["spark.submit.pyFiles"] = ",".join(options.py_files)
    return merged


def start_session(options: SessionOptions) -> SparkSession:
    """Start the JVM and a session in it. Nothing is printed, all output goes to `options.log_file`. Raises
    ConfigurationError.
    """
    if SparkContext._active_spark_context is not None:
        raise ConfigurationError("this process has a Spark session already; hand it over instead of options")
    # PySpark prints this for every plain UDF with type hints; it has no consequence.
    warnings.filterwarnings("ignore", message="Cannot infer the eval type from type hints", category=UserWarning)
    # Also not printed: that a JVM which does not respond cannot be stopped in order; it is killed then, which is
    # reported.
    warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM process", category=RuntimeWarning)
    # A dead JVM is reported as an outcome; py4j would also print a traceback for every call. It does so on the root
    # logger.
    logging.getLogger().addFilter(_is_not_py4j)
    # Also not printed: the kilobytes of JSON that PySpark prints for each error in a query; the error itself is
    # reported.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    merged = settings(options)
    if str(merged["spark.master"]).startswith("local["):
        merged |= _sockets.settings(merged)
    with _environment(str(merged["spark.master"])), _interrupt_handler_kept():
        try:
            launch_jvm(options.log_folder, options.log_file, options.work, merged=merged)
            builder = SparkSession.builder
            for name, value in merged.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
            _sockets.entrust(spark._jvm)
            check_settings(spark)
        except Exception as error:
            killed = Jvm.started is not None and Jvm.started.was_killed()
            forget_an_archive_that_crashed()
            stop_session()
            if isinstance(error, ConfigurationError):
                raise
            if killed:  # By the kernel, for example; no setting is wrong.
                raise ExecutorLost(
                    f"the JVM was killed while Spark started (see {options.log_file}); start again"
                ) from error
            first = str(error).strip().partition("\n")[0]
            raise ConfigurationError(f"Spark did not start: {first} (see {options.log_file})") from error
        except BaseException:  # Ctrl-C or SIGTERM: everything started until now ends with it.
            stop_session()
            raise
    return spark


def hear_of_lost_reports(spark: SparkSession, lost: Callable[[BaseException], None]) -> None:
    """Have `lost` called when the driver could not receive what tasks report: from then on the JVM sends nothing more,
    and no batch is at fault.

    The server of accumulators would print a traceback, and another one when the JVM dies; both are reported as an
    outcome instead.
    """
    context: Any = spark.sparkContext

    def handle(*_: object) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, OSError | EOFError):
            lost(error)

    context._accumulatorServer.handle_error = handle


def check_settings(spark: SparkSession) -> None:
    """Assert the settings that results depend on, in the running session, so that all attempts at a plan run with the
    same ones. Raises ConfigurationError.
    """
    if not hasattr(spark, "sparkContext"):
        raise ConfigurationError(
            "the Spark session is one of Spark Connect, whose jobs cannot be assigned to batches; build one with "
            ".master(…), without .remote(…) and SPARK_REMOTE"
        )
    wrong = [
        f'.config("{name}", "{value}") (it is {actual}, and results depend on it)'
        for name, actual, value in changed_settings(spark.conf.get)
    ]
    context: Any = spark.sparkContext
    if not isinstance(context._gateway, ClientServer):
        # Decided when the JVM was launched. A batch's order is a property of the thread that starts its jobs.
        raise ConfigurationError(
            "the Spark session is not fit for txtopo: threads are not pinned, so a job could run with another "
            "batch's order; unset PYSPARK_PIN_THREAD (it is false) and start again"
        )
    if re.fullmatch(r"local(\[[^,\]]*\])?", str(context.master)):
        wrong.append(f'.master("{full_master(context.master)}") (on {context.master} no task is tried twice)')
    if context.getConf().get("spark.task.reaper.enabled", "false") != "true":
        wrong.append('.config("spark.task.reaper.enabled", "true") (so that cancelled tasks end)')
    if wrong:
        raise ConfigurationError(f"the Spark session is not fit for txtopo; build it with {', '.join(wrong)}")


def jvm_ended() -> bool:
    """True if the JVM that this process started has ended (K11: the driver's JVM dies); False if another process
    started it.
    """
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def running_session() -> SparkSession | None:
    """Return the session that this process already has, whatever code started it; None if there is none."""
    # `getActiveSession` finds a session only in the thread that made it; a script may call `run` in another thread.
    return (
        SparkSession.getActiveSession() or SparkSession._instantiatedSession
        if SparkContext._active_spark_context is not None
        else None
    )


def stop_session() -> None:
    """Stop the session and the JVM of this process, whatever state they are in; they are killed if they do not end in
    time. Safe to repeat.
    """
    context: Any = SparkContext._active_spark_context
    gateway: Any = SparkContext._gateway
    process = Jvm.started

    def end() -> None:
        if context is not None and (process is None or process.poll() is None):
            with contextlib.suppress(Py4JError, OSError):
                (SparkSession._instantiatedSession or context).stop()
        with contextlib.suppress(Py4JError, OSError):
            gateway.shutdown()

    answers = gateway is not None and within(STOP_S, end)
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        process.end(STOP_S if answers else 0.0)
        Jvm.started = None
    _sockets.remove()


def within(seconds: float, work: Callable[[], None]) -> bool:
    """Do `work` in a thread and wait at most `seconds` for it: a call into a JVM that does not respond never returns.
    Returns True if it ended, False if not or if there is no memory for a thread.
    """
    thread = threading.Thread(target=work, name="ends Spark", daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return False
    thread.join(seconds)
    return not thread.is_alive()


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


@contextlib.contextmanager
def _interrupt_handler_kept() -> Iterator[None]:
    """PySpark replaces the driver's SIGINT handler with one that cancels all jobs and raises: restore the driver's."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _environment(master: str) -> Iterator[None]:
    """Variables that Spark reads while it starts. The Python ones stay: Spark reads them again for each new worker."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    before = os.environ.get("SPARK_LOCAL_IP")
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("SPARK_LOCAL_IP", None)
        else:
            os.environ["SPARK_LOCAL_IP"] = before
