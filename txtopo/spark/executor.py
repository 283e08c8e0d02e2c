"""The Executor port on Spark: one job for each attempt and committer, results by Arrow, counts by keyed reports."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from txtopo.core.values import CommitterResult, Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError, ConfigurationError, TopologyError, broken, invariant
from txtopo.ports import Assignment
from txtopo.spark.failures import JVM_GONE, building_error, classify, is_about_size, is_jvm_gone
from txtopo.spark.jobs import JobError, Jobs, Run, Work
from txtopo.spark.plan import Compiled, Compiler, Reusable
from txtopo.spark.reports import Reports, ReportsParam
from txtopo.spark.searching import BadRows
from txtopo.spark.session import SessionOptions, check_settings, jvm_ended, start_session, stop_session
from txtopo.spark.shipping import package_version, ship
from txtopo.spark.verdict import PartReports, edges, emitter_failure, judge, rejected_rows
from txtopo.topology.components import Topology

CANCEL_AGAIN_S = 0.1
CANCEL_TRIES_MAX = 100
WARM_UP_JOBS_MAX = 8


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
        self._runs: dict[TransactionAttempt, Run] = {}
        self._jobs: Jobs | None = None
        self._bad_rows: BadRows | None = None
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
        compiler = Compiler(self.spark, self._topology, self._code_hash, accumulator)
        try:
            compiler.check()
            self._reusable, columns = compiler.reusable()
        except (TopologyError, BatchDataError):
            raise
        except Exception as error:
            raise building_error(error, self._bolt_names or "topology") from error
        self._jobs = Jobs(self.spark, self._topology, compiler, self._reusable)
        self._bad_rows = BadRows(self._topology, self._jobs, self._reports, self._failure, columns)
        if self._reusable is not None:
            self._warm_up(self._jobs, self._reusable.compiled)

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

    def _warm_up(self, jobs: Jobs, compiled: Compiled) -> None:
        """Run the plan over nothing, once a core at the same time: code is generated and Python workers are there before the first batch comes."""

        missing: list[str] = []

        def run() -> None:
            try:
                jobs.warm_up(compiled)
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
            work, results = self._run_jobs(run, assignment)
        except Exception as error:
            # Trouble of a batch or of Spark is an outcome, never an exception.
            return Failed(attempt=attempt, failure=self._explained(error, run, assignment))
        finally:
            reports = self._end(run)
        failure = judge(
            self._topology, work.counts, reports, results, code_hash=self._code_hash, version=package_version()
        )
        if failure is not None:
            return Failed(attempt=attempt, failure=failure)
        every = [report for (report,) in reports.values()]
        return Processed(
            attempt=attempt,
            code_hash=every[0].code_hash,
            read=sum(report.read for report in every),
            rejected=sum(report.rejected for report in every),
            rejected_rows=rejected_rows(self._topology, reports),
            results=tuple(results),
            edges=edges(self._topology, reports, results),
            spans={"processing": time.monotonic() - began},
        )

    def _run_jobs(self, run: Run, assignment: Assignment) -> tuple[Work, list[CommitterResult]]:
        jobs = self._jobs if self._jobs is not None else broken("the executor was not started")
        work = jobs.split(assignment)
        return work, jobs.results(run, work)

    def _explained(self, error: Exception, run: Run, assignment: Assignment) -> Failure:
        """The failure of an attempt, with the bad row where a job failed on data and the emitter does not name it already."""
        reports = self._reports.so_far(run.name)
        failure = self._failure(error, run, reports)
        searchable = isinstance(error, JobError) and not is_about_size(error.__cause__) and not run.cancelled.is_set()
        if (
            failure.kind != "data"
            or failure.position is not None
            or not searchable
            or emitter_failure(reports) is not None
        ):
            return failure
        if self._jobs is None or self._bad_rows is None:
            broken("a job failed before the executor was started")
        return self._bad_rows.explain(run, self._jobs.split(assignment), failure)

    def _failure(self, error: Exception, run: Run, reports: PartReports) -> Failure:
        cause: BaseException = error.__cause__ if isinstance(error, JobError) and error.__cause__ is not None else error
        if is_jvm_gone(cause) or jvm_ended():
            self.broken = JVM_GONE
            return Failure(kind="infrastructure", message=JVM_GONE, detail=str(cause))
        component = error.component if isinstance(error, JobError) else self._bolt_names
        cancelled = run.cancelled.is_set()
        failure = classify(cause, component=component or None, cancelled=cancelled)
        # The emitter knows best: what Spark saw may have followed from its early end.
        return failure if cancelled else emitter_failure(reports) or failure

    def _open(self, attempt: TransactionAttempt) -> Run:
        run = Run(
            name=f"{attempt}/{next(self._numbers)}",
            tag=f"txtopo-{self._topology.name}-{attempt.txid}-{attempt.attempt}",
            attempt=attempt,
        )
        with self._lock:
            invariant(attempt not in self._runs, f"attempt {attempt} is being processed already")
            if self._closed:
                run.cancelled.set()
            self._runs[attempt] = run
        self._reports.open(run.name)
        return run

    def _end(self, run: Run) -> PartReports:
        run.done.set()
        with self._lock:
            del self._runs[run.attempt]
        return self._reports.take(run.name)

    def _cancel_jobs(self, run: Run) -> None:
        # A job that starts between the flag and the first cancellation would be missed: so again until the attempt has ended.
        for _ in range(CANCEL_TRIES_MAX):
            try:
                self.spark.sparkContext.cancelJobsWithTag(run.tag)
            except (Py4JError, OSError):
                return
            if run.done.wait(CANCEL_AGAIN_S):
                return

    def _completed_tasks(self, run: Run) -> int:
        tracker = self.spark.sparkContext._jsc.sc().statusTracker()
        completed = 0
        for job in tracker.getJobIdsForTag(run.tag):
            info = tracker.getJobInfo(job)
            if info.isDefined():
                for stage in info.get().stageIds():
                    found = tracker.getStageInfo(stage)
                    completed += found.get().numCompletedTasks() if found.isDefined() else 0
        return completed
