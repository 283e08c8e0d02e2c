"""A ZooKeeper without a server, for tests: one shared ensemble in memory, sessions on it, and failures that a test can
cause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from txtopo.coordinators.codec import check_size
from txtopo.core import limits
from txtopo.errors import ZooKeeperUnavailable, invariant, unreachable
from txtopo.ports import (
    CheckNode,
    CreateNode,
    DeleteNode,
    NodeExists,
    NodeMissing,
    Operation,
    SessionState,
    SetNode,
    VersionDiffers,
)


@dataclass(slots=True)
class _Node:
    data: bytes = b""
    version: int = 0
    owner: MemorySession | None = None
    children: set[str] = field(default_factory=set)
    next_sequence: int = 0


_Watch = tuple[str, "MemorySession", Callable[[], None]]


class MemoryZooKeeper:
    """The ensemble that several `MemorySession`s share. Thread-safe; no call blocks.

    >>> ensemble = MemoryZooKeeper()
    >>> session = MemorySession(ensemble)
    >>> session.create("/flights/epoch", b"1")
    '/flights/epoch'
    """

    def __init__(self, session_s: float = limits.ZOOKEEPER_SESSION_S) -> None:
        self.session_s = session_s
        self.proposals = 0
        """Number of writes that reached the ensemble; a multi is one."""
        self._lock = threading.RLock()
        self._nodes: dict[str, _Node] = {"/": _Node()}
        self._watches: list[_Watch] = []
        self._sessions: set[MemorySession] = set()
        self._unavailable = False
        self._lost_reply: bool | None = None

    @property
    def unavailable(self) -> bool:
        """True if the ensemble has no quorum: every session is SUSPENDED and every call fails. Setting it to True fires
        the watches.
        """
        return self._unavailable

    @unavailable.setter
    def unavailable(self, value: bool) -> None:
        with self._lock:
            self._unavailable = value
            fired = self._take_watches(lambda watch: value)
        _fire(fired)

    def expire(self, session: MemorySession, *, told: bool = True) -> None:
        """End a session on the server: its ephemeral nodes are removed. With `told=False` its owner learns it only from
        its next call, like a driver that was paused (Z1).
        """
        with self._lock:
            self._sessions.discard(session)
            fired = self._remove_ephemerals(session)
            if told:
                session._learn(SessionState.LOST)
                fired += self._take_watches(lambda watch: watch[1] is session)
        _fire(fired)

    def suspend(self, session: MemorySession) -> None:
        """Cut the connection of one session. The server keeps the session until `expire`."""
        with self._lock:
            session._learn(SessionState.SUSPENDED)
            fired = self._take_watches(lambda watch: watch[1] is session)
        _fire(fired)

    def resume(self, session: MemorySession) -> None:
        """Connect a suspended session again. It becomes LOST if it has expired."""
        with self._lock:
            alive = session in self._sessions
            session._learn(SessionState.CONNECTED if alive else SessionState.LOST)

    def wipe(self) -> None:
        """Lose every node and every session, as if the data directories were deleted (Z13)."""
        with self._lock:
            sessions, fired = list(self._sessions), self._take_watches(lambda watch: True)
            self._nodes = {"/": _Node()}
            self._sessions.clear()
            for session in sessions:
                session._learn(SessionState.LOST)
        _fire(fired)

    def lose_next_reply(self, *, applied: bool) -> None:
        """Let the next write raise ZooKeeperUnavailable. `applied` says whether the ensemble performs it (Z6, a call
        that timed out may still happen).
        """
        with self._lock:
            self._lost_reply = applied

    def count_from(self, path: str, sequence: int) -> None:
        """Set the number of the next sequential child of `path`, to test an overflow (Z10)."""
        with self._lock:
            self._nodes[path].next_sequence = sequence

    def paths(self) -> list[str]:
        """Return the paths of all nodes, sorted. Tests use it to find nodes that were not removed."""
        with self._lock:
            return sorted(path for path in self._nodes if path != "/")

    # Below: what sessions call, under the lock.

    def _write(
        self, session: MemorySession, what: str, paths: Sequence[str], act: Callable[[list[_Watch]], str]
    ) -> str:
        """Perform one proposal, lose its reply if a test asked for that, then fire the watches outside the lock."""
        fired: list[_Watch] = []
        with self._lock:
            session._check(*paths)
            lost, self._lost_reply = self._lost_reply, None
            if lost is False:
                raise ZooKeeperUnavailable(f"{what}: connection lost before it was done")
            self.proposals += 1
            result = act(fired)
        _fire(fired)
        if lost is True:
            raise ZooKeeperUnavailable(f"{what}: connection lost before the reply")
        return result

    def _create(self, path: str, data: bytes, owner: MemorySession | None = None, *, sequential: bool = False) -> str:
        parent = self._nodes.get(_parent(path))
        if parent is None:
            raise NodeMissing(path)
        if parent.owner is not None:
            unreachable(f"{_parent(path)} is ephemeral and cannot have children")
        if sequential:
            path = f"{path}{parent.next_sequence:010d}"
        if path in self._nodes:
            raise NodeExists(path)
        parent.next_sequence = (parent.next_sequence + 1 + 2**31) % 2**32 - 2**31  # Z10: signed 32 bit
        parent.children.add(path.rpartition("/")[2])
        self._nodes[path] = _Node(data=data, owner=owner)
        return path

    def _delete(self, path: str) -> None:
        if self._node(path).children:
            unreachable(f"{path} has children and cannot be deleted")
        del self._nodes[path]
        self._nodes[_parent(path)].children.discard(path.rpartition("/")[2])

    def _node(self, path: str, version: int = -1) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        if version not in (-1, node.version):
            raise VersionDiffers(path)
        return node

    def _multi(self, operations: Sequence[Operation], fired: list[_Watch]) -> None:
        undo: list[Callable[[], object]] = []
        try:
            for operation in operations:
                undo.append(self._apply(operation))
        except Exception:
            for step in reversed(undo):
                step()
            raise
        for operation in operations:
            if isinstance(operation, SetNode | DeleteNode):
                fired += self._take_watches(lambda watch, path=operation.path: watch[0] == path)  # type: ignore[misc]

    def _apply(self, operation: Operation) -> Callable[[], object]:
        """Perform one operation of a multi; returns how to undo it."""
        match operation:
            case CheckNode(path=path, version=version):
                self._node(path, version)
                return lambda: None
            case CreateNode(path=path, data=data):
                self._create(path, data)
                return lambda: self._delete(path)
            case SetNode(path=path, data=data, version=version):
                node = self._node(path, version)
                before = (node.data, node.version)
                node.data, node.version = data, node.version + 1
                return lambda: _restore(node, before)
            case DeleteNode(path=path):
                node = self._node(path)
                self._delete(path)
                return lambda: self._put_back(path, node)

    def _put_back(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        self._nodes[_parent(path)].children.add(path.rpartition("/")[2])

    def _remove_ephemerals(self, session: MemorySession) -> list[_Watch]:
        fired: list[_Watch] = []
        for path in [path for path, node in self._nodes.items() if node.owner is session]:
            self._delete(path)
            fired += self._take_watches(lambda watch, path=path: watch[0] == path)  # type: ignore[misc]
        return fired

    def _take_watches(self, wanted: Callable[[_Watch], bool]) -> list[_Watch]:
        taken = [watch for watch in self._watches if wanted(watch)]
        self._watches = [watch for watch in self._watches if watch not in taken]
        return taken


class MemorySession:
    """One session on a `MemoryZooKeeper`; see `txtopo.ports.CoordinatorSession`. Where ZooKeeper would block, it raises
    immediately.
    """

    def __init__(self, ensemble: MemoryZooKeeper) -> None:
        if ensemble.unavailable:
            raise ZooKeeperUnavailable("the ensemble in memory is unreachable")
        self._ensemble = ensemble
        self._state = SessionState.CONNECTED
        self._silent = False
        with ensemble._lock:
            ensemble._sessions.add(self)

    @property
    def session_s(self) -> float:
        """Session timeout in seconds."""
        return self._ensemble.session_s

    def state(self) -> SessionState:
        """Return the state that is known now."""
        if self._state is SessionState.CONNECTED and self._ensemble.unavailable:
            return SessionState.SUSPENDED
        return self._state

    def kill(self) -> None:
        """Let the driver die: this object does nothing more. The session and its nodes stay until `ensemble.expire`."""
        with self._ensemble._lock:
            self._silent = True
            self._state = SessionState.LOST
            self._ensemble._take_watches(lambda watch: watch[1] is self)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See the port."""
        check_size([CreateNode(path, data)])
        owner = self if ephemeral else None

        def act(fired: list[_Watch]) -> str:
            if not sequential and path in self._ensemble._nodes:
                raise NodeExists(path)
            self._make_parents(path)
            return self._ensemble._create(path, data, owner, sequential=sequential)

        return self._ensemble._write(self, f"create {path}", [path], act)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See the port."""
        with self._ensemble._lock:
            self._check(path)
            node = self._ensemble._nodes.get(path)
            return None if node is None else (node.data, node.version)

    def get_all(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """See the port."""
        return [self.get(path) for path in paths]

    def children(self, path: str) -> list[str]:
        """See the port."""
        with self._ensemble._lock:
            self._check(path)
            node = self._ensemble._nodes.get(path)
            return [] if node is None else list(node.children)

    def multi(self, operations: Sequence[Operation]) -> None:
        """See the port."""
        check_size(operations)

        def act(fired: list[_Watch]) -> str:
            self._ensemble._multi(operations, fired)
            return ""

        self._ensemble._write(self, "multi", [operation.path for operation in operations], act)

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """See the port. The thread that makes the change calls `changed`, outside of all locks."""
        with self._ensemble._lock:
            self._check(path)
            if path not in self._ensemble._nodes:
                return False
            self._ensemble._watches.append((path, self, changed))
            return True

    def close(self) -> None:
        """See the port. While the ensemble or the connection is unavailable, the nodes stay until `ensemble.expire`, as
        in ZooKeeper.
        """
        fired: list[_Watch] = []
        with self._ensemble._lock:
            if self._state is SessionState.CONNECTED and not self._ensemble.unavailable:
                self._ensemble._sessions.discard(self)
                fired += self._ensemble._remove_ephemerals(self)
            self._state = SessionState.LOST
            fired += self._ensemble._take_watches(lambda watch: watch[1] is self)
        _fire(fired)

    def _learn(self, state: SessionState) -> None:
        if self._state is not SessionState.LOST:  # LOST is final (Z2).
            self._state = state

    def _check(self, *paths: str) -> None:
        for path in paths:
            invariant(path.startswith("/") and not (path.endswith("/") and path != "/"), f"{path!r} is no path")
        if (
            self._state is SessionState.CONNECTED
            and not self._ensemble.unavailable
            and self not in self._ensemble._sessions
        ):
            self._state = SessionState.LOST  # Z1: the session expired while its driver was paused.
        state = self.state()
        if state is not SessionState.CONNECTED:
            raise ZooKeeperUnavailable(f"the session is {state.value}")

    def _make_parents(self, path: str) -> None:
        parts = path.split("/")[1:-1]
        for end in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:end])
            if parent not in self._ensemble._nodes:
                self._ensemble._create(parent, b"")


def _fire(watches: list[_Watch]) -> None:
    for _, session, changed in watches:
        if not session._silent:
            changed()


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _restore(node: _Node, before: tuple[bytes, int]) -> None:
    node.data, node.version = before
