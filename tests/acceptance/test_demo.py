"""`txtopo demo` on Ctrl-C and SIGTERM: a clean machine afterwards. `test_wheel.py` plays it to its end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.commands import (
    DEADLINE_S,
    OUR_LINE,
    checkout_environment,
    folder_for_demo,
    places_of,
    processes_of,
    run_txtopo,
    txtopo_command,
)
from tests.kit.fix_kafka import JARS

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.zookeeper, pytest.mark.slow]


@pytest.fixture
def machine() -> Iterator[Path]:
    with folder_for_demo() as folder:
        yield folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_interrupted_leaves_nothing_running(machine: Path, number: signal.Signals, code: int) -> None:
    """Promise: everything stopped afterwards, also on Ctrl-C. SIGINT comes while batches are committed, SIGTERM while
    Spark starts.
    """
    moment = "leads with epoch 1" if number is signal.SIGINT else "driver 1 (pid"
    log = machine / "said"
    with log.open("wb") as out:
        demo = subprocess.Popen(
            txtopo_command("demo", "--files", "9"),
            cwd=machine / "here",
            env=checkout_environment(**places_of(machine)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while moment not in log.read_text():
            assert demo.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        assert len(processes_of(machine / "tmp")) >= 3

        demo.send_signal(number)
        demo.send_signal(number)  # impatience must not cut the clean-up short

        assert demo.wait(60) == code
    finally:
        demo.kill()
        demo.wait(10)
    assert processes_of(machine) == {}
    assert list((machine / "tmp").iterdir()) == []
    assert [line for line in log.read_text().splitlines() if not OUR_LINE.fullmatch(line)] == []


def played(machine: Path, story: str, limit_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
    """`txtopo demo STORY` as somebody at a terminal sees it; it has left nothing that runs and no file."""
    environment = checkout_environment(**places_of(machine))
    done = run_txtopo("demo", story, cwd=machine / "here", environment=environment, limit_s=limit_s)

    assert processes_of(machine) == {}
    assert list((machine / "tmp").iterdir()) == []
    return done


def test_the_demo_of_logs_halts_at_a_bug_and_ends_with_every_request_counted_once(machine: Path) -> None:
    """Promise: a bug stops the topology; after its fix, one command replays the failed batch with its input."""
    done = played(machine, "logs")

    assert done.returncode == 0, done.stderr + done.stdout
    assert "has halted; batches 1 to 13 are committed, nothing after them:" in done.stderr
    assert "txtopo: batch 14 of web: 3 attempts failed in by_section:" in done.stderr
    assert "web.py:21: AttributeError: 'NoneType' object has no attribute 'split'; on path=NULL" in done.stderr
    assert "retry of web: batch 14 is committed" in done.stderr
    assert "rejected   4 lines, each kept with its file and number" in done.stdout
    assert "MATCH      all 25 totals agree with the recount: 47,996 requests, 454,935,622 bytes" in done.stdout


FOUR_DRIVERS_S = 900.0
"""A driver with its own Spark takes up to a minute to lead where all cores are busy."""


@pytest.mark.attack
@pytest.mark.kafka
@pytest.mark.timeout(FOUR_DRIVERS_S + 60)
def test_the_demo_of_kafka_is_killed_halts_and_ends_with_every_order_counted_once(machine: Path) -> None:
    """Promise: neither a kill nor a message that nobody expected loses an order, or counts one twice."""
    JARS.mkdir(parents=True, exist_ok=True)
    (machine / "home" / "kafka").symlink_to(JARS)  # Else its 44 MB are downloaded once more.
    done = played(machine, "kafka", FOUR_DRIVERS_S)
    if "cannot be downloaded" in done.stderr:
        pytest.skip(done.stderr)

    assert done.returncode == 0, done.stderr + done.stdout
    assert "after COMMIT of batch 4; no offset is lost or read twice" in done.stderr
    assert "has halted; batches 1 to 8 are committed, nothing after them:" in done.stderr
    assert "txtopo: batch 9 of shop: 3 attempts failed in by_kind:" in done.stderr
    assert "retry of shop: batch 9 is committed" in done.stderr
    assert "rejected   3 messages, each kept with its partition and offset" in done.stdout
    assert "totals agree with the recount: 27,997 orders" in done.stdout
