"""What tasks report about the parts they read and the tuples they passed on, kept by key so that a rerun changes
nothing (docs/protocol.md, K4: accumulators that count retried tasks twice).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.accumulators import AccumulatorParam

from txtopo.core.values import Failure, RejectedRow
from txtopo.spark.signatures import Signature, Signatures
from txtopo.tuples.message import TaskReport


class Keyed(Protocol):
    """Anything that can be reported: who reports it, and what must be the same each time."""

    @property
    def run(self) -> str:
        """The run it belongs to; reports of other runs, for example of zombie tasks (K1), are dropped."""

    @property
    def key(self) -> Hashable:
        """Who reports it within the run."""

    @property
    def content(self) -> object:
        """What a rerun must repeat: everything except where it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One part of one run, reported by the task that emitted it."""

    run: str
    """The call of `process` it belongs to; reports of others, for example of zombie tasks (K1), are dropped."""
    spout: str
    part: int
    """Index in `Spout.parts`."""
    read: int
    rejects: tuple[RejectedRow, ...]
    """With the spout's name, in source order."""
    failure: Failure | None
    """Why the emitter stopped early. It is no failure of the Spark task, which Spark would try four times."""
    code_hash: bytes
    version: str
    """Fingerprint of the task's txtopo sources."""
    host: str

    @property
    def key(self) -> tuple[str, int]:
        return self.spout, self.part

    @property
    def rejected(self) -> int:
        """Number of records read that do not match the declared schema."""
        return len(self.rejects)

    @property
    def emitted(self) -> int:
        """Number of tuples that the spout emitted."""
        return self.read - self.rejected

    @property
    def content(self) -> tuple[object, ...]:
        """What a rerun must repeat: everything except where it ran."""
        return self.read, self.rejects, self.failure, self.code_hash, self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleReport:
    """One tuple task of one run, reported by the task, and where it ran."""

    task: TaskReport
    graph: str
    """The graph of the topology that contains the task; a component may be in several."""
    code_hash: bytes
    version: str
    """Fingerprint of the task's txtopo sources."""
    host: str

    @property
    def run(self) -> str:
        return self.task.run

    @property
    def key(self) -> tuple[str, str, int]:
        return self.graph, self.task.component, self.task.index

    @property
    def content(self) -> tuple[object, ...]:
        """What a rerun must repeat: everything except where it ran."""
        return self.task, self.code_hash, self.version


class Reports:
    """The driver's end of the accumulator: reports of open runs, each counted once. Thread-safe."""

    def __init__(self) -> None:
        self.signatures = Signatures()
        """Signatures of tasks arrive on the same way."""
        self._lock = threading.Lock()
        self._open: dict[str, dict[Any, list[Any]]] = {}
        self._received: dict[str, int] = {}

    def open(self, run: str) -> None:
        """Begin to keep the reports of a run."""
        with self._lock:
            self._open[run] = {}
            self._received[run] = 0
        self.signatures.open(run)

    def receive(self, reports: Sequence[Keyed | Signature]) -> None:
        """Keep reports of open runs: a report equal to an earlier one with its key is dropped, a different one is kept
        in addition.
        """
        for signature in reports:
            if isinstance(signature, Signature):
                self.signatures.receive(signature)
        with self._lock:
            for report in reports:
                if isinstance(report, Signature):
                    continue
                found = self._open.get(report.run)
                if found is None:
                    continue
                self._received[report.run] += 1
                known = found.setdefault(report.key, [])
                if all(report.content != other.content for other in known):
                    known.append(report)

    def received(self, run: str) -> int:
        """Return the number of reports of an open run, including repeated ones; 0 for other runs."""
        with self._lock:
            return self._received.get(run, 0)

    def so_far(self, run: str) -> dict[Any, list[Any]]:
        """Return the reports of an open run until now; it stays open."""
        with self._lock:
            return {key: list(found) for key, found in self._open.get(run, {}).items()}

    def take(self, run: str) -> dict[Any, list[Any]]:
        """Close a run and return its reports by key; more than one with a key is a conflict. The reports are forgotten
        here.
        """
        self.signatures.forget(run)
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
