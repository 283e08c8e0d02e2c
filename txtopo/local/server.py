"""One local server process in one folder: start, find, stop, crash. What Postgres and ZooKeeper have in common."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from txtopo.errors import StoreUnavailable
from txtopo.local.places import Account
from txtopo.local.processes import end, free_port, is_free, is_running, wait_until

START_TRIES = 5
"""Number of ports tried before a start fails."""
START_S = 60.0
"""Time limit in seconds until a server answers; a crashed Postgres recovers first."""
STOP_S = 20.0
"""Seconds that an orderly stop may take before the process is killed."""
PORT_S = 1.0
"""Seconds to wait for a port to become free, for each attempt."""
LOG_TAIL_LINES = 8
"""Number of lines of the server's log that are shown if it does not start."""

_left_running: list[subprocess.Popen[bytes]] = []
"""Handles of detached servers. They are kept because Python warns if the handle of a running child is deleted."""


class LocalServer(ABC):
    """A server that belongs to its folder. Port, pid and log are files there, so any process can find and stop it.

    A detached server continues after the process that started it; any other is stopped when that process exits. A
    Ctrl-C in the terminal reaches neither, because each is in a separate session: the owner decides when its services
    stop.
    """

    store: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    crash_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path | str, *, detached: bool = False) -> None:
        self.folder = Path(folder).absolute()
        """The requested folder. For root the files may be in another one, see `place`."""
        self.place = self.folder
        """The folder that contains the files."""
        self._detached = detached
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    # What a subclass must define

    @abstractmethod
    def _prepare(self) -> None:
        """Create folder and data. Called before each start; may be repeated."""

    @abstractmethod
    def _command(self, port: int) -> list[str]:
        """Write the configuration for this port and return the command line. The command line contains `marker`."""

    @abstractmethod
    def _answers(self, port: int) -> bool:
        """True if a client can use the server on this port now. Never raises if there is no server."""

    @abstractmethod
    def _unavailable(self, message: str) -> StoreUnavailable:
        """Return the error to raise if the server does not start."""

    def _environment(self) -> Mapping[str, str]:
        """The complete environment of the server. Settings of the caller's shell (PGPORT, JVMFLAGS, …) must not reach
        it.
        """
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "LANG": "C", "HOME": str(self.place)}

    def _account(self) -> Account | None:
        """The account to run under; None: the account of the caller."""
        return None

    @property
    def marker(self) -> str:
        """Text that only the command line of this server contains."""
        return str(self.place)

    # What a caller uses

    def start(self) -> Self:
        """Start the server unless it runs, and return when it answers. A stopped server uses its old port again if that
        is free.

        Raises the store's `StoreUnavailable` with the end of the log if it does not start.
        """
        with self._lock:
            self._start(same_port=False)
        return self

    def stop(self) -> None:
        """Stop the server in an orderly way; does nothing if it does not run. On return no process is left."""
        self._end(self.stop_signal)

    def crash(self) -> None:
        """End the server immediately, like a power cut: nothing is flushed, and the next start recovers."""
        self._end(self.crash_signal)

    def restart(self) -> None:
        """Stop and start on the same port, with the same data."""
        with self._lock:
            self.stop()
            self._start(same_port=True)

    def remove(self) -> None:
        """Stop the server and delete its folder with all data."""
        with self._lock:
            self.stop()
            for folder in {self.place, self.folder}:
                shutil.rmtree(folder, ignore_errors=True)

    def is_running(self) -> bool:
        """True if the process of this folder is alive, whichever process started it."""
        pid = self.pid
        return pid is not None and is_running(pid, self.marker)

    @property
    def pid(self) -> int | None:
        """Process id of the last start; the process may have ended since. None: never started, or stopped."""
        return _read_number(self.place / "pid")

    @property
    def port(self) -> int:
        """Port on 127.0.0.1, known after the first start. Raises the store's `StoreUnavailable` before."""
        port = _read_number(self.place / "port")
        if port is None:
            raise self._unavailable(f"the local server in {self.folder} was never started")
        return port

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.place / "server.log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # How it is done

    def _start(self, *, same_port: bool) -> None:
        self._prepare()
        if self.is_running():
            # One that was just killed may still run; wait until it has ended or answers.
            settled = wait_until(lambda: self._answers(self.port) or not self.is_running(), START_S)
            if settled and self.is_running():
                return
        if self.is_running():
            raise self._unavailable(f"the local server of {self.folder} runs but does not answer; log: {self.log}")
        self._end(self.crash_signal)  # cleans up after a process that ended unexpectedly
        remembered = _read_number(self.place / "port")
        for attempt in range(START_TRIES):
            keep = remembered is not None and (same_port or attempt == 0)
            port = remembered if keep and remembered is not None else free_port()
            # A server that was just killed from outside needs a moment to release its port.
            if wait_until(partial(is_free, port), PORT_S) and self._launch(port):
                return
        raise self._unavailable(f"the local server in {self.folder} found no free port; log: {self.log}")

    def _launch(self, port: int) -> bool:
        """Run the server on this port. Returns False if another process has the port."""
        command = self._command(port)
        log_from = self.log.stat().st_size if self.log.exists() else 0
        account = self._account()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.place,
                env=self._environment(),
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        self._own(process, port)
        up = wait_until(lambda: process.poll() is not None or self._answers(port), START_S)
        if up and process.poll() is None:
            return True
        self._end(self.crash_signal)
        said = self.log.read_bytes()[log_from:].decode(errors="replace")
        if "ddress already in use" in said:
            return False
        # Only the messages of a Java stack: its frames would fill all lines.
        lines = [line for line in said.splitlines() if not line.startswith("\tat ")]
        tail = "\n  ".join(lines[-LOG_TAIL_LINES:])
        raise self._unavailable(f"the local server in {self.folder} did not start; the end of {self.log}:\n  {tail}")

    def _own(self, process: subprocess.Popen[bytes], port: int) -> None:
        (self.place / "pid").write_text(f"{process.pid}\n", encoding="ascii")
        (self.place / "port").write_text(f"{port}\n", encoding="ascii")
        if self._detached:
            _left_running.append(process)
            return
        self._process = process
        owner = os.getpid()
        # A forked child of the owner inherits the list of exit functions, but must not stop the server.
        self._at_exit = lambda: self.stop() if os.getpid() == owner else None
        atexit.register(self._at_exit)

    def _end(self, by: signal.Signals) -> None:
        with self._lock:
            pid = self.pid
            if pid is not None:
                end(pid, self.marker, by=by, patience_s=STOP_S)
            process, self._process = self._process, None
            if process is not None:
                process.wait(timeout=STOP_S)
                atexit.unregister(self._at_exit)
            _left_running[:] = [left for left in _left_running if left.poll() is None]
            with contextlib.suppress(FileNotFoundError):
                (self.place / "pid").unlink()


def _read_number(file: Path) -> int | None:
    """The number in a small file; None if the file does not exist or is incomplete."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None
