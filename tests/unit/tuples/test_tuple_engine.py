"""The tuple runtime in one process: bolts of every kind, failures and where they point, results, purity, waves, what
travels.
"""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, batches_of, graph_of, run_spec, run_tuples
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally, Topology
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, BatchBolt, CustomStreamGrouping, RichBolt, TupleBolt
from txtopo.tuples import engine, wire
from txtopo.tuples.edge_checks import failures_of, judge
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import build_graph, root_place
from txtopo.tuples.message import Kind, TaskReport
from txtopo.tuples.results import merge


def built(
    bolt: TupleBolt,
    *,
    tasks: int = 1,
    acking: Any = "batch",
    fields: str = "word string",
    before: TupleBolt | None = None,
) -> Topology:
    """words -> (before ->) bolt -> keep."""
    builder = TopologyBuilder("built", acking=acking, config={"shared": "topology", "own": "topology"})
    builder.set_spout("words", RowsSpout(fields))
    source = "words"
    if before is not None:
        builder.set_bolt("before", before, parallelism_hint=2).shuffle_grouping("words")
        source = "before"
    builder.set_bolt("bolt", bolt, parallelism_hint=tasks).shuffle_grouping(source)
    builder.set_committer_bolt("keep", Keeping()).global_grouping("bolt")
    return builder.build()


def words(*found: Any) -> dict[str, list[list[tuple[Any, ...]]]]:
    """One part of words."""
    return {"words": [[(word,) for word in found]]}


class Upper(BasicBolt):
    """Emits in capitals; fails on `bad` words; emits a number for `number`, two values for `two`."""

    outputs = ["word string"]

    def execute(self, tup: Any, collector: Any) -> None:
        word = tup["word"]
        if "bad" in word:
            raise ValueError(f"cannot take {word}")
        values: Any = {"number": [5], "two": ["a", "b"], "text": "text", "dict": {"word": word}}.get(
            word, [word.upper()]
        )
        collector.emit(values)


ROOT = Path(__file__).parents[3]
_CODE = Path(__file__).read_text().splitlines()
LINE = next(at for at, line in enumerate(_CODE, 1) if "raise ValueError(f" in line)
EMIT = next(at for at, line in enumerate(_CODE, 1) if "collector.emit(values)" in line)


def test_a_bad_tuple_is_named_with_value_place_and_line() -> None:
    """A bad tuple among 10,000 is named: component, value, user's line, and its number in the source."""
    seen = run_tuples(built(Upper(), tasks=2), words(*["a"] * 7000, "bad one", *["b"] * 3000))

    assert seen.failure is not None
    assert seen.failure.component == "bolt"
    assert seen.failure.message == f"{__file__}:{LINE}: ValueError: cannot take bad one; on word='bad one'"
    assert "Traceback" in str(seen.failure.detail)
    assert [root_place(seen.graph, root) for (root,) in seen.roots] == [("words", 0, 7000)]


def test_of_too_many_parts_a_bad_tuple_is_named_without_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """More parts than root ids can tell apart: the failure is the bolt's own all the same."""
    monkeypatch.setattr(engine, "ROOT_PARTS_MAX", 1)
    rows = {"words": [[("bad first",)], [("bad second",)]]}

    seen = run_tuples(built(Upper(), tasks=1), rows, failures_max=2)

    assert [found.failure.message.rpartition(" on ")[2] for found in failures_of(seen.graph, seen.reports)] == [
        "word='bad second'",
        "word='bad first'",
    ]
    assert [[root_place(seen.graph, root) for root in roots] for roots in seen.roots] == [[], [("words", 0, 0)]]


def test_behind_another_bolt_the_place_is_known_in_a_traced_run() -> None:
    """Position in the source comes from roots: with tracing also behind other bolts."""
    topology = built(Upper(), before=Doubling(), tasks=2)
    rows = {"words": [[("a",)] * 5, [*[("b",)] * 3, ("bad",)]]}

    plain = run_tuples(topology, rows)
    traced = run_tuples(topology, rows, traced=True)

    assert plain.roots == [()]
    assert {root_place(traced.graph, root) for roots in traced.roots for root in roots} == {("words", 1, 3)}
    assert plain.failure is not None
    assert traced.failure is not None
    assert plain.failure.message == traced.failure.message


