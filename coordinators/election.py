"""The queue of drivers that want to lead one topology: ephemeral sequential nodes, each watching the one before it."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from txtopo.coordinators.codec import CandidateNode, decode_identity, encode_identity
from txtopo.coordinators.paths import TopologyPaths
from txtopo.errors import Halted, LeadLost, ZooKeeperUnavailable, invariant
from txtopo.ports import CoordinatorSession, DeleteNode, NodeMissing, SessionState, SetNode, VersionDiffers

RECHECK_S = 1.0
"""Seconds after which the queue is read again at the latest, in case a watch was lost."""
RECONNECT_LOOK_S = 0.1
PROCESS_LOOK_S = 0.05
"""Seconds between two looks whether the process of the candidate before this one has ended; each is one system call."""
_TRIES_MAX = 3
_SEQUENCES = 2**32
"""Sequence numbers are signed 32 bit and wrap around (Z10)."""


class Election:
    """One candidacy on one session (Z4, lock objects cannot be used again); see `txtopo.ports.Candidacy`. Closing the
    session leaves the queue.
    """

    def __init__(
        self,
        session: CoordinatorSession,
        topology: str,
        identity: CandidateNode,
        has_ended: Callable[[CandidateNode], bool] = lambda _: False,
    ) -> None:
        """`has_ended` returns True for a candidate whose process is known to have ended (R30); never in doubt."""
        self._session = session
        self._has_ended = has_ended
        self._ahead: tuple[str, CandidateNode | None] = "", None
        """Name and identity of the candidate directly before this one."""
        self._watched: tuple[str, threading.Event] = "", threading.Event()
        """Name of the candidate that is watched, and what the watch sets. A watch takes memory until it fires, so not
        each look sets one: a wait may last for weeks.
        """
        self._paths = TopologyPaths(topology)
        self._identity = identity
        self._data = encode_identity(identity)
        self._entered = False
        self._path: str | None = None
        """Path of this driver's node, after `confirm`."""

    def enter(self) -> None:
        """Join the queue. May be repeated after ZooKeeperUnavailable; the driver then has one place."""
        prefix = self._paths.candidate_prefix(self._identity.nonce)
        for tries_left in reversed(range(_TRIES_MAX)):
            # Z4: a create whose reply was lost may have happened. A second node would stay in the queue after this
            # candidacy.
            if self._own(self._queue()) is not None:
                break
            try:
                self._session.create(prefix, self._data, ephemeral=True, sequential=True)
                break
            except ZooKeeperUnavailable:
                if tries_left == 0:
                    raise  # if the session is lost, the next read of the queue raises too
        self._entered = True

    def leader(self) -> str | None:
        """Return the first candidate as text, or None if it is this driver. Raises LeadLost if this driver is no longer
        in the queue.
        """
        for _ in range(_TRIES_MAX):
            queue = self._queue()
            self._require_own(queue)
            if self._is_mine(queue[0]):
                return None
            words = _describe(self._session, self._paths, queue[0])
            if words is not None:
                return words
        return "a driver that is leaving the queue"

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until this driver is first. Returns True if it is. Raises ZooKeeperUnavailable if the
        session is lost, LeadLost if this driver's node was removed.
        """
        invariant(self._entered, "wait comes after enter")
        deadline = time.monotonic() + seconds
        while True:
            moved = threading.Event()
            try:
                # While the session is suspended, a read would block for up to a session timeout, longer than the caller
                # asked for.
                if self._session.state() is not SessionState.SUSPENDED:
                    watch = self._watch_unless_first()
                    if watch is None:
                        return True
                    moved = watch
            except ZooKeeperUnavailable:
                if self._session.state() is SessionState.LOST:
                    raise
            suspended = self._session.state() is SessionState.SUSPENDED
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            # Nothing reports that a connection is restored, so look again soon.
            self._await(moved, min(remaining_s, RECONNECT_LOOK_S if suspended else RECHECK_S))

    def _await(self, moved: threading.Event, seconds: float) -> None:
        """Wait for the watch, or until the process of the candidate before this one has ended."""
        deadline = time.monotonic() + seconds
        while (remaining_s := deadline - time.monotonic()) > 0:
            if moved.wait(min(remaining_s, PROCESS_LOOK_S)) or self._has_ahead_ended():
                return

    def _watch_unless_first(self) -> threading.Event | None:
        """None if this driver is first. Otherwise watch the previous candidate only, so that one driver wakes up when
        one leaves; returns what the watch sets.
        """
        queue = self._queue()
        place = self._require_own(queue)
        if place == 0:
            return None
        ahead = queue[place - 1]
        path = f"{self._paths.leader}/{ahead}"
        name, moved = self._watched
        if name != ahead or moved.is_set():
            moved = threading.Event()
            if not self._session.watch(path, moved.set):
                moved.set()  # it was just removed; without this the next look would come only after RECHECK_S
                return moved
            self._watched = ahead, moved
        if self._ahead[0] != ahead:
            self._ahead = ahead, self._read_candidate(ahead)
        if self._has_ahead_ended():
            # R30: its session would keep the node until it times out, and nobody can use that session any more.
            with suppress(NodeMissing):
                self._session.multi([DeleteNode(path)])
        return moved

    def _read_candidate(self, name: str) -> CandidateNode | None:
        """None for a node that cannot be believed: its session decides when it goes."""
        path = f"{self._paths.leader}/{name}"
        with suppress(Halted):
            found = self._session.get(path)
            candidate = None if found is None else decode_identity(found[0], path)
            if candidate is not None and candidate.nonce == self._paths.candidate(name)[0]:
                return candidate
        return None

    def _has_ahead_ended(self) -> bool:
        _, candidate = self._ahead
        return candidate is not None and self._has_ended(candidate)

    def confirm(self) -> None:
        """Write to this driver's node with a check of its version, then check that it is first. Raises LeadLost if it
        is not: the session ended while this driver was paused (Z1).
        """
        queue = self._queue()
        name = queue[self._require_own(queue)]
        self._path = path = f"{self._paths.leader}/{name}"
        found = self._session.get(path)
        if found is None:
            raise self._gone()
        try:
            # No other driver writes this node, and no later node gets its name; the version is a second check.
            self._session.multi([SetNode(path, self._data, found[1])])
        except (NodeMissing, VersionDiffers) as error:
            raise self._gone() from error
        # Z8: after its own write a session reads at least the state of that write.
        if not self._is_mine(self._queue()[0]):
            raise LeadLost("another driver is ahead of this one in the queue")

    def check_place(self) -> None:
        """See the port. Without its node in the queue a leader does not block the next candidate, so it must not
        continue.

        Only this driver's node is checked. Nodes of others are checked by candidates that join.
        """
        invariant(self._path is not None, "check_place comes after confirm")
        if self._session.get(str(self._path)) is None:
            raise LeadLost(f"its node in the queue {self._paths.leader} was removed, although its session is alive")

    def _queue(self) -> list[str]:
        """Names of all candidates, the first one first."""
        return read_queue(self._session, self._paths)

    def _own(self, queue: list[str]) -> int | None:
        """Place of this driver: the first node with its nonce. A second node, from a lost reply, ends with the session
        too.
        """
        return next((place for place, name in enumerate(queue) if self._is_mine(name)), None)

    def _require_own(self, queue: list[str]) -> int:
        place = self._own(queue)
        if place is None:
            raise self._gone()
        return place

    def _is_mine(self, name: str) -> bool:
        return self._paths.candidate(name)[0] == self._identity.nonce

    def _gone(self) -> LeadLost:
        return LeadLost(f"this driver is no longer in the queue {self._paths.leader}; its session ended")


def read_queue(session: CoordinatorSession, paths: TopologyPaths) -> list[str]:
    """Return the names of the candidates of a topology in the order of their sequence numbers, across an overflow
    (Z10). Raises Halted for a name that is not a candidate's.
    """
    names = session.children(paths.leader)

    def compare(one: str, two: str) -> int:
        return _distance(paths, one, two)

    return sorted(names, key=functools.cmp_to_key(compare))


def current_leader(session: CoordinatorSession, topology: str) -> str | None:
    """Return the first candidate as text, for commands that only read; None if there is none."""
    paths = TopologyPaths(topology)
    for _ in range(_TRIES_MAX):
        queue = read_queue(session, paths)
        if not queue:
            return None
        words = _describe(session, paths, queue[0])
        if words is not None:
            return words
    return None


def _describe(session: CoordinatorSession, paths: TopologyPaths, name: str) -> str | None:
    """A candidate as text; None if its node was just removed. Raises Halted if the node holds the data of another
    candidate.
    """
    path = f"{paths.leader}/{name}"
    found = session.get(path)
    if found is None:
        return None
    identity = decode_identity(found[0], path)
    if identity.nonce != paths.candidate(name)[0]:
        raise Halted(
            f"ZooKeeper node {path} holds another candidate's data",
            next_command=f"remove {path} below the chroot with ZooKeeper's own client (`delete`), and start `txtopo "
            f"run` "
            f"again",
        )
    return str(identity)


def _distance(paths: TopologyPaths, one: str, two: str) -> int:
    """Signed distance from `two` to `one` on the ring of sequence numbers. Candidates in one queue are much less than
    half of the ring apart.
    """
    difference = paths.candidate(one)[1] - paths.candidate(two)[1]
    return (difference + _SEQUENCES // 2) % _SEQUENCES - _SEQUENCES // 2
