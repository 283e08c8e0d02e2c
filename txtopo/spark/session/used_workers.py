"""Ends a Python worker that is full of what earlier tasks left in it, so that a fresh one tries its task again and no
batch fails over it.

Spark's workers serve task after task, and a bolt that keeps something in its module keeps it over batches. What a task
reports to the driver leaves its worker alive, full as it is; only an error ends it.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark import TaskContext

from txtopo.core.values import Failure
from txtopo.tuples.user_errors import is_of_memory


class UsedWorkerError(Exception):
    """A task found no memory in a worker that had run others before. Never told of a task that is a worker's first: it
    is to blame itself.
    """


class _Worker:
    """This process."""

    first: int | None = None
    """The task that it was started for."""


def begins() -> None:
    """A task begins in this process."""
    context = TaskContext.get()
    if _Worker.first is None and context is not None:
        _Worker.first = context.taskAttemptId()


def end_if_used(failures: Iterable[Failure]) -> None:
    """Called before a task reports these failures. Raises UsedWorkerError, which ends the worker, where one may come of
    what earlier tasks left.
    """
    context = TaskContext.get()
    if context is None or _Worker.first in (None, context.taskAttemptId()):
        return
    for failure in failures:
        if is_of_memory(failure.message):
            raise UsedWorkerError(f"no memory left in a worker that ran other tasks before: {failure.message}")
