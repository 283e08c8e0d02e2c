"""Processes a wave: in one job if that is proven to change nothing, otherwise one attempt after the other. If that job
or its verdict fails, in smaller ones.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.limits import FIRST_WAVE_TXIDS_MAX
from txtopo.core.values import Failed, Failure, Outcome, Processed
from txtopo.errors import raise_if_full
from txtopo.ports import Assignment, Tell, tell_nobody
from txtopo.spark.jobs import BatchWork, Judge, Run, Say, WaveJobs
from txtopo.spark.reports import Reports
from txtopo.spark.running_attempts import Running

SHARED_AGAIN_MIN = 4
"""Smaller parts of a failed wave run one by one: to divide them further would take as many jobs."""
SHARED_FAILURES_MAX = 9
"""Failed jobs of a wave, in all its parts, after which the rest runs one by one: with many bad batches, smaller waves
only add jobs. Two bad batches among 64 cause eight.
"""

_Pair = tuple[Run, Assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaveFailed:
    """A job of several runs failed, or its verdict on one of them."""

    failure: Failure
    culprits: frozenset[str] = frozenset()
    """Names of the runs that it is known to have failed for; empty if it may be any of them."""

    @property
    def is_of_some(self) -> bool:
        """True if it may be the failure of some of the runs, so that the others can share a job."""
        return self.failure.kind == "data" or bool(self.culprits)


@dataclass(slots=True)
class _Failures:
    left: int = SHARED_FAILURES_MAX


class Waves:
    """Turns waves into outcomes for one topology. Several threads use it at the same time."""

    def __init__(
        self,
        jobs: WaveJobs,
        running: Running,
        reports: Reports,
        judge: Judge,
        say: Say | None,
        *,
        proven: bool = False,
    ) -> None:
        """`proven`: no first wave is compared, because nothing in the topology can depend on other batches."""
        self._jobs = jobs
        self._running = running
        self._reports = reports
        self._judge = judge
        self._say = say or logging.getLogger(__name__).warning
        self.proven = proven
        """See Executor.waves_proven."""
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
                count = len(pairs) if self.proven else FIRST_WAVE_TXIDS_MAX
                outcomes.extend(self._shared(pairs[:count], tell))
                pairs = pairs[count:]
            return outcomes
        finally:
            for run in runs:
                self._running.end(run)

    def _shared(self, pairs: Sequence[_Pair], tell: Tell) -> list[Outcome]:
        if len(pairs) == 1 or self.one_by_one is not None:
            return self._each_alone(pairs, tell)
        proven = self.proven
        found = self._in_one_job(pairs)
        if proven and not isinstance(found, _WaveFailed):
            return _told(found, tell)
        # The failure of a wave is not a failure of its attempts: only what each gives alone, or in a wave that
        # succeeds, counts (W6). The first wave, which is the proof, runs alone in any case.
        for run, _ in pairs:
            if run.cancelled.is_set():
                self._running.end(run)
        if proven and isinstance(found, _WaveFailed):
            outcomes = self._divided(pairs, found, tell, _Failures())
        else:
            outcomes = self._each_alone(pairs, tell)
        if not proven:
            self._prove(found, outcomes)
        if isinstance(found, _WaveFailed) and all(isinstance(outcome, Processed) for outcome in outcomes):
            self._tell_once(pairs, found.failure)
        return outcomes

    def _divided(self, pairs: Sequence[_Pair], failed: _WaveFailed, tell: Tell, failures: _Failures) -> list[Outcome]:
        """Process the runs of a failed job in smaller ones, in their order: without the culprits, or else by halves."""
        if not failed.is_of_some:
            return self._each_alone(pairs, tell)
        return self._parts_again(pairs, failed.culprits, tell, failures)

    def _parts_again(
        self, pairs: Sequence[_Pair], culprits: frozenset[str], tell: Tell, failures: _Failures
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in _parts(pairs, culprits):
            outcomes += self._shared_again(part, tell, failures)
        return outcomes

    def _shared_again(self, pairs: Sequence[_Pair], tell: Tell, failures: _Failures) -> list[Outcome]:
        cancelled = frozenset(run.name for run, _ in pairs if run.cancelled.is_set())
        if len(pairs) < SHARED_AGAIN_MIN or self.one_by_one is not None or failures.left <= 0:
            return self._each_alone(pairs, tell)
        if cancelled:
            return self._parts_again(pairs, cancelled, tell, failures)
        self._running.again([run for run, _ in pairs])
        found = self._in_one_job(pairs)
        if not isinstance(found, _WaveFailed):
            for run, _ in pairs:
                self._running.end(run)
            return _told(found, tell)
        failures.left -= 1
        return self._divided(pairs, found, tell, failures)

    def _each_alone(self, pairs: Sequence[_Pair], tell: Tell) -> list[Outcome]:
        """Process one after the other, and pass on each outcome immediately: the batch that is next to commit does not
        wait for the others.
        """
        outcomes = []
        for run, assignment in pairs:
            outcomes.append(self._alone(run, assignment))
            tell(outcomes[-1])
        return outcomes

    def _in_one_job(self, pairs: Sequence[_Pair]) -> list[Processed] | _WaveFailed:
        """Return the outcomes if all of them succeeded, otherwise why not."""
        began = time.monotonic()
        runs = [run for run, _ in pairs]
        outcomes: list[Processed] = []
        failed: list[Failed] = []
        try:
            works = [self._jobs.split(assignment, run) for run, assignment in pairs]
            results = self._jobs.results(runs, works)
            for run, work, found in zip(runs, works, results, strict=True):
                outcome = self._believed(run, self._jobs.outcome(run, work, found, self._reports.so_far(run.name)))
                if isinstance(outcome, Failed):
                    failed.append(outcome)
                else:
                    outcomes.append(_timed(outcome, began))
        except Exception as error:
            ended = self._why_it_ended(runs, error)
            if self._jobs.one_by_one is not None:
                self._refuse(self._jobs.one_by_one)
            return ended
        if not failed:
            return outcomes
        doubtful = next((one for one in failed if one.failure.kind not in ("data", "infrastructure")), None)
        if doubtful is not None:  # Whose rows came back is not certain, so no run is known to be at fault.
            return _WaveFailed(failure=doubtful.failure)
        attempts = {outcome.attempt for outcome in failed}
        culprits = frozenset(run.name for run in runs if run.attempt in attempts)
        return _WaveFailed(failure=failed[0].failure, culprits=culprits)

    def _why_it_ended(self, runs: Sequence[Run], error: Exception) -> _WaveFailed:
        cancelled = [run for run in runs if run.cancelled.is_set()]
        first = cancelled[0] if cancelled else runs[0]
        failure = self._judge(error, first, self._reports.so_far(first.name))
        judged = self._believed(first, Failed(attempt=first.attempt, failure=failure))
        if isinstance(judged, Failed):
            failure = judged.failure
        return _WaveFailed(failure=failure, culprits=frozenset(run.name for run in cancelled))

    def _alone(self, run: Run, assignment: Assignment) -> Outcome:
        """Process one attempt alone. Problems of a batch or of Spark become an outcome, never an exception."""
        if run.cancelled.is_set():
            self._running.end(run)
            return Failed(attempt=run.attempt, failure=Failure(kind="infrastructure", message="cancelled"))
        began = time.monotonic()
        self._running.again([run])
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

    def _prove(self, shared: list[Processed] | _WaveFailed, alone: Sequence[Outcome]) -> None:
        """Compare a first wave with its attempts alone: equal results prove that waves change nothing, a difference
        ends waves.
        """
        if isinstance(shared, _WaveFailed):
            failure = shared.failure
            if failure.kind == "data" and all(isinstance(outcome, Processed) for outcome in alone):
                self._refuse(f"a first wave failed although each of its batches succeeded alone: {failure.message}")
            return
        for together, by_itself in zip(shared, alone, strict=True):
            if isinstance(by_itself, Failed):
                if by_itself.failure.kind == "data":
                    self._refuse(f"batch {by_itself.attempt.txid} failed alone, but not in a first wave")
                return
            if difference := _difference(together, by_itself):
                self._refuse(f"batch {by_itself.attempt.txid} has other {difference} in a first wave than alone")
                return
        self.proven = True

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
            f"batches {first} to {last} failed in one job, and each succeeded in a smaller one, which is what counts; "
            f"this is reported once: {failure.message}"
        )

    def _refuse(self, why: str) -> None:
        with self._lock:
            if self._differs is not None:
                return  # Several threads may find the difference; the operator is told once.
            self._differs = why
        self._say(f"batches are processed one by one from now on: {why}; what is committed is what each gave alone")


def _parts(pairs: Sequence[_Pair], culprits: frozenset[str]) -> list[Sequence[_Pair]]:
    """Return the runs in their order, each culprit by itself; the two halves if there is none."""
    if not culprits:
        half = (len(pairs) + 1) // 2
        return [pairs[:half], pairs[half:]]
    grouped = itertools.groupby(pairs, key=lambda pair: pair[0].name if pair[0].name in culprits else None)
    return [list(part) for _, part in grouped]


def _told(outcomes: Sequence[Processed], tell: Tell) -> list[Outcome]:
    for outcome in outcomes:
        tell(outcome)
    return list(outcomes)


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
