"""Objects of a store with the protocol of S3. Each read says which object it is for: one that was replaced never gives
new bytes after old ones.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any

from txtopo.core.planned_fingerprint import tag_fingerprint
from txtopo.errors import TopologyError
from txtopo.spouts.fingerprint import CHUNK_BYTES, FileStat, Scan
from txtopo.spouts.matching_files import PassOver
from txtopo.spouts.places.object_errors import ObjectChangedError, told
from txtopo.spouts.places.object_names import fits, is_hidden
from txtopo.spouts.places.place import Examined, FilePlace, Found, OpenFile
from txtopo.spouts.places.ranges_ahead import RangesAhead
from txtopo.spouts.planned_file import changed, error_of_planned

SCHEME = "s3://"
CONNECT_S = 10
READ_S = 30
"""Time within which a store has to give the next bytes of an answer, in seconds."""
ANSWER_S = 300
RETRIES_MAX = 3
RETRIED_S = 60
"""A request is repeated so often, and for at most this many seconds, after an answer of 5xx or none. Then the attempt
fails, and the driver waits for the store.
"""
LISTED_AT_ONCE = 1000
SUBFOLDERS_MAX = 20
"""Number of requests by which the listing of a folder goes around its subfolders."""
_AFTER_SLASH = "0"
"""The character that follows a slash."""
PAUSE_S = 30.0
"""Time between two listings, in seconds: they cost money."""


class NoStamps:
    """Time stamps of a store are those of another clock."""

    def covers(self, path: str, status: Any) -> bool:
        return False

    def covers_folder(self, folder: str) -> bool:
        return False


class ObjectFile(OpenFile):
    """One object, in the version that its entity tag names."""

    def __init__(self, url: str, stat: FileStat, version: str | None) -> None:
        super().__init__(url)
        self._stat = stat
        self._version = version
        self._ranges = RangesAhead(self._read_range, stat.size)
        self._was_read = False

    def stat(self) -> FileStat:
        """Return its metadata: those of the object that is read, and no other one is."""
        return self._stat

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, fewer only at its end. Raises OSError, ObjectChangedError."""
        return self._ranges.read(offset, size)

    def examine(self, scan: Scan | None) -> Examined:
        """Read only its beginning: the plan names its version or tag, and every read asks for that."""
        identity = {} if self._version is None else {"version": self._version}
        return Examined(size=self._stat.size, start=self.read(0, CHUNK_BYTES), identity=identity, is_scanned=False)

    def check(self) -> None:
        """Raise as `read`, unless a read already has shown that the object is still there."""
        if not self._was_read:
            with told(self.path):
                _client().get(*_store_and_key(self.path), options={**self._condition(), "head": True})

    def _read_range(self, offset: int, size: int) -> bytes:
        with told(self.path):
            options = {**self._condition(), "range": (offset, offset + size)}
            data = bytes(_client().get(*_store_and_key(self.path), options=options).bytes())
        if len(data) != size:
            raise OSError(errno.EIO, f"the store gave {len(data)} bytes of {size} at {offset}", self.path)
        self._was_read = True
        return data

    def _condition(self) -> dict[str, Any]:
        condition: dict[str, Any] = {"if_match": self._stat.etag}
        return condition if self._version is None else {**condition, "version": self._version}


