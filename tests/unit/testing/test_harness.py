"""TopologyHarness: what it shows of a topology, what a test can hold, release and fail, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.unit.spouts.test_acked_spout import Broker, Queue
from tests.unit.spouts.test_partitioned_spout import Words
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.bolts import (
    BasicBolt,
    BasicOutputCollector,
    BatchCommitter,
    CommitCollector,
    CommitTransaction,
    Stream,
    Tuple,
    TupleBolt,
)
from txtopo.core import limits
from txtopo.core.values import EdgeCount, TransactionAttempt
from txtopo.errors import Halted, TopologyError
from txtopo.spouts.partitioned import NOTHING, PartitionedTransactionalSpout
from txtopo.testing import Emission, TopologyHarness
from txtopo.topology.components import Spout, Topology

FIELDS = "word string, amount int"


class Sift(BasicBolt):
    """Passes small amounts on, large ones on a stream of their own; negative ones are an error."""

    outputs: ClassVar[Sequence[Any]] = (*FIELDS.split(", "), Stream(FIELDS, name="large"))

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        if tup["amount"] < 0:
            raise ValueError(f"no such amount: {tup['amount']}")
        collector.emit(tup.values, stream="large" if tup["amount"] > 99 else "default")


RAISES = next(at for at, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "raise ValueError" in line)
"""Where Sift raises."""


class Announce(BatchCommitter):
    """Tells in the commit phase how many tuples the batch had."""

    outputs: ClassVar[Sequence[Any]] = ("n bigint",)

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        collector.emit((len(rows),))


class Hear(BatchCommitter):
    """Reads what was announced."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        transaction.execute("INSERT INTO heard VALUES (%s)", [row["n"] for row in rows])


def csv(folder: Path, *contents: str) -> FileSpout:
    """Files 0.csv, 1.csv, … with these lines, one a batch."""
    for at, content in enumerate(contents):
        (folder / f"{at:02}.csv").write_text("word,amount\n" + content)
    return FileSpout(folder, FIELDS, files_per_batch=1, rejected_max=1)


def sifted(spout: Spout, bolt: TupleBolt | None = None) -> Topology:
    """rows -> sift (2 tasks) -> counts; sift:large -> announce -> hear."""
    builder = TopologyBuilder("sifted")
    builder.set_spout("rows", spout)
    builder.set_bolt("sift", bolt or Sift(), parallelism_hint=2).shuffle_grouping("rows")
    counts = CountCommitter("counts", ["word"], count="n", sums={"amount": "total"})
    builder.set_committer_bolt("counts", counts).fields_grouping("sift", ["word"])
    builder.set_committer_bolt("announce", Announce()).global_grouping("sift", stream="large")
    builder.set_committer_bolt("hear", Hear()).global_grouping("announce")
    return builder.build()


def run(topology: Topology, **settings: Any) -> TopologyHarness:
    """To the end."""
    with TopologyHarness(topology, **settings) as harness:
        end = harness.run()
    assert end is not None
    assert end.kind == "finished", end.reason
    return harness


# ----------------------------------------------------------------------------------------------------------------------


def test_everything_that_a_topology_does_is_there_to_look_at(tmp_path: Path) -> None:
    """Emissions of every component and stream, those of the commit phase too; edges, tables, batches, statements."""
    harness = run(sifted(csv(tmp_path, "a,1\nb,100\n", "a,2\na,3\nb,200\nc,300\n")))

    assert harness.values("rows") == [("a", 1), ("b", 100), ("a", 2), ("a", 3), ("b", 200), ("c", 300)]
    assert sorted(harness.values("sift", txid=2)) == [("a", 2), ("a", 3)]
    assert sorted(harness.values("sift", "large")) == [("b", 100), ("b", 200), ("c", 300)]
    assert harness.values("announce") == [(1,), (2,)]
    assert harness.table("counts") == {("a",): (3, 6)}
    assert harness.table("public.counts") == harness.table("counts")
    assert [
        (seen.txid, seen.attempt, seen.state, seen.read, seen.rejected, seen.dead_lettered) for seen in harness.batches
    ] == [
        (1, 0, "applied", 2, 0, 0),
        (2, 0, "applied", 4, 0, 0),
    ]
    assert [one.parameters for one in harness.stores.postgres.executed] == [[1], [2]]


