"""Running `txtopo` as somebody at a terminal would: a process of its own, with nothing of this checkout's shell."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.fix_postgres import folder_for_services

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 280.0
OUR_LINE = re.compile(r"\[ *\d+\.\d s\] \S.*")
"""What the demo writes on the terminal, and nothing else."""
FAST_JVM = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "TXTOPO_CLASS_ARCHIVE")
"""What makes the JVMs of the tests start faster, see tests/kit/fast_jvm.py."""


def clean_environment(**extra: str) -> dict[str, str]:
    """This shell's environment without any setting of txtopo, Spark or Python's import path."""
    own = ("TXTOPO_", "FLIGHTS_", "SPARK_", "PYSPARK_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name in FAST_JVM or not name.startswith(own)}
    return {**kept, **extra}


def checkout_environment(**extra: str) -> dict[str, str]:
    """The same with this checkout importable from any folder."""
    return clean_environment(PYTHONPATH=str(ROOT), **extra)


def txtopo_command(*arguments: str) -> list[str]:
    """The command line of `txtopo …`."""
    return [sys.executable, "-m", "txtopo.cli", *arguments]


def run_txtopo(
    *arguments: str, cwd: Path, environment: dict[str, str], limit_s: float = DEADLINE_S
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        txtopo_command(*arguments),
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


@contextmanager
def folder_for_demo() -> Iterator[Path]:
    """A folder that is all that the demo knows of this machine: its temporary files and its home lie there."""
    with folder_for_services() as folder:
        for name in ("tmp", "home", "here"):
            (folder / name).mkdir()
            (folder / name).chmod(0o711)
        yield folder


def places_of(machine: Path) -> dict[str, str]:
    """The variables that keep the demo in this folder."""
    return {"TMPDIR": str(machine / "tmp"), "TXTOPO_HOME": str(machine / "home")}


@contextmanager
def path_without_java(folder: Path) -> Iterator[str]:
    """A PATH with every program of this machine but Java's."""
    folder.mkdir()
    for place in os.get_exec_path():
        with contextlib.suppress(OSError):
            for program in Path(place).iterdir():
                link = folder / program.name
                if program.name != "java" and not link.is_symlink():
                    link.symlink_to(program)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder)


def processes_of(folder: Path) -> dict[int, str]:
    """Processes that have this folder in their command line or environment: pid -> command line."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            # Empty: it has ended and waits to be reaped.
            if command and os.fsencode(folder) in command + (process / "environ").read_bytes():
                found[int(process.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found
