"""What somebody who writes a first topology gets wrong, and what is said: what, where, and what to do."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from txtopo import CountCommitter, FileSpout, Grouping, Topology, TopologyBuilder
from txtopo.bolts import ArrowBolt, BasicBolt, BatchBolt, BatchCommitter, CustomStreamGrouping, RichBolt
from txtopo.core.fields import parse_fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import ConfigurationError, Halted, TopologyError
from txtopo.spark.tuples.tuple_order import Ordered, SourceTask
from txtopo.spark.tuples.tuple_tasks import emit
from txtopo.spouts import NOTHING, PartitionedTransactionalSpout, ReliableSpout
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Tally
from txtopo.topology.streams import Origin, Tuple
from txtopo.tuples.message import RunSpec


class Words(PartitionedTransactionalSpout):
    outputs = ["word string", "n int"]

    def number_of_partitions(self) -> int:
        return 1

    def next_range(self, partition: int, last: Any) -> Any:
        return NOTHING if last else {"all": True}

    def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Any:
        return [("a", 1), ("b", 2)]


class Pass(BasicBolt):
    outputs = ["word string", "n int"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


def topology(bolt: Any = None, *, spout: Any = None, custom: Any = None) -> Topology:
    builder = TopologyBuilder("first")
    builder.set_spout("words", spout or Words())
    declarer = builder.set_bolt("bolt", bolt or Pass())
    if custom is None:
        declarer.shuffle_grouping("words")
    else:
        declarer.custom_grouping("words", custom)
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("bolt", ["word"])
    return builder.build()


def said(wrong: Topology) -> str:
    with TopologyHarness(wrong, attempts_max=1) as harness, pytest.raises(Halted) as caught:
        harness.run()
    return str(caught.value)


def test_a_field_that_a_tuple_does_not_have_is_named_with_those_that_it_has() -> None:
    class Misspelt(Pass):
        def execute(self, tup: Any, collector: Any) -> None:
            collector.emit((tup["wrod"], 1))

    message = said(topology(Misspelt()))

    assert "test_mistakes.py:" in message
    assert "the tuple has no field 'wrod'; it has word, n; on word='a', n=1" in message


def test_a_missing_field_is_still_a_key_error() -> None:
    """`tup[...]` raises KeyError for a field that the stream does not declare."""
    tup = Tuple(("a", 1), Origin("words", "default", 1, parse_fields("word string, n int")))

    assert (tup["n"], tup[1], tup[-2]) == (1, 1, "a")
    with pytest.raises(KeyError, match="no field 2; it has word, n"):
        tup[2]


@pytest.mark.parametrize("kind", [Pass, BatchCommitter])
def test_a_bolt_that_holds_what_cannot_be_copied_is_refused_when_it_is_set(kind: type) -> None:
    """In Storm a bolt that is not serializable is refused at setBolt."""

    class Locked(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            self.fine = [1]
            self.guards = {"deep": threading.Lock()}

        def commit(self, transaction: Any, rows: Any, collector: Any) -> None:
            """Nothing."""

    builder = TopologyBuilder("first")
    with pytest.raises(TopologyError) as caught:
        (builder.set_committer_bolt if kind is BatchCommitter else builder.set_bolt)("locked", Locked())

    assert "bolt 'locked': Locked cannot be copied into tasks: guards: cannot pickle '_thread.lock' object" in str(
        caught.value
    )
    assert "make such a thing in `prepare`" in str(caught.value)


@pytest.mark.parametrize("returned", [1, None])
def test_a_custom_grouping_that_returns_no_list_is_told_so(returned: Any) -> None:
    class One(CustomStreamGrouping):
        def choose_tasks(self, task: int, values: Any) -> Any:
            return returned

    message = said(topology(custom=One()))

    assert (
        f"words -> bolt: choose_tasks of One returned {returned}, which is not a list of task ids; on word='a'"
        in message
    )


def test_a_custom_grouping_that_raises_in_prepare_is_shown_with_its_line() -> None:
    class Wrong(CustomStreamGrouping):
        def prepare(self, source: str, stream: str, fields: Any, targets: Any) -> None:
            fields.index("word")

        def choose_tasks(self, task: int, values: Any) -> Any:
            return []

    assert "test_mistakes.py:" in said(topology(custom=Wrong()))


def test_an_emitter_that_forgets_to_yield_is_told_so() -> None:
    class Silent(Words):
        def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Any:
            """Nothing."""

    message = said(topology(spout=Silent()))

    assert "partition 0: the emitter returned None instead of tuples: `yield` each tuple" in message


def test_an_emitter_that_raises_is_shown_with_its_line() -> None:
    class Broken(Words):
        def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Any:
            raise ValueError("nothing there")

    message = said(topology(spout=Broken()))

    assert "test_mistakes.py:" in message
    assert "ValueError: nothing there" in message


@pytest.mark.parametrize("given", [TopologyBuilder("first"), TopologyBuilder])
def test_a_harness_that_is_given_no_topology_says_so(given: Any) -> None:
    with pytest.raises(TopologyError, match="TopologyBuilder is not a topology: give the harness what build"):
        TopologyHarness(given)


def test_on_spark_too_an_emitter_that_raises_at_once_does_so_where_failures_are_noted() -> None:
    """A spout's exception is its own failure, under its own name, and never one of a Spark task."""

    class Broken(Words):
        def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Any:
            raise ValueError("nothing there")

    attempt = TransactionAttempt(1, 0)
    spec = RunSpec(run="1", attempt=attempt, traced=False, excluded={}, sources={"words": 1})
    metadata = {"partitions": [{"range": {"all": True}}]}
    run = Ordered(spec=spec, metadata={"words": metadata}, parts={"words": [{"partition": 0}]})

    emitted = emit(Broken(), run, SourceTask(run=0, name="words", index=0), Tally(attempt=attempt))

    with pytest.raises(ValueError, match="nothing there"):
        next(emitted)


