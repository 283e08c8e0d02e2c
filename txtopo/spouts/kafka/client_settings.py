"""Settings of the Kafka client: where the brokers are and how to log in, read by each process for itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from txtopo.errors import ConfigurationError, TopologyError

FILE_VARIABLE = "KAFKA_CONFIG"
"""Names the properties file of this host, for a spout without one."""
SERVERS_VARIABLE = "TXTOPO_KAFKA"
"""Address of the brokers, as `txtopo dev up --kafka` prints it; used if nothing else is given."""
OWNED = frozenset(
    {
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
    }
)
"""Settings by which the spout keeps its promises; a properties file must not have them."""
DEFAULTS: Mapping[str, str | int | bool] = {
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": 32 * 1024,
    "log_level": 2,
}
"""With its own defaults the client sleeps a second whenever its queue is full."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where a process finds its settings; holds no secret, so it may be sent to tasks."""

    servers: str | None = None
    """Value of `bootstrap.servers`."""
    file: str | None = None
    """Absolute path of a properties file, the same on every host."""

    def read(self) -> dict[str, str | int | bool]:
        """Return the settings for a client in this process. Raises ConfigurationError; no message has a value."""
        settings: dict[str, str | int | bool] = dict(DEFAULTS)
        file = self.file or (os.environ.get(FILE_VARIABLE) if self.servers is None else None)
        if file:
            settings.update(_properties(Path(file)))
        servers = self.servers or settings.get("bootstrap.servers") or os.environ.get(SERVERS_VARIABLE)
        if not servers:
            raise ConfigurationError(
                f"no address of Kafka: give KafkaSpout servers= or config=, or set {FILE_VARIABLE} to a properties "
                f"file with bootstrap.servers on every host"
            )
        return {**settings, "bootstrap.servers": servers}


def client_settings(servers: str | None, config: str | os.PathLike[str] | None) -> ClientSettings:
    """Return the settings that a spout was given. Raises TopologyError."""
    if servers is not None and (not isinstance(servers, str) or not servers.strip()):
        raise TopologyError(f"KafkaSpout: servers {servers!r} is no list of addresses: write 'host:9092,other:9092'")
    if config is None:
        return ClientSettings(servers=servers)
    path = os.fspath(config)
    if not isinstance(path, str) or not path:
        raise TopologyError(f"KafkaSpout: config {config!r} is no path of a properties file")
    return ClientSettings(servers=servers, file=str(Path(path).expanduser().absolute()))


def _properties(file: Path) -> dict[str, str]:
    """Return the lines `key=value` of a file; empty lines and those that begin with # are skipped."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"the settings of Kafka in {file} cannot be read: {words}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigurationError(f"{file}:{number}: no line `key=value`")
        if key in OWNED or key in found:
            why = "belongs to KafkaSpout" if key in OWNED else "is there twice"
            raise ConfigurationError(f"{file}:{number}: {key} {why}: remove it")
        found[key] = value.strip()
    return found
