"""Sessions on a real ZooKeeper that is crashed, restarted and wiped, or not there at all."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.contracts.coordinator_kit import PATHS, PATIENCE_S, TOPOLOGY, eventually, identity, lead, plan
from tests.kit.drivers import pause
from txtopo.coordinators.election import Election
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.coordinators.zookeeper_session import ZooKeeperSession, open_session
from txtopo.errors import ConfigurationError, Fenced, Halted, ZooKeeperUnavailable
from txtopo.local.zookeeper import LocalZooKeeper
from txtopo.ports import CreateNode, SessionState

Opener = Callable[..., ZooKeeperSession]
SLACK_S = 12.0
"""So much longer a slow machine may take than the time limit that a test is about; without the limit it would be longer
still, or for ever.
"""


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens sessions and closes them after the test."""
    sessions: list[ZooKeeperSession] = []

    def open_one(hosts: str, session_s: float = 10.0) -> ZooKeeperSession:
        sessions.append(open_session(hosts, session_s=session_s))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_session_survives_a_restart_of_the_server(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """Z5, Z11: SUSPENDED is not LOST; session, ephemeral nodes and lead are kept."""
    session = opened(own_zookeeper.hosts, session_s=30.0)
    candidate = Election(session, TOPOLOGY, identity())
    candidate.enter()
    coordinator = _leading(session, 1)
    fired = threading.Event()
    session.watch(PATHS.epoch, fired.set)

    own_zookeeper.crash()
    eventually(lambda: session.state() is SessionState.SUSPENDED)
    assert fired.wait(PATIENCE_S), "session trouble is told to those who watch"
    assert candidate.wait(0) is False, "whoever is cut off does not know that it leads"
    own_zookeeper.restart()
    eventually(lambda: session.state() is SessionState.CONNECTED)

    coordinator.record_plans([plan(1)])
    candidate.confirm()
    assert candidate.wait(0) is True


def test_session_is_lost_when_the_server_is_wiped(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """Z2, Z13: the object never goes on in a second session, and nothing of the old life is written into the new one."""  # noqa: E501
    session = opened(own_zookeeper.hosts, session_s=3.0)
    coordinator = _leading(session, 1)

    # It refuses a client that has seen a later transaction, without telling why; so the session is given up in the end.
    own_zookeeper.wipe()
    eventually(lambda: session.state() is SessionState.LOST)

    with pytest.raises(ZooKeeperUnavailable, match="lost"):
        coordinator.record_plans([plan(1)])
    fresh = opened(own_zookeeper.hosts)
    assert fresh.children("/") == ["zookeeper"]
    assert TopologyCoordinator(fresh, TOPOLOGY).read().incarnation is None


def test_lost_session_opens_no_other(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """Z2: what kazoo would send by a later session is never sent."""
    session = opened(own_zookeeper.hosts)
    late: list[object] = []
    # In the moment of the loss, before kazoo could connect again, a write goes straight to its queue.
    session._client.add_listener(
        lambda state: late.append(session._client.create_async("/late", b"")) if state == "LOST" else None
    )

    _steal(own_zookeeper.hosts, session)
    eventually(lambda: session.state() is SessionState.LOST)

    eventually(lambda: session._client._connection.connection_stopped.is_set())
    assert len(late) == 1
    assert opened(own_zookeeper.hosts).get("/late") is None


def test_call_while_the_server_is_away_ends_within_the_session(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """Z7: every call blocks for at most the session timeout; Z6: what was asked while it was away is not done later."""
    session = opened(own_zookeeper.hosts, session_s=2.0)
    own_zookeeper.crash()
    eventually(lambda: session.state() is SessionState.SUSPENDED)
    began = time.monotonic()

    with pytest.raises(ZooKeeperUnavailable):
        session.create("/late", b"")

    assert time.monotonic() - began < 2.0 + SLACK_S
    own_zookeeper.restart()
    assert opened(own_zookeeper.hosts).get("/late") is None


def test_server_that_hangs_does_not_hang_the_caller(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """Z7: kazoo's own calls have no time limit."""
    session = opened(own_zookeeper.hosts, session_s=2.0)
    server = own_zookeeper.pid
    assert server is not None
    began = time.monotonic()

    try:
        pause(server)
        with pytest.raises(ZooKeeperUnavailable):
            session.get("/")
        spent_s = time.monotonic() - began
        began = time.monotonic()
        session.close()
        closing_s = time.monotonic() - began
    finally:
        os.kill(server, signal.SIGCONT)

    assert spent_s < 2.0 + SLACK_S
    assert closing_s < 2.0 + SLACK_S


def test_close_while_the_server_is_away_sends_nothing_later(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """Z6: discard the client on step-down so queued writes die with it."""
    session = opened(own_zookeeper.hosts, session_s=20.0)
    own_zookeeper.crash()
    eventually(lambda: session.state() is SessionState.SUSPENDED)
    failed = threading.Event()
    waiting = threading.Thread(target=lambda: _expect_unavailable(session, failed))
    waiting.start()

    began = time.monotonic()
    session.close()

    assert failed.wait(PATIENCE_S)
    waiting.join(PATIENCE_S)
    assert time.monotonic() - began < SLACK_S
    own_zookeeper.restart()
    assert opened(own_zookeeper.hosts).get("/late") is None


def test_missing_chroot_is_created(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """A chroot that does not exist makes every call fail with NoNode."""
    session = opened(f"{own_zookeeper.hosts}/deep/chroot")
    again = opened(f"{own_zookeeper.hosts}/deep/chroot/")

    session.create("/a", b"1")

    assert again.get("/a") == (b"1", 0)
    assert opened(own_zookeeper.hosts).get("/deep/chroot/a") == (b"1", 0)


def test_removed_chroot_is_named(zookeeper_root: str, opened: Opener) -> None:
    """Whoever removes the chroot under a driver is told about in words."""
    hosts, _, root = zookeeper_root.partition("/")
    session = opened(f"{hosts}/{root}/deep/chroot")
    opened(hosts)._client.delete(f"/{root}/deep", recursive=True)

    with pytest.raises(ZooKeeperUnavailable, match="chroot no longer exists"):
        session.create("/a", b"")


@pytest.mark.parametrize("session_s", [2.0, 30.0])
def test_unreachable_server_is_told_fast(session_s: float) -> None:
    """Unreachable: ZooKeeperUnavailable naming hosts within the start timeout."""
    began = time.monotonic()

    with pytest.raises(ZooKeeperUnavailable, match=r"127\.0\.0\.1:1 does not answer"):
        open_session("127.0.0.1:1", session_s=session_s, start_timeout_s=0.5)

    assert time.monotonic() - began < 0.5 + SLACK_S


def test_silent_server_is_told_fast(silent_port: int) -> None:
    """A firewall that swallows everything looks like this."""
    began = time.monotonic()

    with pytest.raises(ZooKeeperUnavailable, match=f"{silent_port} does not answer"):
        open_session(f"127.0.0.1:{silent_port}", session_s=3.0, start_timeout_s=0.5)

    assert time.monotonic() - began < 0.5 + 3.0 + SLACK_S


@pytest.mark.parametrize(
    "hosts", ["", "/chroot", "host:2181/a/../b", "a b:2181", "host:port", "host:2181//x", "host:99999"]
)
def test_malformed_address_is_a_configuration_error(hosts: str) -> None:
    """Found before anything is connected."""
    with pytest.raises(ConfigurationError, match="ZooKeeper address"):
        open_session(hosts, start_timeout_s=0.5)


def test_session_timeout_is_the_one_that_the_server_granted(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """Negotiated session timeout in seconds (the server of the tests grants 1 to 60)."""
    assert opened(own_zookeeper.hosts, session_s=600.0).session_s == 60.0
    assert opened(own_zookeeper.hosts, session_s=5.0).session_s == 5.0


def test_killed_leader_is_followed_and_leaves_no_node(
    own_zookeeper: LocalZooKeeper, opened: Opener, candidate: Callable[[], subprocess.Popen[str]]
) -> None:
    """Takeover: a process that dies with its session gives the lead to the next, within the session timeout."""
    leader = candidate()
    second = Election(opened(own_zookeeper.hosts), TOPOLOGY, identity("two"))
    second.enter()
    assert second.wait(0) is False

    leader.kill()
    leader.communicate()

    assert second.wait(PATIENCE_S) is True
    second.confirm()
    assert len(opened(own_zookeeper.hosts).children(PATHS.leader)) == 1


def test_paused_leader_cannot_confirm_when_it_wakes(
    own_zookeeper: LocalZooKeeper, opened: Opener, candidate: Callable[[], subprocess.Popen[str]]
) -> None:
    """Z1: SIGSTOP past the session; on waking it believes it leads, and changes nothing."""
    leader = candidate()
    session = opened(own_zookeeper.hosts)
    second = Election(session, TOPOLOGY, identity("two"))
    second.enter()

    pause(leader.pid)
    assert second.wait(PATIENCE_S) is True
    _leading(session, 2)
    leader.send_signal(signal.SIGCONT)
    said, _ = leader.communicate("go\n", timeout=PATIENCE_S)

    assert said.split() in (["ZooKeeperUnavailable"], ["LeadLost"])
    assert second.leader() is None


def test_close_without_room_for_a_thread_returns(
    zookeeper_root: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver without memory still ends; the server closes the session after its timeout."""
    session = opened(zookeeper_root)

    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_room)
        session.close()
    assert session.state() is SessionState.LOST
    session._end()  # what the thread would have done: a test leaves no client


def test_close_leaves_no_ephemeral_node(zookeeper_root: str, opened: Opener) -> None:
    """close() removes the ephemeral nodes before it returns (R15)."""
    session, other = opened(zookeeper_root), opened(zookeeper_root)
    Election(session, TOPOLOGY, identity()).enter()
    assert len(other.children(PATHS.leader)) == 1

    session.close()

    assert other.children(PATHS.leader) == []


def test_stale_epoch_is_refused_and_changes_nothing(zookeeper_root: str, opened: Opener) -> None:
    """R2: every later write is multi(check(epoch, version), ...); it fails here when the check is taken out."""
    zombie = _leading(opened(zookeeper_root), 1)
    other = opened(zookeeper_root)
    _leading(other, 2)

    with pytest.raises(Fenced):
        zombie.record_plans([plan(1)])
    with pytest.raises(Fenced):
        zombie.record_attempts({1: 1})
    with pytest.raises(Fenced):
        zombie.checkpoint(1, 1)

    view = TopologyCoordinator(other, TOPOLOGY).read()
    assert (view.epoch, view.mark, dict(view.plans), dict(view.attempts)) == (2, 0, {}, {})


def test_unreadable_node_halts_and_stays_as_it_is(zookeeper_root: str, opened: Opener) -> None:
    """Z14: never "no state", never overwritten."""
    session = opened(zookeeper_root)
    session.create(PATHS.epoch, b"\x00garbage")

    with pytest.raises(Halted, match=PATHS.epoch):
        _leading(session, 5)

    assert session.get(PATHS.epoch) == (b"\x00garbage", 0)


def test_kazoo_alone_raises_nothing_for_a_failed_multi(zookeeper_root: str, opened: Opener) -> None:
    """Z3: the reason for the wrapper; should kazoo change, this test says so."""
    client = opened(zookeeper_root)._client
    transaction = client.transaction()
    transaction.check("/nowhere", 0)

    (result,) = transaction.commit()

    assert isinstance(result, NoNodeError)


def test_nothing_of_the_session_is_logged_to_the_console(
    zookeeper_root: str, opened: Opener, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """kazoo logs the password of the session at its lowest level."""
    logging.getLogger("txtopo.kazoo").setLevel(1)
    with caplog.at_level(1):
        session = opened(zookeeper_root)
        logging.getLogger("txtopo.kazoo").setLevel(1)
        session.create("/a", b"")
        password = session._client.client_id[1].hex()
        session.close()

    assert all(record.levelno >= logging.INFO for record in caplog.records if "kazoo" in record.name)
    assert password not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_multi_of_a_dying_server_is_told_as_unavailable(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    """The write may still happen (Z6), so it is told and not repeated."""
    session = opened(own_zookeeper.hosts, session_s=2.0)
    own_zookeeper.crash()

    with pytest.raises(ZooKeeperUnavailable):
        session.multi([CreateNode("/a", b"")])


CANDIDATE = """
import sys
from txtopo.coordinators.election import Election
from txtopo.coordinators.zookeeper_session import open_session
from txtopo.errors import TxtopoError
from tests.contracts.coordinator_kit import TOPOLOGY, identity
session = open_session(sys.argv[1], session_s=float(sys.argv[2]))
election = Election(session, TOPOLOGY, identity("process"))
election.enter()
assert election.wait(10)
print("leading", flush=True)
sys.stdin.readline()
try:
    election.confirm()
    print("confirmed")
except TxtopoError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def candidate(own_zookeeper: LocalZooKeeper) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts processes that lead and try to confirm when they are told to; all are killed at the end."""
    with contextlib.ExitStack() as started:

        def start() -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", CANDIDATE, own_zookeeper.hosts, "2.0"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "leading\n"
            return process

        yield start


def _leading(session: ZooKeeperSession, epoch: int) -> TopologyCoordinator:
    coordinator = TopologyCoordinator(session, TOPOLOGY)
    coordinator.write_epoch(lead(epoch), "cluster")
    return coordinator


def _steal(hosts: str, session: ZooKeeperSession) -> None:
    """Close a session by its id from another client: to its owner that is an expiry."""
    thief = KazooClient(hosts=hosts, client_id=session._client.client_id)
    thief.start(timeout=20)
    thief.stop()
    thief.close()


def _expect_unavailable(session: ZooKeeperSession, failed: threading.Event) -> None:
    with contextlib.suppress(ZooKeeperUnavailable):
        session.create("/late", b"")
        return
    failed.set()
