"""A short form of a batch's inputs, of limited size: enough to find the file of a batch that failed before its plan was
mirrored. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from txtopo.core.plan import canonical

SPOUT_BYTES_MAX = 4096
"""Maximum bytes of one spout's metadata that are stored unchanged with an attempt; longer metadata is shortened."""
FILES_MAX = 10
"""Number of files named in a shortened list."""
CUT_KEY = "$cut"
"""Key of the beginning, as text, of metadata that is too long."""
MORE_KEY = "$more"
"""Key of the number of further files in a shortened list."""
_IDLE_KEY = "$idle"


def in_short(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of each spout with a part in the batch: complete if it is short, otherwise its first files or
    its beginning.

    A pointer to a piece in `plan_part` is kept, since the piece is found by it.
    """
    return {spout: _short(value) for spout, value in metadata.items() if not _is_idle(value)}


def _is_idle(value: Any) -> bool:
    return isinstance(value, Mapping) and _IDLE_KEY in value


def _short(value: Any) -> Any:
    if len(canonical({"": value})) <= SPOUT_BYTES_MAX:
        return value
    files = value.get("files") if isinstance(value, Mapping) else None
    if isinstance(files, list) and all(isinstance(file, Mapping) and "path" in file for file in files):
        named = [
            {name: file[name] for name in ("path", "size", "sha256", "etag") if name in file}
            for file in files[:FILES_MAX]
        ]
        short = {"files": named, MORE_KEY: len(files) - len(named)}
        if len(canonical(short)) <= 2 * SPOUT_BYTES_MAX * FILES_MAX:
            return short
    return {CUT_KEY: json.dumps(value, ensure_ascii=False, sort_keys=True)[:SPOUT_BYTES_MAX]}
