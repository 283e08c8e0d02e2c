"""Processes a wave: in one job if that is proven to change nothing; otherwise, and whenever that job or its verdict
fails, one attempt after the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.limits import FIRST_WAVE_TXIDS_MAX
from txtopo.core.values import Failed, Failure, Outcome, Processed
from txtopo.errors import raise_if_full
from txtopo.ports import Assignment, Tell, tell_nobody
from txtopo.spark.jobs import BatchWork, Judge, Run, Say, WaveJobs
from txtopo.spark.reports import Reports
from txtopo.spark.running_attempts import Running

_Pair = tuple[Run, Assignment]


class Waves:
    """Turns waves into outcomes for one topology. Several threads use it at the same time."""

    def __init__(self, jobs: WaveJobs, running: Running, reports: Reports, judge: Judge, say: Say | None) -> None:
        self._jobs = jobs
        self._running = running
        self._reports = reports
        self._judge = judge
        self._say = say or logging.getLogger(__name__).warning
        self._proven = False
        self._differs: str | None = None
        self._told: set[str] = set()
        """Kinds of wave failures that were reported to the operator."""
        self._lock = threading.Lock()

    @property
    def one_by_one(self) -> str | None:
        """See Executor.one_by_one."""
        return self._differs or self._jobs.one_by_one

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> list[Outcome]:
        """See Executor.process."""
        runs = self._running.open([assignment.attempt for assignment in wave])
        outcomes: list[Outcome] = []
        try:
            pairs = list(zip(runs, wave, strict=True))
            while pairs:
                count = len(pairs) if self._proven else FIRST_WAVE_TXIDS_MAX
                outcomes.extend(self._shared(pairs[:count], tell))
                pairs = pairs[count:]
            return outcomes
        finally:
            for run in runs:
                self._running.end(run)

    def _shared(self, pairs: Sequence[_Pair], tell: Tell) -> list[Outcome]:
        if len(pairs) == 1 or self.one_by_one is not None:
            return self._each_alone(pairs, tell)
        proven = self._proven
        found = self._in_one_job(pairs)
        if isinstance(found, Failure) and self._jobs.one_by_one is not None:
            self._refuse(self._jobs.one_by_one)
        if proven and not isinstance(found, Failure):
            for outcome in found:
                tell(outcome)
            return list(found)
        # The failure of a wave is not a failure of its attempts: each runs alone, and only that counts. The first wave,
        # which is the proof, is treated in the same way.
        for run, _ in pairs:
            if run.cancelled.is_set():
                self._running.end(run)
        alone = self._each_alone(pairs, tell)
        if not proven:
            self._prove(found, alone)
        if isinstance(found, Failure) and all(isinstance(outcome, Processed) for outcome in alone):
            self._tell_once(pairs, found)
        return alone

    def _each_alone(self, pairs: Sequence[_Pair], tell: Tell) -> list[Outcome]:
        """Process one after the other, and pass on each outcome immediately: the batch that is next to commit does not
        wait for the others.
        """
        outcomes = []
        for run, assignment in pairs:
            outcomes.append(self._alone(run, assignment))
            tell(outcomes[-1])
        return outcomes

    def _in_one_job(self, pairs: Sequence[_Pair]) -> list[Processed] | Failure:
        """Return the outcomes if all of them succeeded, otherwise the failure of any of them."""
        began = time.monotonic()
        runs = [run for run, _ in pairs]
        outcomes: list[Processed] = []
        try:
            works = [self._jobs.split(assignment, run) for run, assignment in pairs]
            results = self._jobs.results(runs, works)
            for run, work, found in zip(runs, works, results, strict=True):
                outcome = self._believed(run, self._jobs.outcome(run, work, found, self._reports.so_far(run.name)))
                if isinstance(outcome, Failed):
                    return outcome.failure
                outcomes.append(_timed(outcome, began))
        except Exception as error:
            first = next((run for run in runs if run.cancelled.is_set()), runs[0])
            failure = self._judge(error, first, self._reports.so_far(first.name))
            judged = self._believed(first, Failed(attempt=first.attempt, failure=failure))
            return judged.failure if isinstance(judged, Failed) else failure
        return outcomes

    def _alone(self, run: Run, assignment: Assignment) -> Outcome:
        """Process one attempt alone. Problems of a batch or of Spark become an outcome, never an exception."""
        if run.cancelled.is_set():
            self._running.end(run)
            return Failed(attempt=run.attempt, failure=Failure(kind="infrastructure", message="cancelled"))
        began = time.monotonic()
        self._running.alone(run)
        work: BatchWork | None = None
        error: Exception | None = None
        outcome: Outcome
        try:
            work = self._jobs.split(assignment, run)
            (results,) = self._jobs.results([run], [work])
            outcome = self._jobs.outcome(run, work, results, self._reports.so_far(run.name))
        except Exception as raised:
            raise_if_full(raised)  # Only this process is affected; nothing was checked.
            error = raised
            failure = self._judge(raised, run, self._reports.so_far(run.name))
            outcome = Failed(attempt=run.attempt, failure=failure)
        outcome = self._believed(run, outcome)
        if isinstance(outcome, Failed) and work is not None and not run.cancelled.is_set():
            # The explanation runs further jobs, and may even give results.
            outcome = self._believed(run, self._explained(run, work, outcome.failure, error))
        self._running.end(run)
        return _timed(outcome, began) if isinstance(outcome, Processed) else outcome

    def _believed(self, run: Run, outcome: Outcome) -> Outcome:
        """Return the outcome, unless a task of the run signed for another order, or none signed: then no data is at
        fault, and no rows count.
        """
        if run.cancelled.is_set():
            return outcome
        doubt = self._reports.signatures.doubt(run.name, complete=isinstance(outcome, Processed))
        return outcome if doubt is None else Failed(attempt=run.attempt, failure=Failure(kind="suspect", message=doubt))

    def _explained(self, run: Run, work: BatchWork, failure: Failure, error: Exception | None) -> Outcome:
        try:
            return self._jobs.explain(run, work, failure, error)
        except Exception as raised:
            raise_if_full(raised)
            # The failure stays; the problem with its explanation is added.
            return Failed(
                attempt=run.attempt, failure=replace(failure, message=f"{failure.message}; not explained: {raised}")
            )

    def _prove(self, shared: list[Processed] | Failure, alone: Sequence[Outcome]) -> None:
        """Compare a first wave with its attempts alone: equal results prove that waves change nothing, a difference
        ends waves.
        """
        if isinstance(shared, Failure):
            if shared.kind == "data" and all(isinstance(outcome, Processed) for outcome in alone):
                self._refuse(f"a first wave failed although each of its batches succeeded alone: {shared.message}")
            return
        for together, by_itself in zip(shared, alone, strict=True):
            if isinstance(by_itself, Failed):
                if by_itself.failure.kind == "data":
                    self._refuse(f"batch {by_itself.attempt.txid} failed alone, but not in a first wave")
                return
            if difference := _difference(together, by_itself):
                self._refuse(f"batch {by_itself.attempt.txid} has other {difference} in a first wave than alone")
                return
        self._proven = True

    def _tell_once(self, pairs: Sequence[_Pair], failure: Failure) -> None:
        """Tell the operator about a wave that failed although its attempts succeeded; nothing else reports it. Unless a
        store was unreachable, it may happen again and again.
        """
        with self._lock:
            if self._differs is not None or failure.kind in {"infrastructure", *self._told}:
                return
            self._told.add(failure.kind)
        first, last = pairs[0][0].attempt.txid, pairs[-1][0].attempt.txid
        self._say(
            f"batches {first} to {last} failed in one job, and each succeeded alone, which is what counts; this is "
            f"reported once: {failure.message}"
        )

    def _refuse(self, why: str) -> None:
        with self._lock:
            if self._differs is not None:
                return  # Several threads may find the difference; the operator is told once.
            self._differs = why
        self._say(f"batches are processed one by one from now on: {why}; what is committed is what each gave alone")


def _difference(one: Processed, other: Processed) -> str | None:
    """Return what differs between two attempts of one batch; None if everything that is committed is equal."""
    for name in ("read", "rejected_rows", "dead_letters", "edges"):
        if getattr(one, name) != getattr(other, name):
            return name.replace("_", " ")
    for ours, theirs in zip(one.results, other.results, strict=True):
        if ours.arrived != theirs.arrived:
            return f"tuples at committer {ours.committer}"
        # A committer's deferred inputs depend on the topology: they are the same in every outcome.
        deferred = zip(ours.deferred, theirs.deferred, strict=True)
        if not same_rows(ours.rows, theirs.rows) or not all(same_rows(one[2], two[2]) for one, two in deferred):
            return f"results of committer {ours.committer}"
    return None


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """True if two tables are equal; a NaN is equal to a NaN."""
    return one.schema == other.schema and all(
        _same(*columns) for columns in zip(one.columns, other.columns, strict=True)
    )


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(one.type):
        return bool(one.equals(other))
    nans = pc.is_nan(one)
    nothing = pa.scalar(None, one.type)
    return bool(
        nans.equals(pc.is_nan(other)) and pc.if_else(nans, nothing, one).equals(pc.if_else(nans, nothing, other))
    )


def _timed(outcome: Processed, began: float) -> Processed:
    return replace(outcome, spans={"processing": time.monotonic() - began})
