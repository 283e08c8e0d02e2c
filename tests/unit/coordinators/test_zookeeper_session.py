"""No call of a ZooKeeper session is without a limit (Z7), nothing is sent while the connection is away (Z6), and what
is sent again is harmless (Z4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from txtopo.coordinators.zookeeper_session import READS_AT_ONCE, ZooKeeperSession
from txtopo.core.limits import MULTI_BYTES_MAX
from txtopo.errors import InvariantBroken, ZooKeeperUnavailable
from txtopo.ports import NodeExists, NodeMissing, SessionState, SetNode, VersionDiffers

SESSION_S = 0.2
HANGS_S = 20.0
"""A call that has not ended by then never will."""


class Unanswered:
    """The result of a call whose answer never comes, though pings are answered."""

    def __init__(self, limits: list[float | None]) -> None:
        self._limits = limits

    def get(self, timeout: float | None = None) -> Any:
        self._limits.append(timeout)
        raise KazooTimeoutError


class Answered:
    """The result of a call whose answer is there."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, timeout: float | None = None) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@dataclass(frozen=True)
class Version:
    """What ZooKeeper says of a node besides its data."""

    version: int


def _counted(client: Silent, result: Any) -> Any:
    client.sent += 1
    return result


class Silent:
    """kazoo's client on such a server; `answers` come first. It cannot even be stopped."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.watchers: list[Callable[[Any], None]] = []
        self.sent = 0
        self.limits: list[float | None] = []
        self._stopped = threading.Event()
        self.let_go = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name in ("stop", "_safe_close", "close"):
            return self.let_go.wait
        if name == "transaction":
            return lambda: self
        return (
            self._call if name.endswith("_async") else lambda *arguments: None
        )  # what a transaction collects is not sent yet

    def _call(self, *arguments: Any, **keywords: Any) -> Any:
        self.sent += 1
        self.watchers += [keywords["watch"]] if "watch" in keywords else []
        return Answered(self.answers.pop(0)) if self.answers else Unanswered(self.limits)


@pytest.fixture
def client() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.let_go.set()


@pytest.fixture
def session(client: Silent) -> ZooKeeperSession:
    made = ZooKeeperSession("127.0.0.1:1", SESSION_S)
    made._client = client
    made._listen(KazooState.CONNECTED)
    return made


CALLS: dict[str, Callable[[ZooKeeperSession], Any]] = {
    "get": lambda session: session.get("/a"),
    "get all": lambda session: session.get_all(["/a", "/b"]),
    "children": lambda session: session.children("/a"),
    "create": lambda session: session.create("/a", b""),
    "create in the queue": lambda session: session.create("/a", b"", ephemeral=True, sequential=True),
    "multi": lambda session: session.multi([SetNode("/a", b"", 0)]),
    "watch": lambda session: session.watch("/a", lambda: None),
}


def ended(call: Callable[[], Any]) -> Any:
    """What a call gave or raised; fails where it never ends."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS_S)
    assert found, "the call hangs"
    return found[0]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_never_answered_ends_with_the_session(
    name: str, session: ZooKeeperSession, client: Silent
) -> None:
    """Z7: kazoo's synchronous calls wait for ever. Each gets at most one session timeout, and what became of it is not
    known (Z6).
    """
    error = ended(lambda: CALLS[name](session))

    assert isinstance(error, ZooKeeperUnavailable)
    assert "it may still have happened" in str(error)
    (limit,) = client.limits
    assert limit is not None
    assert 0 < limit <= SESSION_S


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_sent_while_the_connection_is_away(name: str, session: ZooKeeperSession, client: Silent) -> None:
    """Z6, Z7: what is handed to kazoo then waits in its queue, and happens later; so the call waits here, and not for
    ever.
    """
    session._listen(KazooState.SUSPENDED)

    error = ended(lambda: CALLS[name](session))

    assert isinstance(error, ZooKeeperUnavailable)
    assert client.limits == []


def test_many_nodes_are_asked_for_before_the_first_answer_is_awaited(session: ZooKeeperSession, client: Silent) -> None:
    """A new leader reads the plans of the one before: a wait for each would be the longest part of a takeover."""
    sent: list[int] = []

    class Late(Answered):
        def get(self, timeout: float | None = None) -> Any:
            sent.append(client.sent)
            return super().get(timeout)

    paths = [f"/{number}" for number in range(READS_AT_ONCE + 3)]
    client._call = lambda path, *_: _counted(client, Late((path.encode(), Version(7))))  # type: ignore[method-assign]

    found = session.get_all(paths)

    assert found == [(path.encode(), 7) for path in paths]
    assert sent == [READS_AT_ONCE] * READS_AT_ONCE + [READS_AT_ONCE + 3] * 3


