"""The plan of a batch: its content, as canonical JSON bytes with a digest that chains to the previous batch (R12: a
batch is its plan).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from txtopo.core.remedies import RESTORE
from txtopo.errors import Halted

PLAN_VERSION = 1
_Bytes = bytes  # Inside Plan, the name `bytes` is the property.
Metadata = Mapping[str, Any]
"""The decision of a spout's coordinator half about one batch: JSON values only, enough to emit exactly the same batch
again.
"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One planned batch: its place, its source ranges and fingerprints, the digest of the previous batch.

    The digest does not cover code: fixing a bolt and retrying with the stored metadata is the normal remedy for a halt.
    """

    topology: str
    incarnation: str
    txid: int
    previous_digest: bytes
    """Digest of plan txid - 1; of the genesis row for txid 1."""
    metadata: Metadata
    """Metadata by spout name."""
    kind: str = "cut"
    """`cut`, `redo` or `backfill`."""
    cut: int = 0
    redo_of: int | None = None
    order_id: int | None = None
    backfills: int | None = None
    """The applied batch whose input this one counts into `committer` alone (R32)."""
    committer: str | None = None

    @property
    def is_input(self) -> bool:
        """True if it consumes new input; False if it reads that of an earlier batch again, by an order."""
        return self.redo_of is None and self.backfills is None

    @cached_property
    def bytes(self) -> _Bytes:
        """Canonical JSON: the znode's data and the mirror's, byte for byte."""
        return canonical(
            {
                "v": PLAN_VERSION,
                "topology": self.topology,
                "incarnation": self.incarnation,
                "txid": self.txid,
                "previous": self.previous_digest.hex(),
                "kind": self.kind,
                "cut": self.cut,
                "redo_of": self.redo_of,
                "request_id": self.order_id,
                "metadata": self.metadata,
                # Only where it is one: the plans of other batches keep the bytes that earlier releases gave them.
                **({} if self.backfills is None else {"backfills": self.backfills, "committer": self.committer}),
            }
        )

    @cached_property
    def digest(self) -> _Bytes:
        """sha-256 of `bytes`: the identity of the batch (R12: a batch is its plan)."""
        return hashlib.sha256(self.bytes).digest()


def genesis_digest(topology: str, incarnation: str) -> bytes:
    """Return the digest that txid 1 chains to."""
    return hashlib.sha256(
        canonical({"v": PLAN_VERSION, "topology": topology, "incarnation": incarnation, "txid": 0})
    ).digest()


def canonical(value: object) -> bytes:
    """Return JSON with sorted keys, no blanks, ASCII only: one spelling for each value. NaN and infinities are
    refused.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def read_plan(data: bytes, where: str, remedy: str = RESTORE) -> Plan:
    """Decode a plan found at `where`, by default in Postgres; an unreadable plan halts with `remedy`, and is never read
    as "no state" (Z14).
    """
    try:
        raw = json.loads(data)
        if raw["v"] != PLAN_VERSION:
            raise ValueError(f"version {raw['v']!r} is not {PLAN_VERSION}")
        plan = Plan(
            topology=_text(raw["topology"]),
            incarnation=_text(raw["incarnation"]),
            txid=_number(raw["txid"]),
            previous_digest=bytes.fromhex(raw["previous"]),
            kind=_text(raw["kind"]),
            cut=_number(raw["cut"]),
            redo_of=raw["redo_of"],
            order_id=raw["request_id"],
            metadata=dict(raw["metadata"]),
            backfills=raw.get("backfills"),
            committer=raw.get("committer"),
        )
    except (ValueError, KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise Halted(f"{where} holds no readable plan: {error}", next_command=remedy) from error
    if plan.bytes != data:
        raise Halted(f"{where} holds a plan that is not in canonical form", next_command=remedy)
    return plan


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value
