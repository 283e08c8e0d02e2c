"""Reads the stored rejected records of a file together with the records that the audit reads there, and judges each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from txtopo.audit.readers.reader import Read
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.positions import Unit, told_position

TOLD_MAX = 5
"""Number of remarks of a batch that are reported; the rest is counted."""
_END = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReject:
    """A rejected record as stored."""

    line: int
    reason: str
    raw: bytes
    raw_bytes: int
    unit: Unit = "line"
    """What `line` counts."""


@dataclass(slots=True)
class Remarks:
    """The first few remarks, and how many there were."""

    number: int = 0
    _first: list[str] = field(default_factory=list)

    def add(self, remark: str) -> None:
        """Add a remark."""
        self.number += 1
        if len(self._first) < TOLD_MAX:
            self._first.append(remark)

    @property
    def lines(self) -> Sequence[str]:
        """Return the remarks, to be reported one by one."""
        more = self.number - len(self._first)
        return [*self._first, f"{more} more records like these"] if more else self._first


@dataclass(slots=True)
class Judged:
    """The result for a batch."""

    compared: int = 0
    rejected: int = 0
    """Records that the audit rejects too; if it cannot judge, the stored record decides."""
    wrong: Remarks = field(default_factory=Remarks)
    unsure: Remarks = field(default_factory=Remarks)


class Kept:
    """The stored rejected records of one file."""

    def __init__(self, path: str, rows: Iterator[KeptReject], judged: Judged, unit: Unit = "line") -> None:
        """Create it. `rows` are in the order of their lines; `unit` is what the reader counts."""
        self._unit = unit
        self._path = path
        self._rows = rows
        self._judged = judged
        self._next: KeptReject | None = None
        self.number = 0
        """Number of the next one; larger than every number if there is none."""
        self._advance()

    def place_of(self, number: int) -> str:
        """Return the place of a record as text."""
        return told_position(self._path, number, self._unit)

    def judge(self, read: Read) -> bool:
        """Judge one record. Returns True if its values count."""
        self._pass_over(read.number)
        kept = self._next if self.number == read.number else None
        judged, where, reason = self._judged, told_position(self._path, read.number, self._unit), read.reason
        if kept is None and reason is None:
            return True
        doubtful = read.is_doubtful()
        judged.compared += 1
        judged.rejected += reason is not None if not doubtful else kept is not None
        if kept is None:
            (judged.unsure if doubtful else judged.wrong).add(
                f"{where} does not parse ({reason}), but is not among the rejected records"
            )
            return False
        self._advance()
        raw = read.raw
        if kept.unit != self._unit:
            judged.wrong.add(f"{where}: the rejected record that was kept counts in {kept.unit}s")
        if (kept.raw, kept.raw_bytes) != (raw[:REJECTED_RAW_BYTES_MAX], len(raw)):
            judged.wrong.add(f"{where}: the rejected record that was kept is not the one in the source")
        if reason is None:
            (judged.unsure if doubtful else judged.wrong).add(
                f"{where} was rejected ({kept.reason}), but nothing is wrong with it"
            )
        return False

    def end(self) -> None:
        """Check what follows the last record."""
        self._pass_over(_END)

    def _pass_over(self, number: int) -> None:
        while self.number < number:
            self._judged.compared += 1
            where = told_position(self._path, self.number, self._unit)
            self._judged.wrong.add(f"{where}: a rejected record was kept, but no record starts there")
            self._advance()

    def _advance(self) -> None:
        self._next = next(self._rows, None)
        self.number = _END if self._next is None else self._next.line
