"""Ends a Python worker that is full of what earlier tasks left in it, so that a fresh one tries its task again and no
batch fails because of it.

Spark's workers run task after task, and what a bolt keeps in its module stays there across batches. A report to the
driver keeps its worker alive, full as it is; only an error ends it.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark import TaskContext

from txtopo.core.values import Failure
from txtopo.tuples.user_errors import is_of_memory


class UsedWorkerError(Exception):
    """A task found no memory in a worker that had run others before. Never raised for a task that is a worker's first:
    that task itself is the cause.
    """


class _Worker:
    """Id of this process."""

    first: int | None = None
    """Number of the task that it was started for."""


def begins() -> None:
    """Note that a task begins in this process."""
    context = TaskContext.get()
    if _Worker.first is None and context is not None:
        _Worker.first = context.taskAttemptId()


def end_if_used(failures: Iterable[Failure]) -> None:
    """Called before a task reports these failures. Raises UsedWorkerError, which ends the worker, if one of them may be
    a consequence of what earlier tasks left.
    """
    context = TaskContext.get()
    if context is None or _Worker.first in (None, context.taskAttemptId()):
        return
    for failure in failures:
        if is_of_memory(failure.message):
            raise UsedWorkerError(f"no memory left in a worker that ran other tasks before: {failure.message}")
