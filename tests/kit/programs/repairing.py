"""Retries failed batches, and leaves those out that fail again."""

from __future__ import annotations

import txtopo


def repair(topology: str) -> list[str]:
    """What became of each order."""
    told: list[str] = []
    client = txtopo.connect()
    order = client.retry(topology, reason="nightly repair")
    if order is not None:
        try:
            told.append(client.wait(topology, order, timeout_s=60).answer or "done")
        except (txtopo.RefusedError, txtopo.OrderOpenError) as error:
            told.append(str(error))
    for txid in client.status(topology).failed_txids:
        detail = client.batch(topology, txid, rejects=None)
        try:
            skipped = client.skip(topology, txid, reason=f"failed {len(detail.attempts)} times")
        except txtopo.NotOrderedError as error:
            told.append(str(error))
        else:
            told.append("skipped already" if skipped is None else skipped.state)
    return told
