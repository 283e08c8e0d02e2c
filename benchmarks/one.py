"""A separate process for one case and one system: `python -m benchmarks.one JOB`. Writes a line of JSON for each pass
to stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.cases import PATHWAY, PLAIN, STORM, STREAMING, TXTOPO, Job

PROTOCOL = "protocol"
"""A case with different rows: what the protocol costs."""


def passes_of(job: Job) -> Callable[[Job], Iterator[dict[str, Any]]]:
    """Return what measures the system of a job; it is imported only in its own process."""
    if job.case == PROTOCOL:
        from benchmarks import run_protocol

        return run_protocol.passes
    if job.case.startswith("words-"):
        from benchmarks import run_words

        return run_words.passes
    if job.peer == TXTOPO:
        from benchmarks import run_txtopo

        return run_txtopo.passes
    if job.peer in (STREAMING, PLAIN):
        from benchmarks import run_spark

        return run_spark.streaming_passes if job.peer == STREAMING else run_spark.plain_passes
    if job.peer in STORM:
        from benchmarks.peers import run_storm

        return run_storm.passes
    if job.peer == PATHWAY:
        from benchmarks.peers import run_pathway

        return run_pathway.passes
    raise ValueError(f"nothing measures {job.peer}")


def main(text: str) -> None:
    """Measure, and write each pass as soon as it has ended."""
    job = Job(**json.loads(text))
    for row in passes_of(job)(job):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
