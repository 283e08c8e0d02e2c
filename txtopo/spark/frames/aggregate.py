"""The executor half of counting committers on Spark: group, count, aggregate exactly, and count the tuples that arrived
separately from the groups. All committers of a stream are counted by one job, so that it is read once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import _parse_datatype_string

from txtopo.core.fields import Fields, FieldType
from txtopo.core.values import CommitterResult
from txtopo.errors import invariant, unreachable
from txtopo.spark.frames.arrived_rows import PARTITION_BITS, Counted, arrived, rows_of, said_together
from txtopo.spark.frames.planned_frames import partitions_of
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.committer_bolt import FOLDS, AggregateKind, Aggregation
from txtopo.topology.components import CommitterComponent
from txtopo.topology.event_windows import CELL_RANKS, RANK_BITS, REGISTERS_BITS, KeySource
from txtopo.topology.partial_counts import TUPLES, PartialCount

PARTITIONS_MAX = 16
"""Up to this number of partitions, each group contains the bounds of each partition."""
_RUN = "$run"
_COMMITTER = "$committer"
"""Column with the number of the committer that a group belongs to, if several share a job."""
_ROW = "$row"
_WEIGHT = "$weight"
_TOTAL = "$total"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountJob:
    """The plan of one job: the groups of all committers that read one stream."""

    frame: DataFrame
    stream: DataFrame
    """The committers' input, as its upstream bolts made it."""
    committers: tuple[Counted, ...]
    columns: tuple[tuple[int, ...], ...]
    """For each committer: the places of its columns among those of the frame."""
    mark: str
    """Name of the column that counts the rows of a group. It contains the number of the plan's copy, so that the schema
    shows results of another copy.
    """
    apart: Callable[[], Sequence[CountJob]]
    """Makes one job for each committer."""

    def other_copy(self, batches: list[pa.RecordBatch]) -> int:
        """Number of the copy that these results came from if it is another one; otherwise 0."""
        for batch in batches:
            if self.mark not in batch.schema.names:
                found = next((name for name in batch.schema.names if re.fullmatch(r"_n\d+", name)), "_n0")
                return int(found.removeprefix("_n")) or -1
        return 0

    def results(self, batches: list[pa.RecordBatch], runs: int) -> list[list[CommitterResult]]:
        """Return, for each committer, one result for each of `runs` runs. Raises BatchDataError if Python cannot read a
        row.
        """
        return [results_of(counted, self._groups_of(at, batches), runs) for at, counted in enumerate(self.committers)]

    def _groups_of(self, committer: int, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        if not batches:
            return []
        table = pa.Table.from_batches(batches)
        if len(self.committers) > 1:
            numbers = table.column(_COMMITTER)
            bounds = pc.min_max(numbers).as_py()
            invariant(
                bounds["min"] is None or (bounds["min"] >= 0 and bounds["max"] < len(self.committers)),
                "groups of a committer that is not in the job",
            )
            table = table.filter(pc.equal(numbers, committer))
        found: list[pa.RecordBatch] = table.select(list(self.columns[committer])).to_batches()
        return found


@dataclass(frozen=True, slots=True)
class _Slots:
    """The columns that the committers of a stream need, each once, with the numbers of those that need it."""

    count: int
    """Number of committers."""
    keys: dict[KeySource, list[int]] = field(default_factory=dict)
    values: dict[tuple[AggregateKind, str], list[int]] = field(default_factory=dict)
    """By kind and field."""

    @classmethod
    def of(cls, aggregations: Sequence[Aggregation]) -> _Slots:
        slots = cls(len(aggregations))
        for number, one in enumerate(aggregations):
            for source in one.sources:
                slots.keys.setdefault(source, []).append(number)
            for kind, name, _ in one.aggregates:
                slots.values.setdefault((kind, name), []).append(number)
        return slots

    def columns(self, one: Aggregation, before: int, after: int) -> tuple[int, ...]:
        """Return the places of a committer's columns: the run, keys, count, aggregates, and the last `after`, if
        `before` columns come before the keys.
        """
        keys, values = list(self.keys), list(self.values)
        count = before + len(keys)
        first = before - (self.count > 1)
        return (
            *range(first),
            *(before + keys.index(source) for source in one.sources),
            count,
            *(count + 1 + values.index((kind, name)) for kind, name, _ in one.aggregates),
            *range(count + 1 + len(values), count + 1 + len(values) + after),
        )


def count_frame(
    components: Sequence[CommitterComponent],
    frame: DataFrame,
    run: str | None = None,
    *,
    counting: bool = False,
    copy: int = 0,
    partial: PartialCount | None = None,
) -> CountJob:
    """Plan the aggregation over the stream that these committers read. If several runs share the plan, `run` is the
    column with the number of the run.

    If there are several committers, the stream is read once: each row is repeated for each of them, with the number of
    the committer, its keys and its values, and all are grouped together. So no sum of one committer can overflow in a
    group of another.

    With `partial` the rows of `frame` are groups that the tasks of the spout made. Their numbers of tuples are added
    up, and compared with what the same tasks report: what arrived is known from there.

    With `counting`, the same job counts the tuples that arrived separately (docs/protocol.md): each partition numbers
    its rows in their order, from 0 and independently of how the groups count them, and each group has the last number
    that it saw of each partition. Rows are numbered before they are repeated, so each committer has the numbers of all.
    If runs share the plan, a group has the first number as well: rows of a run are neighbours
    in a partition, because emitters emit run by run and nothing downstream changes the order within a partition.
    Without `counting` (acking off) there are no such numbers. More partitions than PARTITIONS_MAX, or an unknown
    number, are first grouped by partition, which costs another exchange. `copy` is the number of the plan's copy.
    """
    aggregations = [component.bolt.aggregation() for component in components]
    slots, fields = _Slots.of(aggregations), components[0].fields
    counting = counting and partial is None
    rows = _rows(frame, slots, fields, run, counting=counting, partial=partial)
    # Ask for the aggregated columns only, not for the whole stream: a column that nobody reads is removed, and with it
    # the window, the join and the exchange upstream of it.
    known = partitions_of(rows) if counting else 0
    has_totals = known is None or known > PARTITIONS_MAX
    partitions = 0 if known is None or has_totals else known
    if len(components) > 1:
        rows = _repeated(rows, slots)
    apart = [*([] if run is None else [_RUN]), *([_COMMITTER] if len(components) > 1 else [])]
    names = [*apart, *(f"_k{index}" for index in range(len(slots.keys)))]
    made = [_Made(index, kind, _type_of(source, fields)) for index, (kind, source) in enumerate(slots.values)]
    totals = [one.of("_s") for one in made]
    mark = f"_n{copy}"
    count = (F.count(F.lit(1)) if partial is None else F.sum(_WEIGHT)).alias(mark)
    if not has_totals:
        bounds = _bounds(partitions, by_run=run is not None)
        grouped, after = rows.groupBy(*names).agg(count, *totals, *bounds), len(bounds)
    else:
        grouped, after = _with_totals(rows, names, [count, *totals], made, mark, by_run=run is not None), 1
    return CountJob(
        frame=grouped,
        stream=frame,
        committers=tuple(
            Counted(
                name=component.name,
                schema=arrow_schema(component.result_fields),
                key_count=len(aggregation.sources),
                by_run=run is not None,
                partitions=partitions,
                totals=has_totals,
            )
            for component, aggregation in zip(components, aggregations, strict=True)
        ),
        columns=tuple(slots.columns(one, len(apart), after) for one in aggregations),
        mark=mark,
        apart=lambda: [
            count_frame([one], frame, run, counting=counting, copy=copy, partial=partial) for one in components
        ],
    )


def _rows(
    frame: DataFrame, slots: _Slots, fields: Fields, run: str | None, *, counting: bool, partial: PartialCount | None
) -> DataFrame:
    """Return what is grouped and summed, with the number of each row."""
    runs = [] if run is None else [column_called(run).alias(_RUN)]
    keys = [
        (_key(source, fields) if partial is None else column_called(partial.key_column(source))).alias(f"_k{index}")
        for index, source in enumerate(slots.keys)
    ]
    values = [
        (_value(kind, source, fields) if partial is None else column_called(partial.value_column(kind, source))).alias(
            f"_s{index}"
        )
        for index, (kind, source) in enumerate(slots.values)
    ]
    numbers = [F.monotonically_increasing_id().alias(_ROW)] if counting else []
    weights = [] if partial is None else [column_called(TUPLES).alias(_WEIGHT)]
    return frame.select(*runs, *keys, *values, *numbers, *weights)


def _repeated(rows: DataFrame, slots: _Slots) -> DataFrame:
    """Return each row once for each committer: NULL in keys that are not its own, and what changes no aggregate in
    such values.

    Not by GROUPING SETS: Spark forgets after them that there is only one partition, and they have no sum for some sets
    alone.
    """
    more = rows.withColumn(_COMMITTER, F.explode(F.array(*(F.lit(number) for number in range(slots.count)))))
    own = {
        **{f"_k{index}": (users, F.lit(None)) for index, users in enumerate(slots.keys.values())},
        **{
            f"_s{index}": (users, F.lit(0 if FOLDS[kind] == "add" else None))
            for index, ((kind, _), users) in enumerate(slots.values.items())
        },
    }
    columns = []
    for item in rows.schema:
        users, otherwise = own.get(item.name, ([], F.lit(None)))
        if users and len(users) < slots.count:
            kept = F.when(F.col(_COMMITTER).isin(users), F.col(item.name))
            columns.append(kept.otherwise(otherwise.cast(item.dataType)).alias(item.name))
        else:
            columns.append(F.col(item.name))
    return more.select(_COMMITTER, *columns)


def _bounds(partitions: int, *, by_run: bool) -> list[Column]:
    """Return the columns with the last row number of each partition, followed by the first one if `by_run`. Spark's
    number is the partition, shifted, and the row in it: so a number identifies its partition. Each column costs one
    comparison per row. With several partitions, the last column is the last number of all: it shows a partition that
    should not exist.
    """
    # A FILTER costs half as much per row as a CASE.
    clauses = [""]
    if partitions != 1:
        clauses = [f" filter (where shiftright(`{_ROW}`, {PARTITION_BITS}) = {at})" for at in range(partitions)]
    names = ("min", "max") if by_run else ("max",)
    bounds = [F.expr(f"{name}(`{_ROW}`){clause}") for clause in clauses for name in names]
    return bounds if partitions <= 1 else [*bounds, F.expr(f"max(`{_ROW}`)")]


def _with_totals(
    rows: DataFrame, names: list[str], values: list[Column], made: list[_Made], mark: str, *, by_run: bool
) -> DataFrame:
    """Return the groups, and in addition a row for each partition and run with the number of rows it counted: for so
    many partitions that bounds of each one in every group would be too wide. Groups are made per partition first, so
    that only groups, not rows, are doubled.
    """
    by_partition = (
        rows.withColumn("_p", F.shiftright(F.col(_ROW), PARTITION_BITS))
        .groupBy(*names, "_p")
        .agg(*values, F.min(_ROW).alias("_first"), F.max(_ROW).alias("_last"))
    )
    doubled = by_partition.withColumn(_TOTAL, F.explode(F.array(F.lit(False), F.lit(True))))
    own, total = ~F.col(_TOTAL), F.col(_TOTAL)
    first = F.min("_first") if by_run else F.shiftleft(F.col("_p"), PARTITION_BITS)
    runs = [name for name in names if name in (_RUN, _COMMITTER)]
    keys = [name for name in names if name not in (_RUN, _COMMITTER)]
    return (
        doubled.select(
            *runs,
            *(F.when(own, F.col(name)).alias(name) for name in keys),
            _TOTAL,
            F.when(total, F.col("_p")).alias("_p"),
            mark,
            *(one.of_group() for one in made),
            "_first",
            "_last",
        )
        .groupBy(*runs, *keys, _TOTAL, "_p")
        .agg(
            F.when(total, F.max("_last") - first + 1).otherwise(F.sum(mark)).alias(mark),
            *(one.of("_d") for one in made),
        )
        .select(*runs, *keys, mark, *(one.name for one in made), _TOTAL)
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """One aggregate of the job: it is made of the column `_s0` of rows, and is called `_d0` in groups."""

    index: int
    kind: AggregateKind
    type: FieldType
    """Of the field."""

    @property
    def name(self) -> str:
        return f"_d{self.index}"

    def of(self, prefix: str) -> Column:
        """Return the aggregate of `_s0`, or of `_d0`, where groups are grouped again."""
        source = f"{prefix}{self.index}"
        if self.kind == "sum":
            return _sum(source, self.type.scale or 0)
        if self.kind == "count":
            return F.coalesce(F.sum(F.col(source)), F.lit(0)).cast("bigint").alias(self.name)
        return (F.min if self.kind == "min" else F.max)(F.col(source)).alias(self.name)

    def of_group(self) -> Column:
        """Return it for a group; nothing in a row of totals, because all groups together may have more digits than
        fit.
        """
        if FOLDS[self.kind] != "add":
            return F.when(~F.col(_TOTAL), F.col(self.name)).alias(self.name)
        kind = "bigint" if self.kind == "count" else f"decimal(38,{self.type.scale or 0})"
        return F.when(F.col(_TOTAL), F.lit(0).cast(kind)).otherwise(F.col(self.name)).alias(self.name)


def results_of(counted: Counted, batches: list[pa.RecordBatch], runs: int) -> list[CommitterResult]:
    """Return one result for each of `runs` runs, an empty one if nothing arrived. `arrived` is each run's own total,
    never a sum over its groups.
    """
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
            # A copy: a run that waits for its commit must not keep the rows of the whole wave.
            found[number] = table.take(pa.array(range(start, end), pa.int64())).drop_columns([table.column_names[0]])
            start = end
    invariant(all(0 <= number < runs for number in found), f"{counted.name}: rows of a run that is not in the wave")
    return [result_of(counted, found[run].to_batches() if run in found else []) for run in range(runs)]


def result_of(counted: Counted, batches: list[pa.RecordBatch]) -> CommitterResult:
    """Split what Spark returned into the result rows and the number of tuples that arrived. Raises BatchDataError if
    Python cannot read a row, or a key is too long.
    """
    said, rows = said_together(counted, []), counted.schema.empty_table()
    if batches:
        said, rows = rows_of(counted, pa.Table.from_batches(batches))
        # In the order of the keys, so that two attempts with one plan return the same table.
        if counted.key_count and rows.num_rows:
            rows = rows.sort_by([(name, "ascending") for name in rows.column_names[: counted.key_count]])
    return CommitterResult(
        committer=counted.name, arrived=arrived(counted, said), rows=rows, row_count=rows.num_rows, bytes=rows.nbytes
    )


def spark_schema(fields: Fields) -> Any:
    """Return Spark's StructType for declared fields; needs a session."""
    return _parse_datatype_string(fields.ddl)


def required_fields(aggregation: Aggregation) -> tuple[str, ...]:
    """Return the input fields that an aggregation reads."""
    return (*(one.field for one in aggregation.sources), *(one.field for one in aggregation.aggregates))


def _key(source: KeySource, fields: Fields) -> Column:
    """Return a key of a row: its value, or what is made of it, as `key_values` has it."""
    value = column_called(source.field)
    if source.is_cell:
        return _cell(value)
    if not source.width_us:
        return value
    # The session's zone is UTC, so the cast of a time without zone changes no digit.
    if source.zone:
        value = local_time(value, source.zone)
    moment = F.unix_micros(value.cast("timestamp"))
    start = F.timestamp_micros(moment - F.pmod(moment, F.lit(source.width_us)))
    return start.cast(str(source.type_of(_type_of(source.field, fields))))


def local_time(value: Column, zone: str) -> Column:
    """Return what a clock in this zone shows at a moment, in a session whose zone is UTC."""
    return F.convert_timezone(F.lit("UTC"), F.lit(zone), value.cast("timestamp_ntz"))


def _cell(value: Column) -> Column:
    """Return the cell of a value: a digit of the hexadecimal hash has four bits."""
    name = F.sha2(value.cast("string").cast("binary"), 256)
    register = F.conv(F.substring(name, 1, REGISTERS_BITS // 4), 16, 10).cast("int")
    rest = F.conv(F.substring(name, 1 + REGISTERS_BITS // 4, RANK_BITS // 4), 16, 10).cast("bigint")
    zeros = F.when(rest == 0, F.lit(RANK_BITS)).otherwise(F.lit(RANK_BITS) - F.length(F.bin(rest)))
    return (register * CELL_RANKS + zeros + 1).cast("int")


def _value(kind: AggregateKind, source: str, fields: Fields) -> Column:
    """Return what a row brings to an aggregate of this kind."""
    if kind == "count":
        return F.when(column_called(source).isNull(), F.lit(0)).otherwise(F.lit(1))
    return _addend(source, fields) if kind == "sum" else column_called(source)


def _addend(source: str, fields: Fields) -> Column:
    kind = _type_of(source, fields)
    # Sums of at most 32 bits cannot overflow 64 bits; all others are added with 38 digits, and an overflow is an error.
    if kind.kind in ("tinyint", "smallint", "int"):
        # No cast: if the user's own addition overflows, Spark must name the user's line, not this one.
        return F.coalesce(column_called(source), F.lit(0).cast(kind.kind))
    wide = f"decimal(38,{kind.scale or 0})"
    return F.coalesce(column_called(source).cast(wide), F.lit(0).cast(wide))


def _type_of(source: str, fields: Fields) -> FieldType:
    field = fields.get(source)
    return field.type if field is not None else unreachable(f"field {source} was checked when the topology was built")


def _sum(name: str, scale: int) -> Column:
    """Return the sum of `_s0` or `_d0`, named `_d0`: exact, and 0 over no rows.

    Addends are never NULL, so a sum over rows that is NULL has overflowed: an error even in a session that would hide
    it.
    """
    zero = F.lit(0).cast(f"decimal(38,{scale})")
    total = F.sum(F.col(name)).cast(f"decimal(38,{scale})")
    known = F.coalesce(total, F.raise_error(F.lit("a sum has more than 38 digits")).cast(f"decimal(38,{scale})"))
    return F.when(F.count(F.lit(1)) > 0, known).otherwise(zero).alias(f"_d{name[2:]}")


def column_called(name: str) -> Column:
    """Return a column by its exact name, whatever characters the name contains."""
    return F.col("`" + name.replace("`", "``") + "`")
