"""Whether a process may have a file open for writing, asked without harm to the writer or to who asks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from txtopo.spouts.fingerprint import FileStat
from txtopo.spouts.open_for_writing import may_be_open_for_writing

HOLD = ["sh", "-c", 'exec 3>>"$1"; echo open; read line', "hold"]
OPENS_MEANWHILE = """
import fcntl, subprocess, sys
from pathlib import Path
from txtopo.local.processes import wait_until
from txtopo.spouts.fingerprint import FileStat
from txtopo.spouts.open_for_writing import may_be_open_for_writing

real, path, writers = fcntl.fcntl, Path(sys.argv[1]), []
found = FileStat.of(path.stat())

def is_waiting():
    return any("LEASE" in line and "BREAKING" in line for line in Path("/proc/locks").read_text().splitlines())

def patched(descriptor, command, argument):
    result = real(descriptor, command, argument)
    if (command, argument) == (fcntl.F_SETLEASE, fcntl.F_RDLCK):
        writers.append(subprocess.Popen(["sh", "-c", 'echo more >> "$1"', "writer", str(path)]))
        assert wait_until(is_waiting, 30.0)
    return result

fcntl.fcntl = patched
assert not may_be_open_for_writing(str(path), found)
print("writer ended with", writers[0].wait(30))
"""


def asked(path: Path) -> bool:
    return may_be_open_for_writing(str(path), FileStat.of(path.stat()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text("a\n")
    return path


def test_a_file_that_nobody_writes_is_known_as_such(path: Path) -> None:
    assert not asked(path)
    with path.open():
        assert not asked(path)


def test_a_file_that_a_process_has_open_for_writing_is_known_as_such(path: Path) -> None:
    with path.open("a"):
        assert asked(path), "this process"
    assert not asked(path)

    with subprocess.Popen([*HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "open\n"
        assert asked(path), "another process"
        other.communicate("end\n")
    assert not asked(path)


def test_a_file_that_is_not_the_one_found_is_not_vouched_for(path: Path) -> None:
    found = FileStat.of(path.stat())
    path.write_text("a\nb\n")
    assert may_be_open_for_writing(str(path), found)
    path.unlink()
    assert may_be_open_for_writing(str(path), found)
    os.mkfifo(path)
    assert may_be_open_for_writing(str(path), found), "and a FIFO without a writer blocks nobody"


def test_where_leases_are_refused_or_missing_nothing_is_known(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EACCES, "of another user")

    with monkeypatch.context() as refused:
        refused.setattr(fcntl, "fcntl", refuse)
        assert asked(path)
    monkeypatch.delattr(fcntl, "F_SETLEASE")
    assert asked(path)


def test_a_writer_that_opens_meanwhile_goes_on_and_ends_nobody(path: Path) -> None:
    """Linux sends a signal to who holds the lease; its default, SIGIO, ends a process."""
    command = [sys.executable, "-c", OPENS_MEANWHILE, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (run.returncode, run.stdout, run.stderr) == (0, "writer ended with 0\n", "")
    assert path.read_text() == "a\nmore\n"
