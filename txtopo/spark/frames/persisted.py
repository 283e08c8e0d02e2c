"""Unpersists what bolts persist: its rows belong to one batch, and only this code knows when nothing reads them any
more.

A bolt may `persist()` or `cache()` what it reads several times. Spark keeps that until someone calls `unpersist()`,
which the bolt cannot do: it returns before any job runs. So everything persisted downstream of a bolt's inputs is
removed when the jobs of the plan have ended. Spark finds it by the plan, which is why each plan has separate leaves
(`Emitter.plan`): otherwise Spark would answer the next batch with the rows of this one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)


def let_go(given: Iterable[DataFrame]) -> None:
    """Unpersist these DataFrames and everything that was made from them. Costs one or two calls if nothing is
    persisted.
    """
    try:
        for frame in given:
            session: Any = frame.sparkSession._jsparkSession
            cache = session.sharedState().cacheManager()
            if cache.isEmpty():
                return
            cache.uncacheQuery(session, frame._jdf.queryExecution().analyzed(), True, False)
    except Exception as error:  # If the session ends meanwhile, PySpark may raise anything, and keeps nothing.
        _LOG.info("what bolts persisted was not let go of: %s", error)


@contextlib.contextmanager
def let_go_on_error(given: Iterable[DataFrame]) -> Iterator[None]:
    """As `let_go`, but only if the body raises: then there will be no plan to run."""
    try:
        yield
    except BaseException:
        let_go(given)
        raise
