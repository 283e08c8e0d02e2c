"""How many copies of a plan there are, and who waits for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.drivers import wait_until
from txtopo.spark import plan_copies
from txtopo.spark.jobs import Run
from txtopo.spark.plan_copies import Copies
from txtopo.spark.reports import Reports
from txtopo.spark.signatures import new_copy


class Compiled:
    def __init__(self) -> None:
        self.copy = new_copy()


class Compiling:
    """Makes copies, and counts them."""

    def __init__(self) -> None:
        self.made: list[Compiled | None] = []
        self.then: Callable[[], Compiled | None] = Compiled

    def __call__(self, runs: Sequence[Run]) -> Compiled | None:
        self.made.append(None)
        self.made[-1] = self.then()
        return self.made[-1]


@pytest.fixture
def compiling() -> Compiling:
    return Compiling()


def copies_of(compiling: Compiling, cores: int) -> Copies[Compiled]:
    context = SimpleNamespace(setLocalProperty=lambda name, value: None)
    jobs: Any = SimpleNamespace(reports=Reports(), spark=SimpleNamespace(sparkContext=context))
    return Copies(jobs, Compiled(), compiling, cores=cores)


def waiting(copies: Copies[Compiled], threads: int) -> Callable[[], bool]:
    return lambda: len(copies._changed._waiters) == threads  # type: ignore[attr-defined]


def test_threads_wait_for_a_copy_if_there_are_as_many_as_cores(
    compiling: Compiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further copy takes CPU from the tasks that keep the cores busy."""
    monkeypatch.setattr(plan_copies, "WAIT_S_MAX", 3600.0)
    copies = copies_of(compiling, cores=2)
    found: list[Compiled | None] = []

    def use() -> None:
        with copies.taken() as copy:
            found.append(copy)

    with ThreadPoolExecutor(3) as pool:
        with copies.taken() as one, copies.taken() as two:
            for _ in range(3):
                pool.submit(use)
            wait_until(waiting(copies, 3), "three threads wait")
            assert found == []
    assert len(found) == 3 and set(found) <= {one, two}
    assert compiling.made == [two]


def test_a_further_copy_is_made_for_a_thread_that_has_waited_for_one(
    compiling: Compiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that never ends, with nobody to cancel it, must not keep the plan from all others."""
    monkeypatch.setattr(plan_copies, "WAIT_S_MAX", 0.0)
    copies = copies_of(compiling, cores=1)

    with copies.taken() as one, copies.taken() as two, copies.taken() as three:
        assert len({one, two, three}) == 3
    assert compiling.made == [two, three]


@pytest.mark.parametrize("failure", ["raises", "another plan"])
def test_a_copy_that_could_not_be_made_is_not_waited_for(
    compiling: Compiling, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """Neither counts it among the copies that may become free, nor is it kept."""
    monkeypatch.setattr(plan_copies, "WAIT_S_MAX", 3600.0)
    copies = copies_of(compiling, cores=2)

    def broken() -> None:
        if failure == "raises":
            raise ValueError("bolt")

    def take() -> Compiled | None:
        with copies.taken() as copy:
            return copy

    compiling.then = broken
    with ThreadPoolExecutor(1) as pool, copies.taken() as first:
        if failure == "raises":
            with pytest.raises(ValueError, match="bolt"), copies.taken():
                pass
            compiling.then = Compiled
            second = take()
        else:
            with copies.taken() as nothing:
                assert nothing is None
                compiling.then = Compiled
                waits = pool.submit(take)
                wait_until(waiting(copies, 1), "a thread waits")
            second = waits.result()
        assert second not in (None, first)


def test_at_the_start_so_many_copies_are_made_as_batches_use_at_the_same_time(compiling: Compiling) -> None:
    for cores, made in ((1, 0), (2, 1), (64, 1)):
        compiling.made.clear()
        copies_of(compiling, cores).prepare()
        assert len(compiling.made) == made


def test_every_copy_runs_over_nothing_at_the_start_and_threads_share_them(compiling: Compiling) -> None:
    """A copy that did not run is slow with its first batch; none is made only to run over nothing."""
    copies = copies_of(compiling, cores=2)
    copies.prepare()
    with ExitStack() as stack:
        used = [stack.enter_context(copies.over_nothing()) for _ in range(5)]
        assert sorted(map(used.count, set(used))) == [2, 3]
    assert len(compiling.made) == 1
    with copies.taken() as one, copies.taken() as two:
        assert {one, two} == set(used), "they are free again"


def test_two_threads_that_take_a_copy_at_once_never_have_the_same(compiling: Compiling) -> None:
    copies = copies_of(compiling, cores=2)
    together = threading.Barrier(2, timeout=60)

    def use(_: int) -> Compiled | None:
        with copies.taken() as copy:
            together.wait()
            return copy

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(use, range(2))
    assert one is not two
