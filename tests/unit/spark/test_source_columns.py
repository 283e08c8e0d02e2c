"""Record batches of a custom spout: what its columns are when they leave it, whatever is downstream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, graph_of, run_spec
from txtopo import TopologyBuilder
from txtopo.core.values import Failure
from txtopo.ports import Assignment
from txtopo.spark.emit import TaskEmitter, emitter_order
from txtopo.spark.jobs import BatchWork
from txtopo.spark.signatures import Signer
from txtopo.spark.tuples.tuple_order import Ordered, TupleOrder
from txtopo.spark.tuples.tuple_tasks import LeafTask, TaskWiring
from txtopo.topology.partial_counts import PartialCount
from txtopo.tuples.edge_checks import judge
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import TaskGraph
from txtopo.tuples.message import TaskReport
from txtopo.tuples.results import merge

NUMBER = pa.RecordBatch.from_arrays([pa.array([0], pa.int64())], names=["id"])
"""The first source task."""


class Giving(RowsSpout):
    """Gives one record batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__("id string not null, day string, n bigint")
        self.batch = batch

    def emit_part(self, metadata: Any, part: Any, tally: Any) -> Iterator[pa.RecordBatch]:
        """See Spout."""
        tally.read += self.batch.num_rows
        yield self.batch


class Added(list[Any]):
    """In the place of an accumulator."""

    def add(self, reports: Sequence[Any]) -> None:
        """Keep them."""
        self.extend(reports)


Left = tuple[list[Mapping[str, Any]], Failure | None]
"""Rows that left the spout, values by the place of their column, and what its report says."""


def _graph(spout: Giving) -> TaskGraph:
    builder = TopologyBuilder("columns")
    builder.set_spout("words", spout)
    builder.set_committer_bolt("keep", Keeping()).global_grouping("words")
    return graph_of(builder.build())


def to_dataframes(spout: Giving) -> Left:
    """A topology of DataFrames."""
    added: Any = Added()
    work = BatchWork(assignment=Assignment(attempt=run_spec({}).attempt, metadata={"words": {}}), parts={"words": [{}]})
    order = emitter_order(["run"], [work], together=True, needed={})
    task = TaskEmitter(
        name="words", spout=spout, code_hash=b"", reports=added, signer=Signer(reports=added), order=order
    )
    return _by_place(spout, task(iter([NUMBER]))), added[0].failure


def grouped(
    spout: Giving, partial: PartialCount, *, hidden: str | None = None, only: Any = None
) -> tuple[list[Mapping[str, Any]], Any]:
    """What a task sends that groups its tuples, and what it reports."""
    added: Any = Added()
    work = BatchWork(assignment=Assignment(attempt=run_spec({}).attempt, metadata={"words": {}}), parts={"words": [{}]})
    order = emitter_order(["run"], [work], together=True, needed={"words": []}, only=only)
    signer = Signer(reports=added)
    task = TaskEmitter(
        name="words",
        spout=spout,
        code_hash=b"",
        reports=added,
        signer=signer,
        order=order,
        hidden=hidden,
        partial=partial,
    )
    return [row for batch in task(iter([NUMBER])) for row in batch.to_pylist()], added[0]


def to_dataframes_among_tuples(spout: Giving) -> Left:
    """A DataFrame bolt that reads the spout, in a topology of tuples."""
    added: Any = Added()
    order = TupleOrder(runs=(Ordered(spec=run_spec({"words": 1}), metadata={"words": {}}, parts={"words": [{}]}),))
    wiring = TaskWiring(
        engine=Engine(_graph(spout)),
        graph="main",
        code_hash=b"",
        reports=added,
        signer=Signer(reports=added),
        order=order.text(),
    )
    rows = _by_place(spout, LeafTask(wiring=wiring, name="words", spout=spout)(iter([NUMBER])))
    return rows, next((found.failure for found in added[0].task.failures), None)


def to_tuples(spout: Giving) -> Left:
    """Tuple bolts."""
    graph, run, reports = _graph(spout), run_spec({"words": 1}), list[TaskReport]()
    messages = list(Engine(graph).run_local([run], lambda *found: spout.emit_part({}, {}, found[-1]), reports.append))
    failure = judge(graph, run, reports)
    return [] if failure is not None else merge(graph, run, messages)[0][0].rows.to_pylist(), failure


def _by_place(spout: Giving, batches: Iterator[pa.RecordBatch]) -> list[Mapping[str, Any]]:
    return [row for batch in batches for row in batch.rename_columns(spout.fields.names).to_pylist()]


