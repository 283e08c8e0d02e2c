"""Fixtures of Spark: one quiet local session for all tests of a run, and topologies that read small in-memory parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.executor_contract import CODE_HASH
from txtopo.local.java import java_environment
from txtopo.topology.components import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.frames.frame_jobs import FrameJobs


def frame_jobs(executor: Any) -> FrameJobs:
    """The jobs of a started SparkExecutor whose topology has DataFrames alone."""
    from txtopo.spark.frames.frame_jobs import FrameJobs

    assert isinstance(executor._jobs, FrameJobs)
    return executor._jobs


@contextmanager
def executors_on(spark: SparkSession, code_hash: bytes = CODE_HASH) -> Iterator[Callable[[Topology], SparkExecutor]]:
    """Makes started executors on a session, closed at the end."""
    from txtopo.spark.executor import SparkExecutor

    made: list[SparkExecutor] = []

    def make(topology: Topology) -> SparkExecutor:
        made.append(SparkExecutor(topology, code_hash, session=spark))
        made[-1].start()
        return made[-1]

    yield make
    for executor in made:
        executor.close()


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one local session of a test run: two cores, four tries a task, as `run` starts it."""
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

    os.environ.update(java_environment())
    spark = start_session(
        SessionOptions(app_name="tests", log_folder=tmp_path_factory.mktemp("spark"), master="local[2]")
    )
    with pytest.MonkeyPatch.context() as patch:
        # Plans run over nothing once, so that what they need is looked for; hundreds of executors need no warm workers.
        patch.setattr("txtopo.spark.executor.WARM_UP_JOBS_MAX", 1)
        yield spark
    stop_session()
