"""What is downstream of a committer runs in the commit of its batch, in the driver, by the tuple engine:
on the harness, without services.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from txtopo import ClassTopology, CountCommitter, NewIds, TopologyBuilder
from txtopo.bolts import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    BatchCommitter,
    CommitCollector,
    CommitTransaction,
    RichBolt,
    Stream,
    Tuple,
)
from txtopo.core.values import TransactionAttempt
from txtopo.errors import Halted
from txtopo.spouts.partitioned import NOTHING, PartitionedTransactionalSpout
from txtopo.testing.harness import TopologyHarness

WORDS = [["a", "b", "a", None], ["c", "a"], []]
"""By batch."""


class Words(PartitionedTransactionalSpout):
    """The words of `WORDS`, a list a batch, numbered within it."""

    outputs = ["word string", "n bigint"]

    def number_of_partitions(self) -> int:
        return 1

    def next_range(self, partition: int, last: Any) -> Any:
        at = last["at"] + 1 if last else 0
        return {"at": at} if at < len(WORDS) else NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        yield from ((word, n) for n, word in enumerate(WORDS[metadata["at"]]))


class Passing(BatchCommitter):
    """Emits its rows; what is odd on a stream of its own as well."""

    outputs = ["word string", "n bigint", Stream("n bigint", name="odd")]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            collector.emit(row.values)
            if row["n"] % 2:
                collector.emit([row["n"]], "odd")


class Basic(BasicBolt):
    outputs = ["word string", "n bigint"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        if tup["word"] == "bad":
            raise ValueError("no word")
        collector.emit(tup.values)


class Rich(RichBolt):
    outputs = ["word string", "n bigint"]

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.collector.emit(tup.values, anchors=[tup])
        self.collector.ack(tup)


class Batch(BatchBolt):
    """Emits all at the end of the batch; its copies must not know each other."""

    outputs = ["word string", "n bigint"]
    kept: list[Any]

    def __init__(self) -> None:
        self.kept = []

    def prepare(self, config: Any, context: Any, collector: Any, attempt: TransactionAttempt) -> None:
        assert self.kept == [], "a fresh copy for each attempt and task"
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup.values)

    def finish_batch(self) -> None:
        for values in self.kept:
            self.collector.emit(values)


class Arrow(ArrowBolt):
    outputs = ["word string", "n bigint"]

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        for word in batch.column(0).to_pylist():
            if word == "bad":
                raise ValueError("no word")
        collector.emit_batch(batch)


class Keep(BatchCommitter):
    """Keeps its rows."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            transaction.execute("insert into kept values (%s, %s)", row.values)


def ran(build: Callable[[TopologyBuilder], object], **settings: Any) -> TopologyHarness:
    """A topology over `WORDS`, run to its end."""
    builder = TopologyBuilder("downstream", acking=settings.pop("acking", "batch"), config=settings.pop("config", None))
    builder.set_spout("words", Words())
    build(builder)
    with TopologyHarness(builder.build(), **settings) as harness:
        harness.stores.postgres.answers = settings.get("answers")
        harness.run()
    return harness


def edges(harness: TopologyHarness, txid: int) -> Mapping[str, tuple[int, int]]:
    found = {edge.edge: (edge.sent, edge.received) for edge in harness.edges(txid)}
    assert len(found) == len(harness.edges(txid)), "each is told once"
    return found


def kept(harness: TopologyHarness, txid: int) -> list[Any]:
    return [tuple(one.parameters) for one in harness.stores.postgres.executed if one.txid == txid]


class Holds(Rich):
    """Neither acks nor fails."""

    def execute(self, tup: Tuple) -> None:
        self.collector.emit(tup.values, anchors=[tup])


@pytest.mark.parametrize(
    ("acking", "config"), [("batch", {}), ("batch", {"topology.acker.executors": 0}), ("tuple", {})]
)
def test_a_tuple_that_is_held_there_fails_its_batch_whatever_the_acking(acking: str, config: Any) -> None:
    """No acker hears of the commit phase: the bolt is asked all the same, or what it held would be lost without a word."""  # noqa: E501

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("told", Passing()).global_grouping("words")
        builder.set_bolt("held", Holds()).shuffle_grouping("told")
        builder.set_committer_bolt("kept", Keep()).global_grouping("held")

    with pytest.raises(Halted, match="failed in held: Holds neither acked nor failed the tuple"):
        ran(build, acking=acking, config=config)


def test_where_the_topology_has_no_ackers_nobody_asks_there_either() -> None:
    """`topology.acker.executors` 0 is Storm's word for it."""
    builder = TopologyBuilder("downstream", acking="tuple", config={"topology.acker.executors": 0})
    builder.set_spout("words", Words())
    builder.set_committer_bolt("told", Passing()).global_grouping("words")
    builder.set_bolt("held", Holds()).shuffle_grouping("told")
    builder.set_committer_bolt("counts", CountCommitter("by_word", ["word"], count="n")).fields_grouping(
        "held", ["word"]
    )

    with TopologyHarness(builder.build()) as harness:
        harness.run()
        assert harness.table("by_word")[("a",)] == (3,)


