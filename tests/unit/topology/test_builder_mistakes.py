"""Mistakes in topologies with tuple bolts, each a clear error when the topology is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.topology.test_builder_with_tuple_bolts import (
    FirstTask,
    Plain,
    Rich,
    Sink,
    Words,
    count,
    same,
    splitting,
    spout,
)
from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import (
    Stream,
    TupleBolt,
)
from txtopo.errors import TopologyError


class NoKind(TupleBolt):
    outputs = ["word string"]


def built(step: Callable[[TopologyBuilder], object]) -> Topology:
    builder = splitting()
    step(builder)
    if not builder._committers:
        builder.set_committer_bolt("counts", count(), inputs="split")
    return builder.build()


def cycle_of_committers(builder: TopologyBuilder) -> None:
    builder.set_committer_bolt("a", Words(), inputs="b")
    builder.set_committer_bolt("b", Words(), inputs="a")


def cycle_of_bolts(builder: TopologyBuilder) -> None:
    builder.set_bolt("a", Rich(), inputs=["lines", "b"])
    builder.set_bolt("b", Rich(), inputs="a")


def cycle_through_a_committer(builder: TopologyBuilder) -> None:
    builder.set_bolt("s", Rich()).shuffle_grouping("lines").shuffle_grouping("c")
    builder.set_committer_bolt("c", Words(), inputs="s")


def frame_downstream(builder: TopologyBuilder, reads: str) -> None:
    builder.set_committer_bolt("c", Words(), inputs="split")
    builder.set_bolt("s", Rich(), inputs="c")
    builder.set_bolt("f", same, inputs=reads, fields="word string")
    builder.set_committer_bolt("e", Plain(), inputs=["f", "s"])


def direct_across_phases(builder: TopologyBuilder) -> None:
    class Direct(Rich):
        outputs = [Stream("word string", direct=True)]

    builder.set_committer_bolt("c", Words(), inputs="split")
    builder.set_bolt("d", Direct(), inputs="lines")
    builder.set_bolt("s", Sink()).direct_grouping("d").shuffle_grouping("c")


def direct_committer(builder: TopologyBuilder) -> None:
    committer = Words()
    committer.outputs = [Stream("n int", direct=True)]  # type: ignore[misc]
    builder.set_committer_bolt("c", committer, inputs="split")


def frames_without_fields(builder: TopologyBuilder, reader: Any) -> None:
    builder.set_bolt("clean", same, inputs="lines")
    (builder.set_bolt if isinstance(reader, TupleBolt) else builder.set_committer_bolt)(
        "reader", reader, inputs="clean"
    )


def frame_beside_tuples(builder: TopologyBuilder) -> None:
    builder.set_bolt("clean", same, inputs="lines")
    builder.set_bolt("both", lambda clean, split: clean, inputs=["clean", "split"], fields="word string")
    builder.set_committer_bolt("c", count(), inputs="both")


def kindless_spout(builder: TopologyBuilder) -> None:
    other = spout()
    other.kind = "sometimes"  # type: ignore[assignment]
    builder.set_spout("other", other)


def strange_effects(builder: TopologyBuilder) -> None:
    committer = Plain()
    committer.effects = "sometimes"  # type: ignore[assignment]
    builder.set_committer_bolt("c", committer, inputs="split")


def strange_config(builder: TopologyBuilder, what: Any) -> None:
    what.config = {"a": object()}
    (builder.set_bolt if isinstance(what, TupleBolt) else builder.set_committer_bolt)("c", what, inputs="split")


def frame_on_a_direct_stream(builder: TopologyBuilder) -> None:
    bolt = Rich()
    bolt.outputs = [Stream("word string", direct=True)]  # type: ignore[misc]
    builder.set_bolt("rich", bolt, inputs="lines")
    builder.set_bolt("clean", same, inputs="rich", fields="word string")
    builder.set_committer_bolt("c", count(), inputs="clean")


def fieldless_spout(builder: TopologyBuilder) -> None:
    other = spout()
    del other.fields
    builder.set_spout("other", other)


MISTAKES: list[tuple[type[Exception], str, Callable[[TopologyBuilder], object]]] = [
    # PY-02: values that are impossible, and the stream that is not there.
    (
        ValueError,
        "names field 'wrd', but 'split' has word; did you mean 'word'",
        lambda b: b.set_bolt("s", Sink()).fields_grouping("split", "wrd"),
    ),
    (
        ValueError,
        "partial_key_grouping.*names field 'wrd'",
        lambda b: b.set_bolt("s", Sink()).partial_key_grouping("split", "wrd"),
    ),
    (
        ValueError,
        "names field 'word', but 'split' has line",
        lambda b: b.set_bolt("s", Sink()).fields_grouping("split", "word", stream="errors"),
    ),
    (ValueError, "names no fields", lambda b: b.set_bolt("s", Sink()).fields_grouping("split", [])),
    (ValueError, "already has this name", lambda b: b.set_bolt("split", Sink(), inputs="lines")),
    (ValueError, "'s' has no input", lambda b: b.set_bolt("s", Sink())),
    (ValueError, "spout 'other': FileSpout has no output", fieldless_spout),
    (
        ValueError,
        "parallelism_hint=0 is not possible",
        lambda b: b.set_bolt("s", Sink(), inputs="lines", parallelism_hint=0),
    ),
    (ValueError, "parallelism_hint=-1 is not possible", lambda b: b.set_spout("other", spout(), -1)),
    (ValueError, "from 1 to 4096", lambda b: b.set_committer_bolt("c", Plain(), inputs="split", parallelism_hint=4097)),
    (
        KeyError,
        "reads stream 'eror' of 'split', but it declares default, errors, told; did you mean",
        lambda b: b.set_bolt("s", Sink()).shuffle_grouping("split", "eror"),
    ),
    (
        KeyError,
        "reads stream 'errors' of 'lines', but it declares default",
        lambda b: b.set_bolt("s", Sink()).shuffle_grouping("lines", stream="errors"),
    ),
    (
        KeyError,
        "but it declares no outputs",
        lambda b: (b.set_bolt("s", Sink(), inputs="lines"), b.set_bolt("t", Sink(), inputs="s")),
    ),
    # PY-03: wrong types.
    (
        TypeError,
        "parallelism_hint=5.4 is not a whole number",
        lambda b: b.set_bolt("s", Sink(), inputs="lines", parallelism_hint=5.4),  # type: ignore[call-overload]
    ),
    (TypeError, "parallelism_hint=True is not a whole number", lambda b: b.set_spout("other", spout(), True)),
    (
        TypeError,
        r"the class Sink is not a bolt; use an instance: set_bolt\('s', Sink",
        lambda b: b.set_bolt("s", Sink, inputs="lines"),  # type: ignore[arg-type]
    ),
    (TypeError, "Plain .* use an instance", lambda b: b.set_committer_bolt("c", Plain, inputs="split")),  # type: ignore[arg-type]
    (TypeError, "NoKind subclasses TupleBolt directly", lambda b: b.set_bolt("s", NoKind(), inputs="lines")),
    (TypeError, "is set with set_bolt", lambda b: b.set_committer_bolt("c", Sink(), inputs="split")),  # type: ignore[arg-type]
    (TypeError, "is set with set_committer_bolt", lambda b: b.set_bolt("c", Plain(), inputs="split")),  # type: ignore[call-overload]
    (TypeError, "needs names of fields", lambda b: b.set_bolt("s", Sink()).fields_grouping("split", 3)),  # type: ignore[arg-type]
    (TypeError, "needs the name of a component and of a stream", lambda b: b.set_bolt("s", Sink()).shuffle_grouping(3)),  # type: ignore[arg-type]
    (
        TypeError,
        "is not a CustomStreamGrouping; use an instance",
        lambda b: b.set_bolt("s", Sink()).custom_grouping("split", FirstTask),  # type: ignore[arg-type]
    ),
    (TypeError, "is not a CustomStreamGrouping", lambda b: b.set_bolt("s", Sink()).custom_grouping("split", same)),  # type: ignore[arg-type]
    # Connections.
    (
        TopologyError,
        "reads 'split' on stream 'errors' twice",
        lambda b: b.set_bolt("s", Sink()).shuffle_grouping("split", "errors").all_grouping("split", "errors"),
    ),
    (TopologyError, "reads 'lines' twice", lambda b: b.set_bolt("s", Sink(), inputs="lines").shuffle_grouping("lines")),
    (
        TopologyError,
        "stream 'default' is not declared `Stream",
        lambda b: b.set_bolt("s", Sink()).direct_grouping("split"),
    ),
    (
        TopologyError,
        "is declared direct: its readers need a direct_grouping",
        lambda b: b.set_bolt("s", Sink()).shuffle_grouping("split", "told"),
    ),
    (TopologyError, "nothing reads 'rich'", lambda b: b.set_bolt("rich", Rich(), inputs="split")),
    (TopologyError, "bolts form a cycle: a -> b -> a", cycle_of_bolts),
    (TopologyError, "committer bolts form a cycle: a -> b -> a", cycle_of_committers),
    (
        TopologyError,
        "its class: fields= and rows= are for functions",
        lambda b: b.set_bolt("s", Sink(), inputs="lines", fields="a int"),  # type: ignore[call-overload]
    ),
    (
        TopologyError,
        "its class: fields= and rows= are for functions",
        lambda b: b.set_bolt("s", Sink(), inputs="lines", rows="same"),  # type: ignore[call-overload]
    ),
    (TopologyError, r"declare fields=… on set_bolt\('clean'", lambda b: frames_without_fields(b, Sink())),
    (TopologyError, r"declare fields=… on set_bolt\('clean'", lambda b: frames_without_fields(b, Plain())),
    (TopologyError, r"'both' reads bolt 'clean', .* declare fields=…", frame_beside_tuples),
    (TopologyError, "kind='sometimes' is none of transactional", kindless_spout),
    (TopologyError, "'clean' reads stream 'default' of 'rich', which is declared direct", frame_on_a_direct_stream),
    (TypeError, "setting 'a' has a object", lambda b: strange_config(b, Sink())),
    (TypeError, "setting 'a' has a object", lambda b: strange_config(b, Plain())),
    # Committers.
    (TopologyError, "effects='sometimes' is none of transaction, outside", strange_effects),
    (
        TopologyError,
        "takes no all_grouping: .*count it again",
        lambda b: b.set_committer_bolt("c", count()).all_grouping("split"),
    ),
    (
        TopologyError,
        "takes no partial_key_grouping: two tasks",
        lambda b: b.set_committer_bolt("c", count()).partial_key_grouping("split"),
    ),
    (
        TopologyError,
        "takes no custom_grouping: .*may drop a row",
        lambda b: b.set_committer_bolt("c", count()).custom_grouping("split", FirstTask()),
    ),
    (
        TopologyError,
        "takes no direct_grouping",
        lambda b: b.set_committer_bolt("c", count()).direct_grouping("split", "told"),
    ),
    (
        TopologyError,
        "reads 'split' already",
        lambda b: b.set_committer_bolt("c", count(), inputs="split").shuffle_grouping("lines"),
    ),
    (
        TopologyError,
        "'c' names field 'word', but 'split' has line",
        lambda b: b.set_committer_bolt("c", count()).shuffle_grouping("split", stream="errors"),
    ),
    (
        TopologyError,
        "reads tuples with different fields: declare result",
        lambda b: b.set_committer_bolt("c", Plain(), inputs=["split", "lines"]),
    ),
    (TopologyError, "cannot be direct", direct_committer),
    (
        TopologyError,
        (
            "'f' is a function on DataFrames downstream of a committer bolt .c -> f.: tuples of a committer come in "
            "the "
            "commit phase"
        ),
        lambda b: frame_downstream(b, "c"),
    ),
    (TopologyError, "a committer bolt .c -> s -> f.", lambda b: frame_downstream(b, "s")),
    (TopologyError, "bolts and committer bolts form a cycle: s -> c -> s", cycle_through_a_committer),
    (
        TopologyError,
        "'s' reads 'd' with a direct_grouping, and is downstream of a committer bolt: .* use another grouping",
        direct_across_phases,
    ),
    (
        TopologyError,
        "committer bolt 'd' names field 'x', but 'c' has word",
        lambda b: (
            b.set_committer_bolt("c", Words(), inputs="split"),
            b.set_committer_bolt("d", CountCommitter("d", ["x"]), inputs="c"),
        ),
    ),
    (
        TopologyError,
        "no output; a BatchCommitter has one where",
        lambda b: (b.set_committer_bolt("c", count(), inputs="split"), b.set_committer_bolt("d", Plain(), inputs="c")),
    ),
]


@pytest.mark.parametrize(("kind", "complaint", "step"), MISTAKES, ids=[complaint for _, complaint, _ in MISTAKES])
def test_a_mistake_is_a_clear_error(
    kind: type[Exception], complaint: str, step: Callable[[TopologyBuilder], object]
) -> None:
    """PY-02, PY-03: a value error, a type error or a key error, found before Spark starts, and always a TopologyError."""  # noqa: E501
    with pytest.raises(TopologyError, match=complaint) as raised:
        built(step)

    assert isinstance(raised.value, kind)
