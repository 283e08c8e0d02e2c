"""Metadata that is too long for a znode: it is stored in table `plan_part`, and the plan contains its digest."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from txtopo.core import limits
from txtopo.core.plan import Metadata, Plan, canonical
from txtopo.core.remedies import RESTORE
from txtopo.driver.spout_coordinators import IDLE_KEY, is_idle, last_of
from txtopo.errors import Halted
from txtopo.ports import Ledger

PART_KEY = "$part"
"""Metadata that is too long for a znode is stored in `plan_part`; the plan contains {PART_KEY: digest} instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataParts:
    """Replaces long metadata in the plans of one topology by references, and resolves references."""

    ledger: Ledger
    topology: str

    def whole(self, metadata: Metadata) -> Metadata:
        """Return the metadata of one spout; a reference is read from Postgres. Raises Halted if the part is missing or
        invalid.
        """
        if PART_KEY not in metadata:
            return metadata
        value = json.loads(self.ledger.read_part(str(metadata[PART_KEY])))
        if not isinstance(value, dict):
            raise Halted("a part in table txtopo.plan_part holds no metadata", next_command=RESTORE)
        return value

    def moved_to_table(self, plan: Plan) -> Plan:
        """Return the plan, small enough for a znode. Its parts are stored in Postgres before the znode that refers to
        them is created, so a reference always has its part. Raises Halted if one part is too long.
        """
        metadata = plan.metadata
        longest_first = sorted(metadata, key=lambda name: (-len(canonical(metadata[name])), name))
        for name in longest_first:
            if len(plan.bytes) <= limits.METADATA_BYTES_MAX:
                break
            plan = replace(plan, metadata={**plan.metadata, name: self._stored(metadata[name], plan.txid)})
        return plan

    def _stored(self, entry: Metadata, txid: int) -> Metadata:
        """Store the metadata and return a reference to it. For an idle spout the stored part is its last metadata."""
        last = last_of(entry)
        if last is None or PART_KEY in last:
            return entry
        data = canonical(last)
        if len(data) > limits.PLAN_PART_BYTES_MAX:
            raise Halted(
                f"batch {txid} of {self.topology} has {len(data)} bytes of metadata, at most "
                f"{limits.PLAN_PART_BYTES_MAX} are allowed: "
                "make batches smaller (files_per_batch, batch_size)",
                txid=txid,
                next_command="make batches smaller, then start `txtopo run` again",
            )
        pointer = {PART_KEY: self.ledger.store_part(data)}
        return {IDLE_KEY: pointer} if is_idle(entry) else pointer