class ObjectPlace(FilePlace):
    """`s3://BUCKET/…`: a folder (names up to the next `/`), an object, or a pattern."""

    appears_whole = True
    answers_late = True
    pause_s = PAUSE_S

    def __init__(self, path: str) -> None:
        """Raises TopologyError for a URL that names no bucket."""
        super().__init__(path)
        bucket, _, names = path.removeprefix(SCHEME).partition("/")
        if (
            not bucket
            or glob.has_magic(bucket)
            or "//" in names
            or any(one in ("", ".", "..") for one in _parts(names))
        ):
            raise TopologyError(f"FileSpout: path {path!r} is not s3://BUCKET/… with names between single slashes")
        if "@" in bucket or ":" in bucket:
            raise TopologyError(
                "FileSpout: the URL has more than a bucket before its first slash; credentials come from the "
                "environment or from the host (docs/remote.md)"
            )
        self._bucket = bucket
        self._names = names + "*" if names.endswith("/") and glob.has_magic(names) else names

    def find(self, pass_over: PassOver | None = None) -> Iterator[Found]:
        names = _parts(self._names)
        if names and not self._names.endswith("/"):
            # As for files: a name with characters of a pattern is that of an object, if there is one.
            single = self._single()
            if single is not None:
                yield from () if is_hidden(names[-1]) else [(self.path, single)]
                return
        if not glob.has_magic(self._names):
            yield from self._folder("/".join(names), ["*"])
            return
        first = next(number for number, name in enumerate(names) if glob.has_magic(name))
        folder, pattern = "/".join(names[:first]), names[first:]
        if len(pattern) == 1 and pattern != ["**"]:
            yield from self._folder(folder, pattern)
        else:
            yield from self._below(folder, pattern)

    def stat_of(self, status: FileStat) -> FileStat:
        return status

    def stamps(self) -> NoStamps:
        return NoStamps()

    def why_none(self) -> str:
        return ""

    def means(self, file: str) -> bool:
        own, others = _parts(self._names), _parts(file.removeprefix(f"{SCHEME}{self._bucket}/"))
        if not file.startswith(f"{SCHEME}{self._bucket}/"):
            return False
        return own in (others, others[:-1]) or fits(own, others)

    def exists(self, file: str) -> bool:
        try:
            self.stat(file)
        except FileNotFoundError:
            return False
        return True

    def stat(self, file: str) -> FileStat:
        return _head(file)[0]

    def fingerprint(self, file: str) -> bytes:
        stat = self.stat(file)
        return tag_fingerprint(str(stat.etag), stat.size)

    @contextmanager
    def opened(self, file: str) -> Iterator[ObjectFile]:
        """Yield an object as it is now. One that is replaced while it is read counts as gone."""
        stat, version = _head(file)
        try:
            yield ObjectFile(file, stat, version)
        except ObjectChangedError:
            raise FileNotFoundError(errno.ENOENT, "it was replaced while it was read", file) from None

    @contextmanager
    def verified(self, planned: Mapping[str, Any]) -> Iterator[ObjectFile]:
        url = str(planned["path"])
        stored = ObjectFile(url, FileStat.planned(planned), planned.get("version"))
        try:
            yield stored
            stored.check()
        except ObjectChangedError:
            raise changed(planned, _found_now(url)) from None
        except OSError as error:
            raise error_of_planned(planned, error) from error

    def _single(self) -> FileStat | None:
        try:
            return self.stat(self.path)
        except FileNotFoundError:
            return None

    def _folder(self, folder: str, pattern: list[str]) -> Iterator[Found]:
        """Yield the objects in a folder whose names fit, without those of its subfolders.

        An answer without subfolders is in memory as a whole. So pages of all that is below the folder are read, and a
        subfolder in which a page ends is passed over: its objects may be very many.
        """
        above = f"{folder}/" if folder else ""
        last, offset = "", None
        for _ in range(SUBFOLDERS_MAX):
            name = slash = ""
            try:
                for page in self._pages(folder, offset):
                    keys = [last, *(str(one["path"]) for one in page)]
                    if any(key > following for key, following in pairwise(keys)):
                        last, slash = "", ""  # Some stores list in another order: then nothing may be passed over.
                        break
                    yield from self._fitting(folder, pattern, page)
                    last = keys[-1]
                    name, slash, _ = last.removeprefix(above).partition("/")
                    if slash:
                        break
                else:
                    return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                slash = ""  # A name that cannot be read, perhaps in a subfolder.
            if not slash:
                break
            offset = f"{above}{name}{_AFTER_SLASH}"
        with told(self.path):
            listed = _client().list_with_delimiter(_store(self._bucket, os.getpid()), prefix=folder or None)
        yield from self._fitting(folder, pattern, (one for one in listed["objects"] if one["path"] > last))

    def _below(self, folder: str, pattern: list[str]) -> Iterator[Found]:
        """Yield the objects below a folder whose names fit."""
        for page in self._pages(folder):
            yield from self._fitting(folder, pattern, page)

    def _pages(self, folder: str, offset: str | None = None) -> Iterator[Any]:
        """Yield the objects below a folder whose names follow the offset, some at a time, never none. A page that fails
        fails the listing: half of one is not a place with fewer files.
        """
        store = _store(self._bucket, os.getpid())
        with told(self.path):
            pages = _client().list(store, prefix=folder or None, offset=offset, chunk_size=LISTED_AT_ONCE)
        while True:
            with told(self.path):
                page = next(pages, None)
            if page is None:
                return
            if page:
                yield page

    def _fitting(self, folder: str, pattern: list[str], listed: Any) -> Iterator[Found]:
        above = f"{folder}/" if folder else ""
        for one in listed:
            key = str(one["path"])
            if not key.startswith(above) or not fits(pattern, _parts(key.removeprefix(above))):
                continue
            url = f"{SCHEME}{self._bucket}/{key}"
            if one["size"] == 0 and not _is_object(url, one["last_modified"]):
                continue  # An object `NAME/` of no bytes stands for a folder, and is listed as NAME.
            yield url, _stat_of(url, one)


