"""Who is at fault for an SQLSTATE, by the owner of the statement (W1 to W3, which batch an error belongs to), and
the codes that other modules ask for by name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

UNIQUE_VIOLATION = "23505"
INSUFFICIENT_PRIVILEGE = "42501"
LOCK_NOT_AVAILABLE = "55P03"
QUERY_CANCELED = "57014"
RAISED = "P0001"
"""`raise exception` in a function, such as a trigger of schema txtopo."""
DATA_EXCEPTION = "22"
"""A class: values that do not fit."""
CONSTRAINT_VIOLATION = "23"
"""A class."""
LIMIT_EXCEEDED = "54"
"""A class: limits of the server, such as a key too long for its index."""
NO_TABLE = ("3F000", "42P01", "42703")
"""No such schema, table or column."""
NOT_MIGRATED = (*NO_TABLE, "42883")
"""The same, or no such function."""
_MAYBE_COMMITTED = re.compile(r"^(08...|40003|57P0[123]|XX...)$")


class Owner(Enum):
    """Who wrote the statement. This decides what its error can be about."""

    LEDGER = "ledger"
    """txtopo, on schema txtopo: no value of a batch can be at fault."""
    TARGET = "target"
    """txtopo; the statement writes values of a batch into a table: a user's table, or counts, rejected rows and dead
    letters. A user's trigger may raise any code.
    """
    CUSTOM = "custom"
    """The user, in a custom committer."""


class Fault(Enum):
    """What an error means."""

    STORE = "store"
    """Trouble of the store: waited for, with a limit while Postgres answers (W5)."""
    BROKEN = "broken"
    """Trouble of the store if the connection is broken or a new one fails; data otherwise (W1), since a trigger may
    raise any code.
    """
    LOCK = "lock"
    """Another session holds a lock: waited for without a limit (W5)."""
    TIME = "time"
    """Statement timeout: tried again a few times, then data, since it would take as long again."""
    ONCE = "once"
    """A new connection fixes it, or nothing does: tried once more, then the topology halts."""
    HALT = "halt"
    """It would happen to every batch (W2)."""
    DATA = "data"
    """The batch or the user's code is at fault (W3)."""
    BUG = "bug"
    """A bug in txtopo."""


class Row(NamedTuple):
    """The verdicts on one code, by owner of the statement."""

    ledger: Fault
    target: Fault
    custom: Fault


_STORE, _BROKEN, _LOCK, _TIME, _ONCE, _HALT, _DATA, _BUG = Fault
UNKNOWN_CODE = Row(_HALT, _DATA, _DATA)
"""For every code that is not in the table: safe by default."""
_USERS = Row(_HALT, _DATA, _DATA)
_ODD = Row(_BUG, _DATA, _DATA)
_WAITS = Row(_STORE, _STORE, _STORE)
_NEVER = Row(_HALT, _HALT, _HALT)
_CONNECTION = Row(_STORE, _BROKEN, _BROKEN)
_SLOW_CODE = Row(_STORE, _STORE, _DATA)
_AGAIN = Row(_ONCE, _ONCE, _DATA)
_OBJECTS = Row(_HALT, _HALT, _DATA)

TABLE: Mapping[str, Row] = {
    # Only a `raise` can cause them; or cursors, CASE and savepoints, which txtopo does not use.
    **dict.fromkeys(("00", "01", "02", "03", "0Z", "20", "24", "34", "3B", "08P01", "0B", "2D", "25"), _ODD),
    # A pooler has lost a prepared statement; the result type of a cached plan has changed.
    **dict.fromkeys(("26", "0A"), _AGAIN),
    **dict.fromkeys(("08", "57"), _CONNECTION),
    **dict.fromkeys(("09", "27", "38", "39", "2F", "P0", "72", "HV"), _USERS),
    "25006": _OBJECTS,  # read only: a standby
    # Idle or transaction timeout: in a custom committer the user's code waited.
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
"""Verdicts by SQLSTATE, or by its class if all codes of the class mean the same."""
BROKEN_CONNECTION = _CONNECTION
"""An error of the connection without a code."""
CLIENT = _ODD
"""An error without a code that the client raised for a value (P14)."""


def verdict_on(state: str, owner: Owner) -> Fault:
    """Return what this SQLSTATE means for a statement of that owner.

    >>> verdict_on("54000", Owner.TARGET).value
    'data'
    """
    row = TABLE.get(state) or TABLE.get(state[:2]) or UNKNOWN_CODE
    return of_owner(row, owner)


def may_have_committed(state: str) -> bool:
    """Return True if the server may have committed although COMMIT ended with this SQLSTATE (P2)."""
    return _MAYBE_COMMITTED.match(state) is not None


def of_owner(row: Row, owner: Owner) -> Fault:
    """Return the verdict for statements of that owner."""
    match owner:
        case Owner.LEDGER:
            return row.ledger
        case Owner.TARGET:
            return row.target
        case Owner.CUSTOM:
            return row.custom
