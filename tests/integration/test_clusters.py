"""The same topologies on separate executor processes of two hosts, both on loopback: a module loaded from a file
reaches them, and neither killing one nor a speculative copy of a task changes a count.
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

from tests.kit.list_spout import list_topology

WORDS = {"a": "A", "b": "B", "c": "C"}


def _upper(name):
    return WORDS[name]


def upper(frame):
    return frame.withColumn("name", F.udf(_upper, "string")("name"))


topology = list_topology(upper, rows="same")
'''
DRIVER = """
    import dataclasses, importlib.util, os, signal, sys, threading, time
    from pathlib import Path
    from pyspark import SparkContext
    from txtopo.core.values import Processed
    from txtopo.local.java import java_environment
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session import spark_session
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session
    from tests.kit.fast_jvm import with_archive
    from tests.kit.list_spout import assignment, list_topology, row
    from tests.kit.tuple_runs import run_tuples
    from tests.kit.tuple_topologies import diamond

    folder = Path(sys.argv[1])
    HOSTS = ("127.0.0.1", "127.0.0.2")
    CONF = {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": with_archive(),
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.speculation.quantile": "0.1",
    }

    def load():
        spec = importlib.util.spec_from_file_location("users_topology", folder / "users_topology.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["users_topology"] = module
        spec.loader.exec_module(module)
        return dataclasses.replace(module.topology, module_file=str(folder / "users_topology.py"))

    def two_hosts():
        # A master, and a worker with a core for each address, inside the driver's JVM: what Spark's own `local-cluster`
        # does on one host, where it never runs a speculative copy.
        deploy, some = SparkContext._jvm.org.apache.spark.deploy, SparkContext._jvm.scala.Option
        conf = SparkContext._jvm.org.apache.spark.SparkConf(False)
        address = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)._1().address()
        urls = SparkContext._gateway.new_array(SparkContext._jvm.java.lang.String, 1)
        urls[0] = f"spark://{address.host()}:{address.port()}"
        for number, host in enumerate(HOSTS):
            own = (host, 0, 0, 1, 600, urls, str(folder / host), some.apply(number), conf, some.empty())
            deploy.worker.Worker.startRpcEnvAndEndpoint(*own)
        return urls[0]

    def session_on(master, conf):
        launch = spark_session.launch_jvm

        def launch_with_hosts(*options, merged):
            launch(*options, merged=merged)
            if master.startswith("spark:"):
                merged["spark.master"] = two_hosts()

        spark_session.launch_jvm = launch_with_hosts
        return start_session(SessionOptions(app_name="hosts", log_folder=folder / "logs", master=master, conf=conf))

    def started(spark, topology):
        executor = SparkExecutor(topology, b"code", session=spark)
        executor.start()
        return executor

    def only(executor, txid, *parts, attempt=0):
        outcome = executor.process([assignment(txid, *parts, attempt=attempt)])[0]
        assert isinstance(outcome, Processed), outcome
        return outcome

    def folder_of(case):
        here = folder / case
        here.mkdir()
        return here

    def tries(here):
        return sorted(path.name for path in here.iterdir())

    def check_like_here(outcome, parts):
        expected = run_tuples(diamond(), {"source": parts})
        for item in outcome.results:
            assert [tuple(row.values()) for row in item.rows.to_pylist()] == expected.rows(item.committer), item
            assert item.arrived == expected.results[item.committer].arrived, item
        assert {edge.edge: (edge.sent, edge.received) for edge in outcome.edges} == expected.edges
        return expected

    def words_and(instruction):
        words = [[f"a b w{at % 4}", at] for at in range(10)]
        return [[*words, [instruction, 1]], words, words[:5]]

    def copied_frames(executor):
        here = folder_of("frames")
        outcome = only(executor, 1, [row("a")] * 3, [f"twin {here}", row("b"), row("a")], [row("c")])
        rows = outcome.results[0].rows.to_pydict()
        print("copied frames", outcome.read, outcome.results[0].arrived, rows["name"], rows["n"], tries(here), flush=True)

    def copied_tuples(executor):
        here = folder_of("tuples")
        parts = words_and(f"twin:{here}")
        outcome = only(executor, 3, *parts, attempt=1)
        check_like_here(outcome, parts)
        print("copied tuples", outcome.read, tries(here), flush=True)

    def kill_executor(here):
        deadline = time.monotonic() + 60
        while not (pids := list(here.glob("pid-*"))) and time.monotonic() < deadline:
            time.sleep(0.02)
        pid = int(pids[0].name.partition("-")[2])
        while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
        (here / "go").touch()

    def while_one_is_killed(here, process):
        killer = threading.Thread(target=kill_executor, args=(here,))
        killer.start()
        outcome = process()
        killer.join()
        assert (here / "go").exists(), "no executor was killed"
        return outcome

    def receiving(executor):
        received, take = [], executor._reports.take
        executor._reports.take = lambda run: received.append(executor._reports.received(run)) or take(run)
        return received

    def killed_frames(executor):
        here = folder_of("killed_frames")
        parts = [row("a")] * 300, [f"wait {here}"] + [row("b")] * 20, [row("a")] * 7
        outcome = while_one_is_killed(here, lambda: only(executor, 2, *parts))
        rows = outcome.results[0].rows.to_pydict()
        print("killed frames", outcome.read, outcome.results[0].arrived, rows["name"], rows["n"], *map(int, rows["sum_amount"]), flush=True)

    def killed_tuples(executor):
        received, here = receiving(executor), folder_of("killed_tuples")
        parts = words_and(f"wait:{here}")
        outcome = while_one_is_killed(here, lambda: only(executor, 4, *parts, attempt=1))
        expected = check_like_here(outcome, parts)
        assert max(received) > len(expected.reports), "no task ran again"
        print("killed tuples", outcome.read, flush=True)

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
        here = folder_of("bolt")
        executor = started(spark, list_topology(waits(here), rows="same"))
        received = receiving(executor)
        parts = [[row(f"n{at % 7}") for at in range(30)] for _ in range(3)]
        (here / "go").touch()
        only(executor, 3, *parts)
        undisturbed = max(received)
        received.clear()
        for left in here.iterdir():
            left.unlink()
        outcome = while_one_is_killed(here, lambda: only(executor, 4, *parts))
        assert max(received) > undisturbed, "the stage before the bolt did not run again"
        print("shuffled", outcome.read, outcome.results[0].arrived, outcome.results[0].rows.to_pydict()["n"], flush=True)

    def copies(spark):
        # Of tasks that Spark started beside others, in all stages that it remembers.
        context = spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        store, none = context.statusStore(), SparkContext._jvm.java.util.ArrayList()
        no_quantiles = SparkContext._gateway.new_array(SparkContext._jvm.double, 0)
        stages = store.stageList(none, False, False, no_quantiles, none)
        found = [store.speculationSummary(stage.stageId(), stage.attemptId()) for stage in
                 (stages.apply(at) for at in range(stages.size()))]
        return sum(one.get().numTasks() for one in found if one.isDefined())

    def everything(spark):
        frames, tuples = started(spark, load()), started(spark, diamond())
        copied_frames(frames)
        copied_tuples(tuples)
        # From here on a task is copied only once all are done: never.
        spark.sparkContext._jsc.sc().conf().set("spark.speculation.quantile", "1.0")
        copied = copies(spark)
        assert copied >= 2, "the frames and the tuples had copies of a task each"
        killed_frames(frames)
        killed_tuples(tuples)
        assert copies(spark) == copied, "a task that was copied does not wait for its dead executor"

    os.environ.update(java_environment())
    try:
        if sys.argv[2:] == ["shuffled"]:
            shuffled(session_on("local-cluster[2,1,1024]", {}))
        else:
            everything(session_on("spark://127.0.0.1:0", CONF))
    finally:
        stop_session()
