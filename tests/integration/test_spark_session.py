"""The session: quiet, with the settings that results depend on, reached by no Ctrl-C, gone when it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.list_spout import list_topology
from txtopo.errors import ConfigurationError
from txtopo.local.java import java_environment
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.session.class_archive import usable_archive
from txtopo.spark.session.ship_modules import PACKAGE
from txtopo.spark.session.spark_session import (
    SessionOptions,
    check_settings,
    full_master,
    running_session,
    settings,
    start_session,
)
from txtopo.spark.session.spark_settings import RESULT_SETTINGS

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("master", "full"),
    [
        (None, "local[8,4]"),
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3,2]", "local[3,2]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_task_may_always_be_tried_again(master: str | None, full: str) -> None:
    """Never a bare `local[N]`: a dead Python worker would end the job (K2)."""
    assert full_master(master, cpus=8) == full


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.sql.ansi.enabled": "false"},
        {"spark.sql.session.timeZone": "Europe/Berlin"},
        {"spark.sql.caseSensitive": "true"},
    ],
)
def test_a_setting_that_changes_results_is_refused(conf: Mapping[str, str], tmp_path: Path) -> None:
    options = SessionOptions(app_name="t", log_folder=tmp_path, conf=conf)

    with pytest.raises(ConfigurationError, match="would change results"):
        settings(options)


def test_the_running_session_has_the_settings_that_results_depend_on(spark_session: SparkSession) -> None:
    """Start-up asserts them (R12, K3): here each is seen in the session itself."""
    check_settings(spark_session)

    for name, value in RESULT_SETTINGS.items():
        assert (spark_session.conf.get(name) or "").lower() == value.lower()
    conf = spark_session.sparkContext.getConf()
    expected = {
        "spark.task.reaper.enabled": "true",
        "spark.driver.maxResultSize": "256m",
        "spark.scheduler.mode": "FIFO",
        "spark.sql.adaptive.enabled": "false",
        "spark.master": "local[2,4]",
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    assert {name: conf.get(name) for name in expected} == expected
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_workers_need_not_look_through_all_modules_for_garbage(spark_session: SparkSession) -> None:
    """A worker collects garbage after each task; what was imported before it was forked is left out of that."""

    def frozen(batches: Any) -> Any:
        import gc

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "known": [len(gc.get_objects())]})

    (found,) = spark_session.range(0, 1, 1, 1).mapInArrow(frozen, "frozen long, known long").collect()

    assert found["frozen"] > found["known"] > 0, "most of what a worker knows was there before it"


@pytest.mark.parametrize("name", sorted(RESULT_SETTINGS))
def test_a_session_with_another_such_setting_is_refused(spark_session: SparkSession, name: str) -> None:
    before = spark_session.conf.get(name)
    other = {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.maxPlanStringLength": "1000",
    }
    spark_session.conf.set(name, other.get(name, "false" if before == "true" else "true"))
    try:
        with pytest.raises(ConfigurationError, match=name):
            check_settings(spark_session)
    finally:
        spark_session.conf.set(name, str(before))


def test_a_setting_that_nobody_has_set_is_as_results_need_it(spark_session: SparkSession) -> None:
    """Spark tells its own value in other letters than those that txtopo sets."""
    name = "spark.sql.maxPlanStringLength"
    before = spark_session.conf.get(name)
    spark_session.conf.unset(name)
    try:
        check_settings(spark_session)
    finally:
        spark_session.conf.set(name, str(before))


@pytest.mark.parametrize("kind", ["lacks a module", "is not there"])
def test_workers_of_another_python_are_refused_at_the_start(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As in a script with a session of its own and no PYSPARK_PYTHON: the first bolt would be blamed, and each batch
    left out in its turn.
    """
    python, hiding = tmp_path / "python", tmp_path / "hiding" / "pyarrow"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\")")
    if kind == "lacks a module":
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{hiding.parent}:$PYTHONPATH" exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    context: Any = spark_session.sparkContext
    monkeypatch.setattr(context, "pythonExec", str(python))
    monkeypatch.setitem(context.environment, "PYTHONPATH", str(ROOT))

    with pytest.raises(
        ConfigurationError, match=r"the Python of Spark's workers .*set PYSPARK_PYTHON to one that has"
    ) as caught:
        SparkExecutor(list_topology(lambda frame: frame.repartition(2)), b"code", session=spark_session).start()

    assert ("No module named 'pyarrow'" if kind == "lacks a module" else str(python)) in str(caught.value)


def test_a_session_is_found_from_any_thread(spark_session: SparkSession) -> None:
    """A script may have made it in one thread and run topologies in others."""
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(running_session).result()

    assert found is not None and found.sparkContext is spark_session.sparkContext


