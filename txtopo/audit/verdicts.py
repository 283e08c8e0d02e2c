"""The values of an audit: verdicts, findings, checks, batches; and the collector that makes them from comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """MATCH: compared and equal. MISMATCH: compared and different. UNVERIFIED: could not be compared."""

    MATCH = "MATCH"
    MISMATCH = "MISMATCH"
    UNVERIFIED = "UNVERIFIED"


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of comparison."""

    name: str
    compared: str
    against: str


CHECKS = (
    Check("source.content", "existence, size and sha-256 of every input file", "the plan"),
    Check("source.records", "records counted in the files", "the ledger's read and rejected"),
    Check("source.holes", "batches cut from the source", "the one batch of each that is in effect"),
    Check("source.keys", "counts and sums a key, recounted from the files", "the contributions of the batch"),
    Check("rejects.rows", "rejected records kept", "the ledger's rejected and the files consumed"),
    Check("rejects.lines", "records that do not parse, and their bytes", "the rejected records kept"),
    Check("dead_letters.rows", "dead letters kept", "the ledger's dead-lettered and the records of the files"),
    Check("plan.digest", "sha-256 of the plan's bytes", "the digests of plan and ledger row"),
    Check("plan.files", "the files named in the plan", "the files remembered as consumed"),
    Check("ledger.gaps", "txids of the ledger", "1 to the fence's last txid"),
    Check("ledger.order", "times of planning, attempt and commit", "the order of the txids"),
    Check("ledger.epochs", "epochs and incarnations along the ledger", "the rows before and the fence"),
    Check("ledger.chain", "the digest that each batch follows", "the digest of the batch before"),
    Check("ledger.seal", "the seal, recomputed from the row and all that it covers", "the seal stored"),
    Check(
        "ledger.counts", "arrived, results and number of committers", "counted, written + ignored, the row's own word"
    ),
    Check("ledger.equation", "read - rejected - dead-lettered", "what arrived at each committer"),
    Check("ledger.attempts", "the attempts, and the one that was applied", "the ledger row and its seal"),
    Check("kept.seals", "seals kept outside of the database (--expect)", "the seals stored"),
    Check("schema.guards", "triggers, functions, constraints and indexes of schema txtopo", "what its migrations make"),
    Check(
        "topology.described",
        "the description of the topology",
        "the chain of its descriptions and the code of the batches",
    ),
    Check("quarantine.empty", "quarantined batches", "a reason, and nothing counted or rejected"),
    Check("redo.chain", "redos, their plans and their files", "the batch that each redoes"),
    Check("redo.reversed", "contributions that a redo reversed", "those of the batch redone, negated"),
    Check("actions.signed", "redos and quarantined batches", "the action log and the orders"),
    Check("actions.chain", "the action log, its seals recomputed", "the seals stored and those of the batches"),
    Check("contributions.rows", "rows, weights and digest of the contributions", "results, counted and digest"),
    Check("contributions.known", "txids of the contributions", "the applied rows of the ledger"),
    Check(
        "target.shape", "kind, columns and types of target and contribution tables", "the description of the topology"
    ),
    Check("target.keys", "the target table, key by key", "the sum over all contributions"),
)
"""In the order of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or that could not be determined."""

    check: str
    verdict: Verdict
    message: str
    txids: tuple[int, ...] = ()
    """The batches concerned, lowest first, at most TXIDS_MAX; empty if no batch can be named. For a different key: all
    batches that contributed to it.
    """
    look: str | None = None
    """A command that shows more of it, if no batch is at fault; None: look at the batch."""