@pytest.mark.parametrize("leave", [to_dataframes, to_dataframes_among_tuples, to_tuples])
def test_columns_of_a_spout_go_by_name(leave: Callable[[Giving], Left]) -> None:
    """Its record batches have their columns in another order than it declares: each value stays in its field."""
    batch = pa.RecordBatch.from_pydict({"n": pa.array([7], pa.int32()), "day": ["monday"], "id": ["u1"]})

    assert leave(Giving(batch)) == ([{"id": "u1", "day": "monday", "n": 7}], None)


@pytest.mark.parametrize("leave", [to_dataframes, to_dataframes_among_tuples, to_tuples])
@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"id": ["u1"], "days": ["monday"], "n": [7]}, "emitted columns id, days, n; it declares id, day, n"),
        ({"id": ["u1"], "day": ["monday"]}, "emitted columns id, day; it declares id, day, n"),
        ({"id": [None], "day": ["monday"], "n": [7]}, "field id: NULL, but it is declared NOT NULL"),
        ({"id": ["u1"], "day": ["monday"], "n": ["7"]}, "field n: string is no bigint (a value of another kind"),
    ],
)
def test_columns_that_do_not_fit_fail_the_batch(
    leave: Callable[[Giving], Left], columns: dict[str, list[Any]], why: str
) -> None:
    """Spark would take a NULL in a `not null` field for 0 or an empty text, and stop over another type without naming
    spout or field.
    """
    rows, failure = leave(Giving(pa.RecordBatch.from_pydict(columns)))

    assert rows == []
    assert failure is not None and failure.component == "words" and f"words, stream default: {why}" in failure.message


def test_a_task_that_counts_sends_groups_and_reports_its_tuples() -> None:
    """Promise: what is reported does not come from the groups; a search for a bad row chooses tuples before they are
    grouped; groups name the run that they belong to.
    """
    days, numbers = ["a", None] * 300, [2**62] * 600
    batch = pa.RecordBatch.from_pydict({"n": numbers, "day": days, "id": [str(at) for at in range(600)]})
    partial = PartialCount(keys=("day",), aggregates=(("sum", "n"),))

    groups, report = grouped(Giving(batch), partial)
    of_run, _ = grouped(Giving(batch), partial, hidden="$run")
    some, searched = grouped(Giving(batch), partial, only={"words": {0: (1, 301)}})

    assert groups == [{"$k0": day, "$v0": 300 * 2**62, "$n": 300} for day in ("a", None)]
    assert of_run == [{**group, "$run": 0} for group in groups]
    assert (report.emitted, searched.failure) == (600, None)
    assert [(group["$k0"], group["$n"]) for group in some] == [(None, 150), ("a", 150)]


class ByBatch(RowsSpout):
    """Gives the rows in the metadata of a batch, then raises what is there, too."""

    def __init__(self) -> None:
        super().__init__("name string")

    def emit_part(self, metadata: Any, part: Any, tally: Any) -> Iterator[pa.RecordBatch]:
        """See Spout."""
        tally.read += len(metadata["rows"])
        yield pa.RecordBatch.from_pydict({"name": pa.array(metadata["rows"], pa.string())})
        if metadata.get("error"):
            raise ValueError(metadata["error"])


def test_batches_of_a_wave_are_grouped_together_and_reported_apart() -> None:
    """One record batch leaves the task for all of them; a batch that fails says so, and no other does."""
    added: Any = Added()
    given: list[Mapping[str, Any]] = [
        {"rows": ["a", "b"] * 200},
        {"rows": ["a"] * 300, "error": "unreadable"},
        {"rows": ["b"] * 300},
    ]
    works = [
        BatchWork(assignment=Assignment(attempt=run_spec({}).attempt, metadata={"words": one}), parts={"words": [{}]})
        for one in given
    ]
    names = ["first", "second", "third"]
    order = emitter_order(names, works, together=True, needed={})
    task = TaskEmitter(
        name="words",
        spout=ByBatch(),
        code_hash=b"",
        reports=added,
        signer=Signer(reports=added),
        order=order,
        hidden="$run",
        partial=PartialCount(keys=("name",)),
    )
    (batch,) = task(iter([NUMBER]))
    assert batch.to_pylist() == [
        {"$k0": "a", "$n": 200, "$run": 0},
        {"$k0": "b", "$n": 200, "$run": 0},
        {"$k0": "b", "$n": 300, "$run": 2},
    ]
    assert [(one.run, one.read, one.failure is None) for one in added] == [
        ("first", 400, True),
        ("second", 300, False),
        ("third", 300, True),
    ]
