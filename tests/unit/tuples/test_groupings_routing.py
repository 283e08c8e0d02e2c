"""Storm's groupings over record batches: which tasks get a tuple, in which order, and that a rerun decides the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError
from txtopo.topology.components import Subscription
from txtopo.topology.tuple_bolts import CustomStreamGrouping
from txtopo.tuples.graph import Edge
from txtopo.tuples.groupings import RowFailed, TaskChooser, grouping_of, less_used

FIELDS = parse_fields("word string, n bigint")


def grouping(
    name: str,
    targets: Sequence[int],
    *,
    fields: tuple[str, ...] = (),
    index: int = 0,
    tasks: int = 1,
    number: int = 0,
    custom: CustomStreamGrouping | None = None,
) -> TaskChooser:
    """A grouping of the `index`-th of `tasks` source tasks."""
    subscription = Subscription(source="source", grouping=name, fields=fields, custom=custom)
    edge = Edge(
        number=number,
        source="source",
        stream="default",
        target="target",
        grouping=name,
        subscription=subscription,
        fields=FIELDS,
    )
    chosen = grouping_of(edge, source=100 + index, index=index, tasks=tasks, targets=targets)
    chosen.prepare()
    return chosen


def batch(*words: Any) -> pa.RecordBatch:
    """Tuples (word, place)."""
    return pa.record_batch({"word": pa.array(words, pa.string()), "n": pa.array(range(len(words)), pa.int64())})


def routed(chosen: TaskChooser, *batches: pa.RecordBatch) -> list[tuple[int, str]]:
    """(position, word) of everything, batch after batch."""
    return [
        (position, word)
        for each in batches
        for position, rows in chosen.route(each)
        for word in rows.column("word").to_pylist()
    ]


def counts(chosen: TaskChooser, *batches: pa.RecordBatch) -> Counter[int]:
    """How many each position got."""
    return Counter(position for position, _ in routed(chosen, *batches))


@pytest.mark.parametrize("name", ["shuffle", "none", "load_aware", "local_or_shuffle"])
def test_shuffle_is_exactly_even(name: str) -> None:
    """GR-01: 6 targets, 30000 picks: exactly 5000 each; of 10 sources exactly 50000 each."""
    big = batch(*["x"] * 3000)

    one = counts(grouping(name, range(6), tasks=10), *[big] * 10)
    ten = sum((counts(grouping(name, range(6), index=at, tasks=10), *[big] * 10) for at in range(10)), Counter())

    assert one == dict.fromkeys(range(6), 5000)
    assert ten == dict.fromkeys(range(6), 50_000)


def test_shuffle_stays_even_however_tuples_are_cut_into_batches() -> None:
    """GR-01: exactly even from each source task, also when tuples come one by one or in odd pieces."""
    chosen = grouping("shuffle", range(4))

    got = counts(chosen, *[batch(*["x"] * size) for size in (1, 1, 1, 1, 5, 3, 7, 1, 0, 4)])

    assert got == dict.fromkeys(range(4), 6)


def test_shuffle_of_two_targets_is_even() -> None:
    """GR-01: 2 targets, 100000 picks, each within 49-51 %: here exactly half."""
    assert counts(grouping("shuffle", range(2)), batch(*["x"] * 100_000)) == {0: 50_000, 1: 50_000}


def test_sources_do_not_all_start_with_the_same_task() -> None:
    """Ten parts of one tuple each are spread, not heaped on the first task."""
    got: Counter[int] = sum(
        (counts(grouping("shuffle", range(5), index=at), batch("x")) for at in range(10)), Counter()
    )

    assert got == dict.fromkeys(range(5), 2)


def test_fields_grouping_brings_equal_values_together_in_their_order() -> None:
    """GR-02, GR-07: tuples with equal values meet in one task, from every source, and keep their order."""
    words = ["nathan", "bob", None, "joey", "nathan", "", "bob", None]
    chosen = grouping("fields", range(4), fields=("word",))
    other = grouping("fields", range(4), fields=("word",), index=1)

    parts = chosen.route(batch(*words))

    where = {word: position for position, rows in parts for word in rows.column("word").to_pylist()}
    assert {word: position for position, word in routed(other, batch(*reversed(words)))} == where
    assert all(rows.column("n").to_pylist() == sorted(rows.column("n").to_pylist()) for _, rows in parts)
    assert sum(rows.num_rows for _, rows in parts) == len(words)
    assert len(set(where.values())) > 1


def test_fields_grouping_looks_at_its_fields_alone() -> None:
    """Another field does not matter; several fields do together."""
    same = routed(grouping("fields", range(8), fields=("word",)), batch(*["a"] * 100))
    spread = routed(grouping("fields", range(8), fields=("word", "n")), batch(*["a"] * 100))

    assert len({position for position, _ in same}) == 1
    assert len({position for position, _ in spread}) == 8


def test_global_grouping_uses_the_lowest_task() -> None:
    """GR-02: a global counter sees every tuple."""
    assert counts(grouping("global", [5, 6, 7]), batch("a", "b")) == {0: 2}


def test_all_grouping_gives_every_task_every_tuple() -> None:
    """GR-02: task indices {0..5} each once."""
    assert sorted(routed(grouping("all", range(6)), batch("a"))) == [(at, "a") for at in range(6)]


@pytest.mark.parametrize("name", ["local_or_shuffle", "local_first"])
def test_local_groupings_stay_with_the_same_index_where_counts_agree(name: str) -> None:
    """A narrow dependency stands for "local": the i-th task gives to the i-th; else they shuffle."""
    assert counts(grouping(name, range(4), index=2, tasks=4), batch(*"abcd")) == {2: 4}
    assert counts(grouping(name, range(4), index=2, tasks=3), batch(*"abcd")) == dict.fromkeys(range(4), 1)


def test_load_aware_grouping_is_even_also_where_counts_agree() -> None:
    """The load that it looks at is what it sent itself."""
    assert counts(grouping("load_aware", range(4), index=2, tasks=4), batch(*"abcd")) == dict.fromkeys(range(4), 1)


class FirstTargets(CustomStreamGrouping):
    """Storm's test grouping: the first `n` targets get everything."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.seen: list[Any] = []

    def __deepcopy__(self, memo: Any) -> FirstTargets:
        """Stays what it is, so that a test sees what a task's copy was told."""
        return self

    def prepare(self, source: str, stream: str, fields: Any, targets: Sequence[int]) -> None:
        self.seen.append((source, stream, fields.names, list(targets)))
        self.targets = targets[: self.n]

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        self.seen.append((task, tuple(values)))
        return self.targets