def test_an_emission_says_where_it_comes_from(tmp_path: Path) -> None:
    """Attempt, component, stream and task; tasks of spouts are below 0, those of a bolt the ids that its context tells."""  # noqa: E501
    harness = run(sifted(csv(tmp_path, "a,1\na,2\nb,100\n")))

    assert harness.emitted("rows")[0] == Emission(
        attempt=TransactionAttempt(1, 0), component="rows", stream="default", task=-1, values=("a", 1)
    )
    assert harness.emitted("rows")[0].txid == 1
    assert {one.task for one in (*harness.emitted("sift"), *harness.emitted("sift", "large"))} == {1, 2}
    assert [(one.stream, one.values) for one in harness.emitted("sift", "large", txid=1)] == [("large", ("b", 100))]
    assert harness.emitted("sift", txid=2) == []


def test_edges_are_those_of_the_topology_alone(tmp_path: Path) -> None:
    """What each edge counted in the last attempt that got through; the harness's own readers are left out, and the
    ledger has the same.
    """
    harness = run(sifted(csv(tmp_path, "a,1\nb,100\n", "a,2\n")))

    assert harness.edges(1) == [
        EdgeCount(edge="rows -> sift", sent=2, received=2),
        EdgeCount(edge="sift -> counts", sent=1, received=1),
        EdgeCount(edge="sift:large -> announce", sent=1, received=1),
        EdgeCount(edge="announce -> hear", sent=1, received=1),
    ]
    assert [edge.sent for edge in harness.edges(2)] == [1, 1, 0, 1]
    assert harness.edges(3) == []


@pytest.mark.parametrize("name", [("sifft", "default"), ("sift", "larg"), ("counts", "default")])
def test_a_misspelt_name_is_not_taken_for_silence(tmp_path: Path, name: tuple[str, str]) -> None:
    """`emitted` of what declares no such stream is an error that lists what there is."""
    with TopologyHarness(sifted(csv(tmp_path, "a,1\n"))) as harness:
        harness.run()
        with pytest.raises(ValueError, match="there are announce, rows, sift, sift:large"):
            harness.emitted(*name)
        with pytest.raises(KeyError, match=r"no committer counts into public\.no_such_table: there is public\."):
            harness.table("no_such_table")


def test_before_it_runs_there_is_nothing(tmp_path: Path) -> None:
    """A harness may be looked at whenever the test likes."""
    with TopologyHarness(sifted(csv(tmp_path, "a,1\n"))) as harness:
        assert (harness.batches, harness.values("rows"), harness.edges(1), harness.end) == ([], [], [], None)
        assert (harness.held_processing, harness.held_commits) == ({}, [])


def test_a_topology_may_be_run_just_as_it_is(tmp_path: Path) -> None:
    """Without captures nothing is added: its own edges and no more, and `emitted` says why it knows nothing."""
    with TopologyHarness(sifted(csv(tmp_path, "a,1\nb,100\n")), capture=False) as harness:
        harness.run()

        assert harness.table("counts") == {("a",): (1, 1)}
        ledger = harness.stores.postgres.topologies["sifted"].ledger[1]
        assert [count.committer for count in ledger.counts] == ["counts", "announce", "hear"]
        with pytest.raises(ValueError, match="there are none"):
            harness.emitted("sift")


def test_captures_change_nothing_that_is_committed(tmp_path: Path) -> None:
    """The same ledger counts for the topology's own committers, with captures and without."""
    spout = csv(tmp_path, "a,1\nb,100\nc,3\n", "a,2\noops\nb,-0\n")
    seen = []
    for capture in (True, False):
        harness = run(sifted(spout), capture=capture)
        ledger = harness.stores.postgres.topologies["sifted"].ledger
        seen.append(
            (
                [[count for count in row.counts if "$" not in count.committer] for _, row in sorted(ledger.items())],
                harness.table("counts"),
                harness.rejects,
                harness.edges(1),
                harness.edges(2),
            )
        )
    assert seen[0] == seen[1]