class Doubling(BasicBolt):
    """Every word twice."""

    outputs = ["word string"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)
        collector.emit(tup.values)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("number", "bolt, stream default: field word: 5 (int) is no string"),
        ("two", "bolt, stream default: emitted 2 values ('a', 'b'); it declares 1 fields (word)"),
        ("text", "bolt, stream default: emitted 'text' (str); a list or tuple of 1 values is wanted"),
        ("dict", "bolt, stream default: emitted {'word': 'dict'} (dict); a list or tuple of 1 values is wanted"),
    ],
)
def test_a_wrong_value_is_named_and_a_traced_run_names_line_and_tuple(word: str, told: str) -> None:
    """Values are checked against the declared fields; the traced run checks them where they are emitted."""
    plain = run_tuples(built(Upper()), words("a", word, "b"))
    traced = run_tuples(built(Upper()), words("a", word, "b"), traced=True)

    assert plain.failure is not None
    assert traced.failure is not None
    assert told in plain.failure.message
    assert traced.failure.message.startswith(f"{__file__}:{EMIT}: {told}")
    assert traced.failure.message.endswith(f"; on word='{word}'")
    assert [root_place(traced.graph, root) for (root,) in traced.roots] == [("words", 0, 1)]


def test_with_dead_letters_wanted_every_failing_tuple_is_told_up_to_a_limit() -> None:
    """As many failing source tuples as there are, at most the limit: a task goes on after one."""
    rows = words("bad1", "a", "bad2", "bad3", "b", "bad4")

    three = run_tuples(built(Upper()), rows, failures_max=3)
    all_of_them = run_tuples(built(Upper()), rows, failures_max=9)

    assert [root_place(three.graph, root)[2] for (root,) in three.roots] == [0, 2, 3]
    assert [root_place(three.graph, root)[2] for (root,) in all_of_them.roots] == [0, 2, 3, 5]


def test_excluded_tuples_are_left_out_and_others_keep_their_numbers() -> None:
    """Dead letters: the run without them gives what the others give, and a later failure still has the right number."""
    rows = words("bad1", "a", "bad2", "b", "bad3")

    good = run_tuples(built(Upper()), rows, excluded={"words": {0: frozenset({0, 2, 4})}}, batch_rows=2)
    one_left = run_tuples(built(Upper()), rows, excluded={"words": {0: frozenset({0, 2})}})

    assert good.rows("keep") == [("A",), ("B",)]
    spout = next(report for report in good.reports if report.component == "words")
    assert (spout.read, spout.emitted) == (5, 2)
    assert [root_place(one_left.graph, root)[2] for (root,) in one_left.roots] == [4]


class Remembering(BatchBolt):
    """Keeps state in itself and in its template's list, as careless bolts do."""

    outputs = ["seen bigint", "task int", "shared string", "own string"]
    config = {"own": "bolt"}

    def __init__(self) -> None:
        self.held: list[str] = []
        self.finished = 0

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.context, self.settings = collector, context, config

    def execute(self, tup: Any) -> None:
        self.held.append(tup[0])

    def finish_batch(self) -> None:
        self.finished += 1
        self.collector.emit((len(self.held), self.context.task_index, self.settings["shared"], self.settings["own"]))


def test_every_attempt_and_task_has_a_fresh_copy() -> None:
    """BB-01 and Q 18: nothing of another attempt or task is in a bolt; settings of its own go over those of the
    topology.
    """
    bolt = Remembering()
    topology = built(bolt, tasks=2)

    first, second = (run_tuples(topology, words("a", "b", "c", "d")) for _ in range(2))

    assert first.rows("keep") == [(2, 0, "topology", "bolt"), (2, 1, "topology", "bolt")]
    assert second.rows("keep") == first.rows("keep")
    assert (bolt.held, bolt.finished) == ([], 0)


class Context(BasicBolt):
    """Emits where it stands."""

    outputs = ["told string"]

    def prepare(self, config: Any, context: Any) -> None:
        self.told = (
            f"{context.topology} {context.component} {context.task_id} {context.task_index} {context.attempt} "
            f"{dict(context.tasks)}"
        )

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([self.told])


