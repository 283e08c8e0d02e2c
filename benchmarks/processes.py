"""What processes used, from /proc: CPU seconds and memory of the driver, its JVM, Python workers, Postgres and
ZooKeeper.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from txtopo.local.zookeeper import ask

ROLES = ("driver", "jvm", "workers", "postgres", "zookeeper")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/PID/stat."""

    pid: int
    name: str
    parent: int
    own_s: float
    """CPU seconds of the process itself."""
    ended_s: float
    """CPU seconds of its children that have ended."""


def parse_stat(line: str) -> Process:
    """Parse /proc/PID/stat; a name may have blanks and parentheses.

    >>> parse_stat("7 (a) b) S 3 7 7 0 -1 0 0 0 0 0 100 50 20 10 0")
    Process(pid=7, name='a) b', parent=3, own_s=1.5, ended_s=0.3)
    """
    head, _, tail = line.rpartition(")")
    pid, _, name = head.partition(" (")
    words = tail.split()
    user, system, ended_user, ended_system = (int(word) for word in words[11:15])
    return Process(int(pid), name, int(words[1]), (user + system) / TICKS, (ended_user + ended_system) / TICKS)


def running() -> dict[int, Process]:
    """Return all processes of this machine."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = parse_stat((folder / "stat").read_text(encoding="utf-8", errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def tree(root: int, processes: Mapping[int, Process]) -> list[Process]:
    """Return a process and all its descendants, the process first."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found = [processes[root]] if root in processes else []
    for process in found:  # Grows while it is walked.
        found.extend(children.get(process.pid, ()))
    return found


def by_role(driver: int, postgres: int, zookeeper: int, processes: Mapping[int, Process]) -> dict[str, list[Process]]:
    """Return the processes of each role. The JVM and the Python workers are descendants of the driver."""
    below = tree(driver, processes)
    java = [process for process in below if process.name == "java"]
    under_java = {process.pid for one in java for process in tree(one.pid, processes)} - {one.pid for one in java}
    return {
        "driver": below[:1],
        "jvm": java,
        "workers": [process for process in below if process.pid in under_java],
        "postgres": tree(postgres, processes),
        "zookeeper": tree(zookeeper, processes),
    }


def cpu_s(driver: int, postgres: int, zookeeper: int, processes: Mapping[int, Process]) -> dict[str, float]:
    """Return CPU seconds of each role since its processes started. Sessions of Postgres and workers that have ended
    count with their parent.
    """
    roles = by_role(driver, postgres, zookeeper, processes)
    with_ended = ("workers", "postgres")
    return {
        role: sum(one.own_s + (one.ended_s if role in with_ended else 0) for one in found)
        for role, found in roles.items()
    }


def peak_memory_mib(driver: int) -> dict[str, float]:
    """Return the largest memory (VmHWM) that the driver, its JVM, and all its workers together have had, in MiB."""
    roles = by_role(driver, 0, 0, running())
    return {role: round(sum(_peaks(one.pid for one in roles[role]))) for role in ("driver", "jvm", "workers")}


def _peaks(pids: Iterable[int]) -> Iterator[float]:
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield from (int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def zookeeper_proposals(connect_string: str) -> int:
    """Return the number of the last transaction of a ZooKeeper server on this machine: the last 32 bits of its zxid."""
    return parse_zxid(ask(int(connect_string.partition("/")[0].rpartition(":")[2]), "srvr"))


def parse_zxid(answer: str) -> int:
    """Return the counter in the answer to `srvr`.

    >>> parse_zxid("Mode: standalone\\nZxid: 0x1000000ff\\nNode count: 5")
    255
    """
    line = next(line for line in answer.splitlines() if line.startswith("Zxid:"))
    return int(line.split()[1], 16) & 0xFFFF_FFFF
