"""The fingerprint of a planned file: 32 bytes that differ if its content does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def planned_fingerprint(file: Mapping[str, Any]) -> bytes:
    """Return the sha-256 of the content; for an object of a store, whose content nobody hashed, that of its entity tag
    and size. Raises KeyError if the plan has neither.
    """
    if "sha256" in file:
        return bytes.fromhex(file["sha256"])
    return tag_fingerprint(str(file["etag"]), int(file["size"]))


def tag_fingerprint(etag: str, size: int) -> bytes:
    """Return the fingerprint of an object with this entity tag and this size in bytes."""
    return hashlib.sha256(f"{etag} {size}".encode()).digest()
