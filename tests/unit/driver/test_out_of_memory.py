"""A driver without memory ends, at whatever step, and judges no batch by it: a MemoryError of the driver is nobody's
data.
"""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kit.applications import orders_topology
from tests.kit.drivers import wait_until
from tests.kit.orders import recount, write_orders
from tests.simulation.test_crash_walk import totals
from txtopo.committers.protocol import user_code
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.state import Rules
from txtopo.core.values import CommitterResult
from txtopo.driver.work_queues import ThreadWorkQueues, WorkQueue
from txtopo.errors import BatchDataError, DriverFull, raise_if_full
from txtopo.spark.session.spark_session import within
from txtopo.spouts.user_spout import errors_of
from txtopo.testing.simulated import SimulatedDriver, SimulatedStores

ONE_BY_ONE = Rules(workers=3, run_txids_max=1)
"""A commit run that fails before COMMIT is committed one by one (R25), whatever raised it."""


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_driver_without_memory_ends_at_whatever_step_and_judges_no_batch(tmp_path: Path, error: Exception) -> None:
    """The next one makes the same table; what ran is a suspect at most."""
    write_orders(tmp_path, 2, rows=3)
    topology = orders_topology(tmp_path)
    recorded: set[CrashPoint] = set()
    """Points at which the run ended in order, and the ledger has the reason."""
    for nth in range(1, 100):
        left, at = [nth], set[CrashPoint]()

        def plant(point: CrashPoint, _: int | None, left: list[int] = left, at: set[CrashPoint] = at) -> None:
            left[0] -= 1
            if left[0] == 0:
                at.add(point)
                raise error

        stores = SimulatedStores()
        crash_points.listen(plant)
        try:
            end = SimulatedDriver(topology=topology, stores=stores, seed=3, rules=ONE_BY_ONE).run()
        except type(error):
            end = None  # before there is a loop; `drive` gives it the same words
        finally:
            crash_points.listen(None)
        if left[0] > 0:
            break
        rows = stores.postgres.topologies.get("orders")
        if end is not None:
            recorded |= at
            assert end.kind == "executor_lost" and end.reason.startswith("this driver is out of memory ("), end
            assert rows is not None and (rows.life["state"], rows.life["reason"]) == ("stopped", end.reason)
        assert rows is None or {one.failure for one in rows.attempts.values()} <= {None}
        assert SimulatedDriver(topology=topology, stores=stores, seed=4).run().kind == "finished"
        assert totals(stores) == recount(tmp_path)
    assert recorded >= {CrashPoint.BEFORE_METADATA, CrashPoint.ATTEMPT_BEGUN, CrashPoint.PROCESSED, CrashPoint.APPLIED}
    assert recorded >= {CrashPoint.MIRROR_OPEN, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED, CrashPoint.CLEANED}


def test_a_memory_error_is_found_below_the_errors_that_were_made_of_it() -> None:
    with pytest.raises(DriverFull, match=r"test_out_of_memory.py:\d+: MemoryError: of the driver\); give it more"):
        try:
            try:
                raise MemoryError("of the driver")
            except MemoryError as error:
                raise BatchDataError("bolt", component="bolt") from error
        except BatchDataError as error:
            raise_if_full(error)
    raise_if_full(ValueError("MemoryError"))
    raise_if_full(RuntimeError("of a bolt"))


def _no_room(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), OSError(errno.ENOMEM, "of a fork")])
def test_no_room_for_a_thread_or_a_process_is_no_memory(error: Exception) -> None:
    with pytest.raises(DriverFull):
        raise_if_full(error)


def test_without_room_for_a_thread_python_says_what_is_expected_here() -> None:
    """The words are CPython's, and Python has no class of errors for them."""
    code = (
        "import resource, threading; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))\n"
        "while True: threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stderr
    assert said.rstrip().endswith("RuntimeError: can't start new thread")


def test_what_is_stopped_without_room_for_a_thread_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller kills a JVM for which it returns False."""
    monkeypatch.setattr(threading.Thread, "start", _no_room)
    assert not within(1.0, lambda: None)


def test_users_code_in_the_driver_is_not_blamed_for_memory() -> None:
    """A coordinator half of a spout, and a custom committer, may be the first to find none."""
    with pytest.raises(DriverFull), errors_of("spout", "next_range"):
        raise MemoryError

    class Full:
        def commit(self, *_: Any) -> int:
            raise MemoryError

    committer: Any = SimpleNamespace(name="kept", result_fields=None)
    result = CommitterResult(committer="kept", arrived=0, rows=None, row_count=0, bytes=0)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(DriverFull):
        patch.setattr(user_code, "bolt_of", lambda _: Full())
        patch.setattr(user_code, "tuples_of", lambda *_: [])
        user_code.run_commit(committer, result, cast(Any, SimpleNamespace(failure=None)), None)


def test_a_lane_that_breaks_is_heard_of_by_the_loop() -> None:
    """Else what is submitted to it later would be waited for without end."""
    queues = ThreadWorkQueues(1, 0)
    error = MemoryError()

    def broken() -> None:
        raise error

    queues.submit(WorkQueue.COMMIT, broken)
    queues.submit(WorkQueue.COMMIT, lambda: queues.inbox.put("done"))

    wait_until(lambda: queues.inbox.get(0.1) is error, "the end of the queue")
    assert queues.inbox.get(0.1) is error
    queues.close()
