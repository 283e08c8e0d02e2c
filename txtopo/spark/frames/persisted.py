"""Let go of what bolts persist: a batch's rows are its own, and nobody else knows when they are not read any more.

A bolt may `persist()` or `cache()` what it reads several times. Spark keeps that until someone calls `unpersist()`,
which the bolt cannot: it returns before any job runs. So everything persisted on top of what a bolt was given goes once
the jobs of the plan have ended. Spark finds it by the plan, which is why each plan has leaves of its own
(`Emitter.plan`): else the next batch would be answered with the rows of this one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)


def let_go(given: Iterable[DataFrame]) -> None:
    """Unpersist everything that was made of these DataFrames, and they themselves. Costs a call or two where nothing is
    persisted at all.
    """
    try:
        for frame in given:
            session: Any = frame.sparkSession._jsparkSession
            cache = session.sharedState().cacheManager()
            if cache.isEmpty():
                return
            cache.uncacheQuery(session, frame._jdf.queryExecution().analyzed(), True, False)
    except Exception as error:  # of a session that ends meanwhile, PySpark raises what it likes, and it keeps nothing
        _LOG.info("what bolts persisted was not let go of: %s", error)


@contextlib.contextmanager
def let_go_on_error(given: Iterable[DataFrame]) -> Iterator[None]:
    """As `let_go`, only where the body raises: there will be no plan to run."""
    try:
        yield
    except BaseException:
        let_go(given)
        raise
