"""Queries from outside of batches: storm-starter's word count and reach, what they see, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.row_batches import texts
from txtopo import CountCommitter, run
from txtopo.errors import BatchDataError, ConfigurationError, TopologyError
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Topology
from txtopo.trident import (
    Count,
    CountDistinct,
    FilterNull,
    MapGet,
    PersistedState,
    PostgresMapState,
    PythonRows,
    Sum,
    TridentStream,
    TridentTopology,
)

BATCHES = (["the cow jumped over the moon"], ["the man", "four score"], ["the"])


def word_count() -> tuple[TridentTopology, PersistedState]:
    """storm-starter's TridentWordCount."""
    topology = TridentTopology("words")
    words = topology.new_stream("lines", texts(*BATCHES)).flat_map(str.split, "word string")
    counts = words.group_by("word").persistent_aggregate(PostgresMapState("word_counts"), Count(), "n bigint")
    asked = topology.new_query("words", "text string").flat_map(str.split, "word string").group_by("word")
    asked.state_query(counts, MapGet(), "n bigint").filter(FilterNull("n")).aggregate(Sum("n"), "total bigint")
    return topology, counts


def test_a_query_answers_from_what_is_committed_and_names_the_batch() -> None:
    with TopologyHarness(word_count()[0].build(), by_hand=True) as harness:
        assert (harness.query("words", "the man").rows, harness.query("words", "the").txid) == ([{"total": 0}], 0)
        seen = []
        harness.run()
        for txid in (1, 2, 3):
            harness.release_processing(txid)
            before = harness.query("words", "the man unheard")
            harness.release_commit(txid)
            seen.append((before.txid, before.rows, harness.query("words", "the man the").rows))
        assert harness.query("words", "").rows == [{"total": 0}]
        assert harness.query("words", questions=[("the",), ("man",)]).rows == [{"total": 5}]
    # A commit that the test holds has happened.
    assert [answer for _, _, answer in seen] == [[{"total": 4}], [{"total": 7}], [{"total": 9}]]
    assert [txid for txid, _, _ in seen] in ([1, 2, 3], [0, 1, 2])


def reach() -> Topology:
    """storm-starter's TridentReach: a topology of a query alone."""
    topology = TridentTopology("reach")
    tweeters = topology.new_static_state(
        "tweeters",
        PythonRows([("foo.com/1", "sally"), ("foo.com/1", "bob"), ("foo.com/1", "tim"), ("eng.com/2", "adam")]),
        key="url",
        fields="url string, tweeter string",
    )
    followers = topology.new_static_state(
        "followers",
        PythonRows([("sally", "bob"), ("sally", "tim"), ("bob", "tim"), ("bob", "jim"), ("adam", "vivian")]),
        key="tweeter",
        fields="tweeter string, follower string",
    )
    asked = topology.new_query("reach", "url string").join(tweeters, on="url").join(followers, on="tweeter")
    asked.aggregate(CountDistinct("follower"), "reach bigint")
    return topology.build()


def test_reach_needs_no_database_and_is_not_run() -> None:
    topology = reach()
    assert [topology.query("reach", url).rows for url in ("foo.com/1", "eng.com/2", "unknown")] == [
        [{"reach": 3}],
        [{"reach": 1}],
        [{"reach": 0}],
    ]
    assert topology.query("reach", "foo.com/1").txid is None
    with pytest.raises(TopologyError, match=r"has only queries \(reach\): there is nothing to run"):
        run(topology)


def test_rows_of_an_answer_have_an_order_and_types() -> None:
    topology = TridentTopology("rows")
    topology.new_query("split", "text string, n int").flat_map(
        lambda text, n: [(word, n) for word in text.split()], "word string, n int"
    )
    app = topology.build()
    answer = app.query("split", questions=[("b a", 2), ("a", 1), (" ", 7)])
    assert answer.rows == [{"word": "a", "n": 1}, {"word": "a", "n": 2}, {"word": "b", "n": 2}]
    assert topology.build().query("split", "x", None).rows == [{"word": "x", "n": None}]


