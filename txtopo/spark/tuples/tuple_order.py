"""The order of a job of tuple tasks: all runs of its wave, with what their spouts emit, as JSON that is sent to every
task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core.plan import Metadata
from txtopo.core.values import TransactionAttempt
from txtopo.tuples.message import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """One run of the wave."""

    spec: RunSpec
    metadata: Mapping[str, Metadata | None]
    """By spout; None if it is idle in this batch."""
    parts: Mapping[str, Sequence[Mapping[str, Any]]]
    """Parts by spout; none if it is idle: its one task then has nothing to emit, but reports all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTask:
    """Address of one source task in one run."""

    run: int
    name: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleOrder:
    """All runs of a job."""

    runs: tuple[Ordered, ...]

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        """Return what the runtime needs to know about each run."""
        return tuple(run.spec for run in self.runs)

    def source_tasks(self, names: Sequence[str]) -> list[SourceTask]:
        """Return the tasks of these sources in all runs, in a fixed order: the rows that Spark distributes over its
        tasks.
        """
        return [
            SourceTask(run=at, name=name, index=index)
            for at, run in enumerate(self.runs)
            for name in names
            for index in range(run.spec.sources[name])
        ]

    def text(self) -> str:
        """Return the order as JSON."""
        return json.dumps({"runs": [_run_json(run) for run in self.runs]}, separators=(",", ":"))


def parse_order(text: str) -> TupleOrder:
    """Return the order in such a JSON text."""
    return TupleOrder(runs=tuple(_run(found) for found in json.loads(text)["runs"]))


def _run_json(run: Ordered) -> dict[str, Any]:
    spec = run.spec
    return {
        "run": spec.run,
        "attempt": [spec.attempt.txid, spec.attempt.attempt],
        "sources": dict(spec.sources),
        "traced": spec.traced,
        "excluded": {
            spout: {str(part): sorted(numbers) for part, numbers in parts.items()}
            for spout, parts in spec.excluded.items()
        },
        "metadata": dict(run.metadata),
        "parts": {name: list(parts) for name, parts in run.parts.items()},
    }


def _run(found: Mapping[str, Any]) -> Ordered:
    return Ordered(
        spec=RunSpec(
            run=found["run"],
            attempt=TransactionAttempt(*found["attempt"]),
            sources=found["sources"],
            traced=found["traced"],
            excluded={
                spout: {int(part): frozenset(numbers) for part, numbers in parts.items()}
                for spout, parts in found["excluded"].items()
            },
        ),
        metadata=found["metadata"],
        parts=found["parts"],
    )
