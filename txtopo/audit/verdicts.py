"""What an audit says: verdicts, findings, checks, batches; and the collector that turns comparisons into them."""

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
    Check("redo.reversed", "contributions that a redo took back", "those of the batch redone, negated"),
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
    """One thing that is not as it must be, or that could not be found out."""

    check: str
    verdict: Verdict
    message: str
    txids: tuple[int, ...] = ()
    """The batches concerned, lowest first, at most TXIDS_MAX; empty where no batch can be named. Of a key that differs:
    all that contributed to it.
    """
    look: str | None = None
    """A command that shows more of it, where it is no batch's own fault; None: look at the batch."""


TXIDS_MAX = 10
"""Txids named in one finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDesign:
    """What was not compared because it cannot be, or was not asked for; changes no exit code."""

    check: str
    reason: str
    batches: int
    """How many batches it is about; 0 where it is about none in particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How one check ended."""

    name: str
    compared: str
    against: str
    verdict: Verdict
    """MATCH also where there was nothing to compare; `comparisons` says how much there was."""
    comparisons: int
    findings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """An attempt that failed, with its error."""

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
    """The last batch of a report. Its seal, kept outside of the database, holds for this batch and all before it."""

    txid: int
    seal: str | None
    """Hex; None where somebody removed it."""
    seal_version: int
    digest: str
    """Of its plan, hex."""
    code_hash: str
    """Of the code that counted it, hex."""
    committed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAction:
    """The last row of the action log."""

    number: int
    seal: str
    """Hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditor:
    """Who audited, by the word of the machine that did."""

    user: str
    host: str
    role: str
    """In the database."""
    version: str
    """Of txtopo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbatched:
    """Files of one spout that are in no batch of the database. They may be new, or planned and not yet mirrored."""

    spout: str
    path: str
    """Where the spout reads."""
    files: int
    names: tuple[str, ...]
    """Some of them, in their order."""
    problem: str | None
    """Why nobody could look; None: somebody did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchVerdict:
    """One committed batch."""

    txid: int
    state: str
    """committed or quarantined."""
    reason: str | None
    """Why it is quarantined."""
    redo_of: int | None
    """The batch that it redoes."""
    redone_as: int | None
    """The batch in effect in its place, with whose plan the source is compared instead."""
    verdict: Verdict
    epoch: int
    attempts: int
    failed_attempts: int
    files: int
    read: int | None
    """By the run's own word."""
    rejected: int | None
    """Of these, by the run's own word."""
    dead_lettered: int | None
    """Of these, by the run's own word: taken out since a bolt failed on them."""
    recounted: int | None
    """Records counted in its files by the audit; None where they were not counted."""
    contributed: Mapping[str, int]
    """Committer -> sum of the weights in its contributions."""
    committed_at: datetime
    seal: str | None
    """Hex."""
    phases_s: Mapping[str, float]
    """Seconds by phase, from the first attempt to the commit; they add up to `wall_s`."""
    wall_s: float | None
    """From planning to commit; None where a time is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Everything that an audit found."""

    topology: str
    first_txid: int
    last_txid: int
    """The range audited; last < first where nothing is committed."""
    committed_txid: int
    """How far the topology got, by its fence."""
    planned_ahead: int
    """Batches planned and not committed, which are not audited."""
    generated_at: datetime
    """By the database's clock."""
    auditor: Auditor
    head: Head | None
    """Of the range; None where nothing is committed."""
    last_action: LastAction | None
    code_hash: str | None
    """Of the code that describes the topology now, hex."""
    unbatched: tuple[Unbatched, ...]
    """Looked for where the sources are recounted and everything is audited."""
    dead_lettered: int
    """Records of batches in effect that were taken out as dead letters."""
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    findings: tuple[Finding, ...]
    """Mismatches first, then by txid."""
    by_design: tuple[ByDesign, ...]
    failures: tuple[AttemptFailure, ...]
    attempts: Mapping[str, int]
    """State -> attempts in the range."""
    failures_by_kind: Mapping[str, int]
    """data, infrastructure, suspect -> failed attempts in the range."""
    actions: tuple[ActionTaken, ...]
    """In the order in which they were done."""
    orders: tuple[OrderGiven, ...]
    holes: tuple[int, ...]
    """Quarantined batches of the range that nothing redoes: their records are in no table."""
    batches: tuple[BatchVerdict, ...]

    @property
    def exit_code(self) -> int:
        """0 all MATCH, 1 something is wrong, 3 could not find out; what is wrong wins."""
        return {Verdict.MATCH: 0, Verdict.MISMATCH: 1, Verdict.UNVERIFIED: 3}[self.verdict]


@dataclass(slots=True)
class Findings:
    """Collects what the checks say."""

    _found: list[Finding] = field(default_factory=list)
    _by_design: Counter[tuple[str, str]] = field(default_factory=Counter)
    _compared: Counter[str] = field(default_factory=Counter)
    _wrong: set[int] = field(default_factory=set)
    _unknown: set[int] = field(default_factory=set)

    def equal(self, check: str, holds: bool, message: str, *txids: int) -> bool:
        """One comparison; a MISMATCH where it does not hold. Returns `holds`."""
        self._compared[check] += 1
        if not holds:
            self.wrong(check, message, *txids)
        return holds

    def compared(self, check: str, comparisons: int) -> None:
        """Comparisons that were made elsewhere, in bulk."""
        self._compared[check] += comparisons

    def wrong(self, check: str, message: str, *txids: int, look: str | None = None) -> None:
        """A MISMATCH. `look`: a command that shows more of it, where it is no batch's own fault."""
        self._found.append(
            Finding(check=check, verdict=Verdict.MISMATCH, message=message, txids=tuple(txids[:TXIDS_MAX]), look=look)
        )
        self._wrong.update(txids)

    def unknown(self, check: str, message: str, *txids: int) -> None:
        """Something that could not be found out."""
        self._found.append(
            Finding(check=check, verdict=Verdict.UNVERIFIED, message=message, txids=tuple(txids[:TXIDS_MAX]))
        )
        self._unknown.update(txids)

    def by_design(self, check: str, reason: str, batches: int = 1) -> None:
        """Something that is not compared by design; the same reason is told once."""
        self._by_design[check, reason] += batches

    def verdict_of(self, txid: int) -> Verdict:
        """The verdict on one batch; what is wrong wins."""
        if txid in self._wrong:
            return Verdict.MISMATCH
        return Verdict.UNVERIFIED if txid in self._unknown else Verdict.MATCH

    @property
    def verdict(self) -> Verdict:
        """Over everything; what is wrong wins."""
        return _worst(finding.verdict for finding in self._found)

    def checks(self) -> tuple[CheckResult, ...]:
        """One result for each check there is."""
        return tuple(self._result(check) for check in CHECKS)

    def findings(self) -> tuple[Finding, ...]:
        """Mismatches first, then by txid, then as found."""
        none = 2**63
        return tuple(
            sorted(
                self._found, key=lambda one: (one.verdict is not Verdict.MISMATCH, one.txids[0] if one.txids else none)
            )
        )

    def limits(self) -> tuple[ByDesign, ...]:
        """What was not compared by design."""
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
