"""Asks queries of a topology: from one state of the database, which the row of the fence names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.batch_transaction import PostgresTransaction
from txtopo.core.values import TransactionAttempt
from txtopo.errors import unreachable
from txtopo.reports.not_found import no_topology
from txtopo.reports.read import read_names
from txtopo.topology.components import Topology
from txtopo.topology.queries import QueryAnswer, find_query
from txtopo.trident.answering import answer

_FENCE = "select last_txid, epoch from txtopo.fence where topology = %(topology)s"


def ask_without_tables(topology: Topology, name: str, questions: Sequence[Sequence[Any]]) -> QueryAnswer | None:
    """Return the answer of a query that reads no table; None if it reads some."""
    query = find_query(topology, name)
    if query.tables:
        return None
    rows = answer(query, questions, TransactionAttempt(0, 0), lambda step: unreachable(f"{step} reads no table"))
    return QueryAnswer(rows=rows, txid=None, epoch=None)


def ask_in(connection: Connection, topology: Topology, name: str, questions: Sequence[Sequence[Any]]) -> QueryAnswer:
    """Return the answer of a query. The connection must see one state of the database throughout, as that of
    `reports.read.reading` does.

    Raises NotFoundError if the topology has never run, and as `answer`.
    """
    query = find_query(topology, name)
    fence = connection.exec_driver_sql(_FENCE, {"topology": topology.name}).one_or_none()
    if fence is None:
        raise no_topology(topology.name, read_names(connection))
    txid, epoch = map(int, fence)
    attempt = TransactionAttempt(txid, 0)
    rows = answer(query, questions, attempt, lambda step: PostgresTransaction(connection, step, attempt, None))
    return QueryAnswer(rows=rows, txid=txid, epoch=epoch)
