"""What is asked of ZooKeeper: nodes, operations on them, and a session. Part of `txtopo.ports`, which every
implementation imports it from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class SessionState(Enum):
    """What a CoordinatorSession believes about itself; CONNECTED proves nothing (Z5)."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Part of a multi: create `path`, which must not exist."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SetNode:
    """Part of a multi: replace the data of `path`; with a version only if it is that one."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Part of a multi: delete `path`."""

    path: str


@dataclass(frozen=True, slots=True)
class CheckNode:
    """Part of a multi: `path` must have `version` (R2)."""

    path: str
    version: int


Operation = CreateNode | SetNode | DeleteNode | CheckNode


class NodeExists(Exception):
    """A create found the node there; in a multi nothing was done."""


class NodeMissing(Exception):
    """A set, delete or check found no node; in a multi nothing was done."""


class VersionDiffers(Exception):
    """A check or set found another version; in a multi nothing was done."""


class CoordinatorSession(Protocol):
    """One ZooKeeper session, used for one candidacy and thrown away (Z4). Paths are absolute below the chroot.

    Every call blocks for at most the session timeout, then raises ZooKeeperUnavailable; the write may still happen
    (Z6).
    After `close`, or once LOST, every call raises ZooKeeperUnavailable: nothing queued is ever sent by a later session
    (Z2).
    """

    @property
    def session_s(self) -> float:
        """Negotiated session timeout in seconds."""

    def state(self) -> SessionState:
        """Current belief; never blocks."""

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Create a node with its missing (persistent, empty) parents; returns the path, with ZooKeeper's suffix when
        sequential. Raises NodeExists.
        """

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Data and version, or None where there is no node."""

    def children(self, path: str) -> list[str]:
        """Names of the children; empty where there is no node."""

    def multi(self, operations: Sequence[Operation]) -> None:
        """All of them or none. Raises NodeExists, NodeMissing, VersionDiffers for the first that failed (Z3: kazoo
        itself raises nothing).
        """

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """True if the node exists. Then `changed` is called once, from another thread, when it is removed or changed,
        or when the session has trouble.
        """

    def close(self) -> None:
        """End the session; its ephemeral nodes go at once. Always returns within the session timeout; safe to
        repeat.
        """
