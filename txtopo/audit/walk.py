"""Reads the ledger once in order, with cursors on everything that belongs to each row: passes each batch to every
check, adds its line to the report, and finds what belongs to no batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit import audit_statements as sql
from txtopo.audit.check_actions import Actions
from txtopo.audit.check_contributions import Contributed, check_contributions
from txtopo.audit.check_ledger import LedgerCheck
from txtopo.audit.check_plan import DIGEST, Plans
from txtopo.audit.check_redos import (
    NOBODY,
    Chains,
    check_backfill,
    check_not_backfilled,
    check_quarantined,
    check_redo,
    check_same_files,
    check_taken_back,
)
from txtopo.audit.check_rejects import check_dead_letters, check_rejected_rows
from txtopo.audit.check_rows import check_removed, check_rows
from txtopo.audit.check_seal import Around, Seals
from txtopo.audit.check_source import FILES, SourceCheck
from txtopo.audit.verdicts import AttemptFailure, BatchVerdict, Findings, Head, Verdict
from txtopo.reports.cursors import InStep
from txtopo.reports.formatting import counted
from txtopo.reports.stored_description import CommitterTables, RowTable

FAILURES_MAX = 10_000
"""Number of failed attempts in a report."""
_BEGINNING, _END = -(2**63), 2**63 - 1


@dataclass(slots=True, kw_only=True)
class Walk:
    """One pass over the batches of a range."""

    connection: Connection
    topology: str
    scope: Any
    first: int
    last: int
    whole: bool
    """True: the range has all batches."""
    recounting: bool
    findings: Findings
    committers: Mapping[str, CommitterTables]
    own: frozenset[str]
    """Custom committers."""
    row_tables: Mapping[str, RowTable]
    """Committers of rows."""
    contributed: Mapping[str, dict[int, Contributed]]
    """For each committer whose contributions can be read; those that belong to a batch of the ledger are removed from
    it.
    """
    chains: Chains
    actions: Actions
    seals: Seals
    tell: Callable[[str], None]
    batches: list[BatchVerdict] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[AttemptFailure] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    """For each committer, over the batches in effect."""
    newest: Any | None = None
    """The last ledger row that was read."""
    _redone: dict[tuple[str, int], Contributed] = field(default_factory=dict)
    """Contributions of batches that a redo reverses, by committer and txid."""

    def run(self) -> None:
        """Check all batches of the range, lowest txid first."""
        for name, contributed in self.contributed.items():
            for earlier in self.chains.redone_before(self.first, self.last):
                self._redone[name, earlier] = contributed.pop(earlier, Contributed())
        bound = {"topology": self.topology, "first": self.first, "last": self.last}
        beyond = {**bound, "first": _BEGINNING, "last": _END} if self.whole else bound
        rows, plans = self._in_step(sql.LEDGER, bound), self._in_step(sql.PLANS, bound)
        attempts, files = self._in_step(sql.ATTEMPTS, bound), self._in_step(sql.FILES, bound)
        counts, edges = self._in_step(sql.COUNTS, beyond), self._in_step(sql.EDGES, beyond)
        rejected, redone_files = self._in_step(sql.REJECTED, beyond), self._in_step(sql.FILES_REDONE, bound)
        dead = self._in_step(sql.DEAD_LETTERS, beyond)
        ledger, checked_plans, source = self._checks()
        before = rows.take(self.first - 1)
        ledger.base(before[0] if before else None)
        while (txid := rows.next_txid) is not None:
            (row,) = rows.take(txid)
            around = Around(
                counts=counts.take(txid),
                edges=edges.take(txid),
                plans=plans.take(txid),
                attempts=attempts.take(txid),
                dead_letters=dead.take(txid),
                rejected=rejected.take(txid),
            )
            consumed, kept = files.take(txid), around.rejected
            self._note_attempts(around.attempts)
            ledger.check(row, around)
            plan = around.plan_of(row)
            self.actions.check(self.findings, row, checked_plans.check(row, plan))
            number = check_rejected_rows(self.findings, row, kept, consumed, partial(source.partitions, plan))
            check_dead_letters(self.findings, row, around.dead_letters)
            check_quarantined(self.findings, row, around.counts, around.edges, number)
            check_redo(self.findings, row, self.chains)
            check_backfill(self.findings, row, around.counts, self.chains)
            check_not_backfilled(self.findings, row, around.counts, self.chains)
            check_same_files(self.findings, row, consumed, redone_files.take(txid))
            counting = frozenset(one.committer for one in around.counts)
            recounted = source.check(row, plan, consumed, kept, around.dead_letters, counting)
            weights = self._check_contributions(row, around.counts)
            self.batches.append(
                batch_verdict(
                    row,
                    around,
                    files=len(consumed),
                    recounted=recounted,
                    weights=weights,
                    redone_as=self.chains.redone_as(txid),
                )
            )
            self.tell(f"{txid - self.first + 1} of {self.last - self.first + 1} batches audited")
        ledger.end(self.last)
        self.newest = ledger.newest
        self.chains.check(self.findings, self.first, self.last)
        self._check_strays(
            {"committer's count": counts, "edge's count": edges, "rejected file": rejected, "dead letter": dead}
        )
        if self.whole:
            check_strays(self.findings, self.connection, self.topology, self.last, source)

    def _in_step(self, statement: str, bound: Mapping[str, Any]) -> InStep:
        return InStep(self.connection, statement, **bound)

    def _checks(self) -> tuple[LedgerCheck, Plans, SourceCheck]:
        scope = self.scope
        described = None if scope.code_hash is None else bytes(scope.code_hash)
        ledger = LedgerCheck(
            self.findings,
            self.topology,
            scope.incarnation,
            self.first,
            self.committers,
            self.seals,
            described,
            self.own,
            self.row_tables,
        )
        plans = Plans(findings=self.findings, topology=self.topology)
        source = SourceCheck(
            findings=self.findings,
            connection=self.connection,
            topology=self.topology,
            committers=self.committers,
            described_code=described,
            chains=self.chains,
            recounting=self.recounting,
            readable=set(self.contributed),
        )
        return ledger, plans, source

    def _check_contributions(self, row: Any, counts: Sequence[Any]) -> dict[str, int]:
        """Compare contributions; returns committer -> weight of its contributions to this batch."""
        weights = {}
        batch = row.txid if row.backfills is None else row.backfills
        for one in counts:
            if not self.chains.applied_redos(batch):  # An applied redo has reversed the contributions of this batch.
                self.counted[one.committer] += one.counted
            committer = self.committers.get(one.committer)
            if one.committer in self.own:
                self.findings.by_design("contributions.rows", f"{one.committer} writes by its own code")
            elif one.committer in self.row_tables:
                if one.committer in self.contributed:
                    rows = self.contributed[one.committer].pop(row.txid, NOBODY)
                    check_rows(self.findings, row, one, self.row_tables[one.committer], rows, self.chains)
                    check_removed(self.findings, self.connection, self.topology, row, one, self.chains)
                    weights[one.committer] = rows.rows
            elif committer is None:
                self.findings.unknown(
                    "contributions.rows", f"committer {one.committer} is not described any more", row.txid
                )
            elif not committer.contributions:
                self.findings.by_design("contributions.rows", f"{one.committer} keeps no contributions")
            elif one.committer in self.contributed:
                own = self.contributed[one.committer].pop(row.txid, None) or Contributed()
                if batch in self.chains.redone:
                    self._redone[one.committer, row.txid] = own
                check_contributions(self.findings, row, one, committer, own)
                holder = self.chains.holder(row.redo_of, one.committer)
                redone = None
                if holder is not None and self.chains.is_applied(row.redo_of):
                    redone = self._redone.get((one.committer, holder))
                check_taken_back(self.findings, row, one, committer, own, redone, holder)
                weights[one.committer] = _whole(own.weight)
        return weights

    def _check_strays(self, left: Mapping[str, InStep]) -> None:
        for what, rows in left.items():
            for txid, number in sorted(rows.finish().items()):
                self.findings.wrong(
                    "ledger.gaps", f"{counted(number, what)} of batch {txid}, which is not in the ledger", txid
                )

    def _note_attempts(self, attempts: Sequence[Any]) -> None:
        for one in attempts:
            self.states[one.state] += 1
            if one.state != "failed":
                continue
            self.kinds[one.kind] += 1
            if len(self.failures) < FAILURES_MAX:
                self.failures.append(
                    AttemptFailure(
                        txid=one.txid,
                        attempt=one.attempt,
                        kind=one.kind,
                        component=one.component,
                        position=one.position,
                        message=one.message,
                    )
                )


def batch_verdict(
    row: Any, around: Around, *, files: int, recounted: int | None, weights: Mapping[str, int], redone_as: int | None
) -> BatchVerdict:
    """Return one batch; its verdict is MATCH until everything is compared."""
    phases, wall = _phases(row, around.attempts)
    return BatchVerdict(
        txid=row.txid,
        state="committed" if row.state == "applied" else row.state,
        reason=row.reason,
        redo_of=row.redo_of,
        backfills=row.backfills,
        committer=row.committer,
        redone_as=redone_as,
        verdict=Verdict.MATCH,
        epoch=row.epoch,
        attempts=len(around.attempts),
        failed_attempts=sum(one.state == "failed" for one in around.attempts),
        files=files,
        read=row.read,
        rejected=row.rejected,
        dead_lettered=row.dead_lettered,
        recounted=recounted,
        contributed=weights,
        committed_at=row.committed_at,
        seal=None if row.seal is None else bytes(row.seal).hex(),
        phases_s=phases,
        wall_s=wall,
    )


def head_of(row: Any) -> Head:
    """Return what to keep of the last batch of a report."""
    return Head(
        txid=row.txid,
        seal=None if row.seal is None else bytes(row.seal).hex(),
        seal_version=row.seal_version,
        digest=bytes(row.digest).hex(),
        code_hash=bytes(row.code_hash).hex(),
        committed_at=row.committed_at,
    )


def check_strays(
    findings: Findings, connection: Connection, topology: str, committed: int, source: SourceCheck
) -> None:
    """Report everything that is planned but does not follow the last committed batch. `committed`: the last committed
    batch. A stray file would never be read as new input.
    """
    bound = {"topology": topology, "committed": committed}
    for row in connection.execute(text(sql.STRAY_PLANS), bound):
        findings.wrong(
            DIGEST,
            f"it has a plan, but the last batch committed is {committed}, and no plans lead from there to it",
            row.txid,
        )
    for row in connection.execute(text(sql.STRAY_FILES), bound):
        findings.wrong(
            FILES,
            f"it is remembered as the batch of {counted(row.number, 'file')}, first {row.path} of spout {row.spout}, "
            "but it is neither in the ledger nor planned",
            row.txid,
        )
    _check_ahead(connection, topology, committed, source)


def _check_ahead(connection: Connection, topology: str, committed: int, source: SourceCheck) -> None:
    ahead = {"topology": topology, "first": committed + 1, "last": 2**63 - 1}
    plans, files = InStep(connection, sql.PLANS, **ahead), InStep(connection, sql.FILES, **ahead)
    while (txid := plans.next_txid) is not None:
        cuts: list[Any] = plans.take(txid)
        consumed = files.take(txid)
        if len(cuts) == 1:  # If a batch was planned again, it is not known yet which plan counts.
            source.check_planned(cuts[0], consumed)


def _whole(weight: int | Decimal) -> int:
    """Return a weight for the report. If the type of the column was changed, which is a separate finding, the weight
    may be no whole number, or missing.
    """
    return int(weight) if Decimal(weight).is_finite() else 0


def _phases(row: Any, attempts: Any) -> tuple[dict[str, float], float | None]:
    """Return the seconds from the first attempt to the commit by phase: earlier attempts, the applied one's own phases,
    the wait for the commit and the commit; and their total.
    """
    applied = next((one for one in attempts if one.state == "applied"), None)
    if applied is None:
        return {}, None
    began_at = min(one.started_at for one in attempts)
    wall = (row.committed_at - began_at).total_seconds()
    before = (applied.started_at - began_at).total_seconds()
    spans = _spans(applied.spans)
    return {"earlier attempts": before, **spans, "turn and commit": wall - before - sum(spans.values())}, wall


def _spans(stored: Any) -> dict[str, float]:
    """Return the seconds by phase; without values that somebody has overwritten with something else, which the seal
    shows.
    """
    items = stored.items() if isinstance(stored, Mapping) else ()
    return {name: float(seconds) for name, seconds in items if isinstance(seconds, int | float) and abs(seconds) < 1e10}
