"""Streams: what each step does with tuples, alone and fused, and how repartitions and merges reach components."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.row_batches import RowBatches, texts
from txtopo import AppendCommitter, CountCommitter
from txtopo.bolts import BasicBolt, BasicOutputCollector, CustomStreamGrouping, Tuple
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Topology
from txtopo.trident import FilterNull, Split, TridentStream, TridentTopology

Build = Callable[[TridentStream], TridentStream]
NUMBERS = "a int, b int, c int"


def out(build: Build, fields: str, *parts: Sequence[Any], hint: int | None = None) -> list[tuple[Any, ...]]:
    """Rows that a stream of one batch has behind some steps, sorted."""
    topology = TridentTopology("streams")
    made = build(topology.new_stream("source", RowBatches(fields, parts)))
    if hint is not None:
        made = made.parallelism_hint(hint)
    made.map(lambda *row: repr(row), "text string").name("seen").persist("kept", CountCommitter("kept", ["text"]))
    return sorted((ast.literal_eval(values[0]) for values in run(topology.build(), "seen")), key=repr)


def run(topology: Topology, component: str) -> list[tuple[Any, ...]]:
    with TopologyHarness(topology) as harness:
        harness.run()
        return harness.values(component)


def test_word_count_over_a_stream() -> None:
    topology = TridentTopology("words")
    words = topology.new_stream("lines", texts(["the man", "the moon"], ["the man"])).flat_map(str.split, "word string")
    words.persist("counts", CountCommitter("word_counts", ["word"], count="n"))
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.table("word_counts") == {("the",): (3,), ("man",): (2,), ("moon",): (1,)}


def test_fields_are_appended_projected_and_appended_again() -> None:
    # TI-08, TTV testComplex.
    def build(stream: TridentStream) -> TridentStream:
        assert stream.fields.names == ("a", "b", "c")
        wide = stream.each("a", lambda a: a + 3, "d int").each(("a", "d"), lambda a, d: (d + a, d + 2), "e int, f int")
        assert wide.fields.names == ("a", "b", "c", "d", "e", "f")
        return wide.project("a", "f", "b").each("a", lambda a: 8, "c int")

    assert out(build, NUMBERS, [(1, 2, 3)]) == [(1, 6, 2, 8)]
    assert out(lambda s: s.project("c", "a"), NUMBERS, [(3, 2, 1)]) == [(1, 3)]


@pytest.mark.parametrize("hint", [1, 3, 4])
def test_each_verb(hint: int) -> None:
    rows = [[("the man",), ("a",)], [("",)]]
    words = [("a",), ("man",), ("the",)]
    assert out(lambda s: s.flat_map(str.split, "word string"), "line string", *rows, hint=hint) == words
    assert out(lambda s: s.flat_map(Split(), "word string"), "line string", *rows, hint=hint) == words
    appended = out(lambda s: s.flat_each("line", str.split, "word string"), "line string", *rows, hint=hint)
    assert appended == [("a", "a"), ("the man", "man"), ("the man", "the")]
    assert out(lambda s: s.map(str.upper), "line string", *rows, hint=hint) == [("",), ("A",), ("THE MAN",)]
    assert out(lambda s: s.each("line", len, "n int"), "line string", *rows, hint=hint) == [
        ("", 0),
        ("a", 1),
        ("the man", 7),
    ]
    assert out(lambda s: s.filter(lambda line: line > ""), "line string", *rows, hint=hint) == [("a",), ("the man",)]


def test_a_generator_may_return_rows_and_several_fields_are_tuples() -> None:
    def pairs(a: int, b: int, c: int) -> Iterator[tuple[int, int]]:
        yield a, b
        yield b, c

    assert out(lambda s: s.flat_map(pairs, "x int, y int"), NUMBERS, [(1, 2, 3)]) == [(1, 2), (2, 3)]


def test_null_is_a_value_like_any_other() -> None:
    rows = [(None,), ("x",)]
    turned = out(lambda s: s.map(lambda line: None if line else "was null"), "line string", rows)
    assert sorted(map(str, turned)) == ["('was null',)", "(None,)"]
    assert out(lambda s: s.filter(FilterNull("line")), "line string", rows) == [("x",)]
    assert out(lambda s: s.flat_map(Split(), "word string"), "line string", rows) == [("x",)]


def test_a_function_gets_values_of_the_declared_type() -> None:
    """What one step returned is what the next one gets, with an exchange in between or without."""
    for shuffled in (False, True):

        def build(stream: TridentStream, shuffled: bool = shuffled) -> TridentStream:
            made = stream.map(lambda a: a, "x double")
            return (made.shuffle() if shuffled else made).map(lambda x: type(x).__name__, "kind string")

        assert out(build, "a int", [(1,)]) == [("float",)]


def test_peek_sees_every_tuple_and_changes_nothing() -> None:
    assert out(lambda s: s.peek(lambda a, b, c: None), NUMBERS, [(1, 2, 3)], [(4, 5, 6)]) == [(1, 2, 3), (4, 5, 6)]


def test_a_function_over_record_batches() -> None:
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"b": [2 * value for value in batch.column("a").to_pylist()]})

    assert out(lambda s: s.arrow(doubled, "b int", rows="same"), "a int", [(1,), (2,)]) == [(2,), (4,)]


def test_merge_and_repartitions() -> None:
    # TI-04: words and the length of each line, merged; and two repartitions in a row.
    def build(stream: TridentStream) -> TridentStream:
        return stream.local_or_shuffle().shuffle().flat_map(str.split, "word string")

    assert out(build, "line string", [("the man",)], [("aaa",)]) == [("aaa",), ("man",), ("the",)]
    topology = TridentTopology("merged")
    lines = topology.new_stream("lines", texts(["the man", "hello"]))
    words = lines.flat_map(str.split, "text string")
    lengths = lines.map(lambda line: str(len(line)), "text string")
    topology.merge(words, lengths).map(str.upper).name("all").persist("counts", CountCommitter("c", ["text"]))
    assert sorted(run(topology.build(), "all")) == [("5",), ("7",), ("HELLO",), ("MAN",), ("THE",)]


def test_a_stream_merged_with_itself_has_each_tuple_twice() -> None:
    topology = TridentTopology("merged")
    lines = topology.new_stream("lines", texts(["x"]))
    topology.merge(lines, lines).map(str.upper).name("all").persist("counts", CountCommitter("c", ["line"]))
    assert run(topology.build(), "all") == [("X",), ("X",)]


def test_branches_do_not_see_each_other() -> None:
    topology = TridentTopology("branches")
    words = topology.new_stream("lines", texts(["a b"])).flat_map(str.split, "word string")
    upper, lower = words.map(str.upper).name("upper"), words.map(str.lower).name("lower")
    upper.persist("first", CountCommitter("first", ["word"]))
    lower.persist("second", CountCommitter("second", ["word"]))
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.table("first") == {("A",): (1,), ("B",): (1,)}
        assert harness.table("second") == {("a",): (1,), ("b",): (1,)}


class Everywhere(CustomStreamGrouping):
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return self.targets[:2]

    def prepare(self, source: str, stream: str, fields: Any, targets: Sequence[int]) -> None:
        self.targets = list(targets)


@pytest.mark.parametrize(
    ("regroup", "grouping", "tasks", "times"),
    [
        (lambda s: s.shuffle(), "shuffle", 4, 1),
        (lambda s: s.local_or_shuffle(), "local_or_shuffle", 3, 1),
        (lambda s: s.identity_partition(), "local_or_shuffle", 3, 1),
        (lambda s: s.partition_by("line"), "fields", 4, 1),
        (lambda s: s.global_(), "global", 1, 1),
        (lambda s: s.batch_global(), "global", 1, 1),
        (lambda s: s.broadcast(), "all", 4, 4),
        (lambda s: s.partition(Everywhere()), "custom", 4, 2),
    ],
)
def test_a_repartition_is_a_grouping(regroup: Build, grouping: str, tasks: int, times: int) -> None:
    topology = TridentTopology("groups")
    before = topology.new_stream("lines", texts(["x"])).map(str.upper).parallelism_hint(3)
    regroup(before).map(str.lower).name("after").persist("counts", CountCommitter("c", ["line"]))
    built = topology.build()
    after = next(bolt for bolt in built.tuple_bolts if bolt.name == "after")
    assert (after.inputs[0].grouping, after.tasks) == (grouping, tasks)
    assert run(built, "after") == [("x",)] * times


class Twice(BasicBolt):
    outputs = ("word string", "n bigint")

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit((tup["line"], 2))


def test_any_bolt_is_a_step() -> None:
    topology = TridentTopology("bolts")
    lines = topology.new_stream("lines", texts(["x"]))
    lines.bolt("twice", Twice(), 2).filter(lambda word, n: n == 2).persist(
        "c", CountCommitter("c", ["word"], sums=["n"])
    )
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.table("c") == {("x",): (1, 2)}


def test_names_of_components_come_from_the_stream_and_from_name() -> None:
    topology = TridentTopology("names")
    lines = topology.new_stream("lines", texts(["a b"]))
    words = lines.flat_map(str.split, "word string").name("split").shuffle().map(str.upper)
    words.persist("counts", CountCommitter("c", ["word"]))
    built = topology.build()
    assert [bolt.name for bolt in built.bolts] == ["split", "lines_1"]


def random_chain(seed: int) -> tuple[list[tuple[str, Any]], list[tuple[int | None, ...]]]:
    """Steps and rows of one random chain."""
    chance = random.Random(seed)
    steps: list[tuple[str, Any]] = []
    for _ in range(chance.randint(1, 8)):
        number = chance.randint(1, 5)
        steps.append((chance.choice(["map", "flat_map", "filter", "arrow", "each", "null"]), number))
    rows: list[tuple[int | None, ...]] = [(chance.choice([None, *range(9)]),) for _ in range(chance.randint(0, 12))]
    return steps, rows


def with_step(stream: TridentStream, verb: str, number: int) -> TridentStream:
    match verb:
        case "map":
            return stream.map(lambda n: None if n is None else (n * 7 + number) % 50)
        case "flat_map":
            return stream.flat_map(lambda n: [n] * ((n or 0) % 3), "n bigint")
        case "filter":
            return stream.filter(lambda n: n is None or n % (number + 1) > 0)
        case "arrow":
            return stream.arrow(lambda batch: batch.slice(0, batch.num_rows), "n bigint", rows="same")
        case "each":
            return stream.each("n", lambda n: n, "m bigint").project("m").map(lambda m: m, "n bigint")
    return stream.filter(FilterNull("n"))


@pytest.mark.parametrize("seed", range(20))
def test_fused_steps_make_the_same_tuples_as_steps_apart(seed: int) -> None:
    steps, rows = random_chain(seed)
    found = []
    for fused in (True, False):
        topology = TridentTopology("fused")
        stream = topology.new_stream("numbers", RowBatches("n bigint", [rows[::2], rows[1::2]])).map(lambda n: n)
        for verb, number in steps:
            stream = with_step(stream if fused else stream.shuffle(), verb, number)
        stream.name("last").persist("kept", CountCommitter("kept", ["n"]))
        built = topology.build()
        assert fused == (len(built.bolts) == 1)
        with TopologyHarness(built) as harness:
            harness.run()
            found.append((Counter(harness.values("last")), harness.table("kept")))
    assert found[0] == found[1]


def test_a_committer_that_stores_tuples_reads_a_merge() -> None:
    topology = TridentTopology("stored")
    lines = topology.new_stream("lines", texts(["x", "y"]))
    merged = topology.merge(lines.map(str.upper), lines)
    merged.persist("stored", AppendCommitter("stored"))
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert sorted(row["line"] for row in harness.rows("stored")) == ["X", "Y", "x", "y"]
