"""TopologyBuilder: Storm's verbs, and every mistake a clear error before Spark starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import txtopo
from txtopo import CountCommitter, FileSpout, Topology, TopologyBuilder
from txtopo.cli.explaining import WavesExplained, explained
from txtopo.config import Settings
from txtopo.errors import TopologyError
from txtopo.topology.promised_rows import unchecked_promises
from txtopo.topology.spark_types import RowsPromise
from txtopo.topology.tuple_bolts import BasicBolt

FIELDS = "carrier string, origin string, distance int"


def same(frame: Any) -> Any:
    return frame


def spout() -> FileSpout:
    return FileSpout("flights", FIELDS)


def counting(table: str = "counts", *keys: str) -> CountCommitter:
    return CountCommitter(table, keys or ("carrier",), sums={"distance": "total"})


def started(name: str = "flights") -> TopologyBuilder:
    builder = TopologyBuilder(name)
    builder.set_spout("lines", spout())
    return builder


def test_a_topology_holds_its_components_in_order() -> None:
    """Bolts come after their inputs, committers in the order in which they were set."""
    builder = TopologyBuilder("flights")
    builder.set_committer_bolt("second", counting("b")).fields_grouping("late", ["carrier"])
    builder.set_committer_bolt("first", counting("a"), inputs="lines")
    builder.set_bolt("late", lambda early, lines: early, inputs=["early", "lines"], fields=FIELDS, rows="fewer")
    builder.set_bolt("early", same, inputs="lines")
    builder.set_spout("lines", spout())

    topology = builder.build()

    assert [bolt.name for bolt in topology.bolts] == ["early", "late"]
    assert [committer.name for committer in topology.committers] == ["second", "first"]
    assert topology.committers[0].input.grouping == "fields" and topology.committers[0].input.fields == ("carrier",)
    assert topology.committers[1].input.grouping == "shuffle"
    assert (
        topology.committers[0].result_fields.ddl
        == "`carrier` string, `count` bigint NOT NULL, `total` decimal(38,0) NOT NULL"
    )
    assert topology.frame_bolts[1].rows == "fewer"


def test_the_file_that_built_a_topology_is_recorded() -> None:
    """The module's file is part of the code hash (R12)."""
    builder = started()
    builder.set_committer_bolt("counts", counting(), inputs="lines")

    assert builder.build().module_file == str(Path(__file__).resolve())


def build_with(step: Callable[[TopologyBuilder], object]) -> Topology:
    builder = started()
    step(builder)
    if not builder._committers:
        builder.set_committer_bolt("counts", counting(), inputs="lines")
    return builder.build()


