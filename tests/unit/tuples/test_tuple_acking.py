"""Acking by tuple in batches: which trees are complete, failed or incomplete, by every kind of bolt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, Ran, RowsSpout, graph_of, ran, run_spec, run_tuples
from txtopo.committers.count_committer import CountCommitter
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally, Topology
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, BatchBolt, CustomStreamGrouping, RichBolt, TupleBolt
from txtopo.tuples import acking, basic_runner
from txtopo.tuples.acking import ack_failure
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import root_place
from txtopo.tuples.message import Kind, Message, TaskReport
from txtopo.tuples.roots import COLUMN, Roots


class Branching(BasicBolt):
    """Emits each word `n` times."""

    outputs = ["word string"]

    def __init__(self, n: int) -> None:
        self.n = n

    def execute(self, tup: Any, collector: Any) -> None:
        for _ in range(self.n):
            collector.emit([tup[0]])


class ByHand(RichBolt):
    """Does what `how` says with words that begin with x, and acks all others anchored."""

    outputs = ["word string"]

    def __init__(self, how: str) -> None:
        self.how = how

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        collector = self.collector
        if not tup[0].startswith("x"):
            collector.emit([tup[0]], anchors=[tup])
            collector.ack(tup)
        elif self.how == "forgets":
            collector.emit([tup[0]], anchors=[tup])
        elif self.how == "fails":
            collector.fail(tup)
        elif self.how == "fails and acks":
            collector.fail(tup)
            collector.ack(tup)
        elif self.how == "acks twice":
            collector.ack(tup)
            collector.ack(tup)
        elif self.how == "anchors twice":
            collector.emit([tup[0]], anchors=[tup, tup])
            collector.ack(tup)
        elif self.how == "unanchored":
            collector.emit([tup[0]])
            collector.ack(tup)
        elif self.how == "late":
            self.held.append(tup)

    def finish_batch(self) -> None:
        if self.held:
            self.collector.emit([" ".join(tup[0] for tup in self.held)], anchors=self.held)
        for tup in self.held:
            self.collector.ack(tup)


def topology_of(*bolts: TupleBolt, acking: Any = "tuple", tasks: int = 2) -> Topology:
    """words -> bolt after bolt -> keep."""
    builder = TopologyBuilder("acked", acking=acking)
    builder.set_spout("words", RowsSpout("word string"))
    source = "words"
    for at, bolt in enumerate(bolts):
        builder.set_bolt(f"bolt{at}", bolt, parallelism_hint=tasks).shuffle_grouping(source)
        source = f"bolt{at}"
    builder.set_committer_bolt("keep", Keeping(), parallelism_hint=2).shuffle_grouping(source)
    return builder.build()


WORDS = {"words": [[("a",), ("x1",), ("b",), ("x2",), ("c",)], [("x3",), ("d",)]]}


def places(seen: Ran, roots: tuple[int, ...]) -> list[tuple[int, int]]:
    """(part, number) of each root."""
    return [root_place(seen.graph, root)[1:] for root in roots]


@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_trees_of_basic_bolts_are_complete_without_a_word(n: int) -> None:
    """AK-01: branchers x2, x4, x1, also one that emits nothing: anchoring and acking are done for a BasicBolt."""
    seen = run_tuples(topology_of(Branching(2), Branching(n), Branching(2)), WORDS)

    assert seen.acks == acking.AckOutcome(roots=7)
    assert seen.acks.complete
    assert len(seen.rows("keep")) == 7 * 2 * n * 2


@pytest.mark.parametrize("rows", [1, 3, 4, 1000])
def test_what_is_sent_between_two_tuples_keeps_its_roots(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracked bolt that emits much sends it in pieces, each with the spout tuples behind it."""
    monkeypatch.setattr(basic_runner, "TRACKED_ROWS", rows)
    seen = run_tuples(topology_of(Branching(2), Branching(3)), WORDS)
    failing = run_tuples(topology_of(Branching(2), ByHand("fails")), WORDS, failures_max=9)

    assert seen.acks == acking.AckOutcome(roots=7)
    assert len(seen.rows("keep")) == 7 * 2 * 3
    assert sorted(places(failing, roots) for roots in failing.roots) == [[(0, 1)]] * 2 + [[(0, 3)]] * 2 + [[(1, 0)]] * 2


def test_a_tracked_bolt_does_not_wait_for_the_end_of_a_message_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """What many tuples emit does not pile up: at most so many rows and what one more tuple emits."""
    monkeypatch.setattr(basic_runner, "TRACKED_ROWS", 3)
    topology = topology_of(Branching(2), tasks=1)
    graph, run = graph_of(topology), run_spec({"words": 1})
    engine = Engine(graph)
    batch = pa.record_batch({"word": [str(at) for at in range(20)]})
    messages = engine.source(0, run, "words", 0, iter([batch]), Tally(read=20), lambda report: None)

    sent = engine.level([run], iter(sorted(messages, key=lambda m: m[:6])), 1, lambda report: None)

    rows = [message.rows for message in sent if message.kind == Kind.DATA and message.source > 0]
    assert sum(rows) == 40
    assert max(rows) <= 4


