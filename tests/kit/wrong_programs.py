"""Mistakes in programs that use txtopo, each with what mypy and pyright say of it. Checked as text, never imported."""

from __future__ import annotations

WRONG = """
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import txtopo
from txtopo import ClassTopology, CountCommitter, FileSpout, Grouping, RunSettings, Topology, TopologyBuilder, spec
from txtopo.bolts import BasicBolt, BasicOutputCollector, BatchCommitter, CommitCollector, CommitTransaction, Tuple
from txtopo.client import BatchRow, Client
from txtopo.spouts import TransactionalSpout
from txtopo.testing import FeederTopology, TopologyHarness


def settings(topology: Topology, session: SparkSession) -> None:
    txtopo.run(topology, onec=True)  # call-arg reportCallIssue: misspelt
    topology.run_cli(dns="postgresql://db/warehouse")  # call-arg reportCallIssue: misspelt
    topology.run(workers="four")  # arg-type reportArgumentType: text for a number
    txtopo.run(topology, on_poison="skip")  # arg-type reportArgumentType: no such policy
    txtopo.run(topology, session)  # call-arg reportCallIssue: the session has a name
    txtopo.run(TopologyBuilder("orders"))  # arg-type reportArgumentType: not built
    kept: RunSettings = {"once": True, "atempts_max": 2}  # typeddict-unknown-key reportAssignmentType: misspelt
    txtopo.run(topology, **kept)


def results(topology: Topology) -> str:
    txtopo.run(topology).last_tixd  # attr-defined reportAttributeAccessIssue: misspelt
    if txtopo.run(topology).ended == "halted":  # comparison-overlap reportUnnecessaryComparison: it raises then
        return "halted"
    try:
        txtopo.run(topology)
    except txtopo.Halted as halted:
        return halted.txid  # return-value reportReturnType: a number, or None
    except txtopo.StoreAway:  # attr-defined reportAttributeAccessIssue: no such error
        return "away"
    return txtopo.run(topology)  # return-value reportReturnType: a RunResult


def keeps(orders: DataFrame) -> DataFrame:
    return orders


def counts(orders: DataFrame) -> int:
    return orders.count()


class Shout(BasicBolt):
    outputs = ["word string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tup["word"].upper(), "loud", 3)  # call-arg reportCallIssue: only values and a stream
        collector.emit(3)  # arg-type reportArgumentType: no sequence of values


class Whisper(BasicBolt):
    outputs = ["whisper string"]

    def execute(self, tup: Tuple) -> None:  # override reportIncompatibleMethodOverride: no collector
        print(tup["word"])


class Adds(BatchCommitter):
    def commit(  # override reportIncompatibleMethodOverride: a number of rows, or None
        self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector
    ) -> str:
        transaction.commit()  # attr-defined reportAttributeAccessIssue: txtopo commits
        return "done"


class Frames(TransactionalSpout):
    emits_frame = True

    def emit_frame(  # override reportIncompatibleMethodOverride: no DataFrame
        self, spark: SparkSession, metadata: Any
    ) -> list[int]:
        return [1]


class Days(TransactionalSpout):
    outputs = ["day date"]

    def __init__(self, folder: str) -> None:
        self.folder = folder


class Orders(ClassTopology, nmae="orders"):  # call-arg reportCallIssue: misspelt
    days = Days.spec("days")


def topologies(builder: TopologyBuilder, spout: FileSpout) -> None:
    builder.set_spout("days", Days(17))  # arg-type reportArgumentType: a number for text
    print(Days("days").fodler)  # attr-defined reportAttributeAccessIssue: misspelt
    builder.set_spout("shout", Shout())  # arg-type reportArgumentType: a bolt
    builder.set_bolt("orders", spout)  # call-overload reportArgumentType: a spout
    builder.set_bolt("count", counts, inputs="orders")  # arg-type reportArgumentType: no DataFrame
    builder.set_bolt("keeps", keeps, inputs="orders", rows="all")  # call-overload reportArgumentType: no such promise
    builder.set_bolt("keeps", keeps, parallelism_hint=2)  # call-overload reportArgumentType: Spark spreads functions
    builder.set_bolt("shout", Shout(), fields="word string")  # call-overload reportArgumentType: its class has outputs
    builder.set_bolt("shout", Shout()).field_grouping("a", ["b"])  # attr-defined reportAttributeAccessIssue: misspelt
    builder.set_committer_bolt("counts", CountCommitter("a", ["b"], sum=["c"]))  # call-arg reportCallIssue: sums
    TopologyBuilder("orders", acking="yes")  # arg-type reportArgumentType: no such acking
    FileSpout("orders", "shop string", on_bad_line="skip")  # arg-type reportArgumentType: reject or fail
    Shout.spec(par="two")  # arg-type reportArgumentType: text for a number
    spec(counts)  # arg-type reportArgumentType: no DataFrame
    Grouping("shufle")  # arg-type reportArgumentType: misspelt


def reports(client: Client) -> list[BatchRow]:
    client.batches("orders", state="done")  # arg-type reportArgumentType: no such state
    client.batches("orders", 17)  # arg-type reportArgumentType: spans are pairs
    client.status("orders").sate  # attr-defined reportAttributeAccessIssue: misspelt
    client.skip("orders", 3)  # call-arg reportCallIssue: a reason is needed
    client.wait("orders", client.retry("orders"))  # arg-type reportArgumentType: None where there is nothing to do
    client.audit("orders").verdict == "match"  # - reportUnnecessaryComparison: MATCH
    return client.batches("orders")  # return-value reportReturnType: rows


def tests(topology: Topology) -> None:
    TopologyHarness(topology, atempts_max=1)  # call-arg reportCallIssue: misspelt
    with TopologyHarness(topology) as harness:
        harness.fail_commit(1, kind="network")  # arg-type reportArgumentType: no such kind
        harness.run().kind  # union-attr reportOptionalMemberAccess: None where it waits
        harness.batches[0].state == "committed"  # comparison-overlap reportUnnecessaryComparison: applied
    FeederTopology(topology).feed(words=("a",))  # call-arg reportCallIssue: the spout comes first
"""
"""At the end of a line with a mistake: code of mypy (- if it does not find it), rule of pyright: what is wrong."""
