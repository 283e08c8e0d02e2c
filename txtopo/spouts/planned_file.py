"""Opens a planned file and compares it with its plan, so that no data is read from a source that has changed (K7)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from txtopo.core.os_errors import fault_of
from txtopo.errors import BatchDataError
from txtopo.spouts.fingerprint import FileStat, open_regular, read_content

COMPONENT = "spout"
"""A placeholder for the component; the executor knows the spout's name."""


@contextmanager
def verified(file: Mapping[str, Any]) -> Iterator[int]:
    """Yield a descriptor of the planned file, which is compared with its plan before and after it is read. If `stat`
    differs, the content decides (K7).

    Raises BatchDataError if the file has changed, no longer exists or cannot be read at all; OSError that names the
    file for a failure that may pass and for a missing permission.
    """
    try:
        with open_regular(str(file["path"])) as descriptor:
            comparison = _Comparison(file, descriptor)
            comparison.compare()
            try:
                yield descriptor
            except (BatchDataError, OSError):
                # A line that does not parse may come from a file that changed meanwhile: then the change is the better
                # explanation.
                comparison.compare()
                raise
            comparison.compare()
    except OSError as error:
        raise error_of_planned(file, error) from error


class _Comparison:
    """Compares an open file with its plan."""

    def __init__(self, file: Mapping[str, Any], descriptor: int) -> None:
        self._file = file
        self._descriptor = descriptor
        self._known = FileStat.planned(file)
        """The metadata of the file when its content was last known to be as planned."""

    def compare(self) -> None:
        found = FileStat.of(os.fstat(self._descriptor))
        if found == self._known:
            return
        content = read_content(self._descriptor)
        if content.sha256 != self._file["sha256"]:
            raise changed(self._file, f"found {content.size} bytes with sha256 {content.sha256}")
        # Taken before hashing: a write during the hashing is then noticed at the next comparison.
        self._known = found


def error_of_planned(file: Mapping[str, Any], error: OSError) -> Exception:
    """Return the error with the name of the file, which reads by descriptor do not have; a BatchDataError if the batch
    is at fault.
    """
    path, words = str(file["path"]), error.strerror or str(error) or type(error).__name__
    match fault_of(error):
        case "gone":
            return changed(file, f"found no file there ({words})")
        case "data":
            return BatchDataError(
                f"{path}: cannot be read ({words})", component=COMPONENT, position=path, fault="unreadable file"
            )
        case _:
            return OSError(error.errno, words, path)


def changed(file: Mapping[str, Any], found: str) -> BatchDataError:
    """Return the error of a file that is not as planned."""
    path = file["path"]
    identity = f"sha256 {file['sha256']}" if "sha256" in file else f"tag {file['etag']}"
    message = f"{path}: the source changed after it was planned: planned {file['size']} bytes with {identity}, {found}"
    return BatchDataError(message, component=COMPONENT, position=str(path), fault="file changed")
