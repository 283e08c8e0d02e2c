"""What the database knows of a topology's own `config`: as the driver that leads it, or led it last, described it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text

_CONFIG = text("select description -> 'config' from txtopo.topology where topology = :topology")


def read_config(connection: Connection, topology: str) -> Mapping[str, Any] | None:
    """The `config` of a topology, empty where it was described without one; None where no driver has described the
    topology yet.
    """
    found = connection.execute(_CONFIG, {"topology": topology}).one_or_none()
    if found is None:
        return None
    return found[0] if isinstance(found[0], Mapping) else {}
