"""Mirrors plans and the inputs that they consume into Postgres, create-only, before any of them is committed or with
its commit (R9).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from txtopo.committers.postgres.transactions import run
from txtopo.committers.protocol.rules import check_order, check_same, consumed_twice
from txtopo.core.plan import Plan
from txtopo.core.values import Lead
from txtopo.errors import Halted
from txtopo.ports import MirrorEntry
from txtopo.topology.components import Input

Consumed = tuple[str, Input, Plan]
"""An input with its spout and its plan."""


def mirror_plans(connection: Connection, lead: Lead, entries: Sequence[MirrorEntry]) -> None:
    """Insert plans that are missing and compare those that exist. Call it inside a fenced database transaction. Raises
    Halted if a plan differs, or if an input was consumed by another batch.
    """
    check_order(lead, entries)
    files: list[Consumed] = [
        (spout, source, entry.plan)
        for entry in entries
        for spout, sources in entry.inputs.items()
        for source in sources
    ]
    found, inserted = run(
        connection,
        "mirror_plans",
        topology=lead.topology,
        epoch=lead.epoch,
        txids=[entry.plan.txid for entry in entries],
        digests=[entry.plan.digest for entry in entries],
        bodies=[entry.plan.bytes for entry in entries],
        cuts=[entry.plan.cut for entry in entries],
        spouts=[spout for spout, _, _ in files],
        paths=[source.path for _, source, _ in files],
        fingerprints=[source.fingerprint for _, source, _ in files],
        of_txids=[plan.txid for _, _, plan in files],
        redos=[not plan.is_input for _, _, plan in files],
    ).one()
    created = set(found)
    known = [entry for entry in entries if entry.plan.txid not in created]
    if known:
        _compare(connection, lead, known)
    new = [(spout, source, plan) for spout, source, plan in files if plan.txid in created]
    if inserted != len(new):
        raise _consumed_twice(connection, lead, new)


def _compare(connection: Connection, lead: Lead, known: Sequence[MirrorEntry]) -> None:
    rows = run(connection, "list_plan_digests", topology=lead.topology, txids=[entry.plan.txid for entry in known])
    digests = {(txid, cut): bytes(digest) for txid, cut, digest in rows}
    for entry in known:
        check_same(entry, digests.get((entry.plan.txid, entry.plan.cut)))


def _consumed_twice(connection: Connection, lead: Lead, files: Sequence[Consumed]) -> Halted:
    txids = [plan.txid for _, _, plan in files]
    found = run(
        connection,
        "find_consumed_twice",
        topology=lead.topology,
        spouts=[spout for spout, _, _ in files],
        paths=[source.path for _, source, _ in files],
        txids=txids,
    ).one_or_none()
    return (
        consumed_twice(lead.topology, *found)
        if found
        else Halted(
            f"a file is named twice in one of the batches {sorted(set(txids))}",
            next_command=f"fix the spout, then txtopo replan {lead.topology}",
        )
    )
