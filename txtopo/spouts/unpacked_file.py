"""An open compressed file, as formats see it: the bytes that were compressed, from the first to the last.

A compressed file cannot be divided, and its size is not known before it was read. So its plan has a codec, and formats
see a file of `UNKNOWN_BYTES`, which ends where reading ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from txtopo.core.fields import Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.codecs import ArchiveError, Codec, ReadAt, Unpacked, codec_named
from txtopo.spouts.fingerprint import CHUNK_BYTES
from txtopo.spouts.formats.format import Format, Opened
from txtopo.spouts.planned_file import COMPONENT, changed

UNKNOWN_BYTES = 2**62
"""Stands for the size of a compressed file: larger than every file."""


class UnpackedFile(Opened):
    """What was compressed. Its bytes can be read again until they are forgotten."""

    reads_once = True

    def __init__(self, path: str, read_at: ReadAt, codec: Codec) -> None:
        """`read_at` reads the stored bytes. Raises ArchiveError if it does not begin like such an archive."""
        self._unpacked = Unpacked(read_at, codec)
        super().__init__(path, self._unpacked.read, UNKNOWN_BYTES)

    @property
    def start(self) -> bytes:
        """Return its first bytes. If they are all, its size is known from then on."""
        if self._start is None:
            start = self.read(0, CHUNK_BYTES + 1)
            if len(start) <= CHUNK_BYTES:
                self.size = len(start)
            self._start = start[:CHUNK_BYTES]
        return self._start

    def forget(self, before: int) -> None:
        self._unpacked.forget(before)

    def stored(self) -> tuple[int, str]:
        """Read to the end, and return number and sha-256 of the stored bytes. Raises as `read`."""
        return self._unpacked.size_and_sha256()


def described_unpacked(path: str, read_at: ReadAt, codec: Codec, format_: Format, fields: Fields) -> Mapping[str, Any]:
    """Return what the plan says of a compressed file. Raises ValueError if it cannot be planned; OSError."""
    opened = UnpackedFile(path, read_at, codec)
    try:
        return {**format_.describe(opened, fields), "codec": codec.name}
    except ArchiveError:
        raise
    except ValueError:
        opened.stored()  # Raises if it is damaged, which is the better explanation.
        raise


@contextmanager
def unpacked_file(file: Mapping[str, Any], read_at: ReadAt, *, to_its_end: bool) -> Iterator[UnpackedFile]:
    """Yield an open planned file that is compressed. With `to_its_end` it is read completely afterwards, whatever was
    read meanwhile: every archive in it must be whole, and the bytes that were read must be those of its plan (K7).

    Raises BatchDataError; OSError.
    """
    path = str(file["path"])
    try:
        codec = codec_named(file["codec"])
    except KeyError as error:
        raise BatchDataError(
            f"{path}: the batch was planned with codec {file['codec']!r}, which this release cannot read: use the "
            f"release that planned it, or replan the batch",
            component=COMPONENT,
            position=path,
            fault="codec of the plan unknown",
        ) from error
    try:
        opened = UnpackedFile(path, read_at, codec)
        try:
            yield opened
        except BatchDataError:
            # Bytes come out before their checksum: the damage is the better explanation of what is wrong with them.
            opened.stored()
            raise
        if to_its_end:
            size, sha256 = opened.stored()
            # The bytes of an object have no hash in the plan: every request for them names its tag.
            if (size, sha256) != (file["size"], sha256 if "etag" in file else file["sha256"]):
                raise changed(file, f"read {size} bytes with sha256 {sha256}")
    except ArchiveError as error:
        raise BatchDataError(f"{path}: {error}", component=COMPONENT, position=path, fault="damaged archive") from error
