"""No call of a ZooKeeper session is without a limit (Z7), and nothing is sent while the connection is away (Z6): on a client that never answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from txtopo.coordinators.zookeeper import ZooKeeperSession
from txtopo.errors import ZooKeeperUnavailable
from txtopo.ports import SessionState, SetNode

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


class Silent:
    """kazoo's client on such a server. It cannot even be stopped."""

    def __init__(self) -> None:
        self.limits: list[float | None] = []
        self._stopped = threading.Event()
        self.let_go = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name in ("stop", "_safe_close", "close"):
            return self.let_go.wait
        if name == "transaction":
            return lambda: self
        return lambda *arguments, **keywords: Unanswered(self.limits)


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
    """Z7: kazoo's synchronous calls wait for ever. Each gets at most one session timeout, and what became of it is not known (Z6)."""
    error = ended(lambda: CALLS[name](session))

    assert isinstance(error, ZooKeeperUnavailable)
    assert "it may still have happened" in str(error)
    (limit,) = client.limits
    assert limit is not None
    assert 0 < limit <= SESSION_S


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_sent_while_the_connection_is_away(name: str, session: ZooKeeperSession, client: Silent) -> None:
    """Z6, Z7: what is handed to kazoo then waits in its queue, and happens later; so the call waits here, and not for ever."""
    session._listen(KazooState.SUSPENDED)

    error = ended(lambda: CALLS[name](session))

    assert isinstance(error, ZooKeeperUnavailable)
    assert client.limits == []


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
