"""The interface between the executor and the jobs of a topology (`WaveJobs`), and what all kinds of jobs share: runs,
works, tags and properties of a thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from txtopo.core import limits
from txtopo.core.plan import Metadata
from txtopo.core.values import CommitterResult, Failure, Outcome, TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.ports import Assignment, Staging
from txtopo.spark.reports import Reports
from txtopo.spark.signatures import NOTHING, ORDER_PROPERTY, Signer, property_of
from txtopo.topology.components import Topology

ORDER_BYTES_MAX = 512 * 1024
"""A longer order is sent inside the plan, because Spark sends local properties again with every task."""
_DESCRIPTION = "spark.job.description"

Say = Callable[[str], None]


@dataclass(slots=True)
class Waited:
    """Progress of a thread that waits to build a plan. The thread that builds one has a time limit instead."""

    looks: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One attempt while it is processed: in the job of its wave, or alone."""

    name: str
    """Differs for every call of `process`, and for the two tries within one call (in its wave, then alone), also for
    the same attempt: late reports of an earlier run must not count for this one (K1: tasks that continue after they
    were cancelled).
    """
    tag: str
    """Tag of its Spark jobs; runs of one wave share it."""
    attempt: TransactionAttempt
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    waited: Waited = field(default_factory=Waited)
    """Shared by the runs of one call of `process`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWork:
    """A batch and its parts by spout."""

    assignment: Assignment
    parts: Mapping[str, Sequence[Mapping[str, Any]]]
    """Has every spout of the topology; no parts for one that is idle in this batch."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of parts by spout."""
        return {name: len(found) for name, found in self.parts.items()}

    def metadata(self, spout: str) -> Metadata | None:
        """Return the metadata of a spout; None if it is idle in this batch."""
        return self.assignment.metadata.get(spout)


RunReports = Mapping[Any, list[Any]]
"""Reports of one run by their `key`; more than one under a key is a conflict (K3: input or code that is not
deterministic). Each has `run`, `key` and `content` (see Reports).
"""
Judge = Callable[[Exception, Run, RunReports], Failure]
"""Returns whose fault an exception of a run is; also notes that the driver's JVM died (K11)."""


class CancelledError(Exception):
    """An attempt was cancelled between two of its jobs."""