def test_a_second_session_in_one_process_is_refused(spark_session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has a Spark session already"):
        start_session(SessionOptions(app_name="t", log_folder=tmp_path))


JOB = """
    import os, signal, sys
    from pathlib import Path
    from pyspark import SparkContext
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session.spark_session import SessionOptions
    from txtopo.local.java import java_environment
    from tests.kit.list_spout import assignment, list_topology, row

    def clean(name: str) -> str:
        if name == "bad":
            raise ValueError("no such name")
        return name

    def bolt(frame):
        from pyspark.sql import functions as F
        return frame.withColumn("name", F.udf(clean)("name"))

    if __name__ == "__main__":
        os.environ.update(java_environment())
        conf = {"spark.driver.maxResultSize": "1m"}
        options = SessionOptions(app_name="quiet", log_folder=Path(sys.argv[1]), master="local[2]", conf=conf)
        executor = SparkExecutor(list_topology(bolt), b"code", options=options)
        executor.start()
        first = executor.process([assignment(1, [row("a")])])[0]
        second = executor.process([assignment(2, [row("bad")])])[0]
        for misspelt in (lambda: executor.spark.range(1).select("nope"), lambda: executor.spark.sql("select nope")):
            try:
                misspelt()
            except Exception as error:
                assert "UNRESOLVED_COLUMN" in str(error)
        print(first.read, second.failure.kind, *os.listdir(os.environ["TMPDIR"]), flush=True)
        input()
        third = executor.process([assignment(3, [row("a")])])[0]
        print("after ctrl-c", third.read, flush=True)
        large = executor.process([assignment(4, [row(f"{at}" + "x" * 200) for at in range(10000)])])[0].failure
        print(large.kind, large.message.partition(" (")[0], large.message.partition(" (")[2][:2], flush=True)
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        for _ in range(2):
            failure = executor.process([assignment(5, [row("a")])])[0].failure
            print(failure.kind, failure.message, executor.broken == failure.message, flush=True)
        executor.cancel(assignment(5, []).attempt)
        executor.close()
        executor.close()
        print("closed", flush=True)
"""


def test_ctrl_c_a_dead_jvm_and_results_too_large_are_outcomes_without_one_line_of_sparks(tmp_path: Path) -> None:
    """One driver's life. It prints nothing that is not ours, neither at start-up nor when a query is wrong or a job
    fails: all of it is in the log file.

    A Ctrl-C at the terminal reaches the driver only, not the JVM and its Python workers. `process` never raises:
    results beyond `spark.driver.maxResultSize` name their size; without its JVM the executor says it is broken (K11).
    Nothing is left of it, and a second `close` is none too many.
    """
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # a path short enough for sockets
    path, logs = tmp_path / "job.py", tmp_path / "logs"
    path.write_text(textwrap.dedent(JOB))
    archive = usable_archive({}, {**os.environ, **java_environment()})
    driver = subprocess.Popen(
        ["setsid", "--wait", "sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, str(path), str(logs)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None and driver.stdout is not None
    words, _, sockets = driver.stdout.readline().strip().rpartition(" ")
    assert (words, sockets.startswith("txtopo-")) == ("1 data", True)
    group = _group_of(str(path))
    jvm = min(pid for pid in _processes(str(logs)) if os.getpgid(pid) != group)
    if archive is not None:  # Another worker may be writing it.
        assert str(archive) in Path(f"/proc/{jvm}/maps").read_text(), "its classes are Spark's"

    os.killpg(group, signal.SIGINT)
    output, errors = driver.communicate("\n", timeout=120)

    after_ctrl_c, large, *gone, closed = output.splitlines()
    assert (after_ctrl_c, closed, errors, driver.returncode) == ("after ctrl-c 1", "closed", "", 0)
    assert large.startswith("data results exceed 1024.0 KiB")
    assert gone == ["infrastructure the Spark driver JVM has ended True"] * 2
    assert "no such name" in (logs / "spark.log").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.py", "logs"], (
        "nothing is left in the working folder"
    )
    assert list(temporary.iterdir()) == [], "nor among temporary files"
    temporary.rmdir()
    assert _processes(str(logs)) == []


def _processes(words: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if words in command:
                found.append(int(entry.name))
    return found


def _group_of(words: str) -> int:
    groups = {os.getpgid(pid) for pid in _processes(words)} - {os.getpgid(0)}
    assert len(groups) == 1, groups
    return groups.pop()


def test_the_package_is_found_where_the_tests_run() -> None:
    assert PACKAGE.name == "txtopo" and (PACKAGE / "errors.py").exists()