MISTAKES: list[tuple[str, Callable[[TopologyBuilder], object]]] = [
    ("'Upper' is not allowed", lambda b: b.set_bolt("Upper", same, inputs="lines")),
    ("is not allowed", lambda b: b.set_bolt("a" * 42, same, inputs="lines")),
    ("is not allowed", lambda b: b.set_bolt('a"; drop', same, inputs="lines")),
    ("already has this name", lambda b: b.set_bolt("lines", same, inputs="lines")),
    ("nothing reads 'other'", lambda b: b.set_spout("other", spout())),
    ("remove parallelism_hint", lambda b: b.set_bolt("clean", same, inputs="lines", parallelism_hint=2)),  # type: ignore[call-overload]
    (
        "'clean' reads 'lin', but there is no such component; did you mean 'lines'",
        lambda b: b.set_bolt("clean", same, inputs="lin"),
    ),
    ("'clean' has no input", lambda b: b.set_bolt("clean", same)),
    ("'counts' has no input", lambda b: b.set_committer_bolt("counts", counting())),
    ("nothing reads 'clean'", lambda b: b.set_bolt("clean", same, inputs="lines")),
    ("cycle: clean -> clean", lambda b: b.set_bolt("clean", same, inputs="clean")),
    ("reads 'lines' twice", lambda b: b.set_bolt("clean", same, inputs=["lines", "lines"])),
    ("neither the name of a component", lambda b: b.set_bolt("clean", same, inputs=[3])),  # type: ignore[list-item]
    ("is neither a function from DataFrame", lambda b: b.set_bolt("clean", "same", inputs="lines")),  # type: ignore[call-overload]
    ("is set with set_committer_bolt", lambda b: b.set_bolt("clean", counting(), inputs="lines")),  # type: ignore[call-overload]
    ("is set with set_spout", lambda b: b.set_bolt("clean", spout(), inputs="lines")),  # type: ignore[call-overload]
    ("is not a CommitterBolt .* set_bolt", lambda b: b.set_committer_bolt("counts", same, inputs="lines")),  # type: ignore[arg-type]
    ("rows='all' is none of", lambda b: b.set_bolt("clean", same, inputs="lines", rows="all")),  # type: ignore[call-overload]
    (
        "takes .*frame.*, but is called with its inputs by keyword",
        lambda b: b.set_bolt("clean", same, inputs=["lines", "other"]),
    ),
    ("is called with one DataFrame", lambda b: b.set_bolt("clean", lambda: None, inputs="lines")),  # type: ignore[arg-type, return-value]
    ("unknown type 'strin'", lambda b: b.set_bolt("clean", same, inputs="lines", fields="a strin")),
    (
        "names field 'carier', but 'lines' has carrier, origin, distance; did you mean 'carrier'",
        lambda b: b.set_committer_bolt("c", counting("t", "carier"), inputs="lines"),
    ),
    ("names field 'carier'", lambda b: b.set_committer_bolt("c", counting()).fields_grouping("lines", ["carier"])),
    ("names no fields", lambda b: b.set_committer_bolt("c", counting()).fields_grouping("lines", [])),
    (
        "only integers and decimals",
        lambda b: b.set_committer_bolt("c", CountCommitter("t", ["carrier"], sums=["origin"]), inputs="lines"),
    ),
    (
        "reads 'lines' already",
        lambda b: b.set_committer_bolt("c", counting(), inputs="lines").shuffle_grouping("lines"),
    ),
    ("takes no all_grouping: .*count it again", lambda b: b.set_committer_bolt("c", counting()).all_grouping("lines")),
    ("takes no global_grouping", lambda b: b.set_committer_bolt("c", counting()).global_grouping("lines")),
    ("takes no direct_grouping", lambda b: b.set_committer_bolt("c", counting()).direct_grouping("lines")),
    (
        "takes no partial_key_grouping",
        lambda b: b.set_committer_bolt("c", counting()).partial_key_grouping("lines", "carrier"),
    ),
    ("takes no custom_grouping", lambda b: b.set_committer_bolt("c", counting()).custom_grouping("lines", same)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("complaint", "step"), MISTAKES, ids=[complaint for complaint, _ in MISTAKES])
def test_a_mistake_is_a_clear_error(complaint: str, step: Callable[[TopologyBuilder], object]) -> None:
    """Each mistake is an error when the topology is built, before Spark starts."""
    with pytest.raises(TopologyError, match=complaint):
        build_with(step)


@pytest.mark.parametrize(
    "grouping",
    [
        "fields",
        "shuffle",
        "none",
        "local_or_shuffle",
        "local_first",
        "load_aware",
        "global",
        "all",
        "direct",
        "partial_key",
        "custom",
    ],
)
def test_a_dataframe_bolt_takes_no_grouping(grouping: str) -> None:
    """Groupings on the inputs of a DataFrame bolt are an error that says what to do."""
    declarer = started().set_bolt("clean", same)
    arguments: list[Any] = ["lines"] + ([["carrier"]] if grouping in ("fields", "partial_key", "custom") else [])

    with pytest.raises(TopologyError, match=r"clean.*inputs='lines'"):
        getattr(declarer, f"{grouping}_grouping")(*arguments)


@pytest.mark.parametrize("grouping", ["shuffle", "none", "local_or_shuffle", "local_first", "load_aware"])
def test_a_committer_takes_the_groupings_that_count_each_row_once(grouping: str) -> None:
    builder = started()
    getattr(builder.set_committer_bolt("counts", counting()), f"{grouping}_grouping")("lines")

    assert builder.build().committers[0].input.grouping == grouping


def test_a_cycle_is_named_by_its_path() -> None:
    builder = started()
    builder.set_bolt("a", lambda lines, c: c, inputs=["lines", "c"])
    builder.set_bolt("b", same, inputs="a")
    builder.set_bolt("c", same, inputs="b", fields=FIELDS)
    builder.set_committer_bolt("counts", counting(), inputs="c")

    with pytest.raises(TopologyError, match="a -> c -> b -> a"):
        builder.build()


def test_a_bolt_without_declared_fields_cannot_feed_a_committer() -> None:
    builder = started()
    builder.set_bolt("clean", same, inputs="lines")
    builder.set_committer_bolt("counts", counting(), inputs="clean")

    with pytest.raises(TopologyError, match=r"declare fields=… on set_bolt\('clean'"):
        builder.build()


def test_two_committers_cannot_share_a_table() -> None:
    """A target table belongs to one committer of one topology."""
    builder = started()
    builder.set_committer_bolt("a", counting("counts"), inputs="lines")
    builder.set_committer_bolt("b", counting("public.counts"), inputs="lines")

    with pytest.raises(TopologyError, match=r"'a' and 'b'.*public\.counts"):
        builder.build()


def test_tracking_by_tuple_is_refused_where_there_are_no_tuples() -> None:
    """A setting that would do nothing is an error, not a surprise."""
    builder = TopologyBuilder("flights", acking="tuple")
    builder.set_spout("lines", spout())
    builder.set_committer_bolt("counts", counting(), inputs="lines")

    with pytest.raises(TopologyError, match="only functions on DataFrames"):
        builder.build()


def test_a_committer_has_no_output() -> None:
    builder = started()
    builder.set_committer_bolt("counts", counting(), inputs="lines")
    builder.set_bolt("after", same, inputs="counts")

    with pytest.raises(TopologyError, match="no output"):
        builder.build()


def test_a_topology_needs_a_spout_and_a_committer() -> None:
    with pytest.raises(TopologyError, match="no spout"):
        TopologyBuilder("flights").build()
    with pytest.raises(TopologyError, match="no committer"):
        started().build()
    with pytest.raises(TopologyError, match="is not allowed"):
        TopologyBuilder("Flights")
    with pytest.raises(TopologyError, match="use an instance"):
        TopologyBuilder("flights").set_spout("lines", FileSpout)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"files_per_batch": 0},
        {"bytes_per_batch": -1},
        {"part_bytes": True},
        {"delimiter": '"'},
        {"delimiter": ";;"},
        {"settled_s": -1},
    ],
)
def test_a_file_spout_refuses_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match=next(iter(options))):
        FileSpout("flights", FIELDS, **options)


