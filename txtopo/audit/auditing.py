"""`txtopo audit`: goes once along the committed batches, has everything about each compared, and puts the report together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from txtopo.audit import audit_statements as sql
from txtopo.audit.check_contributions import Contributed, check_contributions, check_strangers, read_contributions
from txtopo.audit.check_ledger import Around, Ledger
from txtopo.audit.check_source import Source
from txtopo.audit.check_target import check_target, check_total
from txtopo.audit.cursors import InStep
from txtopo.audit.describing import CommitterTables, committers_of
from txtopo.audit.verdicts import AttemptFailure, AuditReport, BatchVerdict, Findings, Verdict
from txtopo.committers.outcomes import one_line, sqlstate
from txtopo.errors import ConfigurationError

PROGRESS_EVERY_S = 2.0
FAILURES_MAX = 10_000
"""Failed attempts in a report."""
_NO_TABLE = ("42P01", "42703", "3F000")
_DENIED = "42501"


class NothingToAuditError(ConfigurationError):
    """The topology or the range named does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Which txids; None is open."""

    first: int | None = None
    last: int | None = None

    @property
    def is_whole(self) -> bool:
        """All there are?"""
        return self.first in (None, 0, 1) and self.last is None


def audit(
    connection: Connection, topology: str, wanted: Range, *, recount: bool, say: Callable[[str], None]
) -> AuditReport:
    """Compare everything there is to compare about the committed batches of a topology. `connection` reads one state throughout.

    Raises NothingToAuditError where there is no such topology or no such batch; errors of the database as they are.
    """
    connection.execute(text(sql.SETTINGS))
    scope = connection.execute(text(sql.SCOPE), {"topology": topology}).one_or_none()
    if scope is None:
        raise NothingToAuditError(f"no topology {topology!r} on this database")
    committed = max(scope.last_txid, scope.ledger_txid or 0)
    first, last = wanted.first or 1, committed if wanted.last is None else wanted.last
    if not wanted.is_whole and (first > last or last > committed):
        there = f"its committed batches go from 1 to {committed}" if committed else "nothing is committed yet"
        raise NothingToAuditError(f"{topology} has no committed batches {first} to {last}: {there}")
    return _Audit(connection, topology, scope, first, last, wanted.is_whole, recount, say).run(committed)


@dataclass(slots=True)
class _Audit:
    """One audit under way."""

    connection: Connection
    topology: str
    scope: Any
    first: int
    last: int
    whole: bool
    recounting: bool
    say: Callable[[str], None]
    findings: Findings = field(default_factory=Findings)
    committers: dict[str, CommitterTables] = field(default_factory=dict)
    contributed: dict[str, dict[int, Contributed]] = field(default_factory=dict)
    """Of each committer whose contributions can be read."""
    batches: list[BatchVerdict] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    failures: list[AttemptFailure] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    _told_s: float = field(default_factory=time.monotonic)

    def run(self, committed: int) -> AuditReport:
        """All checks, cheapest first for whoever waits, and the report."""
        self._check_fence()
        self._read_description()
        targets = {
            row.committer: row for row in self.connection.execute(text(sql.TARGETS), {"topology": self.topology})
        }
        for name, committer in self.committers.items():
            if committer.contributions:
                self._tell(f"adding up the contributions to {committer.target}", now=True)
                self._read_contributions(name, committer)
        self._walk()
        for name, committer in self.committers.items():
            if name in self.contributed:
                baseline = targets[name].baseline_digest if name in targets and self.whole else None
                left = self.contributed[name]
                check_strangers(self.findings, committer, left, None if baseline is None else int(baseline))
        self._check_targets(targets)
        return AuditReport(
            topology=self.topology,
            first_txid=self.first,
            last_txid=self.last,
            committed_txid=committed,
            planned_ahead=max(0, (self.scope.planned_txid or 0) - committed),
            generated_at=self.scope.now,
            verdict=self.findings.verdict,
            checks=self.findings.checks(),
            findings=self.findings.findings(),
            by_design=self.findings.limits(),
            failures=tuple(self.failures),
            attempts=dict(self.states),
            batches=tuple(self._judged(batch) for batch in self.batches),
        )

    def _check_fence(self) -> None:
        scope = self.scope
        if scope.epoch is None:
            self.findings.wrong("ledger.gaps", "the topology has no fence row, but a ledger")
            return
        ledger = scope.ledger_txid
        self.findings.equal(
            "ledger.gaps",
            ledger == scope.last_txid,
            f"the fence stands at batch {scope.last_txid}, the ledger ends with {'nothing' if ledger is None else f'batch {ledger}'}",
            *({max(ledger or 0, scope.last_txid)} - {0}),
        )

    def _read_description(self) -> None:
        if self.scope.description is None:
            if self.last >= 1:
                self.findings.unknown("target.keys", "no leader has described the topology: its tables are not known")
            return
        try:
            described = committers_of(self.scope.description)
        except ValueError as error:
            self.findings.unknown("target.keys", f"the description of the topology cannot be read: {error}")
            return
        for name, committer in described.items():
            schema, _, table = committer.target.partition(".")
            bound = {"schema": schema, "table": f"{table}_contribution"}
            columns = [row[0] for row in self.connection.execute(text(sql.COLUMNS), bound)]
            self.committers[name] = committer.ordered(columns)

    def _read_contributions(self, name: str, committer: CommitterTables) -> None:
        with self._table("contributions.rows", f"the contributions to {committer.target}"):
            low, high = (0, 2**63 - 1) if self.whole else (self.first, self.last)
            self.contributed[name] = read_contributions(self.connection, committer, low, high)

    def _walk(self) -> None:
        """Along the ledger, with everything that belongs to each row."""
        scope = self.scope
        described = None if scope.code_hash is None else bytes(scope.code_hash)
        bound = {"topology": self.topology, "first": self.first, "last": self.last}
        beyond = {**bound, "last": 2**63 - 1} if self.whole else bound
        redone = frozenset(row[0] for row in self.connection.execute(text(sql.REDONE), {"topology": self.topology}))
        rows, plans = InStep(self.connection, sql.LEDGER, **bound), InStep(self.connection, sql.PLANS, **bound)
        attempts, files = InStep(self.connection, sql.ATTEMPTS, **bound), InStep(self.connection, sql.FILES, **bound)
        counts, edges = InStep(self.connection, sql.COUNTS, **beyond), InStep(self.connection, sql.EDGES, **beyond)
        ledger = Ledger(
            self.findings, self.topology, scope.incarnation, scope.last_txid, scope.newest_txid or 0, self.first, self.committers, described
        )  # fmt: skip
        source = Source(
            findings=self.findings, connection=self.connection, committers=self.committers, described_code=described, redone=redone,
            recounting=self.recounting, readable=set(self.contributed),
        )  # fmt: skip
        before = rows.take(self.first - 1)
        ledger.base(before[0] if before else None)
        while (txid := rows.next_txid) is not None:
            (row,) = rows.take(txid)
            around = Around(
                counts=counts.take(txid), edges=edges.take(txid), plans=plans.take(txid), attempts=attempts.take(txid)
            )
            consumed = files.take(txid)
            self._note_attempts(around.attempts)
            ledger.check(row, around)
            recounted = source.check(row, around.plan_of(row), consumed)
            weights = self._check_contributions(row, around)
            self.batches.append(_batch(row, around, len(consumed), recounted, weights))
            self._tell(f"{txid - self.first + 1} of {self.last - self.first + 1} batches audited")
        ledger.end(self.last)
        for what, left in (("counts of committers", counts.finish()), ("counts of edges", edges.finish())):
            for txid, rows_left in sorted(left.items()):
                self.findings.wrong(
                    "ledger.gaps", f"{rows_left} {what} of batch {txid}, which is not in the ledger", txid
                )

    def _check_contributions(self, row: Any, around: Around) -> dict[str, int]:
        """Compares; returns committer -> weight of its contributions to this batch."""
        weights = {}
        for one in around.counts:
            self.counted[one.committer] += one.counted
            committer = self.committers.get(one.committer)
            if committer is None:
                self.findings.unknown("contributions.rows", f"committer {one.committer} is not described any more", row.txid)  # fmt: skip
            elif not committer.contributions:
                self.findings.by_design("contributions.rows", f"{one.committer} keeps no contributions")
            elif one.committer in self.contributed:
                contributed = self.contributed[one.committer].pop(row.txid, None) or Contributed()
                check_contributions(self.findings, row, one, committer, contributed)
                weights[one.committer] = contributed.weight
        return weights

    def _check_targets(self, targets: Mapping[str, Any]) -> None:
        for name, committer in self.committers.items():
            if name not in targets:
                if self.last >= 1:
                    self.findings.wrong(
                        "target.keys", f"table {committer.target} is not registered to committer {name}"
                    )
            elif targets[name].target != committer.target:
                self.findings.wrong("target.keys", f"committer {name} writes to {committer.target}, registered is {targets[name].target}")  # fmt: skip
            elif name in self.contributed:
                self._tell(f"comparing table {committer.target}", now=True)
                with self._table("target.keys", f"table {committer.target}"):
                    check_target(self.findings, self.connection, committer)
            elif not committer.contributions and self.whole and targets[name].baseline_digest is None:
                with self._table("target.keys", f"table {committer.target}"):
                    check_total(self.findings, self.connection, committer, self.counted[name])
                self.findings.by_design("target.keys", f"{name} keeps no contributions: only the total of {committer.target} was compared", 0)  # fmt: skip
            elif not committer.contributions:
                self.findings.by_design("target.keys", f"{name} keeps no contributions: {committer.target} was not compared", 0)  # fmt: skip
        for name in sorted({*targets} - {*self.committers}):
            if self.committers:
                self.findings.unknown("target.keys", f"table {targets[name].target} of committer {name}, which is not described any more")  # fmt: skip

    @contextmanager
    def _table(self, check: str, what: str) -> Iterator[None]:
        """A table of the user's that is gone is a MISMATCH, one that may not be read UNVERIFIED; neither ends the audit."""
        try:
            with self.connection.begin_nested():
                yield
        except DBAPIError as error:
            state = sqlstate(error)
            if state in _NO_TABLE:
                self.findings.wrong(check, f"{what}: {one_line(error)}")
            elif state == _DENIED:
                self.findings.unknown(check, f"{what}: {one_line(error)}")
            else:
                raise

    def _note_attempts(self, attempts: Any) -> None:
        for one in attempts:
            self.states[one.state] += 1
            if one.state == "failed" and len(self.failures) < FAILURES_MAX:
                self.failures.append(
                    AttemptFailure(
                        txid=one.txid, attempt=one.attempt, kind=one.kind, component=one.component, position=one.position, message=one.message
                    )
                )  # fmt: skip

    def _judged(self, batch: BatchVerdict) -> BatchVerdict:
        verdict = self.findings.verdict_of(batch.txid)
        return batch if verdict is Verdict.MATCH else replace(batch, verdict=verdict)

    def _tell(self, line: str, *, now: bool = False) -> None:
        if now or time.monotonic() - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = time.monotonic()
            self.say(f"{self.topology}: {line}")


def _batch(row: Any, around: Around, files: int, recounted: int | None, weights: Mapping[str, int]) -> BatchVerdict:
    phases, wall = _phases(row, around.attempts)
    return BatchVerdict(
        txid=row.txid,
        state="committed" if row.state == "applied" else row.state,
        verdict=Verdict.MATCH,
        epoch=row.epoch,
        attempts=len(around.attempts),
        failed_attempts=sum(one.state == "failed" for one in around.attempts),
        files=files,
        read=row.read,
        recounted=recounted,
        contributed=weights,
        committed_at=row.committed_at,
        phases_s=phases,
        wall_s=wall,
    )


def _phases(row: Any, attempts: Any) -> tuple[dict[str, float], float | None]:
    """Seconds from planning to commit, divided: before the attempt that was applied, its own phases, the wait for its turn and the commit."""
    applied = next((one for one in attempts if one.state == "applied"), None)
    if applied is None or row.planned_at is None:
        return {}, None
    wall = (row.committed_at - row.planned_at).total_seconds()
    before = (applied.started_at - row.planned_at).total_seconds()
    spans = {name: float(seconds) for name, seconds in (applied.spans or {}).items()}
    return {"before": before, **spans, "turn and commit": wall - before - sum(spans.values())}, wall
