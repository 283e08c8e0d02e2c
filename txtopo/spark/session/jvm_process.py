"""The process of Spark's JVM: how it is launched without output, known as soon as it exists, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pyspark import SparkConf, SparkContext, java_gateway

from txtopo.spark.session.class_archive import usable_archive
from txtopo.spark.session.spark_settings import compiler_directives, compiler_options, memory_options
from txtopo.topology.jvm_work import JvmWork

KILLED_S = 0.5
"""Seconds after which a JVM whose connections broke has visibly ended."""
END_S = 10.0
"""Seconds that a JVM gets to end once it is killed."""
CRASHES = (-signal.SIGABRT, -signal.SIGBUS, -signal.SIGSEGV)
"""Exit codes of a JVM that met what no setting and no shortage of memory explains."""
_LAUNCH_PREFIXES = ("spark.driver.", "spark.jars", "spark.submit.", "spark.archives", "spark.files")
"""Settings that the JVM needs when it is launched. All others are set inside it and are never in argv."""
_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.spark.name = org.apache.spark
logger.spark.level = warn
"""


class Jvm(subprocess.Popen[bytes]):
    """The process of the JVM, known as soon as it exists.

    PySpark returns it only once the JVM has answered: if something ended the start earlier, a signal for example, the
    JVM would stay running.
    """

    started: ClassVar[Jvm | None] = None
    archive: ClassVar[Path | None] = None
    """The archive of classes that it was given."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        with _signals_held():
            super().__init__(*arguments, **settings)
            Jvm.started = self

    def was_killed(self) -> bool:
        """True if a signal ended it. Its connections break a moment earlier."""
        try:
            return self.wait(KILLED_S) < 0
        except subprocess.TimeoutExpired:
            return False

    def end(self, patience_s: float) -> None:
        """Wait at most this number of seconds for it to end by itself, as it does when its stdin ends, then kill it."""
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.close()
        try:
            self.wait(patience_s)
        except subprocess.TimeoutExpired:
            # The JVM leads a separate process group (see launch_jvm): Python workers end with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait(END_S)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Delay signals that would end this process until the end of the block. Only for short blocks."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers if callable(signal.getsignal(number))}
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        before = {}
    for held in before:
        signal.signal(held, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for number in came:
            signal.raise_signal(number)


def launch_jvm(log_folder: Path, log_file: Path, work: JvmWork, *, merged: Mapping[str, str]) -> None:
    """Start the JVM with these settings of Spark, for PySpark to use. All that it prints goes to `log_file`."""
    log_folder.mkdir(parents=True, exist_ok=True)
    log4j = (log_folder / "spark-log4j2.properties").resolve()
    log4j.write_text(_LOG4J)
    launch = SparkConf(loadDefaults=False)
    for name, value in merged.items():
        if name == "spark.master" or name.startswith(_LAUNCH_PREFIXES):
            launch.set(name, value)
    own = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        *_compiler(log_folder, work, merged),
        *memory_options(merged, os.environ),
    ]
    Jvm.archive = usable_archive(merged, os.environ)
    if Jvm.archive is not None:
        own.append(f"-XX:SharedArchiveFile={Jvm.archive}")
    given = merged.get("spark.driver.extraJavaOptions", "")
    launch.set("spark.driver.extraJavaOptions", " ".join([*own, given]).strip())
    with log_file.open("ab") as log:
        # A separate session: a Ctrl-C at the terminal reaches this driver only, which then stops the JVM and its Python
        # workers in order. If the driver is killed, the JVM ends when its stdin does.
        module: Any = java_gateway
        plain, module.Popen = module.Popen, Jvm
        try:
            gateway = module.launch_gateway(launch, {"stdout": log, "stderr": log, "start_new_session": True})
        finally:
            module.Popen = plain
    SparkContext._ensure_initialized(gateway=gateway)


def _compiler(folder: Path, work: JvmWork, merged: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options of the compilers; the file that they name is written to this folder."""
    options = compiler_options(work, merged, os.environ)
    if work is not JvmWork.GROUPS or not options:
        return options
    path = (folder / "spark-compiler-directives.json").resolve()
    if not path.exists() or path.read_text() != compiler_directives():
        # Another driver may start its JVM with this file at the same time: it is never seen half-written.
        scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        scratch.write_text(compiler_directives())
        scratch.replace(path)
    return (*options, "-XX:+UnlockDiagnosticVMOptions", f'"-XX:CompilerDirectivesFile={path}"')


def forget_an_archive_that_crashed() -> None:
    """Remove the archive of a JVM that crashed while it started: it may be damaged. The next start goes without."""
    if Jvm.started is not None and Jvm.started.returncode in CRASHES and Jvm.archive is not None:
        with contextlib.suppress(OSError):
            Jvm.archive.unlink()