TXIDS_MAX = 10
"""Maximum number of txids named in one finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDesign:
    """What was not compared because that is impossible or was not requested; does not change the exit code."""

    check: str
    reason: str
    batches: int
    """Number of batches concerned; 0 if it concerns no batch in particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    name: str
    compared: str
    against: str
    verdict: Verdict
    """MATCH also if there was nothing to compare; `comparisons` has the number."""
    comparisons: int
    findings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """A failed attempt, with its error."""

    txid: int
    attempt: int
    kind: str
    component: str | None
    position: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTaken:
    """A row of the action log."""

    action_id: int
    at: datetime
    actor: str
    host: str
    command: str
    txid: int | None
    reason: str | None
    order_id: int | None
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderGiven:
    """An operator's order."""

    order_id: int
    kind: str
    txids: tuple[int, ...]
    at: datetime
    actor: str | None
    host: str | None
    reason: str | None
    state: str
    """open, done or refused."""
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last batch of a report. Its seal, stored outside of the database, covers this batch and all before it."""

    txid: int
    seal: str | None
    """Hex; None if it was removed."""
    seal_version: int
    digest: str
    """Digest of its plan, hex."""
    code_hash: str
    """Hash of the code that counted it, hex."""
    committed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAction:
    """The last row of the action log."""

    number: int
    seal: str
    """Hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditor:
    """Who audited, as reported by the auditing machine."""

    user: str
    host: str
    role: str
    """Role in the database."""
    version: str
    """Version of txtopo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbatched:
    """Files of one spout that are in no batch of the database. They may be new, or planned and not yet mirrored."""

    spout: str
    path: str
    """The path that the spout reads."""
    files: int
    names: tuple[str, ...]
    """Some of them, in order."""
    problem: str | None
    """Why the path could not be read; None: it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchVerdict:
    """One committed batch."""

    txid: int
    state: str
    """committed or quarantined."""
    reason: str | None
    """Why it was quarantined."""
    redo_of: int | None
    """The batch that it redoes."""
    backfills: int | None = None
    """The batch that it counted into `committer` alone."""
    committer: str | None = None
    redone_as: int | None
    """The batch in effect instead of it; the source is compared with that one's plan."""
    verdict: Verdict
    epoch: int
    attempts: int
    failed_attempts: int
    files: int
    read: int | None
    """As reported by the run."""
    rejected: int | None
    """Of these, as reported by the run."""
    dead_lettered: int | None
    """Of these, as reported by the run: removed because a bolt failed on them."""
    recounted: int | None
    """Number of records that the audit counted in its files; None if they were not counted."""
    contributed: Mapping[str, int]
    """Committer -> sum of the weights in its contributions."""
    committed_at: datetime
    seal: str | None
    """Hex."""
    phases_s: Mapping[str, float]
    """Seconds by phase, from the first attempt to the commit; they add up to `wall_s`."""
    wall_s: float | None
    """Seconds from planning to commit; None if a time is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Everything that an audit found."""

    topology: str
    first_txid: int
    last_txid: int
    """The audited range; last < first if nothing is committed."""
    committed_txid: int
    """The last committed txid, from its fence."""
    planned_ahead: int
    """Number of batches planned and not committed, which are not audited."""
    generated_at: datetime
    """By the clock of the database."""
    auditor: Auditor
    head: Head | None
    """The last batch of the range; None if nothing is committed."""
    last_action: LastAction | None
    code_hash: str | None
    """Hash of the code that describes the topology now, hex."""
    unbatched: tuple[Unbatched, ...]
    """Only if the sources are recounted and everything is audited."""
    staging_left: tuple[str, ...]
    """Staging tables of the topology that no open attempt needs; only if everything is audited."""
    dead_lettered: int
    """Number of records of batches in effect that were removed as dead letters."""
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    findings: tuple[Finding, ...]
    """Mismatches first, then by txid."""
    by_design: tuple[ByDesign, ...]
    failures: tuple[AttemptFailure, ...]
    attempts: Mapping[str, int]
    """State -> number of attempts in the range."""
    failures_by_kind: Mapping[str, int]
    """data, infrastructure, suspect -> number of failed attempts in the range."""
    actions: tuple[ActionTaken, ...]
    """In the order in which they happened."""
    orders: tuple[OrderGiven, ...]
    holes: tuple[int, ...]
    """Quarantined batches of the range that nothing redoes: their records are in no table."""
    batches: tuple[BatchVerdict, ...]

    @property
    def exit_code(self) -> int:
        """0: all MATCH; 1: something is wrong; 3: something could not be determined. 1 wins over 3."""
        return {Verdict.MATCH: 0, Verdict.MISMATCH: 1, Verdict.UNVERIFIED: 3}[self.verdict]


@dataclass(slots=True)
class Findings:
    """Collects the results of the checks."""

    _found: list[Finding] = field(default_factory=list)
    _by_design: Counter[tuple[str, str]] = field(default_factory=Counter)
    _compared: Counter[str] = field(default_factory=Counter)
    _wrong: set[int] = field(default_factory=set)
    _unknown: set[int] = field(default_factory=set)

    def equal(self, check: str, holds: bool, message: str, *txids: int) -> bool:
        """Record one comparison; a MISMATCH if `holds` is False. Returns `holds`."""
        self._compared[check] += 1
        if not holds:
            self.wrong(check, message, *txids)
        return holds

    def compared(self, check: str, comparisons: int) -> None:
        """Record comparisons that were made elsewhere, in bulk."""
        self._compared[check] += comparisons

    def wrong(self, check: str, message: str, *txids: int, look: str | None = None) -> None:
        """Record a MISMATCH. `look`: a command that shows more of it, if no batch is at fault."""
        self._found.append(
            Finding(check=check, verdict=Verdict.MISMATCH, message=message, txids=tuple(txids[:TXIDS_MAX]), look=look)
        )
        self._wrong.update(txids)

    def unknown(self, check: str, message: str, *txids: int) -> None:
        """Record that something could not be determined."""
        self._found.append(
            Finding(check=check, verdict=Verdict.UNVERIFIED, message=message, txids=tuple(txids[:TXIDS_MAX]))
        )
        self._unknown.update(txids)

    def by_design(self, check: str, reason: str, batches: int = 1) -> None:
        """Record that something is not compared by design; the same reason is reported once."""
        self._by_design[check, reason] += batches

    def verdict_of(self, txid: int) -> Verdict:
        """Return the verdict on one batch; a MISMATCH wins."""
        if txid in self._wrong:
            return Verdict.MISMATCH
        return Verdict.UNVERIFIED if txid in self._unknown else Verdict.MATCH

    @property
    def verdict(self) -> Verdict:
        """Return the verdict over everything; a MISMATCH wins."""
        return _worst(finding.verdict for finding in self._found)

    def checks(self) -> tuple[CheckResult, ...]:
        """Return one result for each check."""
        return tuple(self._result(check) for check in CHECKS)

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings: mismatches first, then by txid, then as found."""
        none = 2**63
        return tuple(
            sorted(
                self._found, key=lambda one: (one.verdict is not Verdict.MISMATCH, one.txids[0] if one.txids else none)
            )
        )

    def limits(self) -> tuple[ByDesign, ...]:
        """Return what was not compared by design."""
        return tuple(
            ByDesign(check=check, reason=reason, batches=batches)
            for (check, reason), batches in self._by_design.items()
        )

    def _result(self, check: Check) -> CheckResult:
        mine = [finding.verdict for finding in self._found if finding.check == check.name]
        return CheckResult(
            name=check.name,
            compared=check.compared,
            against=check.against,
            verdict=_worst(mine),
            comparisons=self._compared[check.name],
            findings=len(mine),
        )


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    return next((one for one in (Verdict.MISMATCH, Verdict.UNVERIFIED) if one in found), Verdict.MATCH)