@pytest.mark.parametrize("acking", ["batch", "tuple", "off"])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("bolt", [Basic, Rich, Batch, Arrow])
def test_every_kind_of_bolt_runs_downstream_of_a_committer(bolt: type[Any], tasks: int, acking: str) -> None:
    """The same results for every kind, number of tasks and acking; counted on both ends of each edge, strictly in the
    order of txids.
    """

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("first", Passing()).shuffle_grouping("words")
        builder.set_bolt("bolt", bolt(), parallelism_hint=tasks).shuffle_grouping("first")
        counts = CountCommitter("by_word", ["word"], count="times", sums=["n"])
        builder.set_committer_bolt("counts", counts, parallelism_hint=tasks).fields_grouping("bolt", ["word"])

    harness = ran(build, acking=acking)

    assert harness.table("by_word") == {("a",): (3, 3), ("b",): (1, 1), ("c",): (1, 0), (None,): (1, 3)}
    assert sorted(harness.values("bolt", txid=2)) == [("a", 1), ("c", 0)]
    assert [edges(harness, txid)["bolt -> counts"] for txid in (1, 2, 3)] == [(4, 4), (2, 2), (0, 0)]
    assert [batch.state for batch in harness.batches] == ["applied"] * 3


class Join(BatchBolt):
    """Counts what comes on each input."""

    outputs = ["line string"]

    def prepare(self, config: Any, context: Any, collector: Any, attempt: TransactionAttempt) -> None:
        self.collector, self.counts = collector, dict[str, int]()

    def execute(self, tup: Tuple) -> None:
        name = f"{tup.component}:{tup.stream}"
        self.counts[name] = self.counts.get(name, 0) + 1

    def finish_batch(self) -> None:
        self.collector.emit([" ".join(f"{name}={n}" for name, n in sorted(self.counts.items()))])


class KeepLines(BatchCommitter):
    """Emits and keeps how many lines there were."""

    outputs = ["lines bigint"]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        collector.emit([len(rows)])
        for row in rows:
            transaction.execute("insert into lines values (%s)", row.values)


def test_streams_of_both_phases_meet_downstream_of_committers_on_several_levels() -> None:
    """Named streams, a diamond, a stream of the processing phase beside those of committers, and committers downstream
    of committers of committers.
    """

    def build(builder: TopologyBuilder) -> None:
        builder.set_bolt("early", Basic(), parallelism_hint=2).shuffle_grouping("words")
        builder.set_committer_bolt("first", Passing()).shuffle_grouping("early")
        builder.set_bolt("left", Basic(), parallelism_hint=2).shuffle_grouping("first")
        builder.set_bolt("right", Arrow()).all_grouping("first")
        join = builder.set_bolt("join", Join())
        join.global_grouping("left").global_grouping("right").global_grouping("first", "odd").global_grouping(
            "early"
        ).global_grouping("words")
        builder.set_committer_bolt("second", KeepLines()).global_grouping("join")
        builder.set_bolt("last", Join(), parallelism_hint=2).shuffle_grouping("second").all_grouping(
            "early"
        ).all_grouping("left")
        builder.set_committer_bolt("third", KeepLines()).global_grouping("last")

    harness = ran(build)

    assert harness.values("join", txid=1) == [
        ("early:default=4 first:odd=2 left:default=4 right:default=4 words:default=4",)
    ]
    last = [values for (values,) in harness.values("last", txid=1)]
    assert sorted(last) == ["early:default=4 left:default=4", "early:default=4 left:default=4 second:default=1"]
    assert edges(harness, 1)["early -> join"] == (4, 4)
    assert edges(harness, 1)["second -> last"] == (1, 1)
    assert [one.committer for one in harness.stores.postgres.executed if one.txid == 1] == ["second", "third", "third"]


@pytest.mark.parametrize(
    ("bolt", "place"), [(Basic, "tuple 1 of first in this batch"), (Arrow, "tuple 1 of first in this batch")]
)
def test_a_bolt_that_fails_there_fails_its_batch_and_names_line_and_tuple(
    monkeypatch: pytest.MonkeyPatch, bolt: type[Any], place: str
) -> None:
    """A data failure of the batch: nothing of it is committed, and the batches before it are."""
    monkeypatch.setattr(sys.modules[__name__], "WORDS", [["a"], ["c", "bad"]])

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("first", Passing()).shuffle_grouping("words")
        builder.set_bolt("middle", Rich()).shuffle_grouping("first")
        builder.set_bolt("fails", bolt()).shuffle_grouping("middle")
        builder.set_committer_bolt("counts", CountCommitter("by_word", ["word"])).shuffle_grouping("fails")

    with pytest.raises(Halted) as halted:
        ran(build)

    said = str(halted.value)
    assert "batch 2 of downstream: 3 attempts failed in fails" in said
    assert f"{__file__}:" in said
    assert "ValueError: no word" in said
    assert place in said


