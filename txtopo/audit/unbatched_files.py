"""Files in the folder of a spout that are in no batch: new ones, or files that will never be counted."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from txtopo.audit.objects import SCHEME, objects_of
from txtopo.audit.verdicts import Unbatched
from txtopo.reports.cursors import stream

NAMED_MAX = 20
"""Number of files that are named; the rest is counted."""
_CONSUMED = "select path from txtopo.source_file where topology = %(topology)s and spout = %(spout)s"


def find_unbatched(connection: Connection, topology: str, description: Mapping[str, Any]) -> Iterator[Unbatched]:
    """Return one entry for each spout over files that has such files, or whose folder cannot be read; in the order of
    their names.
    """
    for spout, described in sorted(description.get("spouts", {}).items()):
        path = (
            described.get("path") if isinstance(described, Mapping) and "files" in str(described.get("kind")) else None
        )
        if not isinstance(path, str):
            continue
        try:
            there = set(files_of(path))
        except OSError as error:
            yield Unbatched(spout=spout, path=path, files=0, names=(), problem=error.strerror or str(error))
            continue
        there -= {row[0] for row in stream(connection, _CONSUMED, topology=topology, spout=spout)}
        if there:
            yield Unbatched(
                spout=spout, path=path, files=len(there), names=tuple(sorted(there)[:NAMED_MAX]), problem=None
            )


def files_of(path: str) -> Iterator[str]:
    """Return the regular files of a folder, a file, or a pattern that are input by docs/files.md. Raises OSError if a
    plain path does not exist.
    """
    if path.startswith(SCHEME):
        yield from objects_of(path)
        return
    if os.path.isdir(path):  # noqa: PTH112
        names = [os.path.join(path, name) for name in os.listdir(path)]  # noqa: PTH118, PTH208 - paths as the plans spell them
    elif os.path.lexists(path) or not glob.has_magic(path):
        os.stat(path)  # noqa: PTH116
        names = [path]
    else:
        names = [name for name in glob.glob(path, recursive=True) if _is_walked(name, path)]  # noqa: PTH207
    for name in names:
        if os.path.basename(name)[:1] not in ("_", ".") and _is_file(name):  # noqa: PTH119
            yield name


def _is_walked(name: str, pattern: str) -> bool:
    """Return True for a folder to descend into: hidden folders only if the pattern names them, links to a folder above
    never.
    """
    folder = Path(name).parent
    said = [part for part in Path(pattern).parts if part.startswith("_")]
    hidden = [part for part in folder.parts if part.startswith("_")]
    return all(any(fnmatch.fnmatchcase(part, one) for one in said) for part in hidden) and not any(
        one.is_symlink() and one.parent.resolve().is_relative_to(one.resolve()) for one in (folder, *folder.parents)
    )


def _is_file(name: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(name).st_mode)  # noqa: PTH116
    except OSError:
        return False
