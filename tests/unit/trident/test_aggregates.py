"""Aggregates of streams: life cycle of each kind, zero rows, exactness, one result for every number of tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from tests.kit.row_batches import RowBatches, texts
from txtopo import CountCommitter
from txtopo.core.values import TransactionAttempt
from txtopo.errors import TopologyError
from txtopo.testing import TopologyHarness
from txtopo.trident import (
    Aggregator,
    CombinerAggregator,
    Count,
    CountDistinct,
    Max,
    Mean,
    Min,
    PostgresMapState,
    ReducerAggregator,
    Sum,
    TridentStream,
    TridentTopology,
)

SALES = "shop string, amount int, price decimal(10,2)"
ROWS = [
    ("a", 1, Decimal("1.50")),
    ("b", None, Decimal("2.00")),
    ("a", 3, None),
    (None, 5, Decimal("0.01")),
    ("b", 4, Decimal("-1.25")),
    ("a", 1, Decimal("2.25")),
]


def rows(
    build: Callable[[TridentStream], TridentStream], *batches: Sequence[Any], fields: str = SALES
) -> list[list[Any]]:
    """What a stream gives for each batch; a batch is divided into three parts."""
    topology = TridentTopology("aggregates")
    spout = RowBatches(fields, *[[list(batch[at::3]) for at in range(3)] for batch in batches])
    stream = build(topology.new_stream("sales", spout)).name("last")
    stream.shuffle().map(lambda *row: repr(row), "text string").persist("kept", CountCommitter("kept", ["text"]))
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        return [sorted(harness.values("last", txid=txid), key=repr) for txid in range(1, len(batches) + 1)]


class Longest(ReducerAggregator[int]):
    def init(self) -> int:
        return 0

    def reduce(self, current: int, *values: Any) -> int:
        return max(current, len(values[0] or ""))


class Product(CombinerAggregator[int]):
    def init(self, *values: Any) -> int:
        return int(values[0] or 1)

    def combine(self, one: int, other: int) -> int:
        return one * other

    def zero(self) -> int:
        return 1


class Seen(Aggregator[list[Any]]):
    """Emits each value and its number; with the attempt's txid."""

    def init(self, batch: TransactionAttempt) -> list[Any]:
        return [batch.txid]

    def aggregate(self, state: list[Any], *values: Any) -> None:
        state.append(values[0])

    def complete(self, state: list[Any]) -> Iterable[Any]:
        yield from ((state[0], len(state) - 1),)


@pytest.mark.parametrize("tasks", [1, 3, 4])
def test_a_group_has_one_row_whatever_the_number_of_tasks(tasks: int) -> None:
    def build(stream: TridentStream) -> TridentStream:
        spread = stream.shuffle().filter(lambda shop, amount, price: True).parallelism_hint(tasks)
        chained = spread.group_by("shop").chained_agg()
        chained = chained.aggregate(Count(), "n bigint").aggregate(Count("amount"), "amounts bigint")
        chained = chained.aggregate(Sum("amount"), "total bigint").aggregate(Sum("price"), "prices decimal(38,2)")
        chained = chained.aggregate(Min("price"), "least decimal(10,2)").aggregate(Max("amount"), "most int")
        return chained.chain_end().parallelism_hint(tasks)

    assert rows(build, ROWS) == [
        [
            ("a", 3, 3, 5, Decimal("3.75"), Decimal("1.50"), 3),
            ("b", 2, 1, 4, Decimal("0.75"), Decimal("-1.25"), 4),
            (None, 1, 1, 5, Decimal("0.01"), Decimal("0.01"), 5),
        ]
    ]


@pytest.mark.parametrize("tasks", [1, 3])
def test_means_distinct_counts_and_code_of_the_user(tasks: int) -> None:
    def build(stream: TridentStream) -> TridentStream:
        chained = stream.map(lambda *row: row).parallelism_hint(tasks).group_by("shop").chained_agg()
        chained = chained.aggregate(Mean("amount"), "mean decimal(20,2)").aggregate(CountDistinct("amount"), "d bigint")
        chained = chained.aggregate(Longest("shop"), "longest int").aggregate(Product("amount"), "product bigint")
        return chained.aggregate(Seen("price"), "txid bigint, seen int").chain_end()

    assert rows(build, ROWS) == [
        [
            ("a", Decimal("1.67"), 2, 1, 3, 1, 3),
            ("b", Decimal("4.00"), 1, 1, 4, 1, 2),
            (None, Decimal("5.00"), 1, 0, 5, 1, 1),
        ]
    ]


