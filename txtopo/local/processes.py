"""Child processes of the local services: free ports, which processes are alive, and how to end one for certain."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PORTS = range(15_000, 30_000)
"""Lower than the ephemeral ports: a client that keeps connecting to a stopped server on an ephemeral port of the same
machine may connect to itself.
"""

POLL_S = 0.02
"""Seconds between two checks of a process or a file."""


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens now. Another process may take it before the caller does; then
    try again. Raises OSError if no free port is found.
    """
    for port in random.sample(PORTS, 200):
        if is_free(port):
            return port
    raise OSError(f"no free port among 200 tried in {PORTS.start}..{PORTS.stop - 1} on 127.0.0.1")


def is_free(port: int) -> bool:
    """True if a server could listen on this port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Like the servers do: connections of a stopped server in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until `holds()` is true. Returns False if it was not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def command_of(pid: int) -> str:
    """Return the command line of a process, arguments separated by blanks; empty for one that has ended, also if it is
    not reaped yet.
    """
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    answer = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout


def is_running(pid: int, marker: str) -> bool:
    """True if the process is alive and is the expected one. Pids are reused, so its command line must contain
    `marker`.
    """
    return marker in command_of(pid)


def is_over(pid: int) -> bool:
    """True if no thread of the process runs any more and its ports are free. A dead process that is not reaped counts
    as over.

    A process that ends loses its command line before it closes its files, and its first thread may end before the
    others.
    """
    if not Path("/proc/self/task").exists():
        return command_of(pid) == ""
    try:
        states = [_thread_state(thread) for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return True
    return all(state in "ZX" for state in states)


def _thread_state(thread: Path) -> str:
    """`Z` or `X` for a dead thread. The name before the state is in brackets and may itself contain blanks and
    brackets.
    """
    try:
        return (thread / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def end(pid: int, marker: str, *, by: signal.Signals, patience_s: float) -> None:
    """Send `by`, wait, and send SIGKILL after `patience_s` seconds. On return the process no longer runs. Raises
    OSError if it does not end.
    """
    if not is_running(pid, marker):
        return
    for chosen, seconds in ((by, patience_s), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, chosen)
        if wait_until(lambda: is_over(pid), seconds):
            return
    raise OSError(f"process {pid} does not end")