"""  # noqa: E501


def driven(folder: Path, *arguments: str) -> list[str]:
    """What the driver prints."""
    (folder / "users_topology.py").write_text(TOPOLOGY)
    (folder / "driver.py").write_text(textwrap.dedent(DRIVER))

    done = subprocess.run(
        [sys.executable, str(folder / "driver.py"), str(folder), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def on_two_hosts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What one driver told of all cases: a cluster for each would cost more than all of them."""
    return driven(tmp_path_factory.mktemp("hosts"))


@pytest.mark.slow
@pytest.mark.spark
def test_an_executor_killed_in_mid_batch_changes_no_count(on_two_hosts: list[str]) -> None:
    """An executor killed in mid-batch: slower, not wrong (K2). Functions of the user's file reach the executors.

    With tuple bolts the messages that its tasks had written are gone as well: the stage that reads them fails to fetch,
    and the sources run again. Rows in their order, counts and edges are those of one run: no number in the ledger may
    be inflated by a retried stage (K2, K3, K4).
    """
    assert [line for line in on_two_hosts if line.startswith("killed")] == [
        "killed frames 327 327 ['A', 'B'] [307, 20] 307 20",
        "killed tuples 26",
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_a_speculative_copy_beside_a_slow_task_changes_no_count(on_two_hosts: list[str]) -> None:
    """A slow task and its speculative copy both read their whole part: no number in the ledger may be inflated by it
    (K2, K3, K4).

    The task goes on only once both run, so that neither is a try after a failure.
    """
    assert [line for line in on_two_hosts if line.startswith("copied")] == [
        "copied frames 6 6 ['A', 'B', 'C'] [4, 1, 1] ['try-0', 'try-1']",
        "copied tuples 26 ['try-0', 'try-1']",
    ]


@pytest.mark.attack
@pytest.mark.slow
@pytest.mark.spark
def test_an_executor_killed_in_a_bolt_that_repartitions_changes_no_count(tmp_path: Path) -> None:
    """On local-cluster[2,1,1024]. The rows that the bolt had shuffled are gone with the executor, and the stage before
    it runs again.
    """
    assert driven(tmp_path, "shuffled") == ["shuffled 90 90 [15, 15, 12, 12, 12, 12, 12]"]
