"""What txtopo uses of ZooKeeper: nodes, operations on them, and a session. Import it from `txtopo.ports`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class SessionState(Enum):
    """What a CoordinatorSession knows about its connection. CONNECTED proves nothing (Z5): the session may have ended
    already.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Part of a multi: create `path`. It must not exist."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SetNode:
    """Part of a multi: replace the data of `path`, if it has `version`. -1: any version."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Part of a multi: delete `path`."""

    path: str


@dataclass(frozen=True, slots=True)
class CheckNode:
    """Part of a multi: fail unless `path` has `version` (R2, the epoch is checked by every write)."""

    path: str
    version: int


Operation = CreateNode | SetNode | DeleteNode | CheckNode


class NodeExists(Exception):
    """The node to create exists already. A multi that raises it has changed nothing."""


class NodeMissing(Exception):
    """The node to set, delete or check does not exist. A multi that raises it has changed nothing."""


class VersionDiffers(Exception):
    """The node to check or set has another version. A multi that raises it has changed nothing."""


class CoordinatorSession(Protocol):
    """One ZooKeeper session. It serves one candidacy and is never used again (Z4, lock objects cannot be used again).
    Paths are absolute, below the chroot.

    Every call blocks for at most the session timeout, then raises ZooKeeperUnavailable. The write may still happen
    later (Z6). After `close`, and after the state LOST, every call raises ZooKeeperUnavailable: nothing that is queued
    is sent by a later session (Z2, retries of the client library outlive the session).
    """

    @property
    def session_s(self) -> float:
        """Negotiated session timeout in seconds."""

    def state(self) -> SessionState:
        """Return the state that is known now. Never blocks."""

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Create a node, and missing parents as persistent empty nodes. Returns its path, which for a sequential node
        includes the suffix that ZooKeeper appends. Raises NodeExists.
        """

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Return data and version of a node, or None if it does not exist."""

    def get_all(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """Return what `get` returns of each path. The requests do not wait for each other's answers, so many nodes cost
        little more time than one. They are read one after the other, as with `get`.
        """

    def children(self, path: str) -> list[str]:
        """Return the names of the children. The list is empty if the node does not exist."""

    def multi(self, operations: Sequence[Operation]) -> None:
        """Perform all operations, or none. Raises NodeExists, NodeMissing or VersionDiffers for the first one that
        failed (Z3: kazoo returns these errors and does not raise them).
        """

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """Return True if the node exists. Then `changed` is called once, from another thread, when the node is removed
        or changed, or when the session is suspended, lost or closed. Returns False, and sets no watch, if the node does
        not exist.
        """

    def close(self) -> None:
        """End the session. Its ephemeral nodes are removed immediately. Returns within the session timeout; may be
        repeated.
        """
