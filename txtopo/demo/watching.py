"""What the demo reads from Postgres: the progress of the topology, and at the end its table and its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.connect import make_engine
from txtopo.demo.recount import Totals
from txtopo.errors import PostgresUnavailable

_STANDING = """
select f.epoch, f.last_txid, t.pid, coalesce(t.planned_txid, 0) as planned_txid,
       array(select distinct a.txid from txtopo.attempt a
             where a.topology = f.topology and a.epoch = f.epoch and a.txid > f.last_txid and a.state = 'begun' order
             by 1) as running
  from txtopo.fence f left join txtopo.topology t on (t.topology, t.epoch) = (f.topology, f.epoch)
 where f.topology = :topology
"""
_LEDGER = """
select l.txid, l.epoch, l.attempt, l.state, l.read, l.rejected, c.arrived, c.counted,
       (select count(*) from txtopo.attempt a where (a.topology, a.txid) = (l.topology, l.txid)) as attempts,
       (select count(*) from txtopo.attempt a where (a.topology, a.txid) = (l.topology, l.txid) and a.epoch < l.epoch
         and a.state <> 'failed') as orphaned
  from txtopo.ledger l left join txtopo.committer_count c using (topology, txid)
 where l.topology = :topology and l.txid > 0
 order by l.committed_at, l.txid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The progress of the topology at one moment."""

    epoch: int = 0
    """Epoch of the leader; 0 before the first one has the lead."""
    pid: int | None = None
    """Process id of the leader; None until it has written it."""
    committed: int = 0
    """Highest txid committed."""
    planned: int = 0
    """Highest txid planned, according to the leader's last heartbeat."""
    running: tuple[int, ...] = ()
    """Txids that the leader has begun and not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """One committed batch."""

    txid: int
    epoch: int
    """Epoch of the driver that committed it."""
    attempt: int
    """The attempt that was committed, from 0."""
    state: str
    read: int | None
    """Number of records read from its file."""
    rejected: int | None
    """Number of records that did not match the declared fields."""
    arrived: int | None
    """Number of rows that arrived at the committer."""
    counted: int | None
    """Number of rows that the committer added to its table."""
    attempts: int
    """Number of attempts that were begun, including the committed one."""
    orphaned: int
    """Number of these attempts that a driver had begun and could not commit before it died."""


def zookeeper_mark(hosts: str, topology: str) -> int:
    """Return the highest txid that ZooKeeper knows to be committed; it may be lower than in Postgres, never higher."""
    from txtopo.coordinators.codec import decode_mark
    from txtopo.coordinators.paths import TopologyPaths
    from txtopo.coordinators.zookeeper_session import open_session

    path = TopologyPaths(topology).mark
    session = open_session(hosts)
    try:
        found = session.get(path)
    finally:
        session.close()
    return 0 if found is None else decode_mark(found[0], path)


class Watcher:
    """Reads with short database transactions and locks nothing."""

    def __init__(self, dsn: str, topology: str) -> None:
        self._engine = make_engine(dsn, "txtopo/demo")
        self._topology = topology

    def standing(self) -> Standing:
        """Return the current progress."""
        rows = self._read(_STANDING)
        if not rows:
            return Standing()
        epoch, committed, pid, planned, running = rows[0]
        return Standing(
            epoch=epoch, pid=pid, committed=committed, planned=max(planned, committed), running=tuple(running)
        )

    def ledger(self) -> list[CommittedBatch]:
        """Return all committed batches in the order in which they were committed."""
        names = ("txid", "epoch", "attempt", "state", "read", "rejected", "arrived", "counted", "attempts", "orphaned")
        return [CommittedBatch(**dict(zip(names, row, strict=True))) for row in self._read(_LEDGER)]

    def totals(self, table: str, keys: tuple[str, str], numbers: tuple[str, str]) -> Totals:
        """Return the totals in a target table: two columns of keys, two of numbers."""
        rows = self._read(f'select {", ".join((*keys, *numbers))} from public."{table}"')
        return {(str(one), str(two)): (int(first), int(second)) for one, two, first, second in rows}

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _read(self, statement: str) -> list[tuple[Any, ...]]:
        values = {"topology": self._topology} if ":topology" in statement else {}
        try:
            with self._engine.connect() as connection:
                return [tuple(row) for row in connection.execute(text(statement), values)]
        except SQLAlchemyError as error:
            raise PostgresUnavailable(f"the demo's own Postgres does not answer: {error}") from error
