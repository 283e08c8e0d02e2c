"""A driver that ends in order gives its lead back (R15): no standby waits for its ZooKeeper session."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import write_orders
from txtopo.app import drive_to_end
from txtopo.config import Settings
from txtopo.coordinators.election import read_queue
from txtopo.coordinators.paths import TopologyPaths
from txtopo.coordinators.zookeeper_session import open_session
from txtopo.errors import ExecutorLost, Halted
from txtopo.testing.inprocess import InProcessExecutor

SESSION_S = 60.0
"""Longer than the test: a place that waits for the end of its session is still there."""


def halts(_: InProcessExecutor) -> None:
    raise Halted("planted", next_command="-")


def fails(_: InProcessExecutor) -> None:
    raise RuntimeError("planted")


def loses_its_jvm(executor: InProcessExecutor) -> None:
    executor.broken = "the Spark driver JVM has ended"


def is_told_to_end(_: InProcessExecutor) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("event", "raised"),
    [(halts, Halted), (fails, RuntimeError), (loses_its_jvm, ExecutorLost), (is_told_to_end, None)],
    ids=["halt", "error", "lost JVM", "SIGTERM"],
)
def test_a_driver_that_ends_leaves_no_place_in_the_queue(
    event: Callable[[InProcessExecutor], None],
    raised: type[Exception] | None,
    database: str,
    zookeeper_root: str,
    tmp_path: Path,
) -> None:
    """Whatever ends it while a batch is in processing."""
    topology = orders_topology(tmp_path)
    write_orders(tmp_path, 1)
    settings = Settings(dsn=database, zookeeper=zookeeper_root, quiet=True, zookeeper_session_s=SESSION_S)
    looker = open_session(zookeeper_root, SESSION_S)
    seen: list[int] = []

    def places() -> int:
        return len(read_queue(looker, TopologyPaths(topology.name)))

    def make(topology: Any, digest: bytes, _: Any) -> InProcessExecutor:
        executor = InProcessExecutor(topology, digest)
        process = executor.process

        def struck(*args: Any, **more: Any) -> Any:
            seen.append(places())
            event(executor)
            return process(*args, **more)

        executor.process = struck  # type: ignore[method-assign]
        return executor

    def drive() -> int:
        return drive_to_end(topology, "orders.py:topology", settings, make).exit_code

    try:
        if raised is None:
            assert drive() == 143
        else:
            with pytest.raises(raised):
                drive()
        assert (seen[0], places()) == (1, 0)
    finally:
        looker.close()
