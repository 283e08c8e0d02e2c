"""Whose fault an SQLSTATE is, by whose statement brought it (W1 to W3): a table, and how it is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Owner(Enum):
    """Whose statement it is, and so what an error of it can be about."""

    LEDGER = "ledger"
    """txtopo's, on schema txtopo: no value of a batch can be at fault."""
    TARGET = "target"
    """txtopo's, that puts values of a batch into a table: a user's, or one of the counts, rejected rows and dead
    letters. A user's trigger may raise anything.
    """
    CUSTOM = "custom"
    """The user's own, of a custom committer."""


class Fault(Enum):
    """What an error means."""

    STORE = "store"
    """Trouble of the store: waited out, up to a bound while Postgres answers (W5)."""
    BROKEN = "broken"
    """Trouble of the store if the connection is broken or a fresh one fails, else data (W1): a trigger may raise any
    code.
    """
    LOCK = "lock"
    """Somebody holds a lock: waited for without a bound."""
    TIME = "time"
    """The time for a statement was up: tried again a few times, then data, since it would take as long again."""
    ONCE = "once"
    """Passes on a fresh connection, or never: tried once more, then nobody's batch is at fault."""
    HALT = "halt"
    """It would be the same for every batch (W2)."""
    DATA = "data"
    """The batch or the user's code (W3)."""
    BUG = "bug"
    """A mistake in txtopo."""


class Row(NamedTuple):
    """The verdicts on one code, by owner."""

    ledger: Fault
    target: Fault
    custom: Fault


_STORE, _BROKEN, _LOCK, _TIME, _ONCE, _HALT, _DATA, _BUG = Fault
UNKNOWN_CODE = Row(_HALT, _DATA, _DATA)
"""Of every code that is not in the table: safe by default."""
_USERS = Row(_HALT, _DATA, _DATA)
_ODD = Row(_BUG, _DATA, _DATA)
_WAITS = Row(_STORE, _STORE, _STORE)
_NEVER = Row(_HALT, _HALT, _HALT)
_CONNECTION = Row(_STORE, _BROKEN, _BROKEN)
_SLOW_CODE = Row(_STORE, _STORE, _DATA)
_AGAIN = Row(_ONCE, _ONCE, _DATA)
_OBJECTS = Row(_HALT, _HALT, _DATA)

TABLE: Mapping[str, Row] = {
    # Only a `raise` brings them; cursors, CASE and savepoints, which txtopo does not use.
    **dict.fromkeys(("00", "01", "02", "03", "0Z", "20", "24", "34", "3B", "08P01", "0B", "2D", "25"), _ODD),
    # A prepared statement that a pooler has lost; a cached plan whose result type has changed.
    **dict.fromkeys(("26", "0A"), _AGAIN),
    **dict.fromkeys(("08", "57"), _CONNECTION),
    **dict.fromkeys(("09", "27", "38", "39", "2F", "P0", "72", "HV"), _USERS),
    "25006": _OBJECTS,  # read only: a standby
    # Idle or transaction timeout: of a custom committer it was the code that waited.
    **dict.fromkeys(("25P03", "25P04", "57P05"), _SLOW_CODE),
    # Rights, roles, schemas, databases; corruption.
    **dict.fromkeys(("0F", "0L", "0P", "28", "2B", "3D", "3F", "57P04", "58P01", "58P02", "XX001", "XX002"), _NEVER),
    # Rows that do not fit; limits of the server, such as a key too long for its index.
    **dict.fromkeys(("21", "22", "23", "44", "54"), _USERS),
    **dict.fromkeys(("40", "53", "58"), _WAITS),
    "40002": _USERS,
    "42": _OBJECTS,
    **dict.fromkeys(("42P01", "42501"), _NEVER),
    "55": _OBJECTS,
    "55P03": Row(_LOCK, _LOCK, _LOCK),
    "57014": Row(_STORE, _TIME, _DATA),
    **dict.fromkeys(("F0", "XX"), _SLOW_CODE),
}
"""By SQLSTATE, or by its class where all of a class mean the same."""
BROKEN_CONNECTION = _CONNECTION
"""No code, and an error of the connection."""
CLIENT = _ODD
"""No code, and an error that the client raised over a value (P14)."""


def verdict_on(state: str, owner: Owner) -> Fault:
    """What this SQLSTATE means of a statement of that owner.

    >>> verdict_on("54000", Owner.TARGET).value
    'data'
    """
    row = TABLE.get(state) or TABLE.get(state[:2]) or UNKNOWN_CODE
    return of_owner(row, owner)


def of_owner(row: Row, owner: Owner) -> Fault:
    """The verdict of that owner's statements."""
    match owner:
        case Owner.LEDGER:
            return row.ledger
        case Owner.TARGET:
            return row.target
        case Owner.CUSTOM:
            return row.custom
