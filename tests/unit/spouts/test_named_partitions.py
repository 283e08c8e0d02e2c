"""Partitions with names: they come and go, and an entry stays with its name. Rules of metadata, R3 and R12, as in
tests/unit/spouts/test_partitioned_spout.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from txtopo import CountCommitter, TopologyBuilder
from txtopo.bolts import BasicBolt
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts import NOTHING, OpaquePartitionedTransactionalSpout, PartitionedTransactionalSpout
from txtopo.testing import TopologyHarness
from txtopo.topology.components import SpoutContext, SpoutCoordinator, Tally
from txtopo.topology.streams import Tuple


def context(previous: Any = None, *, once: bool = True) -> SpoutContext:
    """Of spout `logs`."""
    return SpoutContext(
        topology="t",
        spout="logs",
        consumed={},
        once=once,
        monotonic=lambda: 0.0,
        say=lambda line: None,
        previous=previous,
    )


class Logs(PartitionedTransactionalSpout):
    """Words of named logs, at most two of each to a batch; metadata is (start, end)."""

    outputs = ["word string"]

    def __init__(self, **logs: list[str]) -> None:
        self.logs = logs
        self.asked: list[tuple[str, Any]] = []
        self.known: list[Mapping[str, Any]] = []
        self.gone: set[str] = set()

    def partition_names(self, known: Mapping[str, Any]) -> Sequence[str]:
        self.known.append(dict(known))
        return list(self.logs)

    def is_gone(self, partition: str, last: Any) -> bool:
        return partition in self.gone

    def next_range(self, partition: str, last: Any) -> Any:
        self.asked.append((partition, last))
        start = 0 if last is None else last[1]
        end = min(start + 2, len(self.logs[partition]))
        return (start, end) if end > start else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: str, metadata: Any) -> Iterator[Any]:
        for word in self.logs[partition][metadata[0] : metadata[1]]:
            yield (f"{partition} {word}",)

    def bytes_of(self, partition: str, metadata: Any) -> int:
        return int(metadata[1] - metadata[0]) * len(partition)


class OpaqueLogs(Logs, OpaquePartitionedTransactionalSpout):
    """The same, cut again for each attempt."""


def planned(coordinator: SpoutCoordinator, txid: int, previous: Any) -> Any:
    """The metadata of a batch as it comes back from storage."""
    return json.loads(json.dumps(coordinator.initialize_transaction(txid, previous)))


def cut(spout: Logs, txid: int, previous: Any) -> Any:
    """The metadata that a driver makes which has just taken the lead."""
    return planned(spout.open_coordinator(context(previous)), txid, previous)


def emitted(spout: Logs, metadata: Any) -> list[str]:
    return [
        word
        for part in spout.parts(metadata)
        for batch in spout.emit_part(metadata, part, Tally())
        for word in batch.column("word").to_pylist()
    ]


def entries(metadata: Any) -> dict[str, Any]:
    """By name, in their order."""
    return dict(zip(metadata["names"], metadata["partitions"], strict=True))


def test_a_new_name_is_appended_and_nothing_is_sorted_again() -> None:
    """An entry keeps its place, whatever the source's order is later, and every method is given the name."""
    spout = Logs(m=["1", "2", "3"], c=["1"])
    one = cut(spout, 1, None)
    spout.logs = {"a": ["1"], **dict(reversed(spout.logs.items()))}
    two = cut(spout, 2, one)

    assert one == {"txid": 1, "names": ["m", "c"], "partitions": [{"range": [0, 2]}, {"range": [0, 1]}]}
    assert list(entries(two).items()) == [("m", {"range": [2, 3]}), ("c", {"after": [0, 1]}), ("a", {"range": [0, 1]})]
    assert spout.asked[2:] == [("m", [0, 2]), ("c", [0, 1]), ("a", None)]
    assert spout.known == [{}, {"m": [0, 2], "c": [0, 1]}]
    assert (emitted(spout, one), emitted(spout, two)) == (["m 1", "m 2", "c 1"], ["m 3", "a 1"])
    assert (spout.batch_bytes(one), spout.batch_bytes(two)) == (3, 2)