def test_a_count_over_the_batch_has_exactly_one_row_also_for_an_empty_batch() -> None:
    # TI-03.
    topology = TridentTopology("counts")
    lines = topology.new_stream("lines", texts(["the " * 100], [""], ["1 2 3 4 5 6 7 8"]))
    words = lines.flat_map(str.split, "word string").parallelism_hint(2)
    words.aggregate(Count(), "n bigint").name("total").persist("c", CountCommitter("c", ["n"]))
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert [harness.values("total", txid=txid) for txid in (1, 2, 3)] == [[(100,)], [(0,)], [(8,)]]


@pytest.mark.parametrize(
    ("aggregator", "fields", "zero"),
    [
        (Count(), "n bigint", (0,)),
        (Sum("amount"), "n bigint", (0,)),
        (Max("amount"), "n int", (None,)),
        (Mean("amount"), "n decimal(10,2)", (None,)),
        (CountDistinct("shop"), "n bigint", (0,)),
        (Longest("shop"), "n int", (0,)),
        (Seen("shop"), "txid bigint, n int", (1, 0)),
    ],
)
def test_zero_of_each_kind_when_everything_is_filtered(aggregator: Any, fields: str, zero: tuple[Any, ...]) -> None:
    def build(stream: TridentStream) -> TridentStream:
        return stream.filter(lambda shop, amount, price: False).aggregate(aggregator, fields)

    assert rows(build, ROWS) == [[zero]]
    assert rows(lambda s: s.filter(lambda *row: False).group_by("shop").aggregate(aggregator, fields), ROWS) == [[]]


def test_partitions_are_aggregated_without_an_exchange() -> None:
    def build(stream: TridentStream) -> TridentStream:
        kept = stream.shuffle().filter(lambda shop, amount, price: shop == "a")
        return kept.partition_aggregate(Count(), "n bigint").parallelism_hint(3)

    (found,) = rows(build, ROWS)
    assert len(found) == 3
    assert sum(n for (n,) in found) == 3


def test_the_first_tuples_of_a_whole_batch() -> None:
    numbers = [(n * 7 % 20, f"w{n % 3}") for n in range(20)] + [(None, "null"), (19, "w9")]
    fields = "n int, word string"
    by_n = lambda s: s.first_n(3, by="n", descending=True)  # noqa: E731
    assert rows(by_n, numbers, fields=fields) == [[(18, "w2"), (19, "w2"), (19, "w9")]]
    assert rows(lambda s: s.first_n(2), numbers, fields=fields) == [[(0, "w0"), (1, "w0")]]
    assert rows(lambda s: s.max_by("n"), numbers, fields=fields) == [[(19, "w2")]]
    assert rows(lambda s: s.min_by("word"), numbers, [], fields=fields)[0] == [(None, "null")]


@pytest.mark.parametrize("seed", range(5))
def test_random_batches_against_an_independent_count(seed: int) -> None:
    chance = random.Random(seed)
    batches = [[(chance.choice("abcx"), chance.choice([None, -3, 4])) for _ in range(40)] for _ in range(3)]
    found = rows(lambda s: s.group_by("k").aggregate(Sum("v"), "total bigint"), *batches, fields="k string, v int")
    for batch, made in zip(batches, found, strict=True):
        totals: Counter[str] = Counter()
        for key, value in batch:
            totals[key] += value or 0
        assert dict(made) == {key: totals[key] for key, _ in batch}


def test_steps_after_an_aggregate_share_its_task() -> None:
    def build(stream: TridentStream) -> TridentStream:
        counted = stream.group_by("shop").aggregate(Count(), "n bigint")
        return counted.filter(lambda shop, n: n > 1).each("n", lambda n: -n, "minus bigint").project("minus", "shop")

    assert rows(build, ROWS) == [[(-2, "b"), (-3, "a")]]


def test_one_aggregator_may_be_given_to_several_steps() -> None:
    mean = Mean("amount")

    def build(stream: TridentStream) -> TridentStream:
        chained = stream.chained_agg().aggregate(mean, "fine decimal(20,3)")
        return chained.aggregate(mean, "coarse decimal(20,0)").chain_end()

    assert rows(build, ROWS) == [[(Decimal("2.800"), Decimal("3"))]]


