"""Partitioned and opaque spouts: a range a partition, decided before anything is emitted (STORM.md 1.7, 1.8, cases PE,
KT, MC-07).

What becomes of an opaque batch's metadata when it is committed, or may be (PE-04, PE-06), is the planner's:
tests/unit/driver/test_opaque_planning.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from txtopo import CountCommitter, TopologyBuilder
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts import ReliableSpout, TransactionalSpout
from txtopo.spouts.opaque import OpaquePartitionedTransactionalSpout
from txtopo.spouts.partitioned import NOTHING, PartitionedTransactionalSpout
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Spout, SpoutContext, SpoutCoordinator, Tally
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import BasicBolt, FailedException


def context(previous: Any = None, *, once: bool = True) -> SpoutContext:
    """Of spout `words`."""
    return SpoutContext(
        topology="t",
        spout="words",
        consumed={},
        once=once,
        monotonic=lambda: 0.0,
        say=lambda line: None,
        previous=previous,
    )


class Words(PartitionedTransactionalSpout):
    """At most two words of each partition a batch; metadata is (start, end)."""

    outputs = ["word string"]

    def __init__(self, *partitions: list[Any]) -> None:
        self.source = list(partitions)
        self.asked: list[tuple[int, Any]] = []

    def number_of_partitions(self) -> int:
        return len(self.source)

    def next_range(self, partition: int, last: Any) -> Any:
        self.asked.append((partition, last))
        start = 0 if last is None else last[1]
        end = min(start + 2, len(self.source[partition]))
        return (start, end) if end > start else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        for word in self.source[partition][metadata[0] : metadata[1]]:
            yield (word,)


class OpaqueWords(Words, OpaquePartitionedTransactionalSpout):
    """The same, cut again for each attempt."""


def planned(coordinator: SpoutCoordinator, txid: int, previous: Any) -> Any:
    """The metadata of a batch as it comes back from storage."""
    return json.loads(json.dumps(coordinator.initialize_transaction(txid, previous)))


def emitted(spout: Spout, metadata: Any) -> dict[int, list[str]]:
    """Words by partition."""
    found: dict[int, list[str]] = {}
    for part in spout.parts(metadata):
        tally = Tally()
        batches = list(spout.emit_part(metadata, part, tally))
        words = [word for batch in batches for word in batch.column("word").to_pylist()]
        assert tally.read == len(words)
        if part["partition"] is not None:
            found[part["partition"]] = words
    return found


def ranges(metadata: Any) -> list[Any]:
    """Of all partitions."""
    return [entry.get("range") for entry in metadata["partitions"]]


def test_a_batch_is_new_once_and_then_replayed_exactly() -> None:
    """PE-01: the first emission decides (0,2) with last=null; the second replays (0,2), and nothing is asked."""
    spout = Words(["dog", "cat", "apple"])
    metadata = planned(spout.open_coordinator(context()), 1, None)
    assert (ranges(metadata), spout.asked) == ([[0, 2]], [(0, None)])

    first = emitted(spout, metadata)
    spout.source[0].extend(["more", "words"])

    assert emitted(spout, metadata) == first == {0: ["dog", "cat"]}
    assert spout.asked == [(0, None)]


def test_a_replay_never_touches_new_partitions_and_new_ones_begin_at_nothing() -> None:
    """PE-03: 2 partitions, then 3: a replay of 1 touches p0 and p1 only; 2 emits p2 as new with last=null."""
    spout = Words(["a", "b", "c"], ["d", "e", "f"])
    coordinator = spout.open_coordinator(context())
    first = planned(coordinator, 1, None)
    spout.source.append(["g"])

    assert emitted(spout, first) == {0: ["a", "b"], 1: ["d", "e"]}
    second = planned(coordinator, 2, first)

    assert spout.asked[-3:] == [(0, [0, 2]), (1, [0, 2]), (2, None)]
    assert emitted(spout, second) == {0: ["c"], 1: ["f"], 2: ["g"]}
    assert (first["count"], second["count"]) == (2, 3)


def test_partitions_are_spread_over_tasks_in_their_order() -> None:
    """PE-03: of 5 partitions task 0 of 2 has {0, 2, 4}, task 1 {1, 3}."""
    spout = Words(["a"], ["b"], ["c"], ["d"], ["e"])
    parts = spout.parts(planned(spout.open_coordinator(context()), 1, None))

    assert [part["partition"] for part in parts[0::2]] == [0, 2, 4]
    assert [part["partition"] for part in parts[1::2]] == [1, 3]


def test_a_retry_of_an_opaque_batch_cuts_by_the_batch_before_it_alone() -> None:
    """MC-07: partitions change from [p0] to [p0, p1]: opaque gives [p0], then [p0, p1]; nothing skipped, nothing twice."""  # noqa: E501
    spout = OpaqueWords(["a", "b", "c", "d"])
    coordinator = spout.open_coordinator(context())
    one = planned(coordinator, 1, None)
    planned(coordinator, 2, one)  # an attempt that fails
    spout.source[0].append("e")
    spout.source.append(["x"])

    two = planned(coordinator, 2, one)
    three = planned(coordinator, 3, two)

    assert emitted(spout, two) == {0: ["c", "d"], 1: ["x"]}
    assert emitted(spout, three) == {0: ["e"]}


class Growing(BasicBolt):
    """Fails the first attempt of batch 1; meanwhile the source gets a partition more."""

    outputs = ("word string",)

    def __init__(self, source: list[list[Any]]) -> None:
        self.source = source

    def __deepcopy__(self, memo: Any) -> Growing:
        return self

    def execute(self, tup: Tuple, collector: Any) -> None:
        if len(self.source) == 1:
            self.source.append(["x"])
            raise ValueError("once")
        collector.emit(tup.values)


@pytest.mark.parametrize("opaque", [False, True])
def test_partitions_of_a_batch_that_is_tried_again(opaque: bool) -> None:
    """MC-07: partitions change from [p0] to [p0, p1] between two attempts: transactional gives [p0] both times and p1
    to the next batch, opaque both at once.
    """
    spout = (OpaqueWords if opaque else Words)(["a", "b", "c"])
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("growing", Growing(spout.source)).shuffle_grouping("words")
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("growing", ["word"])

    with TopologyHarness(builder.build(), spout_pending_max=1) as harness:
        harness.run()
        batches = [sorted(word for (word,) in harness.values("words", txid=txid)) for txid in (1, 2)]

    assert batches == ([["a", "b", "x"], ["c"]] if opaque else [["a", "b"], ["c", "x"]])
    assert [batch.attempt for batch in harness.batches] == [1, 0]
    assert harness.table("counts") == {(word,): (1,) for word in "abcx"}


class Offsets(PartitionedTransactionalSpout):
    """Offsets 0..99 of one partition; metadata is (first, last). `latest`: without metadata it begins behind what is
    there.
    """

    outputs = ["offset bigint"]

    def __init__(self, *, latest: bool = False) -> None:
        self.latest = latest
        self.end = 100

    def number_of_partitions(self) -> int:
        return 1

    def next_range(self, partition: int, last: Any) -> Any:
        if last is None and self.latest:
            return (self.end - 1, self.end - 1, "nothing")
        first = 0 if last is None else last[1] + 1
        return (first, self.end - 1) if first < self.end else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Any:
        return [] if len(metadata) == 3 else [(offset,) for offset in range(metadata[0], metadata[1] + 1)]


@pytest.mark.parametrize(
    ("latest", "last", "offsets", "stored"),
    [
        (False, None, range(100), [0, 99]),
        (True, None, range(0), [99, 99, "nothing"]),
        (True, (0, 49), range(50, 100), [50, 99]),
    ],
)
def test_where_a_partition_begins_is_the_spouts_decision(latest: bool, last: Any, offsets: range, stored: Any) -> None:
    """KT-01: earliest: 0..99, meta (0,99); latest: nothing, meta (99,99); after (0,49): 50..99, meta (50,99).

    The strategy is the spout's own code, here as in Storm's Kafka spout. txtopo hands the last metadata in and what is
    decided on to the emitter.
    """
    spout = Offsets(latest=latest)
    previous = None if last is None else {"txid": 1, "count": 1, "partitions": [{"range": list(last)}]}
    metadata = planned(spout.open_coordinator(context(previous)), 2, previous)

    (part,) = spout.parts(metadata)
    found = [row for batch in spout.emit_part(metadata, part, Tally()) for row in batch.column(0).to_pylist()]

    assert (found, ranges(metadata)) == (list(offsets), [stored])


def test_a_replay_emits_its_range_although_more_is_there() -> None:
    """KT-02: meta (50,59): exactly 50..59. What is stored is handed to the emitter, and the source is not asked where
    the partition stands.
    """
    metadata = {"txid": 3, "count": 1, "partitions": [{"range": [50, 59]}]}

    class Unasked(Offsets):
        def next_range(self, partition: int, last: Any) -> Any:
            raise AssertionError("asked")

    (batch,) = Unasked().emit_part(metadata, {"partition": 0}, Tally())

    assert batch.column(0).to_pylist() == list(range(50, 60))


def test_a_partition_without_input_keeps_its_place() -> None:
    """STORM.md mistake 20: nothing now, nothing ever, and gone are told apart; no metadata is ever lost."""
    spout = Words(["a"], [], ["b"])
    coordinator = spout.open_coordinator(context())
    one = planned(coordinator, 1, None)
    spout.source[:] = [["a", "c"], []]  # the third partition is gone for a while
    two = planned(coordinator, 2, one)
    spout.source[:] = [["a", "c"], ["d"], ["b", "e"]]
    three = planned(coordinator, 3, two)

    assert one["partitions"] == [{"range": [0, 1]}, {"untouched": True}, {"range": [0, 1]}]
    assert two["partitions"] == [{"range": [1, 2]}, {"untouched": True}, {"after": [0, 1]}]
    assert three["partitions"] == [{"after": [1, 2]}, {"range": [0, 1]}, {"range": [1, 2]}]


def test_it_is_ready_while_some_partition_has_input() -> None:
    """What was found is what is planned; behind it nothing is there, and a run once comes to its end."""
    spout = Words(["a", "b", "c"])
    coordinator = spout.open_coordinator(context())

    assert coordinator.is_ready()
    one = planned(coordinator, 1, None)
    assert spout.asked == [(0, None)]
    assert coordinator.is_ready()
    planned(coordinator, 2, one)
    assert not coordinator.is_exhausted()

    assert not coordinator.is_ready()
    assert coordinator.is_exhausted()
    spout.source[0].append("d")
    assert coordinator.is_ready()


def test_a_new_leader_goes_on_behind_what_is_planned() -> None:
    """R12: `previous` is told when the spout is opened, so that nothing is ready that was planned before."""
    spout = Words(["a", "b"])
    one = planned(spout.open_coordinator(context()), 1, None)

    assert not spout.open_coordinator(context(one)).is_ready()


def test_what_was_found_for_another_place_is_not_used() -> None:
    """`initialize_transaction` is a function of `previous` and the source, whatever `is_ready` looked at."""
    spout = OpaqueWords(["a", "b", "c", "d", "e"])
    coordinator = spout.open_coordinator(context())
    one = planned(coordinator, 1, None)
    planned(coordinator, 2, one)
    assert coordinator.is_ready()

    assert ranges(planned(coordinator, 2, one)) == [[2, 4]]


def test_empty_batches_are_planned_where_the_spout_wants_them() -> None:
    """TT-07: empty batches run and commit; such a batch has one part, which emits nothing."""

    class Steady(Words):
        empty_batches = True

    spout = Steady(["a"])
    coordinator = spout.open_coordinator(context())
    one = planned(coordinator, 1, None)

    assert coordinator.is_ready()
    two = planned(coordinator, 2, one)
    assert emitted(spout, two) == {}
    assert len(spout.parts(two)) == 1


def test_an_opaque_spout_says_what_it_is() -> None:
    assert (Words.kind, OpaqueWords.kind) == ("transactional", "opaque")


def test_a_value_that_does_not_fit_is_named_with_partition_tuple_and_field() -> None:
    """The failure names field and value; its place is the partition and the tuple's number."""
    spout = Words(["a", "b"], ["c", 7])
    metadata = planned(spout.open_coordinator(context()), 1, None)

    with pytest.raises(
        BatchDataError, match=r"partition 1 tuple 2: field word: 7 is a int, the field is declared string"
    ) as caught:
        list(spout.emit_part(metadata, spout.parts(metadata)[1], Tally()))

    assert caught.value.position == "partition 1 tuple 2"