def test_records_that_do_not_parse_are_named_by_file_and_line(tmp_path: Path) -> None:
    """Rejects of a FileSpout, beside the counts of the others."""
    harness = run(sifted(csv(tmp_path, "a,1\nb,x\n", "c\na,2\n")))

    assert [(row.spout, row.path, row.line, row.raw) for row in harness.rejects] == [
        ("rows", str(tmp_path / "00.csv"), 3, b"b,x"),
        ("rows", str(tmp_path / "01.csv"), 2, b"c"),
    ]
    assert [(seen.read, seen.rejected) for seen in harness.batches] == [(2, 1), (2, 1)]
    assert harness.table("counts") == {("a",): (2, 3)}


def test_a_topology_that_only_counts_runs_too(tmp_path: Path) -> None:
    """No tuple bolt, no committer of one's own: spout and CountCommitter."""
    builder = TopologyBuilder("counted")
    builder.set_spout("rows", csv(tmp_path, "a,1\nb,2\n", "a,3\n"))
    counts = CountCommitter("counts", ["word"], count="n", sums={"amount": "total"})
    builder.set_committer_bolt("counts", counts).fields_grouping("rows", ["word"])
    topology = builder.build()

    for capture in (True, False):
        harness = run(topology, capture=capture)
        assert harness.table("counts") == {("a",): (2, 4), ("b",): (1, 2)}
        assert [edge.edge for edge in harness.edges(1)] == ["rows -> counts"]


def test_dataframe_bolts_need_a_session(tmp_path: Path) -> None:
    """Said when it is made, naming the bolts."""
    builder = TopologyBuilder("frames")
    builder.set_spout("rows", csv(tmp_path, "a,1\n"))
    builder.set_bolt("upper", lambda frame: frame, inputs="rows", fields=FIELDS)
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"], count="n")).shuffle_grouping("upper")

    with pytest.raises(TopologyError, match=r"upper: DataFrame bolts need Spark; give the harness a session"):
        TopologyHarness(builder.build())


# ----------------------------------------------------------------------------------------------------------------------


def test_a_bad_tuple_among_ten_thousand_is_named_after_one_attempt(tmp_path: Path) -> None:
    """The topology halts, and the error names component, file:line of the source, the tuple's values and the user's
    file:line.
    """
    lines = ["a,1\n"] * 10_000
    lines[7_100] = "zzz,-5\n"
    with TopologyHarness(sifted(csv(tmp_path, "a,1\n", "".join(lines))), attempts_max=1) as harness:
        with pytest.raises(Halted) as halted:
            harness.run()

        told = str(halted.value)
        assert halted.value.txid == 2
        assert "sift" in told
        assert f"{__file__}:{RAISES}: ValueError: no such amount: -5" in told
        assert "word='zzz', amount=-5" in told
        assert f"{tmp_path / '01.csv'}:7102" in told
        assert [seen.txid for seen in harness.batches] == [1]
        attempts = harness.stores.postgres.topologies["sifted"].attempts
        assert [(key, row.state) for key, row in sorted(attempts.items())] == [((1, 0), "applied"), ((2, 0), "failed")]


def test_it_halts_again_when_it_is_run_again(tmp_path: Path) -> None:
    """No second leader, and no silence."""
    with TopologyHarness(sifted(csv(tmp_path, "a,-1\n")), attempts_max=2) as harness:
        for _ in range(2):
            with pytest.raises(Halted, match="no such amount: -1"):
                harness.run()
        assert harness.end is not None
        assert harness.end.kind == "halted"
        assert len(harness.stores.postgres.topologies["sifted"].attempts) == 2


def test_a_poisonous_batch_may_be_quarantined(tmp_path: Path) -> None:
    """`on_poison="quarantine_batch"`: its place in the order is kept, and the others count."""
    harness = run(sifted(csv(tmp_path, "a,1\n", "b,1\nc,-1\n", "a,3\n")), on_poison="quarantine_batch", attempts_max=2)

    assert [(seen.txid, seen.state, seen.attempt) for seen in harness.batches] == [
        (1, "applied", 0),
        (2, "quarantined", 1),
        (3, "applied", 0),
    ]
    assert harness.table("counts") == {("a",): (2, 4)}