def test_a_bolt_is_told_where_it_stands() -> None:
    """TopologyContext: task ids from 1, the same in every attempt and process."""
    seen = run_tuples(built(Context(), tasks=2), words("a", "b"))

    tasks = "{'bolt': range(1, 3), 'keep': range(3, 4)}"
    assert sorted(seen.rows("keep")) == [(f"built bolt 1 0 3:1 {tasks}",), (f"built bolt 2 1 3:1 {tasks}",)]


class Cleaning(BasicBolt):
    """Notes its end."""

    outputs = ["word string"]
    cleaned: list[int] = []

    def prepare(self, config: Any, context: Any) -> None:
        self.task = context.task_index

    def execute(self, tup: Any, collector: Any) -> None:
        if tup[0] == "exit":
            sys.exit(3)
        collector.emit([tup[0]])

    def cleanup(self) -> None:
        Cleaning.cleaned.append(self.task)


@pytest.mark.parametrize("word", ["fine", "exit"])
def test_cleanup_is_called_at_the_end_also_after_an_error(word: str) -> None:
    """And `sys.exit` in a bolt is a failure of the bolt, not the end of the process."""
    Cleaning.cleaned = []

    seen = run_tuples(built(Cleaning(), tasks=2), words(word))

    assert Cleaning.cleaned == [0, 1]
    assert (seen.failure is None) == (word == "fine")
    assert seen.failure is None or "SystemExit: 3; on word='exit'" in seen.failure.message


class Broken(BasicBolt):
    """Fails in prepare, or in cleanup."""

    outputs = ["word string"]

    def __init__(self, where: str) -> None:
        self.where = where

    def prepare(self, config: Any, context: Any) -> None:
        if self.where == "prepare":
            raise OSError("no such place")

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup[0]])

    def cleanup(self) -> None:
        if self.where == "cleanup":
            raise OSError("no such place")


@pytest.mark.parametrize("where", ["prepare", "cleanup"])
def test_errors_outside_of_tuples_are_failures_of_the_bolt(where: str) -> None:
    """An exception in a bolt is never more than a data failure of its attempt."""
    seen = run_tuples(built(Broken(where)), words("a"))

    assert seen.failure is not None
    assert (seen.failure.kind, seen.failure.component) == ("data", "bolt")
    assert seen.failure.message.endswith("OSError: no such place")


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


class Rich(RichBolt):
    """Emits anchored on the tuple; does with it what the word says."""

    outputs = ["word string"]

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.collector.emit([tup[0]], anchors=[tup])
        if tup[0] == "fail":
            self.collector.fail(tup)
        else:
            self.collector.ack(tup)


@pytest.mark.parametrize(("acking", "fails"), [("batch", True), ("off", False), ("tuple", True)])
def test_fail_by_hand_fails_the_batch_and_is_nothing_where_acking_is_off(acking: str, fails: bool) -> None:
    """OutputCollector.fail: the tuple failed, and with it the batch; no-op where acking is off."""
    seen = run_tuples(built(Rich(), acking=acking), words("a", "fail"))

    assert (seen.failure is not None) == fails
    assert seen.failure is None or "Rich failed the tuple word='fail'" in seen.failure.message


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


def counting(tasks: int = 3) -> Topology:
    """words, n -> counted by word, with exact sums."""
    builder = TopologyBuilder("counting")
    builder.set_spout("words", RowsSpout("word string, n bigint, price decimal(38,2)"))
    counts = CountCommitter("counts", ["word"], sums=["n", "price"])
    builder.set_committer_bolt("counts", counts, parallelism_hint=tasks).shuffle_grouping("words")
    builder.set_bolt("upper", Upper()).shuffle_grouping("words")
    builder.set_committer_bolt("keep", Keeping()).global_grouping("upper")
    return builder.build()


