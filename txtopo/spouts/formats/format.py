"""The interface of file formats: how the bytes of a planned file become records, which of them are rejected, and where
a record stands.
"""

from __future__ import annotations

import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from txtopo.core.fields import Fields
from txtopo.core.values import RejectedRow
from txtopo.spouts.fingerprint import CHUNK_BYTES, Scan
from txtopo.topology.components import Position

if TYPE_CHECKING:
    import pyarrow as pa

PlannedFile = Mapping[str, Any]
"""A file as its plan has it: `path`, `size` in bytes, `mtime_ns`, `sha256`, and what `Format.describe` and
`Format.scan` returned for it. `numbered` is True where rows need the numbers of their records.
"""
KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")


class Section(NamedTuple):
    """A section of a file that one task reads: what `start` and `end` count is the format's own, mostly bytes."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Return its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """The next records of a section: rows, or records that do not parse, or both, if their order does not matter."""

    batch: pa.RecordBatch | None
    """Rows of exactly the planned fields."""
    rejects: Sequence[RejectedRow] = ()
    numbers: Sequence[int] | None = None
    """The numbers of the records of the rows, if the file is `numbered`."""


class Opened:
    """An open file, and its bytes at any offset."""

    reads_once: ClassVar[bool] = False
    """True for a compressed file: bytes that were forgotten cannot be read again, so line numbers are counted on the
    way.
    """

    def __init__(self, path: str, read_at: Callable[[int, int], bytes], size: int, start: bytes | None = None) -> None:
        """`read_at` reads its bytes. `start`: its first bytes, if they are known."""
        self.path = path
        self._read_at = read_at
        self.size = size
        """Bytes: of the plan, or of the read that hashed it for its plan."""
        self._start = start

    @property
    def start(self) -> bytes:
        """Return its first bytes, at most 1 MiB. When a file is planned, they are of the same read as its hash."""
        if self._start is None:
            self._start = self.read(0, CHUNK_BYTES)
        return self._start

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, fewer only at the end of the file. Raises OSError, and ArchiveError for a
        compressed file.
        """
        return self._read_at(offset, size)

    def forget(self, before: int) -> None:
        """Let go of all bytes before this offset: none of them is read again. Else a compressed file fills memory."""


class Format(ABC):
    """How bytes become records. What reads a batch is made from the layout in its plan (R12), never from the topology's
    present settings. An object keeps nothing between two calls, which may come from several threads. Must be picklable.
    """

    kind: ClassVar[str]
    """Its name in plans, and in `FileSpout(…, format=)`."""
    reads_forward: ClassVar[bool] = False
    """True if it reads a file from its first byte to its last, through `Opened.read` alone, and says by `Opened.forget`
    what it has passed: then its files may be compressed. Facts of `scan` are None for a compressed file, and its size
    is known only at its end.
    """
    number_field: ClassVar[str | None] = None
    """Name of a declared field, of type bigint, that is not in the records but is the number of a row's record in its
    file, as `locate` says it. If it is declared, the planned file is `numbered`, and `emit` gives `Emitted.numbers`.
    None: there is no such field.
    """

    @abstractmethod
    def layout(self) -> Mapping[str, Any]:
        """Return everything that reading depends on, as JSON values by the names of the arguments of its class.

        An argument that is new in a release has the default with which earlier plans were read.
        """

    @classmethod
    def of(cls, layout: Mapping[str, Any]) -> Self:
        """Return the format that returned this layout. Raises TypeError or ValueError for an unknown or invalid
        entry.
        """
        return cls(**layout)

    def check(self, fields: Fields) -> None:  # noqa: B027 - most formats give every type
        """Raise TopologyError if a declared type cannot be given exactly."""

    def scan(self, fields: Fields) -> Scan | None:
        """Return what examines all bytes of one file while it is planned; None if nothing is to be known of them."""
        return None

    @abstractmethod
    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        """Return JSON values about a file, once, when it is planned. `fields` are the declared ones. The value of
        `header` is stored once for all files of a batch that have an equal one.

        Runs in the driver: reads little. Raises ValueError that says why the file cannot be planned.
        """

    @abstractmethod
    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        """Return the sections of a file, of about `part_bytes` each, in order: one if it cannot be divided. Depends on
        the plan alone.
        """

    def section_bytes(self, file: PlannedFile, section: Section) -> int:
        """Return about how many bytes a section has, for sharing a task with others."""
        return section.size

    @abstractmethod
    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        """Yield the rows and rejected records of a section in source order. `fields` are the planned ones that are in
        the records. Every record of a file is in exactly one of its sections, and is the same in every attempt.

        Raises BatchDataError for a file that cannot be read to its end.
        """

    def common(self, file: PlannedFile, section: Section) -> Hashable | None:
        """Return what the file has in common with others whose sections `emit_together` reads as one; None: `emit`
        reads this section by itself. Depends on the plan alone.
        """
        return None

    def emit_together(self, contents: Sequence[bytes], file: PlannedFile, fields: Fields) -> Emitted | None:
        """Return the rows of sections with the same `common`, given as their bytes, in order: exactly those that
        `emit` yields of one after the other. None if some record does not parse: then `emit` reads each. `file` is one
        of theirs.
        """
        return None

    @abstractmethod
    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        """Return the place of row `number` (from 0) that `emit` yields of this section; if it has fewer rows, their
        number.
        """

    def warm_up(self) -> None:  # noqa: B027 - few formats load anything
        """Import what `emit` needs, so that the first batch does not wait for it."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.layout() == other.layout()

    def __hash__(self) -> int:
        return hash((type(self), json.dumps(self.layout(), sort_keys=True)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.layout().items())})"


def byte_sections(start: int, end: int, part_bytes: int) -> list[Section]:
    """Return the sections of the bytes from `start` to `end`, each of `part_bytes`, the last one smaller."""
    edges = [*range(start, max(end, start + 1), part_bytes), end]
    return list(itertools.starmap(Section, itertools.pairwise(edges)))
