"""Which rows of a table a batch has: positions in the order of transaction id and key, and ranges between two of them.
Pure decisions.

Rows are ordered by the id of the transaction that wrote them, then by key. The *horizon* is the lowest id of a
transaction that may still be open: below it nothing changes any more, so a range that ends there is complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from txtopo.errors import TopologyError

XMIN_END = 1 << 32
"""From this id on, the 32 bits of `xmin` are no longer the complete id."""
SUM_MODULUS = 1 << 64
_PAGE_HEADER_BYTES = 40
_PAGE_BYTES = 8192


class OtherServerError(ValueError):
    """The ids of the plan are not those of the server."""


class OtherTableError(ValueError):
    """The plan is about another table, or about other columns of it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How a row tells which transaction wrote it."""

    column: str | None
    """A column of type `xid8`; None: the system column `xmin`."""

    def __str__(self) -> str:
        return "xmin" if self.column is None else f"xid8:{self.column}"


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A position: all rows of lower ids are before it and, with a key, those of this id up to this key."""

    id: int
    key: tuple[str, ...] | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> RowPlace:
        """Return the position of a plan."""
        return cls(int(stored["id"]), tuple(stored["key"]) if "key" in stored else None)

    @classmethod
    def after(cls, stored: Mapping[str, Any] | None) -> RowPlace | None:
        """Return the position after which a range begins; None is the beginning of the table."""
        return None if stored is None else cls.of(stored)

    @property
    def stored(self) -> dict[str, Any]:
        """Return it as JSON. Ids are text: they have 64 bits."""
        return {"id": str(self.id)} if self.key is None else {"id": str(self.id), "key": list(self.key)}

    def is_settled(self, horizon: int) -> bool:
        """Return True if all transactions that wrote rows before this position have ended."""
        return self.id <= horizon if self.key is None else self.id < horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a server says of itself and of the table, in one snapshot."""

    server: str
    """Identifier and timeline: they change when ids may be given a second time."""
    horizon: int
    in_recovery: bool
    """True: a standby, which may be late."""
    written: int
    """Position in the write-ahead log up to which transactions may have written; 0 on a standby."""
    on_disk: int
    """Position up to which it is on the disk."""
    oid: int
    """The table's own number: one that is made again has another."""
    file: int
    """The number of its file: a table that was rewritten has another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPiece:
    """What one task reads, counted when it was planned."""

    to: RowPlace
    rows: int
    size: int
    """Bytes of its rows as JSON."""
    sum: int
    """Sum of the hashes of its rows, modulo 2 ** 64."""

    @property
    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"to": self.to.stored, "rows": self.rows, "bytes": self.size, "sum": f"{self.sum:016x}"}


@dataclass(frozen=True, slots=True)
class Settling:
    """A horizon that may be used as soon as everything below it is on the disk of the server."""

    horizon: int
    written: int

    def is_on_disk(self, on_disk: int) -> bool:
        """Return True if a crash of the server loses nothing below the horizon. A transaction with
        `synchronous_commit=off` is visible before; after a crash its id would be given to another one.
        """
        if on_disk >= self.written:
            return True
        # At the start of a page the position to write is after the header, although nothing was written.
        return on_disk % _PAGE_BYTES == 0 and self.written - on_disk <= _PAGE_HEADER_BYTES


def settled_by(text: object) -> Settled:
    """Return how rows tell who wrote them: `xid8:COLUMN` or `xmin`. Raises TopologyError.

    >>> str(settled_by("xid8:written_by"))
    'xid8:written_by'
    """
    if text == "xmin":
        return Settled(None)
    found = re.fullmatch(r"xid8:(.{1,63})", text) if isinstance(text, str) else None
    if found is None or not found[1].isprintable():
        raise TopologyError(f"TableSpout: settled {text!r} is neither 'xmin' nor 'xid8:' with the name of a column")
    return Settled(found[1])


def check_after(
    name: str,
    last: Mapping[str, Any],
    look: Look,
    settled: Settled,
    key: Sequence[str],
    other: Literal["halt", "continue"],
) -> None:
    """Check that the range after `last` can begin where `last` ended. Raises OtherServerError and OtherTableError."""
    end = RowPlace.of(last["to"])
    if last["settled"] != str(settled):
        raise OtherTableError(
            f"{name}: batches were planned with settled={last['settled']!r}, now it is {str(settled)!r}: their ids "
            f"cannot be compared; set it back, or give the spout another name to read the table from its beginning"
        )
    if end.key is not None and list(last["key"]) != list(key):
        raise OtherTableError(
            f"{name}: the last batch ends within a transaction, at key ({', '.join(last['key'])}), now the key is "
            f"({', '.join(key)}): set key={list(last['key'])!r} until a batch ends elsewhere"
        )
    if last["server"] != look.server and other == "halt":
        raise OtherServerError(
            f"{name}: batches were planned on server {last['server']} (identifier/timeline), this is {look.server}. "
            f"After a failover, a restore or an upgrade, ids of transactions that were lost are given to new ones, "
            f"whose rows would be missing. If no transaction was lost, declare the spout with "
            f"on_other_server='continue'"
        )
    if last["table"] != look.oid:
        raise OtherTableError(
            f"{name}: the table was dropped and made again: planned with number {last['table']}, now it has "
            f"{look.oid}; give the spout another name to read it from its beginning"
        )
    if not look.in_recovery and not end.is_settled(look.horizon):
        raise OtherServerError(
            f"{name}: transaction ids went back: the last range ends at id {end.id}, the server has come to "
            f"{look.horizon}. It was restored, or has lost transactions: rows with ids below {end.id} are counted "
            f"only if they were there before"
        )


def check_xmin(name: str, settled: Settled, horizon: int) -> None:
    """Raise OtherTableError if `xmin` is not the complete id of a transaction on this server any more."""
    if settled.column is None and horizon >= XMIN_END:
        raise OtherTableError(
            f"{name}: the server has used {horizon:,} transaction ids, and xmin has 32 bits: it no longer tells which "
            f"transaction wrote a row; add a column of type xid8, and give the spout another name"
        )