def test_new_ids_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """NewIds -> CountCommitter: each id counts once, in the first batch that has it; NULL is no id and counts always."""  # noqa: E501
    seen: set[Any] = set()

    def answer(statement: str, parameters: Any) -> list[Any]:
        new = [one for one in parameters[0] if one not in seen]
        seen.update(new)
        return [(one,) for one in new]

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("new", NewIds("seen", "word", "word string, n bigint")).fields_grouping(
            "words", ["word"]
        )
        builder.set_committer_bolt("counts", CountCommitter("ids", ["word"])).fields_grouping("new", ["word"])

    builder = TopologyBuilder("once")
    builder.set_spout("words", Words())
    build(builder)
    with TopologyHarness(builder.build()) as harness:
        harness.stores.postgres.answers = answer
        harness.run()

    assert {word: n for (word,), (n,) in harness.table("ids").items()} == {"a": 1, "b": 1, "c": 1, None: 1}
    assert harness.stores.postgres.contributions["public.ids"] == [
        (1, None, "a", 1),
        (1, None, "b", 1),
        (1, None, None, 1),
        (2, None, "c", 1),
    ]
    assert edges(harness, 2)["new -> counts"] == (1, 1)


class Misconfigured(Batch):
    """Fails whatever comes, also nothing."""

    def finish_batch(self) -> None:
        raise ValueError("no lookup table")


@pytest.mark.parametrize(
    ("bolt", "state", "sources"),
    [(Basic, "quarantined", ["first"]), (Basic, "quarantined", ["first", "words"]), (Misconfigured, None, ["first"])],
)
def test_a_batch_is_left_out_over_a_bolt_there_only_where_it_is_at_fault(
    monkeypatch: pytest.MonkeyPatch, bolt: type[Any], state: str | None, sources: list[str]
) -> None:
    """What is downstream of committers is tried over no rows first, of what came out of the processing phase too: a
    bolt that fails on those halts the topology.
    """
    monkeypatch.setattr(sys.modules[__name__], "WORDS", [["bad"], ["c"]])

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("first", Passing()).shuffle_grouping("words")
        declarer = builder.set_bolt("bolt", bolt())
        for source in sources:
            declarer.shuffle_grouping(source)
        builder.set_committer_bolt("counts", CountCommitter("by_word", ["word"])).shuffle_grouping("bolt")

    if state is None:
        with pytest.raises(Halted, match="no lookup table"):
            ran(build, on_poison="quarantine_batch")
    else:
        harness = ran(build, on_poison="quarantine_batch")
        assert [batch.state for batch in harness.batches] == [state, "applied"]


class Importing(Basic):
    """Needs a module only where a tuple comes."""

    def execute(self, tup: Tuple, collector: Any) -> None:
        import no_such_module_of_a_bolt  # type: ignore[import-not-found]  # noqa: F401


class ImportingInItsTurn(Passing):
    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for _ in rows:
            import no_such_module_of_a_committer  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize(
    ("committer", "bolt", "lacks"),
    [(Passing, Importing, "no_such_module_of_a_bolt"), (ImportingInItsTurn, Basic, "no_such_module_of_a_committer")],
)
def test_a_module_that_the_turn_of_a_batch_lacks_is_no_batchs_fault(
    committer: type[Any], bolt: type[Any], lacks: str
) -> None:
    """It would be lacking in every batch, though nothing shows over no rows: none is left out over it, and what to do
    is said.
    """
    builder = TopologyBuilder("lacking")
    builder.set_spout("words", Words())
    builder.set_committer_bolt("first", committer()).shuffle_grouping("words")
    builder.set_bolt("bolt", bolt()).shuffle_grouping("first")
    builder.set_committer_bolt("counts", CountCommitter("by_word", ["word"])).shuffle_grouping("bolt")
    with TopologyHarness(builder.build(), on_poison="quarantine_batch") as harness:
        with pytest.raises(Halted, match=lacks) as halted:
            harness.run()

    assert "ModuleNotFoundError" in halted.value.reason and halted.value.txid == 1
    assert halted.value.next_command is not None and "where the driver runs" in halted.value.next_command
    assert harness.batches == []


HEARD: list[tuple[int, Any]] = []


class Sink(BasicBolt):
    """Works for its effect alone; nothing reads it."""

    def prepare(self, config: Any, context: Any) -> None:
        self.txid = context.attempt.txid

    def execute(self, tup: Tuple, collector: Any) -> None:
        HEARD.append((self.txid, tup["n"]))


def test_bolts_that_nothing_reads_run_too_and_classes_may_declare_them() -> None:
    """In the order of txids, also on a level of their own behind all committers; in a topology that is a class as in
    one that is built.
    """
    HEARD.clear()

    class Heard(ClassTopology):
        words = Words.spec()
        first = Passing.spec(inputs=[words])
        bolt = Basic.spec(inputs=[first], par=2)
        second = Passing.spec(inputs=[bolt])
        sink = Sink.spec(inputs=[second["odd"]])

    topology = Heard.build()
    with TopologyHarness(topology, capture=False) as harness:
        harness.run()

    assert HEARD == [(1, 1), (1, 3), (2, 1)]
    assert dict(topology.phases) == {"first": 0, "bolt": 1, "second": 1, "sink": 2}
