"""Word count by one kind of bolt next to its bare program, in turns, in one process: one batch, from its plan to its
result rows in the driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from benchmarks import words
from benchmarks.cases import LOOP, TXTOPO, Job
from benchmarks.meter import Meter
from txtopo.core.values import TransactionAttempt
from txtopo.local.java import java_environment
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

NAMES = {"words-dataframe": "DataFrame bolts", "words-arrow": "Arrow bolts", "words-tuple": "tuple bolts"}
"""Names in `words.CASES`: counting is on, as by default."""
TURNS = 2
"""Of each pass, the better counts: a batch takes seconds, and anything else on the machine shows."""


def passes(job: Job) -> Iterator[dict[str, Any]]:
    """Yield two rows of each pass, that of txtopo and that of the bare program."""
    case = next(case for case in words.CASES if case.name == NAMES[job.case])
    os.environ.update(java_environment())
    files, count = words.write_texts(job.folder, job.words)
    spark = start_session(SessionOptions(app_name="bench", log_folder=job.folder))
    try:
        executor = SparkExecutor(words.topology_of(case, files), b"bench", session=spark, ackers=words.ACKERS)
        executor.start()
        for number in range(1, job.passes + 1):
            meter = Meter(job, number)
            turns = [
                words.timed(spark, case, executor, TransactionAttempt(1, number * TURNS + turn), files)
                for turn in range(TURNS)
            ]
            for what, peer in (("txtopo", TXTOPO), ("bare", LOOP)):
                best = min(turn[what] for turn in turns)
                row = meter.row(rows=count, batches=1, wall_s=best, peer=peer)
                # Both ran between the two readings: they say nothing about either.
                for shared in ("cpu_s_per_million_rows", "wal_bytes_per_batch", "zookeeper_proposals_per_batch"):
                    del row[shared]
                yield row
        executor.close()
    finally:
        stop_session()
