"""Local services start, stop, crash and come back with their data, and leave nothing running."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from kazoo.client import KazooClient

from tests.kit.fix_postgres import TEMPLATE, folder_for_services, with_database
from tests.kit.fix_zookeeper import connected
from txtopo.errors import ConfigurationError, PostgresUnavailable, ZooKeeperUnavailable
from txtopo.local import postgres, services, zookeeper
from txtopo.local.postgres import LocalPostgres
from txtopo.local.processes import end, is_running, wait_until
from txtopo.local.server import LocalServer
from txtopo.local.services import LocalServices, dev_down, dev_status, dev_up, running_dev
from txtopo.local.zookeeper import LocalZooKeeper, ask

pytestmark = [pytest.mark.postgres, pytest.mark.zookeeper]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that an unprivileged account may enter."""
    with folder_for_services() as made:
        yield made


@pytest.fixture
def dev_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home for development services; none of them lives longer than the test."""
    monkeypatch.setenv("TXTOPO_HOME", str(folder))
    try:
        yield folder
    finally:
        dev_down(wipe=True)


def query(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
    return rows


def processes_with(text: str) -> list[str]:
    """Command lines of all living processes that name `text`."""
    listing = subprocess.run(["ps", "-eww", "-o", "command="], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if text in line]


# Postgres


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_postgres_keeps_what_was_committed(own_postgres: LocalPostgres, ending: str) -> None:
    """A commit that was confirmed survives the end of the server, orderly or not, and the server comes back where it
    was.
    """
    query(own_postgres.dsn, "CREATE TABLE kept AS SELECT 7 AS number")
    dsn, pid = own_postgres.dsn, own_postgres.pid

    getattr(own_postgres, ending)()
    assert not own_postgres.is_running()
    with pytest.raises(psycopg2.OperationalError):
        query(dsn, "SELECT 1")
    own_postgres.start()

    assert own_postgres.dsn == dsn
    assert own_postgres.pid != pid
    assert query(dsn, "SELECT number FROM kept") == [(7,)]


def test_postgres_recovers_after_a_crash_and_not_after_a_stop(own_postgres: LocalPostgres) -> None:
    """`crash` is a real crash: the next start has to recover from the log, the one after `stop` has not."""
    own_postgres.restart()
    assert "automatic recovery in progress" not in own_postgres.log.read_text()

    own_postgres.crash()
    own_postgres.start()

    assert "automatic recovery in progress" in own_postgres.log.read_text()


def test_postgres_runs_with_the_settings_that_tests_of_commits_rely_on(own_postgres: LocalPostgres) -> None:
    """Durable, UTF-8 in the C locale, no prepared transactions, reachable from this machine only."""
    wanted = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "max_prepared_transactions": "0",
        "server_encoding": "UTF8",
        "lc_collate": "C",
        "listen_addresses": "127.0.0.1",
        "TimeZone": "UTC",
    }
    names = "', '".join(set(wanted) - {"lc_collate"})

    rows = query(own_postgres.dsn, f"SELECT name, setting FROM pg_settings WHERE name IN ('{names}')")
    found = {str(name): str(value) for name, value in rows}
    [[found["lc_collate"]]] = query(own_postgres.dsn, "SELECT datcollate FROM pg_database WHERE datname = 'template1'")

    assert found == wanted
    hosts = query(own_postgres.dsn, "SELECT DISTINCT type, address FROM pg_hba_file_rules")
    assert sorted(hosts) == [("host", "127.0.0.1"), ("local", None)]


def test_postgres_answers_on_its_socket(own_postgres: LocalPostgres) -> None:
    """Besides TCP there is a Unix socket with a path that is short enough, closed to other accounts."""
    dsn = f"postgresql://postgres@/postgres?host={own_postgres.socket_folder}&port={own_postgres.port}"

    assert query(dsn, "SELECT inet_server_addr()") == [(None,)]
    assert own_postgres.socket_folder.stat().st_mode & 0o077 == 0


def test_postgres_runs_in_a_folder_with_a_long_name_and_a_quote(folder: Path) -> None:
    """The socket moves elsewhere when its path would be longer than the 107 bytes that a socket may have."""
    server = LocalPostgres(folder / f"it's {'long' * 25}" / "postgres")

    try:
        with server:
            assert query(server.dsn, "SELECT 1") == [(1,)]
            assert server.socket_folder != server.place / "s"
    finally:
        server.remove()

    assert not server.socket_folder.exists()
    assert not server.folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be kept out of nowhere and others out of everywhere")
def test_root_can_keep_postgres_in_a_folder_closed_to_everybody_else(tmp_path: Path) -> None:
    """Postgres refuses root; the account it runs under cannot enter a closed folder, so the data lie elsewhere and are
    still found.
    """
    tmp_path.chmod(0o700)
    server = LocalPostgres(tmp_path / "postgres")
    try:
        server.start()
        found_again = LocalPostgres(tmp_path / "postgres")

        assert server.place != server.folder
        assert found_again.dsn == server.dsn
        assert found_again.is_running()
        assert query(server.dsn, "SELECT 1") == [(1,)]
    finally:
        server.remove()
    assert not server.place.exists()


def test_half_made_data_are_made_again(folder: Path) -> None:
    """When initdb was interrupted the next start does not take its leftovers for a database."""
    server = LocalPostgres(folder / "postgres")
    (server.folder / "data.new").mkdir(parents=True)
    (server.folder / "data.new" / "PG_VERSION").write_text("18\n")

    with server:
        assert query(server.dsn, "SELECT 1") == [(1,)]


def test_a_postgres_that_does_not_start_shows_its_log(
    own_postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the log and holds its last lines."""
    own_postgres.stop()
    monkeypatch.setattr(postgres, "SETTINGS", postgres.SETTINGS + "no_such_setting = 1\n")

    with pytest.raises(PostgresUnavailable, match=r"(?s)did not start.*server\.log.*no_such_setting"):
        own_postgres.start()

    assert not own_postgres.is_running()