def _parts(names: str) -> list[str]:
    return [name for name in names.split("/") if name] if names.strip("/") else []


def _head(url: str) -> tuple[FileStat, str | None]:
    """Return the metadata of an object, and its version where its bucket has any."""
    with told(url):
        found = _client().head(*_store_and_key(url))
    version = found.get("version")
    return _stat_of(url, found), None if version in (None, "", "null") else str(version)


def _is_object(url: str, modified: Any) -> bool:
    """Return True for an object of this name without content. `modified` is its time, as a listing has it."""
    try:
        _check_object(url, modified)
    except FileNotFoundError:
        return False
    return True


@lru_cache(maxsize=10_000)
def _check_object(url: str, modified: Any) -> None:
    """Raise FileNotFoundError if there is none, which is asked each time; that there is one is asked once."""
    _head(url)


def _stat_of(url: str, found: Any) -> FileStat:
    if not found["e_tag"]:
        raise OSError(errno.EINVAL, "the store gives no entity tags, without which an object may change unseen", url)
    # Listings have fractions of seconds, other answers have none.
    mtime_ns = int(found["last_modified"].timestamp()) * 10**9
    return FileStat(size=int(found["size"]), mtime_ns=mtime_ns, inode=0, ctime_ns=None, etag=str(found["e_tag"]))


def _found_now(url: str) -> str:
    try:
        stat, _ = _head(url)
    except OSError as error:
        return f"found another object there ({error.strerror})"
    return f"found {stat.size} bytes with tag {stat.etag}"


def _client() -> Any:
    """Return the client. Raises ImportError if this process does not have it."""
    import obstore

    return obstore


def _store_and_key(url: str) -> tuple[Any, str]:
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    return _store(bucket, os.getpid()), key


@lru_cache(maxsize=16)
def _store(bucket: str, process: int) -> Any:
    """Return the client for a bucket. Endpoint, region and credentials are those of this process and its host."""
    from obstore.store import S3Store

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return S3Store(
        bucket,
        client_options={
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "read_timeout": timedelta(seconds=READ_S),
            "timeout": timedelta(seconds=ANSWER_S),
            **({"allow_http": True} if endpoint.lower().startswith("http://") else {}),
        },
        retry_config={"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRIED_S)},
    )