def test_tuples_that_a_bolt_fails_on_become_dead_letters(tmp_path: Path) -> None:
    """`on_poison="dead_letter_rows"`: each is named with its record and the reason, the good rows of its batch are
    counted.
    """
    spout = csv(tmp_path, "a,1\nb,-1\na,2\n", "c,-2\nc,3\noops\nd,-4\n")
    harness = run(sifted(spout), on_poison="dead_letter_rows", attempts_max=1, dead_letter_max=2)

    assert [(row.spout, row.position, row.component, row.raw) for row in harness.dead_letters] == [
        ("rows", f"{tmp_path / '00.csv'}:3", "sift", b"b,-1"),
        ("rows", f"{tmp_path / '01.csv'}:2", "sift", b"c,-2"),
        ("rows", f"{tmp_path / '01.csv'}:5", "sift", b"d,-4"),
    ]
    assert all(f"{__file__}:{RAISES}: ValueError" in row.reason for row in harness.dead_letters)
    assert harness.table("counts") == {("a",): (2, 3), ("c",): (1, 3)}
    assert [(seen.read, seen.rejected, seen.dead_lettered) for seen in harness.batches] == [(3, 0, 1), (4, 1, 2)]
    assert [edge.sent for edge in harness.edges(2)] == [1, 1, 0, 1]
    assert harness.values("rows", txid=2) == [("c", 3)]


def test_more_dead_letters_than_may_be_halt_it(tmp_path: Path) -> None:
    """`dead_letter_max`: a bolt that fails on everything is not a few bad records."""
    spout = csv(tmp_path, "a,-1\nb,-1\nc,-1\nd,4\n")
    with TopologyHarness(sifted(spout), on_poison="dead_letter_rows", attempts_max=1, dead_letter_max=2) as harness:
        with pytest.raises(Halted, match=r"more than 2 records"):
            harness.run()
        assert (harness.dead_letters, harness.table("counts"), harness.batches) == ([], {}, [])


# ----------------------------------------------------------------------------------------------------------------------


def test_input_that_comes_later_is_taken_by_the_next_run() -> None:
    """Not `once`: the topology waits, and a test goes on with it."""
    spout = Words(["dog"])
    with TopologyHarness(_words(spout), once=False) as harness:
        assert harness.run() is None
        assert harness.values("words") == [("dog",)]
        spout.source[0].append("cat")
        assert harness.run() is None
        assert harness.values("words") == [("dog",), ("cat",)]
        assert [seen.txid for seen in harness.batches] == [1, 2]


def _words(*spouts: Spout, guarantee: Any = "exactly_once") -> Topology:
    builder = TopologyBuilder("words", guarantee=guarantee)
    names = ["words", "others"][: len(spouts)]
    for name, spout in zip(names, spouts, strict=True):
        builder.set_spout(name, spout)
        counter = CountCommitter(f"count_{name}", ["word"], count="n")
        builder.set_committer_bolt(f"count_{name}", counter).fields_grouping(name, ["word"])
    return builder.build()


# ----------------------------------------------------------------------------------------------------------------------


def test_several_spouts_share_the_txid() -> None:
    """Each batch has what the ready ones gave; the one that is idle counts nothing on its edge."""
    broker = Broker(*((f"m{number}", ["elk"]) for number in range(5)))
    topology = _words(Words(["dog", "cat", "apple"]), Queue(broker), guarantee="at_least_once")
    with TopologyHarness(topology) as harness:
        harness.run()

        assert [seen.read for seen in harness.batches] == [4, 3, 1]
        assert harness.table("count_words") == {("dog",): (1,), ("cat",): (1,), ("apple",): (1,)}
        assert harness.table("count_others") == {("elk",): (5,)}
        assert [(edge.edge, edge.sent) for edge in harness.edges(3)] == [
            ("words -> count_words", 0),
            ("others -> count_others", 1),
        ]
    assert broker.told == [("ack", f"m{number}") for number in range(5)]


def test_waves_change_nothing_that_can_be_seen(tmp_path: Path) -> None:
    """The same input, waves on and off: the same emissions, edges, ledger, tables, rejects and dead letters."""
    contents = [f"a,{at}\nb,{at * 50}\noops\nc,{-1 if at == 5 else 1}\n" for at in range(12)]
    spout = csv(tmp_path, *contents)
    settings: dict[str, Any] = {"on_poison": "dead_letter_rows", "attempts_max": 1}
    seen = []
    for waves in (False, True):
        harness = run(sifted(spout), waves=waves, **settings)
        shown = {
            (component, stream): sorted(harness.values(component, stream))
            for component, stream in [
                ("rows", "default"),
                ("sift", "default"),
                ("sift", "large"),
                ("announce", "default"),
            ]
        }
        edges = [harness.edges(txid) for txid in range(1, 13)]
        content = [
            (batch.txid, batch.state, batch.read, batch.rejected, batch.dead_lettered) for batch in harness.batches
        ]
        seen.append((shown, edges, content, harness.table("counts"), harness.rejects, harness.dead_letters))
    assert seen[0] == seen[1]
    assert seen[0][2][5] == (6, "applied", 4, 1, 1)


