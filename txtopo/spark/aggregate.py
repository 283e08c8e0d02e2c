"""The executor half of a counting committer on Spark: group, count, sum exactly, and count what arrived apart from the groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import _parse_datatype_string

from txtopo.core.fields import Fields
from txtopo.core.values import CommitterResult
from txtopo.errors import invariant
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import Aggregation, CommitterComponent

_TOTAL = "$total"
_RUN = "$run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The plan of one committer: result rows, and one row more that counts all tuples by itself."""

    name: str
    frame: DataFrame
    schema: pa.Schema
    """Of the result rows, without the column that marks the total."""
    key_count: int
    by_run: bool = False
    """Do several runs share the plan? Then the first column of the frame is the number of the run."""


def count_frame(component: CommitterComponent, frame: DataFrame, run: str | None = None) -> Counted:
    """Plan the aggregation over the committer's input stream; where several runs share the plan, `run` is the column that tells them apart."""
    aggregation = component.bolt.aggregation()
    # Every tuple is counted twice: in its group, and in the one row of the total. So `arrived` has a place of its own (docs/protocol.md)
    # in the same job. It is a Generate node, not grouping sets, since those lose the single partition and would add an exchange.
    doubled = frame.withColumn(_TOTAL, F.explode(F.array(F.lit(False), F.lit(True))))
    own = ~F.col(_TOTAL)
    keys = [F.when(own, _column(name)).alias(f"_k{index}") for index, name in enumerate(aggregation.keys)]
    summed = [
        F.when(own, _addend(source, component.fields)).alias(f"_s{index}")
        for index, (source, _) in enumerate(aggregation.sums)
    ]
    runs = [] if run is None else [_column(run).alias(_RUN)]
    names = [*([] if run is None else [_RUN]), _TOTAL, *(f"_k{index}" for index in range(len(keys)))]
    grouped = (
        doubled.select(*runs, F.col(_TOTAL), *keys, *summed)
        .groupBy(*names)
        .agg(
            F.count(F.lit(1)).alias("_n"),
            *(_total(index, source, component.fields) for index, (source, _) in enumerate(aggregation.sums)),
        )
    )
    return Counted(
        name=component.name,
        frame=grouped,
        schema=arrow_schema(component.result_fields),
        key_count=len(keys),
        by_run=run is not None,
    )


def results_of(counted: Counted, batches: list[pa.RecordBatch], runs: int) -> list[CommitterResult]:
    """One result for each of so many runs, an empty one where nothing arrived. `arrived` is each run's own total, never a sum of its groups."""
    if not counted.by_run:
        invariant(runs == 1, f"{counted.name}: a plan of one run was used for {runs}")
        return [result_of(counted, batches)]
    found: dict[int, pa.Table] = {}
    table = pa.Table.from_batches(batches) if batches else None
    if table is not None and table.num_rows:
        table = table.sort_by([(table.column_names[0], "ascending")])
        numbers = pc.run_end_encode(table.column(0).combine_chunks())
        start = 0
        for number, end in zip(numbers.values.to_pylist(), numbers.run_ends.to_pylist(), strict=True):
            # A copy: a run that waits for its turn must not keep the rows of the whole wave.
            found[number] = table.take(pa.array(range(start, end), pa.int64())).drop_columns([table.column_names[0]])
            start = end
    invariant(all(0 <= number < runs for number in found), f"{counted.name}: rows of a run that is not in the wave")
    return [result_of(counted, found[run].to_batches() if run in found else []) for run in range(runs)]


def result_of(counted: Counted, batches: list[pa.RecordBatch]) -> CommitterResult:
    """Split what Spark returned into the result rows and the number of tuples that arrived."""
    table = pa.Table.from_batches(batches) if batches else None
    arrived, rows = 0, counted.schema.empty_table()
    if table is not None and table.num_rows:
        is_total = table.column(0)
        totals = table.filter(is_total)
        invariant(totals.num_rows <= 1, f"{counted.name}: {totals.num_rows} totals instead of one")
        arrived = totals.column(1 + counted.key_count)[0].as_py() if totals.num_rows else 0
        own = table.filter(pc.invert(is_total)).drop_columns([table.column_names[0]])
        # In the order of the keys, so that two attempts at one plan hand over the same table.
        rows = (
            own.sort_by([(name, "ascending") for name in own.column_names[: counted.key_count]])
            if counted.key_count
            else own
        )
        rows = rows.rename_columns(counted.schema.names).cast(counted.schema)
    return CommitterResult(
        committer=counted.name, arrived=arrived, rows=rows, row_count=rows.num_rows, bytes=rows.nbytes
    )


def spark_schema(fields: Fields) -> Any:
    """Spark's StructType of declared fields; needs a session."""
    return _parse_datatype_string(fields.ddl)


def required_fields(aggregation: Aggregation) -> tuple[str, ...]:
    """The input fields that an aggregation reads."""
    return (*aggregation.keys, *(source for source, _ in aggregation.sums))


def _addend(source: str, fields: Fields) -> Column:
    field = fields.get(source)
    invariant(field is not None, f"field {source} was checked when the topology was built")
    kind = field.type.kind if field is not None else ""
    # Sums of at most 32 bits cannot overflow 64; all others are added with 38 digits, where an overflow is an error (ANSI) and never NULL.
    if kind in ("tinyint", "smallint", "int"):
        return _column(source)
    scale = (field.type.scale if field is not None else None) or 0
    return _column(source).cast(f"decimal(38,{scale})")


def _total(index: int, source: str, fields: Fields) -> Column:
    field = fields.get(source)
    scale = (field.type.scale if field is not None else None) or 0
    return F.coalesce(
        F.sum(F.col(f"_s{index}")).cast(f"decimal(38,{scale})"), F.lit(0).cast(f"decimal(38,{scale})")
    ).alias(f"_d{index}")


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
