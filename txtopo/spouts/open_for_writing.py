"""Determines whether a process may have a file open for writing: its time stamps are made when a write begins, and one
call of `write` may take minutes.
"""

from __future__ import annotations

import fcntl
import os
import signal

from txtopo.spouts.fingerprint import FileStat, open_regular


def may_be_open_for_writing(path: str, found: FileStat) -> bool:
    """Return False if the file is as `found`, and no process of this machine has it open for writing or mapped for
    that; True if that is unknown.

    Linux grants a read lease only on such a file, and only to its owner or to root. A writer that opens the file while
    the lease is held waits until it is returned, a moment later. Never blocks, and raises no OSError.
    """
    try:
        with open_regular(path) as descriptor:
            # Before the lease: a writer that opens the file sends a signal. SIGIO, the default, would end this process;
            # SIGURG is ignored.
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            try:
                return FileStat.of(os.fstat(descriptor)) != found
            finally:
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):
        return True  # A writer has it open, it is another user's, or the system or the file system has no leases.
