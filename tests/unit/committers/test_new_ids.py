"""What duplicates need where a source is only at-least-once: an exact lookup in the commit phase, and a bloom filter
with its error rate.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.user_committer_contract import words
from tests.kit.tuple_runs import Keeping, RowsSpout, run_tuples
from txtopo import TopologyBuilder
from txtopo.committers.memory.memory_transaction import MemoryTransaction
from txtopo.committers.new_ids import NewIds
from txtopo.committers.protocol.result_order import tuples_of
from txtopo.core.fields import parse_fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import TopologyError
from txtopo.topology.bloom import BloomFilter, DropRepeated
from txtopo.topology.components import Topology
from txtopo.topology.streams import Origin, Tuple
from txtopo.topology.tuple_bolts import FailedException

FIELDS = parse_fields("word string, n bigint")


class Emitted(list[tuple[Any, ...]]):
    """A collector."""

    def emit(self, values: Any, stream: str = "default") -> None:
        """Keep it."""
        self.append(tuple(values))

    def emit_direct(self, task: int, values: Any, stream: str = "default") -> None:
        """Not asked for."""
        raise NotImplementedError


def test_only_new_ids_are_passed_on_once() -> None:
    """Exactly once by message id: the first of a batch in canonical order, none that the table knows, NULL always."""
    bolt, emitted = NewIds("shop.seen", "word", "word string, n bigint"), Emitted()

    def known(_: str, parameters: Any) -> list[tuple[str]]:
        return [(one,) for one in parameters[0] if one != "old"]

    transaction = MemoryTransaction("seen", TransactionAttempt(1, 0), known)
    rows = tuples_of(words([("b", 2), ("old", 1), ("a", 9), ("b", 1), (None, 7), (None, 7)]).rows, FIELDS, "seen")

    written = bolt.commit(transaction, rows, emitted)

    assert (sorted(emitted, key=repr), written) == ([("a", 9), ("b", 1), (None, 7), (None, 7)], 4)
    [(statement, parameters)] = transaction.statements
    assert parameters == [["a", "b", "old"]]
    assert statement.startswith('insert into "shop"."seen" ("word") select')
    assert 'on conflict ("word") do nothing' in statement


def _built(committer: Any, fields: str, bolt: Any = None) -> Topology:
    builder = TopologyBuilder("seen")
    builder.set_spout("words", RowsSpout(fields))
    if bolt is not None:
        builder.set_bolt("drop", bolt, inputs="words")
    builder.set_committer_bolt("keep", committer, inputs="words" if bolt is None else "drop")
    return builder.build()


def test_values_go_by_name_whatever_the_order_of_the_fields() -> None:
    """`id` is the id, also where the input has it second: by position the day of a message would be its id."""
    bolt, emitted = NewIds("seen", "id", "id string, day string"), Emitted()
    read = parse_fields("day string, id string")
    _built(bolt, read.ddl)

    def all_new(_: str, parameters: Any) -> list[tuple[str]]:
        return [(one,) for one in parameters[0]]

    rows = [Tuple(values, Origin("words", "default", 1, read)) for values in [("monday", "u1"), ("sunday", None)]]
    bolt.commit(MemoryTransaction("new", TransactionAttempt(1, 0), all_new), rows, emitted)

    assert sorted(emitted, key=repr) == [("u1", "monday"), (None, "sunday")]


def test_result_rows_take_values_by_name() -> None:
    """A committer without an `execute` of its own names the fields that it keeps; their order is its own affair."""

    class Kept(Keeping):
        result = ("id string", "n bigint")

    ran = run_tuples(
        _built(Kept(), "day string, n bigint, id string"), {"words": [[("monday", 7, "u1"), ("tuesday", 8, "u2")]]}
    )

    assert ran.rows("keep") == [("u1", 7), ("u2", 8)]


class Counted(Keeping):
    """Declares rows that its input may not have."""

    result = ("word string", "n bigint")


@pytest.mark.parametrize(
    ("committer", "fields", "why"),
    [
        (NewIds("seen", "id", "id string, day string"), "id string", "there is no day"),
        (NewIds("seen", "id", "id string"), "day string, id string, `n` int", "day, n would be lost"),
        (NewIds("seen", "id", "id string, day string"), "day date, id string", "day is date, not string"),
        (
            Counted(),
            "word string, many bigint",
            "its result rows are word string, n bigint.*there is no n; write an `execute`",
        ),
    ],
)
def test_other_fields_than_those_of_the_input_are_refused(committer: Any, fields: str, why: str) -> None:
    """When the topology is built, and not after three attempts of its first batch."""
    with pytest.raises(TopologyError, match=f"committer bolt 'keep': .*{why}"):
        _built(committer, fields)


def test_fields_that_its_input_lacks_are_refused() -> None:
    """A tuple bolt of ours says so when the topology is built."""
    bolt = DropRepeated("id", "id string, day string", capacity=10, error_rate=0.1)
    with pytest.raises(TopologyError, match=r"bolt 'drop' reads 'words': DropRepeated declares .*: there is no day"):
        _built(Keeping(), "id string, n int", bolt)


@pytest.mark.parametrize(("table", "field"), [("seen", "none"), ("", "word"), ("seen", "x")])
def test_a_lookup_that_cannot_work_is_refused(table: str, field: str) -> None:
    """Found when the topology is built."""
    with pytest.raises(TopologyError):
        NewIds(table, field, "word string, x double")


def test_a_bloom_filter_never_denies_and_errs_as_rarely_as_it_says() -> None:
    """No false negatives; the share of false positives is about the error rate at capacity, and its memory is fixed."""
    seen = BloomFilter(2000, 0.01)
    added = [f"id {number}" for number in range(2000)]
    mistaken = sum(not seen.add(one) for one in added)

    assert not any(seen.add(one) for one in added)
    assert mistaken <= 20
    probes = sum(BloomFilter.add(seen, f"other {number}") is False for number in range(200))
    assert 0 <= probes <= 12
    assert seen.size_bits < 2000 * 10


def test_repeated_ids_are_dropped_within_a_batch_and_known_to_no_other() -> None:
    """At most one tuple an id and batch; each attempt starts afresh; NULL is no id."""
    origin = Origin("spout", "default", 1, FIELDS)
    bolt = DropRepeated("word", "word string, n bigint", capacity=100, error_rate=1e-9)
    for _ in range(2):
        emitted = Emitted()
        bolt.prepare({}, None, emitted, TransactionAttempt(1, 0))  # type: ignore[arg-type]
        for values in [("a", 1), ("a", 2), ("b", 1), (None, 1), (None, 1), ("a", 3)]:
            bolt.execute(Tuple(values, origin))
        bolt.finish_batch()
        assert emitted == [("a", 1), ("b", 1), (None, 1), (None, 1)]


def test_more_ids_than_the_error_rate_allows_fail_the_batch() -> None:
    """It never drops more than it says."""
    origin = Origin("spout", "default", 1, FIELDS)
    bolt = DropRepeated("word", "word string, n bigint", capacity=2, error_rate=1e-6)
    bolt.prepare({}, None, Emitted(), TransactionAttempt(1, 0))  # type: ignore[arg-type]
    for word in "ab":
        bolt.execute(Tuple((word, 1), origin))

    with pytest.raises(FailedException, match="more than 2 different ids"):
        bolt.execute(Tuple(("c", 1), origin))


@pytest.mark.parametrize(("capacity", "rate"), [(0, 0.1), (10, 0.0), (10, 1.0)])
def test_a_filter_that_cannot_be_is_refused(capacity: int, rate: float) -> None:
    """Found when the topology is built."""
    with pytest.raises(TopologyError):
        DropRepeated("word", "word string", capacity=capacity, error_rate=rate)


@pytest.mark.parametrize(
    ("group", "tasks", "why"),
    [
        (lambda bolt: bolt.shuffle_grouping("words"), 2, "reads 'words' with a shuffle grouping"),
        (lambda bolt: bolt.fields_grouping("words", ["word", "n"]), 2, "reads 'words' with a fields grouping"),
        (lambda bolt: bolt.all_grouping("words"), 3, "reads 'words' with a all grouping"),
        (lambda bolt: bolt.shuffle_grouping("words"), 1, None),
        (lambda bolt: bolt.global_grouping("words"), 3, None),
        (lambda bolt: bolt.fields_grouping("words", ["word"]), 3, None),
    ],
)
def test_equal_ids_must_meet_in_one_task(group: Any, tasks: int, why: str | None) -> None:
    """Else repeats would pass, unseen: refused when the topology is built."""
    builder = TopologyBuilder("seen")
    builder.set_spout("words", RowsSpout("word string, n bigint"))
    drop = DropRepeated("word", "n bigint, word string", capacity=100, error_rate=1e-6)
    group(builder.set_bolt("drop", drop, parallelism_hint=tasks))
    builder.set_committer_bolt("keep", Keeping()).global_grouping("drop")
    if why is not None:
        with pytest.raises(
            TopologyError, match=f"bolt 'drop': DropRepeated in {tasks} tasks {why}: .*write fields_grouping"
        ):
            builder.build()
        return

    ran = run_tuples(builder.build(), {"words": [[("a", 1), ("b", 2)], [("a", 3), (None, 4)]]})

    assert sorted(str(word) for _, word in ran.rows("keep")) == ["None", "a", "b"]