# ----------------------------------------------------------------------------------------------------------------------


class Endless(PartitionedTransactionalSpout):
    """Always has one more empty batch."""

    outputs: ClassVar[Sequence[str]] = ("word string",)
    empty_batches = True
    closed: ClassVar[list[str]] = []

    def number_of_partitions(self) -> int:
        return 1

    def next_range(self, partition: int, last: Any) -> Any:
        return NOTHING

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        return iter(())

    def close(self) -> None:
        self.closed.append("closed")


def test_an_endless_input_ends_the_test_with_an_error() -> None:
    """The harness never goes on for ever: it says so, and what to do."""
    with TopologyHarness(_words(Endless()), works_max=200) as harness:
        with pytest.raises(RuntimeError, match=r"no end after 200 pieces of work.*by_hand=True"):
            harness.run()
        assert len(harness.batches) > 10, "what was done is there to look at"


def test_an_endless_input_can_be_held_by_hand() -> None:
    """spout_pending_max bounds it."""
    with TopologyHarness(_words(Endless()), by_hand=True, spout_pending_max=3, works_max=200) as harness:
        assert harness.run() is None
        assert list(harness.held_processing) == [1, 2, 3]


def test_spouts_are_closed_with_the_harness() -> None:
    """What a coordinator half holds is given back, whatever came of the run."""
    Endless.closed.clear()
    with TopologyHarness(_words(Endless()), by_hand=True, spout_pending_max=1) as harness:
        harness.run()
        assert Endless.closed == []
    assert Endless.closed == ["closed"]


class Unreachable(Words):
    """Its source is away for good."""

    def emit_partition_batch(self, attempt: TransactionAttempt, partition: int, metadata: Any) -> Iterator[Any]:
        raise ConnectionError("the broker is away")


def test_a_source_that_is_away_for_good_is_no_endless_run() -> None:
    """A run with an end halts where nothing else is left to be read: its batch is never called finished, and never the
    batch's fault.
    """
    with TopologyHarness(_words(Unreachable(["dog"])), message_timeout_s=300) as harness:
        with pytest.raises(Halted, match="no batch is at fault: ConnectionError: the broker is away"):
            harness.run()
        attempts = harness.stores.postgres.topologies["words"].attempts
        assert len(attempts) == limits.SOURCE_TRIES_MAX
        failures = {(row.failure.kind, row.failure.message) for row in attempts.values() if row.failure is not None}
        assert failures == {("infrastructure", "ConnectionError: the broker is away")}
        assert harness.batches == []


class Broken(Words):
    """Its coordinator half has a mistake."""

    def next_range(self, partition: int, last: Any) -> Any:
        return {}["no such partition"]  # type: ignore[index]


def test_a_mistake_in_a_coordinator_half_comes_out(tmp_path: Path) -> None:
    """Outside of any batch: the topology halts, naming spout and method."""
    with (
        TopologyHarness(_words(Broken(["dog"]))) as harness,
        pytest.raises(
            Exception, match=r"words.*next_range of partition 0.*no such partition|no such partition.*next_range"
        ),
    ):
        harness.run()


class Unreadable(FileSpout):
    """Its plans are of a release that does not exist yet."""

    def layout(self) -> Mapping[str, Any]:
        return {**super().layout(), "of_a_later_release": True}


@pytest.mark.parametrize("policy", ["halt", "quarantine_batch"])
def test_a_batch_of_a_layout_that_is_not_known_halts_and_is_never_skipped(tmp_path: Path, policy: Any) -> None:
    """W2: it is not the batch that is at fault, so no policy for batches applies."""
    csv(tmp_path, "a,1\n")
    topology = sifted(Unreadable(tmp_path, FIELDS, files_per_batch=1))
    with TopologyHarness(topology, on_poison=policy) as harness:
        with pytest.raises(Halted, match=r"of_a_later_release.* which this release cannot read"):
            harness.run()
        assert harness.batches == []
