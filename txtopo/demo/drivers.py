"""The demo's driver processes: started as `txtopo run` is, killed as if the machine failed, and all removed at the
end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txtopo.demo.names import FOLDER_VARIABLE
from txtopo.spark.session.class_archive import VARIABLE as CLASS_ARCHIVE

SESSION_S = 4
"""ZooKeeper session of a driver in seconds: it takes this time until a dead driver is noticed."""
END_S = 10.0
"""Seconds in which killed processes must end."""
KEPT_VARIABLES = ("TXTOPO_HOME", "TXTOPO_IGNORE_SYSTEM_JAVA", CLASS_ARCHIVE)
LOG_TAIL_LINES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The folders of the demo, all below one folder."""

    work: Path
    """The demo's own folder; all its files are in it."""

    @property
    def files(self) -> Path:
        """Input."""
        return self.work / "files"

    @property
    def services(self) -> Path:
        """Postgres and ZooKeeper; found there by `txtopo dev` when TXTOPO_HOME is `work`."""
        return self.work / "dev"

    @property
    def logs(self) -> Path:
        """One log per driver, and Spark's logs."""
        return self.work / "logs"

    @property
    def temporary(self) -> Path:
        """Temporary files of Spark and its workers, which otherwise stay in the machine's own folder."""
        return self.work / "tmp"


class DemoDriver:
    """A command that runs the demo's topology in a separate process, which the terminal's Ctrl-C does not reach."""

    def __init__(
        self,
        number: int,
        places: Places,
        command: Sequence[str],
        dsn: str,
        zookeeper: str,
        run_txids_max: int,
        failpoints: str = "",
    ) -> None:
        self.number = number
        self.log = places.logs / f"driver-{number}.log"
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "txtopo.cli", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=places.work,
                env=environment(os.environ, places, dsn, zookeeper, run_txids_max, failpoints),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal. The process stays a zombie until `bury`."""
        if self._process.returncode is None and sys.platform == "linux":
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return None
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self._process.poll()

    def bury(self) -> None:
        """Let the system forget a process that has ended: a standby on this machine takes over from now on, and from
        a zombie only when its session ends. So the demo can show first what the dead driver left.
        """
        self._process.poll()

    @property
    def name(self) -> str:
        """Its name in the demo's texts."""
        return f"driver {self.number} (pid {self.pid})"

    def says(self, words: str) -> bool:
        """True if it has written these words to its log."""
        return words in self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """Return the end of its log, indented."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "".join(f"\n  {line}" for line in lines)

    def lines(self, first: str) -> list[str]:
        """Return the end of its log from the last line that starts with `first`; empty if there is none."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        start = max((at for at, line in enumerate(lines) if line.startswith(first)), default=len(lines))
        return lines[start:]

    def close(self) -> None:
        """End it and its whole process group, whatever state it is in."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_S)


def environment(
    shell: Mapping[str, str], places: Places, dsn: str, zookeeper: str, run_txids_max: int, failpoints: str
) -> dict[str, str]:
    """Return a driver's environment: settings of the caller's shell must not reach it, addresses must not be in
    argv.
    """
    kept = {name: value for name, value in shell.items() if not name.startswith("TXTOPO_") or name in KEPT_VARIABLES}
    package_root = str(Path(__file__).resolve().parents[2])
    testing = {"TXTOPO_TESTING": "1", "TXTOPO_FAILPOINTS": failpoints} if failpoints else {}
    return {
        CLASS_ARCHIVE: "read",  # The demo leaves nothing running that writes one.
        **kept,
        **testing,
        "TXTOPO_DSN": dsn,
        "TXTOPO_ZK": zookeeper,
        "TXTOPO_ZOOKEEPER_SESSION_S": str(SESSION_S),
        "TXTOPO_RUN_TXIDS_MAX": str(run_txids_max),
        FOLDER_VARIABLE: str(places.files),
        # The working folder belongs to the demo, so that no txtopo.toml nearby is read; Python must still find txtopo
        # itself.
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, shell.get("PYTHONPATH")])),
        "SPARK_LOCAL_DIRS": str(places.temporary),
        "TMPDIR": str(places.temporary),
    }


def end_leftovers(places: Places) -> None:
    """Kill what a killed driver left running (its JVM, Python workers), identified by the folder in its environment;
    wait until it has ended.

    If the system has no /proc, a JVM whose driver has ended ends by itself.
    """
    deadline = time.monotonic() + END_S
    while (left := leftovers(places)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def leftovers(places: Places) -> list[int]:
    """Return the ids of processes that work for this demo, except this one."""
    mark = f"{FOLDER_VARIABLE}={places.files}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found
