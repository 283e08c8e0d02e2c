"""Topologies written as a class: streamparse's way, over the same builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import txtopo.bolts
from txtopo import ClassTopology, CountCommitter, FileSpout, Grouping, Topology, TopologyBuilder, spec
from txtopo.bolts import (
    BasicBolt,
    BatchCommitter,
    CommitCollector,
    CommitTransaction,
    CustomStreamGrouping,
    Stream,
    Tuple,
    TupleBolt,
)
from txtopo.errors import TopologyError


class WordSpout(FileSpout):
    def __init__(self, path: str = "words") -> None:
        super().__init__(path, "word string, n int")


class Split(BasicBolt):
    outputs = ["word string", Stream("line string", name="errors"), Stream("n int", name="told", direct=True)]
    config = {"separator": " ", "limit": 3}

    def __init__(self, separator: str = " ") -> None:
        self.separator = separator

    def execute(self, tup: Tuple, collector: Any) -> None:
        raise NotImplementedError


class Sink(BasicBolt):
    def execute(self, tup: Tuple, collector: Any) -> None:
        raise NotImplementedError


class CountBolt(BatchCommitter):
    result = ["word string", "n bigint"]

    def execute(self, tup: Tuple) -> None:
        raise NotImplementedError

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        raise NotImplementedError


class NoKind(TupleBolt):
    pass


class FirstTask(CustomStreamGrouping):
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        raise NotImplementedError


def same(frame: Any) -> Any:
    return frame


class WordCount(ClassTopology):
    words = WordSpout.spec(par=2)
    counts = CountBolt.spec(inputs={words: Grouping.fields("word")}, par=8)


def test_a_class_is_a_topology() -> None:
    """PY-01: two components with hints 2 and 8, a fields grouping on the default stream, named after the attributes."""
    topology = WordCount.build()

    (spout,) = topology.spouts
    (committer,) = topology.committers
    assert (topology.name, spout.name, spout.tasks, topology.bolts) == ("word_count", "words", 2, ())
    assert (committer.name, committer.tasks) == ("counts", 8)
    assert [(item.source, item.stream, item.grouping, item.fields) for item in committer.inputs] == [
        ("words", "default", "fields", ("word",))
    ]


def test_a_list_of_inputs_is_shuffled() -> None:
    """PY-01: inputs as a list, shuffle grouping by default."""

    class Listed(ClassTopology):
        words = WordSpout.spec(par=2)
        counts = CountBolt.spec(inputs=[words], par=8)

    assert Listed.build().committers[0].inputs[0].grouping == "shuffle"


def test_streams_are_chosen_by_name_or_number() -> None:
    """PY-01: a bolt of several streams, each selectable by index."""

    class Streams(ClassTopology):
        words = WordSpout.spec()
        split = Split.spec(inputs=[words])
        failures = Sink.spec(inputs=[split["errors"]])
        numbered = Sink.spec(inputs={split[1]: Grouping.GLOBAL, split: Grouping.ALL})
        told = Sink.spec(inputs={split["told"]: Grouping.DIRECT})
        counts = CountBolt.spec(inputs=[split[0]])

    bolts = {bolt.name: [(item.stream, item.grouping) for item in bolt.inputs] for bolt in Streams.build().tuple_bolts}

    assert bolts == {
        "split": [("default", "shuffle")],
        "failures": [("errors", "shuffle")],
        "numbered": [("errors", "global"), ("default", "all")],
        "told": [("told", "direct")],
    }


@pytest.mark.parametrize(
    ("grouping", "kind"),
    [
        (Grouping.SHUFFLE, "shuffle"),
        (Grouping.NONE, "none"),
        (Grouping.LOCAL_OR_SHUFFLE, "local_or_shuffle"),
        (Grouping.LOCAL_FIRST, "local_first"),
        (Grouping.LOAD_AWARE, "load_aware"),
        (Grouping.GLOBAL, "global"),
        (Grouping.ALL, "all"),
        (Grouping.fields("word", "n"), "fields"),
        (Grouping.partial_key("word"), "partial_key"),
        (Grouping.partial_key(), "partial_key"),
        (Grouping.custom(FirstTask()), "custom"),
    ],
)
def test_every_grouping_has_a_name(grouping: Grouping, kind: str) -> None:
    class Grouped(ClassTopology):
        words = WordSpout.spec()
        counts = CountBolt.spec(inputs={words: grouping})

    (subscription,) = Grouped.build().committers[0].inputs

    assert (subscription.grouping, subscription.fields, subscription.custom) == (kind, grouping.names, grouping.chooser)


def test_arguments_that_are_not_of_the_spec_make_the_instance() -> None:
    """`.spec` works on a class, with the arguments of its instance, and on an instance."""
    on_class = Split.spec(",", name="split", par=3)
    on_instance = Split(",").spec(name="split", par=3)

    assert isinstance(on_class.component, Split) and isinstance(on_instance.component, Split)
    assert on_class.component.separator == on_instance.component.separator == ","
    assert (on_class.name, on_class.tasks) == (on_instance.name, on_instance.tasks) == ("split", 3)


def test_functions_on_dataframes_and_committers_that_count_have_specs_too() -> None:
    class Mixed(ClassTopology):
        words = WordSpout.spec()
        clean = spec(same, inputs=[words], fields="word string", rows="fewer")
        counts = CountCommitter("counts", ["word"]).spec(name="totals", inputs=[clean])

    topology = Mixed.build()

    (bolt,) = topology.frame_bolts
    assert (bolt.name, bolt.function, bolt.rows, [item.source for item in bolt.inputs]) == (
        "clean",
        same,
        "fewer",
        ["words"],
    )
    assert topology.committers[0].name == "totals"


def test_a_class_builds_what_the_builder_builds() -> None:
    builder = TopologyBuilder("word_count")
    builder.set_spout("words", WordSpout(), 2)
    builder.set_committer_bolt("counts", CountBolt(), parallelism_hint=8).fields_grouping("words", "word")

    assert WordCount.build().describe() == builder.build().describe()
    assert WordCount.build().module_file == str(Path(__file__).resolve()) == builder.build().module_file


def test_settings_stand_in_the_class_and_may_be_overridden() -> None:
    """Settings of a component go over those of its class, settings given to build over those of the topology; neither
    changes the class.
    """

    class Configured(ClassTopology, name="other"):
        acking = "tuple"
        guarantee = "at_least_once"
        config = {"a": 1, "b": 2}
        words = WordSpout.spec()
        split = Split.spec(inputs=[words], config={"limit": 5})
        counts = CountBolt.spec(inputs=[split])

    topology = Configured.build(config={"b": 3})

    assert (topology.name, topology.acking, topology.guarantee) == ("other", "tuple", "at_least_once")
    assert topology.config == {"a": 1, "b": 3} and Configured.build().config == {"a": 1, "b": 2}
    assert topology.tuple_bolts[0].bolt.config == {"separator": " ", "limit": 5}
    assert Split.config["limit"] == 3
    assert Configured.build("third").name == "third"


def test_a_class_inherits_components_and_may_replace_them() -> None:
    class Base(ClassTopology, abstract=True):
        words = WordSpout.spec()
        counts = CountBolt.spec(inputs=[words], par=2)

    class More(Base):
        counts = CountBolt.spec(inputs=[Base.words], par=4)

    assert [(item.name, item.tasks) for item in More.build().committers] == [("counts", 4)]


@pytest.mark.parametrize(
    ("name", "expected"), [("WordCount", "word_count"), ("Flights", "flights"), ("HTTPLog2Day", "http_log2_day")]
)
def test_a_class_gives_its_topology_its_name_in_small_letters(name: str, expected: str) -> None:
    body = {"words": (words := WordSpout.spec()), "counts": CountBolt.spec(inputs=[words])}

    kind: Any = type(name, (ClassTopology,), body)

    assert kind.build().name == expected


def defined(**body: Any) -> Topology:
    kind: Any = type("Defined", (ClassTopology,), body)
    built: Topology = kind.build()
    return built


WORDS = WordSpout.spec()


def counted(**inputs: Any) -> Topology:
    return defined(words=WORDS, counts=CountBolt.spec(**inputs))


def with_outputs(outputs: Any) -> Topology:
    kind: Any = type("Declared", (Sink,), {"outputs": outputs})
    return defined(words=WORDS, bolt=kind.spec(inputs=[WORDS]))


def without_fields() -> Topology:
    spout = WordSpout()
    del spout.fields
    return defined(words=spout.spec())


MISTAKES: list[tuple[type[Exception], str, Callable[[], object]]] = [
    # PY-02
    (ValueError, "names field 'wrd'", lambda: counted(inputs={WORDS: Grouping.fields("wrd")})),
    (ValueError, r"Grouping.fields\(\) names no fields", lambda: Grouping.fields()),
    (
        ValueError,
        "already has this name",
        lambda: defined(words=WORDS, counts=CountBolt.spec(name="words", inputs=[WORDS])),
    ),
    (ValueError, "'counts' has no input", lambda: counted()),
    (ValueError, "has no output", without_fields),
    (ValueError, "no spout", lambda: defined(counts=CountBolt.spec(inputs=[]))),
    (ValueError, "parallelism_hint=0", lambda: WordSpout.spec(par=0)),
    (ValueError, "parallelism_hint=-1", lambda: CountBolt.spec(inputs=[WORDS], par=-1)),
    (
        KeyError,
        "the spec of Split has no stream 'nope': it declares default, errors, told",
        lambda: Split.spec()["nope"],
    ),
    (KeyError, "no stream 3", lambda: Split.spec()[3]),
    (KeyError, "no stream -1", lambda: Split.spec()[-1]),
    (
        KeyError,
        "declares no outputs",
        lambda: defined(words=WORDS, sink=(sink := Sink.spec(inputs=[WORDS])), counts=CountBolt.spec(inputs=[sink])),
    ),
    # PY-03
    (TypeError, "parallelism_hint=5.4 is not a whole number", lambda: WordSpout.spec(par=5.4)),  # type: ignore[arg-type]
    (
        TypeError,
        r"Defined.words is a component, not its spec: write WordSpout.spec\(…\)",
        lambda: defined(words=WordSpout),
    ),
    (TypeError, "Defined.words is a component, not its spec", lambda: defined(words=WordSpout())),
    (TypeError, "BasicBolt is a base class", lambda: BasicBolt.spec()),
    (TypeError, "BatchCommitter is a base class", lambda: BatchCommitter.spec()),
    (TypeError, "NoKind subclasses TupleBolt directly", lambda: NoKind.spec()),
    (TypeError, "inputs='words' is neither a list of specs", lambda: counted(inputs="words")),
    (TypeError, "inputs=.* is neither a list of specs", lambda: counted(inputs=WORDS)),
    (TypeError, "input 'words' is not a spec", lambda: counted(inputs={"words": Grouping.SHUFFLE})),
    (TypeError, "input 'words' is not a spec", lambda: counted(inputs=["words"])),
    (TypeError, "'word' is not a grouping: write Grouping.fields", lambda: counted(inputs={WORDS: "word"})),
    (TypeError, "config='debug' is not a mapping", lambda: CountBolt.spec(inputs=[WORDS], config="debug")),  # type: ignore[arg-type]
    (TypeError, "config='debug' is not a mapping", lambda: defined(config="debug", words=WORDS)),
    (TypeError, "takes no config", lambda: WordSpout.spec(config={"a": 1})),
    (TypeError, "3 in its outputs is neither", lambda: with_outputs(["word string", 3])),
    (TypeError, "outputs='word string' is not a list", lambda: with_outputs("word string")),
    (TypeError, "3 is no field's name", lambda: Grouping.fields(3)),  # type: ignore[arg-type]
    (TypeError, "is not an instance of CustomStreamGrouping", lambda: Grouping.custom(FirstTask)),  # type: ignore[arg-type]
    (TypeError, "takes name, inputs, par and config, not", lambda: Sink().spec(3)),
    (TypeError, "is neither a function from DataFrame", lambda: spec("same")),  # type: ignore[arg-type]
    # The rest.
    (TopologyError, "spout 'words' takes no inputs", lambda: defined(words=WordSpout.spec(inputs=[WORDS]))),
    (
        TopologyError,
        "reads the spec of WordSpout, which is not an attribute",
        lambda: defined(others=WordSpout.spec(), counts=CountBolt.spec(inputs=[WORDS])),
    ),
    (TopologyError, "Defined.build: the name is reserved", lambda: defined(build=WORDS)),
    (
        TopologyError,
        "takes no grouping and reads default streams",
        lambda: defined(words=WORDS, clean=spec(same, inputs={WORDS: Grouping.SHUFFLE})),
    ),
    (
        TopologyError,
        "remove parallelism_hint",
        lambda: defined(words=WORDS, clean=spec(same, inputs=[WORDS], par=2)),
    ),
]


@pytest.mark.parametrize(("kind", "complaint", "define"), MISTAKES, ids=[complaint for _, complaint, _ in MISTAKES])
def test_a_mistake_is_found_where_the_class_is_defined(
    kind: type[Exception], complaint: str, define: Callable[[], object]
) -> None:
    """PY-02, PY-03: value errors, a key error for an unknown stream, type errors; always a TopologyError."""
    with pytest.raises(TopologyError, match=complaint) as raised:
        define()

    assert isinstance(raised.value, kind)


def test_what_bolts_are_written_with_is_in_one_module() -> None:
    for name in txtopo.bolts.__all__:
        assert getattr(txtopo.bolts, name) is not None
