"""The examples of the help, run in one story on real stores, and every exit code from a real command.

0: the story below. 1: halted, MISMATCH and what is refused, in the story; `migrate --check` in
`test_migrate_says_what_it_would_do`, `stop` in
`test_stop_that_is_refused_ends_with_1`. 2: below; wrong usage in `test_wrong_usage_is_2`. 3: below; `replay --verify`,
`stop` and orders in
`test_replaying`, `test_reading_commands` and `test_orders`. 4: below; of a driver that was asleep in
`test_a_paused_leader_wakes_after_another_has_committed`.
5: below; each error's code in `test_each_error_has_its_exit_code`. 129, 130 and 143: below. 141: below. `dev`:
`test_local_services_are_found_by_every_command`;
`demo`: `test_the_demo_survives_two_kills_without_any_java_on_the_machine`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.kit.asked import Said, everything, runner
from tests.kit.audited import select
from tests.kit.drivers import wait_until
from txtopo.cli.verbs import VERBS
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.ports import Claim
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology

ROOT = Path(__file__).resolve().parents[2]
APPLICATION = """
from txtopo import CountCommitter, FileSpout, TopologyBuilder

FIELDS = "carrier string, origin string, distance int"
builder = TopologyBuilder("flights")
builder.set_spout("departures", FileSpout("in", FIELDS, settled_s=0.01))
builder.set_committer_bolt(
    "by_carrier", CountCommitter("flights_by_carrier", ["carrier", "origin"], count="flights", sums={"distance": "distance"})
).fields_grouping("departures", ["carrier", "origin"])
topology = builder.build()
"""  # noqa: E501
FILES = 42
BAD = 17


class Site:
    """Both stores, files of flights, the application of the examples where the examples look for it, and executors in
    this process.
    """

    def __init__(self, dsn: str, run: Callable[..., Said]) -> None:
        self.dsn, self.run = dsn, run
        self.bad: set[int] = set()
        """Txids on which the user's code fails."""
        self.bug: Exception | None = None
        """Raised by the executor itself."""

    def make_executor(self, topology: Topology, digest: bytes, _: Any) -> InProcessExecutor:
        executor = InProcessExecutor(topology, digest, faults=self._fail)
        if self.bug is not None:
            executor.process = Mock(side_effect=self.bug)  # type: ignore[method-assign]
        return executor

    def _fail(self, attempt: TransactionAttempt) -> None:
        if attempt.txid in self.bad:
            raise BatchDataError("bolts.py:12 ValueError: no hour", component="clean")

    def example(self, verb: str, *more: str) -> Said:
        """The example of the help, word for word."""
        return self.run(*shlex.split(VERBS[verb].example)[1:], *more)

    def last_txid(self) -> int:
        """How far the topology got."""
        return int(select(self.dsn, "select coalesce(max(last_txid), 0) from txtopo.fence")[0][0])


