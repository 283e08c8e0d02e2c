"""Paths and contents of znodes, the order of the queue, and the trouble that the memory version makes on demand."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from kazoo.exceptions import ConnectionLoss

from tests.contracts.coordinator_kit import PATHS, TOPOLOGY, identity
from txtopo.coordinators import codec
from txtopo.coordinators.codec import EpochNode
from txtopo.coordinators.election import Election, read_queue
from txtopo.coordinators.memory import MemorySession, MemoryZooKeeper
from txtopo.coordinators.paths import TopologyPaths
from txtopo.coordinators.zookeeper_session import ZooKeeperSession, _NodeWatch, _quiet_logger
from txtopo.errors import ConfigurationError, Halted, InvariantBroken, ZooKeeperUnavailable
from txtopo.ports import CreateNode, SessionState, SetNode

EPOCH = EpochNode(epoch=3, incarnation="i", system_identifier="s", owner_nonce="n")


def test_paths_are_as_documented() -> None:
    """Operators look at these with any ZooKeeper client."""
    paths = TopologyPaths("flights")

    assert paths.leader == "/flights/leader"
    assert paths.epoch == "/flights/epoch"
    assert paths.mark == "/flights/coordinator/currtx"
    assert paths.attempts == "/flights/coordinator/currattempts"
    assert paths.plan(12) == "/flights/coordinator/meta/00000000000000000012"


@pytest.mark.parametrize("name", ["", "a/b", "../x", "A", "1a", "a" * 42, "a\n", "zoo keeper", "é"])
def test_illegal_topology_name_makes_no_path(name: str) -> None:
    """P15: names match `[a-z][a-z0-9_]{0,40}`."""
    with pytest.raises(ConfigurationError):
        TopologyPaths(name)


def test_txid_survives_the_way_through_its_name() -> None:
    """Z10: own 64-bit txid."""
    name = PATHS.plan(2**63 - 1).rpartition("/")[2]

    assert PATHS.txid(name) == 2**63 - 1


@pytest.mark.parametrize("txid", [0, -1, 10**20])
def test_txid_without_a_path_is_a_mistake(txid: int) -> None:
    """Txids count from 1."""
    with pytest.raises(InvariantBroken):
        PATHS.plan(txid)


@pytest.mark.parametrize("name", ["1", "0" * 20, "0" * 19 + "\u0661", "0" * 19 + "1 ", "-" + "1" * 19, "1" * 21])
def test_name_that_is_no_txid_halts_with_its_path(name: str) -> None:
    """Z14."""
    with pytest.raises(Halted, match="/flights/coordinator/meta/"):
        PATHS.txid(name)


@pytest.mark.parametrize("sequence", ["0000000000", "2147483647", "-2147483648", "-000000001"])
def test_candidate_name_gives_nonce_and_sequence(sequence: str) -> None:
    """Z10: signed 32 bit, overflow to -2147483648."""
    nonce = identity().nonce

    name = PATHS.candidate_prefix(nonce).rpartition("/")[2] + sequence

    assert PATHS.candidate(name) == (nonce, int(sequence))


def test_nonce_that_would_leave_its_node_name_is_a_mistake() -> None:
    """A nonce is a UUID."""
    with pytest.raises(InvariantBroken):
        PATHS.candidate_prefix("../epoch")


def test_queue_order_survives_the_overflow_of_sequence_numbers() -> None:
    """Z10: overflow to -2147483648; robust against wrap."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)
    session.create(PATHS.leader, b"")
    ensemble.count_from(PATHS.leader, 2**31 - 2)
    candidates = [identity(host) for host in ("one", "two", "three", "four")]

    for candidate in candidates:
        Election(MemorySession(ensemble), TOPOLOGY, candidate).enter()

    queue = [PATHS.candidate(name) for name in read_queue(session, PATHS)]
    assert [nonce for nonce, _ in queue] == [candidate.nonce for candidate in candidates]
    assert [sequence for _, sequence in queue] == [2**31 - 2, 2**31 - 1, -(2**31), -(2**31) + 1]


