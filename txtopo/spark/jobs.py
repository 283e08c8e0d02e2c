"""The jobs of one attempt: its order to the emitters, its tag, its plans, and their results by Arrow."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from txtopo.core.limits import RESULTS_BYTES_MAX
from txtopo.core.values import CommitterResult, TransactionAttempt
from txtopo.errors import BatchDataError, invariant
from txtopo.ports import Assignment
from txtopo.spark.aggregate import Counted, result_of
from txtopo.spark.bisecting import Ranges
from txtopo.spark.emitting import ORDER_PROPERTY
from txtopo.spark.plan import Compiled, Compiler, Reusable
from txtopo.topology.components import Topology

ORDER_BYTES_MAX = 512 * 1024
"""A longer order travels inside the plan, since local properties are sent again with every task."""
_DESCRIPTION = "spark.job.description"


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One attempt while it is being processed."""

    name: str
    """Differs for every call of `process`, also for the same attempt: late reports of an earlier call must not be taken for this one's (K1)."""
    tag: str
    attempt: TransactionAttempt
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A batch and its parts by spout."""

    assignment: Assignment
    parts: Mapping[str, Sequence[Mapping[str, Any]]]

    @property
    def counts(self) -> dict[str, int]:
        """Number of parts by spout."""
        return {name: len(found) for name, found in self.parts.items()}


Only = Mapping[str, Ranges]
"""By spout: the tuples that it emits; a spout that is not named emits all."""


class CancelledError(Exception):
    """The attempt was cancelled between two of its jobs."""


class JobError(Exception):
    """A job ended with the cause of this error."""

    def __init__(self, component: str) -> None:
        super().__init__(component)
        self.component = component


class Jobs:
    """Runs the plans of one topology over batches and pieces of batches. Used by several threads at once."""

    def __init__(self, spark: SparkSession, topology: Topology, compiler: Compiler, reusable: Reusable | None) -> None:
        self._spark = spark
        self._topology = topology
        self._compiler = compiler
        self._reusable = reusable
        self._bolt_names = ", ".join(bolt.name for bolt in topology.bolts)
        """Spark does not tell which bolt an expression came from: where there are several, all are named."""

    def split(self, assignment: Assignment) -> Work:
        """The parts of a batch, as its spouts split it."""
        parts = {item.name: list(item.spout.parts(assignment.metadata[item.name])) for item in self._topology.spouts}
        invariant(all(parts.values()), "a spout split a batch into no part")
        return Work(assignment=assignment, parts=parts)

    def results(
        self, run: Run, work: Work, *, name: str | None = None, only: Only | None = None
    ) -> list[CommitterResult]:
        """Process the batch, or `only` some tuples of it with reports under another run's `name`. Raises JobError where a job fails."""
        reusable = self._reusable if all(count == 1 for count in work.counts.values()) else None
        order = self._order(name or run.name, work, reusable.needed if reusable else {}, only)
        small = len(order) <= ORDER_BYTES_MAX
        with self._thread_properties(run, order if small else None):
            # A bolt may run jobs of its own while it is called: those carry the order and the tag as well.
            compiled = reusable.compiled if reusable and small else self._plan(work, None if small else order)
            return [self._collect(run, counted) for counted in compiled.counted]

    def emitted(self, run: Run, work: Work, spout: str, ranges: Ranges) -> pa.Table:
        """Tuples as they leave a spout, before any bolt."""
        _check(run)
        order = self._order(f"{run.name}/shown", work, {}, {spout: ranges})
        small = len(order) <= ORDER_BYTES_MAX
        with self._thread_properties(run, order if small else None):
            frame = self._compiler.leaf(spout, work.counts[spout], None if small else order)
            return pa.Table.from_batches(_collect_batches(frame))

    def warm_up(self, compiled: Compiled) -> None:
        """Run plans over nothing."""
        for counted in compiled.counted:
            _collect_batches(counted.frame)

    def _order(self, name: str, work: Work, needed: Mapping[str, Sequence[str]], only: Only | None) -> str:
        spouts: dict[str, dict[str, Any]] = {
            item.name: {
                "metadata": work.assignment.metadata[item.name],
                "parts": work.parts[item.name],
                "needed": needed.get(item.name),
            }
            for item in self._topology.spouts
        }
        for spout, ranges in (only or {}).items():
            spouts[spout]["only"] = ranges
        return json.dumps({"run": name, "spouts": spouts}, separators=(",", ":"))

    def _plan(self, work: Work, order: str | None) -> Compiled:
        return self._compiler.compile(work.counts, order)

    def _collect(self, run: Run, counted: Counted) -> CommitterResult:
        _check(run)
        try:
            # Record batches of bounded size arrive one by one; Spark ends the job when they are larger than `spark.driver.maxResultSize`.
            result = result_of(counted, _collect_batches(counted.frame))
        except Exception as error:
            # A failure that nothing else is known about belongs to the bolts, or to the committer's own sums where there are none.
            raise JobError(self._bolt_names or counted.name) from error
        if result.bytes > RESULTS_BYTES_MAX:
            raise BatchDataError(
                f"results exceed {RESULTS_BYTES_MAX // 2**20} MiB ({result.bytes / 2**20:.0f} MiB)",
                component=counted.name,
            )
        return result

    @contextlib.contextmanager
    def _thread_properties(self, run: Run, order: str | None) -> Iterator[None]:
        """Mark the jobs of this thread as the attempt's. Worker threads are reused, so everything is taken off again."""
        context: Any = self._spark.sparkContext
        context.setLocalProperty(ORDER_PROPERTY, order)
        context.setLocalProperty(_DESCRIPTION, f"{self._topology.name} batch {run.attempt}")
        context.addJobTag(run.tag)
        try:
            yield
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.removeJobTag(run.tag)
                context.setLocalProperty(ORDER_PROPERTY, None)
                context.setLocalProperty(_DESCRIPTION, None)


def _check(run: Run) -> None:
    if run.cancelled.is_set():
        raise CancelledError


def _collect_batches(frame: Any) -> list[pa.RecordBatch]:
    """All rows as Arrow batches of bounded size. The public `toArrow` asks for the schema again for every batch."""
    return list(frame._collect_as_arrow())