def test_custom_grouping_chooses_the_tasks() -> None:
    """GR-04: "first n targets", n=2 on p4 and n=3 on p6: {a,a,b,b} and {a x3, b x3}."""
    four, six = FirstTargets(2), FirstTargets(3)

    first = routed(grouping("custom", [11, 12, 13, 14], custom=four), batch("a", "b"))
    second = routed(grouping("custom", range(6), custom=six), batch("a", "b"))

    assert sorted(first) == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert Counter(word for _, word in second) == {"a": 3, "b": 3}
    assert four.seen == [("source", "default", ("word", "n"), [11, 12, 13, 14]), (100, ("a", 0)), (100, ("b", 1))]


def test_a_custom_grouping_may_drop_and_double_but_not_invent_tasks() -> None:
    """An id twice delivers it twice; none drops it on purpose; one that is no target is an error that names it."""

    class Odd(FirstTargets):
        def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
            return {"drop": [], "double": [11, 11]}.get(values[0], [99])

    assert routed(grouping("custom", [11, 12], custom=Odd(1)), batch("drop", "double")) == [
        (0, "double"),
        (0, "double"),
    ]
    with pytest.raises(RowFailed, match="source -> target: Odd chose task 99; target has the tasks 11, 12") as raised:
        grouping("custom", [11, 12], custom=Odd(1)).route(batch("drop", "else"))
    assert isinstance(raised.value.error, BatchDataError)
    assert (raised.value.row, raised.value.shown) == (1, "word='else', n=1")


@pytest.mark.parametrize("targets", [[0, 1, 2, 3, 4, 5], [9, 8, 7, 1, 2, 3]])
def test_partial_key_takes_turns_between_two_candidates(targets: list[int]) -> None:
    """GR-05: key "key1" as first value, no field list, three times: the second differs from the first, the third is the
    first.
    """
    chosen = grouping("partial_key", targets)

    first, second, third = (routed(chosen, batch("key1"))[0][0] for _ in range(3))

    assert second != first
    assert third == first


def test_partial_key_gives_each_key_two_tasks_at_most_and_balances_them() -> None:
    """GR-05: same key, same pair of tasks from every source; no other task ever gets it."""
    pairs = [
        {
            position
            for position, _ in routed(
                grouping("partial_key", range(6), fields=("word",), index=at), batch(*["k"] * 100)
            )
        }
        for at in range(3)
    ]
    skewed = counts(grouping("partial_key", range(6), fields=("word",)), batch(*["k"] * 100))

    assert len(pairs[0]) == 2
    assert pairs[0] == pairs[1] == pairs[2]
    assert set(skewed.values()) == {50}


def test_the_less_used_of_several_targets_is_chosen() -> None:
    """GR-06: tasks 9, 8, 7, 6; 9, 8, 7 used once; of all four it chooses 6; ties go to the first."""
    sent = [1, 1, 1, 0]

    assert less_used((0, 1, 2, 3), sent) == 3
    assert less_used((2, 1), [1, 1, 1]) == 2
    assert sent == [1, 1, 1, 1]


@pytest.mark.parametrize("name", ["shuffle", "fields", "partial_key", "none"])
def test_a_rerun_decides_the_same(name: str) -> None:
    """No chance, no clock: the same source task sends the same tuples to the same tasks again."""
    words = [str(at % 37) for at in range(500)]
    fields = ("word",) if name in ("fields", "partial_key") else ()

    first, again = (routed(grouping(name, range(5), fields=fields), batch(*words), batch("a", "b")) for _ in range(2))

    assert first == again


@pytest.mark.parametrize("name", ["shuffle", "fields", "partial_key"])
def test_one_task_gets_everything_as_it_came(name: str) -> None:
    """Nothing is hashed or moved where there is no choice."""
    whole = batch("b", "a")

    choice = grouping(name, [4], fields=("word",)).choose(whole)

    assert choice.order is None
    assert list(choice.shares) == [(0, 0, 2)]
