"""Reads times for which Python has no datetime, such as infinity or a year before Christ: a planted one must not stop
an audit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg2.extensions
from sqlalchemy import Connection

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""Used for a time before or after the range. Times may be subtracted from each other; nothing may be added to one."""
_TIMESTAMPTZ = 1184


def read_any_time(connection: Connection) -> None:
    """Make this connection read each `timestamptz` as a datetime in UTC, those out of range as FIRST or LAST. Not for
    writing.
    """
    psycopg2.extensions.register_type(_TIMES, connection.connection.dbapi_connection)


def any_time(text: str | None, _cursor: Any) -> datetime | None:
    """Return the time of `text`, in the server's ISO style, which the driver requests."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # Before the year 1 in some time zone, or after 9999.
        return FIRST if text.startswith(("-", "0001")) or text.endswith("BC") else LAST


_TIMES = psycopg2.extensions.new_type((_TIMESTAMPTZ,), "TXTOPO_TIMES", any_time)
