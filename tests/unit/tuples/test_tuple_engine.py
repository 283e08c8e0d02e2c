"""The tuple runtime in one process: bolts of every kind, failures and where they point, results, purity, waves, what
travels.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, run_tuples
from txtopo.committers.count_committer import CountCommitter
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import BasicBolt, BatchBolt, RichBolt, TupleBolt
from txtopo.tuples import engine
from txtopo.tuples.edge_checks import failures_of
from txtopo.tuples.graph import root_place


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
