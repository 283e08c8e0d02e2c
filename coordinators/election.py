"""The queue of drivers that want to lead one topology: ephemeral sequential nodes, each watching the one before it."""

from __future__ import annotations

import functools
import threading
import time

from txtopo.coordinators.codec import CandidateNode, decode_identity, encode_identity
from txtopo.coordinators.paths import TopologyPaths
from txtopo.errors import Halted, LeadLost, ZooKeeperUnavailable, invariant
from txtopo.ports import CoordinatorSession, NodeMissing, SessionState, SetNode, VersionDiffers

RECHECK_S = 1.0
"""The queue is read again at least this often, should a watch be lost."""
RECONNECT_LOOK_S = 0.1
_TRIES_MAX = 3
_SEQUENCES = 2**32
"""Sequence numbers are signed 32 bit and wrap around (Z10)."""


class Election:
    """One candidacy on one session (Z4); see `txtopo.ports.Candidacy`. Closing the session leaves the queue."""

    def __init__(self, session: CoordinatorSession, topology: str, identity: CandidateNode) -> None:
        self._session = session
        self._paths = TopologyPaths(topology)
        self._identity = identity
        self._data = encode_identity(identity)
        self._entered = False
        self._path: str | None = None
        """My node, once it was confirmed."""

    def enter(self) -> None:
        """Join the queue; may be called again after ZooKeeperUnavailable, and joins once all the same."""
        prefix = self._paths.candidate_prefix(self._identity.nonce)
        for tries_left in reversed(range(_TRIES_MAX)):
            # Z4: a create whose reply was lost may have happened; a second node would outlive my candidacy in the
            # queue.
            if self._own(self._queue()) is not None:
                break
            try:
                self._session.create(prefix, self._data, ephemeral=True, sequential=True)
                break
            except ZooKeeperUnavailable:
                if tries_left == 0:
                    raise  # of a session that is lost the next look at the queue raises as well
        self._entered = True

    def leader(self) -> str | None:
        """Who stands first, in words, or None if it is me. Raises LeadLost when I am not in the queue any more."""
        for _ in range(_TRIES_MAX):
            queue = self._queue()
            self._require_own(queue)
            if self._is_mine(queue[0]):
                return None
            words = _describe(self._session, self._paths, queue[0])
            if words is not None:
                return words
        return "a driver that is just leaving"

    def wait(self, seconds: float) -> bool:
        """Wait until I stand first; raises ZooKeeperUnavailable when the session is lost, LeadLost when my node is
        gone.
        """
        invariant(self._entered, "wait comes after enter")
        deadline = time.monotonic() + seconds
        while True:
            moved = threading.Event()
            try:
                # While it is suspended a look would block for up to a session, longer than was asked for.
                if self._session.state() is not SessionState.SUSPENDED and self._stands_first_or_watches(moved):
                    return True
            except ZooKeeperUnavailable:
                if self._session.state() is SessionState.LOST:
                    raise
            suspended = self._session.state() is SessionState.SUSPENDED
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            # Nothing tells when a connection comes back, so then look again soon.
            moved.wait(min(remaining_s, RECONNECT_LOOK_S if suspended else RECHECK_S))

    def _stands_first_or_watches(self, moved: threading.Event) -> bool:
        """Only the one before me is watched, so that one driver wakes up when one leaves."""
        queue = self._queue()
        place = self._require_own(queue)
        if place == 0:
            return True
        if not self._session.watch(f"{self._paths.leader}/{queue[place - 1]}", moved.set):
            moved.set()  # it has just gone; without this the next look would only come RECHECK_S later
        return False

    def confirm(self) -> None:
        """Write to my own node with its version, then see that I stand first. Raises LeadLost: my session ended while I
        did not look (Z1).
        """
        queue = self._queue()
        name = queue[self._require_own(queue)]
        self._path = path = f"{self._paths.leader}/{name}"
        found = self._session.get(path)
        if found is None:
            raise self._gone()
        try:
            # Nobody else writes there, and no other node ever has its name: the version only says so once more.
            self._session.multi([SetNode(path, self._data, found[1])])
        except (NodeMissing, VersionDiffers) as error:
            raise self._gone() from error
        # Z8: after my own write the session reads at least as new as that write.
        if not self._is_mine(self._queue()[0]):
            raise LeadLost("another driver is before this one in the queue")

    def check_place(self) -> None:
        """See the port. Nobody stands in the way of the next one any more, so a leader without a place leads on
        borrowed time.

        Only its own node is looked at: what strangers put into the queue is the matter of those who come.
        """
        invariant(self._path is not None, "check_place comes after confirm")
        if self._session.get(str(self._path)) is None:
            raise LeadLost(f"its node in the queue {self._paths.leader} was removed, though its session lives")

    def _queue(self) -> list[str]:
        """Names of all candidates, first one first."""
        return read_queue(self._session, self._paths)

    def _own(self, queue: list[str]) -> int | None:
        """My place: the first node with my nonce (a second one, from a lost reply, is mine as well and dies with the
        session).
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
    """Names of the candidates of a topology in the order of their sequence numbers, across an overflow (Z10)."""
    names = session.children(paths.leader)

    def compare(one: str, two: str) -> int:
        return _distance(paths, one, two)

    return sorted(names, key=functools.cmp_to_key(compare))


def current_leader(session: CoordinatorSession, topology: str) -> str | None:
    """Who stands first, in words, for commands that only look; None: nobody."""
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
    """A candidate in words; None if it has just gone."""
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
    """Signed way from `two` to `one` on the ring of sequence numbers; those in a queue lie far closer than half of
    it.
    """
    difference = paths.candidate(one)[1] - paths.candidate(two)[1]
    return (difference + _SEQUENCES // 2) % _SEQUENCES - _SEQUENCES // 2
