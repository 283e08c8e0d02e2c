"""Typed values about what happened to topologies, for Python programs, and orders to the leader of a topology."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from txtopo._version import __version__
from txtopo.audit.verdicts import (
    ActionTaken,
    AttemptFailure,
    Auditor,
    AuditReport,
    BatchVerdict,
    ByDesign,
    CheckResult,
    Finding,
    Head,
    LastAction,
    OrderGiven,
    Unbatched,
    Verdict,
)
from txtopo.core.values import OrderKind
from txtopo.errors import NotFoundError
from txtopo.operating import dry_runs
from txtopo.operating.backfills import preview_backfill
from txtopo.operating.dry_runs import OrderPreview, PreviewedBatch, PreviewKind
from txtopo.operating.orders import LEADERLESS_S, NewOrder, OrderOpenError, RefusedError, follow, place, withdraw
from txtopo.reports import read, trace
from txtopo.reports.interventions import read_orders
from txtopo.reports.list_batches import Span
from txtopo.reports.model import (
    ActionRow,
    AttemptRow,
    AttemptState,
    BackfillLink,
    BatchDetail,
    BatchRow,
    BatchState,
    CommitterNumbers,
    DeadLetterRow,
    EdgeNumbers,
    FailureCounts,
    LastLeader,
    LedgerSummary,
    OpenOrder,
    OrderRow,
    OrderState,
    RedoLink,
    RejectedRecord,
    SourceFile,
    TopologyState,
    TopologyStatus,
)
from txtopo.reports.not_found import nearest, no_batch, no_topology
from txtopo.reports.tables import Rows
from txtopo.reports.timeline import EventKind, Timeline, TimelineEvent
from txtopo.reports.trace import Contribution, Target, Trace, UntraceableError
from txtopo.topology.components import Topology
from txtopo.topology.queries import QueryAnswer, StreamQuery


def connect(dsn: str | None = None) -> Client:
    """Return a client of the database `dsn`, by default that of TXTOPO_DSN, `txtopo.toml` or the services of `txtopo
    dev up`.

    Opens no connection yet. Raises ConfigurationError if no database is configured.
    """
    from txtopo.config import load_settings
    from txtopo.local.services import running_dev

    settings = load_settings({"dsn": dsn}, cwd=Path.cwd(), environment=os.environ)
    return Client(str(settings.with_services(running_dev, zookeeper=False).dsn))


class Client:
    """Reads the database of topologies and gives orders to their leaders. Needs neither Spark nor ZooKeeper.

    Each call opens a connection, reads one consistent state of the database and closes the connection. `with` is
    optional: it only shows where a program needs the client. Reading needs no privilege but SELECT.

    Every method raises StoreUnavailable if Postgres does not answer, ConfigurationError if the database has no
    up-to-date schema `txtopo`, and NotFoundError if the topology or batch does not exist.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does nothing: no connection is open between two calls."""

    def topologies(self) -> Rows[TopologyStatus]:
        """Return all topologies, by name."""
        with read.reading(self._dsn) as connection:
            return Rows(TopologyStatus, read.read_topologies(connection))

    def status(self, topology: str) -> TopologyStatus:
        """Return the health and progress of a topology: `state`, `last_txid`, `is_bad`, `next_commands`, …"""
        with read.reading(self._dsn) as connection:
            return read.read_status(connection, topology)

    def batches(self, topology: str, *spans: Span, state: BatchState | None = None, limit: int = 20) -> Rows[BatchRow]:
        """Return batches, the newest first, at most `limit`. `spans` are ranges of txids, such as (17, 42), (17, None)
        or (None, 42); `state` selects the batches in this state.
        """
        with read.reading(self._dsn) as connection:
            found = read.read_batches(connection, topology, spans=spans, state=state, limit=limit)
            if found is None:
                raise no_topology(topology, read.read_names(connection))
        return Rows(BatchRow, found)

    def batch(self, topology: str, txid: int, *, rejects: int | None = read.REJECTS_SHOWN) -> BatchDetail:
        """Return everything known about one batch, with at most `rejects` of its rejected rows; None: all."""
        with read.reading(self._dsn) as connection:
            found = read.read_batch(connection, topology, txid, rejects=rejects)
            if found is None:
                known = read.read_topologies(connection)
                raise no_batch(topology, txid, {one.topology: one.planned_txid for one in known})
        return found

    def events(self, topology: str, txid: int | None = None, *, limit: int = 100) -> Rows[TimelineEvent]:
        """Return the last `limit` events of a topology, or of one of its batches, oldest first."""
        with read.reading(self._dsn) as connection:
            found = Timeline(topology, txid).last(connection, limit)
            if found is None:
                raise no_topology(topology, read.read_names(connection))
        return Rows(TimelineEvent, found)

    def follow(self, topology: str, txid: int | None = None, *, limit: int = 100) -> Iterator[Rows[TimelineEvent]]:
        """Yield the last `limit` events, then new ones as they happen. Each step reads the database once and may find
        nothing; the caller decides how long to wait between two steps.
        """
        timeline = Timeline(topology, txid)
        with read.reading(self._dsn) as connection:
            found = timeline.last(connection, limit, is_followed=True)
            if found is None:
                raise no_topology(topology, read.read_names(connection))
        while True:
            yield Rows(TimelineEvent, found)
            with read.reading(self._dsn) as connection:
                found = timeline.new(connection)

    def query(self, topology: Topology, name: str, *questions: Sequence[Any]) -> QueryAnswer:
        """Ask a query of a topology, with a value for each of its fields in each question. The steps run in this
        process; the states are those of one moment, after the batch that `txid` names.

        Raises ConfigurationError for an unknown query and for values that do not fit, NotFoundError if the topology has
        never run, BatchDataError if a step of the query fails.
        """
        from txtopo.operating.ask_queries import ask_in

        with read.reading(self._dsn) as connection:
            return ask_in(connection, topology, name, questions)

    def trace(
        self,
        table: str,
        key: Sequence[str],
        *,
        nulls: Sequence[str] = (),
        topology: str | None = None,
        limit: int = 100,
    ) -> Trace:
        """Return which batches made the row of a target with this key: their last `limit` contributions, and in
        `verdict` whether all of them add up to the row.

        `key` contains `column=value` for each column of the key, or the value alone if there is one column; `nulls`
        are columns that are NULL. Raises ConfigurationError for a table or a key that does not fit, NotFoundError if
        no batch ever contributed to such a row, UntraceableError if the stored data cannot tell.
        """
        with read.reading(self._dsn) as connection:
            names = read.read_names(connection)
            if topology is not None and topology not in names:
                raise no_topology(topology, names)
            target = trace.find_target(connection, table, topology)
            found = trace.read_trace(connection, target, trace.read_key(target, key, nulls), limit)
        if not found.is_known:
            raise NotFoundError(f"{target.tables.target} has no row with that key, and no batch ever brought one")
        return found

    def audit(
        self,
        topology: str,
        first: int | None = None,
        last: int | None = None,
        *,
        recount: bool = True,
        expected: Iterable[str] = (),
        say: Callable[[str], None] = lambda line: None,
    ) -> AuditReport:
        """Compare the committed batches from `first` to `last` with their source, their contributions and the target
        tables.

        `recount=False` does not read the source files. `expected` are seals that were stored outside of the database,
        as `TXID:SEAL`, or paths of earlier reports. `say` is called with progress messages. The result is in `verdict`;
        a MISMATCH raises no error.

        Raises ConfigurationError if the topology or a batch does not exist.
        """
        from txtopo.audit.expected_seals import read_expected
        from txtopo.audit.run_audit import NothingToAuditError, Range, audit

        kept, wanted = read_expected(topology, expected), Range(first=first, last=last)
        with read.reading(self._dsn) as connection:
            try:
                return audit(connection, topology, wanted, recount=recount, say=say, expected=kept, version=__version__)
            except NothingToAuditError as error:
                known = read.read_names(connection)
                hint = "" if topology in known else nearest(topology, known)
                raise type(error)(f"{error}{hint}\n  next: txtopo status") from error

    # ------------------------------------------------------------------------------------------------------------------

    def orders(self, topology: str, *, state: OrderState | None = None, limit: int = 100) -> Rows[OrderRow]:
        """Return the operators' orders to a topology with their outcome, newest first."""
        with read.reading(self._dsn) as connection:
            read.read_status(connection, topology)
            return Rows(OrderRow, read_orders(connection, topology, state=state, limit=limit))

    def preview(self, topology: str, kind: PreviewKind, *spans: Span) -> OrderPreview:
        """Return what an order would do: its batches, or in `nothing` why there is nothing to do. Changes nothing.

        `spans` are the batches: any number to retry or redrive, one txid to skip, none to replan. Raises
        NotOrderedError if the order makes no sense for them.
        """
        with read.reading(self._dsn) as connection:
            return dry_runs.preview(connection, read.read_status(connection, topology), kind, spans)

    def retry(self, topology: str, *spans: Span, reason: str | None = None) -> OrderRow | None:
        """Order that failed batches are tried again, all of them or those within `spans`. Returns None if there is
        nothing to retry.

        The current leader carries out the order, or the next one; `wait` waits for that. Raises NotOrderedError if the
        order makes no sense for these batches. An order that is already open is not given twice.
        """
        return self._give(self.preview(topology, "retry", *spans), reason)

    def skip(self, topology: str, txid: int, *, reason: str) -> OrderRow | None:
        """Order that an uncommitted batch is quarantined. Returns None if it is quarantined already."""
        _check_reason(reason)
        return self._give(self.preview(topology, "skip", (txid, txid)), reason)

    def redrive(self, topology: str, *spans: Span, reason: str | None = None) -> OrderRow | None:
        """Order that quarantined batches within `spans` are processed again under new txids. Returns None if no batch
        can be.
        """
        return self._give(self.preview(topology, "redrive", *spans), reason)

    def backfill(self, topology: str, committer: str, *, reason: str | None = None) -> OrderRow | None:
        """Order that the batches which were committed without this committer are counted into it, each once. Returns
        None if it has counted every batch. Raises NotOrderedError if the leader has no such committer.
        """
        with read.reading(self._dsn) as connection:
            found = preview_backfill(connection, read.read_status(connection, topology), committer)
        if not found.lacking:
            return None
        order = NewOrder(topology=topology, kind="backfill", committer=committer, reason=reason)
        return self._order(topology, place(self._dsn, order).order_id)

    def replan(self, topology: str, *, reason: str) -> OrderRow | None:
        """Order that plans that were never mirrored are dropped. The next run plans their files again."""
        _check_reason(reason)
        return self._give(self.preview(topology, "replan"), reason)

    def stop(self, topology: str) -> OrderRow | None:
        """Order the leader to commit the batches in processing and to end. Returns None, and orders nothing, if no
        leader is alive.
        """
        if not self.status(topology).is_led:
            return None
        return self._order(topology, place(self._dsn, NewOrder(topology=topology, kind="stop")).order_id)

    def wait(self, topology: str, order: OrderRow, *, timeout_s: float = 600.0) -> OrderRow:
        """Wait until a leader has carried out the order; returns it with its `answer`. A retry is
        carried out when its batches are committed or have failed again: the answer says which.

        An order to stop is withdrawn if its leader ended without an answer, so that it stops no later leader; it is
        returned as refused.

        Raises RefusedError if the leader refused the order, OrderOpenError if the time is up or no leader is alive:
        the order then stays open.
        """
        is_stop = order.kind == "stop"
        leaderless_s = 0.0 if is_stop else min(LEADERLESS_S, timeout_s)
        found = follow(self._dsn, topology, order.order_id, timeout_s=timeout_s, leaderless_s=leaderless_s)
        if is_stop and not found.is_answered and not found.is_led:
            withdraw(self._dsn, order.order_id, "withdrawn: no leader is alive")
            return self._order(topology, order.order_id)
        if not found.is_answered:
            why = f"not carried out within {timeout_s:g} s" if found.is_led else f"no leader of {topology} is alive"
            still_open = f"{why}; the order to {order.kind} (order {order.order_id}) is open"
            raise OrderOpenError(f"{still_open}\n  next: txtopo status {topology}")
        answered = self._order(topology, order.order_id)
        if answered.state == "refused":
            raise RefusedError(f"{order.kind} of {topology}: {answered.answer or 'refused without a reason'}")
        return answered

    def _give(self, previewed: OrderPreview, reason: str | None) -> OrderRow | None:
        if previewed.nothing is not None:
            return None
        return self._order(previewed.topology, place(self._dsn, previewed.order(reason)).order_id)

    def _order(self, topology: str, order_id: int) -> OrderRow:
        with read.reading(self._dsn) as connection:
            found = read_orders(connection, topology, order_id=order_id)
        if not found:
            raise RefusedError(f"order {order_id} of {topology} was removed from its table, txtopo.request")
        return found[0]


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise dry_runs.NotOrderedError("a reason is needed: it is kept in the action log")


__all__ = [
    "ActionRow",
    "ActionTaken",
    "AttemptFailure",
    "AttemptRow",
    "AttemptState",
    "AuditReport",
    "Auditor",
    "BackfillLink",
    "BatchDetail",
    "BatchRow",
    "BatchState",
    "BatchVerdict",
    "ByDesign",
    "CheckResult",
    "Client",
    "CommitterNumbers",
    "Contribution",
    "DeadLetterRow",
    "EdgeNumbers",
    "EventKind",
    "FailureCounts",
    "Finding",
    "Head",
    "LastAction",
    "LastLeader",
    "LedgerSummary",
    "OpenOrder",
    "OrderGiven",
    "OrderKind",
    "OrderPreview",
    "OrderRow",
    "OrderState",
    "PreviewKind",
    "PreviewedBatch",
    "QueryAnswer",
    "RedoLink",
    "RejectedRecord",
    "Rows",
    "SourceFile",
    "Span",
    "StreamQuery",
    "Target",
    "TimelineEvent",
    "TopologyState",
    "TopologyStatus",
    "Trace",
    "Unbatched",
    "UntraceableError",
    "Verdict",
    "connect",
]