def test_partial_counts_of_all_tasks_are_merged_exactly() -> None:
    """NULL is a key, sums leave NULL out and never lose a digit, keys stand in order with NULL last."""
    rows = [
        ("b", 2**63 - 1, Decimal("0.01")),
        ("a", None, None),
        ("b", 2**63 - 1, Decimal("0.02")),
        ("c", -1, Decimal("-5.00")),
    ] * 3

    seen = run_tuples(counting(), {"words": [rows[:5], rows[5:]]}, batch_rows=2)

    assert seen.rows("counts") == [
        ("a", 3, Decimal(0), Decimal("0.00")),
        ("b", 6, Decimal(6 * (2**63 - 1)), Decimal("0.09")),
        ("c", 3, Decimal(-3), Decimal("-15.00")),
    ]
    assert seen.results["counts"].arrived == 12


def test_a_sum_is_too_large_only_as_a_whole() -> None:
    """Partial sums have room: what fits together is no failure, what does not names the committer."""
    big = Decimal("9" * 36)
    fits = run_tuples(counting(2), {"words": [[("a", 1, big), ("a", 1, big.copy_negate())] * 60]})
    large = run_tuples(counting(2), {"words": [[("a", 1, big)] * 120]})

    assert fits.rows("counts") == [("a", 120, Decimal(120), Decimal("0.00"))]
    assert large.failure is not None
    assert large.failure.component == "counts"
    assert "does not fit 38 digits" in large.failure.message


class Reading(Keeping):
    """Reads another committer, so that it runs in the driver."""


def test_what_is_downstream_of_a_committer_gets_its_other_inputs_raw() -> None:
    """CommitterResult.deferred: (source, stream, tuples) of each of its inputs but the committers."""
    builder = TopologyBuilder("deferred")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("upper", Upper(), parallelism_hint=2).shuffle_grouping("words")

    class First(Keeping):
        outputs = ["word string"]

    builder.set_committer_bolt("first", First()).global_grouping("upper")
    builder.set_committer_bolt("second", Reading()).global_grouping("upper").global_grouping("first")
    builder.set_committer_bolt("third", Reading()).global_grouping("first")

    seen = run_tuples(builder.build(), words("a", "b", "c"))

    second = seen.results["second"]
    assert (second.arrived, second.row_count, "third" in seen.results) == (3, 0, False)
    assert [(source, stream, sorted(table.column(0).to_pylist())) for source, stream, table in second.deferred] == [
        ("upper", "default", ["A", "B", "C"])
    ]


def test_what_is_missing_of_the_results_is_an_error() -> None:
    """A committer task whose last word or rows did not come: never fewer rows in silence."""
    seen = run_tuples(built(Upper()), words("a"))
    run = run_spec({"words": 1})

    for gone in range(len(seen.messages)):
        left = [message for at, message in enumerate(seen.messages) if at != gone]
        with pytest.raises(BatchDataError, match="task 2 of keep"):
            merge(seen.graph, run, left)
    with pytest.raises(BatchDataError, match="task 2 of keep"):
        merge(seen.graph, run, [*seen.messages, *seen.messages])
    with pytest.raises(BatchDataError, match="task 2 of keep said 2 times that it is done"):
        merge(seen.graph, run, [*seen.messages, *(m for m in seen.messages if m.kind == Kind.END)])


def test_reports_that_are_missing_or_differ_fail_the_run() -> None:
    """K3: a task that ran twice must say the same twice; one that said nothing is a suspect."""
    seen = run_tuples(built(Upper()), words("a"))
    run = run_spec({"words": 1})
    reports = list(seen.reports)

    assert judge(seen.graph, run, [*reports, *reports]) is None
    for report in reports:
        missing = judge(seen.graph, run, [other for other in reports if other is not report])
        assert missing is not None
        assert (missing.kind, missing.component) == ("suspect", report.component)
        other = TaskReport(run=report.run, component=report.component, index=report.index, read=77)
        conflict = judge(seen.graph, run, [*reports, other])
        assert conflict is not None
        assert "ran twice with different outcomes" in conflict.message


