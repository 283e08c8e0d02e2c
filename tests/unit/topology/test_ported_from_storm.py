"""What who ports a topology from Storm looks for first: names, what a task knows of its topology, how a spout hears of
commits, what a hint does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from txtopo import CountCommitter, Halted, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, Stream, TopologyContext, Tuple
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts import (
    NOTHING,
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    RichSpout,
    TransactionalSpout,
)
from txtopo.testing import FeederSpout, FeederTopology, TopologyHarness


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("wordCount", "word_count"),
        ("mySpout", "my_spout"),
        ("WordCountTopology", "word_count_topology"),
        ("HTTPSink2", "http_sink2"),
        ("word-count", "word_count"),
        ("my spout", "my_spout"),
    ],
)
def test_a_name_of_storms_kind_is_refused_with_the_one_to_use(name: str, suggested: str) -> None:
    with pytest.raises(TopologyError, match=f"the name '{name}' is not allowed: .*; call it '{suggested}'"):
        TopologyBuilder(name)


@pytest.mark.parametrize("name", ["", "2fast", "-", "a" * 50, 7])
def test_a_name_of_which_nothing_can_be_made_is_refused_without(name: Any) -> None:
    with pytest.raises(TopologyError) as caught:
        TopologyBuilder(name)

    assert "call it" not in str(caught.value)


class Numbers(PartitionedTransactionalSpout):
    """Two partitions of three numbers, one a batch."""

    outputs = ("n bigint",)
    heard: list[Any] = []

    def number_of_partitions(self) -> int:
        return 2

    def next_range(self, partition: int, last: Any) -> Any:
        at = 0 if last is None else last + 1
        return at if at < 3 - partition else NOTHING

    def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Iterator[Any]:
        yield (metadata,)


class Hearing(Numbers):
    def settled(self, txid: int, metadata: Any, state: str) -> None:
        self.heard.append((txid, metadata, state))


class OpaqueHearing(OpaquePartitionedTransactionalSpout):
    outputs = ("n bigint",)
    heard: list[Any] = []
    number_of_partitions = Numbers.number_of_partitions
    next_range = Numbers.next_range
    emit_partition_batch = Numbers.emit_partition_batch
    settled = Hearing.settled


class Single(TransactionalSpout):
    """Whole numbers below three, from a coordinator half of its own."""

    outputs = ("n bigint",)
    wants_settled = True
    heard: list[Any] = []

    def get_coordinator(self, config: Any, context: Any) -> Any:
        heard = self.heard

        class Half:
            def __init__(self) -> None:
                self.at = 0

            def is_ready(self) -> bool:
                return self.at < 3

            def initialize_transaction(self, txid: int, previous: Any) -> Any:
                self.at += 1
                return {"n": self.at}

            def settled(self, txid: int, metadata: Any, state: str) -> None:
                heard.append((txid, metadata, state))

            def close(self) -> None:
                pass

        return Half()

    def emit_batch(self, attempt: Any, metadata: Any) -> Any:
        return [(metadata["n"],)]


class Refusing(BasicBolt):
    """Takes no 1 of batch 2."""

    outputs = ("n bigint",)

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        if tup["n"] == 1:
            raise ValueError("one")
        collector.emit(tup.values)


def counted(spout: Any, bolt: BasicBolt | None = None, **hints: int) -> Topology:
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", spout, **hints)
    source = "numbers"
    if bolt is not None:
        builder.set_bolt("bolt", bolt).shuffle_grouping("numbers")
        source = "bolt"
    builder.set_committer_bolt("counts", CountCommitter("counts", ["n"])).fields_grouping(source, ["n"])
    return builder.build()


@pytest.mark.parametrize("spout", [Hearing, OpaqueHearing])
def test_a_partitioned_spout_hears_which_ranges_are_committed(spout: Any) -> None:
    """Trident's success: offsets may be committed back to a broker, quarantined ones as well."""
    spout.heard = []
    with TopologyHarness(counted(spout(), Refusing()), attempts_max=1, on_poison="quarantine_batch") as harness:
        harness.run()

    assert spout.heard == [(1, {0: 0, 1: 0}, "applied"), (2, {0: 1, 1: 1}, "quarantined"), (3, {0: 2}, "applied")]


def test_a_coordinator_half_of_ones_own_hears_it_too() -> None:
    Single.heard = []
    with TopologyHarness(counted(Single())) as harness:
        harness.run()

    assert Single.heard == [(txid, {"n": txid}, "applied") for txid in (1, 2, 3)]


def test_trouble_that_may_pass_is_told_again_and_a_mistake_halts_with_its_line() -> None:
    class Away(Hearing):
        heard: list[Any] = []
        troubles: list[Exception] = []

        def settled(self, txid: int, metadata: Any, state: str) -> None:
            if self.troubles:
                raise self.troubles.pop()
            super().settled(txid, metadata, state)

    Away.troubles = [OSError("broker away"), OSError("broker away")]
    with TopologyHarness(counted(Away())) as harness:
        harness.run()
    Away.troubles = [KeyError("offset")]
    with (
        TopologyHarness(counted(Away())) as broken,
        pytest.raises(Halted, match=r"test_ported_from_storm\.py:\d+: KeyError in settled"),
    ):
        broken.run()

    assert [txid for txid, _, _ in Away.heard] == [1, 2, 3]


