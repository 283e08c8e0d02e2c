"""Compares a batch's plan with its ledger row: the bytes and their digest, its batch, the previous batch and the batch
that it redoes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from txtopo.audit.check_redos import CHAIN
from txtopo.audit.check_seal import short
from txtopo.audit.verdicts import Findings

DIGEST = "plan.digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Checks plans, one by one."""

    findings: Findings
    topology: str

    def check(self, row: Any, plan: Any | None) -> int | None:
        """Check the applied plan; returns the order that it names."""
        if plan is None:
            self.findings.wrong(DIGEST, "its plan is missing, and this release never removes plans", row.txid)
            return None
        digest = hashlib.sha256(bytes(plan.bytes)).digest()
        self.findings.equal(
            DIGEST,
            digest == bytes(plan.digest) == bytes(row.digest),
            f"the plan's bytes have digest {digest.hex()[:16]}, the plan says {short(plan.digest)}, the ledger "
            f"{short(row.digest)}",
            row.txid,
        )
        try:
            said = json.loads(bytes(plan.bytes))
            about = (said["topology"], said["incarnation"], said["txid"], said["cut"], said["redo_of"])
            filled = (said.get("backfills"), said.get("committer"))
            previous, kind, order = said["previous"], said["kind"], said["request_id"]
        except (ValueError, KeyError, TypeError) as error:
            self.findings.wrong(DIGEST, f"its plan cannot be read: {error!r}", row.txid)
            return None
        self.findings.equal(
            DIGEST,
            about == (self.topology, row.incarnation, row.txid, row.cut, row.redo_of),
            f"its plan is of topology, incarnation, txid, cut and redo {about}",
            row.txid,
        )
        self.findings.equal(
            "ledger.chain",
            previous == bytes(row.prev_digest or b"").hex(),
            f"its plan follows digest {str(previous)[:16]}, its ledger row {short(row.prev_digest)}",
            row.txid,
        )
        self.findings.equal(
            CHAIN,
            filled == (row.backfills, row.committer),
            f"its plan backfills batch and committer {filled}, its ledger row {(row.backfills, row.committer)}",
            row.txid,
        )
        expected = "redo" if row.redo_of is not None else "cut" if row.backfills is None else "backfill"
        self.findings.equal(
            CHAIN, kind == expected, f"its plan is of kind {kind!r}, its ledger row of a {expected}", row.txid
        )
        if expected != "cut":
            self.findings.equal(
                CHAIN, isinstance(order, int), f"it is a {expected}, but its plan names no order", row.txid
            )
        return order if isinstance(order, int) else None
