"""A report of what happened, and an alarm."""

# pyarrow has no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from datetime import datetime

import txtopo
from txtopo import Client


def slowest(client: Client, topology: str) -> tuple[int, float]:
    """The batch that took longest."""
    found = max(client.batches(topology, (1, None), limit=1000), key=lambda batch: batch.duration_s or 0.0)
    return found.txid, found.duration_s or 0.0


def last_times(client: Client) -> dict[str, datetime | None]:
    """When each topology committed last."""
    return {one.topology: one.last_committed_at for one in client.topologies()}


def alarm(dsn: str, topology: str) -> str | None:
    """What a person must be told."""
    with txtopo.connect(dsn) as client:
        status = client.status(topology)
        report = client.audit(topology, first=max(1, status.last_txid - 100))
        if report.exit_code:
            return "; ".join(finding.message for finding in report.findings)
        failed = client.batches(topology, state="failed").to_pandas()
        client.events(topology).to_arrow()
    return f"{status.state}: {status.next_commands[0]}" if status.is_bad else (str(failed) if len(failed) else None)
