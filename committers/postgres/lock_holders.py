"""Finds out who holds the lock that a driver waits for, from another connection that locks nothing."""

from __future__ import annotations

from sqlalchemy import Connection

from txtopo.committers.postgres.statements import statement


def waits_for(connection: Connection, topology: str) -> str | None:
    """Return which locks drivers of this topology wait for now and who holds them, as text; None if they wait for
    none.
    """
    rows = connection.exec_driver_sql(statement("list_blockers"), {"topology": topology}).all()
    held = dict.fromkeys(_words(*row) for row in rows)  # several sessions may wait for the same lock
    return "; ".join(held) or None


def _words(relation: str | None, holder: int, application: str | None, user: str | None, since: str | None) -> str:
    wanted = f"a lock on {relation}" if relation else "a lock"
    if holder == 0:
        return f"{wanted}, held by a prepared transaction (see pg_prepared_xacts)"
    known = [f"application {application}" if application else "no application name"]
    known += [f"user {user}"] if user else []
    known += [f"since {since}"] if since else []
    return f"{wanted}, held by pid {holder} ({', '.join(known)})"
