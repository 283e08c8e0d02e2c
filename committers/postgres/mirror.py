"""Mirrors plans and the inputs that they consume into Postgres, create-only, before any of them is committed (R9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.transactions import run
from txtopo.committers.protocol.rules import check_order, check_same, consumed_twice
from txtopo.core.values import Lead
from txtopo.errors import Halted
from txtopo.ports import MirrorEntry


def mirror_plans(connection: Connection, lead: Lead, entries: Sequence[MirrorEntry]) -> None:
    """Insert plans that are missing and compare those that exist. Call it inside a fenced database transaction. Raises
    Halted if a plan differs, or if an input was consumed by another batch.
    """
    check_order(lead, entries)
    created = {
        row[0]
        for row in run(
            connection,
            "insert_plans",
            topology=lead.topology,
            epoch=lead.epoch,
            txids=[entry.plan.txid for entry in entries],
            digests=[entry.plan.digest for entry in entries],
            bodies=[entry.plan.bytes for entry in entries],
            cuts=[entry.plan.cut for entry in entries],
        )
    }
    known = [entry for entry in entries if entry.plan.txid not in created]
    if known:
        _compare(connection, lead, known)
    _consume(connection, lead, [entry for entry in entries if entry.plan.txid in created])


def _compare(connection: Connection, lead: Lead, known: Sequence[MirrorEntry]) -> None:
    rows = run(connection, "list_plan_digests", topology=lead.topology, txids=[entry.plan.txid for entry in known])
    digests = {(txid, cut): bytes(digest) for txid, cut, digest in rows}
    for entry in known:
        check_same(entry, digests.get((entry.plan.txid, entry.plan.cut)))


def _consume(connection: Connection, lead: Lead, created: Sequence[MirrorEntry]) -> None:
    rows = [
        (spout, source, entry.plan)
        for entry in created
        for spout, sources in entry.inputs.items()
        for source in sources
    ]
    if not rows:
        return
    values: dict[str, Any] = {
        "spouts": [spout for spout, _, _ in rows],
        "paths": [source.path for _, source, _ in rows],
        "txids": [plan.txid for _, _, plan in rows],
    }
    inserted = run(
        connection,
        "insert_source_files",
        topology=lead.topology,
        fingerprints=[source.fingerprint for _, source, _ in rows],
        redos=[plan.redo_of is not None for _, _, plan in rows],
        **values,
    ).all()
    if len(inserted) != len(rows):
        found = run(connection, "find_consumed_twice", topology=lead.topology, **values).one_or_none()
        raise (
            consumed_twice(lead.topology, *found)
            if found
            else Halted(
                f"a file is named twice in one of the batches {sorted(set(values['txids']))}",
                next_command=f"fix the spout, then txtopo replan {lead.topology}",
            )
        )
