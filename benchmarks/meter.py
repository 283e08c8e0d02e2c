"""Measures one pass: what each process used, the WAL that Postgres wrote, the proposals of ZooKeeper."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import psycopg2

from benchmarks.cases import Job
from benchmarks.processes import ROLES, cpu_s, peak_memory_mib, running, zookeeper_proposals


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one moment."""

    cpu_s: dict[str, float]
    wal_bytes: int
    proposals: int


@dataclass(slots=True)
class Meter:
    """Takes a reading when it is made; `row` takes another one and returns the difference with the figures of the
    pass.
    """

    job: Job
    number: int
    """Of the pass, from 1."""
    before: Reading = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.read()

    def read(self) -> Reading:
        """Return the counters now."""
        used = cpu_s(os.getpid(), self.job.postgres_pid, self.job.zookeeper_pid, running())
        return Reading(used, wal_bytes(self.job.dsn), zookeeper_proposals(self.job.zookeeper))

    def row(self, *, rows: int, batches: int, wall_s: float, peer: str | None = None) -> dict[str, Any]:
        """Return the row of this pass for build/bench.json."""
        after = self.read()
        million = rows / 1e6
        return {
            "case": self.job.case,
            "pass": self.number,
            "peer": peer or self.job.peer,
            "rows_per_s": round(rows / wall_s),
            "wall_s": round(wall_s, 3),
            "batches": batches,
            "rows": rows,
            "cpu_s_per_million_rows": {
                role: round((after.cpu_s[role] - self.before.cpu_s[role]) / million, 3) for role in ROLES
            },
            "wal_bytes_per_batch": round((after.wal_bytes - self.before.wal_bytes) / batches),
            "zookeeper_proposals_per_batch": round((after.proposals - self.before.proposals) / batches, 3),
            "peak_memory_mib": peak_memory_mib(os.getpid()),
        }


def wal_bytes(dsn: str) -> int:
    """Return how many bytes of WAL this Postgres has written since it was made."""
    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
            return int(cursor.fetchone()[0])
    finally:
        connection.close()