@pytest.mark.parametrize("how", ["anchors twice", "unanchored", "late"])
def test_trees_of_rich_bolts_that_ack_everything_are_complete(how: str) -> None:
    """AK-01: several anchors, the same anchor twice (self-anchoring), tuples without any, acks at the very end."""
    seen = run_tuples(topology_of(ByHand(how), ByHand(how), Branching(2)), WORDS)

    assert seen.failure is None
    assert seen.acks == acking.AckOutcome(roots=7)


NEITHER, TWICE = "neither acked nor failed the tuple word='x", "acked twice: word='x"
X_PLACES = [(0, 1), (0, 3), (1, 0)]


@pytest.mark.parametrize(("how", "words"), [("forgets", NEITHER), ("acks twice", TWICE)])
@pytest.mark.parametrize("before", [0, 1])
def test_a_tuple_that_is_not_acked_exactly_once_fails_the_attempt_and_leaves_its_root_incomplete(
    how: str, words: str, before: int
) -> None:
    """Storm: such a tree times out. Here the attempt fails, with bolt and tuple in words, and the source tuples are
    named.
    """
    bolts = [Branching(2)] * before + [ByHand(how)]
    seen = run_tuples(topology_of(*bolts), WORDS)

    outcome = acking.outcome_of(*told_by_ackers(seen))
    assert (outcome.failed, outcome.incomplete) == (0, 3)
    assert places(seen, outcome.incomplete_roots) == [(0, 1), (0, 3), (1, 0)]
    assert seen.failure is not None
    assert (seen.failure.component, words in seen.failure.message) == (f"bolt{before}", True), seen.failure
    assert places(seen, seen.roots[0])[0] in X_PLACES
    failure = ack_failure(seen.graph, outcome, 7)
    assert failure is not None
    assert failure.message == "3 of 7 tuples were never acked to the end, the first is number 2 of part 1 of words"


@pytest.mark.parametrize("mode", ["batch", "tuple"])
@pytest.mark.parametrize(("how", "words"), [("forgets", NEITHER), ("acks twice", TWICE)])
def test_a_tuple_that_is_not_acked_exactly_once_fails_the_attempt_whatever_the_acking(
    mode: str, how: str, words: str
) -> None:
    """A RichBolt that holds a tuple for the next batch would lose it without a word: no later batch ever sees it."""
    seen = run_tuples(topology_of(ByHand(how), acking=mode, tasks=1), WORDS)

    assert seen.failure is not None
    assert (seen.failure.kind, seen.failure.component, words in seen.failure.message) == ("data", "bolt0", True), (
        seen.failure
    )
    assert how != "forgets" or "so it did with 3 tuples" in seen.failure.message


@pytest.mark.parametrize(("mode", "ackers"), [("off", 1), ("tuple", 0)])
@pytest.mark.parametrize("how", ["forgets", "acks twice"])
def test_where_acking_is_off_nobody_asks_what_was_acked(mode: str, ackers: int, how: str) -> None:
    """AK-08 (i): without ackers, as with acking off, what is held commits."""
    seen = run_tuples(topology_of(ByHand(how), acking=mode), WORDS, ackers=ackers)

    assert seen.failure is None


@pytest.mark.parametrize("how", ["late", "fails and acks", "unanchored"])
def test_a_tuple_that_is_acked_late_or_after_it_failed_is_no_mistake_of_its_own(how: str) -> None:
    """`finish_batch` is the last moment; `finally: ack` after `fail` is common."""
    seen = run_tuples(topology_of(ByHand(how), acking="batch"), WORDS, failures_max=9)

    messages = [one.failure.message for report in seen.reports for one in report.failures]
    assert all("failed the tuple" in message for message in messages), messages
    assert (not messages) == (how != "fails and acks")


def test_a_tuple_of_another_attempt_is_none_of_this_one() -> None:
    """A bolt that keeps tuples in a global acks one of the attempt before: what it holds now is missed all the same."""
    kept: list[Tuple] = []

    class Global(ByHand):
        def execute(self, tup: Tuple) -> None:
            kept.append(tup)
            if len(kept) > 1:
                self.collector.ack(kept.pop(0))

        def __deepcopy__(self, memo: Any) -> Any:
            return type(self)(self.how)

    for _ in range(2):
        seen = run_tuples(topology_of(Global("-"), acking="batch", tasks=1), {"words": [[("a",), ("b",)]]})

        assert seen.failure is not None
        assert "neither acked nor failed the tuple word='b'" in seen.failure.message


