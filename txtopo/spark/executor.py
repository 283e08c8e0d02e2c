"""The Executor port on Spark: starts the session, makes the jobs of the topology, and keeps waves and attempts that run
at the same time separate.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from txtopo.config import Settings
from txtopo.core import limits
from txtopo.core.values import Failure, Outcome, TransactionAttempt
from txtopo.errors import ConfigurationError, ExecutorLost, invariant, raise_if_full, unreachable
from txtopo.ports import Assignment, Staging, Tell, tell_nobody
from txtopo.spark.failures import CONTEXT_GONE, JVM_GONE, classify, is_context_gone, is_jvm_gone
from txtopo.spark.frames.frame_jobs import FrameJobs
from txtopo.spark.jobs import JobContext, JobError, Judge, Run, RunReports, Say, WaveJobs
from txtopo.spark.reports import Reports, ReportsParam
from txtopo.spark.running_attempts import Running
from txtopo.spark.session.python_workers import check_workers
from txtopo.spark.session.ship_modules import ship
from txtopo.spark.session.spark_session import (
    SessionOptions,
    check_settings,
    hear_of_lost_reports,
    jvm_ended,
    start_session,
    stop_session,
    within,
)
from txtopo.spark.session.time_zones import check_zones
from txtopo.spark.waves import Waves
from txtopo.topology.components import Topology

WARM_UP_JOBS_MAX = 8
CANCEL_S = 10.0
"""Seconds that a session which the caller passed gets to cancel what runs in it."""


class SparkExecutor:
    """Runs the processing phase on Spark. Pass `options` to let it start (and stop) a session, or pass an existing
    `session`.

    The calling thread processes a wave, in one job if that cannot change the results. Several threads may call
    `process` at the same time.
    """

    broken: str | None = None
    """Why this process cannot continue, for example because the Spark driver JVM died (K11: the driver's JVM dies); the
    driver should end so that a new process takes over. None while it can continue.
    """

    def __init__(
        self,
        topology: Topology,
        code_hash: bytes,
        *,
        options: SessionOptions | None = None,
        session: SparkSession | None = None,
        py_files: tuple[str, ...] = (),
        say: Say | None = None,
        ackers: int | None = None,
    ) -> None:
        """`say` tells the operator that waves are off; without it a warning is logged. `ackers` is the number of acker
        tasks if the topology acks by tuple; None: the number in the topology's config, otherwise the default.
        """
        invariant((options is None) != (session is None), "SparkExecutor needs either options or a session")
        self._topology = topology
        self._code_hash = code_hash
        self._options = options
        self._spark = session
        self._py_files = py_files
        self.say = say
        """Tells the operator that waves are off; `start` reads it."""
        self.note: Say | None = None
        """Tells the operator how far the start is."""
        self._ackers = Settings().with_topology(topology.config).ackers if ackers is None else ackers
        self._reports = Reports()
        self._running = Running(topology.name, self._reports, lambda: self.spark)
        self._jobs: WaveJobs | None = None
        self._waves: Waves | None = None
        self._bolt_names = ", ".join(bolt.name for bolt in topology.bolts)
        """Spark does not name the bolt that an expression came from: if there are several, all are named."""
        self._lock = threading.Lock()
        self._closed = False
        self._reports_lost: str | None = None
        self._staging: Staging | None = None

    @property
    def spark(self) -> SparkSession:
        """The session; available after `start`."""
        return self._spark if self._spark is not None else unreachable("the executor was not started")

    @property
    def one_by_one(self) -> str | None:
        """See Executor.one_by_one."""
        return self._waves.one_by_one if self._waves is not None else None

    @property
    def waves_proven(self) -> bool:
        """See Executor.waves_proven."""
        return self._waves is not None and self._waves.proven

    def start(self) -> None:
        """See Executor.start. Raises ConfigurationError if Spark does not start or has settings that change results,
        ExecutorLost if its JVM dies.
        """
        try:
            self._start()
        except Exception as error:
            raise_if_full(error)
            if self._spark is not None and (jvm_ended() or _came_of_the_jvm(error)):
                # The JVM is the cause, not the call that failed.
                raise ExecutorLost(f"{JVM_GONE}; start `txtopo run` again") from error
            raise

    def _start(self) -> None:
        if self._spark is None and self._options is not None:
            began = time.monotonic()
            self._spark = start_session(self._options)
            if self.note is not None:
                seconds = time.monotonic() - began
                self.note(f"Spark is up after {seconds:.1f} s; starting its workers and trying the plans over no rows")
        else:
            check_settings(self.spark)
        hear_of_lost_reports(self.spark, self._lose_reports)
        ship(self.spark, self._topology, self._py_files)
        check_workers(self.spark)
        check_zones(self.spark, self._topology)
        self._jobs = make_jobs(
            self.spark,
            self._topology,
            self._code_hash,
            self._reports,
            self._failure,
            ackers=self._ackers,
            say=self.say,
            staging=lambda: self._staging if self._staging is not None and self._staging.place is not None else None,
        )
        self._jobs.start()
        self._waves = Waves(
            self._jobs,
            self._running,
            self._reports,
            self._failure,
            self.say,
            proven=self._jobs.apart,
        )
        self._warm_up(self._jobs)

    def stage_with(self, staging: Staging) -> None:
        """See Executor.stage_with."""
        self._staging = staging

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        """See Executor.process."""
        waves = self._waves if self._waves is not None else unreachable("the executor was not started")

        def told(outcome: Outcome) -> None:
            if self._reports_lost is not None and self.broken is None:  # Whatever the outcome is.
                self.broken = JVM_GONE if jvm_ended() else self._reports_lost
            tell(outcome)

        return waves.process(wave, told)

    def _lose_reports(self, error: BaseException) -> None:
        said = ": ".join(filter(None, [type(error).__name__, str(error)]))
        self._reports_lost = f"this driver cannot take what its tasks report ({said})"

    def try_over_nothing(self) -> Failure | None:
        """See Executor.try_over_nothing."""
        jobs = self._jobs if self._jobs is not None else unreachable("the executor was not started")
        try:
            jobs.run_over_nothing()
        except Exception as error:
            raise_if_full(error)
            if (gone := self._gone(error)) is not None:
                self.broken = gone
                return Failure(kind="infrastructure", message=gone)
            return classify(error, component=self._bolt_names or None, cancelled=False)
        return None

    def cancel(self, attempt: TransactionAttempt) -> None:
        """See Executor.cancel. If the attempt runs in the job of its wave, that job is cancelled; the same call of
        `process` then runs the other attempts alone.
        """
        self._running.cancel(attempt)

    def progress(self, attempt: TransactionAttempt) -> int:
        """See Executor.progress: number of reports received and tasks completed, of the whole wave that contains the
        attempt.
        """
        return self._running.progress(attempt)

    def close(self) -> None:
        """See Executor.close."""
        with self._lock:
            already, self._closed = self._closed, True
        tags = self._running.close()
        if already or self._spark is None:
            return
        if self._options is not None:
            stop_session()
        elif self.broken is None:
            within(CANCEL_S, lambda: self._cancel(tags))

    def _cancel(self, tags: Collection[str]) -> None:
        for tag in tags:
            with contextlib.suppress(Py4JError, OSError):
                self.spark.sparkContext.cancelJobsWithTag(tag)

    def _warm_up(self, jobs: WaveJobs) -> None:
        """Run the plans over no rows, in as many threads as there are cores: Spark generates code and starts Python
        workers before the first batch.

        Every plan runs at least once, so that the workers load everything that a batch needs. Raises ConfigurationError
        if they cannot load it.
        """
        lacking: list[Failure] = []

        def run(number: int) -> None:
            try:
                if number:
                    jobs.warm_up()
                else:
                    jobs.run_over_nothing()
            except Exception as error:  # The first batch meets most of these errors too, and can name itself.
                failure = classify(error, component=None, cancelled=False)
                if failure.kind == "halt":
                    lacking.append(failure)

        cores = min(self.spark.sparkContext.defaultParallelism, WARM_UP_JOBS_MAX)
        threads = [
            threading.Thread(target=run, args=(number,), name=f"warm-up {number}", daemon=True)
            for number in range(cores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if lacking:
            words = f"Spark's workers cannot load the topology: {lacking[0].message}"
            raise ConfigurationError(f"{words}; {lacking[0].next_command}")

    def _failure(self, error: Exception, run: Run, reports: RunReports) -> Failure:
        cause: BaseException = error.__cause__ if isinstance(error, JobError) and error.__cause__ is not None else error
        if (gone := self._gone(cause)) is not None:
            self.broken = gone
            return Failure(kind="infrastructure", message=gone, detail=str(cause))
        component = error.component if isinstance(error, JobError) else self._bolt_names
        cancelled = run.cancelled.is_set()
        failure = classify(cause, component=component or None, cancelled=cancelled)
        # A task knows best: what Spark saw may be a consequence of its early end.
        blamed = self._jobs.blame(reports) if self._jobs is not None else None
        return failure if cancelled else blamed or failure

    def _gone(self, error: BaseException) -> str | None:
        """Return why nothing can run here any more; None: this error does not show that."""
        if is_jvm_gone(error) or jvm_ended():
            return JVM_GONE
        # A JVM that is shutting down still answers. What runs in it ends without a verdict, and may be the cause of the
        # shutdown.
        return CONTEXT_GONE if not self._closed and is_context_gone(error) else None


def _came_of_the_jvm(error: BaseException | None) -> bool:
    # A bare ConnectionError may also come from a bolt.
    while error is not None and not (isinstance(error, Py4JError) and is_jvm_gone(error)):
        error = error.__cause__
    return error is not None


def make_jobs(
    spark: SparkSession,
    topology: Topology,
    code_hash: bytes,
    reports: Reports,
    judge: Judge,
    *,
    ackers: int = limits.ACKERS,
    say: Say | None = None,
    staging: Callable[[], Staging | None] = lambda: None,
) -> WaveJobs:
    """Return the jobs that this topology needs; they are not started."""
    context = JobContext(
        spark=spark,
        topology=topology,
        code_hash=code_hash,
        reports=reports,
        accumulator=spark.sparkContext.accumulator(reports, ReportsParam()),
        judge=judge,
        ackers=ackers,
        say=say,
        staging=staging,
    )
    if topology.has_tuples:
        from txtopo.spark.tuples.tuple_jobs import TupleJobs

        return TupleJobs(context)
    return FrameJobs(context)


def wave_refusal(topology: Topology, spark: SparkSession) -> str | None:
    """Return why the batches of this topology are processed one by one: the bolt that depends on other rows. None:
    waves share a job.

    Calls the bolts over empty input, and raises what they raise: TopologyError, BatchDataError.
    """

    def no_judge(error: Exception, run: Run, reports: RunReports) -> Failure:
        unreachable("nothing is processed here")

    jobs = make_jobs(spark, topology, b"", Reports(), no_judge)
    jobs.settle_waves()
    return jobs.one_by_one
