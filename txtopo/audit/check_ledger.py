"""Reads the ledger in order and recomputes what links its rows: order, epochs, digests, plans, seals, counts,
attempts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from txtopo.audit.check_seal import Around, Seals
from txtopo.audit.check_seal import short as _hex
from txtopo.audit.verdicts import Findings
from txtopo.core import limits
from txtopo.reports.stored_description import CommitterTables, RowTable

COMMIT_TAKES_AT_MOST = timedelta(milliseconds=limits.STATEMENT_TIMEOUT_MS)
"""One statement writes the end of the applied attempt and the time of the commit."""


@dataclass(slots=True)
class LedgerCheck:
    """Checks rows in the order of their txids, each against the previous one."""

    findings: Findings
    topology: str
    incarnation: str | None
    """The epoch of the fence."""
    first: int
    committers: Mapping[str, CommitterTables]
    seals: Seals
    described_code: bytes | None
    """Code hash of the description that contains `committers`."""
    own: frozenset[str] = frozenset()
    """Custom committers."""
    row_tables: Mapping[str, RowTable] = field(default_factory=dict)
    """Committers of rows."""
    _before: Any | None = None
    _latest: datetime | None = field(default=None)

    def base(self, row: Any | None) -> None:
        """Take the row before the range without checks, except for the genesis row."""
        if row is None:
            txid = self.first - 1
            missing = f"batch {txid}" if txid else "the genesis, which batch 1 follows"
            self.findings.wrong("ledger.gaps", f"the ledger has no row of {missing}", *([txid] if txid else []))
            return
        if row.txid == 0:
            expected = hashlib.sha256(
                _canonical({"v": 1, "topology": self.topology, "incarnation": row.incarnation, "txid": 0})
            )
            self.findings.equal(
                "ledger.chain",
                bytes(row.digest) == expected.digest(),
                "the genesis row does not carry the digest of this topology and incarnation",
            )
            self.seals.check(row, Around(counts=(), edges=(), plans=(), attempts=()), None)
        self._before, self._latest = row, row.committed_at

    def check(self, row: Any, around: Around) -> None:
        """Check one committed batch."""
        before = self._before
        follows = before is not None and before.txid == row.txid - 1
        if not follows:
            self._gap(before.txid if before is not None else self.first - 1, row.txid)
        else:
            self.findings.equal(
                "ledger.gaps", row.prev_txid == row.txid - 1, f"it says that it follows batch {row.prev_txid}", row.txid
            )
        self._check_order(row, around)
        self._check_epoch(row, before)
        self._check_chain(row, before if follows else None)
        if follows:
            self.seals.check(row, around, before)
        self._check_counts(row, around)
        self._check_attempts(row, around)
        self._before = row

    @property
    def newest(self) -> Any | None:
        """Return the last row so far."""
        return self._before

    def end(self, last: int) -> None:
        """Check what follows the last row of the range."""
        seen = self._before.txid if self._before is not None else self.first - 1
        if seen < last:
            self._gap(seen, last + 1)

    def _gap(self, before: int, after: int) -> None:
        missing = range(before + 1, after)
        if not missing:
            return
        named = f"batch {missing[0]}" if len(missing) == 1 else f"batches {missing[0]} to {missing[-1]}"
        self.findings.wrong("ledger.gaps", f"the ledger has no row of {named}", *missing[:100_000])

    def _check_order(self, row: Any, around: Around) -> None:
        self.findings.equal(
            "ledger.order",
            self._latest is None or row.committed_at >= self._latest,
            f"it was committed at {row.committed_at}, before the batch before it ({self._latest})",
            row.txid,
        )
        self._latest = max(self._latest, row.committed_at) if self._latest else row.committed_at
        plan = around.plan_of(row)
        if plan is not None:
            self.findings.equal(
                "ledger.order",
                row.planned_at == plan.created_at and row.planned_at <= row.committed_at,
                f"planned at {row.planned_at} by the ledger and {plan.created_at} by its plan, committed at "
                f"{row.committed_at}",
                row.txid,
            )

    def _check_epoch(self, row: Any, before: Any | None) -> None:
        self.findings.equal(
            "ledger.epochs",
            before is None or row.epoch >= before.epoch,
            f"epoch {row.epoch} committed after epoch {before.epoch if before else 0}",
            row.txid,
        )
        self.findings.equal(
            "ledger.epochs",
            self.incarnation is None or row.incarnation == self.incarnation,
            f"it is of incarnation {row.incarnation}, the fence is of {self.incarnation}",
            row.txid,
        )

    def _check_chain(self, row: Any, before: Any | None) -> None:
        if before is not None:
            self.findings.equal(
                "ledger.chain",
                bytes(row.prev_digest or b"") == bytes(before.digest),
                f"it follows digest {_hex(row.prev_digest)}, batch {before.txid} has {_hex(before.digest)}",
                row.txid,
            )

    def _check_counts(self, row: Any, around: Around) -> None:
        txid, check = row.txid, "ledger.counts"
        self.findings.equal(
            check,
            row.state in ("applied", "quarantined") and row.committers == len(around.counts),
            f"it is {row.state} with {row.committers} committers, {len(around.counts)} have counted",
            txid,
        )
        for one in around.counts:
            self.findings.equal(
                check,
                one.arrived == one.counted and one.results == one.written + one.ignored,
                f"committer {one.committer}: {one.arrived} arrived and {one.counted} counted, "
                f"{one.results} results and {one.written} written + {one.ignored} ignored",
                txid,
            )
        for edge in around.edges:
            self.findings.equal(
                check, edge.sent == edge.received, f"edge {edge.edge}: {edge.sent} sent, {edge.received} received", txid
            )
        known = {*self.committers, *self.own, *self.row_tables}
        if row.state == "applied" and known:
            own = {name for name in known if row.backfills is None or name == row.committer}
            missing = sorted(own - {one.committer for one in around.counts})
            if bytes(row.code_hash) == self.described_code:
                self.findings.equal(
                    check, not missing, f"not counted by: committer {', committer '.join(missing)}", txid
                )
            self._check_equation(row, around)

    def _check_equation(self, row: Any, around: Around) -> None:
        check = "ledger.equation"
        if None in (row.read, row.rejected, row.dead_lettered):
            self.findings.wrong(check, "an applied batch without numbers", row.txid)
            return
        entered = row.read - row.rejected - row.dead_lettered
        for one in around.counts:
            committer = self.committers.get(one.committer) or self.row_tables.get(one.committer)
            if committer is None or committer.way == "any":
                self.findings.by_design(
                    check, f"what bolts do to the rows on the way to {one.committer} is not declared"
                )
                continue
            bounded = committer.way == "fewer" or not committer.alone
            holds = one.arrived <= entered if bounded else one.arrived == entered
            if not holds and bytes(row.code_hash) != self.described_code:
                self.findings.unknown(
                    check,
                    f"{entered} records entered, {one.arrived} arrived at {one.committer}, but other code counted "
                    f"them than the one described now",
                    row.txid,
                )
                continue
            self.findings.equal(
                check,
                holds,
                f"{row.read} read - {row.rejected} rejected - {row.dead_lettered} dead-lettered = {entered}, "
                f"but {one.arrived} arrived at {one.committer}",
                row.txid,
            )

    def _check_attempts(self, row: Any, around: Around) -> None:
        applied = [one for one in around.attempts if one.state == "applied"]
        if row.state != "applied":
            self.findings.equal(
                "ledger.attempts", not applied, f"it is {row.state}, but one of its attempts was applied", row.txid
            )
            return
        identity = (row.attempt, row.epoch, bytes(row.code_hash))
        if not self.findings.equal(
            "ledger.attempts",
            [(one.attempt, one.epoch, bytes(one.code_hash)) for one in applied] == [identity],
            f"it says that {_ran(row)} was applied; of its attempts {', '.join(map(_ran, applied)) or 'none'} "
            f"{'were' if len(applied) > 1 else 'was'}",
            row.txid,
        ):
            return
        ended = applied[0].ended_at
        self.findings.equal(
            "ledger.order",
            applied[0].started_at <= ended and abs(ended - row.committed_at) <= COMMIT_TAKES_AT_MOST,
            f"committed at {row.committed_at}, its attempt ran from {applied[0].started_at} to {ended}",
            row.txid,
        )


def _ran(one: Any) -> str:
    """Return an attempt with everything that is compared."""
    return f"attempt {one.attempt} of epoch {one.epoch} by code {_hex(one.code_hash)}"


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