@pytest.mark.parametrize("how", ["fails", "fails and acks"])
def test_a_tuple_that_failed_fails_its_root(how: str) -> None:
    """A failed root reports which source tuple it was, also where the tuple is acked besides."""
    seen = run_tuples(topology_of(Branching(1), ByHand(how)), WORDS)

    assert seen.failure is not None
    assert "ByHand failed the tuple word='x1'" in seen.failure.message
    outcome = acking.outcome_of(*told_by_ackers(seen))
    assert (outcome.failed, outcome.incomplete) == (3, 0)
    assert places(seen, outcome.failed_roots) == [(0, 1), (0, 3), (1, 0)]
    assert places(seen, seen.roots[0]) == [(0, 1)]


def told_by_ackers(seen: Ran) -> tuple[list[Any], list[Any]]:
    """Bodies of what the acker tasks sent."""
    mine = [message for message in seen.messages if message.edge == acking.ACK_EDGE]
    return [m.body for m in mine if m.kind == Kind.RESULT], [m.body for m in mine if m.kind == Kind.END]


def test_failing_one_of_several_anchors_fails_the_roots_of_that_tuple_alone() -> None:
    """A tuple anchored on several belongs to all their trees; failing one input is about its own."""

    class Joining(ByHand):
        def finish_batch(self) -> None:
            self.collector.emit(["joined"], anchors=self.held)
            for tup in self.held:
                (self.collector.fail if tup[0] == "x2" else self.collector.ack)(tup)

    seen = run_tuples(topology_of(Joining("late"), tasks=1), WORDS, ackers=3)

    outcome = acking.outcome_of(*told_by_ackers(seen))
    assert places(seen, outcome.failed_roots) == [(0, 3)]
    assert outcome.incomplete == 0


def test_a_tuple_anchored_on_several_keeps_all_their_trees_open() -> None:
    """AK-01, AK-02: the joined tuple is never acked: every spout tuple behind it is incomplete, no other."""

    class Losing(RichBolt):
        outputs = ["word string"]

        def prepare(self, config: Any, context: Any, collector: Any) -> None:
            self.collector = collector

        def execute(self, tup: Tuple) -> None:
            if " " not in tup[0]:
                self.collector.ack(tup)

    seen = run_tuples(topology_of(ByHand("late"), Losing(), tasks=1), WORDS)

    outcome = acking.outcome_of(*told_by_ackers(seen))
    assert places(seen, outcome.incomplete_roots) == [(0, 1), (0, 3), (1, 0)]


class Summing(BatchBolt):
    """Emits in execute and in finish_batch."""

    outputs = ["word string"]

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector
        collector.emit(["prepared"])

    def execute(self, tup: Any) -> None:
        self.collector.emit([tup[0]])
        self.collector.emit([tup[0]])

    def finish_batch(self) -> None:
        self.collector.emit(["finished"])


class Halving(ArrowBolt):
    """Every second row, anchored on it; the rest of them without anchors."""

    outputs = ["word string"]

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        rows = list(range(0, batch.num_rows, 2))
        collector.emit_batch(batch.take(pa.array(rows)), anchors=rows)
        collector.emit_batch(batch.slice(0, 1))


def test_batch_and_arrow_bolts_ack_on_execute() -> None:
    """A tuple of a batch is done when `execute` has returned; what `finish_batch` emits belongs to no tree."""
    seen = run_tuples(topology_of(Summing(), Halving(), Branching(1)), WORDS)

    assert seen.failure is None
    assert seen.acks == acking.AckOutcome(roots=7)


class Choosy(RichBolt):
    """Acks all but one word."""

    outputs = ["word string"]

    def __init__(self, never: str) -> None:
        self.never = never

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        if tup[0] != self.never:
            self.collector.ack(tup)


@pytest.mark.parametrize("word", ["prepared", "finished"])
def test_what_a_batch_bolt_emits_outside_of_execute_belongs_to_no_tree(word: str) -> None:
    """No spout tuple waits for it. The bolt that never acks it fails all the same, as with acking by batch."""
    seen = run_tuples(topology_of(Summing(), Choosy(word)), WORDS)

    assert acking.outcome_of(*told_by_ackers(seen)) == acking.AckOutcome(roots=7)
    assert seen.failure is not None
    assert f"Choosy neither acked nor failed the tuple word='{word}'" in seen.failure.message
    assert seen.roots[0] == ()


