"""Files of this machine, or of a file system that is mounted on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from txtopo.spouts.fingerprint import FileStat, Scan, open_regular, read_at, read_content
from txtopo.spouts.matching_files import Found, PassOver, find_files, means, why_none
from txtopo.spouts.places.place import Examined, FilePlace, OpenFile
from txtopo.spouts.planned_file import verified
from txtopo.spouts.stamped_here import StampedHere


class LocalFile(OpenFile):
    """An open file of this machine."""

    def __init__(self, path: str, descriptor: int) -> None:
        """The caller closes the descriptor."""
        super().__init__(path)
        self._descriptor = descriptor

    def stat(self) -> FileStat:
        return FileStat.of(os.fstat(self._descriptor))

    def read(self, offset: int, size: int) -> bytes:
        return read_at(self._descriptor, offset, size)

    def examine(self, scan: Scan | None) -> Examined:
        """Hash the whole file; the scan receives all its bytes."""
        content = read_content(self._descriptor, scan)
        return Examined(
            size=content.size, start=content.start, identity={"sha256": content.sha256}, is_scanned=scan is not None
        )


class LocalPlace(FilePlace):
    """Paths of the operating system."""

    def find(self, pass_over: PassOver | None = None) -> Iterator[Found]:
        return find_files(self.path, pass_over)

    def stat_of(self, status: os.stat_result) -> FileStat:
        return FileStat.of(status)

    def stamps(self) -> StampedHere:
        return StampedHere()

    def why_none(self) -> str:
        return why_none(self.path)

    def means(self, file: str) -> bool:
        return means(self.path, file)

    def exists(self, file: str) -> bool:
        return os.path.lexists(file)

    def stat(self, file: str) -> FileStat:
        return FileStat.of(os.stat(file))  # noqa: PTH116 - as find_files

    def fingerprint(self, file: str) -> bytes:
        with open_regular(file) as descriptor:
            return bytes.fromhex(read_content(descriptor).sha256)

    @contextmanager
    def opened(self, file: str) -> Iterator[LocalFile]:
        with open_regular(file) as descriptor:
            yield LocalFile(file, descriptor)

    @contextmanager
    def verified(self, planned: Mapping[str, Any]) -> Iterator[LocalFile]:
        with verified(planned) as descriptor:
            yield LocalFile(str(planned["path"]), descriptor)