def test_a_harness_refuses_a_policy_that_there_is_not() -> None:
    with pytest.raises(
        ConfigurationError, match="on_poison must be halt or quarantine_batch or dead_letter_rows, not 'skip'"
    ):
        TopologyHarness(topology(), on_poison="skip")  # type: ignore[arg-type]


def test_what_a_bolt_returns_is_not_lost_without_a_word() -> None:
    class Returns(Pass):
        def execute(self, tup: Any, collector: Any) -> Any:
            return (tup["word"], tup["n"])

    message = said(topology(Returns()))

    assert "bolt" in message
    assert "execute returned a value, which goes nowhere: emit it with the collector" in message


def test_a_basic_bolt_that_waits_for_the_end_of_the_batch_is_told_which_bolt_does() -> None:
    class Waits(Pass):
        def finish_batch(self) -> None:
            """Never called."""

    with pytest.raises(
        TopologyError, match="Waits has a finish_batch, which is never called on a BasicBolt: derive it from BatchBolt"
    ):
        topology(Waits())


def test_storms_order_of_arguments_is_recognised() -> None:
    class Storms(RichBolt):
        outputs = ["word string", "n int"]

        def prepare(self, config: Any, context: Any, collector: Any) -> None:
            self.collector = collector

        def execute(self, tup: Any) -> None:
            self.collector.emit(tup, [tup["word"], 1])

    assert "emit takes values first, then a stream's name: emit(values, anchors=[tuple])" in said(topology(Storms()))


class Rich(RichBolt):
    """Acks, fails and anchors on whatever `wrong` says."""

    outputs = ["word string", "n int"]

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Any) -> Any:
        match self.wrong:
            case "ack":
                self.collector.ack(tup["word"])
            case "fail":
                self.collector.fail([tup])
            case "anchors":
                self.collector.emit(tup.values, anchors=[5])
            case "none":
                self.collector.emit(tup.values, anchors=None)
            case "returned":
                return tup.values
        self.collector.ack(tup)
        return None


