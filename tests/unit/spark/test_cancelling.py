"""Cancelling goes on until an attempt has ended, and ends in silence where Spark is stopped meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from txtopo.core.values import TransactionAttempt
from txtopo.spark.running_attempts import Running

ATTEMPT = TransactionAttempt(7, 0)


class NoReports:
    """Nothing was reported."""

    def open(self, name: str) -> None:
        """See Reports."""

    def take(self, name: str) -> None:
        """See Reports."""

    def received(self, name: str) -> int:
        """See Reports."""
        return 0


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What threads left unhandled: Python prints it, so the operator sees a trace."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda given: found.append(given.exc_value))
    return found


def cancelled(answer: Callable[[Running, list[str]], None]) -> list[str]:
    """The calls of Spark that cancelling one attempt makes, each of which is answered so."""
    calls: list[str] = []

    def cancel(tag: str) -> None:
        calls.append(tag)
        answer(running, calls)

    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobsWithTag=cancel))
    reports: Any = NoReports()
    running = Running("t", reports, lambda: session)
    running.open([ATTEMPT])
    running.cancel(ATTEMPT)
    for thread in threading.enumerate():
        if thread.name == f"cancel {ATTEMPT}":
            thread.join(60)
    return calls


def test_a_spark_that_is_stopped_in_the_midst_of_a_cancellation_leaves_no_trace(raised: list[Any]) -> None:
    """Ctrl-C cancels what runs and stops Spark; PySpark then fails with an AssertionError, which is nobody's concern."""  # noqa: E501

    def stopped(running: Running, _: list[str]) -> None:
        running.close()
        raise AssertionError

    assert len(cancelled(stopped)) == 1
    assert raised == []


def test_a_closed_executor_is_asked_for_nothing_more(raised: list[Any]) -> None:
    """Cancelling is repeated until the attempt has ended, but not beyond the life of the session."""

    def closed_at_the_second(running: Running, calls: list[str]) -> None:
        if len(calls) == 2:
            running.close()

    assert len(cancelled(closed_at_the_second)) == 2
    assert raised == []


def test_trouble_of_a_living_spark_is_not_hushed_up(raised: list[Any]) -> None:
    """Only an executor that is closed may fail in silence."""

    def broken(_: Running, __: list[str]) -> None:
        raise AssertionError("what is this?")

    assert len(cancelled(broken)) == 1
    assert [str(error) for error in raised] == ["what is this?"]
