"""New values of states, and queries of states inside a stream: what they see, in every order of components."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from tests.kit.row_batches import RowBatches, texts
from txtopo import CountCommitter, TopologyBuilder
from txtopo.errors import Halted, TopologyError, TopologyTypeError
from txtopo.testing import TopologyHarness
from txtopo.trident import (
    Count,
    CountDistinct,
    FilterNull,
    MapGet,
    Max,
    PersistedState,
    PostgresMapState,
    QueryFunction,
    ReadOnlyMapState,
    Sum,
    TridentStream,
    TridentTopology,
)

BATCHES = (["a b a", "c"], ["b a", ""], ["d", "a"])


def counted(
    topology: TridentTopology, table: str = "words", name: str = "lines"
) -> tuple[TridentStream, PersistedState]:
    """Words, and a state with their counts."""
    words = topology.new_stream(name, texts(*BATCHES)).flat_map(str.split, "word string")
    return words, words.group_by("word").persistent_aggregate(PostgresMapState(table), Count(), "n bigint")


def totals() -> list[Counter[str]]:
    """The counts after each batch."""
    found, seen = [Counter[str]()], Counter[str]()
    for lines in BATCHES:
        seen.update(" ".join(lines).split())
        found.append(Counter(seen))
    return found


def kept(stream: TridentStream, name: str = "kept") -> None:
    """Ends a stream."""
    stream.persist(name, CountCommitter(name, stream.fields.names))


def test_new_values_are_the_groups_of_the_batch_as_they_are_after_it() -> None:
    topology = TridentTopology("news")
    _, state = counted(topology)
    news = state.new_values()
    assert news.fields.names == ("word", "n")
    kept(
        news.filter(lambda word, n: n > 1).map(lambda word, n: (word, n * 10), "word string, tens bigint").name("tens")
    )
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert [sorted(harness.values("words", txid=txid)) for txid in (1, 2, 3)] == [
            [("a", 2), ("b", 1), ("c", 1)],
            [("a", 3), ("b", 2)],
            [("a", 4), ("d", 1)],
        ]
        assert harness.table("kept") == {("a", 20): (1,), ("a", 30): (1,), ("b", 20): (1,), ("a", 40): (1,)}


@pytest.mark.parametrize(
    ("aggregator", "field", "expected"),
    [
        (Sum("n"), "x decimal(38,2)", [("a", Decimal("2.50")), (None, Decimal("0.25")), ("a", Decimal("1.50"))]),
        (Max("n"), "x decimal(10,2)", [("a", Decimal("2.50")), (None, Decimal("0.25")), ("a", Decimal("2.50"))]),
    ],
)
def test_new_values_of_other_aggregates_and_of_null(aggregator: Any, field: str, expected: list[Any]) -> None:
    batches = [[("a", Decimal("2.50")), (None, Decimal("0.25"))]], [[("a", Decimal("-1.00"))]]
    topology = TridentTopology("others")
    rows = topology.new_stream("rows", RowBatches("word string, n decimal(10,2)", *batches))
    state = rows.group_by("word").persistent_aggregate(PostgresMapState("others"), aggregator, field)
    kept(state.new_values())
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.values("others") == expected


def test_a_state_whose_values_nobody_reads_passes_nothing_on() -> None:
    topology = TridentTopology("quiet")
    counted(topology)
    app = topology.build()
    assert [dict(item.outputs) for item in app.committers] == [{}]
    assert app.single_commits is None
    loud = TridentTopology("loud")
    kept(counted(loud)[1].new_values())
    assert loud.build().single_commits == (
        "committer kept is downstream of a committer, so it runs in the commit of each batch"
    )
    alone = TopologyBuilder("alone")
    alone.set_spout("lines", texts(*BATCHES))
    alone.set_committer_bolt("lines_seen", CountCommitter("t", ["line"], values="line string")).shuffle_grouping(
        "lines"
    )
    why = "committer lines_seen passes on its values, in the commit of each batch"
    assert alone.build().single_commits == why


@pytest.mark.parametrize("order", ["query first", "state first"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_query_sees_the_state_as_the_batch_before_has_left_it(order: str, tasks: int) -> None:
    topology = TridentTopology("asked")
    words, state = counted(topology)
    asked = words.map(str.lower, "word string").parallelism_hint(tasks).state_query(state, MapGet(), "seen bigint")
    kept(asked.name("asked").map(lambda word, seen: (word, seen), "word string, seen bigint"))
    app = topology.build()
    if order == "state first":
        # However they are listed, the query is applied first.
        assert [item.name for item in app.committers] == ["asked", "words", "kept"]
    with TopologyHarness(app) as harness:
        harness.run()
        for txid, lines in enumerate(BATCHES, 1):
            before = totals()[txid - 1]
            words_of_batch = " ".join(lines).split()
            expected = sorted((word, before[word] or None) for word in words_of_batch)
            assert sorted(harness.values("asked", txid=txid), key=repr) == sorted(expected, key=repr)


def test_every_attempt_sees_the_same() -> None:
    topology = TridentTopology("again")
    words, state = counted(topology)
    kept(words.state_query(state, MapGet(), "seen bigint").name("asked"))
    with TopologyHarness(topology.build(), by_hand=True, spout_pending_max=3, attempts_max=9) as harness:
        harness.run()
        harness.fail_processing(2)
        harness.fail_commit(1)
        harness.fail_commit()
        for _ in range(20):
            for txid in list(harness.held_processing):
                harness.release_processing(txid)
            for txid in list(harness.held_commits):
                harness.release_commit(txid)
        assert [batch.state for batch in harness.batches] == ["applied"] * 3
        rows = Counter(row for row in harness.values("asked"))
        expected = Counter(
            (word, totals()[at][word] or None) for at, lines in enumerate(BATCHES) for word in " ".join(lines).split()
        )
        assert harness.table("kept") == {key: (n,) for key, n in expected.items()}
        assert set(rows) == set(expected)


def test_a_query_downstream_of_another_state_is_before_the_change_all_the_same() -> None:
    """The counted state is applied in a later phase then; its tasks group their tuples as before."""
    topology = TridentTopology("late")
    words, state = counted(topology)
    other = words.group_by("word").persistent_aggregate(PostgresMapState("others"), Count(), "m bigint")
    late = other.new_values().state_query(state, MapGet(), "n bigint", of="word").name("late")
    kept(late)
    app = topology.build()
    assert app.phases["words"] == 0
    assert app.applied_in == {"others": 0, "late": 1, "words": 1, "kept": 2}
    with TopologyHarness(app) as harness:
        harness.run()
        for txid in (1, 2, 3):
            after, before = totals()[txid], totals()[txid - 1]
            changed = set(" ".join(BATCHES[txid - 1]).split())
            expected = sorted([(word, after[word], before[word] or None) for word in changed], key=repr)
            assert sorted(harness.values("late", txid=txid), key=repr) == expected
        assert harness.table("words") == {(word,): (n,) for word, n in totals()[3].items()}


def test_a_grouped_stream_asks_with_its_group() -> None:
    topology = TridentTopology("grouped")
    words, state = counted(topology)
    asked = words.each("word", len, "size int").group_by("word").state_query(state, MapGet(), "seen bigint")
    asked = asked.filter(FilterNull("seen")).aggregate(Sum("seen"), "total bigint").name("total")
    kept(asked)
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        # Exactly one row a batch, also where nothing was found.
        assert harness.values("total") == [(0,), (3,), (3,)]


class Known(QueryFunction):
    """Two rows for a word that is known, none for another."""

    def batch_retrieve(self, state: ReadOnlyMapState, arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        return [value is not None for value in state.multi_get(arguments)]

    def execute(self, arguments: tuple[Any, ...], result: Any) -> Iterable[Any]:
        return [(arguments[0], 1), (arguments[0], 2)] if result else ()


def test_a_function_of_the_user_returns_rows() -> None:
    topology = TridentTopology("own")
    words, state = counted(topology)
    kept(words.state_query(state, Known(), "known string, n int").name("known"))
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert sorted(harness.values("known", txid=2)) == sorted((w, w, n) for w in "ba" for n in (1, 2))


def test_a_state_of_several_numbers_answers_with_all() -> None:
    topology = TridentTopology("several")
    rows = topology.new_stream("rows", RowBatches("k string, n int", [[("a", 1), (None, 4)]], [[("a", 2), ("b", 1)]]))
    state = rows.persist("sums", CountCommitter("sums", ["k"], sums={"n": "total"}))
    asked = rows.state_query(state, MapGet(), "rows bigint, total decimal(38,0)", of="k").name("asked")
    kept(asked)
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.values("asked", txid=2) == [("a", 2, 1, Decimal(1)), ("b", 1, None, None)]


class Failing(Known):
    def execute(self, arguments: tuple[Any, ...], result: Any) -> Iterable[Any]:
        raise ValueError("no answer")


class Short(Known):
    def batch_retrieve(self, state: ReadOnlyMapState, arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        return [1]


class Lone(Known):
    def execute(self, arguments: tuple[Any, ...], result: Any) -> Iterable[Any]:
        return "text"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Failing(), "ValueError: no answer; on word='a'"),
        (Short(), "batch_retrieve returned [1], and a list with one result for each of 4 tuples is wanted"),
        (Lone(), "execute returned 'text' (str) instead of rows; return () for none; on word='a'"),
    ],
)
def test_a_query_that_fails_names_its_step(function: QueryFunction, words: str) -> None:
    topology = TridentTopology("fails")
    stream, state = counted(topology)
    kept(stream.state_query(state, function, "known string, n int"))
    with TopologyHarness(topology.build(), attempts_max=1) as harness:
        with pytest.raises(Halted) as halted:
            harness.run()
        assert "step 2 state_query(words, " in str(halted.value)
        assert words in str(halted.value)


Wrong = Callable[[TridentTopology, TridentStream, PersistedState], object]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda topology, words, state: state.new_values().state_query(state, MapGet(), "m bigint", of="word"),
            "it is downstream of new values of words, and a query reads the state as the batch before has left it: use",
        ),
        (
            lambda topology, words, state: words.state_query(state, MapGet(), "n int"),
            "public.words keeps `n` bigint: declare these types, not `n` int",
        ),
        (
            lambda topology, words, state: words.map(len, "size int").state_query(state, MapGet(), "n bigint"),
            "the key of public.words is `word` string, and it is asked with `size` int",
        ),
        (
            lambda topology, words, state: words.state_query(state, MapGet(), "n bigint not null"),
            "a key that is not there gives NULL",
        ),
        (
            lambda topology, words, state: words.state_query(state, MapGet(), "word bigint"),
            "state_query appends 'word', which the stream has",
        ),
        (
            lambda topology, words, state: words.state_query(counted(TridentTopology("x"))[1], MapGet(), "n bigint"),
            "state 'words' belongs to another topology",
        ),
        (
            lambda topology, words, state: words.state_query(
                words.each("word", len, "k int")
                .group_by("word")
                .persistent_aggregate(PostgresMapState("distinct_k"), CountDistinct("k"), "k bigint"),
                MapGet(),
                "n bigint",
            ),
            "'distinct_k' cannot be asked",
        ),
        (
            lambda topology, words, state: words.state_query(state, MapGet(), "n bigint").frame(
                lambda f: f, "n bigint"
            ),
            "it is downstream of a query of words: what follows a state runs in the commit",
        ),
    ],
)
def test_a_wrong_query_is_refused_by_the_call(wrong: Wrong, words: str) -> None:
    topology = TridentTopology("wrong")
    with pytest.raises(TopologyError) as error:
        wrong(topology, *counted(topology))
    assert words in str(error.value)
    assert "test_state_queries.py:" in str(error.value)


@pytest.mark.parametrize("function", [MapGet, 7])
def test_what_is_no_query_function_is_refused(function: Any) -> None:
    topology = TridentTopology("wrong")
    words, state = counted(topology)
    with pytest.raises(TopologyTypeError, match="is not a query function such as MapGet"):
        words.state_query(state, function, "n bigint")
    with pytest.raises(TopologyTypeError, match="is not a state such as persistent_aggregate keeps"):
        words.state_query(words, MapGet(), "n bigint")  # type: ignore[arg-type]


def test_states_that_are_asked_for_each_other_are_refused() -> None:
    topology = TridentTopology("circle")
    words, first = counted(topology)
    second = words.group_by("word").persistent_aggregate(PostgresMapState("others"), Count(), "m bigint")
    kept(first.new_values().state_query(second, MapGet(), "seen bigint", of="word"))
    with pytest.raises(TopologyError, match="asked for each other in a circle: "):
        second.new_values().state_query(first, MapGet(), "seen bigint", of="word")