@pytest.mark.parametrize("acking", ["batch", "tuple", "off"])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("ack", "TypeError: ack needs a tuple that the bolt received, not 'a' (str)"),
        (
            "fail",
            "TypeError: fail needs a tuple that the bolt received, not [Tuple(words:default word='a', n=1)] (list)",
        ),
        ("anchors", "TypeError: anchors needs a tuple that the bolt received, not 5 (int)"),
        ("none", "TypeError: anchors=None: a tuple that the bolt was given is wanted, or a list of them"),
        ("returned", "TypeError: execute returned a value, which goes nowhere"),
    ],
)
def test_what_is_no_tuple_is_refused_whatever_the_acking(acking: Any, wrong: str, told: str) -> None:
    """A bolt that is wrong with acking by tuple is wrong without, in its own line and with the tuple at hand."""
    builder = TopologyBuilder("first", acking=acking)
    builder.set_spout("words", Words())
    builder.set_bolt("bolt", Rich(wrong)).shuffle_grouping("words")
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("bolt", ["word"])

    message = said(builder.build())

    assert told in message
    assert "failed in bolt" in message
    assert "on partition 0 tuple 1" in message


class Ends(BatchBolt):
    outputs = ["word string", "n int"]

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.rows: list[Any] = []

    def execute(self, tup: Any) -> None:
        self.rows.append(tup.values)

    def finish_batch(self) -> Any:
        return self.rows


class Arrow(ArrowBolt):
    outputs = ["word string", "n int"]

    def execute(self, batch: Any, collector: Any) -> Any:
        return batch


class ArrowEnds(Arrow):
    def execute(self, batch: Any, collector: Any) -> Any:
        """Nothing yet."""

    def finish_batch(self, collector: Any) -> Any:
        return [1]


@pytest.mark.parametrize(
    ("bolt", "method"), [(Ends(), "finish_batch"), (Arrow(), "execute"), (ArrowEnds(), "finish_batch")]
)
def test_what_any_method_returns_is_not_lost_without_a_word(bolt: Any, method: str) -> None:
    assert f"{method} returned a value, which goes nowhere: emit it with the collector" in said(topology(bolt))


class Queue(ReliableSpout):
    outputs = ["word string", "n int"]

    def next_tuple(self, collector: Any) -> Any:
        return ("a", 1)


def test_a_message_that_is_returned_is_not_lost_without_a_word() -> None:
    assert "next_tuple returned a value, which goes nowhere: emit it with the collector" in said(queue(Queue()))


def queue(spout: Any) -> Topology:
    builder = TopologyBuilder("queue", guarantee="at_least_once")
    builder.set_spout("words", spout)
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("words", ["word"])
    return builder.build()


def test_a_spout_whose_code_would_never_run_is_refused() -> None:
    class Yields(Queue):
        def next_tuple(self, collector: Any) -> Any:
            yield ("a", 1)

    class Awaits(Words):
        async def next_range(self, partition: int, last: Any) -> Any:
            return NOTHING

    class Prepares(CustomStreamGrouping):
        def prepare(self, source: Any, stream: Any, fields: Any, targets: Any) -> Any:
            yield targets

        def choose_tasks(self, task: int, values: Any) -> Any:
            return []

    with pytest.raises(
        TopologyError, match=r"spout 'words': Yields\.next_tuple is a generator.*its code would never run"
    ):
        queue(Yields())
    with pytest.raises(TopologyError, match=r"spout 'words': Awaits\.next_range is a coroutine"):
        topology(spout=Awaits())
    with pytest.raises(TopologyError, match=r"'bolt': custom_grouping\('words'\): Prepares\.prepare is a generator"):
        topology(custom=Prepares())


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "many"])
def test_a_batch_of_no_size_is_refused(size: Any) -> None:
    with pytest.raises(TopologyError, match=r"Sized\.batch_size = .* is not a number of tuples of 1 or more"):
        type("Sized", (Queue,), {"batch_size": size})