def test_data_of_another_major_version_are_refused_in_words(own_postgres: LocalPostgres) -> None:
    """After an upgrade of the wheel the reason is said before the server is tried."""
    own_postgres.stop()
    (own_postgres.data / "PG_VERSION").write_text("9\n")

    with pytest.raises(ConfigurationError, match="was made by Postgres 9"):
        own_postgres.start()


# ZooKeeper


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_zookeeper_keeps_what_was_written(own_zookeeper: LocalZooKeeper, ending: str) -> None:
    """A znode that was confirmed survives the end of the server, on the same port; a wipe loses it."""
    with connected(own_zookeeper.hosts) as client:
        client.create("/kept", b"7")
    hosts, pid = own_zookeeper.hosts, own_zookeeper.pid

    getattr(own_zookeeper, ending)()
    assert not own_zookeeper.is_running()
    assert ask(own_zookeeper.port, "ruok") == ""
    own_zookeeper.restart()

    assert own_zookeeper.hosts == hosts
    assert own_zookeeper.pid != pid
    with connected(hosts) as client:
        assert client.get("/kept")[0] == b"7"
    if ending == "crash":
        own_zookeeper.wipe()
        with connected(hosts) as client:
            assert client.exists("/kept") is None


def test_zookeeper_lets_sessions_be_short(zookeeper_server: LocalZooKeeper) -> None:
    """A session of one second is granted, so that tests see sessions expire without waiting for long."""
    client = KazooClient(hosts=zookeeper_server.hosts, timeout=1.0)
    client.start()
    try:
        assert client._session_timeout == 1000
    finally:
        client.stop()
        client.close()


def test_zookeeper_listens_on_this_machine_only(zookeeper_server: LocalZooKeeper) -> None:
    """Only 127.0.0.1 is bound; another address of this machine's own loopback is refused."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", zookeeper_server.port), timeout=2).close()


def test_a_zookeeper_that_does_not_start_shows_its_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the log and holds its last lines."""
    monkeypatch.setattr(zookeeper, "SETTINGS", zookeeper.SETTINGS + "tickTime=never\n")
    server = LocalZooKeeper(folder / "zookeeper")

    with pytest.raises(ZooKeeperUnavailable, match=r"(?s)did not start.*server\.log.*never"):
        server.start()

    assert not processes_with(str(folder))


# Both kinds of server


@pytest.mark.parametrize("kind", [LocalPostgres, LocalZooKeeper])
def test_a_taken_port_is_not_the_end(folder: Path, kind: type[LocalServer]) -> None:
    """When somebody else took the remembered port while the server was down, it starts on another one."""
    server = kind(folder / "server")
    with server:
        before = server.port

    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", before))
        squatter.listen()
        with server:
            assert server.port != before


@pytest.mark.parametrize("kind", [LocalPostgres, LocalZooKeeper])
def test_a_server_is_stopped_when_its_owner_exits(folder: Path, kind: type[LocalServer]) -> None:
    """An owner that forgets to stop its server leaves nothing running."""
    script = f"from {kind.__module__} import {kind.__name__} as Kind; import sys; print(Kind(sys.argv[1]).start().pid)"

    answer = subprocess.run(
        [sys.executable, "-c", script, str(folder / "server")], capture_output=True, text=True, check=True
    )

    assert int(answer.stdout) > 0
    assert not processes_with(str(folder))


def test_a_server_survives_ctrl_c_in_the_terminal(own_zookeeper: LocalZooKeeper, own_postgres: LocalPostgres) -> None:
    """Ctrl-C reaches the process group of the terminal; the servers have sessions of their own, their owner stops them."""  # noqa: E501
    for server in (own_zookeeper, own_postgres):
        assert server.pid is not None
        assert os.getsid(server.pid) == server.pid != os.getsid(0)


def test_a_server_killed_from_outside_starts_again_where_it_was(own_zookeeper: LocalZooKeeper) -> None:
    """Whoever killed it, `start` notices, tidies up and brings it back on its port."""
    hosts = own_zookeeper.hosts
    assert own_zookeeper.pid is not None
    os.kill(own_zookeeper.pid, signal.SIGKILL)

    own_zookeeper.start()

    assert own_zookeeper.hosts == hosts
    assert "standalone" in ask(own_zookeeper.port, "srvr")


