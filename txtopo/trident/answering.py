"""Answers a query: its steps run in this process, on the tuple engine, and its states are read in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.committers.protocol.downstream import CommitPhases, commit_phases, committers_of, fresh
from txtopo.committers.protocol.result_order import in_order
from txtopo.committers.protocol.user_code import run_commit
from txtopo.committers.protocol.user_transaction import UserTransaction
from txtopo.core.fields import Fields
from txtopo.core.plan import Metadata
from txtopo.core.values import Failed, Processed, TransactionAttempt
from txtopo.errors import BatchDataError, ConfigurationError, unreachable
from txtopo.ports import Assignment
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector, CommitTransaction
from txtopo.topology.components import Input, Spout, SpoutContext, SpoutCoordinator, Tally
from txtopo.topology.queries import StreamQuery
from txtopo.topology.streams import DEFAULT_STREAM, Tuple
from txtopo.tuples.columns import Columns, adder
from txtopo.tuples.local_tuples import LocalTuples

QUESTIONS_MAX = 10_000
"""Maximum number of questions that are asked at once."""


class Questions(Spout):
    """Emits what a query is asked with."""

    parts_max = 1

    def __init__(self, fields: Fields) -> None:
        self.fields = fields

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        """Not available: a query has no batches."""
        unreachable("a query has no batches")

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        return [{}]

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        batch: pa.RecordBatch = metadata["questions"]
        tally.read += batch.num_rows
        yield batch

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return ()

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "questions", "fields": self.fields.ddl}


class QueryEnd(BatchCommitter):
    """Stands at the end of a query; its rows are the answer."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Not called: its rows are taken before."""
        return None


def answer(
    query: StreamQuery,
    questions: Sequence[Sequence[Any]],
    attempt: TransactionAttempt,
    transaction_of: Callable[[str], UserTransaction],
) -> list[dict[str, Any]]:
    """Return the rows of the answer, each as field -> value, in the order of all fields. `attempt` names the state that
    is read; `transaction_of` returns what reads it for a step.

    Raises ConfigurationError for questions that do not fit, BatchDataError if a step fails, and the errors of the
    transaction.
    """
    topology, [spout] = query.topology, query.topology.spouts
    asked = _questions(query, questions)
    assignment = Assignment(attempt=attempt, metadata={spout.name: {"questions": asked}})
    outcome = LocalTuples(topology, b"").process(assignment, iter)
    if isinstance(outcome, Failed):
        failure = outcome.failure
        raise BatchDataError(
            f"query {query.name}: {failure.message}", component=failure.component or "", detail=failure.detail
        )
    if not isinstance(outcome, Processed):
        unreachable("an attempt is processed or fails")
    phases = CommitPhases(topology, attempt, outcome.results, lambda: None)
    for phase in commit_phases(topology):
        phases.enter(phase)
        for component in committers_of(topology, phase):
            if component.name == query.answer:
                continue
            committer = fresh(component)
            emitted = phases.collector(committer)
            run_commit(committer, phases.result(committer), transaction_of(committer.name), emitted)
            phases.applied(committer, emitted)
    end = next(one for one in topology.committers if one.name == query.answer)
    rows: list[dict[str, Any]] = in_order(phases.result(end).rows, end.result_fields, query.name).to_pylist()
    return rows


def _questions(query: StreamQuery, questions: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    if len(questions) > QUESTIONS_MAX:
        raise ConfigurationError(
            f"query {query.name}: {len(questions):,} questions at once, at most {QUESTIONS_MAX:,} are possible"
        )
    columns = Columns(f"query {query.name}", DEFAULT_STREAM, query.fields)
    lists: list[list[Any]] = [[] for _ in query.fields.items]
    add = adder(lists, columns)
    for values in questions:
        if len(values) != len(query.fields.items):
            raise ConfigurationError(
                f"query {query.name} is asked with {query.fields.ddl}, and got {len(values)} "
                f"value{'' if len(values) == 1 else 's'}"
            )
        add(tuple(values))
    try:
        return columns.batch(lists)
    except BatchDataError as error:
        raise ConfigurationError(str(error)) from error
