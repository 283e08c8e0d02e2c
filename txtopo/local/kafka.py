"""A separate Kafka broker in a folder: one node that is its own controller (KRaft), for the loopback only."""

from __future__ import annotations

import base64
import re
import signal
import socket
import struct
import subprocess
import uuid
from pathlib import Path
from typing import ClassVar

from txtopo.errors import StoreUnavailable
from txtopo.local.java import find_java
from txtopo.local.kafka_jars import kafka_jars
from txtopo.local.processes import free_port
from txtopo.local.server import LocalServer

ANSWER_S = 2.0
"""Seconds to wait for the answer to one request."""
FORMAT_S = 120.0
"""Time limit in seconds for preparing an empty data folder."""
MEMORY = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
API_METADATA, API_VERSION = 3, 4
"""The request for the brokers of a cluster, in a version that every broker from 2.0 on knows."""

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=100
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


class LocalKafka(LocalServer):
    """A Kafka broker in `folder`, on a free port. Its jars are downloaded from Maven Central once, see `kafka_jars`.

    Example:
        with LocalKafka(folder) as kafka:
            AdminClient({"bootstrap.servers": kafka.servers})
    """

    store: ClassVar[str] = "kafka"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    crash_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, folder: Path | str, *, detached: bool = False, jars: Path | None = None) -> None:
        """`jars` is the folder that keeps the jars, for all brokers of this machine; None: that of `kafka_jars`."""
        super().__init__(folder, detached=detached)
        self._jars_folder = jars
        self._jars: list[Path] = []

    @property
    def servers(self) -> str:
        """Value for `bootstrap.servers`: `127.0.0.1:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Logs of the topics, and of the controller."""
        return self.place / "data"

    @property
    def marker(self) -> str:
        """Text that only the command line of this server contains."""
        return str(self.place / "server.properties")

    def _unavailable(self, message: str) -> StoreUnavailable:
        return StoreUnavailable("kafka", message)

    def _prepare(self) -> None:
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._jars = kafka_jars(self._jars_folder)
        if not (self.data / "meta.properties").exists():
            self._configure(free_port())
            format_ = ("kafka.tools.StorageTool", "format", "--ignore-formatted", "--config", self.marker)
            self._run(*format_, "--cluster-id", self._cluster_id())

    def _cluster_id(self) -> str:
        """Return the id of a new cluster."""
        # No first bit: a name that begins with a hyphen would be taken for an option.
        return base64.urlsafe_b64encode(bytes([0, *uuid.uuid4().bytes[1:]])).decode("ascii").rstrip("=")

    def _command(self, port: int) -> list[str]:
        self._configure(port)
        return self._java("kafka.Kafka", self.marker)

    def _configure(self, port: int) -> None:
        controller = free_port()
        while controller == port:
            controller = free_port()
        settings = SETTINGS.format(port=port, controller=controller, data=_escaped(self.data))
        Path(self.marker).write_text(settings, encoding="utf-8")
        (self.place / "log4j2.properties").write_text(LOGGING.format(log=_escaped(self.log)), encoding="utf-8")

    def _java(self, program: str, *arguments: str) -> list[str]:
        return [
            str(find_java().executable),
            *MEMORY,
            f"-Dlog4j2.configurationFile={self.place / 'log4j2.properties'}",
            "-cp",
            ":".join(map(str, self._jars)),
            program,
            *arguments,
        ]

    def _run(self, program: str, *arguments: str) -> None:
        """Run a program of Kafka to its end. Raises StoreUnavailable with what it said if it fails."""
        done = subprocess.run(
            self._java(program, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.place,
            env=self._environment(),
            timeout=FORMAT_S,
            check=False,
        )
        if done.returncode != 0:
            said = done.stdout.decode(errors="replace").strip().splitlines()[-4:]
            raise self._unavailable(f"{program} failed in {self.folder}:\n  " + "\n  ".join(said))

    def _answers(self, port: int) -> bool:
        """True if the broker names itself as a member of the cluster: then it serves topics."""
        return brokers_known(port) > 0


def brokers_known(port: int) -> int:
    """Return how many brokers the one on this port of 127.0.0.1 knows; 0 also if there is no answer."""
    request = struct.pack(">hhihi?", API_METADATA, API_VERSION, 1, -1, 0, False)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = _exactly(connection, 16)
    except OSError:
        return 0
    # Length, correlation id, throttle time, number of brokers.
    return int(struct.unpack(">iiii", answer)[3]) if len(answer) == 16 else 0


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (piece := connection.recv(size - len(found))):
        found += piece
    return bytes(found)


def _escaped(path: Path) -> str:
    """A path as a value in a Java properties file."""
    return re.sub(r"\\", r"\\\\", str(path))
