"""txtopo over the files: passes of one process, each a new topology on the same Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cases import Job, case_of
from benchmarks.inputs import read_inputs
from benchmarks.led import check_run, hash_of, lead, settings_of, topology_of
from benchmarks.meter import Meter
from txtopo.app import spark_executor
from txtopo.ports import Executor


def passes(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the row of each pass. The first executor starts Spark, as in `txtopo run`; the others share its session."""
    case = case_of(job.case)
    folder = read_inputs(Path(job.inputs))[case.folder]
    batches = -(-folder.files // case.files_per_batch)
    settings = settings_of(job)
    executors: list[Executor] = []
    try:
        for number in range(1, job.passes + 1):
            name = f"{case.name.replace('-', '_')}_{number}"
            topology = topology_of(name, folder.path, case.files_per_batch)
            executors.append(spark_executor(topology, hash_of(topology, settings), settings))
            executors[-1].start()
            meter = Meter(job, number)
            led = lead(topology, settings, executors[-1])
            row = meter.row(rows=folder.rows, batches=batches, wall_s=led.wall_s)
            check_run(job, name, led, batches, folder.counts)
            yield row
    finally:
        for executor in reversed(executors):
            executor.close()
