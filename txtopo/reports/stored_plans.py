"""Reads the stored plan of a batch: its inputs, joined from pieces if they are long, and what it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import RowMapping

from txtopo.core.plan import Plan, read_plan
from txtopo.core.remedies import RESTORE
from txtopo.errors import Halted
from txtopo.reports import report_statements
from txtopo.reports.list_batches import one
from txtopo.reports.model import SourceFile

_PART_KEY = "$part"
"""Under this key, a file list too long for a plan is a pointer to a piece in `plan_part`."""
_IDLE_KEY = "$idle"
"""Under this key is the previous entry of a spout without a part in the batch."""
_WHERE = "table txtopo.plan"


def stored_plan(data: bytes) -> Plan | None:
    """Return the plan; None if it cannot be read, which `metadata_of` reports."""
    try:
        return read_plan(bytes(data), _WHERE)
    except Halted:
        return None


def metadata_of(connection: Connection, plan: RowMapping | None) -> tuple[Mapping[str, Any], str | None]:
    """Return the metadata by spout with a part in the batch, pieces joined; or why it cannot be read.

    An unreadable plan must not hide the rest.
    """
    if plan is None:
        return {}, None
    try:
        stored = read_plan(bytes(plan["bytes"]), _WHERE).metadata
        return whole_metadata(connection, stored), None
    except (Halted, ValueError) as error:
        return {}, str(error)


def whole_metadata(connection: Connection, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata by spout with a part in the batch, pieces joined. Raises Halted if one is missing."""
    return {spout: _whole(connection, value) for spout, value in stored.items() if not is_idle(value)}


def is_idle(metadata: Any) -> bool:
    """True if the spout with this entry in a plan has no part in the batch."""
    return isinstance(metadata, Mapping) and _IDLE_KEY in metadata


def _whole(connection: Connection, metadata: Any) -> Any:
    if not isinstance(metadata, Mapping) or _PART_KEY not in metadata:
        return metadata
    part = one(connection, report_statements.PLAN_PART, digest=str(metadata[_PART_KEY]))
    if part is None:
        raise Halted(f"table txtopo.plan_part has no piece {metadata[_PART_KEY]}", next_command=RESTORE)
    return json.loads(bytes(part["bytes"]))


def files_of(metadata: Mapping[str, Any], consumed: Sequence[RowMapping]) -> tuple[SourceFile, ...]:
    """Return the inputs in the form in which `source_file` stores them permanently, with the sizes that the plan
    knows.
    """
    sizes = {(spout, path): size for spout, value in metadata.items() for path, size in _sizes(value)}
    return tuple(
        SourceFile(
            spout=row["spout"],
            path=row["path"],
            size=sizes.get((row["spout"], row["path"])),
            fingerprint=row["fingerprint"],
        )
        for row in consumed
    )


def _sizes(metadata: Any) -> Iterator[tuple[str, int]]:
    files = metadata.get("files") if isinstance(metadata, Mapping) else None
    for entry in files if isinstance(files, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("size"), int):
            yield str(entry.get("path")), entry["size"]
