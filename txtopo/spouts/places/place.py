"""The interface of places: which files there are, whether one is still the same, and its bytes at any offset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from txtopo.spouts.fingerprint import FileStat, Scan
from txtopo.spouts.matching_files import PassOver

Found = tuple[str, Any]
"""A path, and what its place knows of the file from listing it; `FilePlace.stat_of` makes its metadata of that."""


class Stamps(Protocol):
    """Says of files whether their time stamps are of this machine's clock. Made for one check of a source."""

    def covers(self, path: str, status: Any) -> bool:
        """Return True if they certainly are."""

    def covers_folder(self, folder: str) -> bool:
        """Return True if they certainly are for the files in a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was read of a file for its plan."""

    size: int
    """Bytes."""
    start: bytes
    """Its first bytes, at most 1 MiB."""
    identity: Mapping[str, Any]
    """JSON values for its plan, which tell its content from every other."""
    is_scanned: bool
    """True if the scan has received all its bytes."""


class OpenFile(ABC):
    """An open file. Every read gives bytes of the same content, or raises."""

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def stat(self) -> FileStat:
        """Return its present metadata. Raises OSError."""

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, fewer only at the end of the file. Raises OSError."""

    @abstractmethod
    def examine(self, scan: Scan | None) -> Examined:
        """Read what its plan needs to know of it. Raises OSError."""


class FilePlace(ABC):
    """Where the files of a source are. Has no connection and no password: it is pickled, and each process opens what it
    needs.
    """

    appears_whole: ClassVar[bool] = False
    """True if a file is complete as soon as it can be seen, so that nobody waits until it no longer changes."""
    answers_late: ClassVar[bool] = False
    """True if a request costs much more time than CPU, so that several are made at the same time."""
    pause_s: ClassVar[float] = 0.0
    """Time between two listings, at least."""

    def __init__(self, path: str) -> None:
        self.path = path
        """What is selected: a folder, a file or a pattern."""

    @abstractmethod
    def find(self, pass_over: PassOver | None = None) -> Iterator[Found]:
        """Yield every file that the path selects; one may come twice. Files that `pass_over` chooses may be passed
        over. Raises OSError: a place that cannot be listed completely is an error, and never one with fewer files.
        """

    @abstractmethod
    def stat_of(self, status: Any) -> FileStat:
        """Return the metadata of a file that was found."""

    @abstractmethod
    def stamps(self) -> Stamps:
        """Return what says whether time stamps can be trusted, for one check."""

    @abstractmethod
    def why_none(self) -> str:
        """Return what exists instead, if no file is found; empty if nothing exists there. Raises OSError."""

    @abstractmethod
    def means(self, file: str) -> bool:
        """Return True if the path may select this file, by names alone: the file may no longer exist."""

    @abstractmethod
    def exists(self, file: str) -> bool:
        """Return True if there is anything of this name."""

    @abstractmethod
    def stat(self, file: str) -> FileStat:
        """Return the present metadata of a file. Raises OSError."""

    @abstractmethod
    def fingerprint(self, file: str) -> bytes:
        """Return the fingerprint of the present content of a file. Raises OSError."""

    @abstractmethod
    def opened(self, file: str) -> AbstractContextManager[OpenFile]:
        """Yield a file as it is now. Raises OSError."""

    @abstractmethod
    def verified(self, planned: Mapping[str, Any]) -> AbstractContextManager[OpenFile]:
        """Yield a planned file, none of whose bytes is read from another content than was planned (K7).

        Raises BatchDataError if it has changed, no longer exists or cannot be read at all; OSError that names the file
        for a failure that may pass and for a missing permission.
        """