def test_importing_the_public_face_loads_no_heavy_library() -> None:
    """A command that needs neither Arrow nor a database must not wait for them; nor does building a topology."""
    script = (
        "import sys, txtopo\n"
        "from txtopo import TopologyBuilder, FileSpout\n"
        "FileSpout('x', 'a int'); TopologyBuilder('x')\n"
        "print(sorted({'pyarrow', 'pyspark', 'sqlalchemy', 'pandas'} & set(sys.modules)))"
    )

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in txtopo.__all__:
        assert getattr(txtopo, name) is not None
    assert set(txtopo.__all__) <= set(dir(txtopo))
    with pytest.raises(AttributeError):
        _ = txtopo.nothing  # type: ignore[attr-defined]


def test_the_flights_example_builds_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topology a user can write in 20 lines."""
    monkeypatch.setenv("FLIGHTS_FOLDER", "/data/flights")
    example = Path(__file__).parents[3] / "examples" / "flights.py"
    script = (
        f"import runpy, sys; t = runpy.run_path({str(example)!r})['topology']; print(t.describe(), 'pyspark' in "
        f"sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "'path': '/data/flights'" in result.stdout
    assert result.stdout.strip().endswith("False")


class Pass(BasicBolt):
    outputs: ClassVar[Sequence[str]] = [FIELDS]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


def chain(*steps: RowsPromise | BasicBolt) -> TopologyBuilder:
    """Bolts `b1`, `b2`, … behind each other, by their `rows`, and a committer at the end."""
    builder, source = started(), "lines"
    for number, step in enumerate(steps, 1):
        if isinstance(step, str):
            builder.set_bolt(f"b{number}", same, inputs=source, fields=FIELDS, rows=step)
        else:
            builder.set_bolt(f"b{number}", step, inputs=source)
        source = f"b{number}"
    builder.set_committer_bolt("end", counting("ends"), inputs=source)
    return builder


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        (["any", "same"], {"b2"}),
        (["same", "any"], {"b1"}),
        (["fewer", "any", "fewer"], {"b1", "b3"}),
        ([Pass(), "same", "any"], {"b2"}),
    ],
)
def test_a_promise_of_rows_that_nothing_could_check_is_told(steps: list[Any], named: set[str]) -> None:
    """Promise: `rows="same"` and `"fewer"` are enforced, but for those that `explain` names."""
    topology = chain(*steps).build()

    assert unchecked_promises(topology) == named
    told = {
        item["name"]
        for item in explained(topology, Settings(), WavesExplained(True))["components"]
        if item.get("unchecked")
    }
    assert told == named


@pytest.mark.parametrize(
    "steps",
    [["any", "any"], ["fewer", "same"], ["any", Pass(), "same"], ["same", Pass(), "any"], [Pass(), "any", "same"]],
)
def test_a_promise_of_rows_between_two_counts_is_taken(steps: list[Any]) -> None:
    """Tuple bolts count what they get and send; so does a function behind another one, where tuples come in before
    both.
    """
    assert unchecked_promises(chain(*steps).build()) == set()


def test_a_promise_of_rows_is_checked_by_one_reader_of_several() -> None:
    builder = chain("same", "any")
    builder.set_committer_bolt("beside", counting("beside"), inputs="b1")

    assert unchecked_promises(builder.build()) == set()


def test_a_promise_of_rows_over_several_inputs_is_not_checked() -> None:
    builder = started()
    builder.set_bolt("early", same, inputs="lines")
    builder.set_bolt("late", lambda early, lines: early, inputs=["early", "lines"], fields=FIELDS, rows="fewer")
    builder.set_committer_bolt("end", counting("ends"), inputs="late")

    assert unchecked_promises(builder.build()) == {"late"}
