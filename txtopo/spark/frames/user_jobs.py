"""Determines whether a call ran a Spark job. Its jobs are identified by a tag, because other threads run jobs at the
same time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

HEARD_S_MAX = 10
"""Seconds to wait for Spark, which reports its jobs a little later."""
_NUMBERS = itertools.count(1)


class NotToldError(Exception):
    """Spark was too busy to report whose its jobs are."""


class UserJobs:
    """The jobs of one body of `own_jobs`; can be asked when the body has ended."""

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._tag = tag
        self._before = self._started()

    def any_in_process(self) -> bool:
        """True if there was any job, of any caller."""
        return self._started() != self._before

    def any(self) -> bool:
        """True if there was one of this thread. Raises NotToldError."""
        if not self.any_in_process():
            return False
        # The tracker knows a job when its queue has processed the event, which happens later.
        try:
            self._context.listenerBus().waitUntilEmpty(HEARD_S_MAX * 1000)
        except Py4JError as error:
            raise NotToldError("Spark did not report in time whether a bolt ran a job while it was called") from error
        return bool(list(self._context.statusTracker().getJobIdsForTag(self._tag)))

    def _started(self) -> int:
        # Jobs of the whole process, counted when they start.
        return int(self._context.dagScheduler().numTotalJobs())


@contextlib.contextmanager
def own_jobs(spark: SparkSession) -> Iterator[UserJobs]:
    """Yield the jobs that this thread, or a thread that inherits from it, starts in the body."""
    tag = f"txtopo-own-{next(_NUMBERS)}"
    spark.sparkContext.addJobTag(tag)
    try:
        yield UserJobs(spark, tag)
    finally:
        with contextlib.suppress(Py4JError, OSError):
            spark.sparkContext.removeJobTag(tag)
