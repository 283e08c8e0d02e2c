"""Transactional batch topologies on Spark: every batch is committed into Postgres exactly once, in order.

A topology counts the flights in a folder of CSV files, one file one batch:

    import txtopo

    builder = txtopo.TopologyBuilder("flights")
    builder.set_spout("departures", txtopo.FileSpout("flights", "carrier string, distance int"))
    counts = txtopo.CountCommitter("by_carrier", ["carrier"], count="flights", sums=["distance"])
    builder.set_committer_bolt("by_carrier", counts).fields_grouping("departures", ["carrier"])
    topology = builder.build()
    result = txtopo.run(topology, once=True)

`txtopo dev up` starts Postgres and ZooKeeper on this machine, to try it. For other services, give `dsn=` and
`zookeeper=`, or write them into `txtopo.toml`. `run` returns how the run ended, or raises a TxtopoError.
`topology.run_cli()` is for the end of a script: it prints errors and returns the exit code. `txtopo.connect(dsn)` reads
what was committed.

Public are the names in `__all__` of these modules; they change only with a note in CHANGELOG.md:

    txtopo            topologies, running them, reading what they did, errors
    txtopo.client     the types of what a client returns
    txtopo.bolts      what bolts and committers are written with
    txtopo.spouts     what spouts are written with
    txtopo.formats    formats of files, and what further ones are written with
    txtopo.errors     the errors of runs, with their exit codes
    txtopo.testing    harnesses that run a topology in a test, without services

Every other module and name is internal and may change in any release.

More: docs/python.md on Python programs, docs/bolts.md on bolts, docs/operating.md on running in production.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txtopo._lazy import lazy_exports
from txtopo._version import __version__
from txtopo.topology import launch as _launch
from txtopo.topology import queries as _queries

if TYPE_CHECKING:
    from txtopo.client import Client, connect
    from txtopo.committers.aggregate_committer import AggregateCommitter
    from txtopo.committers.append_committer import AppendCommitter
    from txtopo.committers.count_committer import CountCommitter
    from txtopo.committers.new_ids import NewIds
    from txtopo.committers.replace_committer import ReplaceCommitter
    from txtopo.committers.upsert_committer import UpsertCommitter
    from txtopo.core.fields import Fields
    from txtopo.core.state import PoisonPolicy
    from txtopo.core.values import TransactionAttempt
    from txtopo.driver.run_result import RunResult
    from txtopo.errors import (
        ConfigurationError,
        ExecutorLost,
        Fenced,
        Halted,
        NotFoundError,
        StoreUnavailable,
        TopologyError,
        TxtopoError,
    )
    from txtopo.operating.dry_runs import NotOrderedError
    from txtopo.operating.orders import OrderOpenError, RefusedError
    from txtopo.run_settings import RunSettings
    from txtopo.running import run
    from txtopo.spouts.file_spout import FileSpout
    from txtopo.spouts.kafka_spout import KafkaSpout
    from txtopo.spouts.sql_table_spout import SqlTableSpout
    from txtopo.spouts.table_spout import TableSpout
    from txtopo.spouts.tail_spout import TailSpout
    from txtopo.topology.builder import TopologyBuilder
    from txtopo.topology.class_style import ClassTopology
    from txtopo.topology.committer_bolt import CommitterBolt
    from txtopo.topology.components import Acking, Guarantee, Topology
    from txtopo.topology.declarer import BoltDeclarer
    from txtopo.topology.queries import QueryAnswer
    from txtopo.topology.spark_types import RowsPromise
    from txtopo.topology.specs import Grouping, Spec, spec

_HOMES = {
    "Acking": "txtopo.topology.components",
    "AggregateCommitter": "txtopo.committers.aggregate_committer",
    "AppendCommitter": "txtopo.committers.append_committer",
    "BoltDeclarer": "txtopo.topology.declarer",
    "ClassTopology": "txtopo.topology.class_style",
    "Client": "txtopo.client",
    "CommitterBolt": "txtopo.topology.components",
    "ConfigurationError": "txtopo.errors",
    "CountCommitter": "txtopo.committers.count_committer",
    "ExecutorLost": "txtopo.errors",
    "Fenced": "txtopo.errors",
    "Fields": "txtopo.core.fields",
    "FileSpout": "txtopo.spouts.file_spout",
    "KafkaSpout": "txtopo.spouts.kafka_spout",
    "Grouping": "txtopo.topology.specs",
    "Guarantee": "txtopo.topology.components",
    "Halted": "txtopo.errors",
    "NewIds": "txtopo.committers.new_ids",
    "NotFoundError": "txtopo.errors",
    "NotOrderedError": "txtopo.operating.dry_runs",
    "OrderOpenError": "txtopo.operating.orders",
    "PoisonPolicy": "txtopo.core.state",
    "RefusedError": "txtopo.operating.orders",
    "ReplaceCommitter": "txtopo.committers.replace_committer",
    "RowsPromise": "txtopo.topology.spark_types",
    "RunResult": "txtopo.driver.run_result",
    "RunSettings": "txtopo.run_settings",
    "Spec": "txtopo.topology.specs",
    "StoreUnavailable": "txtopo.errors",
    "SqlTableSpout": "txtopo.spouts.sql_table_spout",
    "TableSpout": "txtopo.spouts.table_spout",
    "TailSpout": "txtopo.spouts.tail_spout",
    "Topology": "txtopo.topology.components",
    "TopologyBuilder": "txtopo.topology.builder",
    "TopologyError": "txtopo.errors",
    "TransactionAttempt": "txtopo.core.values",
    "TxtopoError": "txtopo.errors",
    "UpsertCommitter": "txtopo.committers.upsert_committer",
    "connect": "txtopo.client",
    "run": "txtopo.running",
    "spec": "txtopo.topology.specs",
}

__all__ = [
    "Acking",
    "AggregateCommitter",
    "AppendCommitter",
    "BoltDeclarer",
    "ClassTopology",
    "Client",
    "CommitterBolt",
    "ConfigurationError",
    "CountCommitter",
    "ExecutorLost",
    "Fenced",
    "Fields",
    "FileSpout",
    "Grouping",
    "Guarantee",
    "Halted",
    "KafkaSpout",
    "NewIds",
    "NotFoundError",
    "NotOrderedError",
    "OrderOpenError",
    "PoisonPolicy",
    "RefusedError",
    "ReplaceCommitter",
    "RowsPromise",
    "RunResult",
    "RunSettings",
    "Spec",
    "StoreUnavailable",
    "SqlTableSpout",
    "TableSpout",
    "TailSpout",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "TransactionAttempt",
    "TxtopoError",
    "UpsertCommitter",
    "__version__",
    "connect",
    "run",
    "spec",
]

# Commands that need neither Arrow nor SQLAlchemy must not wait for them.
if not TYPE_CHECKING:  # a type checker would take it for a promise of every name
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)


def _run_cli(topology: Topology, settings: RunSettings) -> int:
    from txtopo.running import run_cli

    return run_cli(topology, **settings)


def _ask(topology: Topology, name: str, questions: Sequence[Sequence[Any]], dsn: str | None) -> QueryAnswer:
    from txtopo.client import connect
    from txtopo.operating.ask_queries import ask_without_tables

    answer = ask_without_tables(topology, name, questions)
    return connect(dsn).query(topology, name, *questions) if answer is None else answer


# The topology room must not import the driver.
_launch.launch_with(_run_cli)
_queries.ask_with(_ask)
