"""The jobs of a topology of DataFrames: its order to the emitters, its plans for one batch or a wave, results as Arrow,
verdict and bad row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from txtopo.core.limits import RESULTS_BYTES_MAX, WAVE_BYTES_MAX
from txtopo.core.values import CommitterResult, Failed, Failure, Outcome, Processed
from txtopo.errors import BatchDataError, TopologyError, invariant, unreachable
from txtopo.ports import Assignment, Staging
from txtopo.spark import jobs
from txtopo.spark.bounded_results import TooManyRows, collect_at_most
from txtopo.spark.emit import emitter_order
from txtopo.spark.failures import building_error, classify, is_about_size
from txtopo.spark.frames.aggregate import CountJob
from txtopo.spark.frames.bisect import Ranges
from txtopo.spark.frames.find_bad_row import BadRows, Only
from txtopo.spark.frames.frame_checks import check_frames, edges, emitter_failure, rejected_rows, sent_by
from txtopo.spark.frames.frame_plan import Compiled, Compiler, Reusable
from txtopo.spark.frames.planned_frames import settled
from txtopo.spark.frames.row_local_check import NotCarriedError, why_not_carried
from txtopo.spark.frames.staged_jobs import StagedJobs
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
from txtopo.spark.wave_proof import is_apart_by_construction

TOO_LARGE = "results too large"
TOGETHER_BYTES_MAX = WAVE_BYTES_MAX
"""A wave with one part per batch is one task up to this number of bytes of the source, with a plan that is made once; a
larger one is spread over tasks and planned separately.
"""


@dataclass(frozen=True, slots=True)
class GivenFrame:
    """The DataFrame that a spout gave for a batch."""

    frame: DataFrame
    run: str
    """Name of the run that they were made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameWork(BatchWork):
    """A batch with the DataFrames of the spouts that give one; their parts are its partitions."""

    given: Mapping[str, GivenFrame]