def test_contents_survive_the_way_through_a_node() -> None:
    """Canonical JSON with a version."""
    who = identity()

    assert codec.decode_epoch(codec.encode_epoch(EPOCH), "/e") == EPOCH
    assert codec.decode_mark(codec.encode_mark(7), "/m") == 7
    assert codec.decode_attempts(codec.encode_attempts({9: 1, 10: 0}), "/a") == {9: 1, 10: 0}
    assert codec.decode_identity(codec.encode_identity(who), "/c") == who
    assert codec.encode_mark(7) == b'{"txid":7,"v":1}'
    assert json.loads(codec.encode_epoch(EPOCH))["v"] == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"txid":7}',
        b'{"txid":7,"v":2}',
        b'{"txid":"7","v":1}',
        b'{"txid":true,"v":1}',
        b'{"txid":-1,"v":1}',
        b'{"txid":1.0,"v":1}',
        b'{"txid":7,"v":1,"more":0}',
        b"\x80\x04K\x07.",
        b"[" * 100_000,
    ],
)
def test_unreadable_mark_halts_with_its_path(data: bytes) -> None:
    """Z14: unparsable = halt."""
    with pytest.raises(Halted, match="/flights/coordinator/currtx"):
        codec.decode_mark(data, PATHS.mark)


@pytest.mark.parametrize("attempts", ['{"x":1}', '{"1":-1}', '{"1":"1"}', '{"1":true}', "[]", '{"-1":1}'])
def test_unreadable_attempts_halt_with_their_path(attempts: str) -> None:
    """Z14."""
    with pytest.raises(Halted, match=PATHS.attempts):
        codec.decode_attempts(f'{{"attempts":{attempts},"v":1}}'.encode(), PATHS.attempts)


def test_size_counts_every_operation() -> None:
    """Z9: multi counted as a whole."""
    with pytest.raises(InvariantBroken):
        codec.check_size([CreateNode(f"/n{number}", b"") for number in range(5000)])


def test_kazoo_log_never_goes_to_debug_or_to_the_console_of_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo logs the session's password at its lowest level. What it says at INFO is for programs that ask for it."""
    monkeypatch.setattr(logging.getLogger("txtopo.kazoo"), "level", logging.NOTSET)
    logging.getLogger("txtopo.kazoo").manager._clear_cache()  # type: ignore[attr-defined]
    logger = _quiet_logger()

    assert logger.level == logging.NOTSET
    assert not logger.isEnabledFor(logging.DEBUG)
    assert logger.handlers
    assert logging.getLogger("kazoo").handlers
    assert not logger.filter(logging.LogRecord(logger.name, 5, "", 0, "secret", (), None))


def test_killed_driver_keeps_its_nodes_until_its_session_expires() -> None:
    """A driver that died says nothing; its session stays."""
    ensemble = MemoryZooKeeper()
    driver, other = MemorySession(ensemble), MemorySession(ensemble)
    driver.create("/mine", b"", ephemeral=True)
    told: list[int] = []
    driver.watch("/mine", lambda: told.append(1))

    driver.kill()
    before = other.get("/mine")
    ensemble.expire(driver)

    assert before is not None
    assert other.get("/mine") is None
    assert told == []


def test_paused_driver_learns_of_its_expiry_by_its_next_call() -> None:
    """Z1: on waking it believes it leads."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)

    ensemble.expire(session, told=False)
    belief = session.state()
    with pytest.raises(ZooKeeperUnavailable):
        session.create("/late", b"")

    assert belief is SessionState.CONNECTED
    assert session.state() is SessionState.LOST
    assert ensemble.paths() == []


def test_suspended_session_comes_back_with_its_nodes() -> None:
    """Z5: SUSPENDED is not LOST."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)
    session.create("/mine", b"", ephemeral=True)
    told: list[int] = []
    session.watch("/mine", lambda: told.append(1))

    ensemble.suspend(session)
    suspended = session.state()
    with pytest.raises(ZooKeeperUnavailable):
        session.get("/mine")
    ensemble.resume(session)

    assert suspended is SessionState.SUSPENDED
    assert session.get("/mine") is not None
    assert told == [1]


