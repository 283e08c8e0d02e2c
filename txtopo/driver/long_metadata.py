"""Metadata that is too long for a znode: it is stored in table `plan_part`, and the plan refers to it."""

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
"""Metadata that is too long for a znode is replaced by {PART_KEY: digest} and stored in `plan_part`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataParts:
    """Takes long metadata out of the plans of one topology, and puts it back."""

    ledger: Ledger
    topology: str

    def whole(self, metadata: Metadata) -> Metadata:
        """The metadata of one spout, read from Postgres where it is only pointed to."""
        if PART_KEY not in metadata:
            return metadata
        value = json.loads(self.ledger.read_part(str(metadata[PART_KEY])))
        if not isinstance(value, dict):
            raise Halted("a piece in table txtopo.plan_part holds no metadata", next_command=RESTORE)
        return value

    def fitted(self, plan: Plan) -> Plan:
        """The plan, small enough for a znode. Its pieces are in Postgres before the znode that points to them: the
        pointer never dangles.
        """
        metadata = plan.metadata
        longest_first = sorted(metadata, key=lambda name: (-len(canonical(metadata[name])), name))
        for name in longest_first:
            if len(plan.bytes) <= limits.METADATA_BYTES_MAX:
                break
            plan = replace(plan, metadata={**plan.metadata, name: self._stored(metadata[name], plan.txid)})
        return plan

    def _stored(self, entry: Metadata, txid: int) -> Metadata:
        """A pointer to the piece in Postgres; of an idle spout what it remembers is the piece."""
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
