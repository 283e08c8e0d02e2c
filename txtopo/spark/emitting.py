"""The emitter half of a spout inside a Spark task: emits its parts, counts, reports, and never fails the task for bad data."""

from __future__ import annotations

import json
import socket
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from txtopo.core.values import Failure
from txtopo.errors import BatchDataError
from txtopo.spark.failures import user_frame
from txtopo.spark.reports import Report
from txtopo.spark.shipping import package_version
from txtopo.topology.components import Spout, Tally

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

ORDER_PROPERTY = "txtopo.order"
"""Local property of the job that tells its tasks which batch they emit. It is no part of the plan, so that one plan serves all batches."""


@dataclass(frozen=True, kw_only=True)
class Emitter:
    """The function given to `mapInArrow`: rows in are part indexes, rows out are the tuples of these parts."""

    name: str
    spout: Spout
    code_hash: bytes
    reports: Accumulator[Any]
    order: str | None = None
    """The order itself, where it is too large for a local property."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Emit the parts named in `batches`; without an order (the runs over nothing at start) none."""
        text = self.order
        if text is None:
            context = TaskContext.get()
            text = context.getLocalProperty(ORDER_PROPERTY) if context is not None else None
        order = json.loads(text) if text else None
        if order is None:
            self.spout.warm_up()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                if order is not None:
                    yield from self._emit(order["run"], order["spouts"][self.name], index)

    def _emit(self, run: str, order: Mapping[str, Any], index: int) -> Iterator[pa.RecordBatch]:
        tally = Tally()
        failure: Failure | None = None
        needed, only = order.get("needed"), order.get("only")
        try:
            # The spout parses all its columns, whichever the bolts read: which records are rejected is no matter of theirs.
            batches = self.spout.emit_part(order["metadata"], order["parts"][index], tally)
            for batch in batches if only is None else restrict(batches, *only.get(str(index), (0, 0))):
                if batch.num_rows:
                    yield batch if needed is None else _blank(batch, needed)
        except Exception as error:
            failure = self._failure(error)
        self.reports.add(
            [
                Report(
                    run=run,
                    spout=self.name,
                    part=index,
                    read=tally.read,
                    rejects=tuple(replace(row, spout=self.name) for row in tally.rejects),
                    failure=failure,
                    code_hash=self.code_hash,
                    version=package_version(),
                    host=socket.gethostname(),
                )
            ]
        )

    def _failure(self, error: Exception) -> Failure:
        match error:
            case BatchDataError():
                return Failure(
                    kind="data", message=str(error), component=self.name, position=error.position, detail=error.detail
                )
            case OSError():
                return Failure(kind="infrastructure", message=f"{type(error).__name__}: {error}", component=self.name)
        trace = "".join(traceback.format_exception(error))
        where = user_frame(trace)
        message = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return Failure(
            kind="data", message=f"{where}: {message}" if where else message, component=self.name, detail=trace
        )


def restrict(batches: Iterator[pa.RecordBatch], start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The tuples numbered [start, end) of a part, counted from 0; the part is read no further than to `end`."""
    number = 0
    while number < end:
        batch = next(batches, None)
        if batch is None:
            return
        first, last = max(start - number, 0), min(end - number, batch.num_rows)
        number += batch.num_rows
        if first < last:
            yield batch.slice(first, last - first)


def _blank(batch: pa.RecordBatch, needed: list[str]) -> pa.RecordBatch:
    """The batch with NULL in columns that nothing behind it reads: parsed all the same, but not carried to the JVM."""
    import pyarrow as pa

    columns = [
        column if field.name in needed else pa.nulls(batch.num_rows, field.type)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