def test_all_grouping_several_readers_and_committers_ack_each_copy() -> None:
    """Each delivered copy of a tuple has an id of its own: two equal ones would cancel each other."""
    builder = TopologyBuilder("copies", acking="tuple")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("every", Branching(1), parallelism_hint=4).all_grouping("words")
    builder.set_bolt("some", ByHand("forgets"), parallelism_hint=2).all_grouping("words")
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("every").shuffle_grouping("some")
    builder.set_committer_bolt("counts", CountCommitter("t", ["word"]), parallelism_hint=2).shuffle_grouping("words")

    seen = run_tuples(builder.build(), WORDS)

    outcome = acking.outcome_of(*told_by_ackers(seen))
    assert outcome.roots == 7
    assert places(seen, outcome.incomplete_roots) == [(0, 1), (0, 3), (1, 0)]


class Dropping(CustomStreamGrouping):
    """Delivers nothing that begins with x."""

    def choose_tasks(self, task: int, values: Any) -> Any:
        return [] if values[0].startswith("x") else [1]


def test_a_tuple_that_goes_nowhere_is_done() -> None:
    """AK-08: without subscribers a spout tuple is acked."""
    builder = TopologyBuilder("dropped", acking="tuple")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("some", Branching(1)).custom_grouping("words", Dropping())
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("some")

    seen = run_tuples(builder.build(), WORDS)

    assert len(seen.rows("keep")) == 4
    assert seen.acks == acking.AckOutcome(roots=7)


def changed(kind: Kind, level: int, change: Any) -> tuple[Ran, list[TaskReport]]:
    """A run with one message of a kind changed before a level."""
    topology = topology_of(Branching(2), acking="tuple")
    graph, run = graph_of(topology), run_spec({"words": 1})
    engine = Engine(graph)
    reports: list[TaskReport] = []
    batch = pa.record_batch({"word": [row[0] for row in WORDS["words"][0]]})
    messages = list(engine.source(0, run, "words", 0, iter([batch]), Tally(read=5), reports.append))
    for at in range(1, graph.levels + 1):
        if at == level:
            found = next(message for message in messages if message.kind == kind and message.rows)
            messages = [*(message for message in messages if message is not found), *change(found)]
        messages = list(engine.level([run], iter(sorted(messages, key=lambda m: m[:6])), at, reports.append))
    return ran(graph, run, reports, messages), reports


def test_acks_that_get_lost_are_noticed() -> None:
    """An acker that does not hear from a task says so; it does not take silence for consent."""
    seen, _ = changed(Kind.ACK, 3, lambda message: [])

    assert seen.failure is not None
    assert seen.failure.component == "$acker"
    assert "the acks of task" in seen.failure.message


def test_a_tuple_replaced_by_another_is_noticed_though_counts_agree() -> None:
    """Acking sees what counting cannot: as many tuples as were sent, but not the same."""

    def swapped(message: Message) -> list[Message]:
        body = message.body
        assert body is not None
        first = np.zeros(body.num_rows, dtype=np.int64)
        roots = Roots.of_column(body.column(COLUMN)).take(first)
        return [
            message._replace(body=pa.record_batch({"word": body.column(0).take(pa.array(first)), COLUMN: roots.column}))
        ]

    seen, _ = changed(Kind.DATA, 1, swapped)

    assert seen.failure is None
    assert seen.acks is not None
    assert not seen.acks.complete


@pytest.mark.parametrize("mode", ["batch", "off"])
def test_without_acking_nothing_is_carried_along(mode: str) -> None:
    """`batch` and `off`: no ids at all."""
    topology = topology_of(Branching(1), acking=mode)
    engine, run = Engine(graph_of(topology)), run_spec({"words": 1})
    batch = pa.record_batch({"word": ["a"]})
    sent = list(engine.source(0, run, "words", 0, iter([batch]), Tally(), lambda report: None))
    behind = list(engine.level([run], iter(sorted(sent, key=lambda m: m[:6])), 1, lambda report: None))

    (data,) = [message for message in behind if message.kind == Kind.DATA]
    assert data.body is not None
    assert data.body.schema.names == ["word"]
    assert not [message for message in [*sent, *behind] if message.kind == Kind.ACK]


def test_a_traced_run_tracks_tuples_without_ackers() -> None:
    """A failed attempt runs again so that its source tuple can be named; nobody counts its acks."""
    seen = run_tuples(topology_of(ByHand("forgets"), acking="batch"), WORDS, traced=True)

    assert seen.failure is not None
    assert places(seen, seen.roots[0])[0] in X_PLACES
    assert seen.acks is None


def test_spout_tuples_that_the_ackers_do_not_know_are_a_failure() -> None:
    """What was emitted is what must be acked."""
    seen = run_tuples(topology_of(Branching(1)), WORDS)

    assert seen.acks is not None
    assert ack_failure(seen.graph, seen.acks, 7) is None
    failure = ack_failure(seen.graph, seen.acks, 8)
    assert failure is not None
    assert failure.message == "8 tuples were emitted, and the ackers know 7"
