"""Recomputes the seals: of each final ledger row with everything that it covers, by the version of the seal, and of the
chains that it links.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from txtopo.audit.verdicts import Findings
from txtopo.reports.formatting import counted, instant

SEAL, DESCRIBED, LOGGED = "ledger.seal", "topology.described", "actions.chain"
NEWEST = 2
"""Version of the seals that commits write now. Rows of version 1 are older: their times, attempts and rejected records
are not covered.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The rows of other tables that belong to one ledger row."""

    counts: Sequence[Any]
    edges: Sequence[Any]
    plans: Sequence[Any]
    attempts: Sequence[Any]
    dead_letters: Sequence[Any] = ()
    rejected: Sequence[Any] = ()
    """By spout and path: their number and a digest."""

    def plan_of(self, row: Any) -> Any | None:
        """Return the applied plan."""
        return next((plan for plan in self.plans if plan.cut == row.cut), None)


@dataclass(slots=True)
class Chain:
    """One chain of rows next to the ledger, each sealed with the previous seal: the descriptions of a topology, or its
    action log.
    """

    findings: Findings
    check: str
    what: str
    """The name of its rows, for people."""
    rows: Mapping[int, Any] = field(default_factory=dict)
    """The seals by number, where they exist."""

    def read(self, rows: Iterable[Any], values: Callable[[Any], Sequence[Any]]) -> None:
        """Recompute the whole chain. `values`: what the seal of a row covers, without the previous seal. Numbers start
        at 1 and have no gap.
        """
        found: dict[int, Any] = {}
        before: Any | None = None
        for row in rows:
            if row.number is None or row.seal is None:
                self.findings.wrong(
                    self.check,
                    f"{self.what} of {instant(row.at)} was never sealed: somebody wrote it without the triggers",
                )
                continue
            missing = range(1 if before is None else before.number + 1, row.number)
            gone = counted(len(missing), self.what)
            if self.findings.equal(
                self.check,
                not missing,
                f"{gone} before {self.what} {row.number} of {instant(row.at)} removed: it was sealed after more of "
                f"them",
            ):
                seal = _digest([*values(row), _hex_of(before)])
                self.findings.equal(
                    self.check,
                    bytes(row.seal) == seal,
                    f"{self.what} {row.number} was changed: its seal is {short(row.seal)}, recomputed "
                    f"{seal.hex()[:16]}",
                )
            found[row.number] = before = row
        self.rows = found

    def seal(self, number: int | None) -> str | None:
        """Return the stored seal of a row, hex; None if there is no row of this number."""
        row = None if number is None else self.rows.get(number)
        return None if row is None else bytes(row.seal).hex()

    @property
    def last(self) -> Any | None:
        """Return the last row."""
        return self.rows[max(self.rows)] if self.rows else None


@dataclass(slots=True, kw_only=True)
class Seals:
    """Recomputes the seals of ledger rows."""

    findings: Findings
    descriptions: Chain
    actions: Chain

    def check(self, row: Any, around: Around, before: Any | None) -> None:
        """Check one final row after the previous one; the genesis row has none."""
        txids = [row.txid] if row.txid else []
        if before is not None:
            self.findings.equal(
                SEAL,
                row.seal_version >= before.seal_version,
                f"its seal is of version {row.seal_version}, that of the batch before of version {before.seal_version}",
                *txids,
            )
        known = row.seal_version in (1, NEWEST)
        if not known:
            self.findings.unknown(
                SEAL, f"its seal is of version {row.seal_version}, which a later release makes", *txids
            )
            return
        if row.seal_version == NEWEST and not self._check_ties(row, around):
            return  # The original of a missing row is unknown.
        seal = _seal_1(row, around, before) if row.seal_version == 1 else self._seal_2(row, around, before)
        covered = (
            "the row, its counts, its edges or its dead letters"
            if row.seal_version == 1
            else "the row, its times, counts, edges, rejected records, dead letters, attempts, description or actions"
        )
        self.findings.equal(
            SEAL,
            row.seal is not None and bytes(row.seal) == seal,
            f"its seal is {short(row.seal)}, recomputed {seal.hex()[:16]}: {covered} were changed",
            *txids,
        )
        if row.seal_version == 1 and row.txid:
            self.findings.by_design(
                SEAL,
                "sealed by the first release: times, attempts, rejected records, description and actions are not "
                "covered",
            )

    def _check_ties(self, row: Any, around: Around) -> bool:
        """Check that the attempts, the description and the action that the seal covers all exist."""
        txids = [row.txid] if row.txid else []
        sealed = set(_sealed(row))
        there = {one.attempt for one in around.attempts}
        gone = sorted(sealed - there)
        whole = self.findings.equal(
            "ledger.attempts", not gone, f"of its attempts, by its seal, {_named(gone)} gone", *txids
        )
        # One that was cancelled because its batch was to be left out may have begun a moment late.
        late = sorted(there - sealed) if row.state == "applied" else []
        self.findings.equal(
            "ledger.attempts", not late, f"its seal knows nothing of its {_named(late, verb='')}", *txids
        )
        if row.sealed_description is not None:
            described = self.descriptions.rows.get(row.sealed_description)
            if (
                whole := self.findings.equal(
                    DESCRIBED,
                    described is not None,
                    f"description {row.sealed_description}, which its seal covers, is missing",
                    *txids,
                )
                and whole
            ):
                code = bytes(described.code_hash) if described is not None else b""
                self.findings.equal(
                    DESCRIBED,
                    code == bytes(row.code_hash),
                    f"it was committed by code {short(row.code_hash)}, described was code {short(code)}",
                    *txids,
                )
        if row.sealed_action is not None:
            there_is = row.sealed_action in self.actions.rows
            whole = (
                self.findings.equal(
                    LOGGED, there_is, f"action {row.sealed_action}, which its seal covers, is missing", *txids
                )
                and whole
            )
        return whole

    def _seal_2(self, row: Any, around: Around, before: Any | None) -> bytes:
        sealed = _sealed(row)
        attempts = [
            _attempt(one, sealed[one.attempt])
            for one in sorted(around.attempts, key=lambda one: one.attempt)
            if one.attempt in sealed
        ]
        return _digest(
            [
                2,
                *_identity(row),
                micros(row.planned_at),
                micros(row.committed_at),
                _counts(around),
                _edges(around),
                [
                    [one.spout, one.path, one.number, one.digest]
                    for one in sorted(around.rejected, key=lambda one: (one.spout.encode(), one.path.encode()))
                ]
                or None,
                _dead_letters(around) or None,
                attempts or None,
                row.sealed_description,
                self.descriptions.seal(row.sealed_description),
                row.sealed_action,
                self.actions.seal(row.sealed_action),
                _hex_of(before),
                *([] if row.backfills is None else [row.backfills, row.committer]),
            ]
        )


def description_values(row: Any) -> Sequence[Any]:
    """Return what the seal of a description covers."""
    return [row.topology, row.number, row.epoch, bytes(row.code_hash).hex(), row.digest, micros(row.at)]


def action_values(row: Any) -> Sequence[Any]:
    """Return what the seal of an action covers."""
    return [
        row.topology,
        row.number,
        row.action_id,
        micros(row.at),
        row.actor,
        row.host,
        row.command,
        row.reason,
        row.order_id,
        row.txid,
        row.before_text,
        row.after_text,
    ]


def micros(at: datetime | None) -> int | None:
    """Return microseconds since 1970."""
    return None if at is None else (at - _EPOCH) // timedelta(microseconds=1)


def short(value: Any) -> str:
    """Return the beginning of a digest."""
    return "nothing" if value is None else bytes(value).hex()[:16]


def _seal_1(row: Any, around: Around, before: Any | None) -> bytes:
    parts = [*_identity(row), _counts(around), _edges(around), _hex_of(before)]
    if around.dead_letters:
        parts.append(_dead_letters(around))
    return _digest(parts)


def _identity(row: Any) -> list[Any]:
    return [
        row.topology,
        row.txid,
        row.cut,
        bytes(row.digest).hex(),
        row.incarnation,
        row.epoch,
        row.attempt,
        bytes(row.code_hash).hex(),
        row.state,
        row.read,
        row.rejected,
        row.dead_lettered,
        row.committers,
        row.reason,
        row.redo_of,
    ]


def _counts(around: Around) -> list[Any] | None:
    ordered = sorted(around.counts, key=lambda one: one.committer.encode())
    return [
        [one.committer, one.arrived, one.counted, one.results, one.written, one.ignored, one.reversed, one.digest]
        for one in ordered
    ] or None


def _edges(around: Around) -> list[Any] | None:
    return [
        [one.edge, one.sent, one.received] for one in sorted(around.edges, key=lambda one: one.edge.encode())
    ] or None


def _dead_letters(around: Around) -> list[Any]:
    ordered = sorted(around.dead_letters, key=lambda one: (one.spout.encode(), one.position.encode()))
    return [[one.spout, one.position, one.component, one.reason, one.raw_digest] for one in ordered]


def _sealed(row: Any) -> dict[int, str]:
    """Return attempt -> its state when the row was sealed; pairs of another form are ignored."""
    pairs = row.sealed_attempts if isinstance(row.sealed_attempts, list) else ()
    return {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int) and isinstance(pair[1], str)
    }


def _attempt(one: Any, state: str) -> list[Any]:
    """Return the values of an attempt. `state`: its state when its batch was sealed."""
    begun = [one.attempt, one.epoch, bytes(one.code_hash).hex(), one.alone, one.host, micros(one.started_at)]
    if state == "begun":
        return begun
    return [
        *begun,
        one.state,
        one.kind,
        one.cause,
        one.component,
        one.position,
        one.message,
        one.detail_digest,
        micros(one.ended_at),
        one.spans_text,
        one.inputs_text,
    ]


def _named(attempts: Sequence[int], verb: str = "are") -> str:
    if len(attempts) == 1:
        return f"attempt {attempts[0]}{' is' if verb else ''}"
    return f"attempts {', '.join(map(str, attempts))}{f' {verb}' if verb else ''}"


def _hex_of(before: Any | None) -> str | None:
    return None if before is None or before.seal is None else bytes(before.seal).hex()


def _digest(parts: Sequence[Any]) -> bytes:
    """Return the digest of JSON in the server's spelling."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).digest()