def test_session_that_expired_while_suspended_is_lost_on_return() -> None:
    """Z5: LOST needs a reconnect."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)
    ensemble.suspend(session)
    ensemble.expire(session, told=False)
    before = session.state()

    ensemble.resume(session)

    assert (before, session.state()) == (SessionState.SUSPENDED, SessionState.LOST)


def test_lost_session_never_comes_back() -> None:
    """Z2: once LOST, for ever LOST."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)
    ensemble.expire(session)

    ensemble.suspend(session)
    after_suspend = session.state()
    ensemble.resume(session)

    assert (after_suspend, session.state()) == (SessionState.LOST, SessionState.LOST)


class DroppedConnection:
    """Stands for a kazoo client whose every call ends in ConnectionLoss."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.timeouts_s: list[float] = []

    def __getattr__(self, name: str) -> object:
        def call(*_: object, **__: object) -> DroppedConnection:
            if name.endswith("_async"):
                self.sent.append(name)
            return self

        return call

    def get(self, timeout: float) -> None:
        """The result of an async call."""
        self.timeouts_s.append(timeout)
        raise ConnectionLoss


def _dropped() -> tuple[ZooKeeperSession, DroppedConnection]:
    session, client = ZooKeeperSession("127.0.0.1:1", 5.0), DroppedConnection()
    session._client, session._state = client, SessionState.CONNECTED
    return session, client


def test_only_what_may_be_repeated_is_sent_again_after_a_lost_connection() -> None:
    """Z4, Z6: a sequential create or a multi that was lost may have happened; sending it again could make a second one."""  # noqa: E501
    session, client = _dropped()
    calls: list[Callable[[], object]] = [
        lambda: session.create("/q/n-", b"", sequential=True),
        lambda: session.multi([SetNode("/a", b"")]),
        lambda: session.create("/a", b""),
        lambda: session.get("/a"),
    ]

    for call in calls:
        with pytest.raises(ZooKeeperUnavailable, match="ConnectionLoss"):
            call()

    assert Counter(client.sent) == {"create_async": 1 + 5, "commit_async": 1, "get_async": 5}


def test_every_wait_for_kazoo_has_a_limit() -> None:
    """Z7: kazoo's calls have no time limit of their own."""
    session, client = _dropped()

    for call in (session.get, session.children, lambda path: session.watch(path, lambda: None)):
        with pytest.raises(ZooKeeperUnavailable):
            call("/a")

    assert all(0 < timeout <= 5.0 for timeout in client.timeouts_s)


def test_close_tells_those_who_watch_whatever_the_client_does() -> None:
    """Nobody goes on waiting on a session that is gone."""
    session, _ = _dropped()
    told: list[int] = []
    session._watches.add(_NodeWatch(lambda: told.append(1)))

    session.close()
    session.close()

    assert told == [1]


def test_close_returns_within_the_session_timeout_whatever_the_client_does() -> None:
    """Always returns within the session timeout (R15)."""
    release = threading.Event()
    session = ZooKeeperSession("127.0.0.1:1", 0.2)
    session._client.stop = release.wait
    closing = threading.Thread(target=session.close, daemon=True)

    closing.start()
    closing.join(60.0)
    returned = not closing.is_alive()
    release.set()

    assert returned


def test_ensemble_away_suspends_everybody_and_loses_nothing() -> None:
    """Z11: no quorum."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)
    session.create("/a", b"")

    ensemble.unavailable = True
    away = session.state()
    with pytest.raises(ZooKeeperUnavailable):
        session.get("/a")
    with pytest.raises(ZooKeeperUnavailable):
        MemorySession(ensemble)
    ensemble.unavailable = False

    assert away is SessionState.SUSPENDED
    assert session.get("/a") == (b"", 0)


def test_wiped_ensemble_knows_no_node_and_no_session() -> None:
    """Z13."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)
    session.create("/a", b"")

    ensemble.wipe()

    assert session.state() is SessionState.LOST
    assert MemorySession(ensemble).get("/a") is None


@pytest.mark.parametrize("applied", [True, False])
def test_reply_of_the_next_write_is_lost_once(applied: bool) -> None:
    """Z6."""
    ensemble = MemoryZooKeeper()
    session = MemorySession(ensemble)
    session.create("/a", b"0")

    ensemble.lose_next_reply(applied=applied)
    with pytest.raises(ZooKeeperUnavailable):
        session.multi([SetNode("/a", b"1")])

    assert session.get("/a") == ((b"1", 1) if applied else (b"0", 0))
    session.multi([SetNode("/a", b"2")])
