"""The emitter half of a spout inside a Spark task: emits its parts, counts, reports, and never fails the task because
of bad data.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from txtopo.core.fields import Field, Fields
from txtopo.core.values import Failure, TransactionAttempt
from txtopo.spark.reports import Report
from txtopo.spark.session.ship_modules import package_version
from txtopo.spark.session.used_workers import end_if_used
from txtopo.spark.signatures import Signer
from txtopo.topology.components import Spout, Tally
from txtopo.topology.partial_counts import PartialCount
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.tuples.columns import Columns
from txtopo.tuples.partial_groups import PartialGroups
from txtopo.tuples.tracing import restrict
from txtopo.tuples.user_errors import spout_failure_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from txtopo.spark.jobs import BatchWork

HIDDEN = "$run"
"""Last column of what the leaves of a wave emit, which no bolt sees: the number of the run in its wave; upstream of
tuple bolts the number of the source task, which also shows the run.
"""
_EMPTY: Mapping[str, Any] = {"string": "", "binary": b"", "boolean": False}
"""Empty values of the types that have no 0."""


@dataclass(frozen=True, kw_only=True)
class TaskEmitter:
    """The function passed to `mapInArrow`: input rows are numbers of source tasks, output rows are the tuples of their
    parts.
    """

    name: str
    spout: Spout
    code_hash: bytes
    reports: Accumulator[Any]
    signer: Signer
    """Signs for the copy of the plan that contains this emitter. Spark treats plans with equal functions as the same
    plan; without the signer it would answer one with what a bolt persisted in another.
    """
    order: str | None = None
    """The order itself, if it is too large for a local property."""
    hidden: str | None = None
    """Name of the last column: the run of the wave that a tuple belongs to. None: there is no such column, because the
    plan serves one run at a time.
    """
    partial: PartialCount | None = None
    """How tuples are grouped before they leave; None: they leave one by one."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sign, then emit the parts named in `batches`; emit nothing when the plan runs over no rows at the start."""
        order = self._order()
        if order is None:
            self.spout.warm_up()
        every = [] if order is None else self._parts(order)
        groups = self._groups()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                # One task may read everything: many small files per task. A spout that is idle has a task with nothing
                # to do.
                for run, part in every if order is not None and order["together"] else every[index : index + 1]:
                    yield from self._emit(order or {}, run, part, groups=groups)
        if groups is not None:
            # Each run was reported when its tuples were taken: to add up their numbers cannot fail on data.
            yield from groups.end()

    def _groups(self) -> PartialGroups | None:
        """Return what groups the tuples of all runs of a wave together, apart from each other: to group the few tuples
        of each file by itself costs several times as much. None: tuples are not grouped, or a plan has one run.
        """
        if self.partial is None or self.hidden is None:
            return None
        return PartialGroups(self.partial, self.spout.fields, apart=self.hidden)

    def _order(self) -> Mapping[str, Any] | None:
        _, text = self.signer.order(self.order, [self.name])
        return json.loads(text) if text else None

    def _parts(self, order: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Return (run, part) of everything that the spout emits, in the order of its tasks."""
        return [
            (run, part)
            for run, found in enumerate(order["runs"])
            if self.name in found["spouts"]
            for part in range(len(found["spouts"][self.name]["parts"]))
        ]

    def _emit(
        self,
        order: Mapping[str, Any],
        run: int,
        part: int,
        given: Iterator[pa.RecordBatch] | None = None,
        *,
        groups: PartialGroups | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield one part of one run: what its spout reads, or `given`."""
        tally = Tally(attempt=TransactionAttempt(*order["runs"][run]["attempt"]))
        failure: Failure | None = None
        found = order["runs"][run]["spouts"][self.name]
        needed, only = order["needed"].get(self.name), found.get("only")
        try:
            # The spout parses all its columns, even those that no bolt reads: which records are rejected must not
            # depend on the bolts.
            if given is not None:
                batches = _read(given, tally)
            else:
                declared = Columns(self.name, DEFAULT_STREAM, self.spout.fields)
                # Spark takes columns by position, and does not check a `not null` field for NULL.
                batches = map(declared.fitted, self.spout.emit_part(found["metadata"], found["parts"][part], tally))
            # A search for a bad row emits some tuples only: they are chosen first, and then grouped.
            emitted = batches if only is None else restrict(batches, *only.get(str(part), (0, 0)))
            leaving = self._leaving(emitted, needed) if groups is None else groups.of_number(emitted, run)
            for batch in leaving:
                if batch.num_rows:
                    yield batch if self.hidden is None or groups is not None else numbered(batch, self.hidden, run)
        except Exception as error:
            failure = spout_failure_of(error, self.name)
        if failure is not None:
            end_if_used([failure])
        self.reports.add(
            [
                Report(
                    run=order["runs"][run]["run"],
                    spout=self.name,
                    part=part,
                    read=tally.read,
                    rejects=tuple(replace(row, spout=self.name) for row in tally.rejects),
                    failure=failure,
                    code_hash=self.code_hash,
                    version=package_version(),
                    host=socket.gethostname(),
                )
            ]
        )

    def _leaving(self, batches: Iterator[pa.RecordBatch], needed: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Return what leaves the task: groups, or tuples with their `needed` columns."""
        if self.partial is not None:
            return PartialGroups(self.partial, self.spout.fields).of(batches)
        if needed is None:
            return batches
        return (blank(batch, needed, self.spout.fields) for batch in batches)


@dataclass(frozen=True, kw_only=True)
class FrameEmitter(TaskEmitter):
    """The emitter of a spout that gives a DataFrame: passes its partitions on, and counts them as parts.

    Identifies partitions by the number of the task: a bolt downstream may repartition, but not `coalesce` or `union`
    without an exchange; otherwise the reports do not match the partitions and the verdict fails the attempt.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sign, then pass on one partition."""
        order, context = self._order(), TaskContext.get()
        if order is not None and context is not None:
            yield from self._emit(order, 0, context.partitionId(), batches)


def emitter_order(
    names: Sequence[str],
    works: Sequence[BatchWork],
    *,
    together: bool,
    needed: Mapping[str, Sequence[str]],
    only: Mapping[str, Any] | None = None,
) -> str:
    """Return the order to the emitters as JSON: runs under these names, each with its batch. A spout that is idle in a
    batch is not named in it.

    `together`: one task per spout reads everything. `needed`: columns by spout, all others are NULL. `only`: tuples by
    spout and part, of one run.
    """
    runs: list[dict[str, Any]] = []
    for name, work in zip(names, works, strict=True):
        spouts: dict[str, dict[str, Any]] = {
            spout: {"metadata": work.assignment.metadata[spout], "parts": parts}
            for spout, parts in work.parts.items()
            if parts
        }
        for spout, ranges in (only or {}).items():
            spouts[spout]["only"] = ranges
        attempt = work.assignment.attempt
        runs.append({"run": name, "attempt": [attempt.txid, attempt.attempt], "spouts": spouts})
    return json.dumps({"together": together, "needed": needed, "runs": runs}, separators=(",", ":"))


def _read(batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tally.read += batch.num_rows
        yield batch


def blank(batch: pa.RecordBatch, needed: Sequence[str], fields: Fields) -> pa.RecordBatch:
    """Return the batch with NULL in columns that nothing downstream reads: they are parsed, but not sent to the JVM.

    A `not null` field gets an empty or zero value instead, because Spark does not expect NULL there and would fail on
    it.
    """
    declared = {field.name: field for field in fields.items}
    columns = [
        column if one.name in needed else _nothing(declared[one.name], one.type, batch.num_rows)
        for one, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return batch.from_arrays(columns, schema=batch.schema)


def _nothing(field: Field, kind: pa.DataType, rows: int) -> pa.Array:
    import pyarrow as pa

    if field.nullable:
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(_EMPTY.get(field.type.kind, 0), kind), rows)


def numbered(batch: pa.RecordBatch, column: str, number: int) -> pa.RecordBatch:
    """Return the batch with a number as the last column, the same in every row."""
    import pyarrow as pa

    numbers = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
    schema = batch.schema.append(pa.field(column, pa.int32(), nullable=False))
    return pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)
