"""Processes one attempt of a tuple topology in this process: the tuple runtime, its verdict, and the search for the
tuple that causes a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from txtopo.core.values import Failed, Outcome, Processed
from txtopo.ports import Assignment
from txtopo.topology.components import Tally, Topology
from txtopo.tuples.edge_checks import edges, rejected_rows
from txtopo.tuples.graph import build_graph, root_place, sinks_of
from txtopo.tuples.local import LocalRun, run_here
from txtopo.tuples.message import RunSpec, TupleFailure
from txtopo.tuples.tracing import Again, Tracing


class LocalTuples:
    """Runs attempts of one topology, one at a time, each with a graph of all its committers."""

    def __init__(self, topology: Topology, code_hash: bytes, *, ackers: int = 1) -> None:
        """Create a runner. `ackers` is the number of acker tasks if the topology tracks every tuple."""
        self._topology = topology
        self._code_hash = code_hash
        self._graph = build_graph(topology, sinks_of(topology), ackers=ackers if topology.acking == "tuple" else 0)

    def process(self, assignment: Assignment, emitting: Callable[[Iterator[Any]], Iterator[Any]]) -> Outcome:
        """Process one attempt. `emitting` wraps the output of spouts, to observe it."""
        began = time.monotonic()
        parts: dict[str, Sequence[Mapping[str, Any]]] = {
            item.name: list(item.spout.parts(assignment.metadata[item.name]))
            for item in self._topology.spouts
            if item.name in assignment.metadata
        }

        def run(again: Again) -> tuple[Outcome, Sequence[TupleFailure]]:
            ran = self._run(assignment, parts, again, emitting)
            return self._outcome(assignment, ran), ran.causes()

        outcome, causes = run(Again())
        if isinstance(outcome, Failed) and outcome.failure.kind == "data":
            place_of = partial(root_place, self._graph)
            outcome = Tracing(self._topology, place_of, assignment, parts, run).explained(outcome.failure, causes)
        if isinstance(outcome, Processed):
            return replace(outcome, spans={"processing": time.monotonic() - began})
        return outcome

    def _run(
        self,
        assignment: Assignment,
        parts: Mapping[str, Sequence[Mapping[str, Any]]],
        again: Again,
        emitting: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> LocalRun:
        spec = RunSpec(
            run=str(assignment.attempt),
            attempt=assignment.attempt,
            traced=again.traced,
            excluded=again.excluded,
            sources={item.name: max(1, len(parts.get(item.name, ()))) for item in self._topology.spouts},
        )
        spouts = {item.name: item.spout for item in self._topology.spouts}

        def emit(run_index: int, spout: str, index: int, tally: Tally) -> Iterator[pa.RecordBatch]:
            # A generator, so that an error before the spout's first tuple is noted with its name and line, like later
            # errors.
            if spout in parts:
                tally.attempt = assignment.attempt
                yield from emitting(spouts[spout].emit_part(assignment.metadata[spout], parts[spout][index], tally))

        return run_here(self._graph, spec, emit, failures_max=again.failures_max)

    def _outcome(self, assignment: Assignment, ran: LocalRun) -> Outcome:
        if ran.failure is not None:
            return Failed(attempt=assignment.attempt, failure=ran.failure)
        rejects = rejected_rows(self._graph, ran.reports)
        return Processed(
            attempt=assignment.attempt,
            code_hash=self._code_hash,
            read=sum(report.read for report in ran.reports),
            rejected=len(rejects),
            rejected_rows=rejects,
            results=tuple(ran.results),
            edges=edges(self._graph, ran.reports),
        )
