"""Recognizes that the process of a candidate has ended on this machine, so that nobody waits for its session (R30)."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from pathlib import Path

from txtopo.coordinators.codec import CandidateNode

_NODE = (1 << 48) - 1
"""The bits of a UUID that name the machine which made it."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


def new_nonce() -> str:
    """Return a UUID for a candidacy of this process. Its node says on which kernel and in which pid namespace the pid
    of the process is its pid; elsewhere another process may have the same. Where that is not known, it is random.
    """
    random, place = uuid.uuid4().int, _place()
    return str(uuid.UUID(int=random if place is None else random & ~_NODE | place))


def has_ended(candidate: CandidateNode) -> bool:
    """Return True if the process of this candidate ran on this machine, in this pid namespace, and does not exist any
    more. False if it is not known: a zombie, a pid that another process has now, another host or container.

    A process that is paused exists, and one that does not exist never continues.
    """
    if candidate.host != socket.gethostname():
        return False
    try:
        os.kill(candidate.pid, 0)
    except ProcessLookupError:
        return _is_of_this_place(candidate.nonce)
    except (OSError, OverflowError):  # it exists, and belongs to another user; or this is no pid
        return False
    return False


def _is_of_this_place(nonce: str) -> bool:
    try:
        return uuid.UUID(nonce).node == _place()
    except ValueError:
        return False


def _place() -> int | None:
    """Number of this kernel, since it was booted, and this pid namespace; None if the system does not tell them."""
    try:
        boot, namespace = _BOOT_ID.read_text(encoding="ascii").strip(), _PID_NAMESPACE.stat()
    except (OSError, ValueError):
        return None
    if not boot:
        return None
    text = f"{boot} {namespace.st_dev} {namespace.st_ino}"
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:6])
