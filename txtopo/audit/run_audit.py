"""`txtopo audit`: reads the committed batches once in order, compares everything about each, and makes the report."""

from __future__ import annotations

import getpass
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from txtopo.audit import audit_statements as sql
from txtopo.audit.check_actions import LISTED_MAX, Actions
from txtopo.audit.check_contributions import Contributed, check_strangers, read_contributions
from txtopo.audit.check_described import check_fence, read_descriptions
from txtopo.audit.check_redos import Chains
from txtopo.audit.check_rows import check_last_rows, check_stray_rows, read_rows
from txtopo.audit.check_schema import check_schema, demand_readable
from txtopo.audit.check_seal import LOGGED, Chain, Seals, action_values
from txtopo.audit.check_tables import check_row_table, check_tables
from txtopo.audit.check_target import check_computed, check_target, check_total
from txtopo.audit.expected_seals import Expected, check_expected
from txtopo.audit.staging_tables import find_left
from txtopo.audit.unbatched_files import find_unbatched
from txtopo.audit.verdicts import (
    Auditor,
    AuditReport,
    BatchVerdict,
    Findings,
    LastAction,
    Unbatched,
    Verdict,
)
from txtopo.audit.walk import Walk, head_of
from txtopo.committers.postgres.sql_errors import one_line, sqlstate
from txtopo.committers.postgres.sqlstates import INSUFFICIENT_PRIVILEGE, NO_TABLE
from txtopo.errors import ConfigurationError
from txtopo.reports.stored_description import (
    CommitterTables,
    RowTable,
    committers_of,
    own_committers_of,
    parts_of,
    row_tables_of,
)
from txtopo.reports.times import read_any_time

PROGRESS_EVERY_S = 2.0


class NothingToAuditError(ConfigurationError):
    """The topology or the range does not exist."""


class GoneError(NothingToAuditError):
    """The same, although a kept seal says that it did exist: a wrong database, not a wrong usage."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A range of txids; None is open."""

    first: int | None = None
    last: int | None = None

    @property
    def is_whole(self) -> bool:
        """True if the range has all batches."""
        return self.first in (None, 0, 1) and self.last is None


def audit(
    connection: Connection,
    topology: str,
    wanted: Range,
    *,
    recount: bool,
    say: Callable[[str], None],
    expected: Expected | None = None,
    version: str = "unknown",
) -> AuditReport:
    """Compare everything that can be compared about the committed batches of a topology. `connection` reads one state
    throughout.

    `expected`: seals that were stored outside of the database. `version`: of the txtopo that audits, for the report.

    Raises NothingToAuditError if there is no such topology or batch, GoneError if an expected one does not exist,
    NotAsMadeError if tables of schema `txtopo` cannot be read as the migrations made them. Errors of the database are
    not converted.
    """
    expected = expected or Expected()
    connection.execute(text(sql.SETTINGS))
    read_any_time(connection)
    demand_readable(connection)
    scope = connection.execute(text(sql.SCOPE), {"topology": topology}).one_or_none()
    if scope is None:
        raise _nothing(f"no topology {topology!r} on this database", expected, None)
    committed = max(scope.last_txid, scope.ledger_txid or 0)
    first, last = wanted.first or 1, committed if wanted.last is None else wanted.last
    if not wanted.is_whole and (first > last or last > committed):
        there = f"its committed batches go from 1 to {committed}" if committed else "nothing is committed yet"
        raise _nothing(f"{topology} has no committed batches {first} to {last}: {there}", expected, committed)
    return _Audit(connection, topology, scope, first, last, wanted.is_whole, recount, say, expected, version).run(
        committed
    )


def _nothing(message: str, expected: Expected, committed: int | None) -> NothingToAuditError:
    """Return the error for an empty audit. `committed`: the last batch; None if the topology does not exist."""
    gone = [f"batch {txid}" for txid in sorted(expected.batches) if txid > (committed or 0)]
    if not gone and committed is None:
        gone = [f"action {number}" for number in sorted(expected.actions)]
    if not gone:
        return NothingToAuditError(message)
    return GoneError(f"{message}, but a kept seal is of {gone[-1]}: it was removed, or this is another database")


