"""Puts what the ledger, its attempts and the recount say of one batch into one line of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.audit.check_seal import Around
from txtopo.audit.verdicts import BatchVerdict, Head, Verdict


def batch_verdict(
    row: Any, around: Around, *, files: int, recounted: int | None, weights: Mapping[str, int], redone_as: int | None
) -> BatchVerdict:
    """One batch; its verdict is not known before everything was compared, and MATCH until then."""
    phases, wall = _phases(row, around.attempts)
    return BatchVerdict(
        txid=row.txid,
        state="committed" if row.state == "applied" else row.state,
        reason=row.reason,
        redo_of=row.redo_of,
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
    """What to keep of the last batch of a report."""
    return Head(
        txid=row.txid,
        seal=None if row.seal is None else bytes(row.seal).hex(),
        seal_version=row.seal_version,
        digest=bytes(row.digest).hex(),
        code_hash=bytes(row.code_hash).hex(),
        committed_at=row.committed_at,
    )


def _phases(row: Any, attempts: Any) -> tuple[dict[str, float], float | None]:
    """Seconds from the first attempt to the commit, divided: earlier attempts, the applied one's own phases, the wait
    for its turn and the commit.
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
    """Seconds by phase; without what somebody made something else of, which shows in the seal."""
    items = stored.items() if isinstance(stored, Mapping) else ()
    return {name: float(seconds) for name, seconds in items if isinstance(seconds, int | float) and abs(seconds) < 1e10}
