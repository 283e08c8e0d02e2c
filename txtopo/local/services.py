"""Postgres and ZooKeeper, and if wanted Kafka, together in one folder, found and stopped from any process through
`state.json`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from txtopo.local.kafka import LocalKafka
from txtopo.local.places import home
from txtopo.local.postgres import LocalPostgres
from txtopo.local.zookeeper import LocalZooKeeper

STATE_FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesState:
    """The services while they run."""

    dsn: str
    """URL of the Postgres database; no password, since only this machine may connect."""
    zookeeper: str
    """ZooKeeper's connect string, `host:port`."""
    postgres_pid: int
    zookeeper_pid: int
    folder: str
    """Folder of the services."""
    kafka: str | None = None
    """Kafka's `bootstrap.servers`; None if no broker runs."""
    kafka_pid: int | None = None


class LocalServices:
    """An embedded Postgres and an embedded ZooKeeper in `folder`, started and stopped together.

    Example:
        with LocalServices(folder) as services:
            print(services.state.dsn, services.state.zookeeper)
    """

    def __init__(self, folder: Path | str, *, detached: bool = False) -> None:
        """A detached pair continues after this process; any other is stopped when it exits."""
        self.folder = Path(folder).absolute()
        self.postgres = LocalPostgres(self.folder / "postgres", detached=detached)
        self.zookeeper = LocalZooKeeper(self.folder / "zookeeper", detached=detached)
        self.kafka = LocalKafka(self.folder / "kafka", detached=detached)

    def start(self) -> ServicesState:
        """Start the services that do not run, both at the same time; return when both answer. If one fails, both are
        stopped.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # Others may enter but not list it: the account of Postgres must reach its folder.
        self.folder.chmod(0o711)
        try:
            with ThreadPoolExecutor(2) as threads:
                postgres, zookeeper = threads.submit(self.postgres.start), threads.submit(self.zookeeper.start)
                postgres.result()
                zookeeper.result()
            _write_state(self.folder, self.state)
        except BaseException:
            self.stop()
            raise
        return self.state

    def start_kafka(self) -> ServicesState:
        """Start a Kafka broker next to the services, which run, unless there is one. Raises ConfigurationError if its
        jars are not there and cannot be downloaded.
        """
        self.kafka.start()
        _write_state(self.folder, self.state)
        return self.state

    def stop(self) -> None:
        """Stop all, whichever process started them; their data stays. Does nothing if none runs."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / STATE_FILE).unlink()
        try:
            self.kafka.stop()
        finally:
            try:
                self.zookeeper.stop()
            finally:
                self.postgres.stop()

    def remove(self) -> None:
        """Stop all and delete the folder with all data."""
        self.stop()
        self.kafka.remove()
        self.zookeeper.remove()
        self.postgres.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def state(self) -> ServicesState:
        """Addresses and process ids, for services that were started."""
        kafka = self.kafka.is_running()
        return ServicesState(
            dsn=self.postgres.dsn,
            zookeeper=self.zookeeper.hosts,
            postgres_pid=self.postgres.pid or 0,
            zookeeper_pid=self.zookeeper.pid or 0,
            folder=str(self.folder),
            kafka=self.kafka.servers if kafka else None,
            kafka_pid=self.kafka.pid if kafka else None,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def running(folder: Path | str) -> ServicesState | None:
    """Return the services of this folder if both run and belong to it; None otherwise, also after a restart of the
    machine.
    """
    try:
        state = ServicesState(**json.loads((Path(folder) / STATE_FILE).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, TypeError):
        return None
    services = LocalServices(folder)
    if not (services.postgres.is_running() and services.zookeeper.is_running()):
        return None
    # If another process restarted one of them, it has a new pid; the present state counts.
    return state if services.state == state else services.state


def dev_folder() -> Path:
    """Return the folder of the services of `txtopo dev up`."""
    return home() / "dev"


def dev_up(*, kafka: bool = False) -> ServicesState:
    """Start the development services, detached; they run until `dev_down`. Services that run already are not
    restarted.
    """
    with _alone():
        services = LocalServices(dev_folder(), detached=True)
        state = running(dev_folder()) or services.start()
        return services.start_kafka() if kafka and state.kafka is None else state


def dev_down(*, wipe: bool = False) -> bool:
    """Stop the development services; with `wipe` delete their data too. Returns False if none ran."""
    if not dev_folder().exists():
        return False
    with _alone():
        services = LocalServices(dev_folder())
        was_running = any(one.is_running() for one in (services.postgres, services.zookeeper, services.kafka))
        if wipe:
            services.remove()
        else:
            services.stop()
    return was_running


def dev_status() -> ServicesState | None:
    """Return the development services if they run; None otherwise."""
    return running(dev_folder())


def running_dev() -> ServicesState | None:
    """Return what `txtopo run` uses without addresses: the development services if they run; None otherwise."""
    return dev_status()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lock: two `dev up` at the same time must not start two servers on one data folder. The lock file is not in that
    folder, since it may be wiped.
    """
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "dev.lock").open("a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_state(folder: Path, state: ServicesState) -> None:
    """Write by rename, so that a reader sees a complete file or none."""
    work = folder / f"{STATE_FILE}.{os.getpid()}"
    work.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
    work.replace(folder / STATE_FILE)


__all__ = [
    "LocalServices",
    "ServicesState",
    "dev_down",
    "dev_folder",
    "dev_status",
    "dev_up",
    "home",
    "running",
    "running_dev",
]