@dataclass(slots=True)
class _Audit:
    """One running audit."""

    connection: Connection
    topology: str
    scope: Any
    first: int
    last: int
    whole: bool
    recounting: bool
    say: Callable[[str], None]
    expected: Expected
    version: str
    findings: Findings = field(default_factory=Findings)
    committers: dict[str, CommitterTables] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    """Custom committers."""
    row_tables: Mapping[str, RowTable] = field(default_factory=dict)
    """Committers of rows."""
    contributed: dict[str, dict[int, Contributed]] = field(default_factory=dict)
    """For each committer whose contributions can be read."""
    _told_s: float = field(default_factory=time.monotonic)

    def run(self, committed: int) -> AuditReport:
        """Run all checks, the cheapest first, and return the report."""
        check_schema(self.findings, self.connection)
        self._check_fence()
        self._read_description()
        targets = {row.committer: row for row in self._rows(sql.TARGETS)}
        chains = Chains(self._rows(sql.CHAINS), self._rows(sql.BACKFILLS))
        logged = list(self._rows(sql.ACTIONS))
        actions = Actions(logged, self._rows(sql.ORDERS), self.first, self.last, self.whole)
        seals = self._seals(logged)
        for name, committer in self.committers.items():
            if not self._is_prepared(name, targets):
                continue
            check_tables(self.findings, self.connection, committer)
            if committer.contributions:
                self._tell(f"adding up the contributions to {committer.target}", now=True)
                self._read_contributions(name, committer, chains)
        for name, table in self.row_tables.items():
            if self._is_prepared(name, targets):
                check_row_table(self.findings, self.connection, table)
                self._tell(f"adding up the rows of {table.log}", now=True)
                self._read_rows(name, table)
        walk = Walk(
            connection=self.connection,
            topology=self.topology,
            scope=self.scope,
            first=self.first,
            last=self.last,
            whole=self.whole,
            recounting=self.recounting,
            findings=self.findings,
            committers=self.committers,
            own=self.own,
            row_tables=self.row_tables,
            contributed=self.contributed,
            chains=chains,
            actions=actions,
            seals=seals,
            tell=self._tell,
        )
        walk.run()
        actions.check_orders(self.findings)
        check_fence(self.findings, self.scope, walk.newest)
        check_expected(self.findings, self.connection, self.topology, self.expected, seals.actions, self.first)
        if self.whole:
            actions.check_rest(self.findings, committed)
            actions.check_open(self.findings, self.scope.state, self.scope.heartbeat_at)
        for name, left in self.contributed.items():
            if name in self.row_tables:
                check_stray_rows(self.findings, self.row_tables[name], left)
                continue
            baseline = targets[name].baseline_digest if name in targets and self.whole else None
            check_strangers(self.findings, self.committers[name], left, None if baseline is None else int(baseline))
        self._check_targets(targets, walk.counted)
        return self._report(committed, walk)

    def _seals(self, logged: Sequence[Any]) -> Seals:
        """Return the seals, with the chains that the ledger's seals link."""
        actions = Chain(self.findings, LOGGED, "action")
        actions.read(logged, action_values)
        descriptions = read_descriptions(self.findings, self.connection, self.scope, self.topology)
        return Seals(findings=self.findings, descriptions=descriptions, actions=actions)

    def _is_prepared(self, name: str, targets: Mapping[str, Any]) -> bool:
        """True if the tables of this committer must exist. A topology that was refused at its first start has a
        description but no tables.
        """
        return name in targets or self.last >= 1

    def _report(self, committed: int, walk: Walk) -> AuditReport:
        return AuditReport(
            topology=self.topology,
            first_txid=self.first,
            last_txid=self.last,
            committed_txid=committed,
            planned_ahead=max(0, (self.scope.planned_txid or 0) - committed),
            generated_at=self.scope.now,
            auditor=Auditor(user=_user(), host=platform.node(), role=self.scope.role, version=self.version),
            head=None if walk.newest is None or not walk.newest.txid else head_of(walk.newest),
            last_action=_last_action(walk.seals.actions.last),
            code_hash=None if self.scope.code_hash is None else bytes(self.scope.code_hash).hex(),
            unbatched=self._unbatched(),
            staging_left=self._staging_left(),
            dead_lettered=sum(
                batch.dead_lettered or 0
                for batch in walk.batches
                if batch.redone_as is None and batch.backfills is None
            ),
            verdict=self.findings.verdict,
            checks=self.findings.checks(),
            findings=self.findings.findings(),
            by_design=self.findings.limits(),
            failures=tuple(walk.failures),
            attempts=dict(walk.states),
            failures_by_kind=dict(walk.kinds),
            actions=tuple(walk.actions.taken[-LISTED_MAX:]),
            orders=tuple(walk.actions.given[-LISTED_MAX:]),
            holes=tuple(txid for txid in walk.chains.holes if self.first <= txid <= self.last),
            batches=tuple(self._judged(batch) for batch in walk.batches),
        )

    def _unbatched(self) -> tuple[Unbatched, ...]:
        if not (self.recounting and self.whole) or not isinstance(self.scope.description, Mapping):
            return ()
        return tuple(find_unbatched(self.connection, self.topology, self.scope.description))

    def _staging_left(self) -> tuple[str, ...]:
        scope = self.scope
        return tuple(find_left(self.connection, self.topology, scope.epoch, scope.last_txid)) if self.whole else ()

    def _rows(self, statement: str) -> Iterator[Any]:
        return iter(self.connection.execute(text(statement), {"topology": self.topology}))

    def _check_fence(self) -> None:
        scope = self.scope
        if scope.epoch is None:
            self.findings.wrong("ledger.gaps", "the topology has no fence row, but a ledger")
            return
        ledger = scope.ledger_txid
        self.findings.equal(
            "ledger.gaps",
            ledger == scope.last_txid,
            f"the fence stands at batch {scope.last_txid}, the ledger ends with "
            f"{'nothing' if ledger is None else f'batch {ledger}'}",
            *({max(ledger or 0, scope.last_txid)} - {0}),
        )

    def _read_description(self) -> None:
        if self.scope.description is None:
            if self.last >= 1:
                self.findings.unknown("target.keys", "no leader has described the topology: its tables are not known")
            return
        try:
            described = committers_of(self.scope.description)
            self.own = own_committers_of(self.scope.description)
            self.row_tables = row_tables_of(self.scope.description)
        except ValueError as error:
            self.findings.unknown("target.keys", f"the description of the topology cannot be read: {error}")
            return
        for name, committer in described.items():
            schema, _, table = committer.target.partition(".")
            bound = {"schema": schema, "table": f"{table}_contribution"}
            columns = [row[0] for row in self.connection.execute(text(sql.COLUMNS), bound)]
            self.committers[name] = committer.ordered(columns)

    def _read_contributions(self, name: str, committer: CommitterTables, chains: Chains) -> None:
        with self._table("contributions.rows", f"the contributions to {committer.target}"):
            low, high = (-(2**63), 2**63 - 1) if self.whole else (self.first, self.last)
            redone = chains.redone_before(low, high)
            self.contributed[name] = read_contributions(self.connection, committer, low, high, redone)

    def _read_rows(self, name: str, table: RowTable) -> None:
        with self._table("contributions.rows", f"the rows of {table.log}"):
            low, high = (-(2**63), 2**63 - 1) if self.whole else (self.first, self.last)
            self.contributed[name] = read_rows(self.connection, table, low, high)

    def _check_targets(self, targets: Mapping[str, Any], counted: Mapping[str, int]) -> None:
        for name, table in self.row_tables.items():
            if self._is_registered(name, table.target, targets):
                self.findings.by_design(
                    "source.keys", f"{name} stores rows: they were compared with what was committed, by batch", 0
                )
            if table.last is not None and name in self.contributed:
                with self._table("target.keys", f"table {table.target}"):
                    check_last_rows(self.findings, self.connection, table, table.last)
        for name, committer in self.committers.items():
            if not self._is_registered(name, committer.target, targets):
                continue
            if name in self.contributed:
                self._tell(f"comparing table {committer.target}", now=True)
                with self._table("target.keys", f"table {committer.target}"):
                    check_target(self.findings, self.connection, committer, parts_of(committer, self.committers))
            elif not committer.contributions and self.whole and targets[name].baseline_digest is None:
                with self._table("target.keys", f"table {committer.target}"):
                    check_total(self.findings, self.connection, committer, counted.get(name, 0))
                    check_computed(self.findings, self.connection, committer, parts_of(committer, self.committers))
                self.findings.by_design(
                    "target.keys",
                    f"{name} keeps no contributions: only the total of {committer.target} was compared",
                    0,
                )
            elif not committer.contributions:
                self.findings.by_design(
                    "target.keys", f"{name} keeps no contributions: {committer.target} was not compared", 0
                )
        for name in sorted(self.own):
            self.findings.by_design(
                "target.keys", f"committer {name} writes by its own code: what it wrote was not compared", 0
            )
        for name in sorted({*targets} - {*self.committers, *self.row_tables}):
            if self.committers or self.own or self.row_tables:
                self.findings.unknown(
                    "target.keys", f"table {targets[name].target} of committer {name}, which is not described any more"
                )

    def _is_registered(self, name: str, target: str, targets: Mapping[str, Any]) -> bool:
        """Check that a table is registered to its committer."""
        if name not in targets:
            if self.last >= 1:
                self.findings.wrong("target.keys", f"table {target} is not registered to committer {name}")
            return False
        if targets[name].target != target:
            self.findings.wrong(
                "target.keys", f"committer {name} writes to {target}, registered is {targets[name].target}"
            )
            return False
        return True

    @contextmanager
    def _table(self, check: str, what: str) -> Iterator[None]:
        """Check a table of the user's. A missing one is a MISMATCH, an unreadable one UNVERIFIED; neither ends the
        audit.
        """
        try:
            with self.connection.begin_nested():
                yield
        except DBAPIError as error:
            state = sqlstate(error)
            if state in NO_TABLE:
                self.findings.wrong(check, f"{what}: {one_line(error)}")
            elif state == INSUFFICIENT_PRIVILEGE:
                self.findings.unknown(check, f"{what}: {one_line(error)}")
            else:
                raise

    def _judged(self, batch: BatchVerdict) -> BatchVerdict:
        verdict = self.findings.verdict_of(batch.txid)
        return batch if verdict is Verdict.MATCH else replace(batch, verdict=verdict)

    def _tell(self, line: str, *, now: bool = False) -> None:
        if now or time.monotonic() - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = time.monotonic()
            self.say(f"{self.topology}: {line}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # An account without a name, as in containers.
        return "unknown"


def _last_action(row: Any | None) -> LastAction | None:
    return None if row is None else LastAction(number=row.number, seal=bytes(row.seal).hex())