@pytest.mark.parametrize(("troubles", "ends"), [(9, True), (10_000, False)])
def test_a_run_does_not_end_before_its_spout_has_heard_of_every_batch(troubles: int, ends: bool) -> None:
    """Offsets that a broker never got would look committed: the run waits for it, and then halts."""

    class Away(Hearing):
        heard: list[Any] = []
        left = troubles

        def settled(self, txid: int, metadata: Any, state: str) -> None:
            if Away.left:
                Away.left -= 1
                raise OSError("broker away")
            super().settled(txid, metadata, state)

    with TopologyHarness(counted(Away())) as harness, nullcontext() if ends else pytest.raises(Halted) as halted:
        harness.run()

    assert [txid for txid, _, _ in Away.heard] == ([1, 2, 3] if ends else [])
    assert halted is None or "waited for" in str(halted.value)
    assert halted is None or "a spout could not be notified that batch 1 is committed: broker away" in str(halted.value)
    assert len(harness.batches) == 3


def test_a_settled_that_cannot_be_called_is_known_before_anything_is_committed() -> None:
    class Short(Hearing):
        def settled(self, txid: int) -> None:  # type: ignore[override]
            pass

    class Half:
        def is_ready(self) -> bool:
            return True

        def initialize_transaction(self, txid: int, previous: Any) -> Any:
            return {"n": txid}

    class Deaf(Single):
        def get_coordinator(self, config: Any, context: Any) -> Any:
            return Half()

    class Unheard(Single):
        wants_settled = False

    with pytest.raises(TopologyError, match=r"Short.settled must be a method settled\(self, txid, metadata, state\)"):
        Short()
    for spout, words in ((Deaf, "has no method settled"), (Unheard, "write wants_settled = True in Unheard")):
        with TopologyHarness(counted(spout())) as harness, pytest.raises(BatchDataError, match=words):
            harness.run()
        assert harness.batches == []


@pytest.mark.parametrize(("troubles", "ends"), [(5, True), (10_000, False)])
def test_a_source_that_is_away_when_its_coordinator_half_is_made_is_waited_for(troubles: int, ends: bool) -> None:
    """A broker that is connected to in `get_coordinator`: trouble there is trouble as any other."""

    class Away(Single):
        heard: list[Any] = []
        left = troubles

        def get_coordinator(self, config: Any, context: Any) -> Any:
            if Away.left:
                Away.left -= 1
                raise ConnectionRefusedError("broker away")
            return super().get_coordinator(config, context)

    with TopologyHarness(counted(Away())) as harness, nullcontext() if ends else pytest.raises(Halted) as halted:
        harness.run()

    assert len(harness.batches) == (3 if ends else 0)
    assert halted is None or "broker away" in str(halted.value)


def test_a_spout_that_wants_to_hear_nothing_is_told_nothing() -> None:
    assert (Numbers().wants_settled, Hearing().wants_settled) == (False, True)


class Looking(BasicBolt):
    outputs = ("n bigint", Stream("n bigint, word string", name="more"))
    seen: list[TopologyContext] = []

    def prepare(self, config: Any, context: TopologyContext) -> None:
        self.seen.append(context)

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tup.values)


def looked(spout: Any) -> Topology:
    builder = TopologyBuilder("looked")
    builder.set_spout("numbers", spout)
    builder.set_bolt("first", Looking()).shuffle_grouping("numbers")
    builder.set_bolt("second", Looking(), parallelism_hint=2).fields_grouping("first", ["n"]).all_grouping(
        "first", stream="more"
    )
    builder.set_committer_bolt("counts", CountCommitter("counts", ["n"])).fields_grouping("second", ["n"])
    builder.set_committer_bolt("more", CountCommitter("more", ["n"])).fields_grouping("second", ["n"], stream="more")
    return builder.build()


@pytest.mark.parametrize("fed", [False, True])
def test_a_task_knows_what_it_reads_and_what_is_around_it(fed: bool) -> None:
    """Storm's getThisSources, getComponentOutputFields and getComponentIds: joins need them. The same where a test
    feeds it.
    """
    Looking.seen = []
    if fed:
        with FeederTopology(looked(FeederSpout("n bigint"))) as feeder:
            feeder.feed("numbers", [1])
    else:
        with TopologyHarness(looked(Numbers())) as harness:
            harness.run()

    (first, *_) = [context for context in Looking.seen if context.component == "first"]
    (second, *_) = [context for context in Looking.seen if context.component == "second"]
    assert dict(first.this_sources) == {("numbers", "default"): "shuffle"}
    assert dict(second.this_sources) == {("first", "default"): "fields", ("first", "more"): "all"}
    assert second.component_ids == ("numbers", "first", "second", "counts", "more")
    assert set(second.tasks) == {"first", "second", "counts", "more"}
    assert second.component_output_fields("numbers") == ("n",)
    assert second.component_output_fields("first", "more") == ("n", "word")
    assert (len(first.this_tasks), len(second.this_tasks), second.task_id in second.this_tasks) == (1, 2, True)
    with pytest.raises(KeyError, match="'first' declares no fields on stream 'none'"):
        second.component_output_fields("first", "none")


class Messages(RichSpout):
    outputs = ("n bigint",)

    def next_tuple(self, collector: Any) -> None:
        pass


def test_a_hint_that_would_change_nothing_is_refused() -> None:
    """A spout with acks emits in the driver: Storm would run two of them."""
    builder = TopologyBuilder("numbers", guarantee="at_least_once")
    builder.set_spout("one", Messages(), parallelism_hint=1)

    with pytest.raises(TopologyError, match="spout 'two': parallelism_hint=2 has no effect"):
        builder.set_spout("two", Messages(), parallelism_hint=2)
