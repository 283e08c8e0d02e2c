"""The inputs of a batch, for people: from its mirrored plan or, before it is mirrored, from its attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from txtopo.core.short_inputs import CUT_KEY, MORE_KEY
from txtopo.errors import Halted
from txtopo.reports import report_statements
from txtopo.reports.list_batches import rows
from txtopo.reports.model import AttemptRow, BatchRow, SourceFile
from txtopo.reports.stored_plans import whole_metadata

INPUTS_TOLD_MAX = 3
"""Number of inputs of a batch that one line names."""


def inputs_of_attempts(connection: Connection, attempts: Sequence[AttemptRow]) -> Mapping[str, Any]:
    """Return the inputs of the last attempt that recorded them, by spout, with pieces joined; empty if no attempt
    did.
    """
    known = [attempt.inputs for attempt in attempts if attempt.inputs]
    return _whole(connection, known[-1]) if known else {}


def with_files(connection: Connection, topology: str, batches: Sequence[BatchRow]) -> list[BatchRow]:
    """Return the same batches; for a batch that is not mirrored yet, the number of files is that of its last
    attempt.
    """
    open_txids = [row.txid for row in batches if not row.files and row.state in ("planned", "failed")]
    if not open_txids:
        return list(batches)
    tried = rows(connection, report_statements.INPUTS_OF, topology=topology, txids=open_txids)
    files = {row["txid"]: _number_of_files(_whole(connection, row["inputs"])) for row in tried}
    return [replace(row, files=files.get(row.txid, row.files)) for row in batches]


def _whole(connection: Connection, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """With its pieces put back, where they can be read."""
    try:
        return whole_metadata(connection, inputs)
    except (Halted, ValueError):
        return inputs


def _number_of_files(metadata: Mapping[str, Any]) -> int:
    """Return the number of files, including those that a shortened list only counts."""
    return sum(len(_listed(value)) + int(value.get(MORE_KEY, 0)) for value in metadata.values() if _listed(value))


def files_in(metadata: Mapping[str, Any]) -> tuple[SourceFile, ...]:
    """Return the files that the metadata of a batch names, of file spouts only."""
    return tuple(
        SourceFile(
            spout=spout,
            path=str(file["path"]),
            size=file["size"] if isinstance(file.get("size"), int) else None,
            fingerprint=str(file.get("sha256", file.get("etag", ""))),
        )
        for spout, value in metadata.items()
        for file in _listed(value)
    )


def other_inputs(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return spout and metadata, as JSON, of each spout that lists no files; for a shortened list, the number of
    further files.
    """
    for spout, value in metadata.items():
        if not _listed(value):
            cut = value.get(CUT_KEY) if isinstance(value, Mapping) else None
            yield spout, f"{cut}…" if cut is not None else json.dumps(value, ensure_ascii=False, sort_keys=True)
        elif value.get(MORE_KEY):
            yield spout, f"and {value[MORE_KEY]} more files"


def inputs_told(metadata: Mapping[str, Any]) -> list[str]:
    """Return the first inputs of a batch in words, for one line."""
    unlisted = {spout: value for spout, value in metadata.items() if not _listed(value)}
    others = [f"{spout} {text}" for spout, text in other_inputs(unlisted)]
    named = [*(file.path for file in files_in(metadata)), *others]
    cut = sum(int(value.get(MORE_KEY, 0)) for spout, value in metadata.items() if spout not in unlisted)
    left = max(0, len(named) - INPUTS_TOLD_MAX) + cut
    return [*named[:INPUTS_TOLD_MAX], *([f"and {left} more"] if left else [])]


def failed_inputs(connection: Connection, topology: str, txids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return batch -> its first inputs in words, for batches whose inputs are known."""
    if not txids:
        return {}
    bound = {"topology": topology, "txids": list(txids)}
    files: dict[int, list[str]] = {}
    for row in rows(connection, report_statements.FILES_OF_FAILED, **bound):
        files.setdefault(row["txid"], []).append(row["path"])
    found = {
        row["txid"]: tuple(inputs_told(row["inputs"])) for row in rows(connection, report_statements.INPUTS_OF, **bound)
    }
    for txid, paths in files.items():
        if not found.get(txid):
            found[txid] = tuple(paths[:INPUTS_TOLD_MAX])
    return dict(sorted(found.items()))


def _listed(value: Any) -> list[Mapping[str, Any]]:
    files = value.get("files") if isinstance(value, Mapping) else None
    if not isinstance(files, list):
        return []
    return [file for file in files if isinstance(file, Mapping) and "path" in file]
