"""The content of the znodes: canonical JSON with a version. Unreadable content raises Halted with the path, and never
reads as "no state" (Z14).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core import limits
from txtopo.core.plan import canonical
from txtopo.core.remedies import rebuild_zookeeper
from txtopo.errors import Halted, invariant
from txtopo.ports import CheckNode, DeleteNode, Operation

NODE_VERSION = 1
_OPERATION_OVERHEAD_BYTES = 128
"""Headers, lengths, ACL and chroot of one operation on the wire, rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochNode:
    """Content of the epoch node."""

    epoch: int
    incarnation: str
    system_identifier: str
    owner_nonce: str
    """Nonce of the candidacy that wrote it. It tells a write of this driver whose reply was lost from a write of
    another one.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateNode:
    """Who a candidate is, for people to read. Only the nonce decides anything."""

    host: str
    pid: int
    since: str
    """When the candidacy began, ISO 8601; never compared."""
    nonce: str
    """UUID of this candidacy, new for each (Z4, a lost reply leaves an orphan in the queue)."""

    def __str__(self) -> str:
        return f"{self.host} pid {self.pid} since {self.since}"


def encode_epoch(node: EpochNode) -> bytes:
    """Return the data of the epoch node."""
    return _encode(
        epoch=node.epoch, incarnation=node.incarnation, system_identifier=node.system_identifier, owner=node.owner_nonce
    )


def decode_epoch(data: bytes, path: str) -> EpochNode:
    """Inverse of `encode_epoch`. Raises Halted if the data cannot be read."""
    raw = _decode(data, path, {"epoch": int, "incarnation": str, "system_identifier": str, "owner": str})
    return EpochNode(
        epoch=raw["epoch"],
        incarnation=raw["incarnation"],
        system_identifier=raw["system_identifier"],
        owner_nonce=raw["owner"],
    )


def encode_mark(txid: int) -> bytes:
    """Return the data of `currtx`."""
    return _encode(txid=txid)


def decode_mark(data: bytes, path: str) -> int:
    """Inverse of `encode_mark`. Raises Halted if the data cannot be read."""
    return int(_decode(data, path, {"txid": int})["txid"])


def encode_attempts(attempts: Mapping[int, int]) -> bytes:
    """Return the data of `currattempts`."""
    return _encode(attempts={str(txid): attempt for txid, attempt in attempts.items()})


def decode_attempts(data: bytes, path: str) -> dict[int, int]:
    """Inverse of `encode_attempts`. Raises Halted if the data cannot be read."""
    raw = _decode(data, path, {"attempts": dict})["attempts"]
    for txid, attempt in raw.items():
        if not (txid.isascii() and txid.isdigit() and _is_number(attempt)):
            raise _unreadable(path, f"attempt {txid!r}: {attempt!r}")
    return {int(txid): attempt for txid, attempt in raw.items()}


CUTS = canonical({"v": NODE_VERSION, "cuts": True})
"""Data of a batch's node in an opaque topology; the plans are in nodes below it, one for each attempt."""


def encode_identity(identity: CandidateNode) -> bytes:
    """Return the data of a candidate's node."""
    return _encode(host=identity.host, pid=identity.pid, since=identity.since, nonce=identity.nonce)


def decode_identity(data: bytes, path: str) -> CandidateNode:
    """Inverse of `encode_identity`. Raises Halted if the data cannot be read."""
    raw = _decode(data, path, {"host": str, "pid": int, "since": str, "nonce": str})
    return CandidateNode(host=raw["host"], pid=raw["pid"], since=raw["since"], nonce=raw["nonce"])


def operation_bytes(operation: Operation) -> int:
    """Return an upper estimate of the bytes that one operation takes in a multi."""
    data = b"" if isinstance(operation, CheckNode | DeleteNode) else operation.data
    return len(operation.path.encode()) + len(data) + _OPERATION_OVERHEAD_BYTES


def check_size(operations: Sequence[Operation]) -> None:
    """Raise InvariantBroken if the operations are too large for one multi. The server would cut the connection (Z9),
    and every retry would fail in the same way.
    """
    size = sum(operation_bytes(operation) for operation in operations)
    invariant(
        size <= limits.MULTI_BYTES_MAX,
        f"{size} bytes in one ZooKeeper write to {operations[0].path if operations else '-'}",
    )


def _encode(**values: Any) -> bytes:
    return canonical({"v": NODE_VERSION, **values})


def _decode(data: bytes, path: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(raw, dict) or raw.get("v") != NODE_VERSION:
        raise _unreadable(path, f"not an object of version {NODE_VERSION}")
    if set(raw) != {"v", *kinds}:
        raise _unreadable(path, f"fields {sorted(raw)}")
    for name, kind in kinds.items():
        if not (_is_number(raw[name]) if kind is int else isinstance(raw[name], kind)):
            raise _unreadable(path, f"{name} is {raw[name]!r}")
    return raw


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _unreadable(path: str, why: str) -> Halted:
    topology = path.strip("/").partition("/")[0]
    return Halted(
        f"ZooKeeper node {path} cannot be read: {why[:200]}; nothing was changed, look at who wrote it",
        next_command=rebuild_zookeeper(topology),
    )
