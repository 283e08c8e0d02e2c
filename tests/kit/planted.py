"""Plants errors of the operating system where the file source asks it for something."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from txtopo.spouts import file_coordinator, fingerprint, matching_files, planned_file

MODULES = (file_coordinator, matching_files, fingerprint, planned_file)
"""Those that call `os` about files of the source."""


class PlantedOs:
    """Stands for the module `os`; raises `number` from the `first`-th access to a file on (from 0), so many `times`."""

    def __init__(self, path: str, number: int = 0, first: int = -1, times: int = 1) -> None:
        self.accesses: list[str] = []
        """What was asked about the file, in order."""
        self._path = path
        self._number = number
        self._planted = range(first, first + times) if first >= 0 else range(0)
        self._opened: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def stat(self, path: str) -> os.stat_result:
        self._access("stat", path == self._path)
        return os.stat(path)  # noqa: PTH116

    def open(self, path: str, flags: int) -> int:
        self._access("open", path == self._path)
        descriptor = os.open(path, flags)
        if path == self._path:
            self._opened.add(descriptor)
        return descriptor

    def fstat(self, descriptor: int) -> os.stat_result:
        self._access("fstat", descriptor in self._opened)
        return os.fstat(descriptor)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self._access("read", descriptor in self._opened)
        return os.pread(descriptor, size, offset)

    def close(self, descriptor: int) -> None:
        mine = descriptor in self._opened
        self._opened.discard(descriptor)
        os.close(descriptor)
        self._access("close", mine)

    def _access(self, what: str, mine: bool) -> None:
        if not mine:
            return
        self.accesses.append(what)
        if len(self.accesses) - 1 in self._planted:
            by_name = (self._path,) if what in ("stat", "open") else ()
            raise OSError(self._number, os.strerror(self._number), *by_name)


def planted(monkeypatch: pytest.MonkeyPatch, path: str, run: Callable[[], Any], **fault: int) -> tuple[Any, PlantedOs]:
    """What `run` gives with this error planted."""
    found = PlantedOs(path, **fault)
    with monkeypatch.context() as patched:
        for module in MODULES:
            patched.setattr(module, "os", found)
        return run(), found


NUMBERS = {name: getattr(errno, name) for name in ("ENOENT", "ELOOP", "EACCES", "EIO", "EMFILE", "EINVAL", "EILSEQ")}
"""One of each kind, and one that is in no list."""
