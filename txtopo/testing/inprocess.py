"""An executor without Spark, for fast tests: it runs the tuple runtime in the caller's thread, for any topology."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from txtopo.config import Settings
from txtopo.core.values import Failed, Failure, FailureKind, Outcome, TransactionAttempt, cause_of
from txtopo.errors import BatchDataError, Fenced, StagingFailed, StoreUnavailable, TopologyError, cause_of_fault
from txtopo.ports import Assignment, Staging, Tell, tell_nobody
from txtopo.testing.staging_results import staged
from txtopo.topology.components import Topology
from txtopo.topology.user_exceptions import is_of_code, said
from txtopo.tuples.local_tuples import LocalTuples
from txtopo.tuples.user_errors import spout_failure_of

Faults = Callable[[TransactionAttempt], None]
"""Called before each part of an attempt is read; may block, or raise BatchDataError (data) or an OSError, which is
judged like an error of a spout.
"""

NO_BATCH = TransactionAttempt(0, 0)
"""The context that components receive in a run without input."""


class _Cancelled(BaseException):
    """The attempt was cancelled; not a failure of a spout or bolt."""


class _Run:
    """The state of a running attempt."""

    def __init__(self) -> None:
        self.progress = 0
        self.cancelled = threading.Event()


class InProcessExecutor:
    """Implements `txtopo.ports.Executor`. Attempts of a wave run one after another; several threads may call it
    concurrently.
    """

    def __init__(self, topology: Topology, code_hash: bytes, *, faults: Faults | None = None) -> None:
        """Create an executor. `code_hash` is what every attempt reports (R12: the code hash belongs to the attempt).
        The number of acker tasks comes from the topology's own config.
        """
        if topology.frame_bolts:
            names = ", ".join(bolt.name for bolt in topology.frame_bolts)
            raise TopologyError(
                f"the in-process executor has no DataFrames: take out the bolts {names}, or run it on Spark"
            )
        self._topology = topology
        self._code_hash = code_hash
        self._faults = faults
        self._tuples = LocalTuples(topology, code_hash, ackers=Settings().with_topology(topology.config).ackers)
        self._lock = threading.Lock()
        self._runs: dict[TransactionAttempt, _Run] = {}
        self._closed = False
        self._staging: Staging | None = None
        self.one_by_one: str | None = None
        """Never: the attempts of a wave run one after another, and nothing is gained by passing them one by one."""
        self.waves_proven = False
        """Never, so that waves begin as they do on Spark where a bolt may depend on other batches."""
        self.broken: str | None = None
        """Never: there is no JVM that could die."""

    def start(self) -> None:
        """Does nothing: there is nothing to start."""

    def stage_with(self, staging: Staging) -> None:
        """See Executor.stage_with."""
        self._staging = staging

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        """Process attempts one after another. Reports one outcome for each, in the same order, when it has ended; a
        failure of one does not affect the others.
        """
        runs = []
        with self._lock:
            for assignment in wave:
                runs.append(self._runs.setdefault(assignment.attempt, _Run()))
                if self._closed:
                    runs[-1].cancelled.set()
        try:
            outcomes = []
            for assignment, run in zip(wave, runs, strict=True):
                outcomes.append(self._outcome(assignment, run))
                tell(outcomes[-1])
            return outcomes
        finally:
            with self._lock:
                for assignment in wave:
                    self._runs.pop(assignment.attempt, None)

    def try_over_nothing(self) -> Failure | None:
        """Run once with every spout idle."""
        nothing = Assignment(attempt=NO_BATCH, metadata={})
        outcome = self._outcome(nothing, _Run())
        return outcome.failure if isinstance(outcome, Failed) else None

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Cancel an attempt; takes effect before its next record batch."""
        with self._lock:
            run = self._runs.get(attempt)
        if run is not None:
            run.cancelled.set()

    def progress(self, attempt: TransactionAttempt) -> int:
        """Return the number of record batches read so far, 0 for an attempt that does not run."""
        with self._lock:
            run = self._runs.get(attempt)
        return 0 if run is None else run.progress

    def close(self) -> None:
        """Cancel what runs; later attempts are cancelled immediately."""
        with self._lock:
            self._closed = True
            for run in self._runs.values():
                run.cancelled.set()

    def _outcome(self, assignment: Assignment, run: _Run) -> Outcome:
        spout = self._topology.spouts[0].name
        try:
            outcome = self._tuples.process(assignment, lambda batches: self._watched(assignment, run, batches))
            return staged(self._staging, self._topology, outcome)
        except (StoreUnavailable, Fenced) as error:
            return _failed(assignment, "infrastructure", str(error))
        except StagingFailed as error:
            return _failed(assignment, error.kind, error.message)
        except _Cancelled:
            return _failed(assignment, "infrastructure", "the attempt was cancelled")
        except BatchDataError as error:
            # The emitter does not know the spout's name.
            component = spout if error.component == "spout" else error.component
            failure = Failure(
                kind="halt" if error.halts else "data",
                message=str(error),
                component=component,
                position=error.position,
                detail=error.detail,
                cause=error.cause if error.fault is None else cause_of_fault(component, error.fault),
            )
            return Failed(attempt=assignment.attempt, failure=failure)
        except OSError as error:
            return Failed(attempt=assignment.attempt, failure=spout_failure_of(error, spout))
        except BaseException as error:
            if not is_of_code(error):
                raise
            # Any other exception of a component counts as its own: a data failure, so that the number of attempts is
            # limited.
            failure = Failure(
                kind="data",
                message=f"{type(error).__name__}: {said(error)}".rstrip(": "),
                component=spout,
                detail=traceback.format_exc(),
                cause=cause_of(spout, type(error).__name__, None),
            )
            return Failed(attempt=assignment.attempt, failure=failure)

    def _watched(
        self, assignment: Assignment, run: _Run, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        if self._faults is not None:
            self._faults(assignment.attempt)
        for batch in batches:
            self._check(run)
            run.progress += 1
            yield batch
        run.progress += 1

    def _check(self, run: _Run) -> None:
        if run.cancelled.is_set():
            raise _Cancelled


def _failed(assignment: Assignment, kind: FailureKind, message: str) -> Failed:
    return Failed(attempt=assignment.attempt, failure=Failure(kind=kind, message=message))
