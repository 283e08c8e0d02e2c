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


Reject = tuple[str, int, str, bytes]
"""Path, line, reason, raw record."""

MANY = """
insert into txtopo.ledger (topology, txid, digest, incarnation, epoch, attempt, code_hash, state, reason, read, rejected, dead_lettered, committers,
                           prev_txid, prev_digest, redo_of)
  select '{topology}', n, 'd', gen_random_uuid(), 1, 0, 'c', case when mod(n, 100) = 0 then 'quarantined' else 'applied' end,
         case when mod(n, 100) = 0 then 'bad' end, 9, case when mod(n, 50) = 1 then 3 else 0 end, 0, sign(mod(n, 100)), n - 1, 'd',
         case when mod(n, 200) = 5 and n > 200 then n - 5 end
    from generate_series(1, {batches}) n;
insert into txtopo.rejected_row
  select '{topology}', n, 'files', '/' || n, line, 'bad', 'raw', 3 from generate_series(1, {batches}, 50) n, generate_series(2, 4) line;
insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, state, kind, message, ended_at)
  select '{topology}', n, 0, 1, 'c', case when mod(n, 20) = 0 then 'failed' else 'applied' end, case when mod(n, 20) = 0 then 'data' end, case when mod(n, 20) = 0 then 'm' end,
         clock_timestamp()
    from generate_series(1, {batches}) n;
insert into txtopo.committer_count select '{topology}', n, 'counts', 1, 1, 1, 1, 0, 0, 1 from generate_series(1, {batches}) n;
insert into txtopo.plan select '{topology}', n, 'd', '{{}}', 0, 1 from generate_series(1, {batches}) n;
insert into txtopo.source_file select '{topology}', 'files', '/' || n, 'f', n from generate_series(1, {batches}) n;
insert into txtopo.request (topology, kind, arguments, state, answer, done_at)
  select '{topology}', 'redrive', jsonb_build_object('txids', jsonb_build_array(n)), 'done', 'done', clock_timestamp()
    from generate_series(100, {batches}, 100) n;
insert into txtopo.action (topology, actor, host, command, txid, before, after)
  select '{topology}', 'ann', 'desk', 'redrive', n, '{{}}', '{{}}' from generate_series(100, {batches}, 100) n;
update txtopo.fence set last_txid = {batches} where topology = '{topology}'
"""  # noqa: E501


