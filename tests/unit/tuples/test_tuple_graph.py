"""The graph of tasks: levels, edges that jump levels, ids that do not depend on what is asked for, places of roots."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, run_tuples
from txtopo.errors import BatchDataError
from txtopo.spark.tuples.tuple_graphs import MAIN, Graphs
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.tuple_bolts import BasicBolt
from txtopo.tuples.graph import ACKER, build_graph, root_id, root_place, source_id


class Passing(BasicBolt):
    """Emits what it gets."""

    outputs = ["word string"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup[0]])


def jumping() -> Topology:
    """words -> first -> second -> keep, and words -> keep, words -> aside."""
    builder = TopologyBuilder("jumping")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_spout("more", RowsSpout("word string"))
    builder.set_bolt("first", Passing(), parallelism_hint=2).shuffle_grouping("words").shuffle_grouping("more")
    builder.set_bolt("second", Passing(), parallelism_hint=3).shuffle_grouping("first")
    builder.set_committer_bolt("keep", Keeping(), parallelism_hint=2).shuffle_grouping("second").shuffle_grouping(
        "words"
    )
    builder.set_committer_bolt("aside", Keeping()).shuffle_grouping("words")
    return builder.build()


def test_a_level_is_the_longest_way_from_a_source() -> None:
    """Sources have 0; ackers stand behind all others."""
    graph = build_graph(jumping(), ["keep", "aside"], ackers=2)

    levels = {name: node.level for name, node in graph.nodes.items()}
    assert levels == {"words": 0, "more": 0, "first": 1, "second": 2, "keep": 3, "aside": 1, ACKER: 4}
    assert [node.name for node in graph.at(1)] == ["first", "aside"]
    assert graph.levels == 4


def test_tuples_that_jump_levels_arrive_with_the_others() -> None:
    """A message for a later level is passed on: `keep` gets tuples of level 0 and of level 2."""
    seen = run_tuples(jumping(), {"words": [[("a",), ("b",)], [("c",)]], "more": [[("d",)]]})

    assert sorted(seen.rows("keep")) == [("a",), ("a",), ("b",), ("b",), ("c",), ("c",), ("d",)]
    assert sorted(seen.rows("aside")) == [("a",), ("b",), ("c",)]
    assert seen.edges["words -> keep"] == (3, 3)


def test_task_ids_do_not_depend_on_the_sinks() -> None:
    """Ids are those of the whole topology, so that a bolt sees the same ids whatever runs with it."""
    whole = build_graph(jumping(), ["keep", "aside"], ackers=0)
    part = build_graph(jumping(), ["aside"], ackers=0)

    assert {name: node.tasks for name, node in whole.nodes.items()} == {
        "words": (),
        "more": (),
        "first": (1, 2),
        "second": (3, 4, 5),
        "keep": (6, 7),
        "aside": (8,),
    }
    assert {name: (node.tasks, node.ordinal) for name, node in part.nodes.items()} == {
        name: (whole.nodes[name].tasks, whole.nodes[name].ordinal) for name in ("words", "aside")
    }


def test_only_what_the_sinks_need_is_in_the_graph() -> None:
    """A graph of one committer runs nothing of another's."""
    graph = build_graph(jumping(), ["aside"], ackers=0)

    assert list(graph.nodes) == ["words", "aside"]
    assert [edge.name for edge in graph.edges] == ["words -> aside"]


@pytest.mark.parametrize("part", [0, 1, 16_383])
def test_tasks_are_found_by_their_ids(part: int) -> None:
    """Ids of sources are below 0 and never those of another; 0 is the driver."""
    graph = build_graph(jumping(), ["keep", "aside"], ackers=1)

    for name in ("words", "more"):
        node = graph.nodes[name]
        assert source_id(node, part) < 0
        assert graph.task_of(source_id(node, part)) == (node, part)
    for task, node in graph.owner.items():
        assert graph.task_of(task) == (node, node.tasks.index(task))
    assert 0 not in graph.owner


@pytest.mark.parametrize("number", [0, 1, 2**40 - 1])
@pytest.mark.parametrize("part", [0, 7, 16_383])
def test_a_root_tells_spout_part_and_number(part: int, number: int) -> None:
    """The id of a spout tuple is its place, and fits into 64 bits with a sign."""
    graph = build_graph(jumping(), ["keep"], ackers=0)

    for name in ("words", "more"):
        root = root_id(graph.nodes[name], part, number)
        assert 0 <= root < 2**63
        assert root_place(graph, root) == (name, part, number)


def test_source_tasks_of_an_edge_are_those_of_the_run() -> None:
    """The number of parts differs from batch to batch, that of a bolt's tasks does not."""
    graph = build_graph(jumping(), ["keep"], ackers=0)
    by_name = {edge.name: edge for edge in graph.edges}

    assert list(graph.source_tasks(by_name["first -> second"], {"words": 9, "more": 1})) == [1, 2]
    assert len(graph.source_tasks(by_name["words -> first"], {"words": 9, "more": 1})) == 9


def test_a_part_beyond_the_last_number_is_refused() -> None:
    """Its bits would be those of another spout, and another tuple would be blamed."""
    node = build_graph(jumping(), ["keep"], ackers=0).nodes["words"]

    assert root_place(build_graph(jumping(), ["keep"], ackers=0), root_id(node, 16_383, 5)) == ("words", 16_383, 5)
    with pytest.raises(BatchDataError, match="more than 16384 parts"):
        root_id(node, 16_384, 0)


@pytest.mark.parametrize(("acking", "ackers", "asked"), [("batch", 0, True), ("tuple", 1, True), ("tuple", 0, False)])
def test_a_bolt_before_a_dataframe_bolt_is_asked_what_it_acked_as_any_other(
    acking: Literal["batch", "tuple"], ackers: int, asked: bool
) -> None:
    """The graph that ends in a DataFrame has no ackers of its own: what a RichBolt holds there would be lost without a
    word.
    """
    builder = TopologyBuilder("mixed", acking=acking)
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("first", Passing()).shuffle_grouping("words")
    builder.set_bolt("frame", lambda first: first, inputs="first", fields="word string")
    builder.set_bolt("second", Passing()).shuffle_grouping("frame")
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("second")
    graphs = Graphs(builder.build(), ackers)

    assert {name: graph.wants_acks for name, graph in graphs.by_name.items()} == {"frame": asked, MAIN: asked}