class FrameJobs:
    """Implements `WaveJobs` with DataFrames from spout to committer: one Spark job for each stream that committers
    read.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._topology = context.topology
        self._compiler = Compiler(context.spark, context.topology, context.code_hash, context.accumulator)
        self._bolt_names = ", ".join(bolt.name for bolt in context.topology.bolts)
        """Spark does not name the bolt that an expression came from: if there are several, all are named."""
        self._bad_rows: BadRows | None = None
        self._copies: Copies[Reusable] | None = None
        self._wave_copies: Copies[Reusable] | None = None
        self._staged = StagedJobs()
        self.one_by_one: str | None = None
        """See WaveJobs."""
        self.apart = False
        """See WaveJobs."""

    @property
    def reusable(self) -> Reusable | None:
        """The plan for all batches of one part, after `start`; None if each batch needs a separate plan. It is also the
        plan of waves if no code of the topology sees their rows.
        """
        return self._copies.first if self._copies is not None else None

    def start(self) -> None:
        """See WaveJobs."""
        try:
            checking = self._context.signer()
            with over_nothing(self._context, checking.copy):
                self._compiler.check(checking)
            columns = self._make_plans()
        except (TopologyError, BatchDataError):
            raise
        except Exception as error:
            raise building_error(error, self._bolt_names or "topology") from error
        self._bad_rows = BadRows(
            self._topology, self, self._context.reports, self._context.judge, columns, say=self._context.say
        )

    def _make_plans(self) -> Mapping[str, list[str]]:
        """Make the plans that serve many batches; returns the columns read, by spout."""
        has_bolts = bool(self._topology.bolts)
        if not has_bolts:
            self.settle_waves()
        if self.apart and not has_bolts and self._wave_copies is not None:
            # A batch alone is a wave of one, so there are fewer plans to make.
            self._copies = self._wave_copies
            self._copies.prepare()
            return self._copies.first.needed
        signer = self._context.signer()
        with over_nothing(self._context, signer.copy):
            first, columns = self._compiler.reusable(signer)
        self._copies = Copies(self._context, first, self._copied) if first is not None else None
        if has_bolts:
            self.settle_waves()
        return columns

    def settle_waves(self) -> None:
        """See WaveJobs: and with which plan."""
        self.one_by_one = why_not_carried(self._plan_waves)

    def _plan_waves(self) -> None:
        signer = self._context.signer()
        with over_nothing(self._context, signer.copy):
            first, foreign = self._compiler.reusable_wave(signer)
        self.apart = is_apart_by_construction(self._topology, foreign=foreign)
        self._compiler.compares = not self.apart
        self._wave_copies = Copies(self._context, first, self._copied_wave) if first is not None else None

    def warm_up(self) -> None:
        """See WaveJobs."""
        for copies in dict.fromkeys(filter(None, (self._copies, self._wave_copies))):
            with copies.over_nothing() as reusable:
                for counted in reusable.compiled.counted if reusable is not None else ():
                    collect_batches(counted.frame)

    def run_over_nothing(self) -> None:
        """See WaveJobs."""
        self.warm_up()
        if self._copies is not None:
            return
        signer = self._context.signer()
        with over_nothing(self._context, signer.copy):
            compiled = self._compiler.compile(self._compiler.one_task, signer)
            try:
                for counted in compiled.counted:
                    collect_batches(counted.frame)
            finally:
                compiled.let_go()

    def split(self, assignment: Assignment, run: Run) -> BatchWork:
        """See WaveJobs."""
        parts: dict[str, Sequence[Mapping[str, Any]]] = {item.name: [] for item in self._topology.spouts}
        given: dict[str, GivenFrame] = {}
        for item in self._topology.spouts:
            metadata = assignment.metadata.get(item.name)
            if metadata is None:
                continue
            if item.spout.emits_frame:
                # The function may run jobs while it is called, or Spark may run one to count partitions: they are
                # cancelled with the run.
                with marked(self._context, [run], None):
                    frame, partitions = settled(self._compiler.frame(item.name, metadata, [run]))
                    given[item.name] = GivenFrame(frame, run.name)
                    parts[item.name] = [{}] * partitions
            else:
                parts[item.name] = list(item.spout.parts(metadata))
                invariant(bool(parts[item.name]), "a spout split a batch into no part")
        return FrameWork(assignment=assignment, parts=parts, given=given)

    def results(
        self, runs: Sequence[Run], works: Sequence[BatchWork], *, name: str | None = None, only: Only | None = None
    ) -> list[list[CommitterResult]]:
        """See WaveJobs. A run alone may process `only` some tuples, with reports under another `name`."""
        check(runs)
        together = self._is_together(works)
        names = [run.name for run in runs] if name is None else [name]
        # Only what may be committed is stored, and only of a batch alone: a wave is small.
        staging = self._context.staging() if len(runs) == 1 and name is None else None
        with contextlib.ExitStack() as stack:
            copies = (self._copies if len(runs) == 1 else self._wave_copies) if together else None
            reusable = stack.enter_context(copies.taken(runs)) if copies is not None else None
            needed = reusable.needed if reusable is not None else {}
            order = emitter_order(names, works, together=together, needed=needed, only=only)
            small = len(order) <= jobs.ORDER_BYTES_MAX
            signer = self._context.signer(runs)
            copy = reusable.copy if reusable is not None and small else signer.copy
            # A bolt may run jobs while it is called: they have the order and the tag as well.
            number = stack.enter_context(marked(self._context, runs, order if small else None))
            stack.enter_context(self._context.reports.signatures.held(copy, number, _read_in(works)))
            if reusable is not None and small:
                by_committer = self._collected(runs, reusable.compiled, number, staging)
            else:
                compiled = self._plan(runs, works, together, None if small else order, signer)
                stack.callback(compiled.let_go)
                by_committer = self._collected(runs, compiled, number, staging)
                self._read(runs, compiled.unread())
        return [list(found) for found in zip(*by_committer, strict=True)]

    def emitted(self, run: Run, work: BatchWork, spout: str, ranges: Ranges) -> pa.Table:
        """Return tuples as a spout emits them, before any bolt."""
        check([run])
        together = self._is_together([work])
        order = emitter_order([f"{run.name}/shown"], [work], together=together, needed={}, only={spout: ranges})
        small = len(order) <= jobs.ORDER_BYTES_MAX
        inside, signer = None if small else order, self._context.signer([run])
        with (
            marked(self._context, [run], order if small else None) as number,
            self._context.reports.signatures.held(signer.copy, number),
        ):
            frame = self._given([work], signer, inside, one_by_one=True).get(spout)
            if frame is None:
                frame = self._compiler.leaf(spout, 1 if together else len(work.parts[spout]), signer, inside)
            return pa.Table.from_batches(collect_batches(frame))

    def blame(self, reports: RunReports) -> Failure | None:
        """See WaveJobs."""
        return emitter_failure(reports)

    def outcome(self, run: Run, work: BatchWork, results: Sequence[CommitterResult], reports: RunReports) -> Outcome:
        """See WaveJobs."""
        failure = check_frames(
            self._topology,
            work.counts,
            reports,
            results,
            code_hash=self._context.code_hash,
            version=package_version(),
        )
        if failure is not None:
            return Failed(attempt=run.attempt, failure=failure)
        every = [report for (report,) in reports.values()]
        return Processed(
            attempt=run.attempt,
            # The verdict has compared the code hash of each of them (R12: only attempts with the leader's code commit).
            code_hash=self._context.code_hash,
            read=sum(report.read for report in every),
            rejected=sum(report.rejected for report in every),
            rejected_rows=rejected_rows(self._topology, reports),
            results=tuple(self._arrived(results, reports)),
            edges=edges(self._topology, reports, results),
        )

    def explain(self, run: Run, work: BatchWork, failure: Failure, error: Exception | None) -> Outcome:
        """See WaveJobs: with the bad row if a job failed on data and the emitter does not name it already."""
        searchable = isinstance(error, JobError) and not is_about_size(error.__cause__)
        named = self.blame(self._context.reports.so_far(run.name)) is not None
        if searchable and failure.kind == "data" and failure.position is None and not named:
            finder = (
                self._bad_rows
                if self._bad_rows is not None
                else unreachable("a job failed before the executor started")
            )
            failure = finder.explain(run, work, failure)
        return Failed(attempt=run.attempt, failure=failure)

    def _arrived(self, results: Sequence[CommitterResult], reports: RunReports) -> Iterator[CommitterResult]:
        """Yield the results, those that tasks of a spout counted with what these report as arrived: a number that does
        not come from the groups, and that the verdict has compared with them.
        """
        for component, result in zip(self._topology.committers, results, strict=True):
            source = component.input.source
            if self._compiler.is_counted_in_spout(source):
                result = replace(result, arrived=sent_by(source, reports))
            yield result

    def _is_together(self, works: Sequence[BatchWork]) -> bool:
        """True if one task per spout may read everything: one part for each batch, and a limited number of bytes for a
        wave.
        """
        if any(count > 1 for work in works for count in work.counts.values()):
            return False
        return len(works) == 1 or self._bytes(works) <= TOGETHER_BYTES_MAX

    def _bytes(self, works: Sequence[BatchWork]) -> int:
        return sum(
            item.spout.batch_bytes(work.assignment.metadata[item.name])
            for work in works
            for item in self._topology.spouts
            if item.name in work.assignment.metadata
        )

    def _copied(self, runs: Sequence[Run]) -> Reusable | None:
        """Return another copy of the reusable plan; None if a bolt made another plan this time, so that this batch
        needs a separate one.
        """
        signer = self._context.signer()
        with over_nothing(self._context, signer.copy):
            return self._compiler.reusable(signer, runs)[0]

    def _copied_wave(self, runs: Sequence[Run]) -> Reusable | None:
        signer = self._context.signer()
        with over_nothing(self._context, signer.copy), self._refusing_waves():
            return self._compiler.reusable_wave(signer, runs)[0]

    def _plan(
        self, runs: Sequence[Run], works: Sequence[BatchWork], together: bool, order: str | None, signer: Signer
    ) -> Compiled:
        rows = {
            item.name: 1 if together else max(1, sum(len(work.parts[item.name]) for work in works))
            for item in self._topology.spouts
        }
        if len(works) == 1:
            return self._compiler.compile(rows, signer, order, self._given(works, signer, order), runs)
        with self._refusing_waves():
            return self._compiler.compile_wave(rows, signer, order, runs)

    @contextlib.contextmanager
    def _refusing_waves(self) -> Iterator[None]:
        """Return another copy of the wave plan. A bolt may make another plan each time it is called: if one cannot
        carry the column, there are no more waves.
        """
        try:
            yield
        except NotCarriedError as error:
            self.one_by_one = str(error)
            raise

    def _given(
        self, works: Sequence[BatchWork], signer: Signer, order: str | None, *, one_by_one: bool = False
    ) -> dict[str, DataFrame]:
        return {
            # Its leaf names the run that the DataFrame belongs to, not the plan that contains it.
            spout: self._compiler.counted(
                spout, given.frame, replace(signer, made_for=given.run), order, one_by_one=one_by_one
            )
            for work in works
            if isinstance(work, FrameWork)
            for spout, given in work.given.items()
        }

    def _collected(
        self, runs: Sequence[Run], compiled: Compiled, number: int, staging: Staging | None
    ) -> list[list[CommitterResult]]:
        """Return, for each committer of the topology, the results of the runs."""
        found = {
            results[0].committer: results
            for job in compiled.counted
            for results in self._collect(runs, job, number, staging)
        }
        return [found[component.name] for component in self._topology.committers]

    def _read(self, runs: Sequence[Run], leaves: Sequence[DataFrame]) -> None:
        """Let spouts read what no committer's plan reads."""
        for leaf in leaves:
            check(runs)
            try:
                read_through(leaf)
            except Exception as error:
                raise JobError(self._bolt_names) from error

    def _collect(
        self, runs: Sequence[Run], job: CountJob, number: int, staging: Staging | None
    ) -> list[list[CommitterResult]]:
        names = {counted.name for counted in job.committers}
        if staging is None or not names & self._staged.large:
            try:
                return self._run(runs, job, number, staging)
            except (JobError, BatchDataError, TooManyRows) as error:
                is_large = staging is not None and _is_too_large(error)
                if is_large and len(names) == 1:
                    self._staged.large |= names
                elif not is_large and (not isinstance(error, JobError) or self._is_final(runs, job, error)):
                    raise
        # What counts is what each committer gives alone: the failure is named with the committer that it belongs to,
        # and results that are too large together may not be too large one after the other.
        return [results for one in job.apart() for results in self._alone(runs, one, number, staging)]

    def _is_final(self, runs: Sequence[Run], job: CountJob, error: JobError) -> bool:
        return len(runs) > 1 or not self._may_be_of_one(job, error)

    def _alone(
        self, runs: Sequence[Run], job: CountJob, number: int, staging: Staging | None
    ) -> list[list[CommitterResult]]:
        """Return the results of one committer; if they are too large for the driver, tasks store them (R10)."""
        [counted] = job.committers
        if staging is None or counted.name not in self._staged.large:
            try:
                return self._run(runs, job, number, staging)
            except (JobError, BatchDataError, TooManyRows) as error:
                if staging is None or not _is_too_large(error):
                    raise
        [component] = [item for item in self._topology.committers if item.name == counted.name]
        try:
            return [[self._staged.run(staging, runs, job, component)]]
        except (Py4JError, PySparkException) as error:
            raise JobError(counted.name) from error

    def _may_be_of_one(self, job: CountJob, error: JobError) -> bool:
        """Return True if a failure may be that of one committer among several, or of their being together. A bolt is
        upstream of all of them.
        """
        cause = error.__cause__
        if len(job.committers) == 1 or cause is None:
            return False
        if self._bolt_names:
            return is_about_size(cause)
        return classify(cause, component=None, cancelled=False).kind == "data"

    def _run(
        self, runs: Sequence[Run], job: CountJob, number: int, staging: Staging | None
    ) -> list[list[CommitterResult]]:
        """Return, for each committer of a job, the results of the runs. Raises TooManyRows only with `staging`."""
        check(runs)
        names = ", ".join(counted.name for counted in job.committers)
        try:
            place = None if staging is None else staging.place
            batches = collect_batches(job.frame) if place is None else collect_at_most(job.frame, place.rows_max)
            if other := job.other_copy(batches):
                self._context.reports.signatures.mixed_copies(number, other)
            found = job.results(batches, len(runs))
        except TooManyRows:
            raise
        except Exception as error:
            # A failure without a known cause belongs to the bolts, or to the committers' own sums if there are no
            # bolts.
            raise JobError(self._bolt_names or names) from error
        for result in (result for results in found for result in results):
            if result.bytes > RESULTS_BYTES_MAX:
                raise BatchDataError(
                    f"results exceed {RESULTS_BYTES_MAX // 2**20} MiB ({result.bytes / 2**20:.0f} MiB)",
                    component=result.committer,
                    fault=TOO_LARGE,
                )
        return found


def _is_too_large(error: Exception) -> bool:
    """Return True if results are too large for the driver."""
    if isinstance(error, BatchDataError):
        return error.fault == TOO_LARGE
    return isinstance(error, TooManyRows) or is_about_size(error.__cause__)


def _read_in(works: Sequence[BatchWork]) -> set[str]:
    """Return the spouts that some batch reads."""
    return {spout for work in works for spout, parts in work.parts.items() if parts}
