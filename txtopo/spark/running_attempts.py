"""The attempts that run now: their names and tags, how one is cancelled, and their progress."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from txtopo.core.values import TransactionAttempt
from txtopo.errors import invariant
from txtopo.spark.jobs import Run, Waited
from txtopo.spark.reports import Reports

CANCEL_AGAIN_S = 0.1
CANCEL_TRIES_MAX = 100


@dataclass(slots=True, kw_only=True, eq=False)
class _Group:
    """The attempts of one call of `process`, which share one thread: progress of one of them is progress of all."""

    tag: str
    names: Sequence[str]
    """Tag and names of the runs that are processed now."""
    before: int = 0
    """Progress of runs that were processed earlier."""
    waited: Waited = field(default_factory=Waited)


class Running:
    """The runs of one executor. Thread-safe."""

    def __init__(self, topology: str, reports: Reports, session: Callable[[], SparkSession]) -> None:
        self._topology = topology
        self._reports = reports
        self._session = session
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._runs: dict[TransactionAttempt, tuple[Run, _Group]] = {}
        self._closed = False

    def open(self, attempts: Sequence[TransactionAttempt]) -> list[Run]:
        """Begin a call of `process`; returns runs that share a tag, for the job of their wave. If the executor is
        closed, they are cancelled.
        """
        number = next(self._numbers)
        tag = f"txtopo-{self._topology}-wave-{number}"
        group = _Group(tag=tag, names=[f"{attempt}/{number}" for attempt in attempts])
        runs = [
            Run(name=name, tag=tag, attempt=attempt, waited=group.waited)
            for name, attempt in zip(group.names, attempts, strict=True)
        ]
        with self._lock:
            for run in runs:
                invariant(run.attempt not in self._runs, f"attempt {run.attempt} is being processed already")
            for run in runs:
                self._runs[run.attempt] = run, group
                if self._closed:
                    run.cancelled.set()
        for run in runs:
            self._reports.open(run.name)
        return runs

    def again(self, runs: Sequence[Run]) -> None:
        """Give runs of one wave another tag, which they share, and new names that no task of an earlier job reports
        under (K1: tasks that continue after they were cancelled).
        """
        moved = self.progress(runs[0].attempt) + 1 - runs[0].waited.looks
        for run in runs:
            self._reports.take(run.name)
        with self._lock:
            _, group = self._runs[runs[0].attempt]
            number = next(self._numbers)
            first = runs[0].attempt
            tag = f"{first.txid}-{first.attempt}" if len(runs) == 1 else f"wave-{number}"
            for run in runs:
                run.name = f"{run.attempt}/{number}"
                run.tag = f"txtopo-{self._topology}-{tag}"
            group.before, group.tag, group.names = moved, runs[0].tag, [run.name for run in runs]
        for run in runs:
            self._reports.open(run.name)

    def end(self, run: Run) -> None:
        """Forget a run and its reports. Safe to repeat."""
        run.done.set()
        with self._lock:
            known, group = self._runs.get(run.attempt, (None, None))
            if known is run and group is not None:
                del self._runs[run.attempt]
                if run.name in group.names:
                    # What it had reported stays progress of those that wait for it.
                    group.before += self._reports.received(run.name)
                    group.names = [name for name in group.names if name != run.name]
        self._reports.take(run.name)

    def progress(self, attempt: TransactionAttempt) -> int:
        """Return the number of reports received and tasks completed for an attempt and for those that it waits for; 0
        for an unknown one.
        """
        with self._lock:
            found = self._runs.get(attempt)
            if found is None:
                return 0
            _, group = found
            before, tag, names, waited = group.before, group.tag, group.names, group.waited.looks
        with contextlib.suppress(Py4JError, OSError):
            return before + waited + sum(map(self._reports.received, names)) + self._completed_tasks(tag)
        return before + waited

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Cancel an attempt; returns immediately. A thread continues until the attempt has ended, because Spark cannot
        cancel jobs that have not started yet.
        """
        with self._lock:
            run, _ = self._runs.get(attempt, (None, None))
        if run is None or run.cancelled.is_set():
            return
        run.cancelled.set()
        threading.Thread(target=self._cancel_jobs, args=(run,), name=f"cancel {attempt}", daemon=True).start()

    def close(self) -> set[str]:
        """Cancel all runs, also those that are opened later; returns the tags of their jobs. Does not call Spark."""
        with self._lock:
            self._closed = True
            runs = [run for run, _ in self._runs.values()]
        for run in runs:
            run.cancelled.set()
        return {run.tag for run in runs}

    def _cancel_jobs(self, run: Run) -> None:
        # The first cancellation misses a job that starts between the flag and the call: so repeat until the attempt has
        # ended.
        for _ in range(CANCEL_TRIES_MAX):
            if self._closed:
                return  # The caller of `close` cancels the rest by tag.
            try:
                self._session().sparkContext.cancelJobsWithTag(run.tag)
            except (Py4JError, OSError):
                return
            except Exception:
                if self._closed:
                    return  # If the session is stopped during the call, PySpark may raise anything.
                raise
            if run.done.wait(CANCEL_AGAIN_S):
                return

    def _completed_tasks(self, tag: str) -> int:
        tracker = self._session().sparkContext._jsc.sc().statusTracker()
        completed = 0
        for job in tracker.getJobIdsForTag(tag):
            info = tracker.getJobInfo(job)
            if info.isDefined():
                for stage in info.get().stageIds():
                    found = tracker.getStageInfo(stage)
                    completed += found.get().numCompletedTasks() if found.isDefined() else 0
        return completed