def spout_run(batches: Iterator[pa.RecordBatch], tally: Tally) -> TaskReport:
    """The report of a source task over these batches."""
    reports: list[TaskReport] = []
    engine = Engine(graph_of(built(Upper())))
    list(engine.source(0, run_spec({"words": 1}), "words", 0, batches, tally, reports.append))
    return reports[0]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "disk"), "infrastructure"),
        (OSError("disk"), "data"),
        (BatchDataError("odd line", component="spout", position="f:3"), "data"),
        (ValueError("x"), "data"),
    ],
)
def test_a_spout_that_raises_is_a_failure_in_its_report(error: Exception, kind: str) -> None:
    """What cannot be read at this moment is no fault of the data; what it says of a place is kept, under the spout's
    name.
    """
    tally = Tally(read=9, rejects=[RejectedRow(path="f", line=2, reason="odd", raw=b"x", raw_bytes=1)])

    def raising() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"word": ["a"]})
        raise error

    report = spout_run(raising(), tally)

    assert (report.read, report.emitted, len(report.rejects)) == (9, 1, 1)
    assert (report.failures[0].failure.kind, report.failures[0].failure.component) == (kind, "words")
    assert report.failures[0].failure.position == getattr(error, "position", None)


def test_the_same_messages_give_the_same_output_in_every_process() -> None:
    """Purity: nothing depends on the process, on chance, or on the order of a set."""
    code = "from tests.unit.tuples.test_tuple_engine import digest; print(digest())"

    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2")
    }

    assert seen == {digest() + "\n"}


