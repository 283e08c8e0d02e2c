"""Large results of the executor without Spark: stored as tasks on Spark would store them (R10)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from txtopo.core.crash_points import CrashPoint, reach
from txtopo.core.values import CommitterResult, Outcome, Processed, Staged, StagedPart
from txtopo.ports import Staging
from txtopo.topology.components import Topology

_PARTS = 2
_task_attempts = itertools.count(1)


def staged(staging: Staging | None, topology: Topology, outcome: Outcome) -> Outcome:
    """Return the outcome with the results of counting committers that are too large for the driver in staging tables.
    Raises StoreUnavailable, StagingFailed and Fenced.
    """
    place = None if staging is None else staging.place
    if staging is None or place is None or not isinstance(outcome, Processed):
        return outcome
    can = {item.name: item for item in topology.committers if item.bolt.can_be_staged}
    results: list[CommitterResult] = []
    for result in outcome.results:
        component = can.get(result.committer)
        if component is None or result.row_count <= place.rows_max:
            results.append(result)
            continue
        table = staging.create(outcome.attempt, component)
        parts = tuple(
            StagedPart(part=part, task_attempt=task, rows=table.writer.store(part, task, iter([rows])))
            for part, task, rows in _divided(result)
        )
        reach(CrashPoint.STAGED, outcome.attempt.txid)
        where = Staged(table=table.name, parts=parts)
        results.append(replace(result, rows=result.rows.slice(0, 0), bytes=0, staged=where))
    return replace(outcome, results=tuple(results))


def _divided(result: CommitterResult) -> Iterator[tuple[int, int, object]]:
    size = -(-result.row_count // _PARTS)
    for part in range(_PARTS):
        yield part, next(_task_attempts), result.rows.slice(part * size, size)
