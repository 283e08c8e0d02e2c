"""A ledger filled by honest SQL, batch by batch, for tests of what reads it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import psycopg2

from txtopo.core.plan import Plan, genesis_digest

INCARNATION = str(uuid.UUID(int=7))
CODE = b"c" * 32
FINGERPRINT = bytes(range(32))


class FilledLedger:
    """One topology in a real database. Every batch has one file of 100 bytes a txid and one committer `counts`."""

    def __init__(self, dsn: str, topology: str = "flights") -> None:
        self.dsn = dsn
        self.topology = topology
        self.connection = psycopg2.connect(dsn)
        self._digests: dict[int, bytes] = {0: genesis_digest(topology, INCARNATION)}
        with self.connection:
            self.execute(
                "insert into txtopo.fence (topology, incarnation, owner_nonce, epoch, code_hash) values (%s, %s, %s, 3, %s)",
                topology, INCARNATION, str(uuid.UUID(int=8)), CODE,
            )  # fmt: skip
            self.execute(
                "insert into txtopo.ledger (topology, txid, digest, incarnation, epoch, attempt, code_hash, state) "
                "values (%s, 0, %s, %s, 3, 0, %s, 'genesis')",
                topology, self._digests[0], INCARNATION, CODE,
            )  # fmt: skip
            self.execute(
                "insert into txtopo.target (target, topology, committer) values (%s, %s, 'counts')",
                f"public.{topology}_totals",
                topology,
            )

    def execute(self, sql: str, *values: Any) -> list[Any]:
        """Send one statement inside the open database transaction."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def lead(self, state: str = "running", *, silent_s: float = 0, **columns: Any) -> None:
        """What the leader last said of itself, `silent_s` seconds ago."""
        names = ["topology", "application", "description", "code_hash", "state", "host", "pid", "epoch", *columns]
        values = [self.topology, "flights.py:topology", "{}", CODE, state, "box", 4711, 3, *columns.values()]
        marks = ", ".join(["%s"] * len(names))
        with self.connection:
            self.execute("delete from txtopo.topology where topology = %s", self.topology)
            self.execute(
                f"insert into txtopo.topology ({', '.join(names)}, heartbeat_at) values ({marks}, clock_timestamp() - %s * interval '1 s')",
                *values, silent_s,
            )  # fmt: skip

    def plan(self, txid: int) -> None:
        """Mirror the plan of the next batch with its file."""
        path = f"/data/day_{txid:03}.csv"
        metadata = {"files": {"files": [{"path": path, "size": 100 * txid, "sha256": FINGERPRINT.hex()}]}}
        plan = Plan(
            topology=self.topology,
            incarnation=INCARNATION,
            txid=txid,
            previous_digest=self._digests[txid - 1],
            metadata=metadata,
        )
        self._digests[txid] = plan.digest
        with self.connection:
            self.execute(
                "insert into txtopo.plan (topology, txid, digest, bytes, epoch) values (%s, %s, %s, %s, 3)", self.topology, txid, plan.digest, plan.bytes
            )  # fmt: skip
            self.execute(
                "insert into txtopo.source_file (topology, spout, path, fingerprint, txid) values (%s, 'files', %s, %s, %s)",
                self.topology, path, FINGERPRINT, txid,
            )  # fmt: skip

    def attempt(self, txid: int, attempt: int = 0, state: str = "begun", **columns: Any) -> None:
        """A try at a batch; with a failure in `columns` where it failed."""
        names = ["topology", "txid", "attempt", "epoch", "code_hash", "state", "host", *columns]
        ended = "null" if state == "begun" else "clock_timestamp()"
        marks = ", ".join(["%s"] * len(names))
        with self.connection:
            self.execute(
                f"insert into txtopo.attempt ({', '.join(names)}, started_at, ended_at) values ({marks}, clock_timestamp() - interval '1.5 s', {ended})",
                self.topology, txid, attempt, 3, CODE, state, "box", *columns.values(),
            )  # fmt: skip

    def commit(self, txid: int, attempt: int = 0, *, read: int = 1200, quarantine: str | None = None) -> None:
        """Commit a planned batch in one database transaction."""
        with self.connection:
            self.execute(
                "insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, code_hash, state) "
                "values (%s, %s, %s, %s, %s, %s, 3, %s, %s, 'applying')",
                self.topology, txid, txid - 1, self._digests[txid - 1], self._digests[txid], INCARNATION, attempt, CODE,
            )  # fmt: skip
            if quarantine is None:
                self.execute(
                    "insert into txtopo.committer_count (topology, txid, committer, arrived, counted, results, written, digest) "
                    "values (%s, %s, 'counts', %s, %s, 35, 35, 123456789012345678901234567890)",
                    self.topology, txid, read, read,
                )  # fmt: skip
            self.execute(
                "update txtopo.ledger set state = %s, reason = %s, read = %s, rejected = 0, dead_lettered = 0, committers = %s "
                "where topology = %s and txid = %s",
                "quarantined" if quarantine else "applied", quarantine, read, 0 if quarantine else 1, self.topology, txid,
            )  # fmt: skip
            self.execute("update txtopo.fence set last_txid = %s where topology = %s", txid, self.topology)

    def batch(self, txid: int) -> None:
        """A batch that went through at once."""
        self.plan(txid)
        self.attempt(txid, state="applied", spans=json.dumps({"processing": 0.75, "commit": 0.003}))
        self.commit(txid)

    def requests(self) -> Sequence[Any]:
        """(kind, state, answer, actor) of all requests."""
        with self.connection:
            return self.execute("select kind, state, answer, actor from txtopo.request order by request_id")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
