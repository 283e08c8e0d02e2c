"""The pure pair of a line format: `whole` for lines that are all records, which is fast, and `sift`, which judges each
line. Some formats also have `block`, which is faster than `whole`, since nothing is made of a single line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

CHUNK_LINES = 2048
"""If a block holds a line that does not parse, `whole` is tried with so many lines at a time, and only lines near that
one are sifted.
"""


@dataclass(frozen=True, slots=True)
class Sifted:
    """Lines that were judged one by one."""

    batch: pa.RecordBatch
    """The rows, in order."""
    refused: dict[int, str]
    """Index of a line -> why it is no record of the declared fields, in order."""


class LinePair(ABC):
    """What a line format knows of a line. All methods depend on the lines alone, and keep nothing between two calls.

    The law of the pair: wherever `whole` or `block` answers, `sift` gives the same rows and refuses no line.
    """

    @abstractmethod
    def whole(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        """Return a row for each line; None as soon as anything could be judged otherwise by `sift`. Lines have no line
        end; there is at least one.
        """

    def block(self, data: bytes) -> pa.RecordBatch | None:
        """Return a row for each line of consecutive whole lines with their ends; None as soon as anything could be
        judged otherwise by `sift`, or a line may be skipped, or where nothing is faster than `whole`.
        """
        return None

    @abstractmethod
    def sift(self, lines: Sequence[bytes]) -> Sifted:
        """Return a row or a reason for each line."""

    def is_record(self, line: bytes) -> bool:
        """Return False for a line that is skipped: by default, an empty one."""
        return bool(line)

    def skips_any(self, lines: Sequence[bytes]) -> bool:
        """Return True if one of the lines may be skipped."""
        return not all(lines)


def cut_lines(data: bytes) -> pa.Array | None:
    """Return consecutive whole lines as `binary` without their ends; None if an end may be another one than LF."""
    if b"\r" in data:
        return None
    lines = pc.split_pattern(pa.array([data], pa.binary()), "\n").flatten()
    return lines.slice(0, len(lines) - 1) if data.endswith(b"\n") else lines


def joined(lines: pa.Array) -> bytes:
    """Return lines with line ends between them."""
    together = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    found: bytes = pc.binary_join(together, b"\n")[0].as_py()
    return found


def judged(pair: LinePair, lines: Sequence[bytes]) -> Sifted:
    """Return what `sift` returns for these lines, and use `whole` wherever it answers."""
    if not lines:
        return pair.sift(lines)
    batch = pair.whole(lines)
    if batch is not None:
        return Sifted(batch, {})
    if len(lines) <= CHUNK_LINES:
        return pair.sift(lines)
    batches: list[pa.RecordBatch] = []
    refused: dict[int, str] = {}
    for start in range(0, len(lines), CHUNK_LINES):
        chunk = lines[start : start + CHUNK_LINES]
        batch = pair.whole(chunk)
        if batch is None:
            sifted = pair.sift(chunk)
            batch = sifted.batch
            refused.update((start + number, reason) for number, reason in sifted.refused.items())
        batches.append(batch)
    return Sifted(pa.concat_batches(batches), refused)
