"""Starting, pausing and killing driver processes, and looking at what they left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from kazoo.client import KazooClient

from tests.kit.orders import Stored, Totals
from txtopo.committers.postgres.connect import make_engine

SESSION_S = 2
DEADLINE_S = 90.0
ROOT = Path(__file__).resolve().parents[2]


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Poll until `condition` holds; fails the test at the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {deadline_s:.0f} s")
        time.sleep(0.02)


def stat_of(process: Path | int) -> list[str]:
    """Return state, parent, group and what follows in the `stat` of a process, or of a folder of /proc that has one.
    Raises OSError if it has ended.
    """
    folder = process if isinstance(process, Path) else Path(f"/proc/{process}")
    return (folder / "stat").read_text().rpartition(")")[2].split()


def is_running(pid: int) -> bool:
    """Return True while the process runs. One that has ended may stay as a zombie, if nobody waits for it."""
    try:
        return stat_of(pid)[0] != "Z"
    except OSError:
        return False


def jvm_of(pid: int) -> int | None:
    """The Spark JVM that a driver started, once it is Java; None before, also while it asks a Java for its version."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(stat_of(entry)[1])
            is_java = (entry / "comm").read_text().strip() == "java"
            if parent == pid and is_java and b"-version" not in (entry / "cmdline").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    return None


def pause(pid: int) -> None:
    """SIGSTOP, and wait until every thread has stopped: the signal is under way for a moment, in which a server still
    answers.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_stopped(pid), f"the stop of process {pid}")


def _is_stopped(pid: int) -> bool:
    try:
        states = [stat_of(thread)[0] for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False  # a thread ended meanwhile
    return bool(states) and set(states) == {"T"}


@dataclass
class DriverProcess:
    """One driver with its output in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Its exit code; negative for a signal."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the driver did not end within {deadline_s:.0f} s; it said:\n{self.output()}"
            ) from None

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def pause(self) -> None:
        """SIGSTOP."""
        pause(self.process.pid)

    def wake(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    @property
    def is_stopped(self) -> bool:
        """Is it stopped by a signal?"""
        return _is_stopped(self.process.pid)


@dataclass
class World:
    """Both stores, a folder of input, and the drivers started on them."""

    dsn: str
    zookeeper: str
    folder: Path
    logs: Path
    started: list[DriverProcess] = field(default_factory=list)

    def start(
        self,
        *,
        failpoints: str = "",
        once: bool = True,
        module: tuple[str, ...] = ("tests.kit.driver",),
        **settings: str,
    ) -> DriverProcess:
        """Start a driver on the folder."""
        environment = {**self.environment(once=once), "TXTOPO_FAILPOINTS": failpoints, **settings}
        log = self.logs / f"driver_{len(self.started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", *module, str(self.folder)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        driver = DriverProcess(process, log)
        self.started.append(driver)
        return driver

    def environment(self, *, once: bool) -> dict[str, str]:
        """Of a driver process."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TXTOPO_", "DRIVER_"))},
            "TXTOPO_DSN": self.dsn,
            "TXTOPO_ZK": self.zookeeper,
            "TXTOPO_ZOOKEEPER_SESSION_S": str(SESSION_S),
            "DRIVER_ONCE": "1" if once else "0",
            "TXTOPO_TESTING": "1",
        }

    def close(self) -> None:
        """Kill what still runs."""
        for driver in self.started:
            if driver.process.poll() is None:
                driver.process.kill()
                driver.process.wait(30)

    def totals(self, table: str = "order_totals") -> Totals:
        """The target table as a whole."""
        return {
            (row[0], row[1]): (int(row[2]), Decimal(row[3]), Decimal(row[4]))
            for row in self.query(f"select shop, article, rows, pieces, price from {table}")
        }

    def stored(self) -> Stored:
        """The tables of rows as a whole."""
        fields = "shop, article, pieces, price"
        columns = {"order_rows": f"txid, {fields}", "order_last": fields, "order_prices": f"txid, {fields}"}
        return {
            table: sorted(map(repr, self.query(f"select {names} from {table}"))) for table, names in columns.items()
        }

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a statement of the test's own."""
        engine = make_engine(self.dsn, "test")
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(sa.text(sql))]
        finally:
            engine.dispose()

    def execute(self, sql: str) -> None:
        """A statement of the test's own, committed."""
        engine = make_engine(self.dsn, "test")
        try:
            with engine.begin() as connection:
                connection.execute(sa.text(sql))
        finally:
            engine.dispose()

    def last_txid(self) -> int:
        """How far the topology got; 0 before there is a ledger."""
        rows = self.query("select coalesce(max(last_txid), 0) from txtopo.fence")
        return int(str(rows[0][0]))

    def check_ledger(self, batches: int, committers: int = 1) -> None:
        """The ledger holds each txid once, in order, with growing epochs, and the counts of each committer add up."""
        rows = self.query(
            "select txid, epoch, state, read, rejected from txtopo.ledger where txid > 0 order by committed_at, txid"
        )
        assert [row[0] for row in rows] == list(range(1, batches + 1))
        epochs = [int(str(row[1])) for row in rows]
        assert epochs == sorted(epochs)
        assert {row[2] for row in rows} == {"applied"}
        counted = self.query("select sum(counted), sum(arrived) from txtopo.committer_count")
        assert counted[0][0] == counted[0][1] == committers * sum(int(str(row[3])) for row in rows)

    def check_nothing_left_over(self, topology: str = "orders", planned: int = 0) -> None:
        """No session, lock or node of a dead driver: nobody stands in the queue, no database transaction is open,
        metadata only of kept batches, and of so many that are planned.
        """
        self.wait_for_end_of_sessions()
        with zookeeper_client(self.zookeeper) as client:
            wait_until(lambda: not _children(client, f"/{topology}/leader"), "an empty queue of candidates")
            left = sorted(int(name) for name in _children(client, f"/{topology}/coordinator/meta"))
        assert all(txid <= self.last_txid() + planned for txid in left)

    def wait_for_end_of_sessions(self) -> None:
        """The server has noticed each driver that is dead: what it was told to commit is committed."""
        wait_until(lambda: self._sessions() == [], "the end of every database session")

    def _sessions(self) -> list[tuple[Any, ...]]:
        return self.query(
            "select application_name from pg_stat_activity where application_name like 'txtopo/%' and datname = "
            "current_database()"
        )


def _children(client: KazooClient, path: str) -> list[str]:
    return list(client.get_children(path)) if client.exists(path) else []


@contextmanager
def zookeeper_client(hosts: str) -> Iterator[KazooClient]:
    """A client of the test's own."""
    client = KazooClient(hosts=hosts)
    client.start(timeout=15)
    try:
        yield client
    finally:
        client.stop()
        client.close()
