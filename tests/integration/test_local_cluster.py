"""The same topologies on separate executor processes: a module loaded from a file reaches them, and killing one changes
no count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = '''
"""A user's file, in a folder that no executor can import from."""
from pyspark.sql import functions as F

from tests.kit.fix_spark import list_topology

WORDS = {"a": "A", "b": "B"}


def _upper(name):
    return WORDS[name]


def upper(frame):
    return frame.withColumn("name", F.udf(_upper, "string")("name"))


topology = list_topology(upper, rows="same")
'''
DRIVER = """
    import dataclasses, importlib.util, os, signal, sys, threading, time
    from pathlib import Path
    from txtopo.core.values import Processed
    from txtopo.local.java import java_environment
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session.spark_session import SessionOptions
    from tests.kit.fix_spark import assignment, list_topology, row
    from tests.kit.tuple_runs import run_tuples
    from tests.kit.tuple_topologies import diamond

    folder = Path(sys.argv[1])

    def load():
        spec = importlib.util.spec_from_file_location("users_topology", folder / "users_topology.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["users_topology"] = module
        spec.loader.exec_module(module)
        return dataclasses.replace(module.topology, module_file=str(folder / "users_topology.py"))

    def parent(pid):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def kill_executor(folder):
        deadline = time.monotonic() + 60
        while not (pids := list(folder.glob("pid-*"))) and time.monotonic() < deadline:
            time.sleep(0.02)
        pid = int(pids[0].name.partition("-")[2])
        while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
            pid = parent(pid)
        os.kill(pid, signal.SIGKILL)
        print("killed", flush=True)
        (folder / "go").touch()

    def tuples(spark):
        executor = SparkExecutor(diamond(), b"code", session=spark)
        executor.start()
        received, take = [], executor._reports.take
        executor._reports.take = lambda run: received.append(executor._reports.received(run)) or take(run)
        here = folder / "tuples"
        here.mkdir()
        killer = threading.Thread(target=kill_executor, args=(here,))
        killer.start()
        words = [[f"a b w{at % 4}", at] for at in range(10)]
        parts = [[*words, [f"wait:{here}", 1]], words, words[:5]]
        outcome = executor.process([assignment(3, *parts, attempt=1)])[0]
        killer.join()
        assert isinstance(outcome, Processed), outcome
        expected = run_tuples(diamond(), {"source": parts})
        for item in outcome.results:
            assert [tuple(row.values()) for row in item.rows.to_pylist()] == expected.rows(item.committer), item
            assert item.arrived == expected.results[item.committer].arrived, item
        assert {edge.edge: (edge.sent, edge.received) for edge in outcome.edges} == expected.edges
        assert max(received) > len(expected.reports), "no task ran again"
        print("tuples", outcome.read, flush=True)

    def waits(here):
        def wait(batches):
            for batch in batches:
                (here / f"pid-{os.getpid()}").touch()
                deadline = time.monotonic() + 60
                while batch.num_rows and not (here / "go").exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                yield batch
        return lambda frame: frame.repartition(4, "name").mapInArrow(wait, frame.schema)

    def shuffled(spark):
        here = folder / "bolt"
        here.mkdir()
        executor = SparkExecutor(list_topology(waits(here), rows="same"), b"code", session=spark)
        executor.start()
        received, take = [], executor._reports.take
        executor._reports.take = lambda run: received.append(executor._reports.received(run)) or take(run)
        parts = [[row(f"n{at % 7}") for at in range(30)] for _ in range(3)]
        (here / "go").touch()
        assert isinstance(executor.process([assignment(3, *parts)])[0], Processed)
        undisturbed = max(received)
        received.clear()
        for left in here.iterdir():
            left.unlink()
        killer = threading.Thread(target=kill_executor, args=(here,))
        killer.start()
        outcome = executor.process([assignment(4, *parts)])[0]
        killer.join()
        assert isinstance(outcome, Processed), outcome
        assert max(received) > undisturbed, "the stage before the bolt did not run again"
        print("shuffled", outcome.read, outcome.results[0].arrived, outcome.results[0].rows.to_pydict()["n"], flush=True)

    def main():
        os.environ.update(java_environment())
        options = SessionOptions(app_name="cluster", log_folder=folder / "logs", master="local-cluster[2,1,1024]")
        executor = SparkExecutor(load(), b"code", options=options)
        executor.start()
        try:
            if sys.argv[2:] == ["shuffled"]:
                shuffled(executor.spark)
                return
            first = executor.process([assignment(1, [row("a")] * 3, [row("b")] * 2)])[0]
            assert isinstance(first, Processed), first
            print(first.read, first.results[0].rows.to_pydict()["n"], flush=True)
            killer = threading.Thread(target=kill_executor, args=(folder,))
            killer.start()
            second = executor.process([assignment(2, [row("a")] * 300, [f"wait {folder}"] + [row("b")] * 20, [row("a")] * 7)])[0]
            killer.join()
            assert isinstance(second, Processed), second
            rows = second.results[0].rows.to_pydict()
            print(second.read, second.results[0].arrived, rows["name"], rows["n"], [int(x) for x in rows["sum_amount"]], flush=True)
            tuples(executor.spark)
        finally:
            executor.close()

    main()
"""  # noqa: E501


def driven(folder: Path, *arguments: str) -> list[str]:
    """What the driver prints."""
    (folder / "users_topology.py").write_text(TOPOLOGY)
    (folder / "driver.py").write_text(textwrap.dedent(DRIVER))

    done = subprocess.run(
        [sys.executable, str(folder / "driver.py"), str(folder), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.spark
def test_an_executor_killed_in_mid_batch_changes_no_count(tmp_path: Path) -> None:
    """On local-cluster[2,1,1024], an executor killed in mid-batch: slower, not wrong (K2). Functions of the user's file
    reach the executors.

    With tuple bolts the messages that its tasks had written are gone as well: the stage that reads them fails to fetch,
    and the sources run again. Rows in
    their order, counts and edges are those of one run: no number in the ledger may be inflated by a retried stage (K2,
    K3, K4).
    """
    assert driven(tmp_path) == ["5 [3, 2]", "killed", "327 327 ['A', 'B'] [307, 20] [307, 20]", "killed", "tuples 26"]


@pytest.mark.attack
@pytest.mark.slow
@pytest.mark.spark
def test_an_executor_killed_in_a_bolt_that_repartitions_changes_no_count(tmp_path: Path) -> None:
    """The rows that the bolt had shuffled are gone with the executor, and the stage before it runs again."""
    assert driven(tmp_path, "shuffled") == ["killed", "shuffled 90 90 [15, 15, 12, 12, 12, 12, 12]"]
