"""Opens a planned file and compares it with its plan, so that nothing is read from a source that changed (K7)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from txtopo.core.os_errors import fault_of
from txtopo.errors import BatchDataError
from txtopo.spouts.fingerprint import FileStat, open_regular, read_content

COMPONENT = "spout"
"""Filled in by the executor, which knows the spout's name."""


@contextmanager
def verified(file: Mapping[str, Any]) -> Iterator[int]:
    """A descriptor of the planned file, compared before and after it is read: where `stat` differs, the content decides
    (K7).

    Raises BatchDataError where it is another file by now, is gone or cannot be read at all; OSError naming the file for
    trouble that may pass, and where it may not be read.
    """
    try:
        with open_regular(str(file["path"])) as descriptor:
            comparison = _Comparison(file, descriptor)
            comparison.compare()
            try:
                yield descriptor
            except (BatchDataError, OSError):
                # A line that does not parse may come from a file that changed meanwhile: that is the better
                # explanation.
                comparison.compare()
                raise
            comparison.compare()
    except OSError as error:
        raise _told(file, error) from error


class _Comparison:
    """What an open file is against its plan."""

    def __init__(self, file: Mapping[str, Any], descriptor: int) -> None:
        self._file = file
        self._descriptor = descriptor
        self._known = FileStat.planned(file)
        """What the file looked like when its content was last known to be the planned one."""

    def compare(self) -> None:
        found = FileStat.of(os.fstat(self._descriptor))
        if found == self._known:
            return
        content = read_content(self._descriptor)
        if content.sha256 != self._file["sha256"]:
            raise _changed(self._file, f"found {content.size} bytes with sha256 {content.sha256}")
        # As it was before it was hashed: what is written meanwhile shows the next time.
        self._known = found


def _told(file: Mapping[str, Any], error: OSError) -> Exception:
    """The error with the file's name, which reads by descriptor do not have; as one of the batch where that is what is
    wrong.
    """
    path, words = str(file["path"]), error.strerror or str(error) or type(error).__name__
    match fault_of(error):
        case "gone":
            return _changed(file, f"found no file there ({words})")
        case "data":
            return BatchDataError(f"{path}: cannot be read ({words})", component=COMPONENT, position=path)
        case _:
            return OSError(error.errno, words, path)


def _changed(file: Mapping[str, Any], found: str) -> BatchDataError:
    path = file["path"]
    message = (
        f"{path}: the source changed after it was planned: planned {file['size']} bytes with sha256 "
        f"{file['sha256']}, {found}"
    )
    return BatchDataError(message, component=COMPONENT, position=str(path))