def test_a_place_names_the_partition() -> None:
    spout = Logs(a=[], b=["x", "y"])
    metadata = planned(spout.open_coordinator(context()), 1, None)

    place = spout.locate(metadata, spout.parts(metadata)[0], 1)

    assert place is not None
    assert place.position == "partition b tuple 2"


def test_a_partition_that_is_away_keeps_its_last_range_and_one_that_is_gone_has_no_place() -> None:
    """What is away goes on after its last range. Only what the source calls gone begins anew under its name."""
    spout = Logs(a=["1"], b=["1"])
    one = cut(spout, 1, None)
    spout.logs = {"c": ["1"]}
    spout.gone = {"b"}
    two = cut(spout, 2, one)
    spout.logs = {"a": ["1", "2"], "b": ["new"]}
    three = cut(spout, 3, two)

    assert entries(two) == {"a": {"after": [0, 1]}, "c": {"range": [0, 1]}}
    assert entries(three) == {"a": {"range": [1, 2]}, "c": {"after": [0, 1]}, "b": {"range": [0, 1]}}


def test_a_partition_that_never_had_a_range_has_no_place_when_it_is_gone() -> None:
    """It left nothing to remember, so metadata stay as small as the source."""
    spout = Logs(a=["1", "2", "3"], b=[])
    coordinator = spout.open_coordinator(context())
    one = planned(coordinator, 1, None)
    del spout.logs["b"]

    assert entries(one) == {"a": {"range": [0, 2]}, "b": {"untouched": True}}
    assert entries(planned(coordinator, 2, one)) == {"a": {"range": [2, 3]}}


def test_input_of_a_discarded_plan_keeps_the_place_of_a_partition_that_is_gone() -> None:
    """A batch that is planned again must not lose what it had: a name that is gone is still waited for."""
    spout = OpaqueLogs(a=["1"], b=["1"])
    coordinator: Any = spout.open_coordinator(context())
    discarded = planned(coordinator, 1, None)
    del spout.logs["b"]
    spout.gone = {"b"}
    again = coordinator.initialize_again(1, None, discarded)

    assert entries(again) == {"a": {"range": [0, 1]}, "b": {"untouched": True, "away": None}}
    with pytest.raises(OSError, match="partition b gave input for a batch that was planned again"):
        coordinator.is_ready()
    spout.logs["b"] = ["1"]
    assert coordinator.is_ready()
    assert entries(coordinator.initialize_transaction(2, again))["b"] == {"range": [0, 1]}


@pytest.mark.parametrize("names", ["ab", ["a", "a"], ["a", 1], [""], ["a\nb"], ["a" * 501]])
def test_names_are_different_printable_texts(names: Any) -> None:
    class Odd(Logs):
        def partition_names(self, known: Mapping[str, Any]) -> Sequence[str]:
            return names  # type: ignore[no-any-return]

    with pytest.raises(BatchDataError, match=r"partition_names gave .*, which is not a list of different names"):
        Odd(a=["1"]).open_coordinator(context()).initialize_transaction(1, None)


def test_an_error_names_the_method_and_the_partition() -> None:
    class Failing(Logs):
        def is_gone(self, partition: str, last: Any) -> bool:
            raise KeyError(partition)

    spout = Failing(a=["1"])
    one = planned(spout.open_coordinator(context()), 1, None)
    spout.logs = {}
    with pytest.raises(BatchDataError, match=r"test_named_partitions\.py:\d+: KeyError in is_gone of partition a"):
        spout.open_coordinator(context()).initialize_transaction(2, one)


def test_a_half_may_plan_the_ranges_of_a_redo_as_the_source_is_now() -> None:
    """Each range by its name; entries without one stay as they were, and the position of the source does not move."""

    class Again(Logs):
        def range_again(self, partition: str, metadata: Any) -> Any:
            return [partition, *metadata]

    coordinator = Again(a=["x"], b=[]).open_coordinator(context())
    first = coordinator.initialize_transaction(1, None)
    assert coordinator.initialize_redo(first)["partitions"] == [{"range": ["a", 0, 1]}, {"untouched": True}]
    assert first["partitions"][0] == {"range": [0, 1]}
    plain = Logs(a=["x"]).open_coordinator(context())
    batch = plain.initialize_transaction(1, None)
    assert plain.initialize_redo(batch) == batch


