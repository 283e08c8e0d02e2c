"""Mistakes in a stream: each is raised by the call that is wrong, and names stream, step, line and field; failures of a
batch name the step and the values.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.row_batches import RowBatches, texts
from txtopo import CountCommitter
from txtopo.errors import Halted, TopologyError, TopologyTypeError
from txtopo.testing import TopologyHarness
from txtopo.topology.describe import describe_topology
from txtopo.trident import FilterNull, Split, TridentStream, TridentTopology

HERE = Path(__file__).name


def lines() -> TridentStream:
    return TridentTopology("errors").new_stream("lines", texts(["a b"]))


def generator(line: str) -> Iterator[str]:
    yield line


async def coroutine(line: str) -> str:
    return line


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, line: str) -> str:
        return line


class Upper:
    def __call__(self, line: str) -> str:
        return line.upper()


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.each("lime", len, "n int"),
        lambda s: s.flat_each("lime", len, "n int"),
        lambda s: s.map(len, "n int", of="lime"),
        lambda s: s.flat_map(str.split, "n int", of="lime"),
        lambda s: s.filter(len, of="lime"),
        lambda s: s.filter(FilterNull("lime")),
        lambda s: s.peek(len, of="lime"),
        lambda s: s.project("lime"),
        lambda s: s.partition_by("lime"),
        lambda s: s.persist("c", CountCommitter("c", ["lime"])),
    ],
)
def test_an_unknown_field_is_told_by_the_call_that_names_it(step: Callable[[TridentStream], Any]) -> None:
    # TI-06.
    with pytest.raises(TopologyError) as told:
        step(lines())
    words = str(told.value)
    assert words.startswith("stream 'lines', step 1 ")
    assert f" at {HERE}:" in words
    assert "there is no field 'lime'; there are line; did you mean 'line'?" in words


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda s: s.each("line", len, "line int"), "each appends 'line', which the stream has"),
        (lambda s: s.flat_each("line", str.split, "line string"), "or write .flat_map to replace"),
        (lambda s: s.map(lambda a, b: a), "<lambda> takes 2 values, of=('line') gives 1"),
        (lambda s: s.map(lambda: 1, "n int"), "<lambda> takes 0 values, of=('line') gives 1"),
        (lambda s: s.map(generator), "generator is a generator, since it has a `yield`"),
        (lambda s: s.filter(generator), "is a generator"),
        (lambda s: s.peek(generator), "is a generator"),
        (lambda s: s.each("line", generator, "n string"), "is a generator"),
        (lambda s: s.map(coroutine), "coroutine is a coroutine, which nobody awaits"),
        (lambda s: s.flat_map(coroutine, "n string"), "which nobody awaits"),
        (lambda s: s.map(Upper), "Upper is a class; use an instance, Upper(…)"),
        (lambda s: s.map(7), "7 is not a function"),
        (lambda s: s.map(Locked()), "Locked cannot be copied into tasks"),
        (lambda s: s.map(len, "n whole"), "n has unknown type 'whole'"),
        (lambda s: s.each((), len, "n int"), "at least one field is to be named"),
        (lambda s: s.each(("line", "line"), len, "n int"), "the field 'line' is named twice"),
        (lambda s: s.map(FilterNull("line")), "FilterNull is a filter"),
        (lambda s: s.filter(Split()), "Split is no filter"),
        (lambda s: s.arrow(lambda batch: batch, "line string", rows="all"), "rows='all' is none of same, fewer, any"),
        (lambda s: s.parallelism_hint(4), "the tasks of a spout are given to new_stream"),
        (lambda s: s.global_().map(str.upper).parallelism_hint(4), "after global_, one task gets everything"),
        (lambda s: s.map(str.upper).parallelism_hint(2).parallelism_hint(3), "have a parallelism_hint already"),
        (lambda s: s.map(str.upper).parallelism_hint(0), "from 1 to"),
        (lambda s: s.name("first"), "is no step that a component runs"),
        (lambda s: s.map(str.upper).name("First"), "the name 'First' is not allowed"),
        (lambda s: s.map(str.upper).name("lines"), "the name 'lines' is taken by stream 'lines'"),
        (lambda s: s.bolt("b", str.upper), "is not a bolt; for a function write .map"),
        (lambda s: s.partition("line"), "is not a CustomStreamGrouping"),
        (lambda s: s.persist("c", str), "is not a committer"),
        (
            lambda s: s.persist("c", CountCommitter("c", ["line"], sums={"line": "sum"})),
            "only integers and decimals are summed",
        ),
        (lambda s: s.persist("c", CountCommitter("c", ["line"])).new_values(), "CountCommitter emits nothing"),
        (lambda s: s.apply(lambda stream: None), "returned None, which is no stream"),
    ],
)
def test_a_mistake_is_told_by_the_call_that_makes_it(step: Callable[[TridentStream], Any], words: str) -> None:
    with pytest.raises(TopologyError) as told:
        step(lines())
    assert words in str(told.value)
    assert "stream 'lines', step " in str(told.value)
    assert HERE in str(told.value)


def test_the_line_of_a_step_is_the_line_of_its_call() -> None:
    stream = lines()
    upper = stream.map(str.upper)
    with pytest.raises(TopologyError) as told:
        upper.filter(bool, of="lime")
    called = (
        inspect.getsource(test_the_line_of_a_step_is_the_line_of_its_call)
        .splitlines()
        .index('        upper.filter(bool, of="lime")')
    )
    first = test_the_line_of_a_step_is_the_line_of_its_call.__code__.co_firstlineno
    assert str(told.value).startswith(f"stream 'lines', step 2 filter(bool) at {HERE}:{first + called}: ")


def test_a_stream_that_nothing_keeps_is_refused() -> None:
    topology = TridentTopology("errors")
    stream = topology.new_stream("lines", texts(["a"]))
    stream.persist("c", CountCommitter("c", ["line"]))
    topology.build()
    stream.map(str.upper).peek(print).name("loose")
    with pytest.raises(TopologyError, match=r"stream 'lines' ends at step 2 peek\(print\) at .*, and nothing keeps it"):
        topology.build()


def test_merge_needs_equal_fields_of_one_topology() -> None:
    topology = TridentTopology("errors")
    one, two = topology.new_stream("one", texts(["a"])), topology.new_stream("two", RowBatches("n int", [[(1,)]]))
    with pytest.raises(TopologyError, match="merge needs equal fields; 'one' has `line` string, and 'two' has `n` int"):
        topology.merge(one, two)
    with pytest.raises(TopologyError, match="another topology"):
        topology.merge(one, lines())
    with pytest.raises(TopologyTypeError, match="needs two streams"):
        topology.merge(one)


def test_identity_partition_needs_equal_numbers_of_tasks() -> None:
    topology = TridentTopology("errors")
    stream = topology.new_stream("lines", texts(["a"])).map(str.upper).parallelism_hint(2).identity_partition()
    stream.map(str.lower).parallelism_hint(3).persist("c", CountCommitter("c", ["line"]))
    with pytest.raises(
        TopologyError, match="identity_partition needs as many tasks on both sides; lines_1 has 2 tasks"
    ):
        topology.build()


# ----------------------------------------------------------------------------------------------------------------------


def failure(build: Callable[[TridentStream], TridentStream], *rows: Any, fields: str = "line string") -> str:
    """What the operator reads when the last step fails."""
    topology = TridentTopology("failing")
    made = build(topology.new_stream("lines", RowBatches(fields, [rows])))
    made.map(lambda *row: repr(row), "text string").persist("c", CountCommitter("c", ["text"]))
    with TopologyHarness(topology.build(), attempts_max=1) as harness, pytest.raises(Halted) as told:
        harness.run()
    return str(told.value)


def boom(word: str) -> str:
    if word == "x":
        raise ValueError("no x")
    return word


def stops(word: str) -> str:
    if word == "x":
        raise StopIteration
    return word


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_failing_function_is_named_with_step_line_and_values(tasks: int) -> None:
    def build(stream: TridentStream) -> TridentStream:
        return stream.flat_map(str.split, "word string").map(boom).map(str.upper).parallelism_hint(tasks)

    words = failure(build, ("a b",), ("c x d",))
    assert f"step 2 map(boom) of stream lines, {HERE}:" in words
    assert "ValueError: no x; on word='x'" in words
    assert "line='c x d'" in words
    assert "tuple 2" in words


def test_a_failure_behind_an_exchange_finds_its_source() -> None:
    words = failure(lambda s: s.flat_map(str.split, "word string").shuffle().map(boom), ("a b",), ("c x d",))
    assert "step 3 map(boom) of stream lines" in words
    assert words.endswith("on word='x'; on partition 0 tuple 2")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.map(stops), "StopIteration"),
        (lambda s: s.flat_map(lambda line: None, "word string"), "returned NULL (NoneType) instead of rows; return ()"),
        (lambda s: s.flat_map(lambda line: line, "word string"), "returned 'x' (str) instead of rows"),
        (lambda s: s.flat_map(lambda line: {line: 1}, "word string"), "(dict) instead of rows"),
        (lambda s: s.filter(lambda line: None), "returned NULL (NoneType), which is neither True nor False"),
        (lambda s: s.filter(len), "returned 1 (int), which is neither True nor False"),
        (lambda s: s.map(lambda line: 1), "field line: 1 (int) is no string"),
        (lambda s: s.map(lambda line: 1.5, "n int"), "field n: 1.5 (float) is no int"),
        (lambda s: s.map(lambda line: None, "n int not null"), "NULL, but it is declared NOT NULL"),
        (lambda s: s.map(lambda line: (1, 2, 3), "a int, b int"), "3 values (1, 2, 3); it declares 2 fields (a, b)"),
        (lambda s: s.map(lambda line: "ab", "a string, b string"), "a list or tuple of 2 values is wanted"),
        (lambda s: s.arrow(lambda batch: 7, "line string"), "a RecordBatch is wanted"),
        (
            lambda s: s.arrow(lambda batch: batch.slice(0, 0), "line string", rows="same"),
            "the function promises rows='same', and made 0 rows of 1",
        ),
    ],
)
def test_what_a_function_may_not_return_stops_with_words(
    build: Callable[[TridentStream], TridentStream], words: str
) -> None:
    found = failure(build, ("x",))
    assert words in found
    assert "step 1 " in found


def test_an_empty_result_of_a_function_over_batches_is_no_loss_by_accident() -> None:
    words = failure(lambda s: s.arrow(lambda b: pa.concat_batches([b, b]), "line string", rows="fewer"), ("x",))
    assert "the function promises rows='fewer', and made 2 rows of 1" in words


def test_a_value_that_python_cannot_hold_stops_with_step_and_words() -> None:
    def far(batch: pa.RecordBatch) -> pa.RecordBatch:
        days = pa.array([4_000_000] * batch.num_rows, pa.int32()).cast(pa.date32())
        return pa.RecordBatch.from_arrays([days], names=["day"])

    words = failure(lambda s: s.arrow(far, "day date", rows="same").shuffle().map(str, "text string"), ("x",))
    assert "failed in lines_2: step 3 map(str) of stream lines" in words
    assert "on a tuple with a value that Python cannot hold" in words


def described(number: int) -> object:
    topology = TridentTopology("hash")
    stream = topology.new_stream("lines", texts(["a"])).filter(lambda line: len(line) > number)
    stream.persist("c", CountCommitter("c", ["line"]))
    return describe_topology(topology.build())


def test_what_a_closure_holds_is_part_of_the_code_hash() -> None:
    assert described(1) == described(1)
    assert described(1) != described(2)
