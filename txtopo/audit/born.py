"""When a file was made: Linux knows, and Python does not ask it."""

from __future__ import annotations

import ctypes
import struct

_EMPTY_PATH = 0x1000
"""The file is the descriptor itself."""
_BORN = 0x800
"""What is asked for, and what says that it is known."""
_ANSWER_BYTES = 256
_MASK, _BORN_AT = struct.Struct("=I"), struct.Struct("=qI")
_BORN_OFFSET = 80


def born_ns(descriptor: int) -> int | None:
    """Return the time at which an open file was made, in nanoseconds since 1970; None if its file system, or this
    system, does not say so.
    """
    statx = getattr(ctypes.CDLL(None), "statx", None)
    answer = ctypes.create_string_buffer(_ANSWER_BYTES)
    if statx is None or statx(descriptor, b"", _EMPTY_PATH, _BORN, answer) != 0:
        return None
    (mask,) = _MASK.unpack_from(answer, 0)
    seconds, nanoseconds = _BORN_AT.unpack_from(answer, _BORN_OFFSET)
    return int(seconds * 10**9 + nanoseconds) if mask & _BORN else None
