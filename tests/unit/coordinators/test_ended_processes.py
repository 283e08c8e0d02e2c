"""R30: only a process that certainly ended, on this machine and in this pid namespace, loses its place at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.drivers import pause
from txtopo.coordinators import ended_processes
from txtopo.coordinators.codec import CandidateNode
from txtopo.coordinators.ended_processes import has_ended, new_nonce


def candidate(pid: int, nonce: str | None = None, host: str | None = None) -> CandidateNode:
    return CandidateNode(host=host or socket.gethostname(), pid=pid, since="-", nonce=nonce or new_nonce())


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


@pytest.fixture
def gone(process: subprocess.Popen[bytes]) -> int:
    """The pid of a process that was killed."""
    process.kill()
    process.wait()
    return process.pid


def test_a_process_that_was_killed_has_ended_and_no_other(process: subprocess.Popen[bytes]) -> None:
    """A paused process, and one that nobody waited for, exist: the first one may continue."""
    candidate_node = candidate(process.pid)
    assert not has_ended(candidate_node)
    pause(process.pid)
    assert not has_ended(candidate_node)

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert not has_ended(candidate_node)

    assert process.wait() == -signal.SIGKILL
    assert has_ended(candidate_node)


def test_a_process_of_another_place_is_never_taken_for_ended(
    gone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the pid means another process: another machine, another container on it, a time before it was booted, or a
    driver that did not say where it runs, as those of release 0.1.0.
    """
    nonce = new_nonce()
    assert has_ended(candidate(gone, nonce))

    assert not has_ended(candidate(gone, nonce, host="elsewhere"))
    assert not has_ended(candidate(gone, str(uuid.uuid4())))
    assert not has_ended(candidate(gone, "0123-4567"))
    booted_again = tmp_path / "boot_id"
    booted_again.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    with monkeypatch.context() as patched:
        patched.setattr(ended_processes, "_BOOT_ID", booted_again)
        assert not has_ended(candidate(gone, nonce))
    with monkeypatch.context() as patched:
        patched.setattr(ended_processes, "_PID_NAMESPACE", Path("/proc/self/ns/mnt"))
        assert not has_ended(candidate(gone, nonce))


@pytest.mark.parametrize("unknown", ["_BOOT_ID", "_PID_NAMESPACE"])
def test_where_the_system_does_not_tell_the_place_nobody_is_taken_for_ended(
    gone: int, unknown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_processes, unknown, Path("/nonexistent"))

    assert new_nonce() != new_nonce()
    assert not has_ended(candidate(gone))


def test_numbers_that_are_no_pid_name_no_ended_process() -> None:
    assert not has_ended(candidate(0))
    assert not has_ended(candidate(1 << 80))


def test_nonces_differ_and_say_where_their_process_runs() -> None:
    """Z4: a candidacy is told from all others by its nonce."""
    nonces = [new_nonce() for _ in range(100)]

    assert len(set(nonces)) == 100
    assert len({uuid.UUID(nonce).node for nonce in nonces}) == 1
