"""Places of files in the hands of a test: files are written, replaced and removed in them, and reads are counted and
fail. One of them is in memory: it has nothing but what the interface asks for.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.kit.s3_server import S3, Fault
from txtopo.core.planned_fingerprint import tag_fingerprint
from txtopo.spouts import fingerprint, matching_files
from txtopo.spouts.fingerprint import CHUNK_BYTES, FileStat, Scan
from txtopo.spouts.matching_files import PassOver
from txtopo.spouts.places import local_place
from txtopo.spouts.places.known_places import place_of
from txtopo.spouts.places.object_names import fits
from txtopo.spouts.places.object_place import NoStamps
from txtopo.spouts.places.place import Examined, FilePlace, Found, OpenFile
from txtopo.spouts.planned_file import changed, error_of_planned

OnRead = Callable[[int], bool]
"""Called with the number of a read before it is made, from 1; True: the storage cannot be reached."""


class Held(Protocol):
    """A place, as a test sees it."""

    base: str
    """What stands before the name of a file."""

    @property
    def reads(self) -> int:
        """How often bytes or metadata of one file were asked for."""

    def place(self, names: str) -> FilePlace:
        """The place that selects these names below the base."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file, or replace it as another writer does."""

    def delete(self, name: str) -> None:
        """Remove a file."""

    def on_read(self, action: OnRead) -> None:
        """From now on, call this before bytes are read."""

    def break_listing(self, *, is_broken: bool) -> None:
        """From now on a listing fails after some of its files, or no longer."""


