"""Run a topology's tuple runtime in this process over given rows, and keep everything that can be seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.values import CommitterResult, EdgeCount, Failure, TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.components import Spout, Tally, Topology
from txtopo.tuples.acking import AckOutcome
from txtopo.tuples.edge_checks import edges, failures_of, judge
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import TaskGraph, build_graph, sinks_of
from txtopo.tuples.message import Message, RunSpec, TaskReport
from txtopo.tuples.results import merge

Parts = Sequence[Sequence[Sequence[Any]]]
"""Rows by part."""


class RowsSpout(Spout):
    """Declares fields; its rows are given to `run_tuples`."""

    def __init__(self, fields: str) -> None:
        self.fields: Fields = parse_fields(fields)

    def open_coordinator(self, context: Any) -> Any:
        raise NotImplementedError

    def parts(self, metadata: Any) -> Any:
        raise NotImplementedError

    def emit_part(self, metadata: Any, part: Any, tally: Any) -> Any:
        raise NotImplementedError

    def inputs(self, metadata: Any) -> Any:
        return ()

    def describe(self) -> Mapping[str, Any]:
        return {}


class Keeping(BatchCommitter):
    """Its result rows are the tuples as they came."""

    def commit(self, transaction: Any, rows: Any, collector: Any) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One run of a topology."""

    graph: TaskGraph
    failure: Failure | None
    results: Mapping[str, CommitterResult]
    acks: AckOutcome | None
    reports: Sequence[TaskReport]
    messages: Sequence[Message]

    def rows(self, committer: str) -> list[tuple[Any, ...]]:
        """Result rows of a committer, in their order."""
        return [tuple(row.values()) for row in self.results[committer].rows.to_pylist()]

    @property
    def edges(self) -> dict[str, tuple[int, int]]:
        """(sent, received) by edge."""
        counts: tuple[EdgeCount, ...] = edges(self.graph, self.reports)
        return {count.edge: (count.sent, count.received) for count in counts}

    @property
    def roots(self) -> list[tuple[int, ...]]:
        """Of each failure."""
        return [found.roots for found in failures_of(self.graph, self.reports)]


def graph_of(topology: Topology, *, ackers: int | None = None) -> TaskGraph:
    """The graph of all committers, with ackers where the topology acks by tuple."""
    count = ackers if ackers is not None else 2 if topology.acking == "tuple" else 0
    return build_graph(topology, sinks_of(topology), ackers=count)


def run_spec(parts: Mapping[str, int], **more: Any) -> RunSpec:
    """A run of attempt 3:1."""
    return RunSpec(run="r", attempt=TransactionAttempt(3, 1), sources=parts, **more)


def batches_of(fields: Fields, rows: Sequence[Sequence[Any]], batch_rows: int = 1000) -> Iterator[pa.RecordBatch]:
    """Rows as record batches of the declared fields."""
    schema = arrow_schema(fields)
    for first in range(0, len(rows), batch_rows):
        columns = zip(*rows[first : first + batch_rows], strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def run_tuples(
    topology: Topology,
    rows: Mapping[str, Parts],
    *,
    failures_max: int = 1,
    ackers: int | None = None,
    batch_rows: int = 1000,
    **more: Any,
) -> Ran:
    """Run one attempt over rows by spout and part. Further arguments are those of RunSpec."""
    graph = graph_of(topology, ackers=ackers)
    run = run_spec({name: len(parts) for name, parts in rows.items()}, **more)
    reports: list[TaskReport] = []

    def emitted(run_index: int, name: str, part: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        fields = topology.fields_of(name)
        assert fields is not None
        for batch in batches_of(fields, rows[name][part], batch_rows):
            tally.read += batch.num_rows
            yield batch

    messages = list(Engine(graph, failures_max=failures_max).run_local([run], emitted, reports.append))
    return ran(graph, run, reports, messages)


def ran(graph: TaskGraph, run: RunSpec, reports: Sequence[TaskReport], messages: Sequence[Message]) -> Ran:
    """What the driver makes of reports and messages."""
    failure = judge(graph, run, reports)
    results: Sequence[CommitterResult] = ()
    acks = None
    if failure is None:
        try:
            results, acks = merge(graph, run, messages)
        except BatchDataError as error:
            failure = Failure(kind="data", message=str(error), component=error.component)
    return Ran(
        graph=graph,
        failure=failure,
        results={item.committer: item for item in results},
        acks=acks,
        reports=reports,
        messages=messages,
    )
