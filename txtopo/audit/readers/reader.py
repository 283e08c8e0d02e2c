"""The interface of the audit's readers: the records of a planned file, judged with the audit's own code."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import RawIOBase
from typing import Any, BinaryIO, ClassVar

from txtopo.audit.unpacking import unpacked
from txtopo.core.fields import Fields
from txtopo.core.positions import Unit

CHUNK_BYTES = 1024 * 1024


class TooLongError(ValueError):
    """A record is longer than the limit of its reader."""


class NotDecodedError(ValueError):
    """The decoder of a reader does not read a file, so nothing is known of its records."""


class NotAsPlannedError(Exception):
    """The plan says other things about a file than the file itself, so its records have no meaning."""


@dataclass(slots=True)
class HashedFile:
    """A file's content; its stored bytes are hashed and counted while they are read."""

    file: BinaryIO | RawIOBase
    codec: str | None = None
    """How it is compressed; None: it is not."""
    size: int = 0
    """Number of stored bytes that were read."""
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    @property
    def sha256(self) -> str:
        """Return the hash of the stored bytes that were read so far, in hex."""
        return self._digest.hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """Return the rest of the content, unpacked. Raises NoDecoderError; what it returns raises DamagedError."""
        return iter(self._read, b"") if self.codec is None else unpacked(self._read, self.codec)

    def skip(self) -> None:
        """Read to the end, so that size and hash are those of the whole file."""
        while self._read():
            pass

    def _read(self, size: int = CHUNK_BYTES) -> bytes:
        chunk = self.file.read(size) or b""
        self._digest.update(chunk)
        self.size += len(chunk)
        return chunk


@dataclass(slots=True)
class Read:
    """One record of a source."""

    number: int
    """Where it starts, in units of its reader: the physical line, from 1, or what else the source counts."""
    values: Sequence[Any]
    """The values of the planned fields; empty if there is a reason."""
    reason: str | None
    """Why it does not parse; None: it does."""
    raw: bytes
    """Its bytes, as a rejected record keeps them."""

    def is_doubtful(self) -> bool:
        """Return True if another reader may judge this record differently, so that a difference proves nothing."""
        return False


class Reader(ABC):
    """Reads the files of one batch, as their plan says."""

    kind: ClassVar[str]
    """The `kind` of the layout in plans."""
    unit: ClassVar[Unit] = "line"
    """What the numbers of its records count."""

    @abstractmethod
    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        """`layout` is that of the plan, without `kind` and `part_bytes`; `fields` are the planned ones. Raises
        KeyError, TypeError or ValueError for a layout that it does not know completely: then nothing is recounted.
        """

    @abstractmethod
    def read(self, file: Mapping[str, Any], hashed: HashedFile) -> Iterator[Read]:
        """Yield the records of a file in the order of their numbers. `file` is its entry in the plan, with its own
        `header`.

        Raises NotAsPlannedError, TooLongError, and OSError if the file cannot be read.
        """


def check_known(layout: Mapping[str, Any], *names: str) -> None:
    """Raise ValueError if a layout has an entry that is none of `names`: it may change what every value means."""
    unknown = sorted({*layout} - {*names})
    if unknown:
        raise ValueError(f"this release does not know {', '.join(unknown)}")