def test_a_spout_that_cannot_be_copied_into_tasks_says_what_it_is() -> None:
    class Locked(Words):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(
        TopologyError, match=r"Locked cannot be copied into tasks: lock: .*make such a thing where it is first needed"
    ):
        topology(spout=Locked())


def test_a_grouping_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(TopologyError, match=r"Grouping\('shufle'\) is none of fields, partial_key"):
        Grouping("shufle")  # type: ignore[arg-type]


def test_an_error_that_cannot_be_told_still_names_its_tuple() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    class Raises(Pass):
        def execute(self, tup: Any, collector: Any) -> None:
            raise Mute

    assert ": Mute; on word='a', n=1" in said(topology(Raises()))


def test_a_value_that_does_not_fit_cannot_be_swallowed_in_a_run_that_is_committed() -> None:
    """With dead letters the batch is traced; `emit` then raises at once, and a bolt that catches that must not make the
    row disappear.
    """

    class Swallows(BasicBolt):
        outputs = ["word string", "n tinyint"]

        def execute(self, tup: Any, collector: Any) -> None:
            if tup["n"] == 1:
                raise ValueError("one")
            try:
                collector.emit((tup["word"], tup["n"] * 100))
            except Exception:
                pass

    builder = TopologyBuilder("first")
    builder.set_spout("words", Words())
    builder.set_bolt("passing", Pass()).shuffle_grouping("words")
    builder.set_bolt("bolt", Swallows()).shuffle_grouping("passing")
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("bolt", ["word"])
    with TopologyHarness(builder.build(), on_poison="dead_letter_rows", attempts_max=1) as harness:
        harness.run()

        assert [letter.reason.partition(": ")[2] for letter in harness.dead_letters] == [
            "ValueError: one; on word='a', n=1",
            (
                "bolt, stream default: field n: 200 (int) is no tinyint: Value 200 too large to fit in C integer type; "
                "on word='b', n=2"
            ),
        ]
        assert harness.table("counts") == {}


@pytest.mark.parametrize(
    ("mistaken", "told"),
    [
        (
            lambda: FileSpout("texts", ["line string"]),  # type: ignore[arg-type]
            r"fields \['line string'\] is not text: write 'a string, b int'",
        ),
        (lambda: type("Nothing", (Words,), {"outputs": None}), "Nothing.outputs = None is not a list of fields"),
        (lambda: type("Numbers", (Words,), {"outputs": [1]}), r"Numbers.outputs = \[1\] is not a list of fields"),
    ],
)
def test_fields_of_another_shape_are_refused_in_words(mistaken: Any, told: str) -> None:
    """And not with the AttributeError that comes of them."""
    with pytest.raises(TopologyError, match=told):
        mistaken()


class Bad(Pass):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["word"] == "a":
            raise ValueError("no a")
        collector.emit(tup.values)


def configured(**config: Any) -> Topology:
    return replace(topology(Bad()), config=config)


def test_a_harness_goes_by_the_settings_of_the_topology_as_a_run_does() -> None:
    """`config` of the topology says what becomes of a bad record, here as there; a keyword of the test is stronger."""
    with TopologyHarness(configured(on_poison="dead_letter_rows", attempts_max=1)) as harness:
        harness.run()
        assert [(batch.attempt, batch.dead_lettered) for batch in harness.batches] == [(1, 1)]
    with TopologyHarness(configured(on_poison="dead_letter_rows", attempts_max=1), on_poison="halt") as harness:
        with pytest.raises(Halted, match="1 attempt failed"):
            harness.run()
    with pytest.raises(ConfigurationError, match="on_poison"):
        TopologyHarness(configured(on_poison="dead_letter"))