def test_a_reused_pid_is_not_taken_for_ours(folder: Path) -> None:
    """A pid file left by a crash of the machine may name somebody else's process by now: that one is neither believed
    nor ended.
    """
    server = LocalZooKeeper(folder / "zookeeper")
    server.folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (server.folder / "pid").write_text(f"{stranger.pid}\n")

        assert not server.is_running()
        server.stop()

        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_a_process_that_ignores_the_stop_signal_is_killed() -> None:
    """`end` is certain: it does not return while the process runs."""
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, "stubborn"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

        end(process.pid, "stubborn", by=signal.SIGTERM, patience_s=0.2)

        assert not is_running(process.pid, "stubborn")
        assert process.wait() == -signal.SIGKILL


# Both servers together


def test_services_start_together_and_leave_nothing_behind(folder: Path) -> None:
    """`state.json` tells any process where both are; after `remove` there is no process and no file."""
    pair = LocalServices(folder / "pair")
    with pair:
        state = services.running(folder / "pair")

        assert state == pair.state
        assert state is not None
        assert query(state.dsn, "SELECT 1") == [(1,)]
        assert "standalone" in ask(int(state.zookeeper.rsplit(":", 1)[1]), "srvr")

    assert services.running(folder / "pair") is None
    assert not processes_with(str(folder))
    pair.remove()
    assert not (folder / "pair").exists()


def test_when_one_service_fails_the_other_does_not_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start succeeds for both or leaves neither."""
    monkeypatch.setattr(zookeeper, "SETTINGS", zookeeper.SETTINGS + "tickTime=never\n")

    with pytest.raises(ZooKeeperUnavailable):
        LocalServices(folder / "pair").start()

    assert not processes_with(str(folder))
    assert not (folder / "pair" / "state.json").exists()


def test_dev_services_outlive_the_command_and_are_found_and_stopped_by_others(dev_home: Path) -> None:
    """`dev up` returns and its services stay; a second one changes nothing; `dev down` of another process stops them,
    data stay.
    """
    script = "from txtopo.local.services import dev_up; print(dev_up().dsn)"
    dsn = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()
    state = dev_status()
    assert state is not None
    query(dsn, "CREATE TABLE kept AS SELECT 7 AS number")

    assert dev_up() == state == running_dev()
    assert state.dsn == dsn
    assert dev_down()

    assert dev_status() is None
    assert not dev_down()
    assert not processes_with(str(dev_home))
    assert query(dev_up().dsn, "SELECT number FROM kept") == [(7,)]
    assert dev_down(wipe=True)
    assert not (dev_home / "dev").exists()


def test_two_dev_ups_at_once_start_one_pair(dev_home: Path) -> None:
    """The second waits for the first and finds its services, rather than start another server on the same data."""
    script = "from txtopo.local.services import dev_up; print(dev_up())"
    commands = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]

    said = [command.communicate(timeout=120)[0] for command in commands]

    assert [command.returncode for command in commands] == [0, 0]
    assert said[0] == said[1] == f"{dev_status()}\n"
    assert len(processes_with(f"-D {dev_home / 'dev'}")) == 1


def test_dev_status_is_honest_when_one_of_the_two_died(dev_home: Path) -> None:
    """Half a pair is not a pair: status says so, and the next `dev up` mends it."""
    first = dev_up()
    LocalZooKeeper(dev_home / "dev" / "zookeeper").crash()

    assert dev_status() is None
    second = dev_up()

    assert (second.dsn, second.postgres_pid, second.zookeeper) == (first.dsn, first.postgres_pid, first.zookeeper)
    assert second.zookeeper_pid != first.zookeeper_pid


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"dsn": 1, "colour": "red"}'])
def test_a_spoilt_state_file_means_that_nothing_is_known(folder: Path, content: str) -> None:
    """A file of another version or half a file is no reason to fail."""
    (folder / "state.json").write_text(content)

    assert services.running(folder) is None


# Fixtures of the kit


def test_each_test_has_its_own_empty_database(postgres_server: LocalPostgres, empty_database: str) -> None:
    """A database of one test holds nothing, whatever other tests did."""
    assert not empty_database.endswith("/postgres")
    assert query(
        empty_database, "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    ) == [(0,)]


def test_each_test_has_its_own_copy_of_the_schema(database: str, postgres_server: LocalPostgres) -> None:
    """A database of one test has txtopo's tables, and the template that it was copied from is closed to everybody."""
    assert query(database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'txtopo'") > [(0,)]
    with pytest.raises(psycopg2.OperationalError, match="not currently accepting connections"):
        query(with_database(postgres_server.dsn, TEMPLATE), "SELECT 1")


def test_each_test_has_its_own_zookeeper_root(zookeeper_root: str) -> None:
    """The root exists and is empty, so that a client can work below it at once."""
    with connected(zookeeper_root) as client:
        assert client.get_children("/") == []
        assert wait_until(lambda: client.exists("/") is not None, 60)
