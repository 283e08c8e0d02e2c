"""Mirrors plans and the inputs that they consume in memory, create-only (R9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txtopo.committers.memory.memory_store import TopologyRows
from txtopo.committers.protocol.rules import check_order, check_same, consumed_twice
from txtopo.core.values import Lead
from txtopo.errors import Halted, invariant
from txtopo.ports import MirrorEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlans:
    """What a mirror inserts. `publish` makes it visible."""

    plans: Mapping[int, tuple[bytes, bytes]]
    sources: Mapping[tuple[str, str], tuple[bytes, int]]

    def publish(self, rows: TopologyRows) -> None:
        """Insert it, at COMMIT."""
        rows.plans, rows.sources = {**rows.plans, **self.plans}, {**rows.sources, **self.sources}


def mirrored(rows: TopologyRows, lead: Lead, entries: Sequence[MirrorEntry]) -> NewPlans:
    """Return the plans that are missing, with their inputs, and compare those that exist. Raises Halted if a plan
    differs or is out of order, or if an input was consumed by another batch.
    """
    check_order(lead, entries)
    plans, sources = dict(rows.plans), dict(rows.sources)
    for entry in entries:
        plan = entry.plan
        if plan.txid in plans:
            check_same(entry, plans[plan.txid][0])
            continue
        beyond = plan.txid > rows.fence.last_txid + 1
        if plan.txid <= rows.fence.last_txid or (beyond and (rows.opaque or plan.txid - 1 not in plans)):
            raise Halted(f"the ledger refuses: plan {plan.txid} is out of order", txid=plan.txid)
        invariant(rows.opaque or not plan.cut, f"plan {plan.txid} may not be cut again")
        plans[plan.txid] = (plan.digest, plan.bytes)
        for spout, inputs in entry.inputs.items():
            for source in inputs:
                found = sources.get((spout, source.path))
                if found is not None and plan.is_input:
                    raise consumed_twice(lead.topology, source.path, found[1], plan.txid)
                sources[(spout, source.path)] = (source.fingerprint, plan.txid)
    return NewPlans(
        plans={txid: one for txid, one in plans.items() if txid not in rows.plans},
        sources={path: one for path, one in sources.items() if rows.sources.get(path) != one},
    )
