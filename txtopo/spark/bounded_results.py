"""Collects the rows of a job as long as there are not too many for the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql.pandas.serializers import ArrowCollectSerializer, ArrowStreamSerializer
from pyspark.util import _load_from_socket

from txtopo.errors import TxtopoError


class TooManyRows(TxtopoError):
    """The results of a job have more rows than may go through the driver."""


RowsSoFar = Callable[[pa.RecordBatch], int]
"""Returns the number of rows that count, of this batch and of all before."""


def collect_at_most(frame: Any, rows_max: int, so_far: RowsSoFar | None = None) -> list[pa.RecordBatch]:
    """Return what `collect_batches` returns, of at most `rows_max` rows. If there are more, none is kept as soon as
    this is known, and TooManyRows is raised when the job has ended. `so_far` is called with each batch, in the order
    of the tasks' ends; None: all rows count.
    """
    port, secret, server = frame._jdf.collectAsArrowToPython()
    bounded = _Bounded(rows_max, so_far or _AllRows())
    try:
        with _load_from_socket((port, secret), bounded) as stream:
            batches = list(stream)
    finally:
        with unwrap_spark_exception():
            server.getResult()
    if bounded.rows > rows_max:
        raise TooManyRows(f"the results of a job have {bounded.rows:,} rows")
    return batches


class _AllRows:
    def __init__(self) -> None:
        self._rows = 0

    def __call__(self, batch: pa.RecordBatch) -> int:
        self._rows += batch.num_rows
        return self._rows


class _Bounded(ArrowCollectSerializer):
    """Reads the batches that the JVM sends, each as soon as its task has ended, and then their order."""

    def __init__(self, rows_max: int, so_far: RowsSoFar) -> None:
        super().__init__()
        self.rows = 0
        """Number of rows that came and count."""
        self._rows_max = rows_max
        self._so_far = so_far

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the batches in their order; none if there are too many rows."""
        kept: list[pa.RecordBatch] = []
        for batch in ArrowStreamSerializer.load_stream(self, stream):
            self.rows = self._so_far(batch)
            if self.rows > self._rows_max:
                kept.clear()
            else:
                kept.append(batch)
        count = read_int(stream)  # type: ignore[no-untyped-call]
        if count == -1:
            # The exception of the job follows, and replaces this one.
            raise RuntimeError(UTF8Deserializer().loads(stream))  # type: ignore[no-untyped-call]
        order = [read_int(stream) for _ in range(count)]  # type: ignore[no-untyped-call]
        if self.rows <= self._rows_max:
            yield from (kept[at] for at in order)
