"""Fixtures of ZooKeeper: one real server for all tests of a run, a root znode of its own for each test."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.kit.fix_postgres import folder_for_services
from txtopo.local.zookeeper import LocalZooKeeper

_numbers = itertools.count(1)


@contextlib.contextmanager
def connected(hosts: str) -> Iterator[KazooClient]:
    """A plain client, closed afterwards; for looking at znodes from outside."""
    client = KazooClient(hosts=hosts, timeout=10.0)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[LocalZooKeeper]:
    """A real ZooKeeper shared by the tests of this run. Do not stop or crash it: `own_zookeeper` is for that."""
    with folder_for_services() as folder, LocalZooKeeper(folder / "zookeeper") as server:
        yield server


@pytest.fixture(scope="module")
def zookeeper_janitor(zookeeper_server: LocalZooKeeper) -> Iterator[KazooClient]:
    """One client for the tests of a module that makes and deletes their roots: a session for each would cost more than
    most tests.
    """
    with connected(zookeeper_server.hosts) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def no_client_outlives_its_module() -> Iterator[None]:
    """Fails a module that leaves a client connected. Its thread draws from `random` with each ping, and Hypothesis
    refuses to go on in a later module.
    """
    yield
    left = [thread for thread in threading.enumerate() if "zk_loop" in thread.name]
    for thread in left:
        thread.join(timeout=10)
    assert not [thread.name for thread in left if thread.is_alive()], "a ZooKeeper client was not stopped"


@pytest.fixture
def zookeeper_root(zookeeper_server: LocalZooKeeper, zookeeper_janitor: KazooClient) -> Iterator[str]:
    """Connect string `127.0.0.1:port/root` whose root exists, belongs to this test and is deleted with all below it."""
    root = f"/t{os.getpid()}_{next(_numbers)}"
    zookeeper_janitor.create(root)
    try:
        yield f"{zookeeper_server.hosts}{root}"
    finally:
        zookeeper_janitor.delete(root, recursive=True)


@pytest.fixture(scope="module")
def zookeeper_of_module() -> Iterator[LocalZooKeeper]:
    """See `own_zookeeper`."""
    with folder_for_services() as folder, LocalZooKeeper(folder / "zookeeper") as server:
        yield server


@pytest.fixture
def own_zookeeper(zookeeper_of_module: LocalZooKeeper) -> LocalZooKeeper:
    """A ZooKeeper of this module's own, free to be stopped, crashed, restarted and wiped. Each test finds it running
    and empty.
    """
    zookeeper_of_module.start()
    with connected(zookeeper_of_module.hosts) as client:
        for name in client.get_children("/"):
            if name != "zookeeper":
                client.delete(f"/{name}", recursive=True)
    return zookeeper_of_module