def test_a_query_asks_two_states_one_after_the_other() -> None:
    topology = TridentTopology("two")
    words = topology.new_stream("lines", texts(*BATCHES)).flat_map(str.split, "word string")
    counts = words.group_by("word").persistent_aggregate(PostgresMapState("word_counts"), Count(), "n bigint")
    ns = counts.new_values().map(lambda word, n: n, "n bigint")
    sizes = ns.group_by("n").persistent_aggregate(PostgresMapState("sizes"), Count(), "times bigint")
    asked = topology.new_query("both", "word string").state_query(counts, MapGet(), "n bigint")
    asked.state_query(sizes, MapGet(), "times bigint", of="n").project("n", "times")
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.query("both", "the").rows == [{"n": 4, "times": 1}]
        assert harness.query("both", "nothing").rows == [{"n": None, "times": None}]
        assert harness.query("both", "man").txid == 3


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda app: app.query("word", "a"), "topology words has no query 'word': did you mean words?"),
        (lambda app: app.query("other"), "topology words has no query 'other'; there is words"),
        (lambda app: app.query("words"), "query words is asked with `text` string, and got 0 values"),
        (lambda app: app.query("words", "a", 1), "query words is asked with `text` string, and got 2 values"),
        (lambda app: app.query("words", 7), "field text: 7 (int) is no string"),
    ],
)
def test_a_wrong_question_is_refused(ask: Callable[[Any], object], words: str) -> None:
    with TopologyHarness(word_count()[0].build()) as harness, pytest.raises(ConfigurationError) as error:
        ask(harness)
    assert words in str(error.value)


def test_a_step_that_fails_is_named() -> None:
    topology = TridentTopology("fails")
    topology.new_query("divide", "n int").map(lambda n: 1 // n, "m int")
    with pytest.raises(BatchDataError, match=r"query divide: step 1 map\(<lambda>\) of stream divide, .*ZeroDivision"):
        topology.build().query("divide", 0)


Wrong = Callable[[TridentTopology, TridentStream, PersistedState], object]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda topology, query, state: query.persist("kept", CountCommitter("kept", ["text"])),
            "a query keeps nothing: it only reads",
        ),
        (
            lambda topology, query, state: query.group_by("text").persistent_aggregate(
                PostgresMapState("kept"), Count(), "n bigint"
            ),
            "a query keeps nothing: it only reads",
        ),
        (
            lambda topology, query, state: topology.merge(query, topology.new_stream("more", texts([]))),
            "query 'asked' is answered outside of batches, and cannot meet a stream of batches",
        ),
        (
            lambda topology, query, state: query.join(state.new_values(), left_on="text", right_on="word"),
            "query 'asked' is answered outside of batches, and cannot meet a stream of batches",
        ),
        (
            lambda topology, query, state: topology.merge(query, topology.new_query("b", "text string")),
            "the other stream belongs to another topology or query",
        ),
        (
            lambda topology, query, state: query.frame(lambda frame: frame, "text string"),
            "a query runs in the caller's process, without Spark",
        ),
        (lambda topology, query, state: topology.new_query("asked", "n int"), "there is a query 'asked' already"),
        (lambda topology, query, state: topology.new_query("As Ked", "n int"), "the name 'As Ked' is not allowed"),
        (lambda topology, query, state: topology.build(), "query 'asked' at test_queries.py:"),
        (
            lambda topology, query, state: (query.map(str.upper), query.map(str.lower), topology.build()),
            "query 'asked' has 2 ends, step 1 map(upper) at test_queries.py:",
        ),
        (
            lambda topology, query, state: query.state_query(word_count()[1], MapGet(), "n bigint"),
            "state 'word_counts' belongs to another topology",
        ),
    ],
)
def test_a_wrong_query_is_refused(wrong: Wrong, words: str) -> None:
    topology, state = word_count()
    query = topology.new_query("asked", "text string")
    with pytest.raises(TopologyError) as error:
        wrong(topology, query, state)
    assert words in str(error.value)
