"""Where Spark and its Python workers on one machine talk: Unix sockets in a folder that no other user may enter.

Over TCP every task of a Python function waits some 40 ms for an acknowledgement that the kernel delays: most of what a
small batch takes. On Unix sockets Spark asks for no secret, so the folder is the lock on them. Used on a `local`
master.
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
"""Of the folder's path: the path of a socket, with Spark's name of it, may have some hundred bytes."""


def _temporary() -> str:
    """The folder for temporary files; where there is none, as on a full disk, Spark says so itself."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return "/tmp"


class SocketFolder:
    """The folder of one Spark session, made when asked for."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def settings(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Spark's settings for it; none where `conf` has one of its own, or where no temporary folder can be written to
        and has a path short enough.
        """
        self.remove()
        if os.name != "posix" or ENABLED in conf or FOLDER in conf:
            return {}
        for place in (_temporary(), "/tmp"):
            if len(os.fsencode(place)) > FOLDER_BYTES_MAX - 20:
                continue
            with contextlib.suppress(OSError):
                self._path = Path(tempfile.mkdtemp(prefix="txtopo-", dir=place))  # only its owner may enter
                return {ENABLED: "true", FOLDER: str(self._path)}
        return {}

    def entrust(self, jvm: Any) -> None:
        """Have the JVM remove it too: it outlives a driver that is killed by a moment, and ends in order."""
        if self._path is not None:
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(self._path)))

    def remove(self) -> None:
        """Remove it with all sockets in it. Safe to repeat."""
        path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
