"""Which pauses cost a healthy driver its ZooKeeper session: a process that is stopped, a thread that holds the GIL (as
native code may), and all cores busy. `python -m benchmarks.takeover --false-alarms`.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from txtopo.coordinators.zookeeper_session import ZooKeeperSession, open_session

ROOT = Path(__file__).resolve().parents[1]
SESSIONS_S = (4.0, 6.0, 10.0)
PAUSES_S = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
PROCESSES = 8
"""Processes that are paused at once, each in another moment between two pings, with a session of each length."""
BUSY_S = 60.0
BUSY_PER_CORE = 4
SETTLED_S = 1.5
"""After a pause a client needs a moment to ping. A session that ended in the pause is gone by then."""


class Holder:
    """A process that holds one session of each length, and does nothing else."""

    def __init__(self, zookeeper: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.false_alarms", zookeeper],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _ask(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self._read()

    def stop_for(self, seconds: float) -> None:
        """Stop the process, and let it continue."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def hold_the_gil_for(self, seconds: float) -> None:
        """Let a thread of the process keep all others from running."""
        self._ask(f"gil {seconds}")

    def latest_ms(self) -> float:
        """Return how late a thread of the process woke up at most: so late a ping may be."""
        return float(self._ask("late"))

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def measured(zookeeper: str) -> dict[str, Any]:
    """Return how many sessions of each length were lost, by kind and length of the pause."""
    looker = open_session(zookeeper, 60.0)
    found: dict[str, Any] = {"sessions s": SESSIONS_S, "processes": PROCESSES}
    pauses: dict[str, Callable[[Holder, float], None]] = {
        "stopped": Holder.stop_for,
        "GIL held": Holder.hold_the_gil_for,
    }
    try:
        for name, pause in pauses.items():
            for seconds in PAUSES_S:
                found[f"{name} {seconds:g} s, lost"] = _lost(zookeeper, looker, pause, seconds)
                _tell(f"{name} {seconds:g} s: lost {found[f'{name} {seconds:g} s, lost']}")
        found |= _under_load(zookeeper, looker)
    finally:
        looker.close()
    return found


def _lost(
    zookeeper: str, looker: ZooKeeperSession, pause: Callable[[Holder, float], None], seconds: float
) -> list[int]:
    with ThreadPoolExecutor(PROCESSES) as threads:
        holders = list(threads.map(Holder, [zookeeper] * PROCESSES))

        def paused(holder: Holder) -> list[bool]:
            time.sleep(random.uniform(0.5, 4.0))
            pause(holder, seconds)
            time.sleep(SETTLED_S)
            return [looker.get(_path(holder.process.pid, session_s)) is None for session_s in SESSIONS_S]

        try:
            return [sum(column) for column in zip(*threads.map(paused, holders), strict=True)]
        finally:
            for holder in holders:
                holder.close()


def _under_load(zookeeper: str, looker: ZooKeeperSession) -> dict[str, Any]:
    cores = os.cpu_count() or 1
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(BUSY_PER_CORE * cores)]
    holders = [Holder(zookeeper) for _ in range(PROCESSES)]
    for process in busy:
        process.start()
    try:
        time.sleep(BUSY_S)
        lost = [
            sum(looker.get(_path(holder.process.pid, session_s)) is None for holder in holders)
            for session_s in SESSIONS_S
        ]
        latest = max(holder.latest_ms() for holder in holders)
    finally:
        for process in busy:
            process.kill()
        for holder in holders:
            holder.close()
    words = f"{BUSY_PER_CORE} busy processes a core for {BUSY_S:g} s"
    _tell(f"{words}: lost {lost}, a thread woke up {latest:.0f} ms late at most")
    return {f"{words}, lost": lost, f"{words}, latest ms": round(latest)}


def _spin() -> None:
    while True:
        pass


def _path(pid: int, session_s: float) -> str:
    return f"/alarms/{pid}-{session_s:g}"


def _tell(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def hold(zookeeper: str) -> None:
    """Hold the sessions, and do what stdin says."""
    sessions = [(session_s, open_session(zookeeper, session_s)) for session_s in SESSIONS_S]
    for session_s, session in sessions:
        session.create(_path(os.getpid(), session_s), b"", ephemeral=True)
    late_s = [0.0]

    def look() -> None:
        while True:
            before = time.monotonic()
            time.sleep(0.02)
            late_s[0] = max(late_s[0], time.monotonic() - before - 0.02)

    threading.Thread(target=look, daemon=True).start()
    print("ready", flush=True)
    usleep = ctypes.PyDLL(None).usleep  # PyDLL keeps the GIL while it calls
    for line in sys.stdin:
        what, _, seconds = line.partition(" ")
        if what.strip() == "gil":
            usleep(ctypes.c_uint(int(float(seconds) * 1e6)))
        print(late_s[0] * 1000, flush=True)


def main(arguments: Sequence[str]) -> None:
    """Hold sessions in this process."""
    hold(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