def test_a_tuple_is_found_again_by_its_number() -> None:
    spout = Words(["a", "b"], ["c", "d"])
    metadata = planned(spout.open_coordinator(context()), 1, None)

    place = spout.locate(metadata, spout.parts(metadata)[1], 1)

    assert place is not None
    assert (place.position, place.raw) == ("partition 1 tuple 2", '{"word": "d"}')
    assert spout.locate(metadata, spout.parts(metadata)[1], 2) is None


@pytest.mark.parametrize("answer", [None, {1: 2}, {"at": object()}, float("nan"), b"x"])
def test_metadata_that_json_would_change_is_refused(answer: Any) -> None:
    """STORM-2675, STORM.md mistakes 19 and 20: never stored as its text, never null."""

    class Odd(Words):
        def next_range(self, partition: int, last: Any) -> Any:
            return answer

    with pytest.raises(BatchDataError, match="metadata of partition 0"):
        Odd(["a"]).open_coordinator(context()).initialize_transaction(1, None)


def test_trouble_that_may_pass_and_mistakes_are_told_apart() -> None:
    """Storm: FailedException from initializeTransaction stores nothing and is tried again later. A mistake names the
    spout and the line.
    """

    class Failing(Words):
        error: Exception = FailedException("broker away")

        def next_range(self, partition: int, last: Any) -> Any:
            raise self.error

    spout = Failing(["a"])
    with pytest.raises(OSError, match="words: next_range of partition 0 failed: broker away"):
        spout.open_coordinator(context()).is_ready()
    spout.error = KeyError("offset")
    with pytest.raises(
        BatchDataError, match=r"test_partitioned_spout\.py:\d+: KeyError in next_range of partition 0"
    ) as caught:
        spout.open_coordinator(context()).initialize_transaction(1, None)
    assert caught.value.component == "words"


