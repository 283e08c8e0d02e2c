"""What tasks report about the parts they read, kept by key so that a rerun changes nothing (docs/protocol.md, K4)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.accumulators import AccumulatorParam

from txtopo.core.values import Failure, RejectedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One part of one run, as the task that emitted it saw it."""

    run: str
    """Which call of `process` this belongs to; reports of others, e.g. of zombie tasks (K1), are dropped."""
    spout: str
    part: int
    """Index in `Spout.parts`."""
    read: int
    rejects: tuple[RejectedRow, ...]
    """With the spout's name, in source order."""
    failure: Failure | None
    """Why the emitter stopped early; not a task failure, which Spark would try four times."""
    code_hash: bytes
    version: str
    """Fingerprint of the task's txtopo sources."""
    host: str

    @property
    def key(self) -> tuple[str, int]:
        return self.spout, self.part

    @property
    def rejected(self) -> int:
        """How many of the records read do not parse under the declared schema."""
        return len(self.rejects)

    @property
    def emitted(self) -> int:
        """Tuples that left the spout."""
        return self.read - self.rejected

    @property
    def content(self) -> tuple[object, ...]:
        """What a rerun must repeat: everything but where it ran."""
        return self.read, self.rejects, self.failure, self.code_hash, self.version


class Reports:
    """The driver's end of the accumulator: reports of the runs that are open, each once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, dict[tuple[str, int], list[Report]]] = {}
        self._received: dict[str, int] = {}

    def open(self, run: str) -> None:
        """Begin to keep the reports of a run."""
        with self._lock:
            self._open[run] = {}
            self._received[run] = 0

    def receive(self, reports: Sequence[Report]) -> None:
        """Keep reports of open runs: one that says the same as an earlier one of its part is dropped, another is kept beside it."""
        with self._lock:
            for report in reports:
                parts = self._open.get(report.run)
                if parts is None:
                    continue
                self._received[report.run] += 1
                known = parts.setdefault(report.key, [])
                if all(report.content != other.content for other in known):
                    known.append(report)

    def received(self, run: str) -> int:
        """How many reports of an open run came in, repeated ones included; 0 for others."""
        with self._lock:
            return self._received.get(run, 0)

    def so_far(self, run: str) -> dict[tuple[str, int], list[Report]]:
        """The reports of an open run until now; it stays open."""
        with self._lock:
            return {key: list(found) for key, found in self._open.get(run, {}).items()}

    def take(self, run: str) -> dict[tuple[str, int], list[Report]]:
        """Close a run and return its reports by (spout, part); more than one for a part is a conflict. Nothing is kept."""
        with self._lock:
            self._received.pop(run, None)
            return self._open.pop(run, {})

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)


class ReportsParam(AccumulatorParam[Any]):
    """Merge by key: a list in a task, `Reports` in the driver."""

    def zero(self, value: Any) -> Any:
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 - Spark's name
        if isinstance(value1, Reports):
            value1.receive(value2)
        else:
            value1.extend(value2)
        return value1
