"""A separate standalone ZooKeeper in a folder, from the jars in the PySpark package."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from txtopo.errors import ConfigurationError, StoreUnavailable
from txtopo.errors import ZooKeeperUnavailable as Unavailable
from txtopo.local.java import find_java
from txtopo.local.server import LocalServer

JARS = (
    "zookeeper",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "netty-",
    "metrics-core",
    "snappy-java",
    "commons-io",
    "commons-cli",
)
"""Beginnings of the names of the jars that a standalone server needs. With all jars of Spark the start would be
slower.
"""

ANSWER_S = 2.0
"""Seconds to wait for the answer to a four-letter command."""

SETTINGS = """\
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=500
clientPortAddress=127.0.0.1
clientPort={port}
dataDir={data}
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
preAllocSize=4096
"""

LOGGING = """\
status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{ISO8601}} %-5p %c{{1}} - %m%n
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
"""


class LocalZooKeeper(LocalServer):
    """A single ZooKeeper server in `folder`, with sessions from one second up so that tests see them expire.

    Example:
        with LocalZooKeeper(folder) as zookeeper:
            KazooClient(hosts=zookeeper.hosts).start()
    """

    store: ClassVar[str] = "zookeeper"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    crash_signal: ClassVar[signal.Signals] = signal.SIGKILL

    @property
    def hosts(self) -> str:
        """Connect string: `127.0.0.1:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Snapshots and the transaction log."""
        return self.place / "data"

    @property
    def marker(self) -> str:
        """Text that only the command line of this server contains."""
        return str(self.place / "zoo.cfg")

    def wipe(self) -> None:
        """Stop, delete everything that was stored, and start again on the same port."""
        with self._lock:
            self.stop()
            shutil.rmtree(self.data, ignore_errors=True)
            self._start(same_port=True)

    def _unavailable(self, message: str) -> StoreUnavailable:
        return Unavailable(message)

    def _prepare(self) -> None:
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.data.mkdir(exist_ok=True)

    def _command(self, port: int) -> list[str]:
        configuration, logging = self.place / "zoo.cfg", self.place / "log4j2.properties"
        configuration.write_text(SETTINGS.format(port=port, data=_escaped(self.data)), encoding="utf-8")
        logging.write_text(LOGGING.format(log=_escaped(self.log)), encoding="utf-8")
        return [
            str(find_java().executable),
            "-Xmx96m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={logging}",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-cp",
            ":".join(str(jar) for jar in zookeeper_jars()),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(configuration),
        ]

    def _answers(self, port: int) -> bool:
        return "Mode: standalone" in ask(port, "srvr")


def zookeeper_jars() -> list[Path]:
    """Return the jars of ZooKeeper and its dependencies from the PySpark package, without importing it. Raises
    ConfigurationError if there are none.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "PySpark is not installed, and the local ZooKeeper is the one inside it. Install it with: pip install "
            "'txtopo[local]'"
        )
    folder = Path(spec.origin).parent / "jars"
    jars = sorted(jar for jar in folder.glob("*.jar") if jar.name.startswith(JARS))
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ConfigurationError(
            f"no ZooKeeper among the jars in {folder}; use the full PySpark package (not pyspark-client)"
        )
    return jars


def zookeeper_version() -> str:
    """Return the version of the ZooKeeper in PySpark, for example `3.9.5`."""
    for jar in zookeeper_jars():
        match = re.fullmatch(r"zookeeper-(\d[\w.]*)\.jar", jar.name)
        if match:
            return match.group(1)
    return "unknown"


def ask(port: int, word: str) -> str:
    """Return the answer of the server on this port of 127.0.0.1 to a four-letter command; empty if there is no
    answer.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
            connection.sendall(word.encode("ascii"))
            said = bytearray()
            while piece := connection.recv(4096):
                said += piece
    except OSError:
        return ""
    return said.decode("utf-8", errors="replace")


def _escaped(path: Path) -> str:
    """A path as a value in a Java properties file."""
    return str(path).replace("\\", "\\\\")
