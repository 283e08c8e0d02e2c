"""A batch on the tuple runtime, and what the driver saw of its last run in addition to results and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txtopo.errors import BatchDataError
from txtopo.spark.jobs import BatchWork
from txtopo.tuples.acking import AckOutcome
from txtopo.tuples.message import RunSpec


@dataclass(slots=True, kw_only=True)
class SeenRun:
    """What the driver saw of a run."""

    specs: Mapping[str, RunSpec] = field(default_factory=dict)
    """By graph."""
    acks: AckOutcome | None = None
    error: BatchDataError | None = None
    """Why its messages could not be made into results; mostly a consequence of what tasks reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleWork(BatchWork):
    """A batch, and what the driver saw of its last run."""

    seen: SeenRun = field(default_factory=SeenRun, compare=False)


def seen_of(work: BatchWork) -> SeenRun:
    """What the driver saw of the last run over this batch."""
    return work.seen if isinstance(work, TupleWork) else SeenRun()
