"""Which party is at fault for an error of the operating system while a source is read: one table of error numbers, pure
data.

An error that is in no list is a fault of the data, with its message: it counts, and is never waited for without a
limit.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from typing import Literal

OsFault = Literal["gone", "rights", "source", "host", "data"]
"""gone: the planned file no longer exists, or is not a file. rights: this process must not read it, and no batch is at
fault. source: the storage of the file is unavailable, and may return. host: this machine lacks a resource, and may get
it again. data: anything else.
"""

FAULTS: Mapping[OsFault, tuple[str, ...]] = {
    "gone": ("ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "ENXIO", "ENODEV"),
    "rights": ("EACCES", "EPERM"),
    "source": (
        "EIO",
        "ESTALE",
        "ETIMEDOUT",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "ENETDOWN",
        "ENETUNREACH",
        "ENETRESET",
        "ENOTCONN",
        "ECONNREFUSED",
        "ECONNRESET",
        "ECONNABORTED",
        "EPIPE",
        "EREMOTEIO",
        "ENOLINK",
        "EAGAIN",
        "EINTR",
        "EBUSY",
        "ENOLCK",
        "EBADF",
    ),
    "host": ("EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EDQUOT", "EROFS"),
    "data": ("EISDIR", "EINVAL", "EOVERFLOW", "EFBIG"),
}
"""By name, since numbers differ between systems and not every system has each. `data` names some only to show that they
were considered.
"""
_FAULT_OF: Mapping[int, OsFault] = {
    getattr(errno, name): fault for fault, names in FAULTS.items() for name in names if hasattr(errno, name)
}
_NUMBERS_OF_ITS_OWN: Mapping[str, OsFault] = {
    "gaierror": "source",
    "herror": "source",
    "SSLEOFError": "source",
    "SSLSyscallError": "source",
    "SSLError": "data",
}
"""Classes whose `errno` is not a number of the operating system: unknown host names, and TLS."""
_CAUSES_MAX = 10


def fault_of(error: OSError) -> OsFault:
    """Return the party at fault. An error without a number is judged by its class (TimeoutError, ConnectionError), then
    by the error that caused it.
    """
    for one in _with_causes(error):
        named = next((fault for name, fault in _NUMBERS_OF_ITS_OWN.items() if _is_a(one, name)), None)
        if named is not None:
            return named
        if isinstance(one.errno, int):
            return _FAULT_OF.get(one.errno, "data")
        if isinstance(one, TimeoutError | ConnectionError | BlockingIOError | InterruptedError):
            return "source"
    return "data"


def is_gone(error: OSError) -> bool:
    """True if the error means that there is no file at this path; False if the file cannot be read."""
    return fault_of(error) == "gone"


def _is_a(error: OSError, name: str) -> bool:
    """Return True if the error has a class of this name: `socket` and `ssl` need not be imported."""
    return any(base.__name__ == name for base in type(error).__mro__)


def _with_causes(error: OSError) -> Iterator[OSError]:
    """Yield the error, then the errors of the operating system that it wraps: libraries for HTTP raise their own,
    without a number.
    """
    found: object = error
    for _ in range(_CAUSES_MAX):
        if isinstance(found, OSError):
            yield found
        if not isinstance(found, BaseException):
            return
        reason = getattr(found, "reason", None)
        found = reason if isinstance(reason, OSError) else found.__cause__ or found.__context__
