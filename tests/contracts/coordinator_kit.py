"""What the contracts of the ZooKeeper side share: a world to open sessions in, sessions that lose replies, plans and
leads to write.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from txtopo.coordinators.codec import CandidateNode
from txtopo.coordinators.election import Election
from txtopo.coordinators.paths import TopologyPaths
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core.plan import Plan, genesis_digest
from txtopo.core.values import Lead
from txtopo.errors import ZooKeeperUnavailable
from txtopo.ports import (
    CoordinatorSession,
    CreateNode,
    Operation,
    SessionState,
)

TOPOLOGY = "flights"
PATHS = TopologyPaths(TOPOLOGY)
INCARNATION = "11111111-1111-4111-8111-111111111111"
PATIENCE_S = 20.0


class CoordinatorWorld(Protocol):
    """The fixture `world`: an empty ZooKeeper, or something like it, of this test's own."""

    def open(self) -> CoordinatorSession:
        """A new session; the fixture closes it."""

    def expire(self, session: CoordinatorSession) -> None:
        """End a session at the server, and return when its owner knows."""


class LossySession:
    """A session that counts its writes and loses replies: the wrapped one did the write, or never saw it."""

    def __init__(self, session: CoordinatorSession) -> None:
        self._session = session
        self.writes = 0
        self.waits = 0
        """Calls that read."""
        self.lose_creates: list[bool] = []
        """For the next creates: lose the reply, with the write applied or not."""
        self.lose_multis: list[bool] = []
        """For the next multis likewise."""

    @property
    def session_s(self) -> float:
        """See the port."""
        return self._session.session_s

    def state(self) -> SessionState:
        """See the port."""
        return self._session.state()

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See the port."""
        self.waits += 1
        return self._session.get(path)

    def get_all(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """See the port."""
        self.waits += 1
        return self._session.get_all(paths)

    def children(self, path: str) -> list[str]:
        """See the port."""
        self.waits += 1
        return self._session.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """See the port."""
        return self._session.watch(path, changed)

    def close(self) -> None:
        """See the port."""
        self._session.close()

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See the port."""
        return self._lossy(
            self.lose_creates, lambda: self._session.create(path, data, ephemeral=ephemeral, sequential=sequential)
        )

    def multi(self, operations: Sequence[Operation]) -> None:
        """See the port."""

        def write() -> str:
            self._session.multi(operations)
            return ""

        self._lossy(self.lose_multis, write)

    def _lossy(self, lose: list[bool], write: Callable[[], str]) -> str:
        self.writes += 1
        applied = lose.pop(0) if lose else None
        result = write() if applied is not False else ""
        if applied is not None:
            raise ZooKeeperUnavailable("reply lost by the test")
        return result


class WatchedSession(LossySession):
    """A session that tells when somebody watches, and may be deaf."""

    def __init__(self, session: CoordinatorSession, *, deaf: bool = False) -> None:
        super().__init__(session)
        self.watching = threading.Event()
        """Set when a watch is in place."""
        self.watched: list[str] = []
        """Paths."""
        self._deaf = deaf

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """See the port; a deaf session forgets to tell."""
        self.watched.append(path)
        there = self._session.watch(path, nothing if self._deaf else changed)
        self.watching.set()
        return there


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, and fail after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        threading.Event().wait(0.01)


def lead(epoch: int, *, incarnation: str = INCARNATION) -> Lead:
    """The lead of a new driver."""
    return Lead(
        topology=TOPOLOGY, incarnation=incarnation, epoch=epoch, owner_nonce=str(uuid.uuid4()), code_hash=b"c" * 32
    )


def plan(txid: int, file: str = "a.csv", *, padding: int = 0, cut: int = 0) -> Plan:
    """A plan of one file."""
    metadata = {"files": {"path": file, "padding": "x" * padding}}
    return Plan(
        topology=TOPOLOGY,
        incarnation=INCARNATION,
        txid=txid,
        previous_digest=genesis_digest(TOPOLOGY, INCARNATION),
        metadata=metadata,
        cut=cut,
    )


def identity(host: str = "one") -> CandidateNode:
    """A new candidate."""
    return CandidateNode(host=host, pid=7, since="2026-01-01T00:00:00Z", nonce=str(uuid.uuid4()))


def leading(session: CoordinatorSession, epoch: int, *, opaque: bool = False) -> TopologyCoordinator:
    coordinator = TopologyCoordinator(session, TOPOLOGY, opaque=opaque)
    coordinator.write_epoch(lead(epoch), "cluster")
    return coordinator


def candidate_on(session: CoordinatorSession, host: str) -> Election:
    candidate = Election(session, TOPOLOGY, identity(host))
    candidate.enter()
    return candidate


def dump(session: CoordinatorSession, path: str = PATHS.root) -> dict[str, object]:
    """Data and version of every node of the topology."""
    nodes: dict[str, object] = {path: session.get(path)}
    for name in session.children(path):
        nodes |= dump(session, f"{path}/{name}")
    return nodes


def expect_unavailable(session: CoordinatorSession) -> None:
    calls: list[Callable[[], object]] = [
        lambda: session.create("/new", b""),
        lambda: session.get("/a"),
        lambda: session.children("/a"),
        lambda: session.multi([CreateNode("/new", b"")]),
        lambda: session.watch("/a", nothing),
    ]
    for call in calls:
        with pytest.raises(ZooKeeperUnavailable):
            call()


def note_error(errors: list[Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        errors.append(error)


def nothing() -> None:
    """A watch nobody waits for."""