def test_a_read_of_many_nodes_is_repeated_when_its_connection_is_lost(
    session: ZooKeeperSession, client: Silent
) -> None:
    """Reads change nothing. An error that the server answered for one node is that node's alone."""
    client.answers = [(b"a", Version(0)), ConnectionLoss(), (b"a", Version(1)), NoNodeError()]

    assert session.get_all(["/a", "/b"]) == [(b"a", 1), None]
    assert session.get_all([]) == []


def test_closing_does_not_wait_for_ever(session: ZooKeeperSession) -> None:
    """Z7: kazoo's own stop waits for a host that is silent."""
    assert ended(session.close) is None
    assert session.state() is SessionState.LOST


def test_a_session_that_was_lost_is_never_connected_again(session: ZooKeeperSession, client: Silent) -> None:
    """Z2: kazoo would go on with a second session, in which nothing of this candidacy holds."""
    session._listen(KazooState.LOST)
    session._listen(KazooState.CONNECTED)

    assert session.state() is SessionState.LOST
    assert client._stopped.is_set()


def test_a_session_without_connection_for_two_timeouts_is_lost_for_good(session: ZooKeeperSession) -> None:
    """Z13: a ZooKeeper that was wiped or restored refuses this client for ever, without a word."""
    session._listen(KazooState.SUSPENDED)
    assert session._suspended_at is not None
    session._suspended_at -= 2.1 * SESSION_S

    assert session.state() is SessionState.LOST
    session._listen(KazooState.CONNECTED)
    assert session.state() is SessionState.LOST


def test_a_suspended_session_starts_its_time_anew(session: ZooKeeperSession) -> None:
    """Z5: what counts is how long the connection is away now, not when it first was."""
    session._listen(KazooState.SUSPENDED)
    assert session._suspended_at is not None
    session._suspended_at -= 1.5 * SESSION_S
    session._listen(KazooState.CONNECTED)
    session._listen(KazooState.SUSPENDED)
    session._suspended_at -= 1.0 * SESSION_S

    assert session.state() is SessionState.SUSPENDED


@pytest.mark.parametrize("lost", [KazooState.SUSPENDED, KazooState.LOST])
def test_a_watch_fires_once_when_the_connection_goes_away(lost: str, session: ZooKeeperSession, client: Silent) -> None:
    """kazoo forgets watches then: whoever waits looks again. One of a node that is not there, or that could not be set,
    is none.
    """
    client.answers += ["stat", None]
    fired: list[str] = []
    assert session.watch("/there", lambda: fired.append("there"))
    assert not session.watch("/gone", lambda: fired.append("gone"))
    ended(lambda: session.watch("/unanswered", lambda: fired.append("unanswered")))

    session._listen(lost)
    assert fired == ["there"]
    session._listen(KazooState.LOST)
    session.close()
    client.watchers[0](None)  # the server's word comes late

    assert fired == ["there"]


@pytest.mark.parametrize(
    ("answers", "refusal", "words"),
    [
        ([RolledBackError(), BadVersionError(), RuntimeInconsistency()], VersionDiffers, "/b"),
        ([NodeExistsError(), RuntimeInconsistency(), RuntimeInconsistency()], NodeExists, "/a"),
        ([RolledBackError(), RolledBackError(), NoNodeError()], NodeMissing, "/c"),
        ([RolledBackError(), True, RolledBackError()], ZooKeeperUnavailable, "without a reason"),
    ],
)
def test_a_refused_multi_names_its_cause_and_not_a_consequence(
    answers: list[Any], refusal: type[Exception], words: str, session: ZooKeeperSession, client: Silent
) -> None:
    """Z3: kazoo returns the errors, of the operations before and after too."""
    client.answers.append(answers)

    with pytest.raises(refusal, match=words):
        session.multi([SetNode(path, b"", 0) for path in ("/a", "/b", "/c")])


@pytest.mark.parametrize(
    ("call", "sent"),
    [("create", 5), ("create in the queue", 1), ("multi", 1), ("get", 5), ("children", 5), ("watch", 5)],
)
def test_what_may_have_happened_is_sent_again_only_where_that_is_harmless(
    call: str, sent: int, session: ZooKeeperSession, client: Silent
) -> None:
    """Z4: a node with a number of its own would be made twice, and the first would outlive its driver's candidacy in
    the queue.
    """
    client.answers += [ConnectionLoss()] * 9

    error = ended(lambda: CALLS[call](session))

    assert isinstance(error, ZooKeeperUnavailable)
    assert client.sent == sent


@pytest.mark.parametrize("call", ["create", "multi"])
def test_what_is_too_big_is_never_sent(call: str, session: ZooKeeperSession, client: Silent) -> None:
    """Z9: the server cuts the connection over it, each time anew."""
    data = b"x" * (MULTI_BYTES_MAX + 1)

    with pytest.raises(InvariantBroken, match="in one ZooKeeper write to /a"):
        session.create("/a", data) if call == "create" else session.multi([SetNode("/a", data, 0)])

    assert client.sent == 0
