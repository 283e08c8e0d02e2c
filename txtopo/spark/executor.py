"""The Executor port on Spark: one job for each attempt and committer, results by Arrow, counts by keyed reports."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from txtopo.core.limits import RESULTS_BYTES_MAX
from txtopo.core.values import CommitterResult, Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError, ConfigurationError, TopologyError, broken, invariant
from txtopo.ports import Assignment
from txtopo.spark.aggregate import Counted, result_of
from txtopo.spark.emitting import ORDER_PROPERTY
from txtopo.spark.failures import JVM_GONE, building_error, classify, is_jvm_gone
from txtopo.spark.plan import Compiled, Compiler, Reusable
from txtopo.spark.reports import Reports, ReportsParam
from txtopo.spark.session import SessionOptions, check_settings, jvm_ended, start_session, stop_session
from txtopo.spark.shipping import package_version, ship
from txtopo.spark.verdict import PartReports, edges, emitter_failure, judge
from txtopo.topology.components import Topology

ORDER_BYTES_MAX = 512 * 1024
"""A longer order travels inside the plan, since local properties are sent again with every task."""
CANCEL_AGAIN_S = 0.1
CANCEL_TRIES_MAX = 100
WARM_UP_JOBS_MAX = 8
_DESCRIPTION = "spark.job.description"


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    """One attempt while it is being processed."""

    name: str
    """Differs for every call of `process`, also for the same attempt: late reports of an earlier call must not be taken for this one's (K1)."""
    tag: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class _CancelledError(Exception):
    """The attempt was cancelled between two of its jobs."""


class _JobError(Exception):
    """A job ended with the cause of this error."""

    def __init__(self, component: str) -> None:
        super().__init__(component)
        self.component = component