@pytest.mark.parametrize("count", [None, -1, 2.0, True])
def test_a_count_of_partitions_is_a_count(count: Any) -> None:
    class Odd(Words):
        def number_of_partitions(self) -> int:
            return count  # type: ignore[no-any-return]

    with pytest.raises(BatchDataError, match="number_of_partitions gave"):
        Odd(["a"]).open_coordinator(context()).initialize_transaction(1, None)


def test_metadata_of_another_kind_of_spout_is_refused() -> None:
    """A spout that was replaced under its name must not begin anew without a word."""
    with pytest.raises(BatchDataError, match="give this one another name"):
        Words(["a"]).open_coordinator(context()).initialize_transaction(2, {"files": []})


@pytest.mark.parametrize("kind", [TransactionalSpout, PartitionedTransactionalSpout, ReliableSpout])
def test_a_spout_without_an_init_takes_no_arguments(kind: Any) -> None:
    """As any class of Python; one with an `__init__` takes what that takes."""
    with pytest.raises(TypeError, match=r"Days\(\) takes no arguments"):
        type("Days", (kind,), {"outputs": ["day date"]})("2013-01-01")


def test_a_spout_without_its_methods_or_fields_is_refused_when_it_is_made() -> None:
    class Half(PartitionedTransactionalSpout):
        outputs = ["word string"]

        def number_of_partitions(self) -> int:
            return 1

    class Nameless(PartitionedTransactionalSpout):
        number_of_partitions = Words.number_of_partitions
        next_range = Words.next_range
        emit_partition_batch = Words.emit_partition_batch

    with pytest.raises(TopologyError, match="next_range or get_coordinator"):
        Half()
    with pytest.raises(TopologyError, match=r"Nameless declares no fields: write outputs = "):
        _ = Nameless().fields


def test_each_partition_and_attempt_has_an_emitter_of_its_own() -> None:
    """As on Spark, where they are in different processes: what an emitter keeps on itself is gone with its partition
    and attempt.
    """

    class Once(PartitionedTransactionalSpout):
        outputs = ["word string"]

        def __init__(self) -> None:
            self.seen: set[str] = set()

        def number_of_partitions(self) -> int:
            return 2

        def next_range(self, partition: int, last: Any) -> Any:
            return last + 1 if last else 1

        def is_ready(self) -> bool:
            return False

        def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Any:
            for word in ("a", "a", "b"):
                if word not in self.seen:
                    self.seen.add(word)
                    yield (word,)

    spout = Once()
    attempt = TransactionAttempt(1, 0)
    for _ in range(2):
        for partition in range(2):
            emitter = spout.get_emitter({}, partition)
            assert list(emitter.emit_partition_batch(attempt, partition, 1)) == [("a",), ("b",)]
    assert spout.seen == set()
