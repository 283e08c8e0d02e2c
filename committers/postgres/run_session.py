"""The database transaction that commits a commit run, in four round trips: lock; ledger rows with the first committer;
finish; COMMIT (R22).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

import psycopg2
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.apply_counts import array_literal
from txtopo.committers.postgres.fenced_session import FencedSession
from txtopo.committers.postgres.run_half import PreparedRun, RunHalf
from txtopo.committers.postgres.sql_errors import translate_apply, translating
from txtopo.committers.postgres.statements import statement
from txtopo.committers.postgres.storable_text import storable
from txtopo.committers.postgres.transactions import Held, joined, run
from txtopo.core.values import CommitterCount, CommitterResult, DeadLetter, EdgeCount, RejectedRow
from txtopo.errors import RunRefused, invariant, unreachable
from txtopo.ports import LedgerEntry, LedgerTotals
from txtopo.topology.components import CommitterComponent

Kept = TypeVar("Kept")


class PostgresRunSession(FencedSession):
    """LedgerRunSession on Postgres. The ledger rows are delayed and sent with the rows of the first committer; edges,
    rejected records and dead letters are sent with `finish_run`. No value of the statements grows without a limit: what
    is too large is in no run (R20).
    """

    _entries: Sequence[LedgerEntry] = ()
    _tables: tuple[Mapping[str, Any], ...] = ()
    """Of the committers that were applied."""
    _trips = 0
    """Round trips of what was applied, at most."""
    _kept: Held | None = None
    """What stores counts of edges, rejected records and dead letters: sent with `finish_run`."""
    _kept_txids: Set[int] = frozenset()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._prepared: dict[str, tuple[Mapping[int, CommitterResult], PreparedRun]] = {}
        """By committer, its results and what was made of them before the lock."""

    def ledger_digests(self, txids: Sequence[int]) -> Mapping[int, bytes]:
        with translating(f"reading the ledger rows {txids[0]} to {txids[-1]}" if txids else "reading no ledger rows"):
            rows = run(
                self._connection, "list_ledger_digests", topology=self._lead.topology, txids=array_literal(txids)
            ).all()
        return {int(txid): bytes(digest) for txid, digest in rows}

    def append_run(self, entries: Sequence[LedgerEntry]) -> None:
        plans = [entry.plan for entry in entries]
        for before, plan in zip([None, *plans], plans, strict=False):
            invariant(before is None or plan.txid == before.txid + 1, f"batch {plan.txid} does not follow in its run")
            invariant(plan.is_input, f"batch {plan.txid} is a redo or a backfill, which is in no run")
            invariant(
                (plan.topology, plan.incarnation) == (self._lead.topology, self._lead.incarnation),
                f"plan {plan.txid} is of another life of {self._lead.topology}",
            )
        self._entries = entries
        values = {
            "topology": self._lead.topology,
            "incarnation": self._lead.incarnation,
            "epoch": self._lead.epoch,
            "code_hash": self._lead.code_hash,
            "txids": array_literal(plan.txid for plan in plans),
            "prev_digests": array_literal(plan.previous_digest for plan in plans),
            "digests": array_literal(plan.digest for plan in plans),
            "attempts": array_literal(entry.attempt.attempt for entry in entries),
            "cuts": array_literal(plan.cut for plan in plans),
        }
        self._held = (statement("append_run"), values)

    def prepare_run(
        self, committer: CommitterComponent, results: Mapping[int, CommitterResult], attempts: Mapping[int, int]
    ) -> None:
        self._prepared[committer.name] = results, self._run_half(committer).prepare_run(results, attempts)

    def apply_run(
        self, committer: CommitterComponent, results: Mapping[int, CommitterResult]
    ) -> Mapping[int, CommitterCount]:
        half, name = self._run_half(committer), committer.name
        invariant(sorted(results) == self._txids(), f"committer {name}: a result of each batch of the run")
        given, prepared = self._prepared.pop(name, (None, None))
        if given is not results or prepared is None:
            prepared = half.prepare_run(results, {entry.plan.txid: entry.attempt.attempt for entry in self._entries})
        held = self._take_held()
        self._applied.append(name)
        self._tables = (*self._tables, *half.tables)
        self._trips += prepared.trips
        try:
            return half.apply_run(self._connection, self._lead.topology, results, prepared, held)
        except (SQLAlchemyError, psycopg2.Error, ValueError, OverflowError) as error:
            raise translate_apply(
                error, name, self._txids()[0], ledger_held=held is not None, answers=self._answers
            ) from error

    def prepare_kept(
        self,
        edges: Mapping[int, Sequence[EdgeCount]],
        rejected: Mapping[int, Sequence[RejectedRow]],
        dead_letters: Mapping[int, Sequence[DeadLetter]],
    ) -> None:
        self._kept, self._kept_txids = None, {*edges, *rejected, *dead_letters}
        counted, records, letters = _flat(edges), _flat(rejected), _flat(dead_letters)
        self._keep(
            "append_run_edges",
            counted,
            edge_txids=(txid for txid, _ in counted),
            edges=(edge.edge for _, edge in counted),
            sent=(edge.sent for _, edge in counted),
            received=(edge.received for _, edge in counted),
        )
        self._keep(
            "append_run_rejected",
            records,
            rejected_txids=(txid for txid, _ in records),
            rejected_spouts=(row.spout for _, row in records),
            # P14: position and reason of a record must not be lost because of a byte that Postgres cannot hold.
            rejected_paths=(storable(row.path) for _, row in records),
            rejected_lines=(row.line for _, row in records),
            rejected_reasons=(storable(row.reason) for _, row in records),
            rejected_raws=(row.raw for _, row in records),
            rejected_sizes=(row.raw_bytes for _, row in records),
            rejected_units=(row.unit for _, row in records),
        )
        self._keep(
            "append_run_dead_letters",
            letters,
            dead_txids=(txid for txid, _ in letters),
            dead_spouts=(row.spout for _, row in letters),
            dead_positions=(storable(row.position) for _, row in letters),  # P14
            dead_components=(row.component for _, row in letters),
            dead_reasons=(storable(row.reason) for _, row in letters),
            dead_raws=(row.raw for _, row in letters),
        )

    def finish_run(self, totals: Mapping[int, LedgerTotals]) -> None:
        known = set(self._txids())
        invariant(totals.keys() <= known and self._kept_txids <= known, f"{self._batches()}: rows of another batch")
        txids = sorted(totals)  # if one of the run is missing, the server refuses all
        attempts = {entry.plan.txid: entry.attempt.attempt for entry in self._entries}
        if self._kept is not None:
            self._held = joined(self._take_held(), *self._kept)
        obstacles = self._finish(
            [(txid, attempts[txid], totals[txid]) for txid in txids], self._batches(), self._tables
        )
        if obstacles is not None:
            raise RunRefused(f"{obstacles}: several batches together are not what each batch would do there")

    @property
    def travel_s(self) -> float:
        # What the committers send, `finish_run`, COMMIT.
        return (self._trips + 2) * self._database.travel_s

    def commit(self) -> None:
        self._commit(self._batches(), self._txids()[0])

    def _run_half(self, committer: CommitterComponent) -> RunHalf:
        half = self._half(committer).run_half
        return half or unreachable(f"committer {committer.name} has no table that txtopo keeps, and is in no run")

    def _keep(self, name: str, rows: Sequence[object], **columns: Iterable[Any]) -> None:
        if rows:
            values = {column: array_literal(found) for column, found in columns.items()}
            self._kept = joined(self._kept, statement(name), {"topology": self._lead.topology, **values})

    def _txids(self) -> list[int]:
        return [entry.plan.txid for entry in self._entries] or unreachable("ledger rows come before what they count")

    def _batches(self) -> str:
        txids = self._txids()
        return f"batches {txids[0]} to {txids[-1]}"


def _flat(rows: Mapping[int, Sequence[Kept]]) -> Sequence[tuple[int, Kept]]:
    return [(txid, row) for txid in sorted(rows) for row in rows[txid]]
