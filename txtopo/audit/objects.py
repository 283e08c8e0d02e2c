"""Reads objects of a store with the protocol of S3 for the audit, with separate code: those of plans, and the names of
those that a pattern selects.

Every request says which object it is for, so an object that was replaced is an error, and never read.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

SCHEME = "s3://"
RANGE_BYTES = 8 * 1024 * 1024
_SAID = re.compile(r"status code: (\d{3})|<Code>(\w{1,60})</Code>")
_T = TypeVar("_T")


class ReplacedError(Exception):
    """There is another object now than the one that was planned."""


class PlannedObject(io.RawIOBase):
    """The bytes of a planned object, from the first to the last."""

    def __init__(self, file: Mapping[str, Any]) -> None:
        """`file` is its entry in the plan. Raises ReplacedError; OSError if it cannot be read."""
        super().__init__()
        self._copy: Any = None
        self._url = str(file["path"])
        self._size = int(file["size"])
        self._wanted: dict[str, Any] = {"if_match": file["etag"]}
        if file.get("version") is not None:
            self._wanted["version"] = file["version"]
        self._offset = 0
        self._waiting = b""
        self._get({"head": True})

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._waiting and self._offset < self._size:
            end = min(self._offset + RANGE_BYTES, self._size)
            self._waiting = self._range(self._offset, end)
            self._offset = end
        size = len(self._waiting) if size < 0 else size
        given, self._waiting = self._waiting[:size], self._waiting[size:]
        return given

    def fileno(self) -> int:
        """Return the descriptor of a temporary copy, for readers that need a file; it is removed when this is
        closed. Raises as `read`.
        """
        if self._copy is None:
            self._copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
            for start in range(0, self._size, RANGE_BYTES):
                end = min(start + RANGE_BYTES, self._size)
                self._copy.write(self._range(start, end))
        return int(self._copy.fileno())

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()
        super().close()

    def _range(self, start: int, end: int) -> bytes:
        data = bytes(self._get({"range": (start, end)}).bytes())
        if len(data) != end - start:
            raise OSError(errno.EIO, f"bytes {start} to {end} came incompletely", self._url)
        return data

    def _get(self, more: Mapping[str, Any]) -> Any:
        bucket, _, key = self._url.removeprefix(SCHEME).partition("/")
        return _asked(self._url, lambda client: client.get(_bucket(bucket), key, options={**self._wanted, **more}))


def objects_of(path: str) -> Iterator[str]:
    """Yield the URLs of the objects that are input by docs/remote.md. Raises OSError."""
    bucket, _, names = path.removeprefix(SCHEME).partition("/")
    parts = [part for part in names.split("/") if part]
    fixed = [part for number, part in enumerate(parts) if not any(map(glob.has_magic, parts[: number + 1]))]
    pattern = parts[len(fixed) :]
    if names.endswith("/") and pattern:
        pattern.append("*")
    if parts and not names.endswith("/") and _exists(bucket, "/".join(parts)):
        yield from [path] if _is_shown(parts[-1]) else []
        return
    above = "".join(f"{part}/" for part in fixed)
    pages = _asked(path, lambda client: client.list(_bucket(bucket), prefix=above or None, chunk_size=1000))
    while page := _asked(path, lambda client: next(pages, None)):
        for one in page:
            key = str(one["path"])
            if not key.startswith(above) or not _selects(pattern or ["*"], key.removeprefix(above).split("/")):
                continue
            if one["size"] or _exists(bucket, key):  # Else an object `NAME/`, which stands for a folder.
                yield f"{SCHEME}{bucket}/{key}"


def _selects(pattern: list[str], names: list[str]) -> bool:
    """Follow all ways through the pattern at the same time."""
    ways = {0}
    for name in names:
        ways |= {way + 1 for way in ways if way < len(pattern) - 1 and pattern[way] == "**"}
        following = set()
        for way in ways:
            part = pattern[way] if way < len(pattern) else None
            if part == "**" and _is_shown(name):
                following.add(way)
            elif part is not None and part != "**" and fnmatch.fnmatchcase(name, part):
                following |= {way + 1} if _is_shown(name) or part[0] == name[0] else set()
        ways = following
    end = len(pattern) - 1 if pattern[-1] == "**" else len(pattern)
    return end in ways and _is_shown(names[-1])


def _is_shown(name: str) -> bool:
    return name[:1] not in ("_", ".")


def _exists(bucket: str, key: str) -> bool:
    try:
        _asked(f"{SCHEME}{bucket}/{key}", lambda client: client.head(_bucket(bucket), key))
    except FileNotFoundError:
        return False
    return True


@lru_cache(maxsize=16)
def _bucket(name: str) -> Any:
    from obstore.store import S3Store

    is_plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http:")
    return S3Store(name, client_options={"allow_http": True} if is_plain else {})


def _asked(url: str, ask: Callable[[Any], _T]) -> _T:
    """Return the answer of a store. Of an error only status and code are shown: the rest may name an access key."""
    try:
        import obstore
    except ImportError as error:
        raise OSError(errno.ENOPKG, "its client is not installed: pip install 'txtopo[s3]'", url) from error
    try:
        return ask(obstore)
    except Exception as error:
        said = " ".join(first or second for first, second in _SAID.findall(str(error)))
        if type(error).__name__ == "PreconditionError":
            raise ReplacedError(f"{url}: {said}") from None
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in said:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", url) from None
        raise OSError(errno.EIO, f"the store says {said or type(error).__name__}", url) from None