@pytest.mark.parametrize("numbered", [False, True])
def test_numbers_and_names_are_not_mistaken_for_each_other(numbered: bool) -> None:
    """A spout that has names instead of numbers from now on would begin anew without a word."""

    class Numbered(PartitionedTransactionalSpout):
        outputs = ["word string"]

        def number_of_partitions(self) -> int:
            return 1

        def next_range(self, partition: int, last: Any) -> Any:
            return {}

        def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Any:
            return ()

    spouts = (Logs(a=["1"]), Numbered()) if numbered else (Numbered(), Logs(a=["1"]))
    before = planned(spouts[0].open_coordinator(context()), 1, None)
    with pytest.raises(BatchDataError, match="give this one another name"):
        spouts[1].open_coordinator(context()).initialize_transaction(2, before)


def test_a_spout_needs_a_number_or_names() -> None:
    class Neither(PartitionedTransactionalSpout):
        outputs = ["word string"]
        next_range = Logs.next_range
        emit_partition_batch = Logs.emit_partition_batch

    with pytest.raises(TopologyError, match="number_of_partitions or partition_names or get_coordinator"):
        Neither()


def test_a_half_may_say_when_to_ask_again_and_that_a_run_is_not_at_its_end() -> None:
    """What has to settle first is neither ready nor the end of the input."""

    class Settling(Logs):
        left = 2.0

        def is_exhausted(self) -> bool:
            return not self.left

        def ready_in_s(self) -> float:
            return self.left

    spout = Settling(a=[])
    coordinator: Any = spout.open_coordinator(context())
    assert not coordinator.is_ready()
    assert (coordinator.is_exhausted(), coordinator.ready_in_s()) == (False, 2.0)
    Settling.left = 0.0
    assert (coordinator.is_exhausted(), coordinator.ready_in_s()) == (True, 0.0)
    plain: Any = Logs(a=[]).open_coordinator(context())
    assert not plain.is_ready()
    assert (plain.is_exhausted(), plain.ready_in_s()) == (True, float("inf"))


class Coming(BasicBolt):
    """Fails the first attempt of a batch; meanwhile the source gets another partition, which sorts before the first."""

    outputs = ("word string",)

    def __init__(self, logs: dict[str, list[str]]) -> None:
        self.logs = logs

    def __deepcopy__(self, memo: Any) -> Coming:
        return self

    def execute(self, tup: Tuple, collector: Any) -> None:
        if "a" not in self.logs:
            self.logs["a"] = ["x"]
            raise ValueError("once")
        collector.emit(tup.values)


@pytest.mark.parametrize("opaque", [False, True])
def test_partitions_of_a_batch_that_is_tried_again(opaque: bool) -> None:
    """Every word is counted once; `settled` is told the ranges by name."""
    told: list[tuple[int, Any, str]] = []

    class Told(OpaqueLogs if opaque else Logs):  # type: ignore[misc]
        def settled(self, txid: int, metadata: Any, state: str) -> None:
            told.append((txid, metadata, state))

    spout = Told(m=["1", "2", "3"])
    builder = TopologyBuilder("logs")
    builder.set_spout("logs", spout)
    builder.set_bolt("coming", Coming(spout.logs)).shuffle_grouping("logs")
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("coming", ["word"])

    with TopologyHarness(builder.build(), spout_pending_max=1) as harness:
        harness.run()
        assert harness.table("counts") == {(word,): (1,) for word in ("m 1", "m 2", "m 3", "a x")}

    first = {"m": [0, 2], "a": [0, 1]} if opaque else {"m": [0, 2]}
    second = {"m": [2, 3]} if opaque else {"m": [2, 3], "a": [0, 1]}
    assert told == [(1, first, "applied"), (2, second, "applied")]
