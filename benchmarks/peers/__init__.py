"""Other systems, each at the same job: Apache Storm's Trident and TransactionalTopology, and Pathway. Only
`make bench-peers` runs them; nothing of txtopo needs them.
"""

from __future__ import annotations

import shutil

from benchmarks.cases import STORM


def missing(peer: str) -> str | None:
    """Return why a system cannot be measured on this machine; None if it can."""
    if peer in STORM:
        absent = [name for name in ("mvn", "java") if shutil.which(name) is None]
        return f"{' and '.join(absent)} not found" if absent else None
    return None