@pytest.fixture
def site(
    database: str,
    zookeeper_root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    """Nothing has run and there is no input."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    monkeypatch.setenv("TXTOPO_ZK", zookeeper_root)
    monkeypatch.setenv("TXTOPO_ATTEMPTS_MAX", "1")
    monkeypatch.setenv("TXTOPO_ZOOKEEPER_SESSION_S", "2")
    monkeypatch.setenv("TXTOPO_SPOUT_POLL_S", "0.05")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "flights.py").write_text(APPLICATION)
    made = Site(database, runner(capsys))
    monkeypatch.setattr("txtopo.app.spark_executor", made.make_executor)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return made


def write_flights(files: int) -> None:
    """One flight of AA from JFK in each file."""
    for number in range(1, files + 1):
        Path("in", f"day_{number:03}.csv").write_text("carrier,origin,distance\nAA,JFK,100\n")


# ----------------------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_help_in_one_story(site: Site) -> None:
    """Promise: every command's help has an example that works as written; each step of a failure and its mending ends
    with its code.
    """
    write_flights(FILES)
    site.bad = {BAD}
    halted = site.example("run")
    assert (halted.code, f"batch {BAD} of flights: 1 attempt failed" in halted.err) == (1, True)
    assert (site.example("status").code, site.last_txid()) == (1, BAD - 1)
    failed, shown = site.example("batches"), site.example("show")
    assert (failed.code, shown.code) == (0, 0)
    assert f"  {BAD}  failed" in failed.out
    assert "no hour" in shown.out

    before = everything(site.dsn)
    dry = [site.example(verb, "--dry-run").code for verb in ("retry", "skip", "replan")]
    refused = [site.example(verb, "--dry-run").code for verb in ("redrive", "replay")]
    assert (dry, refused) == ([0, 0, 0], [1, 1])  # nothing is quarantined yet, nor committed
    assert everything(site.dsn) == before

    again, skipped = site.example("retry"), site.example("skip")
    assert (again.code, skipped.code) == (1, 0), again.err + skipped.err
    assert "batch 17 is quarantined" in skipped.out
    hole = site.example("audit")
    assert (hole.code, "[source.holes]" in hole.out) == (1, True)
    redriven, nothing = site.example("redrive"), site.run("retry", "flights")
    site.bad = set()
    mended = site.example("run")
    assert (mended.code, nothing.code, "Nothing to retry" in nothing.out) == (0, 0, True), mended.err
    assert redriven.code == 0, redriven.err

    assert [site.example(verb).code for verb in ("status", "audit", "trace", "replay")] == [0, 0, 0, 0]
    assert f"row now   flights {FILES}," in site.example("trace").out
    dropped = site.example("replan")
    assert (dropped.code, "no plan was dropped" in dropped.out) == (0, True)
    idle, fresh = site.example("stop"), site.example("migrate")
    assert (idle.code, "does not run" in idle.out, fresh.code, site.example("version").code) == (0, True, 0, 0)


# ----------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread; what it raises fails the test."""
    raised: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    thread.join(60)
    assert not raised, raised
    assert not thread.is_alive()


def test_what_is_not_configured_is_2(site: Site) -> None:
    """Promise: 2 for usage and configuration; nothing was started."""
    Path("broken.py").write_text("topology = 1\n")

    codes = [
        site.run(*line.split()).code
        for line in (
            "run nowhere.py:topology",
            "run broken.py:topology",
            "run examples/flights.py:other",
            "audit flights",
        )
    ]

    assert codes == [2, 2, 2, 2]
    assert select(site.dsn, "select * from txtopo.fence") == []


@pytest.mark.parametrize(
    "line", ["status", "audit flights", "replay flights 1", "retry flights", "run examples/flights.py:topology --once"]
)
def test_a_store_that_is_away_is_3(site: Site, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Promise: 3 when it could not be found out; no verdict on stdout and no password anywhere."""
    monkeypatch.setenv("TXTOPO_DSN", "postgresql://me:hush@127.0.0.1:9/nowhere")

    said = site.run(*line.split())

    assert (said.code, said.out) == (3, "")
    assert "hush" not in said.err


def test_a_first_start_that_never_reaches_zookeeper_is_3(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: an outage is waited out only by who was there before it; what was never reached is more likely a wrong
    address.
    """
    monkeypatch.setenv("TXTOPO_ZK", "127.0.0.1:9/nowhere")
    monkeypatch.setattr("txtopo.app.ZOOKEEPER_START_S", 0.2)

    said = site.run("run", "examples/flights.py:topology", "--once")

    assert (said.code, "127.0.0.1:9/nowhere does not answer" in said.err) == (3, True), said.err


def test_a_driver_whose_lead_another_one_took_is_4(site: Site) -> None:
    """Promise: 4 when fenced; the one that lost changes nothing any more."""
    write_flights(1)

    def take_over() -> None:
        wait_until(lambda: site.last_txid() == 1, "the first batch")
        with closing(PostgresLedger(site.dsn, "flights")) as ledger:
            fence = ledger.read_fence()
            assert fence is not None
            ledger.claim_fence(
                Claim(
                    topology="flights",
                    owner_nonce=str(uuid.uuid4()),
                    code_hash=fence.code_hash,
                    epoch_above=fence.epoch,
                    incarnation=fence.incarnation,
                    new_incarnation=str(uuid.uuid4()),
                    host="other",
                    pid=1,
                    application="app.py:topology",
                    description={},
                )
            )
        Path("in", "later.csv").write_text("carrier,origin,distance\nAA,JFK,100\n")

    with meanwhile(take_over):
        said = site.run("run", "examples/flights.py:topology")

    assert said.code == 4, said.err
    assert "another driver" in said.err
    assert site.last_txid() == 1


def test_a_bug_is_5_and_its_trace_is_in_a_file(site: Site) -> None:
    """Promise: 5 for an internal error, with the trace in a file whose name is printed."""
    write_flights(1)
    site.bug = RuntimeError("a bug of the executor")

    said = site.run("run", "examples/flights.py:topology", "--once")

    assert said.code == 5, said.err
    (name,) = re.findall(r"the trace is in (\S+)", said.err)
    assert "a bug of the executor" in Path(name).read_text()
    assert site.last_txid() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_told_to_end_is_129_130_or_143(site: Site, number: signal.Signals, code: int) -> None:
    """Promise: 129, 130 and 143 after an orderly stop; what is committed is committed, and the topology says STOPPED."""  # noqa: E501
    write_flights(1)

    def interrupt() -> None:
        wait_until(lambda: site.last_txid() == 1, "the first batch")
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
    try:
        with meanwhile(interrupt):
            said = site.run("run", "examples/flights.py:topology")
    finally:
        signal.signal(signal.SIGHUP, before)

    assert said.code == code, said.err
    status = site.run("status", "flights")
    assert (status.code, "flights  STOPPED" in status.out) == (0, True)


def test_following_ends_with_130_and_a_reader_that_went_away_with_141(site: Site) -> None:
    """Promise: Ctrl-C is 130, a reader of the output that went away 141; neither leaves a trace on the terminal."""
    write_flights(3)
    assert site.example("run").code == 0
    line = [sys.executable, "-m", "txtopo.cli", *shlex.split(VERBS["events"].example)[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    # Whoever runs the tests in the background ignores SIGINT, and children inherit that; a terminal does not.
    with subprocess.Popen(
        line,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as follower:
        assert follower.stdout is not None
        assert "attempt begun" in "".join(follower.stdout.readline() for _ in range(3))
        follower.send_signal(signal.SIGINT)
        _, said = follower.communicate(timeout=30)
    reader, writer = os.pipe()
    os.close(reader)
    piped = subprocess.run(
        line, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(writer)

    assert (follower.returncode, said) == (130, "txtopo: interrupted\n")
    assert (piped.returncode, piped.stderr) == (141, "")
