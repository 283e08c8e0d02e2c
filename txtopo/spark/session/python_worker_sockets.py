"""Unix sockets through which Spark and its Python workers on one machine talk, in a folder that no other user may
enter.

Over TCP every task of a Python function waits some 40 ms for an acknowledgement that the kernel delays: most of the
time of a small batch. On Unix sockets Spark asks for no secret, so access to the folder is the only protection. Used on
a `local` master.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
FOLDER_BYTES_MAX = 50
"""Maximum length of the folder's path in bytes: the path of a socket, with the name that Spark adds, may have about a
hundred bytes.
"""


def _temporary() -> str:
    """Return the folder for temporary files; if there is none, as on a full disk, Spark reports that itself."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return "/tmp"


class SocketFolder:
    """The folder of one Spark session, made on demand."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def settings(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Return Spark's settings for it; none if `conf` has its own, or if no temporary folder is writable and has a
        path that is short enough.
        """
        self.remove()
        if os.name != "posix" or ENABLED in conf or FOLDER in conf:
            return {}
        for place in (_temporary(), "/tmp"):
            if len(os.fsencode(place)) > FOLDER_BYTES_MAX - 20:
                continue
            with contextlib.suppress(OSError):
                self._path = Path(tempfile.mkdtemp(prefix="txtopo-", dir=place))  # Only its owner may enter.
                return {ENABLED: "true", FOLDER: str(self._path)}
        return {}

    def entrust(self, jvm: Any) -> None:
        """Let the JVM remove it too: the JVM lives slightly longer than a driver that is killed, and ends in order."""
        if self._path is not None:
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(self._path)))

    def remove(self) -> None:
        """Remove it with all sockets in it. Safe to repeat."""
        path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