def test_what_a_task_cannot_hold_is_sent_early_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txtopo.trident.aggregate_links.HELD_GROUPS_MAX", 2)
    batch = [(f"w{n % 7}", n) for n in range(30)]

    def build(stream: TridentStream) -> TridentStream:
        spread = stream.shuffle().filter(lambda word, n: True).parallelism_hint(3).shuffle()
        return spread.group_by("word").aggregate(Count(), "times bigint")

    expected = Counter(word for word, _ in batch)
    assert rows(build, batch, fields="word string, n int") == [sorted(expected.items(), key=repr)]
    best = [(word, n) for word, n in batch if n > 26]
    first = rows(lambda s: s.shuffle().first_n(3, by="n", descending=True), batch, fields="word string, n int")
    assert first == [sorted(best, key=repr)]


def test_word_count_in_a_state() -> None:
    # TI-01 without its query.
    topology = TridentTopology("words")
    lines = topology.new_stream("lines", texts(["hello the man said"], ["the"], ["the man on the moon"]))
    grouped = lines.flat_map(str.split, "word string").group_by("word")
    grouped.persistent_aggregate(PostgresMapState("word_counts"), Count(), "n bigint")
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert harness.table("word_counts")[("the",)] == (4,)
        assert harness.table("word_counts")[("man",)] == (2,)


def test_each_aggregate_that_a_table_keeps() -> None:
    topology = TridentTopology("sales")
    shops = topology.new_stream("sales", RowBatches(SALES, [ROWS[:3], ROWS[3:]])).group_by("shop")
    shops.persistent_aggregate(PostgresMapState("prices", count="n"), Sum("price"), "total decimal(38,2)")
    shops.persistent_aggregate(PostgresMapState("least"), Min("amount"), "least int")
    shops.persistent_aggregate(PostgresMapState("most"), Max("price"), "most decimal(10,2)")
    shops.persistent_aggregate(PostgresMapState("different"), CountDistinct("amount"), "amounts bigint")
    with TopologyHarness(topology.build()) as harness:
        harness.run()
        assert {row["shop"]: row["total"] for row in harness.rows("prices")}["b"] == Decimal("0.75")
        assert {row["shop"]: row["least"] for row in harness.rows("least")}["a"] == 1
        assert {row["shop"]: row["most"] for row in harness.rows("most")}["a"] == Decimal("2.25")
        assert {row["shop"]: row["amounts"] for row in harness.rows("different_distinct")}["a"] == 2


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda s: s.group_by("shop").aggregate(Sum("ratio"), "x double"), "Sum('ratio') adds a double"),
        (lambda s: s.group_by("ratio"), "ratio is a double; equal-looking floats differ"),
        (lambda s: s.group_by("shopp"), "there is no field 'shopp'"),
        (lambda s: s.aggregate(Sum("shopp"), "x bigint"), "there is no field 'shopp'"),
        (lambda s: s.aggregate(Count, "n bigint"), "use an instance, not the class"),
        (lambda s: s.aggregate(Count(), "n string"), "Count() makes one field of type bigint or int"),
        (lambda s: s.aggregate(Sum("price"), "x decimal(38,1)"), "has 2 decimal places, and x is a decimal(38,1)"),
        (lambda s: s.group_by("shop").aggregate(Count(), "shop bigint"), "the field shop is made twice"),
        (lambda s: s.chained_agg().chain_end(), "no aggregator"),
        (lambda s: s.first_n(0), "is not a number of tuples"),
        (lambda s: s.first_n(1, descending=True), "descending needs by="),
        (
            lambda s: s.group_by("shop").persistent_aggregate(PostgresMapState("t"), Count(), "n int"),
            "n is kept as a bigint",
        ),
        (
            lambda s: s.group_by("shop").persistent_aggregate(PostgresMapState("t"), Longest("shop"), "n int"),
            "a table keeps Count(), Sum, Min, Max and CountDistinct",
        ),
    ],
)
def test_aggregates_that_are_refused(step: Callable[[TridentStream], Any], words: str) -> None:
    stream = TridentTopology("errors").new_stream("sales", RowBatches(f"{SALES}, ratio double", [[]]))
    with pytest.raises(TopologyError) as told:
        step(stream)
    assert words in str(told.value)
    assert "stream 'sales', step 1 " in str(told.value)
