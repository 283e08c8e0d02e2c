"""Ctrl-C, SIGTERM and a closed terminal while Spark starts: the exit code is right and no JVM stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.drivers import jvm_of, pause, stat_of, wait_until

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
STARTING = """
    import os, sys
    from pathlib import Path
    from txtopo.local.java import java_environment
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session
    from txtopo.driver.signals import StopSignals

    os.environ.update(java_environment())
    with StopSignals():
        start_session(SessionOptions(app_name="starting", log_folder=Path(sys.argv[1]), master="local[1]"))
        try:
            print("started", flush=True)
            sys.stdin.read()
        finally:
            stop_session()
"""


def _launched(pid: int, words: str) -> set[int]:
    """Children of this process whose command line has these words, zombies excepted."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = stat_of(entry)[:2]
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(parent) == pid and state != "Z" and words in command and "spark" in command:
            found.add(int(entry.name))
    return found - {pid}


def _in_group(group: int) -> list[str]:
    """Command lines of the processes of a group that are still there, zombies excepted."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = stat_of(entry)
            if int(fields[2]) == group and fields[0] != "Z":
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


class Starting:
    """A driver of which nothing but Spark starts."""

    def __init__(self, script: Path, name: str) -> None:
        folder = script.parent
        # Whoever runs the tests in the background ignores SIGINT and SIGHUP, and children inherit that; a terminal does
        # not.
        self._told = folder / f"{name}.err"
        with self._told.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(folder / name)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (1, 2)],
            )
        self.words = str(folder / name)
        self.groups: set[int] = set()

    def has_launched(self) -> bool:
        """Is there a process of Spark's? Fails where the driver has ended instead, with what it said."""
        code = self.process.poll()
        assert code is None, f"it ended with {code}: {self._told.read_text()}"
        self.groups |= {os.getpgid(pid) for pid in _launched(self.process.pid, self.words)} - {os.getpgid(0)}
        return bool(self.groups)

    def has_java(self) -> bool:
        """Has it become Java?"""
        return self.has_launched() and jvm_of(self.process.pid) is not None

    def stop_java(self) -> bool:
        """Let the JVM stand still before it says a word."""
        jvm = jvm_of(self.process.pid) if self.has_java() else None
        if jvm is not None:
            pause(jvm)
        return jvm is not None


def test_whatever_ends_a_start_leaves_no_jvm(tmp_path: Path) -> None:
    """PySpark knows its JVM only once it answers. Here a signal comes before: to the launcher, to a young JVM, and to
    one that stands still.
    """
    moments: list[tuple[signal.Signals, int, Callable[[Starting], bool]]] = [
        (signal.SIGTERM, 143, Starting.has_launched),
        (signal.SIGINT, -2, Starting.has_java),
        (signal.SIGHUP, 129, Starting.stop_java),
    ]
    # Written once, before any of them: one that reads it while it is written anew finds it empty, and ends with 0.
    script = tmp_path / "starting.py"
    script.write_text(textwrap.dedent(STARTING))
    started = [Starting(script, f"logs-{number}") for number in range(len(moments))]
    try:
        for one, (number, _, moment) in zip(started, moments, strict=True):
            wait_until(lambda one=one, moment=moment: moment(one), "the moment")  # type: ignore[misc]
            one.process.send_signal(number)
        codes = [one.process.wait(60) for one in started]

        assert codes == [code for _, code, _ in moments]
        for one in started:
            assert len(one.groups) == 1
            wait_until(lambda one=one: not any(map(_in_group, one.groups)), "the end of the JVM", 10)  # type: ignore[misc]
    finally:
        for one in started:
            one.process.kill()
            one.process.communicate()
            for group in one.groups:
                if _in_group(group):
                    os.killpg(group, signal.SIGKILL)
