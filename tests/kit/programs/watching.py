"""A watch over all topologies of a database: what is wrong, what was redone, and how long batches take."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import txtopo
from txtopo.client import AuditReport, BatchDetail, BatchRow, Client, OrderRow, Rows, TopologyStatus, Verdict


@dataclass
class Problem:
    """A line for a person."""

    topology: str
    words: str
    next_command: str | None = None


def problems(client: Client) -> Iterator[Problem]:
    """What does not run as it should."""
    for status in client.topologies():
        if status.is_bad:
            yield Problem(status.topology, status.problem or status.state, next(iter(status.next_commands), None))
        if (leader := status.leader) is not None and leader.heartbeat_age_s > 60:
            yield Problem(status.topology, f"no heartbeat of {leader.host} since {leader.heartbeat_at:%H:%M}")
        yield from _failed(client, status)


def _failed(client: Client, status: TopologyStatus) -> Iterator[Problem]:
    for txid in status.failed_txids:
        batch: BatchDetail = client.batch(status.topology, txid)
        last = batch.attempts[-1]
        where = ", ".join(file.path for file in batch.files)
        yield Problem(status.topology, f"batch {txid} of {where}: {last.message} ({last.kind} in {last.component})")


def durations(batches: Rows[BatchRow]) -> dict[str, float]:
    """Median and longest seconds."""
    seconds = sorted(batch.duration_s for batch in batches if batch.duration_s is not None)
    return {"median": seconds[len(seconds) // 2], "longest": seconds[-1]} if seconds else {}


def audited(client: Client, topology: str, seals: Path) -> AuditReport:
    """An audit of all batches against the seals that are kept elsewhere."""
    report = client.audit(topology, expected=[str(seals)], say=lambda line: print(line, file=sys.stderr))
    if report.verdict is not Verdict.MATCH:
        for finding in report.findings:
            print(finding.check, finding.verdict.value, list(finding.txids), finding.message, finding.look or "")
    if report.head is not None and report.head.seal is not None:
        seals.write_text(f"{report.head.txid}:{report.head.seal}\n")
    return report


def replayed(client: Client, topology: str) -> OrderRow | None:
    """Brings quarantined batches back, and waits for it."""
    order = client.redrive(topology, (1, None), reason="the parser was fixed")
    if order is None:
        return None
    try:
        return client.wait(topology, order, timeout_s=300)
    except txtopo.OrderOpenError as error:
        print(error)
        return order


def main(topology: str) -> int:
    """The exit code of the watch."""
    try:
        with txtopo.connect() as client:
            found = list(problems(client))
            print(json.dumps([problem.__dict__ for problem in found]))
            print(durations(client.batches(topology, limit=500)))
            failures = [event.at for event in client.events(topology, limit=50) if event.kind == "attempt_failed"]
            open_orders = client.orders(topology, state="open")
            print(len(failures), [order.kind for order in open_orders], client.stop(topology))
            return audited(client, topology, Path("seals.txt")).exit_code or bool(found)
    except txtopo.NotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    except txtopo.TxtopoError as error:
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
