"""Opens a planned file and compares it with its plan, so that nothing is read from a source that changed (K7)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txtopo.errors import BatchDataError
from txtopo.spouts.fingerprint import FileStat, NoRegularFileError, open_regular, read_content

COMPONENT = "spout"
"""Filled in by the executor, which knows the spout's name."""


class verified:  # noqa: N801 - used like a function
    """Compares before and after the file is read: where `stat` differs, the content decides (K7)."""

    def __init__(self, file: Mapping[str, Any]) -> None:
        self._file = file
        self._known = FileStat.planned(file)
        """What the file looked like when its content was last known to be the planned one."""
        self._open = open_regular(str(file["path"]))
        self._descriptor = -1

    def __enter__(self) -> int:
        try:
            self._descriptor = self._open.__enter__()
        except (FileNotFoundError, NotADirectoryError, NoRegularFileError) as error:
            raise self._changed(f"found no file there ({error.strerror or error})") from error
        try:
            self._compare()
        except BaseException as error:
            self._open.__exit__(type(error), error, error.__traceback__)
            raise
        return self._descriptor

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        try:
            # A line that does not parse may come from a file that changed meanwhile: that is the better explanation.
            if kind is None or isinstance(error, BatchDataError):
                self._compare()
        finally:
            self._open.__exit__(None, None, None)

    def _compare(self) -> None:
        found = FileStat.of(os.fstat(self._descriptor))
        if found == self._known:
            return
        content = read_content(self._descriptor)
        if content.sha256 != self._file["sha256"]:
            raise self._changed(f"found {content.size} bytes with sha256 {content.sha256}")
        # As it was before it was hashed: what is written meanwhile shows the next time.
        self._known = found

    def _changed(self, found: str) -> BatchDataError:
        path = self._file["path"]
        message = f"{path}: the source changed after it was planned: planned {self._file['size']} bytes with sha256 {self._file['sha256']}, {found}"
        return BatchDataError(message, component=COMPONENT, position=str(path))
