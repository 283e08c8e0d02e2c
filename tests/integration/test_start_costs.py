"""What a driver asks of both stores before its first attempt: counts, since every one of them is a wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Engine, event

from tests.kit.applications import orders_topology
from tests.kit.orders import write_orders
from txtopo.app import drive_to_end
from txtopo.config import Settings
from txtopo.coordinators.zookeeper_session import ZooKeeperSession
from txtopo.testing.inprocess import InProcessExecutor


class Counts(dict[str, int]):
    """Counts until the first attempt is processed."""

    def __init__(self) -> None:
        super().__init__(connects=0, statements=0, commits=0, zookeeper_writes=0)
        self.is_over = False

    def add(self, what: str) -> None:
        if not self.is_over:
            self[what] += 1


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    found = Counts()

    def counted(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            found.add(what)
            return function(*args, **more)

        return call

    monkeypatch.setattr(psycopg2, "connect", counted("connects", psycopg2.connect))
    for name in ("create", "multi"):
        monkeypatch.setattr(ZooKeeperSession, name, counted("zookeeper_writes", getattr(ZooKeeperSession, name)))

    def committed(*_: Any) -> None:
        found.add("commits")

    def sent(*_: Any) -> None:
        found.add("statements")

    event.listen(Engine, "commit", committed)
    event.listen(Engine, "before_cursor_execute", sent)
    yield found
    event.remove(Engine, "commit", committed)
    event.remove(Engine, "before_cursor_execute", sent)


def test_the_start_of_a_driver_is_short(database: str, zookeeper_root: str, tmp_path: Path, counts: Counts) -> None:
    """From the check of the server to the first attempt, for a new topology and for one that has run. The connections
    are: one for the checks, one for the fence and all that takes the lead, and more only for work that is done at the
    same time (planning, the heartbeat, the mirror, attempts).
    """
    topology = orders_topology(tmp_path)
    settings = Settings(dsn=database, zookeeper=zookeeper_root, once=True, quiet=True, zookeeper_session_s=4.0)

    def run() -> tuple[dict[str, int], int]:
        counts.update(Counts())
        counts.is_over = False
        result = drive_to_end(topology, "orders.py:topology", settings, make)
        return dict(counts), result.last_txid

    def make(topology: Any, digest: bytes, _: Any) -> InProcessExecutor:
        executor = InProcessExecutor(topology, digest)
        process = executor.process

        def over(*args: Any, **more: Any) -> Any:
            counts.is_over = True
            return process(*args, **more)

        executor.process = over  # type: ignore[method-assign]
        return executor

    write_orders(tmp_path, 1)
    first, last_txid = run()
    assert last_txid == 1
    write_orders(tmp_path, 2)
    again, last_txid = run()

    assert last_txid == 2
    for counted, statements, zookeeper_writes in ((first, 45, 6), (again, 40, 5)):
        assert counted["connects"] <= 4 and counted["commits"] <= 11, counted
        assert counted["statements"] <= statements and counted["zookeeper_writes"] <= zookeeper_writes, counted