class SparkExecutor:
    """Runs the processing phase on Spark. Hand over `options` to let it start (and stop) a session, or a `session` of your own.

    The attempts of a wave run one after the other in the calling thread, each by its own jobs. Several threads may call `process` at once.
    """

    broken: str | None = None
    """Why this process cannot go on (K11): the driver should end and a new process take over."""

    def __init__(
        self,
        topology: Topology,
        code_hash: bytes,
        *,
        options: SessionOptions | None = None,
        session: SparkSession | None = None,
        py_files: tuple[str, ...] = (),
    ) -> None:
        invariant((options is None) != (session is None), "SparkExecutor needs either options or a session")
        self._topology = topology
        self._code_hash = code_hash
        self._options = options
        self._spark = session
        self._py_files = py_files
        self._reports = Reports()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._runs: dict[TransactionAttempt, _Run] = {}
        self._compiler: Compiler | None = None
        self._reusable: Reusable | None = None
        self._bolt_names = ", ".join(bolt.name for bolt in topology.bolts)
        """Spark does not tell which bolt an expression came from: where there are several, all are named."""
        self._closed = False

    @property
    def spark(self) -> SparkSession:
        """The session, after `start`."""
        return self._spark if self._spark is not None else broken("the executor was not started")

    def start(self) -> None:
        """See Executor.start. Raises ConfigurationError when Spark does not start or has settings that change results."""
        if self._spark is None and self._options is not None:
            self._spark = start_session(self._options)
        else:
            check_settings(self.spark)
        ship(self.spark, self._topology, self._py_files)
        accumulator = self.spark.sparkContext.accumulator(self._reports, ReportsParam())
        self._compiler = Compiler(self.spark, self._topology, self._code_hash, accumulator)
        try:
            self._compiler.check()
            self._reusable = self._compiler.reusable()
        except (TopologyError, BatchDataError):
            raise
        except Exception as error:
            raise building_error(error, self._bolt_names or "topology") from error
        if self._reusable is not None:
            self._warm_up(self._reusable.compiled)

    def process(self, wave: Sequence[Assignment]) -> Sequence[Outcome]:
        """See Executor.process."""
        return [self._process(assignment) for assignment in wave]

    def cancel(self, attempt: TransactionAttempt) -> None:
        """See Executor.cancel. Returns at once; a thread goes on until the attempt has ended, since Spark cannot cancel jobs yet to come."""
        with self._lock:
            run = self._runs.get(attempt)
        if run is None or run.cancelled.is_set():
            return
        run.cancelled.set()
        threading.Thread(target=self._cancel_jobs, args=(run,), name=f"cancel {attempt}", daemon=True).start()

    def progress(self, attempt: TransactionAttempt) -> int:
        """See Executor.progress: reports received and tasks completed."""
        with self._lock:
            run = self._runs.get(attempt)
        if run is None:
            return 0
        with contextlib.suppress(Py4JError, OSError):
            return self._reports.received(run.name) + self._completed_tasks(run)
        return 0

    def close(self) -> None:
        """See Executor.close."""
        with self._lock:
            already, self._closed = self._closed, True
            runs = list(self._runs.values())
        for run in runs:
            run.cancelled.set()
        if already or self._spark is None:
            return
        if self.broken is None:
            for run in runs:
                with contextlib.suppress(Py4JError, OSError):
                    self.spark.sparkContext.cancelJobsWithTag(run.tag)
        if self._options is not None:
            stop_session()

    def _warm_up(self, compiled: Compiled) -> None:
        """Run the plan over nothing, once a core at the same time: code is generated and Python workers are there before the first batch comes."""

        missing: list[str] = []

        def run() -> None:
            try:
                for counted in compiled.counted:
                    _collect_batches(counted.frame)
            except Exception as error:  # most of what it may be the first batch meets too, and can name itself
                missing.extend(line.strip() for line in str(error).splitlines() if "ModuleNotFoundError" in line)

        cores = min(self.spark.sparkContext.defaultParallelism, WARM_UP_JOBS_MAX)
        threads = [threading.Thread(target=run, name=f"warm-up {number}", daemon=True) for number in range(cores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if missing:
            raise ConfigurationError(
                f"the Python of Spark's workers lacks a module: {missing[0]}; point PYSPARK_PYTHON at one that has txtopo installed"
            )

    def _process(self, assignment: Assignment) -> Outcome:
        attempt = assignment.attempt
        began = time.monotonic()
        run = self._open(attempt)
        try:
            parts, results = self._run_jobs(run, assignment)
        except Exception as error:
            # Trouble of a batch or of Spark is an outcome, never an exception.
            reports = self._end(run, attempt)
            return Failed(attempt=attempt, failure=self._failure(error, run, reports))
        reports = self._end(run, attempt)
        failure = judge(self._topology, parts, reports, results, code_hash=self._code_hash, version=package_version())
        if failure is not None:
            return Failed(attempt=attempt, failure=failure)
        every = [report for (report,) in reports.values()]
        return Processed(
            attempt=attempt,
            code_hash=every[0].code_hash,
            read=sum(report.read for report in every),
            rejected=sum(report.rejected for report in every),
            results=tuple(results),
            edges=edges(self._topology, reports, results),
            spans={"processing": time.monotonic() - began},
        )

    def _run_jobs(self, run: _Run, assignment: Assignment) -> tuple[Mapping[str, int], list[CommitterResult]]:
        parts = {item.name: list(item.spout.parts(assignment.metadata[item.name])) for item in self._topology.spouts}
        invariant(all(parts.values()), "a spout split a batch into no part")
        counts = {name: len(found) for name, found in parts.items()}
        reusable = self._reusable if all(count == 1 for count in counts.values()) else None
        order = self._order(run, assignment, parts, reusable.needed if reusable else {})
        small = len(order) <= ORDER_BYTES_MAX
        with self._thread_properties(run, order if small else None, assignment.attempt):
            # A bolt may run jobs of its own while it is called: those carry the order and the tag as well.
            compiled = reusable.compiled if reusable and small else self._plan(counts, None if small else order)
            return counts, [self._collect(run, counted) for counted in compiled.counted]

    def _order(
        self, run: _Run, assignment: Assignment, parts: Mapping[str, Sequence[Any]], needed: Mapping[str, Sequence[str]]
    ) -> str:
        spouts = {
            item.name: {
                "metadata": assignment.metadata[item.name],
                "parts": parts[item.name],
                "needed": needed.get(item.name),
            }
            for item in self._topology.spouts
        }
        return json.dumps({"run": run.name, "spouts": spouts}, separators=(",", ":"))

    def _plan(self, counts: Mapping[str, int], order: str | None) -> Compiled:
        if self._compiler is None:
            broken("the executor was not started")
        return self._compiler.compile(counts, order)

    def _collect(self, run: _Run, counted: Counted) -> CommitterResult:
        if run.cancelled.is_set():
            raise _CancelledError
        try:
            # Record batches of bounded size arrive one by one; Spark ends the job when they are larger than `spark.driver.maxResultSize`.
            result = result_of(counted, _collect_batches(counted.frame))
        except Exception as error:
            # A failure that nothing else is known about belongs to the bolts, or to the committer's own sums where there are none.
            raise _JobError(self._bolt_names or counted.name) from error
        if result.bytes > RESULTS_BYTES_MAX:
            raise BatchDataError(
                f"results exceed {RESULTS_BYTES_MAX // 2**20} MiB ({result.bytes / 2**20:.0f} MiB)",
                component=counted.name,
            )
        return result

    def _failure(self, error: Exception, run: _Run, reports: PartReports) -> Failure:
        cause: BaseException = (
            error.__cause__ if isinstance(error, _JobError) and error.__cause__ is not None else error
        )
        if is_jvm_gone(cause) or jvm_ended():
            self.broken = JVM_GONE
            return Failure(kind="infrastructure", message=JVM_GONE, detail=str(cause))
        component = error.component if isinstance(error, _JobError) else self._bolt_names
        cancelled = run.cancelled.is_set()
        failure = classify(cause, component=component or None, cancelled=cancelled)
        # The emitter knows best: what Spark saw may have followed from its early end.
        return failure if cancelled else emitter_failure(reports) or failure

    @contextlib.contextmanager
    def _thread_properties(self, run: _Run, order: str | None, attempt: TransactionAttempt) -> Iterator[None]:
        """Mark the jobs of this thread as the attempt's. Worker threads are reused, so everything is taken off again."""
        context: Any = self.spark.sparkContext
        context.setLocalProperty(ORDER_PROPERTY, order)
        context.setLocalProperty(_DESCRIPTION, f"{self._topology.name} batch {attempt}")
        context.addJobTag(run.tag)
        try:
            yield
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.removeJobTag(run.tag)
                context.setLocalProperty(ORDER_PROPERTY, None)
                context.setLocalProperty(_DESCRIPTION, None)

    def _open(self, attempt: TransactionAttempt) -> _Run:
        run = _Run(
            name=f"{attempt}/{next(self._numbers)}",
            tag=f"txtopo-{self._topology.name}-{attempt.txid}-{attempt.attempt}",
        )
        with self._lock:
            invariant(attempt not in self._runs, f"attempt {attempt} is being processed already")
            if self._closed:
                run.cancelled.set()
            self._runs[attempt] = run
        self._reports.open(run.name)
        return run

    def _end(self, run: _Run, attempt: TransactionAttempt) -> PartReports:
        run.done.set()
        with self._lock:
            del self._runs[attempt]
        return self._reports.take(run.name)

    def _cancel_jobs(self, run: _Run) -> None:
        # A job that starts between the flag and the first cancellation would be missed: so again until the attempt has ended.
        for _ in range(CANCEL_TRIES_MAX):
            try:
                self.spark.sparkContext.cancelJobsWithTag(run.tag)
            except (Py4JError, OSError):
                return
            if run.done.wait(CANCEL_AGAIN_S):
                return

    def _completed_tasks(self, run: _Run) -> int:
        tracker = self.spark.sparkContext._jsc.sc().statusTracker()
        completed = 0
        for job in tracker.getJobIdsForTag(run.tag):
            info = tracker.getJobInfo(job)
            if info.isDefined():
                for stage in info.get().stageIds():
                    found = tracker.getStageInfo(stage)
                    completed += found.get().numCompletedTasks() if found.isDefined() else 0
        return completed


def _collect_batches(frame: Any) -> list[pa.RecordBatch]:
    """All rows as Arrow batches of bounded size. The public `toArrow` asks for the schema again for every batch."""
    return list(frame._collect_as_arrow())
