"""Sessions, coordinator and election keep their promises in memory and on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.contracts.coordinator_contract import CoordinatorContract
from tests.contracts.coordinator_kit import CoordinatorWorld, eventually
from tests.contracts.election_contract import ElectionContract
from tests.contracts.opaque_contract import OpaqueCoordinatorContract
from tests.contracts.session_contract import CoordinatorSessionContract
from txtopo.coordinators.memory import MemorySession, MemoryZooKeeper
from txtopo.coordinators.zookeeper_session import ZooKeeperSession, open_session
from txtopo.ports import CoordinatorSession, SessionState


class MemoryWorld:
    """An ensemble in memory."""

    def __init__(self) -> None:
        self._ensemble = MemoryZooKeeper()

    def open(self) -> CoordinatorSession:
        """A session on it."""
        return MemorySession(self._ensemble)

    def expire(self, session: CoordinatorSession) -> None:
        """As the server would."""
        assert isinstance(session, MemorySession)
        self._ensemble.expire(session)


class ZooKeeperWorld:
    """A chroot of a real server."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._sessions: list[ZooKeeperSession] = []

    def open(self) -> CoordinatorSession:
        """A real session."""
        session = open_session(self._hosts, session_s=10.0)
        self._sessions.append(session)
        return session

    def expire(self, session: CoordinatorSession) -> None:
        """A second client takes the session over by its id and closes it: to the first one that is an expiry."""
        assert isinstance(session, ZooKeeperSession)
        thief = KazooClient(hosts=self._hosts, client_id=session._client.client_id)
        thief.start(timeout=20)
        thief.stop()
        thief.close()
        eventually(lambda: session.state() is SessionState.LOST)

    def close(self) -> None:
        """Close all that were opened."""
        for session in self._sessions:
            session.close()


class OnMemory:
    """Fixture hook: the world in memory."""

    @pytest.fixture
    def world(self) -> CoordinatorWorld:
        """Empty."""
        return MemoryWorld()


class OnZooKeeper:
    """Fixture hook: the real world."""

    @pytest.fixture
    def world(self, zookeeper_root: str) -> Iterator[CoordinatorWorld]:
        """A chroot of this test's own."""
        world = ZooKeeperWorld(zookeeper_root)
        yield world
        world.close()


class TestMemorySession(OnMemory, CoordinatorSessionContract):
    """The contract of sessions, in memory."""


class TestMemoryCoordinator(OnMemory, CoordinatorContract):
    """The contract of coordinators, in memory."""


class TestMemoryOpaqueCoordinator(OnMemory, OpaqueCoordinatorContract):
    """The contract of coordinators of opaque topologies, in memory."""


class TestMemoryElection(OnMemory, ElectionContract):
    """The contract of elections, in memory."""


class TestZooKeeperSession(OnZooKeeper, CoordinatorSessionContract):
    """The contract of sessions, on ZooKeeper."""


class TestZooKeeperCoordinator(OnZooKeeper, CoordinatorContract):
    """The contract of coordinators, on ZooKeeper."""


class TestZooKeeperOpaqueCoordinator(OnZooKeeper, OpaqueCoordinatorContract):
    """The contract of coordinators of opaque topologies, on ZooKeeper."""


class TestZooKeeperElection(OnZooKeeper, ElectionContract):
    """The contract of elections, on ZooKeeper."""
