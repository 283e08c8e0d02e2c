"""Joins of two streams of one batch: every kind, NULL keys, equal keys many times, what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.kit.row_batches import RowBatches
from txtopo import CountCommitter
from txtopo.errors import TopologyError
from txtopo.testing import TopologyHarness
from txtopo.trident import Count, PostgresMapState, TridentStream, TridentTopology

SHOWS = [(1, "a"), (2, "b"), (2, "c"), (None, "d"), (4, "e")]
CLICKS = [(2, "x"), (2, "y"), (1, "z"), (None, "n"), (9, "w")]


def run(
    join: Callable[[TridentStream, TridentStream], TridentStream], left: Sequence[Any], right: Sequence[Any]
) -> list[tuple[Any, ...]]:
    topology = TridentTopology("joins")
    shows = topology.new_stream("shows", RowBatches("ad bigint, shown string", [left[::2], left[1::2]]))
    clicks = topology.new_stream(
        "clicks", RowBatches("ad bigint, clicked string", [right[::3], right[1::3], right[2::3]])
    )
    made = join(shows, clicks).name("joined")
    made.shuffle().map(lambda *row: repr(row), "text string").persist("kept", CountCommitter("kept", ["text"]))
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        return sorted(harness.values("joined"), key=repr)


def expected(left: Sequence[Any], right: Sequence[Any], how: str) -> list[tuple[Any, ...]]:
    """The join by nested loops."""
    rows = [(key, a, b) for key, a in left for other, b in right if key is not None and key == other]
    if how in ("left", "full"):
        rows += [(key, a, None) for key, a in left if key is None or key not in {other for other, _ in right}]
    if how in ("right", "full"):
        rows += [(key, None, b) for key, b in right if key is None or key not in {other for other, _ in left}]
    return sorted(rows, key=repr)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_every_kind_of_join(how: Any) -> None:
    found = run(lambda s, c: s.join(c, on="ad", how=how), SHOWS, CLICKS)
    assert found == expected(SHOWS, CLICKS, how)
    assert run(lambda s, c: s.join(c, on="ad", how=how).parallelism_hint(1), SHOWS, CLICKS) == found
    assert run(lambda s, c: s.join(c, on="ad", how=how), SHOWS, [(5, "q")]) == expected(SHOWS, [(5, "q")], how)


@pytest.mark.parametrize("seed", range(5))
def test_random_joins(seed: int) -> None:
    chance = random.Random(seed)
    left, right = ([(chance.choice([None, 1, 2, 3]), chance.choice("pq")) for _ in range(8)] for _ in range(2))
    how: Any = chance.choice(["inner", "left", "right", "full"])
    assert run(lambda s, c: s.join(c, on="ad", how=how), left, right) == expected(left, right, how)


def test_tuples_of_different_batches_do_not_meet_and_a_stream_may_join_itself() -> None:
    topology = TridentTopology("joins")
    rows = topology.new_stream("rows", RowBatches("k int, v string", [[(1, "a")]], [[(1, "b")]]))
    other = rows.map(lambda k, v: (k, v.upper()), "key int, upper string")
    joined = rows.join(other, left_on="k", right_on="key")
    assert joined.fields.names == ("k", "v", "upper")
    joined.group_by("upper").persistent_aggregate(PostgresMapState("met"), Count(), "n bigint")
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.table("met") == {("A",): (1,), ("B",): (1,)}


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (lambda a, b: a.join(b, on="ad"), "both sides have name"),
        (lambda a, b: a.join(b, left_on="ad", right_on="text"), "ad is a bigint, and text a string"),
        (lambda a, b: a.join(b, on="at"), "there is no field 'at'"),
        (lambda a, b: a.join(b), "a join needs on=, or left_on= and right_on="),
        (lambda a, b: a.join(b, on="ad", left_on="ad"), "a join needs on="),
        (lambda a, b: a.join(b, on="ad", how="outer"), "how='outer' is none of inner, left, right, full"),
        (lambda a, b: a.join("b", on="ad"), "'b' is not a stream"),
        (lambda a, b: a.join(b, on="ratio"), "equal-looking floats differ"),
    ],
)
def test_joins_that_are_refused(join: Callable[[Any, Any], Any], words: str) -> None:
    topology = TridentTopology("joins")
    one = topology.new_stream("one", RowBatches("ad bigint, name string, ratio double", [[]]))
    two = topology.new_stream("two", RowBatches("ad bigint, name string, text string, ratio double", [[]]))
    with pytest.raises(TopologyError) as told:
        join(one, two)
    assert words in str(told.value)
    assert "stream 'one', step 1 join" in str(told.value)
