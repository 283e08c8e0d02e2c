"""Compares the description of a topology with the sealed chain of its descriptions, and the fence with what its leaders
recorded.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit import audit_statements as sql
from txtopo.audit.check_seal import DESCRIBED, Chain, description_values, short
from txtopo.audit.verdicts import Findings

EPOCHS = "ledger.epochs"


def read_descriptions(findings: Findings, connection: Connection, scope: Any, topology: str) -> Chain:
    """Recompute the chain, and compare the stored description with its last row."""
    chain = Chain(findings, DESCRIBED, "description")
    chain.read(connection.execute(text(sql.DESCRIPTIONS), {"topology": topology}), description_values)
    if scope.description is None and chain.last is None:
        return chain
    last = None if chain.last is None else (chain.last.digest, bytes(chain.last.code_hash))
    now = None if scope.description is None else (scope.description_digest, bytes(scope.code_hash))
    findings.equal(
        DESCRIBED,
        now == last,
        "the description of the topology is not the one that its leader gave: somebody changed it",
    )
    by_code: dict[bytes, set[str]] = defaultdict(set)
    for row in chain.rows.values():
        by_code[bytes(row.code_hash)].add(row.digest)
        if row.epoch is not None and row.epoch == scope.epoch:
            findings.equal(
                DESCRIBED,
                bytes(row.code_hash) == bytes(scope.fence_code),
                f"description {row.number} of epoch {row.epoch} is of code {short(row.code_hash)}, the fence of code "
                f"{short(scope.fence_code)}",
            )
    for code, digests in by_code.items():
        # The code hash covers the description: the same code always has the same description.
        findings.equal(
            DESCRIBED,
            len(digests) == 1,
            f"code {short(code)} is described in {len(digests)} ways: somebody changed one",
        )
    return chain


def check_fence(findings: Findings, scope: Any, newest: Any | None) -> None:
    """Check the fence's epoch and code. `newest`: the last row of the ledger that was read."""
    if scope.epoch is None:
        return
    if scope.led_epoch is not None:
        findings.equal(
            EPOCHS,
            scope.epoch == scope.led_epoch,
            f"the fence is of epoch {scope.epoch}, its leader took epoch {scope.led_epoch}",
        )
    if newest is None or not newest.txid:
        return
    findings.equal(
        EPOCHS,
        scope.epoch >= newest.epoch,
        f"the fence is of epoch {scope.epoch}, batch {newest.txid} of epoch {newest.epoch}",
    )
    if scope.epoch == newest.epoch:
        findings.equal(
            EPOCHS,
            bytes(scope.fence_code) == bytes(newest.code_hash),
            f"the fence is of code {short(scope.fence_code)}, batch {newest.txid} of the same epoch of code "
            f"{short(newest.code_hash)}",
        )
