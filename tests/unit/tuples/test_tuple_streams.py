"""Direct streams, bolts that take record batches, and groupings of a user in the tuple engine."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, run_tuples
from tests.unit.tuples.test_tuple_engine import Upper, built, words
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.streams import Stream
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, BatchBolt, CustomStreamGrouping
from txtopo.tuples.graph import root_place


class Direct(BasicBolt):
    """Sends each word to a task by its length."""

    outputs = [Stream("word string", name="named", direct=True), Stream("word string", name="rest")]

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    def prepare(self, config: Any, context: Any) -> None:
        self.tasks = context.tasks["sized"]

    def execute(self, tup: Any, collector: Any) -> None:
        match self.mistake:
            case "task":
                collector.emit_direct(999, [tup[0]], stream="named")
            case "plain":
                collector.emit([tup[0]], stream="named")
            case "direct":
                collector.emit_direct(self.tasks[0], [tup[0]], stream="rest")
            case "stream":
                collector.emit([tup[0]], stream="other")
            case "":
                collector.emit_direct(self.tasks[len(tup[0]) % 3], [tup[0]], stream="named")
                collector.emit([tup[0]], "rest")


class Sized(BatchBolt):
    """Emits what its task got."""

    outputs = ["task int", "got string"]

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.context, self.got = collector, context, list[str]()

    def execute(self, tup: Any) -> None:
        self.got.append(tup["word"])

    def finish_batch(self) -> None:
        self.collector.emit((self.context.task_index, " ".join(self.got)))


def directed(mistake: str = "") -> Topology:
    """Direct -> sized by naming tasks."""
    builder = TopologyBuilder("directed")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("direct", Direct(mistake)).shuffle_grouping("words")
    builder.set_bolt("sized", Sized(), parallelism_hint=3).direct_grouping("direct", stream="named")
    builder.set_committer_bolt("keep", Keeping()).global_grouping("sized")
    builder.set_committer_bolt("rest", Keeping()).global_grouping("direct", stream="rest")
    return builder.build()


@pytest.mark.parametrize("traced", [False, True])
def test_direct_grouping_goes_to_the_named_task(traced: bool) -> None:
    """Direct: the producer names the task."""
    seen = run_tuples(directed(), words("a", "bb", "ccc", "dddd", "eeeee"), traced=traced)

    assert seen.rows("keep") == [(0, "ccc"), (1, "a dddd"), (2, "bb eeeee")]
    assert len(seen.rows("rest")) == 5


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("task", "ValueError: task 999 does not read stream 'named' of direct directly; these do: 2, 3, 4"),
        ("plain", "ValueError: stream 'named' of direct is direct: name the task with emit_direct"),
        ("direct", "ValueError: stream 'rest' of direct is not declared direct: use emit"),
        ("stream", "ValueError: direct declares no stream 'other'; its streams: named, rest"),
    ],
)
def test_mistakes_with_streams_are_raised_where_they_are_made(mistake: str, told: str) -> None:
    """emitDirect to a consumer with another grouping is an illegal argument; so is a stream that is not declared."""
    seen = run_tuples(directed(mistake), words("a"))

    assert seen.failure is not None
    assert told in seen.failure.message
    assert seen.failure.message.startswith(__file__)


class ArrowUpper(ArrowBolt):
    """Capitals by pyarrow."""

    outputs = ["word string"]

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        import pyarrow.compute as pc

        column = batch.column("word")
        if "bad" in column.to_pylist():
            raise ValueError("a bad word")
        name = "other" if self.mistake == "name" else "word"
        column = pa.array([1] * len(column)) if self.mistake == "type" else pc.utf8_upper(column)
        collector.emit_batch(pa.record_batch({name: column}), anchors=pa.array(range(batch.num_rows)))

    def finish_batch(self, collector: Any) -> None:
        collector.emit_batch(pa.record_batch({"word": ["end"]}))


@pytest.mark.parametrize("traced", [False, True])
def test_an_arrow_bolt_gets_record_batches_of_its_fields_alone(traced: bool) -> None:
    """Record batches instead of tuples; what tells where tuples come from is none of its columns."""
    seen = run_tuples(built(ArrowUpper()), words("a", "b"), traced=traced)

    assert seen.rows("keep") == [("A",), ("B",), ("end",)]


def test_an_arrow_bolts_bad_row_is_named_by_a_traced_run() -> None:
    """How many tuples come at once is not promised: a traced run gives one at a time."""
    plain = run_tuples(built(ArrowUpper()), words("a", "bad", "b"))
    traced = run_tuples(built(ArrowUpper()), words("a", "bad", "b"), traced=True)

    assert plain.roots == [()]
    assert [root_place(traced.graph, root)[2] for (root,) in traced.roots] == [1]


def test_an_arrow_bolts_columns_are_checked() -> None:
    """Other names or types than declared are a failure that says which."""
    name = run_tuples(built(ArrowUpper("name")), words("a")).failure
    kind = run_tuples(built(ArrowUpper("type")), words("a"))

    assert name is not None
    assert "bolt, stream default: emitted columns other; it declares word" in name.message
    assert kind.failure is not None
    assert "bolt, stream default: field word: int64 is no string (a value of another kind" in kind.failure.message


class Dividing(CustomStreamGrouping):
    """Fails on an empty word."""

    def choose_tasks(self, task: int, values: Any) -> Any:
        return [3 // len(values[0])]


def test_a_custom_grouping_that_raises_is_a_failure_with_its_line() -> None:
    """A grouping is user code as well."""
    builder = TopologyBuilder("grouped")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("bolt", Upper()).custom_grouping("words", Dividing())
    builder.set_committer_bolt("keep", Keeping()).global_grouping("bolt")

    seen = run_tuples(builder.build(), words("abc", ""))

    assert seen.failure is not None
    assert seen.failure.message.startswith(__file__)
    assert "ZeroDivisionError: integer division or modulo by zero; on word=''" in seen.failure.message
    assert [root_place(seen.graph, root) for (root,) in seen.roots] == [("words", 0, 1)]
