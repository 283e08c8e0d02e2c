"""The session: quiet, with the settings that results depend on, reached by no Ctrl-C, gone when it is stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.fix_spark import list_topology
from txtopo.errors import ConfigurationError
from txtopo.spark.executor import SparkExecutor
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
    import os, sys
    from pathlib import Path
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session.spark_session import SessionOptions
    from txtopo.local.java import java_environment
    from tests.kit.fix_spark import assignment, list_topology, row

    def clean(name: str) -> str:
        if name == "bad":
            raise ValueError("no such name")
        return name

    def bolt(frame):
        from pyspark.sql import functions as F
        return frame.withColumn("name", F.udf(clean)("name"))

    if __name__ == "__main__":
        os.environ.update(java_environment())
        options = SessionOptions(app_name="quiet", log_folder=Path(sys.argv[1]), master="local[2]")
        executor = SparkExecutor(list_topology(bolt), b"code", options=options)
        executor.start()
        first = executor.process([assignment(1, [row("a")])])[0]
        second = executor.process([assignment(2, [row("bad")])])[0]
        for misspelt in (lambda: executor.spark.range(1).select("nope"), lambda: executor.spark.sql("select nope")):
            try:
                misspelt()
            except Exception as error:
                assert "UNRESOLVED_COLUMN" in str(error)
        print(first.read, second.failure.kind, flush=True)
        if len(sys.argv) > 2:
            input()
            try:
                third = executor.process([assignment(3, [row("a")])])[0]
                print("after ctrl-c", third.read, flush=True)
            finally:
                executor.close()
        executor.close()
        executor.close()
"""


def _script(folder: Path) -> list[str]:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(JOB))
    return [sys.executable, str(path), str(folder / "logs")]


def test_not_one_line_on_the_console_is_sparks(tmp_path: Path) -> None:
    """A driver prints nothing that is not ours, neither at start-up nor when a query is wrong or a job fails; all of it
    is in the log file.
    """
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # a path short enough for sockets
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}

    done = subprocess.run(
        _script(tmp_path), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert (done.stdout, done.stderr, done.returncode) == ("1 data\n", "", 0)
    assert "no such name" in (tmp_path / "logs" / "spark.log").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.py", "logs"], (
        "nothing is left in the working folder"
    )
    assert list(temporary.iterdir()) == [], "nor among temporary files"
    temporary.rmdir()


def test_ctrl_c_at_the_terminal_reaches_the_driver_only(tmp_path: Path) -> None:
    """The JVM and its Python workers are stopped by us, in order, and not by the terminal's SIGINT; nothing is left
    behind.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    driver = subprocess.Popen(
        ["setsid", "--wait", "sh", "-c", 'trap "" INT; exec "$@"', "sh", *_script(tmp_path), "wait"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None and driver.stdout is not None
    assert driver.stdout.readline() == "1 data\n"
    group = _group_of(str(tmp_path / "job.py"))
    jvms = _processes(str(tmp_path / "logs"))
    assert len(jvms) >= 1

    os.killpg(group, signal.SIGINT)
    output, errors = driver.communicate("\n", timeout=60)

    assert (output, errors) == ("after ctrl-c 1\n", "")
    assert _processes(str(tmp_path / "logs")) == []


GONE = """
    import os, signal, sys
    from pathlib import Path
    from pyspark import SparkContext
    from txtopo.local.java import java_environment
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session.spark_session import SessionOptions
    from tests.kit.fix_spark import assignment, list_topology, row

    os.environ.update(java_environment())
    conf = {"spark.driver.maxResultSize": "1m"}
    options = SessionOptions(app_name="gone", log_folder=Path(sys.argv[1]), master="local[2]", conf=conf)
    executor = SparkExecutor(list_topology(), b"code", options=options)
    executor.start()
    large = executor.process([assignment(1, [row(f"{at}" + "x" * 200) for at in range(10000)])])[0].failure
    print(large.kind, large.message.partition(" (")[0], large.message.partition(" (")[2][:2], flush=True)
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    for _ in range(2):
        failure = executor.process([assignment(2, [row("a")])])[0].failure
        print(failure.kind, failure.message, executor.broken == failure.message, flush=True)
    executor.cancel(assignment(2, []).attempt)
    executor.close()
    print("closed")
"""


def test_results_too_large_and_a_dead_jvm_are_outcomes(tmp_path: Path) -> None:
    """`process` never raises. Results beyond `spark.driver.maxResultSize` name their size; without its JVM the executor
    says it is broken (K11).
    """
    path = tmp_path / "gone.py"
    path.write_text(textwrap.dedent(GONE))
    command = [sys.executable, str(path), str(tmp_path / "logs")]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    lines = done.stdout.splitlines()
    assert lines[0].startswith("data results exceed 1024.0 KiB"), (lines, done.stderr)
    assert lines[1:] == ["infrastructure the Spark driver JVM is gone True"] * 2 + ["closed"], (lines, done.stderr)
    assert (done.returncode, done.stderr) == (0, "")


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from txtopo.local.java import java_environment
    from txtopo.spark.session.spark_session import SessionOptions, start_session

    os.environ.update(java_environment())
    start_session(SessionOptions(app_name="killed", log_folder=Path(sys.argv[1]), master="local[1]"))
    print(*os.listdir(os.environ["TMPDIR"]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_driver_leaves_no_sockets(tmp_path: Path) -> None:
    """Its JVM, which outlives it by a moment, removes their folder."""
    path = tmp_path / "killed.py"
    path.write_text(textwrap.dedent(KILLED))
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}

    done = subprocess.run(
        [sys.executable, str(path), str(tmp_path / "logs")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    folders = [name for name in done.stdout.split() if name.startswith("txtopo-")]
    assert (done.returncode, len(folders)) == (-signal.SIGKILL, 1), done.stderr
    deadline = time.monotonic() + 60
    while (temporary / folders[0]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (temporary / folders[0]).exists()
    shutil.rmtree(temporary)


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