class HeldFolder:
    """A folder of this machine."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.base, self.reads = str(folder), 0
        self._folder, self._patch = folder, patch
        self._action: OnRead = lambda number: False
        self._number = 0
        read_at, read_content = fingerprint.read_at, fingerprint.read_content

        def read(descriptor: int, offset: int, size: int) -> bytes:
            self._note()
            return read_at(descriptor, offset, size)

        def content(descriptor: int, scan: Scan | None = None) -> Any:
            self.reads += 1
            return read_content(descriptor, scan)

        patch.setattr(local_place, "read_at", read)
        patch.setattr(local_place, "read_content", content)
        self._pieces = matching_files._pieces

    def _note(self) -> None:
        self.reads += 1
        self._number += 1
        if self._action(self._number):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def place(self, names: str) -> FilePlace:
        return place_of(f"{self.base}/{names}")

    def put(self, name: str, data: bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.parent / "_new"
        new.write_bytes(data)
        new.replace(path)

    def delete(self, name: str) -> None:
        (self._folder / name).unlink()

    def on_read(self, action: OnRead) -> None:
        self._action, self._number = action, 0

    def break_listing(self, *, is_broken: bool) -> None:
        def broken(folder: str, is_wanted: Callable[[str], bool]) -> Iterator[Any]:
            for piece in self._pieces(folder, is_wanted):
                yield piece[: len(piece) // 2]
                raise OSError(errno.EIO, os.strerror(errno.EIO), folder)

        self._patch.setattr(matching_files, "_pieces", broken if is_broken else self._pieces)


class HeldBucket:
    """A bucket of a real server, behind a proxy."""

    def __init__(self, s3: S3) -> None:
        self.base = s3.url
        self._s3 = s3
        self._action: OnRead = lambda number: False
        self._number = 0
        self._is_broken = False
        s3.proxy.on_request = self._asked

    @property
    def reads(self) -> int:
        return sum(1 for _, path in self._s3.proxy.asked if "list-type" not in path)

    def _asked(self, method: str, path: str, number: int) -> Fault | None:
        if "list-type" in path:
            return "503" if self._is_broken and "continuation-token" in path else None
        if method != "GET":
            return None
        self._number += 1
        return "reset" if self._action(self._number) else None

    def place(self, names: str) -> FilePlace:
        return place_of(f"{self.base}/{names}")

    def put(self, name: str, data: bytes) -> None:
        if "\n" in name:
            pytest.skip("moto takes no line end in a name")
        self._s3.put(name, data)

    def delete(self, name: str) -> None:
        self._s3.delete(name)

    def on_read(self, action: OnRead) -> None:
        self._action, self._number = action, 0

    def break_listing(self, *, is_broken: bool) -> None:
        self._is_broken = is_broken


class MemoryStore:
    """Names and bytes, each with a tag."""

    def __init__(self) -> None:
        self.base, self.reads = "memory://store", 0
        self.objects: dict[str, bytes] = {}
        self.action: OnRead = lambda number: False
        self.number = 0
        self.is_broken = False
        _stores[self.base] = self

    def place(self, names: str) -> FilePlace:
        return MemoryPlace(f"{self.base}/{names}")

    def put(self, name: str, data: bytes) -> None:
        self.objects[f"{self.base}/{name}"] = data

    def delete(self, name: str) -> None:
        del self.objects[f"{self.base}/{name}"]

    def on_read(self, action: OnRead) -> None:
        self.action, self.number = action, 0

    def break_listing(self, *, is_broken: bool) -> None:
        self.is_broken = is_broken

    def stat(self, url: str) -> FileStat:
        if url not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", url)
        data = self.objects[url]
        return FileStat(size=len(data), mtime_ns=0, inode=0, ctime_ns=None, etag=hashlib.md5(data).hexdigest())


_stores: dict[str, MemoryStore] = {}
"""By URL: a place is pickled as its path alone."""


class MemoryFile(OpenFile):
    """An object with the tag that it had when it was opened or planned."""

    def __init__(self, store: MemoryStore, url: str, stat: FileStat) -> None:
        super().__init__(url)
        self._store, self._stat = store, stat

    def stat(self) -> FileStat:
        return self._stat

    def read(self, offset: int, size: int) -> bytes:
        self._store.reads += 1
        self._store.number += 1
        if self._store.action(self._store.number):
            raise ConnectionResetError(errno.ECONNRESET, "reset", self.path)
        self.check()
        return self._store.objects[self.path][offset : offset + size]

    def examine(self, scan: Scan | None) -> Examined:
        return Examined(size=self._stat.size, start=self.read(0, CHUNK_BYTES), identity={}, is_scanned=False)

    def check(self) -> None:
        if self._store.stat(self.path).etag != self._stat.etag:
            raise _ReplacedError(self.path)


class _ReplacedError(Exception):
    """The object has another tag now."""


class MemoryPlace(FilePlace):
    """Objects of a dictionary."""

    appears_whole = True

    @property
    def _store(self) -> MemoryStore:
        return next(store for base, store in _stores.items() if self.path.startswith(f"{base}/"))

    def find(self, pass_over: PassOver | None = None) -> Iterator[Found]:
        store = self._store
        urls = sorted(url for url in store.objects if self.means(url))
        for url in urls[: len(urls) // 2] if store.is_broken else urls:
            yield url, store.stat(url)
        if store.is_broken:
            raise OSError(errno.EIO, "the second half of the listing", self.path)

    def stat_of(self, status: FileStat) -> FileStat:
        return status

    def stamps(self) -> NoStamps:
        return NoStamps()

    def why_none(self) -> str:
        return ""

    def means(self, file: str) -> bool:
        own, names = self.path.split("/"), file.split("/")
        if not glob.has_magic(self.path):
            own = own if file == self.path else [*self.path.rstrip("/").split("/"), "*"]
        elif self.path.endswith("/"):
            own[-1] = "*"
        return own[:3] == names[:3] and fits(own[3:], names[3:])

    def exists(self, file: str) -> bool:
        return file in self._store.objects

    def stat(self, file: str) -> FileStat:
        self._store.reads += 1
        return self._store.stat(file)

    def fingerprint(self, file: str) -> bytes:
        stat = self.stat(file)
        return tag_fingerprint(str(stat.etag), stat.size)

    @contextmanager
    def opened(self, file: str) -> Iterator[MemoryFile]:
        try:
            yield MemoryFile(self._store, file, self._store.stat(file))
        except _ReplacedError:
            raise FileNotFoundError(errno.ENOENT, "it was replaced while it was read", file) from None

    @contextmanager
    def verified(self, planned: Mapping[str, Any]) -> Iterator[MemoryFile]:
        file = MemoryFile(self._store, str(planned["path"]), FileStat.planned(planned))
        try:
            yield file
            file.check()
        except _ReplacedError:
            raise changed(planned, "found another object") from None
        except OSError as error:
            raise error_of_planned(planned, error) from error
