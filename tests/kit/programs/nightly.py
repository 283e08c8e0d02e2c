"""A scheduler's job: run, look at how it ended, try again where that helps."""

from __future__ import annotations

import sys
import time

import txtopo

builder = txtopo.TopologyBuilder("flights")
builder.set_spout("departures", txtopo.FileSpout("flights", "carrier string, distance int"))
counts = txtopo.CountCommitter("by_carrier", ["carrier"], count="flights", sums=["distance"])
builder.set_committer_bolt("by_carrier", counts).fields_grouping("departures", ["carrier"])
topology = builder.build()


def nightly(tries: int) -> int:
    """The exit code of the job."""
    for _ in range(tries):
        try:
            result = txtopo.run(topology, once=True, workers=4, message_timeout_s="5m", on_poison="quarantine_batch")
        except (txtopo.StoreUnavailable, txtopo.ExecutorLost) as error:
            print(error, file=sys.stderr)
            time.sleep(60)
        except txtopo.Halted as halted:
            print(f"batch {halted.txid}: {halted.reason}; next: {halted.next_command}", file=sys.stderr)
            return halted.exit_code
        else:
            share = result.quarantined / max(1, result.batches + result.quarantined)
            print(f"{result.topology} {result.ended}: up to {result.last_txid}, {share:.0%} without effect")
            return result.exit_code
    return 3


if __name__ == "__main__":
    sys.exit(nightly(3))