class FilledLedger:
    """One topology in a real database. Every batch has one file of 100 bytes a txid and one committer `counts`."""

    def __init__(self, dsn: str, topology: str = "flights") -> None:
        self.dsn = dsn
        self.topology = topology
        self.connection = psycopg2.connect(dsn)
        self._digests: dict[int, bytes] = {0: genesis_digest(topology, INCARNATION)}
        with self.connection:
            self.execute(
                "insert into txtopo.fence (topology, incarnation, owner_nonce, epoch, code_hash) values (%s, %s, %s, "
                "3, %s)",
                topology,
                INCARNATION,
                str(uuid.UUID(int=8)),
                CODE,
            )
            self.execute(
                "insert into txtopo.ledger (topology, txid, digest, incarnation, epoch, attempt, code_hash, state) "
                "values (%s, 0, %s, %s, 3, 0, %s, 'genesis')",
                topology,
                self._digests[0],
                INCARNATION,
                CODE,
            )
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

    def lead(self, state: str = "running", *, silent_s: float = 0, description: str = "{}", **columns: Any) -> None:
        """What the leader last said of itself, `silent_s` seconds ago."""
        names = ["topology", "application", "description", "code_hash", "state", "host", "pid", "epoch", *columns]
        values = [self.topology, "flights.py:topology", description, CODE, state, "box", 4711, 3, *columns.values()]
        marks = ", ".join(["%s"] * len(names))
        with self.connection:
            self.execute("delete from txtopo.topology where topology = %s", self.topology)
            self.execute(
                f"insert into txtopo.topology ({', '.join(names)}, heartbeat_at) values ({marks}, clock_timestamp() "
                f"- %s * interval '1 s')",
                *values,
                silent_s,
            )

    def plan(
        self, txid: int, *, redo_of: int | None = None, path: str | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Mirror the plan of the next batch with its file, or those of `metadata`; of a redo with the file of the batch
        that it redoes.
        """
        path = path or f"/data/day_{redo_of or txid:03}.csv"
        metadata = metadata or {"files": {"files": [{"path": path, "size": 100 * txid, "sha256": FINGERPRINT.hex()}]}}
        plan = Plan(
            topology=self.topology,
            incarnation=INCARNATION,
            txid=txid,
            previous_digest=self._digests[txid - 1],
            metadata=metadata,
            kind="redo" if redo_of else "cut",
            redo_of=redo_of,
        )
        self._digests[txid] = plan.digest
        with self.connection:
            self.execute(
                "insert into txtopo.plan (topology, txid, digest, bytes, epoch) values (%s, %s, %s, %s, 3)",
                self.topology,
                txid,
                plan.digest,
                plan.bytes,
            )
            for file in metadata["files"]["files"]:
                self.execute(
                    "insert into txtopo.source_file (topology, spout, path, fingerprint, txid, redo) values (%s, "
                    "'files', %s, %s, %s, %s)",
                    self.topology,
                    file["path"],
                    bytes.fromhex(file["sha256"]),
                    txid,
                    redo_of is not None,
                )

    def attempt(self, txid: int, attempt: int = 0, state: str = "begun", **columns: Any) -> None:
        """A try at a batch; with a failure in `columns` where it failed."""
        names = ["topology", "txid", "attempt", "epoch", "code_hash", "state", "host", *columns]
        ended = "null" if state == "begun" else "clock_timestamp()"
        marks = ", ".join(["%s"] * len(names))
        with self.connection:
            self.execute(
                f"insert into txtopo.attempt ({', '.join(names)}, started_at, ended_at) values ({marks}, "
                f"clock_timestamp() - interval '1.5 s', {ended})",
                self.topology,
                txid,
                attempt,
                3,
                CODE,
                state,
                "box",
                *columns.values(),
            )

    def commit(
        self,
        txid: int,
        attempt: int = 0,
        *,
        read: int = 1200,
        quarantine: str | None = None,
        redo_of: int | None = None,
        rejects: Sequence[Reject] = (),
        dead_letters: int = 0,
    ) -> None:
        """Commit a planned batch, or its quarantine, in one database transaction."""
        with self.connection:
            self.execute(
                "insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, "
                "attempt, code_hash, redo_of, state) "
                "values (%s, %s, %s, %s, %s, %s, 3, %s, %s, %s, 'applying')",
                self.topology,
                txid,
                txid - 1,
                self._digests[txid - 1],
                self._digests[txid],
                INCARNATION,
                attempt,
                CODE,
                redo_of,
            )
            if quarantine is None:
                self.execute(
                    "insert into txtopo.committer_count (topology, txid, committer, arrived, counted, results, "
                    "written, digest) "
                    "values (%s, %s, 'counts', %s, %s, 35, 35, 123456789012345678901234567890)",
                    self.topology,
                    txid,
                    read - len(rejects),
                    read - len(rejects),
                )
            self._insert_rows(txid, rejects, dead_letters)
            self.execute(
                "update txtopo.ledger set state = %s, reason = %s, read = %s, rejected = %s, dead_lettered = %s, "
                "committers = %s "
                "where topology = %s and txid = %s",
                "quarantined" if quarantine else "applied",
                quarantine,
                read,
                len(rejects),
                dead_letters,
                0 if quarantine else 1,
                self.topology,
                txid,
            )
            self.execute("update txtopo.fence set last_txid = %s where topology = %s", txid, self.topology)

    def _insert_rows(self, txid: int, rejects: Sequence[Reject], dead_letters: int) -> None:
        """Rejected rows and this number of dead letters of a batch."""
        for path, line, reason, raw in rejects:
            self.execute(
                "insert into txtopo.rejected_row (topology, txid, spout, path, line, reason, raw, raw_bytes) "
                "values (%s, %s, 'files', %s, %s, %s, %s, %s)",
                self.topology,
                txid,
                path,
                line,
                reason,
                raw,
                len(raw),
            )
        for number in range(dead_letters):
            self.execute(
                "insert into txtopo.dead_letter (topology, txid, spout, position, component, reason, raw) values "
                "(%s, %s, 'files', %s, 'clean', 'no', 'raw')",
                self.topology,
                txid,
                f"/data/x.csv:{number + 2}",
            )

    def order(self, kind: str, *txids: int, answer: str | None = None, state: str = "done", reason: str = "why") -> int:
        """An operator's order; answered where `answer` says how."""
        with self.connection:
            return int(
                self.execute(
                    "insert into txtopo.request (topology, kind, arguments, reason, actor, host, state, answer, "
                    "done_at) "
                    "values (%s, %s, %s, %s, 'ann', 'desk', %s, %s, case when %s::text is null then null else "
                    "clock_timestamp() end) returning request_id",
                    self.topology,
                    kind,
                    json.dumps({"txids": txids} if txids else {}),
                    reason,
                    state if answer else "open",
                    answer,
                    answer,
                )[0][0]
            )

    def action(self, command: str, txid: int | None = None, order_id: int | None = None, **states: Any) -> None:
        """A row of the action log with its states `before` and `after`."""
        with self.connection:
            self.execute(
                "insert into txtopo.action (topology, actor, host, command, reason, request_id, txid, before, after) "
                "values (%s, 'ann', 'desk', %s, 'why', %s, %s, %s, %s)",
                self.topology,
                command,
                order_id,
                txid,
                json.dumps(states.get("before", {})),
                json.dumps(states.get("after", {})),
            )

    def targets(self) -> None:
        """Tables of the committer `counts`: keys carrier and day, number `count` and sum `miles`; the leader describes
        them.
        """
        described = {
            "kind": "count",
            "table": f"public.{self.topology}_totals",
            "keys": ["carrier", "day"],
            "count": "count",
            "sums": {"distance": "miles"},
            "contributions": True,
            "input": "files",
        }
        self.lead(description=json.dumps({"spouts": {"files": {}}, "bolts": {}, "committers": {"counts": described}}))
        columns = "carrier text, day integer, count bigint not null, miles numeric not null"
        with self.connection:
            self.execute(f"create table {self.topology}_totals ({columns}, unique nulls not distinct (carrier, day))")
            self.execute(
                f"create table {self.topology}_totals_contribution (txid bigint not null, reverses bigint, {columns}, "
                "unique nulls not distinct (txid, reverses, carrier, day))"
            )

    def contribute(
        self, txid: int, carrier: str | None, day: int | None, count: int, miles: str = "0", reverses: int | None = None
    ) -> None:
        """A contribution of a batch, and its effect on the target."""
        with self.connection:
            self.execute(
                f"insert into {self.topology}_totals_contribution values (%s, %s, %s, %s, %s, %s)",
                txid,
                reverses,
                carrier,
                day,
                count,
                miles,
            )
            self.execute(
                f"insert into {self.topology}_totals as t values (%s, %s, %s, %s) on conflict (carrier, day) do update "
                "set count = t.count + excluded.count, miles = t.miles + excluded.miles",
                carrier,
                day,
                count,
                miles,
            )
            self.execute(f"delete from {self.topology}_totals where count = 0")

    def many(self, batches: int) -> None:
        """A long history: every 100th batch quarantined, half of these redone, every 50th with rejected rows, every
        20th failed once.
        """
        with self.connection:
            # No triggers: only what the server makes of so many rows matters here.
            self.execute("set local session_replication_role = replica")
            self.execute(MANY.format(topology=self.topology, batches=batches))
        with self.connection:
            self.execute("analyze")

    def batch(self, txid: int) -> None:
        """A batch that went through at once."""
        self.plan(txid)
        self.attempt(txid, state="applied", spans=json.dumps({"processing": 0.75, "commit": 0.003}))
        self.commit(txid)

    def orders(self) -> Sequence[Any]:
        """(kind, state, answer, actor) of all orders."""
        with self.connection:
            return self.execute("select kind, state, answer, actor from txtopo.request order by request_id")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
