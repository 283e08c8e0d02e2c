"""Which batch counts where one was redone: a batch and its redos are a family, and the last applied one of it is what
the tables hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from txtopo.reports.list_batches import rows

_REDOS = """
select txid, redo_of, state from txtopo.ledger where topology = :topology and redo_of is not null order by txid
"""


@dataclass(frozen=True, slots=True)
class Redos:
    """All redos of a topology."""

    first: dict[int, int]
    """Txid of a redo -> the batch at the head of its family."""
    applied: dict[int, int]
    """Batch at the head of a family -> its last applied redo."""

    def applied_for(self, txid: int) -> int | None:
        """The applied redo that counts in the place of this batch, itself perhaps; None: no redo of its family was
        applied.
        """
        return self.applied.get(self.first.get(txid, txid))


def read_redos(connection: Connection, topology: str) -> Redos:
    """From the ledger, through the index of redos."""
    found = Redos({}, {})
    for row in rows(connection, _REDOS, topology=topology):  # in txid order: whatever a redo redoes was met before it
        head = found.first[row["txid"]] = found.first.get(row["redo_of"], row["redo_of"])
        if row["state"] == "applied":
            found.applied[head] = row["txid"]
    return found
