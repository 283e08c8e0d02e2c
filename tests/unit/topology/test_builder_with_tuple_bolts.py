"""TopologyBuilder with tuple bolts: streams, groupings, several spouts and inputs, and each mistake a clear error of
the right kind.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest

from txtopo import CountCommitter, FileSpout, Topology, TopologyBuilder
from txtopo.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    BatchCommitter,
    CommitCollector,
    CommitTransaction,
    CustomStreamGrouping,
    RichBolt,
    Stream,
    Tuple,
    TupleBolt,
)
from txtopo.errors import ConfigurationError, TopologyError, TopologyTypeError, UnknownStreamError
from txtopo.topology.components import BoltComponent, TupleBoltComponent


class Split(BasicBolt):
    outputs = ["word string", Stream("line string", name="errors"), Stream("n int", name="told", direct=True)]

    def __init__(self, separator: str = " ") -> None:
        self.separator = separator

    def execute(self, tup: Tuple, collector: Any) -> None:
        raise NotImplementedError


class Sink(BasicBolt):
    def execute(self, tup: Tuple, collector: Any) -> None:
        raise NotImplementedError


class Rich(RichBolt):
    outputs = ["word string"]

    def execute(self, tup: Tuple) -> None:
        raise NotImplementedError


class Batch(BatchBolt):
    outputs = ["word string"]

    def execute(self, tup: Tuple) -> None:
        raise NotImplementedError

    def finish_batch(self) -> None:
        raise NotImplementedError


class Arrow(ArrowBolt):
    outputs = ["word string"]

    def execute(self, batch: Any, collector: Any) -> None:
        raise NotImplementedError


class Words(BatchCommitter):
    result: ClassVar[Sequence[str]] = ["word string", "n bigint"]
    outputs: ClassVar[Sequence[str | Stream]] = ["word string"]

    def execute(self, tup: Tuple) -> None:
        raise NotImplementedError

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        raise NotImplementedError


class Plain(Words):
    """Its result rows are the tuples it gets, and it emits nothing."""

    result = ()
    outputs = ()


class Outside(Plain):
    effects = "outside"


class FirstTask(CustomStreamGrouping):
    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        raise NotImplementedError


def same(frame: Any) -> Any:
    return frame


def spout() -> FileSpout:
    return FileSpout("texts", "line string, n int")


def started(**options: Any) -> TopologyBuilder:
    builder = TopologyBuilder("words", **options)
    builder.set_spout("lines", spout())
    return builder


def splitting(**options: Any) -> TopologyBuilder:
    """lines -> split, and nothing behind it yet."""
    builder = started(**options)
    builder.set_bolt("split", Split(), inputs="lines")
    return builder


def count(table: str = "words") -> CountCommitter:
    return CountCommitter(table, ["word"])


def test_a_tuple_topology_keeps_what_was_declared() -> None:
    """Bolts with streams and tasks, committers with all inputs: as the runtime reads them."""
    builder = TopologyBuilder("words", acking="tuple", config={"topology.message.timeout.secs": 5})
    builder.set_spout("lines", spout(), 3)
    builder.set_spout("more", spout())
    split = builder.set_bolt("split", Split(), parallelism_hint=4)
    split.shuffle_grouping("lines").fields_grouping("more", "line")
    counting = builder.set_committer_bolt("counts", Words(), parallelism_hint=2)
    counting.fields_grouping("split", ["word"]).shuffle_grouping("split", stream="errors")

    topology = builder.build()

    assert [(item.name, item.tasks) for item in topology.spouts] == [("lines", 3), ("more", None)]
    (bolt,) = topology.tuple_bolts
    assert (bolt.tasks, list(bolt.outputs), [item.grouping for item in bolt.inputs]) == (
        4,
        ["default", "errors", "told"],
        ["shuffle", "fields"],
    )
    (committer,) = topology.committers
    assert [(item.source, item.stream, item.grouping, item.fields) for item in committer.inputs] == [
        ("split", "default", "fields", ("word",)),
        ("split", "errors", "shuffle", ()),
    ]
    assert committer.input == committer.inputs[0] and committer.tasks == 2
    assert committer.fields.ddl == "`word` string" and committer.result_fields.ddl == "`word` string, `n` bigint"
    assert (topology.acking, topology.config) == ("tuple", {"topology.message.timeout.secs": 5})


@pytest.mark.parametrize("bolt", [Split(), Rich(), Batch(), Arrow()], ids=lambda bolt: type(bolt).__name__)
def test_every_kind_of_tuple_bolt_is_taken(bolt: TupleBolt) -> None:
    builder = started()
    builder.set_bolt("bolt", bolt, inputs="lines")
    builder.set_committer_bolt("counts", count(), inputs="bolt")

    (component,) = builder.build().tuple_bolts

    assert component.bolt is bolt and component.tasks == 1
    assert component.inputs[0].grouping == "shuffle"


GROUPINGS: list[tuple[str, tuple[Any, ...]]] = [
    ("fields", ("split", ["word"])),
    ("shuffle", ("split",)),
    ("none", ("split",)),
    ("local_or_shuffle", ("split",)),
    ("local_first", ("split",)),
    ("load_aware", ("split",)),
    ("global", ("split",)),
    ("all", ("split",)),
    ("partial_key", ("split", "word")),
    ("partial_key", ("split",)),
    ("custom", ("split", FirstTask())),
]


@pytest.mark.parametrize("what", [Sink, Words])
@pytest.mark.parametrize(("grouping", "arguments"), GROUPINGS)
def test_tuple_bolts_and_batch_committers_take_every_grouping(
    what: Callable[[], Any], grouping: str, arguments: tuple[Any, ...]
) -> None:
    """Storm's groupings, JStorm's too; a partial key without fields goes by the first value."""
    builder = splitting()
    builder.set_committer_bolt("others", count(), inputs="split")
    reader = what()
    declarer = (
        builder.set_bolt("reader", reader)
        if isinstance(reader, TupleBolt)
        else builder.set_committer_bolt("reader", reader)
    )
    getattr(declarer, f"{grouping}_grouping")(*arguments)

    topology = builder.build()

    inputs = {bolt.name: bolt.inputs for bolt in topology.bolts} | {
        item.name: item.inputs for item in topology.committers
    }
    (subscription,) = inputs["reader"]
    assert subscription.grouping == grouping
    assert subscription.fields == (("word",) if len(arguments) > 1 and grouping != "custom" else ())
    assert isinstance(subscription.custom, FirstTask) is (grouping == "custom")


def test_a_direct_grouping_reads_a_direct_stream() -> None:
    builder = splitting()
    builder.set_bolt("told", Sink(), parallelism_hint=3).direct_grouping("split", "told")
    builder.set_committer_bolt("counts", count(), inputs="split")

    assert builder.build().tuple_bolts[1].inputs[0].stream == "told"


def test_a_committer_that_counts_takes_a_global_grouping_of_tuples() -> None:
    builder = splitting()
    builder.set_committer_bolt("counts", count()).global_grouping("split")

    assert builder.build().committers[0].input.grouping == "global"


def test_dataframe_bolts_and_tuple_bolts_mix() -> None:
    """A DataFrame bolt feeds a tuple bolt with the fields it declares, and reads one."""
    builder = started()
    builder.set_bolt("clean", same, inputs="lines", fields="line string")
    builder.set_bolt("split", Split()).shuffle_grouping("clean")
    builder.set_bolt("upper", same, inputs="split", fields="word string")
    builder.set_committer_bolt("counts", count(), inputs="upper")

    topology = builder.build()

    assert [type(bolt) for bolt in topology.bolts] == [BoltComponent, TupleBoltComponent, BoltComponent]


def test_a_diamond_of_streams_and_a_sink_build() -> None:
    """Several readers of one stream, several inputs of one bolt; a bolt without outputs needs no reader."""
    builder = splitting()
    builder.set_bolt("left", Rich()).shuffle_grouping("split")
    builder.set_bolt("right", Rich()).shuffle_grouping("split", stream="errors")
    builder.set_bolt("logged", Sink()).shuffle_grouping("left").all_grouping("right")
    builder.set_committer_bolt("counts", Plain()).shuffle_grouping("left").shuffle_grouping("right")

    assert len(builder.build().committers[0].inputs) == 2


def test_a_committer_is_applied_after_those_it_reads() -> None:
    """What a BatchCommitter emits in its turn is read further down in the same turn, once all that read none are
    applied.
    """
    builder = splitting()
    builder.set_committer_bolt("totals", Plain(), inputs="words")
    builder.set_committer_bolt("other", count(), inputs="split")
    builder.set_committer_bolt("words", Words(), inputs="split")

    topology = builder.build()

    assert [committer.name for committer in topology.committers] == ["other", "words", "totals"]
    totals = topology.committers[2]
    assert totals.fields == topology.fields_of("words") == totals.result_fields
    assert list(topology.committers[1].outputs) == ["default"]


def test_a_topology_without_a_spout_is_a_value_error() -> None:
    """PY-02: no spout."""
    with pytest.raises(ValueError, match="no spout"):
        TopologyBuilder("words").build()


@pytest.mark.parametrize(
    ("options", "kind", "complaint"),
    [
        ({"config": "debug"}, TypeError, "config='debug' is not a mapping"),
        ({"config": {3: 4}}, TypeError, "3 is not the name of a setting"),
        ({"config": {"a": object()}}, TypeError, "setting 'a' has a object, which is not a JSON value"),
        ({"config": {"a": float("nan")}}, TypeError, "not a JSON value"),
        ({"acking": "sometimes"}, ValueError, "acking='sometimes' is none of 'batch', 'tuple', 'off'"),
        ({"guarantee": "maybe"}, ValueError, "guarantee='maybe' is none of 'exactly_once'"),
    ],
)
def test_impossible_settings_of_a_topology_are_refused(
    options: dict[str, Any], kind: type[Exception], complaint: str
) -> None:
    """PY-03: config as text is a type error; so is what the code hash could not hold."""
    with pytest.raises(TopologyError, match=complaint) as raised:
        TopologyBuilder("words", **options)

    assert isinstance(raised.value, kind)


def test_errors_of_topologies_are_configuration_errors_and_read_well() -> None:
    """The command line ends with 2 for each of them, and a key error shows its message as it is, not in quotes."""
    error = UnknownStreamError("no stream 'x'")

    assert str(error) == "no stream 'x'"
    assert isinstance(error, ConfigurationError) and isinstance(TopologyTypeError("x"), ConfigurationError)
    assert error.exit_code == 2


def test_a_pair_that_is_weaker_than_wanted_is_refused() -> None:
    """The error names the pair, why it is weak, and what to write: a weaker guarantee stands in the code or nowhere."""
    builder = splitting()
    builder.set_committer_bolt("mails", Outside(), inputs="split")

    with pytest.raises(TopologyError) as raised:
        builder.build()

    told = str(raised.value)
    assert "spout 'lines' with committer bolt 'mails' gives at_least_once" in told
    assert "'mails' has effects outside" in told
    assert "TopologyBuilder('words', guarantee=\"at_least_once\")" in told


def test_a_weaker_guarantee_that_is_written_down_is_taken() -> None:
    builder = splitting(guarantee="at_least_once")
    builder.set_committer_bolt("mails", Outside(), inputs="split")

    assert builder.build().guarantee == "at_least_once"


def test_only_spouts_that_reach_a_committer_count_for_its_guarantee() -> None:
    """A spout behind another committer weakens that one alone; one behind a committer that is read weakens the reader."""  # noqa: E501
    weak = spout()
    weak.kind = "at_least_once"

    def build(reading: str, guarantee: Any) -> Topology:
        builder = splitting(guarantee=guarantee)
        builder.set_spout("weak", weak)
        builder.set_bolt("aside", Sink(), inputs="weak")
        builder.set_bolt("weak_split", Split(), inputs="weak")
        builder.set_committer_bolt("words", Words(), inputs=reading)
        builder.set_committer_bolt("totals", Plain(), inputs="words")
        builder.set_bolt("drained", Sink()).all_grouping("split").all_grouping("weak_split")
        return builder.build()

    assert build("split", "exactly_once").guarantee == "exactly_once"
    assert build("weak_split", "at_least_once")
    with pytest.raises(
        TopologyError, match=r"'weak' with committer bolt 'words' gives at_least_once.*may give a message twice"
    ):
        build("weak_split", "exactly_once")


def described(**changes: Any) -> str:
    """A description of a topology with one thing changed."""
    values: dict[str, Any] = {
        "hint": 2,
        "separator": " ",
        "grouping": FirstTask(),
        "stream": "errors",
        "config": {},
        "spout_hint": None,
        "committer_hint": 1,
    }
    values |= changes
    builder = TopologyBuilder(
        "words",
        acking=changes.get("acking", "batch"),
        guarantee=changes.get("guarantee", "exactly_once"),
        config=values["config"],
    )
    builder.set_spout("lines", spout(), values["spout_hint"])
    builder.set_bolt("split", Split(values["separator"]), inputs="lines", parallelism_hint=values["hint"])
    builder.set_bolt("s", Sink()).custom_grouping("split", values["grouping"]).shuffle_grouping("lines")
    builder.set_bolt("t", Sink()).shuffle_grouping("split", stream=values["stream"])
    builder.set_committer_bolt("c", Words(), parallelism_hint=values["committer_hint"]).fields_grouping("split", "word")
    return json.dumps(builder.build().describe(), sort_keys=True, allow_nan=False)


class LastTask(FirstTask):
    pass


@pytest.mark.parametrize(
    "changes",
    [
        {"hint": 3},
        {"separator": ","},
        {"grouping": FirstTask(1)},
        {"grouping": LastTask()},
        {"stream": "default"},
        {"config": {"a": 1}},
        {"spout_hint": 2},
        {"committer_hint": 2},
        {"acking": "tuple"},
        {"guarantee": "at_least_once"},
    ],
    ids=lambda change: ", ".join(
        f"{name} {value if isinstance(value, str | int | dict) else type(value).__name__}"
        for name, value in change.items()
    ),
)
def test_whatever_changes_a_topology_changes_its_description(changes: dict[str, Any]) -> None:
    """It is part of the code hash (R12): tasks, streams, groupings, what bolts were made with, settings."""
    assert described(**changes) != described()


def test_a_description_is_the_same_for_the_same_topology_and_tells_no_values() -> None:
    """Attributes of a template count by digest: one may be a password, and descriptions are stored and shown."""
    first, second = described(separator="s3cret"), described(separator="s3cret")

    assert first == second
    assert "s3cret" not in first


@dataclasses.dataclass(frozen=True)
class Options:
    """What a bolt may be made with."""

    least: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("1.5"), Decimal("2.5")),
        (date(2024, 1, 1), date(2024, 1, 2)),
        (timedelta(seconds=1), timedelta(seconds=2)),
        (re.compile("a+"), re.compile("a*")),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (Path("a"), Path("b")),
        (Options(1), Options(2)),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_plain_values_of_every_kind_count(one: object, other: object) -> None:
    """R12: a bolt made with another limit, day or pattern is another topology, wherever the value came from."""
    assert described(separator=one) == described(separator=one) != described(separator=other)


def test_attributes_without_a_plain_value_count_by_their_type() -> None:
    """No address of an object and no order of a set gets into the code hash."""

    def text(lock: object, names: set[str]) -> str:
        builder = started()
        bolt = Split()
        bolt.lock, bolt.names, bolt.function = lock, names, same  # type: ignore[attr-defined]
        builder.set_bolt("split", bolt, inputs="lines")
        builder.set_committer_bolt("counts", count(), inputs="split")
        return json.dumps(builder.build().describe())

    assert text(object(), {"a", "b"}) == text(object(), {"b", "a"})
    assert text(object(), {"a"}) != text(object(), {"b"})


def test_the_description_of_a_dataframe_topology_keeps_its_shape() -> None:
    """What earlier versions described is there under the same names; new things are additions."""
    builder = started()
    builder.set_bolt("clean", same, inputs="lines", fields="word string", rows="fewer")
    builder.set_committer_bolt("counts", count()).fields_grouping("clean", ["word"])

    told = builder.build().describe()

    assert told["bolts"] == {
        "clean": {"inputs": ["lines"], "fields": "`word` string", "rows": "fewer", "function": "same"}
    }
    assert told["spouts"] == {"lines": spout().describe()}
    assert told["committers"] == {
        "counts": {
            **count().describe(),
            "input": "clean",
            "grouping": "fields",
            "grouping_fields": ["word"],
            "fields": "`word` string",
            "tasks": 1,
        }
    }