class JobError(Exception):
    """A job failed; the cause is the `__cause__` of this error."""

    def __init__(self, component: str) -> None:
        super().__init__(component)
        self.component = component


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What jobs of any kind need."""

    spark: SparkSession
    topology: Topology
    code_hash: bytes
    reports: Reports
    """The driver's end of the accumulator: jobs that add runs (a search, dead letters) open and take their reports
    under separate names.
    """
    accumulator: Accumulator[Any]
    """Tasks add lists of reports to it."""
    judge: Judge
    ackers: int = limits.ACKERS
    """Number of acker tasks if the topology acks by tuple."""
    say: Say | None = None
    """Tells the operator about steps that take long."""
    staging: Callable[[], Staging | None] = lambda: None
    """Returns where results go that are too large for the driver; None: they are refused."""

    def signer(self, runs: Sequence[Run] = ()) -> Signer:
        """Return a signer for a new copy of a plan, made for these runs alone, or for all if there are none."""
        return Signer(reports=self.accumulator, made_for=runs[0].name if runs else None)


class WaveJobs(Protocol):
    """The jobs of one topology: with DataFrames (`FrameJobs`) or with tuples. Several threads use them at the same
    time.
    """

    @property
    def one_by_one(self) -> str | None:
        """None if several runs may share a job; otherwise the reason: `bolt by_day depends on other rows:
        Aggregate`.
        """

    @property
    def apart(self) -> bool:
        """True if no first wave has to be compared, because no code that could keep something of one batch for another
        sees the rows (see `wave_proof`). Known after `start`.
        """

    def start(self) -> None:
        """Compile, check the fields that bolts declare, run over no rows. Raises TopologyError, BatchDataError,
        ConfigurationError.
        """

    def settle_waves(self) -> None:
        """Determine whether several runs may share a job; `start` calls it. Calls bolts over no rows, and raises what
        they raise: TopologyError, BatchDataError.
        """

    def warm_up(self) -> None:
        """Run reusable plans over no rows, so that the first batch is faster. Several threads call it at the same
        time.
        """

    def run_over_nothing(self) -> None:
        """Run every plan over no rows, including those that are planned again for each batch: whatever this raises, any
        batch would raise. Raises what bolts and jobs raise.
        """

    def split(self, assignment: Assignment, run: Run) -> BatchWork:
        """Return the parts of a batch of this run, as its spouts split it. Raises CancelledError."""

    def results(self, runs: Sequence[Run], works: Sequence[BatchWork]) -> list[list[CommitterResult]]:
        """Process these runs together; returns, for each run, one result of each committer, in the order of the
        topology.

        Runs of a wave share a tag, and all jobs must have it (`marked`). Raises JobError if a job fails,
        CancelledError.
        """

    def blame(self, reports: RunReports) -> Failure | None:
        """Return a failure that a task reported, which is closer to the cause than the exception that may have
        followed; None if no task reported one.
        """

    def outcome(self, run: Run, work: BatchWork, results: Sequence[CommitterResult], reports: RunReports) -> Outcome:
        """Return the verdict on a run whose jobs succeeded: Processed with its counts (the executor fills in `spans`),
        or Failed.
        """

    def explain(self, run: Run, work: BatchWork, failure: Failure, error: Exception | None) -> Outcome:
        """Return the final outcome of a run that failed *alone*: Failed with the source row if it can be named, or,
        with dead letters, Processed without it.

        `error` is what its jobs raised, None if `outcome` failed it. May run further jobs under the run's tag. Not
        called for cancelled runs.
        """


def check(runs: Sequence[Run]) -> None:
    """Raise CancelledError if one of the runs is cancelled."""
    if any(run.cancelled.is_set() for run in runs):
        raise CancelledError


@contextlib.contextmanager
def marked(jobs: JobContext, runs: Sequence[Run], order: str | None) -> Iterator[int]:
    """Mark the jobs of this thread as jobs of these runs, with the order for their tasks; None: the order is in the
    plan. Yields the number of the order.

    Threads are reused, so all marks are removed at the end.
    """
    context: Any = jobs.spark.sparkContext
    tags = {run.tag for run in runs}
    first, last = runs[0].attempt, runs[-1].attempt
    named = f"batch {first}" if len(runs) == 1 else f"batches {first} to {last}"
    words = f"batch {first.txid}" if len(runs) == 1 else f"batches {first.txid} to {last.txid}"
    with jobs.reports.signatures.order(words, [run.name for run in runs]) as number:
        context.setLocalProperty(ORDER_PROPERTY, property_of(number, order))
        context.setLocalProperty(_DESCRIPTION, f"{jobs.topology.name} {named}")
        for tag in tags:
            context.addJobTag(tag)
        try:
            yield number
        finally:
            with contextlib.suppress(Py4JError, OSError):
                for tag in tags:
                    context.removeJobTag(tag)
                context.setLocalProperty(ORDER_PROPERTY, None)
                context.setLocalProperty(_DESCRIPTION, None)


@contextlib.contextmanager
def over_nothing(jobs: JobContext, copy: int | None, number: int | None = None) -> Iterator[None]:
    """Call bolts and run plans over no rows, as at the start. A BatchDataError of the body says so too, because a bolt
    may work with some rows.

    The leaves in the plan `copy` sign for it. Several threads may share a `number` and the copy that it holds; then
    `copy` is None.
    """
    context: Any = jobs.spark.sparkContext
    with contextlib.ExitStack() as stack:
        if number is None:
            number = stack.enter_context(jobs.reports.signatures.order("the start"))
        if copy is not None:
            stack.enter_context(jobs.reports.signatures.held(copy, number))
        context.setLocalProperty(ORDER_PROPERTY, property_of(number, NOTHING))
        try:
            yield
        except BatchDataError as error:
            raise BatchDataError(
                f"{error} (at the start bolts are called over no rows)",
                component=error.component,
                detail=error.detail,
                cause=error.cause,
            ) from error
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.setLocalProperty(ORDER_PROPERTY, None)


def collect_batches(frame: Any) -> list[pa.RecordBatch]:
    """Return all rows as Arrow batches of limited size. The public `toArrow` asks for the schema again for every batch.

    They arrive one by one; Spark ends the job if they are larger than `spark.driver.maxResultSize`.
    """
    return list(frame._collect_as_arrow())


def read_through(frame: Any) -> None:
    """Run all tasks of a DataFrame for their reports; its rows are discarded."""
    collect_batches(frame.groupBy().count())
