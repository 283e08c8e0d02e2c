"""The jobs of a topology with tuple bolts or custom committers: one Spark job for a wave, results from its messages,
verdict, bad tuple.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from txtopo.core import limits
from txtopo.core.values import CommitterResult, Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError, TxtopoError, invariant
from txtopo.ports import Assignment, StagingPlace
from txtopo.spark import jobs
from txtopo.spark.bounded_results import TooManyRows, collect_at_most
from txtopo.spark.failures import building_error
from txtopo.spark.frames.frame_jobs import TOGETHER_BYTES_MAX, TOO_LARGE
from txtopo.spark.frames.plan_lock import PLAN_LOCK
from txtopo.spark.frames.row_local_check import NotCarriedError, why_not_carried
from txtopo.spark.jobs import (
    BatchWork,
    JobContext,
    JobError,
    Run,
    RunReports,
    check,
    collect_batches,
    marked,
    over_nothing,
    read_through,
)
from txtopo.spark.plan_copies import Copies
from txtopo.spark.session.ship_modules import package_version
from txtopo.spark.signatures import Signer
from txtopo.spark.tuples.staged_tuples import RowsOfCommitters, StagedTuples, Tables, without_stored
from txtopo.spark.tuples.tuple_checks import TupleChecks
from txtopo.spark.tuples.tuple_graphs import MAIN, Graphs
from txtopo.spark.tuples.tuple_order import Ordered, TupleOrder
from txtopo.spark.tuples.tuple_plan import OneTask, Planned, TupleCompiler
from txtopo.spark.tuples.tuple_tracing import explained
from txtopo.spark.tuples.tuple_work import SeenRun, TupleWork, seen_of
from txtopo.spark.wave_proof import is_apart_by_construction
from txtopo.tuples.message import Message, RunSpec
from txtopo.tuples.results import merge
from txtopo.tuples.tracing import Again
from txtopo.tuples.wire import decode, orders_in


@dataclass(frozen=True, slots=True)
class _Storing:
    """Where the rows of one run go if they are too many for the driver (R10)."""

    place: StagingPlace
    tables: Tables
    """Of committers whose rows are stored in any case."""
    rows: RowsOfCommitters
    """Counts the rows of all others."""


class TupleJobs:
    """Implements `WaveJobs` with the tuple runtime from spout to committer."""

    compiler_class = TupleCompiler
    """Makes its plans; tests replace it with one that causes faults."""

    def __init__(self, context: JobContext) -> None:
        topology = context.topology
        self._context = context
        self._topology = topology
        self._graphs = Graphs(topology, context.ackers if topology.acking == "tuple" else 0)
        self._compiler = self.compiler_class(context, self._graphs)
        self._staged = StagedTuples(self._graphs.main)
        self._names = ", ".join(bolt.name for bolt in topology.bolts) or ", ".join(
            item.name for item in topology.committers
        )
        """Components that may be the cause of a failed job if Spark does not name one."""
        self._copies: Copies[OneTask] | None = None
        self.one_by_one: str | None = None
        """See WaveJobs."""
        self.apart = False
        """See WaveJobs."""

    def start(self) -> None:
        """See WaveJobs."""
        try:
            # Call every function over DataFrames on empty input, and compare what it returns with what it declares.
            nothing, signer = self._ordered("start", None, Again()), self._context.signer()
            with over_nothing(self._context, signer.copy), PLAN_LOCK.taken():
                self._compiler.plan([nothing], signer).let_go()
            first = self._copied(())
            self._copies = Copies(self._context, first, self._copied) if first is not None else None
            self.settle_waves()
        except TxtopoError:
            raise
        except Exception as error:
            raise building_error(error, self._names) from error

    def settle_waves(self) -> None:
        """See WaveJobs."""
        if not self._graphs.frames:
            self.apart = is_apart_by_construction(self._topology)
            return
        signer = self._context.signer()
        with over_nothing(self._context, signer.copy), PLAN_LOCK.taken():
            self.one_by_one = why_not_carried(lambda: self._carry_over_nothing(signer))

    def _carry_over_nothing(self, signer: Signer) -> None:
        foreign = self._compiler.check_shared(self._ordered("start", None, Again()), signer)
        self.apart = is_apart_by_construction(self._topology, foreign=foreign)
        self._compiler.compares = not self.apart

    def warm_up(self) -> None:
        """See WaveJobs."""
        if self._copies is not None:
            with self._copies.over_nothing() as one_task:
                if one_task is not None:
                    collect_batches(one_task.messages)

    def run_over_nothing(self) -> None:
        """See WaveJobs."""
        self.warm_up()
        if self._copies is not None:
            return
        nothing, signer = self._ordered("start", None, Again()), self._context.signer()
        with over_nothing(self._context, signer.copy):
            with PLAN_LOCK.taken():
                planned = self._compiler.plan([nothing], signer)
            try:
                collect_batches(planned.messages)
            finally:
                planned.let_go()

    def split(self, assignment: Assignment, run: Run) -> TupleWork:
        """See WaveJobs."""
        spouts = self._topology.spouts
        parts = {
            item.name: list(item.spout.parts(assignment.metadata[item.name]))
            for item in spouts
            if item.name in assignment.metadata and not item.spout.emits_frame
        }
        invariant(all(parts.values()), "a spout split a batch into no part")
        return TupleWork(assignment=assignment, parts={item.name: parts.get(item.name, []) for item in spouts})

    def results(self, runs: Sequence[Run], works: Sequence[BatchWork]) -> list[list[CommitterResult]]:
        """See WaveJobs. If messages make no results, that is no error yet: `outcome` knows the cause."""
        # Only what may be committed is stored, and only of a batch alone: a wave is small.
        staging = self._context.staging() if len(runs) == 1 and self._staged.tasks else None
        names = [run.name for run in runs]
        place = staging.place if staging is not None else None
        if staging is None or place is None:
            return self.run_again(runs, works, names, Again())
        while True:
            storing: _Storing | None = None
            try:
                with self._staged.tables(staging, runs) as tables:
                    storing = _Storing(place, tables, self._staged.counting(tables))
                    return self.run_again(runs, works, names, Again(), storing)
            except (TooManyRows, BatchDataError, JobError) as error:
                if storing is None or not self._staged.found_large(error, storing.rows, place.rows_max):
                    raise

    def run_again(
        self,
        runs: Sequence[Run],
        works: Sequence[BatchWork],
        names: Sequence[str],
        again: Again,
        storing: _Storing | None = None,
    ) -> list[list[CommitterResult]]:
        """Process runs that follow a failed one, with reports under other names. Raises TooManyRows only with
        `storing`.
        """
        check(runs)
        wave = [self._ordered(name, work, again) for name, work in zip(names, works, strict=True)]
        order = TupleOrder(runs=tuple(wave))
        alone = self._fits_one_task(works)
        is_usual = again.failures_max == 1 and not (storing and storing.tables)
        text = order.text() if alone and self._copies is not None and is_usual else None
        if text is not None and len(text) > jobs.ORDER_BYTES_MAX:
            text = None
        signatures, specs = self._context.reports.signatures, {MAIN: order.specs}
        with contextlib.ExitStack() as stack:
            ready = stack.enter_context(self._copies.taken(runs)) if self._copies is not None and text else None
            signer = self._context.signer(runs)
            number = stack.enter_context(marked(self._context, runs, text if ready is not None else None))
            copy = ready.copy if ready is not None else signer.copy
            stack.enter_context(signatures.held(copy, number, _read_in(works)))
            if ready is not None:
                batches = self._collected(runs, ready.messages, storing)
            else:
                with PLAN_LOCK.taken(runs) if self._graphs.frames else contextlib.nullcontext():
                    planned = self._planned(wave, signer, again, alone, runs)
                stack.callback(planned.let_go)
                specs = {graph: tuple(found) for graph, found in planned.specs.items()}
                batches = self._collected(runs, planned.messages, storing)
                for frame in planned.unread:
                    self._read(runs, frame)
            for other in orders_in(batches) - {number}:
                signatures.mixed(number, other)
        messages: defaultdict[int, list[Message]] = defaultdict(list)
        for message in decode(batches):
            messages[message.run].append(message)
        return [
            self._merged(
                work, {graph: found[at] for graph, found in specs.items()}, sorted(messages[at], key=_place), storing
            )
            for at, work in enumerate(works)
        ]

    def blame(self, reports: RunReports) -> Failure | None:
        """See WaveJobs."""
        return TupleChecks(self._graphs, SeenRun(), reports).reported()

    def outcome(self, run: Run, work: BatchWork, results: Sequence[CommitterResult], reports: RunReports) -> Outcome:
        """See WaveJobs."""
        verdict = TupleChecks(self._graphs, seen_of(work), reports)
        failure = verdict.failure(code_hash=self._context.code_hash, version=package_version())
        if failure is not None:
            return Failed(attempt=run.attempt, failure=failure)
        return Processed(
            attempt=run.attempt,
            # The verdict has compared the code hash of each of them (R12: only attempts with the leader's code commit).
            code_hash=self._context.code_hash,
            read=verdict.read,
            rejected=len(verdict.rejected_rows),
            rejected_rows=verdict.rejected_rows,
            results=tuple(results),
            edges=verdict.edges(),
        )

    def explain(self, run: Run, work: BatchWork, failure: Failure, error: Exception | None) -> Outcome:
        """See WaveJobs: with the source tuple, after one more run with every tuple traced if it is not known; or
        without the tuple, as a dead letter.
        """
        if error is not None or failure.kind != "data" or failure.position is not None:
            return Failed(attempt=run.attempt, failure=failure)
        causes = TupleChecks(self._graphs, seen_of(work), self._context.reports.so_far(run.name)).causes()
        return explained(self, self._context, self._graphs, run, work, failure, causes)

    def _planned(
        self, wave: Sequence[Ordered], signer: Signer, again: Again, alone: bool, runs: Sequence[Run]
    ) -> Planned:
        try:
            return self._compiler.plan(wave, signer, failures_max=again.failures_max, alone=alone, waiting=runs)
        except NotCarriedError as error:
            # A function may make another plan each time it is called: then there are no more waves.
            self.one_by_one = str(error)
            raise

    def _copied(self, runs: Sequence[Run]) -> OneTask | None:
        return self._compiler.one_task(self._context.signer())

    def _read(self, runs: Sequence[Run], frame: DataFrame) -> None:
        check(runs)
        try:
            read_through(frame)
        except Exception as error:
            raise JobError(self._names) from error

    def _collected(self, runs: Sequence[Run], plan: DataFrame, storing: _Storing | None) -> list[pa.RecordBatch]:
        check(runs)
        try:
            if storing is None:
                return collect_batches(plan)
            if storing.tables:
                plan = self._staged.storing(plan, storing.tables, storing.place.connections)
            return collect_at_most(plan, storing.place.rows_max, storing.rows)
        except TooManyRows:
            raise
        except Exception as error:
            # A failure without a known cause belongs to the components that are not txtopo's own.
            raise JobError(self._names) from error

    def _ordered(self, name: str, work: BatchWork | None, again: Again) -> Ordered:
        spouts = [item.name for item in self._topology.spouts]
        parts = work.parts if work is not None else dict.fromkeys(spouts, ())
        spec = RunSpec(
            run=name,
            attempt=work.assignment.attempt if work is not None else TransactionAttempt(0, 0),
            sources={spout: max(1, len(parts[spout])) for spout in spouts},
            traced=again.traced,
            excluded=again.excluded,
        )
        return Ordered(
            spec=spec,
            metadata={spout: work.metadata(spout) if work is not None else None for spout in spouts},
            parts=parts,
        )

    def _fits_one_task(self, works: Sequence[BatchWork]) -> bool:
        """True if there is no DataFrame, every batch has one part for each spout, and these fit into the memory of one
        task.
        """
        if self._graphs.frames or any(count > 1 for work in works for count in work.counts.values()):
            return False
        metadata = [(item.spout, work.metadata(item.name)) for work in works for item in self._topology.spouts]
        size = sum(spout.batch_bytes(found) for spout, found in metadata if found is not None)
        return size <= TOGETHER_BYTES_MAX

    def _merged(
        self, work: BatchWork, specs: dict[str, RunSpec], messages: Sequence[Message], storing: _Storing | None
    ) -> list[CommitterResult]:
        seen = seen_of(work)
        seen.specs, seen.acks, seen.error = specs, None, None
        try:
            results, seen.acks = merge(self._graphs.main, specs[MAIN], without_stored(messages))
        except BatchDataError as error:
            seen.error = error
            return []
        for result in results:
            if result.bytes > limits.RESULTS_BYTES_MAX:
                why = self._staged.why_not(result.committer)
                raise BatchDataError(
                    f"results exceed {limits.RESULTS_BYTES_MAX // 2**20} MiB ({result.bytes / 2**20:.0f} MiB)"
                    f"{f', and tasks cannot store them: {why}' if why is not None else ''}",
                    component=result.committer,
                    fault=TOO_LARGE,
                )
        if storing is None or not storing.tables:
            return results
        return self._staged.placed(results, messages, storing.tables, storing.place.rows_max)


def _place(message: Message) -> tuple[int, ...]:
    return message[:6]


def _read_in(works: Sequence[BatchWork]) -> set[str]:
    """Return the spouts that some batch reads."""
    return {spout for work in works for spout in work.assignment.metadata}
