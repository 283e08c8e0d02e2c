"""Bolts that end their process, never return, fill the memory, or fail on one row: each ends in a failure, and the next
batch works.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.contracts.executor_contract import plan_batches
from tests.kit.drivers import DEADLINE_S, wait_until
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Failed, Failure, Processed, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.session import spark_session as session_module
from txtopo.spark.session.spark_session import SessionOptions, settings
from txtopo.spark.session.spark_settings import WORKER_MEMORY_SETTING, machine_memory_bytes
from txtopo.spouts.file_spout import FileSpout
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Cannot infer the eval type:UserWarning")]
FIELDS = "word string, folder string"


def misbehave(word: str, folder: str) -> str:
    if word == "exit":
        os._exit(1)
    if word == "spin":
        (Path(folder) / f"pid-{os.getpid()}").touch()
        while True:
            pass
    if word == "fill":
        # Not touched, so that the machine of the test has it to spare; the limit counts it all the same.
        kept = [np.empty(2**27) for _ in range(1024)]
        return str(len(kept))
    if word == "raise":
        raise ValueError(f"no such word: {word}")
    return word


def hostile(frame: DataFrame) -> DataFrame:
    return frame.select(F.udf(misbehave, "string")("word", "folder").alias("word"), "folder")


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """Counts words of files, through the bolt."""
    builder = TopologyBuilder("hostile")
    builder.set_spout("files", FileSpout(tmp_path / "in", FIELDS, settled_s=0.0))
    builder.set_bolt("hostile", hostile, inputs="files", fields=FIELDS, rows="same")
    builder.set_committer_bolt("words", CountCommitter("words", ["word"])).fields_grouping("hostile", ["word"])
    return builder.build()


@pytest.fixture
def executor(spark_session: SparkSession, topology: Topology) -> Iterator[SparkExecutor]:
    made = SparkExecutor(topology, b"code", session=spark_session)
    made.start()
    yield made
    made.close()


@pytest.fixture
def batches(topology: Topology, tmp_path: Path) -> Callable[[str], list[Assignment]]:
    """A file with the hostile word on line 4, and a harmless one behind it; a batch each."""

    def make(word: str) -> list[Assignment]:
        (tmp_path / "in").mkdir()
        for name, lines in (("a", ["good", "good", word, "good"]), ("b", ["good"])):
            text = "".join(f"{line},{tmp_path}\n" for line in ["word", *lines]).replace(str(tmp_path), "folder", 1)
            (tmp_path / "in" / f"{name}.csv").write_text(text)
        planned = plan_batches(topology)
        return [Assignment(attempt=TransactionAttempt(at, 0), metadata=found) for at, found in enumerate(planned, 1)]

    return make


def failure(outcomes: Any) -> Failure:
    (outcome,) = outcomes
    assert isinstance(outcome, Failed), outcome
    return outcome.failure


def check_next(executor: SparkExecutor, assignment: Assignment) -> None:
    """The executor goes on working."""
    (outcome,) = executor.process([assignment])
    assert isinstance(outcome, Processed), outcome
    assert outcome.read == 1


def test_a_bolt_that_ends_its_process_is_a_suspect(
    executor: SparkExecutor, batches: Callable[[str], list[Assignment]]
) -> None:
    """Ended without a verdict: it runs alone next time. Spark tries the task four times, then gives up."""
    first, second = batches("exit")

    assert failure(executor.process([first])).kind == "suspect"
    check_next(executor, second)


def test_a_bolt_that_never_returns_is_gone_soon_after_it_is_cancelled(
    executor: SparkExecutor, batches: Callable[[str], list[Assignment]], tmp_path: Path
) -> None:
    """The machine cancels an attempt that shows no progress and calls it a suspect; here its Python worker really ends."""  # noqa: E501
    first, second = batches("spin")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.process, [first])
        wait_until(lambda: any(tmp_path.glob("pid-*")), "the start of the spinning worker")
        before = executor.progress(first.attempt)

        time.sleep(0.5)  # not to wait for anything: to see that nothing moves
        assert executor.progress(first.attempt) == before
        executor.cancel(first.attempt)

        assert failure(running.result(DEADLINE_S)).message == "cancelled"
        check_next(executor, second)
    pids = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
    wait_until(lambda: not any(map(_runs, pids)), "the end of every spinning worker")
    assert len(pids) == 1, "it was not started again"


def test_a_bolt_that_fills_the_memory_is_stopped_by_its_limit(
    executor: SparkExecutor, batches: Callable[[str], list[Assignment]]
) -> None:
    """It ends without the machine swapping: the kernel refuses more than a worker's share, and the failure names bolt,
    line and memory.
    """
    assert executor.spark.sparkContext.getConf().get(WORKER_MEMORY_SETTING), "set by default"
    first, second = batches("fill")

    found = failure(executor.process([first]))

    assert (found.kind, found.component) == ("data", "hostile")
    assert f"{__file__}:" in found.message and "MemoryError" in found.message
    assert f"hostile needs more memory than a Python worker may have ({WORKER_MEMORY_SETTING})" in found.message
    check_next(executor, second)


def test_a_bolt_that_fails_on_one_row_of_one_file_names_it(
    executor: SparkExecutor, batches: Callable[[str], list[Assignment]], tmp_path: Path
) -> None:
    first, second = batches("raise")

    found = failure(executor.process([first]))

    assert (found.kind, found.component) == ("data", "hostile")
    assert found.position == f"{tmp_path / 'in' / 'a.csv'}:4"
    assert "ValueError: no such word: raise; on " in found.message
    assert found.message.endswith(f":4: word='raise', folder={str(tmp_path)!r}")
    assert found.detail is not None and f"record: raise,{tmp_path}" in found.detail
    check_next(executor, second)


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local[4]", {}, "12288m"),
        ("local[64]", {}, "3072m"),
        ("local[4]", {WORKER_MEMORY_SETTING: "0"}, "0"),
        ("local[4]", {"spark.executor.cores": "2"}, None),
        ("local-cluster[2,1,1024]", {}, None),
        ("spark://host:7077", {}, None),
    ],
)
def test_a_worker_on_this_machine_may_have_its_share_unless_the_user_says_otherwise(
    master: str, conf: dict[str, str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three quarters of the machine for the workers of all cores, at least 3 GiB each; on a cluster it is the user's
    alone.
    """
    monkeypatch.setattr(session_module, "machine_memory_bytes", lambda: 64 * 2**30)

    found = settings(SessionOptions(app_name="t", log_folder=tmp_path, master=master, conf=conf))

    assert found.get(WORKER_MEMORY_SETTING) == expected


def test_memory_of_this_machine_is_known() -> None:
    assert 2**28 < machine_memory_bytes() < 2**50


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
