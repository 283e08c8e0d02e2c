"""A cluster of two hosts, both on loopback, so that Spark runs a speculative copy of a task beside the slow one: it
never does on one host.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from txtopo.local.java import java_environment

ROOT = Path(__file__).resolve().parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DRIVER = """
    import os, sys
    from pathlib import Path
    from txtopo.core.values import Processed
    from txtopo.local.java import java_environment
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session
    from tests.kit.fix_spark import assignment, list_topology, row
    from tests.kit.tuple_runs import run_tuples
    from tests.kit.tuple_topologies import diamond

    CONF = {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.speculation.quantile": "0.1",
    }

    def frames(spark, folder):
        executor = SparkExecutor(list_topology(lambda frame: frame), b"code", session=spark)
        executor.start()
        outcome = executor.process([assignment(1, [row("a")] * 3, [f"twin {folder}", row("b"), row("a")], [row("c")])])[0]
        assert isinstance(outcome, Processed), outcome
        rows = outcome.results[0].rows.to_pydict()
        print("frames", outcome.read, outcome.results[0].arrived, rows["name"], rows["n"], flush=True)
        print(tries(folder), flush=True)

    def tuples(spark, folder):
        executor = SparkExecutor(diamond(), b"code", session=spark)
        executor.start()
        words = [[f"a b w{at % 4}", at] for at in range(10)]
        parts = [[*words, [f"twin:{folder}", 1]], words, words[:5]]
        outcome = executor.process([assignment(3, *parts, attempt=1)])[0]
        assert isinstance(outcome, Processed), outcome
        print("tuples", outcome.read, tries(folder), flush=True)
        expected = run_tuples(diamond(), {"source": parts})
        for item in outcome.results:
            assert [tuple(row.values()) for row in item.rows.to_pylist()] == expected.rows(item.committer), item
            assert item.arrived == expected.results[item.committer].arrived, item
        assert {edge.edge: (edge.sent, edge.received) for edge in outcome.edges} == expected.edges

    def tries(folder):
        return sorted(path.name for path in folder.iterdir())

    def main(master, folder):
        os.environ.update(java_environment())
        spark = start_session(SessionOptions(app_name="hosts", log_folder=folder / "logs", master=master, conf=CONF))
        try:
            for case in (frames, tuples):
                here = folder / case.__name__
                here.mkdir()
                case(spark, here)
        finally:
            stop_session()

    main(sys.argv[1], Path(sys.argv[2]))
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.spark
def test_a_speculative_copy_beside_a_slow_task_changes_no_count(tmp_path: Path) -> None:
    """A slow task and its speculative copy both read their whole part: no number in the ledger may be inflated by it
    (K2, K3, K4).

    The task goes on only once both run, so that neither is a try after a failure.
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(DRIVER))

    with _cluster(tmp_path) as master:
        done = subprocess.run(
            [sys.executable, str(tmp_path / "driver.py"), master, str(tmp_path)],
            cwd=tmp_path,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "frames 6 6 ['a', 'b', 'c'] [4, 1, 1]",
        "['try-0', 'try-1']",
        "tuples 26 ['try-0', 'try-1']",
    ]


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """A master, and two workers with a core each at two addresses of loopback; gives the master's URL."""
    with ExitStack() as stack:
        master = stack.enter_context(
            _daemon(folder / "master.log", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        )
        url = _wait_for(folder / "master.log", r"Starting Spark master at (spark://\S+)", master)
        for host in ("127.0.0.1", "127.0.0.2"):
            log = folder / f"worker_{host}.log"
            own = (
                "--host",
                host,
                "--cores",
                "1",
                "--memory",
                "600m",
                "--work-dir",
                str(folder / host),
                "--webui-port",
                "0",
            )
            worker = stack.enter_context(_daemon(log, "worker.Worker", *own, url))
            _wait_for(log, r"(Successfully registered with master)", worker)
        yield url


@contextmanager
def _daemon(log: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments],
            env={**_environment(), "SPARK_DAEMON_MEMORY": "256m"},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield daemon
    finally:
        daemon.terminate()
        daemon.wait(30)


def _environment() -> dict[str, str]:
    return {**os.environ, **java_environment(), "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}


def _wait_for(log: Path, words: str, daemon: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 60
    while (found := re.search(words, log.read_text(errors="replace"))) is None:
        assert daemon.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.05)
    return found[1]
