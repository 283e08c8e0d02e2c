"""Spouts of a user's own on the real stores: run, stopped, gone on, and read by every command that knows files only
from other spouts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from tests.kit.audits import Audited
from tests.kit.driver import in_process
from tests.kit.fix_postgres import execute_as_superuser
from tests.unit.spouts.test_acked_spout import Broker, Queue
from tests.unit.spouts.test_partitioned_spout import OpaqueWords, Words
from tests.unit.spouts.test_spouts_end_to_end import Passing
from txtopo import CountCommitter, TopologyBuilder
from txtopo.app import drive
from txtopo.cli import main
from txtopo.config import load_settings
from txtopo.spouts.transactional import TransactionalSpout
from txtopo.testing.harness import TopologyHarness
from txtopo.topology.components import Spout

COUNTS = "select word, n from public.word_counts order by word"


def run(audited: Audited, zookeeper: str, spout: Spout) -> int:
    """To the end of its input; in the same stores each time."""
    promised: Any = "at_least_once" if spout.kind == "at_least_once" else "exactly_once"
    builder = TopologyBuilder("words", guarantee=promised)
    builder.set_spout("words", spout)
    counter = CountCommitter(table="word_counts", keys=["word"], count="n")
    builder.set_committer_bolt("counts", counter).fields_grouping("words", ["word"])
    flags = {"once": True, "dsn": audited.dsn, "zookeeper": zookeeper, "quiet": True}
    settings = load_settings(flags, cwd=Path.cwd(), environment={}, target=None)
    return drive(builder.build(), "words.py:topology", settings, in_process)


def counts(audited: Audited) -> dict[str, int]:
    with psycopg2.connect(audited.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(COUNTS)
        found: dict[str, int] = dict(cursor.fetchall())
    connection.close()
    return found


@pytest.mark.parametrize("kind", [Words, OpaqueWords])
def test_a_partitioned_source_goes_on_where_it_stood(audited: Audited, zookeeper_root: str, kind: type[Words]) -> None:
    """R12: a new driver is told what the highest txid consists of; new input, and a new partition, are counted once."""
    spout = kind(["dog", "cat", "apple"], ["cat"])
    assert run(audited, zookeeper_root, spout) == 0
    spout.source[0].append("dog")
    spout.source.append(["mango"])

    assert run(audited, zookeeper_root, spout) == 0

    assert counts(audited) == {"dog": 2, "cat": 2, "apple": 1, "mango": 1}


def test_a_source_of_messages_is_acked_by_this_driver_or_the_next(audited: Audited, zookeeper_root: str) -> None:
    """At least once a message: the next driver acks what was committed lately once more."""
    first, second = Broker(("m1", ["a"]), ("m2", ["b"]), ("m3", ["a"])), Broker()

    assert run(audited, zookeeper_root, Queue(first)) == 0
    assert run(audited, zookeeper_root, Queue(second)) == 0

    assert first.told == second.told == [("ack", "m1"), ("ack", "m2"), ("ack", "m3")]
    assert counts(audited) == {"a": 2, "b": 1}


def test_commands_that_know_files_read_batches_that_have_none(
    audited: Audited, zookeeper_root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`audit` says UNVERIFIED with the reason, and finds what Postgres alone can tell; no command falls over."""
    run(audited, zookeeper_root, Words(["dog", "cat", "apple"], ["cat"]))

    code, report = audited.audit(topology="words")
    assert (code, report["verdict"]) == (3, "UNVERIFIED")
    assert {one["message"] for one in report["findings"]} == {"there is no independent recount of this kind of spout"}
    for command in (
        ["batches", "words"],
        ["status", "words"],
        ["show", "words", "1"],
        ["trace", "words", "--table", "word_counts", "--key", "word=dog"],
        ["audit", "words", "--no-recount"],
    ):
        assert main([*command, "--json"]) in (0, 3), command
        assert main(command) in (0, 3), command
        said = capsys.readouterr()
        assert said.out
        assert "Traceback" not in said.err

    execute_as_superuser(audited.dsn, sql.SQL("update public.word_counts set n = n + 1 where word = 'dog'"))
    assert audited.audit(topology="words")[1]["verdict"] == "MISMATCH"


class Squares(TransactionalSpout):
    """DataFrames of Spark's own, ten rows a batch, two batches."""

    outputs = ["n bigint", "square bigint"]
    emits_frame = True

    def __init__(self) -> None:
        self.start = 0

    def is_ready(self) -> bool:
        return self.start < 20

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        start = 0 if previous is None else previous["start"] + 10
        self.start = start + 10
        return {"start": start}

    def emit_frame(self, spark: Any, metadata: Any) -> Any:
        start = metadata["start"]
        return spark.range(start, start + 10).selectExpr("id as n", "id * id as square")


def test_a_spout_may_emit_dataframes(spark_session: Any) -> None:
    """Emitters may give a DataFrame: Spark's own readers, the same rows for the same metadata."""
    builder = TopologyBuilder("squares")
    builder.set_spout("squares", Squares())
    counter = CountCommitter(table="by_n", keys=["n"], count="rows", sums=["square"])
    builder.set_committer_bolt("by_n", counter).fields_grouping("squares", ["n"])

    with TopologyHarness(builder.build(), session=spark_session) as harness:
        harness.run()

    assert [(batch.txid, batch.read) for batch in harness.batches] == [(1, 10), (2, 10)]
    assert dict(harness.table("by_n")) == {(n,): (1, n * n) for n in range(20)}


@pytest.mark.parametrize("with_bolt", [False, True])
def test_several_spouts_share_the_txid_on_spark(spark_session: Any, with_bolt: bool) -> None:
    """Also while one of them is idle, with tuple bolts and without."""
    broker = Broker(*((f"m{number}", ["elk"]) for number in range(5)))
    builder = TopologyBuilder("both", guarantee="at_least_once")
    builder.set_spout("words", Words(["dog", "cat", "apple"], ["cat"]))
    builder.set_spout("queue", Queue(broker))
    for spout in ("words", "queue"):
        source = spout
        if with_bolt:
            source = f"passing_{spout}"
            builder.set_bolt(source, Passing()).shuffle_grouping(spout)
        counter = CountCommitter(table=f"count_{spout}", keys=["word"], count="n")
        builder.set_committer_bolt(f"counts_{spout}", counter).fields_grouping(source, ["word"])

    with TopologyHarness(builder.build(), session=spark_session) as harness:
        harness.run()

    assert [batch.read for batch in harness.batches] == [3 + 2, 1 + 2, 1]
    assert dict(harness.table("count_words")) == {("dog",): (1,), ("cat",): (2,), ("apple",): (1,)}
    assert dict(harness.table("count_queue")) == {("elk",): (5,)}
    assert broker.told == [("ack", f"m{number}") for number in range(5)]