def digest() -> str:
    """All that leaves a wave of two runs with tracked tuples, as one hash."""
    from hashlib import sha256

    builder = TopologyBuilder("pure", acking="tuple")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("double", Doubling(), parallelism_hint=3).fields_grouping("words", "word")
    builder.set_bolt("partial", Upper(), parallelism_hint=2).partial_key_grouping("double", "word")
    builder.set_committer_bolt("keep", Keeping(), parallelism_hint=2).fields_grouping("partial", "word")
    topology = builder.build()
    found = [[(str(at % 17),) for at in range(first, first + 50)] for first in (0, 50)]
    fields = topology.fields_of("words")
    assert fields is not None

    def emitted(run_index: int, name: str, part: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        return batches_of(fields, found[part], 7)

    reports: list[TaskReport] = []
    engine = pickle.loads(pickle.dumps(Engine(graph_of(topology))))
    messages = list(engine.run_local([run_spec({"words": 2})] * 2, emitted, reports.append))
    body = b"".join(wire.pack(message.body) or b"" for message in messages)
    return sha256(repr([message[:7] for message in messages]).encode() + repr(reports).encode() + body).hexdigest()


def test_messages_survive_the_wire_and_those_of_later_levels_pass_unread() -> None:
    """A message is one row; a level passes on what is addressed to later ones, as bytes."""
    topology = built(Doubling(), before=Upper(), tasks=2)
    engine, run = Engine(graph_of(topology)), run_spec({"words": 1})
    sent = list(
        engine.source(0, run, "words", 0, iter([pa.record_batch({"word": ["a", "b"]})]), Tally(), lambda report: None)
    )

    rows = list(wire.encode(iter(sent)))
    back = list(wire.decode(rows))
    passed = list(engine.level([run], wire.decode(rows, packed=True), 3, lambda report: None))

    assert back == sent
    assert [wire.unpack(message.body) for message in passed] == [message.body for message in sent]
    assert all(isinstance(message.body, bytes) for message in passed if message.kind == Kind.DATA)
    assert list(wire.decode(wire.encode(iter(passed)))) == sent
    assert rows[0].schema == wire.SCHEMA


def test_a_level_by_level_run_over_the_wire_is_the_local_run() -> None:
    """The same engine runs everywhere: what Spark moves between levels gives what one process gives."""
    topology = built(Doubling(), before=Upper(), tasks=3, acking="tuple")
    graph, run = graph_of(topology), run_spec({"words": 1})
    engine = Engine(graph)
    local = run_tuples(topology, words("a", "b", "c"))

    batch = pa.record_batch({"word": ["a", "b", "c"]})
    messages = list(engine.source(0, run, "words", 0, iter([batch]), Tally(read=3), lambda report: None))
    for level in range(1, graph.levels + 1):
        moved = sorted(wire.decode(wire.encode(iter(messages)), packed=True), key=lambda message: message[:6])
        messages = list(engine.level([run], iter(moved), level, lambda report: None))

    assert [message[:7] for message in sorted(messages, key=lambda m: m[:6])] == [
        message[:7] for message in local.messages
    ]
    assert merge(graph, run, messages) == (list(local.results.values()), local.acks)


def test_a_bolt_that_emits_very_much_from_one_tuple_sends_it_in_pieces() -> None:
    """A tuple may name a file whose lines are all emitted: no more than some thousands are held."""

    class Many(BasicBolt):
        outputs = ["word string"]

        def execute(self, tup: Any, collector: Any) -> None:
            for _ in range(150_000):
                collector.emit([tup[0]])

    topology = built(Many())
    engine, run = Engine(graph_of(topology)), run_spec({"words": 1})
    sent = engine.source(0, run, "words", 0, iter([pa.record_batch({"word": ["a"]})]), Tally(), lambda report: None)
    emitted = list(engine.level([run], iter(sorted(sent, key=lambda m: m[:6])), 1, lambda report: None))

    assert len({message[:6] for message in emitted}) == len(emitted), "messages must have an order"
    data = [message.rows for message in emitted if message.kind == Kind.DATA]
    assert sum(data) == 150_000
    assert max(data) < 70_000


class Growing(BasicBolt):
    """Emits each word with how often its task has had it so far; without `words`, how many tuples it has had."""

    outputs = ["word string", "n bigint"]

    def __init__(self, words: bool) -> None:
        self.words = words
        self.counts: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        key = tup[0] if self.words else ""
        self.counts[key] = self.counts.get(key, 0) + 1
        collector.emit((tup[0], self.counts[key]))


def test_word_counts_global_counts_and_all_groupings_together() -> None:
    """GR-02: {(nathan,1),(nathan,2),(bob,1),(joey,1)}; a global counter 1,2,3,4; a global aggregate of the counter
    1,2,3,4; six tasks once each.
    """
    builder = TopologyBuilder("basic")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("counter", Growing(words=True), parallelism_hint=4).fields_grouping("words", "word")
    builder.set_bolt("total", Growing(words=False)).global_grouping("words")
    builder.set_bolt("aggregate", Growing(words=False)).global_grouping("counter")
    for name in ("counter", "total", "aggregate"):
        builder.set_committer_bolt(f"{name}_kept", Keeping()).global_grouping(name)
    builder.set_bolt("every", Sized(), parallelism_hint=6).all_grouping("words")
    builder.set_committer_bolt("every_kept", Keeping()).global_grouping("every")

    seen = run_tuples(builder.build(), words("nathan", "bob", "joey", "nathan"))

    assert sorted(seen.rows("counter_kept")) == [("bob", 1), ("joey", 1), ("nathan", 1), ("nathan", 2)]
    assert [n for _, n in seen.rows("total_kept")] == [1, 2, 3, 4]
    assert [n for _, n in seen.rows("aggregate_kept")] == [1, 2, 3, 4]
    assert sorted(seen.rows("every_kept")) == [(at, "nathan bob joey nathan") for at in range(6)]
    assert seen.edges["words -> every"] == (24, 24)


def test_receivers_take_in_tuples_for_a_dataframe_bolt() -> None:
    """A DataFrame bolt behind a tuple bolt: receiver tasks check that all is there and hand the rows over, edge by
    edge.
    """
    builder = TopologyBuilder("received")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("upper", Upper(), parallelism_hint=2).shuffle_grouping("words")
    builder.set_bolt("frame", lambda df: df, "upper", fields="word string")
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("frame")
    topology = builder.build()
    graph = build_graph(topology, ["frame"], ackers=0)
    run, reports = run_spec({"words": 1}), list[TaskReport]()

    def emitted(run_index: int, name: str, part: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"word": ["a", "b", "c"]})

    messages = list(Engine(graph).run_local([run], emitted, reports.append))

    (edge,) = graph.nodes["frame"].inputs
    received = [m for m in messages if m.kind == Kind.RESULT and m.edge == edge.number and m.body is not None]
    assert sorted(row["word"] for m in received if m.body is not None for row in m.body.to_pylist()) == ["A", "B", "C"]
    assert sum(message.rows for message in messages if message.kind == Kind.END) == 3
    assert judge(graph, run, reports) is None
