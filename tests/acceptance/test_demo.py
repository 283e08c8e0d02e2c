"""`txtopo demo` as a newcomer meets it: all totals right, no noise, and a clean machine afterwards, also on Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.commands import (
    DEADLINE_S,
    checkout_environment,
    path_without_java,
    processes_of,
    run_txtopo,
    txtopo_command,
)
from tests.kit.fix_postgres import folder_for_services
from txtopo.demo.flights import find_flights, write_days
from txtopo.demo.recount import count_by_hand

FILES = 40
FIRST_KILL, SECOND_KILL = 13, 26
OUR_LINE = re.compile(r"\[ *\d+\.\d s\] \S.*")
TABLE_LINE = re.compile(r"(\w+) +(\w+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)")

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.zookeeper, pytest.mark.slow]


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder that is all that the demo knows of this machine: its temporary files and its home lie there."""
    with folder_for_services() as folder:
        for name in ("tmp", "home", "here"):
            (folder / name).mkdir()
            (folder / name).chmod(0o711)
        yield folder


def environment_of(machine: Path, **extra: str) -> dict[str, str]:
    return checkout_environment(TMPDIR=str(machine / "tmp"), TXTOPO_HOME=str(machine / "home"), **extra)


def test_the_demo_survives_two_kills_without_any_java_on_the_machine(machine: Path) -> None:
    """Promise: kills its own driver between COMMIT and the ZooKeeper update, and before a COMMIT in the middle of
    processing; exit code 0 only if all totals agree.

    Not one line of Spark noise; everything stopped afterwards; the machine's Java hidden.
    """
    with path_without_java(machine / "bin") as path:
        environment = environment_of(machine, PATH=path)
        environment.pop("JAVA_HOME", None)

        done = run_txtopo("demo", "--files", str(FILES), cwd=machine / "here", environment=environment)

        assert done.returncode == 0, done.stderr + done.stdout
        assert processes_of(machine) == {}
    said = done.stderr.splitlines()
    assert [line for line in said if not OUR_LINE.fullmatch(line)] == []
    assert (
        len([line for line in said if "kill -9 of driver 1" in line and f"COMMIT of batch {FIRST_KILL} and" in line])
        == 1
    )
    assert (
        len(
            [
                line
                for line in said
                if "kill -9 of driver 2" in line
                and f"before COMMIT of batch {SECOND_KILL + 1}, with " in line
                and line.partition(";")[0].endswith("begun")
            ]
        )
        == 1
    )
    assert list((machine / "tmp").iterdir()) == []
    assert list((machine / "here").iterdir()) == []
    check_report(done.stdout, machine)


def check_report(report: str, machine: Path) -> None:
    """The table equals a recount of this test's own, and the ledger's story is that of three drivers."""
    write_days(find_flights(), machine / "files", FILES)
    right = count_by_hand(machine / "files")
    rows = [
        match.groups() for line in report.splitlines() if (match := TABLE_LINE.fullmatch(line)) and match[1] != "total"
    ]
    numbers = {row[:2]: tuple(int(cell.replace(",", "")) for cell in row[2:]) for row in rows}
    assert numbers == {key: (*value, *value) for key, value in right.items()}
    assert f"batches    {FILES} of {FILES} committed" in report
    assert f"driver 1   epoch 1, committed 1-{FIRST_KILL}\n" in report
    assert re.search(rf"^driver 2   epoch 2, committed {FIRST_KILL + 1}-{SECOND_KILL}, took over", report, re.MULTILINE)
    assert re.search(rf"^driver 3   epoch 3, committed {SECOND_KILL + 1}-{FILES}, took over", report, re.MULTILINE)
    assert f"  MATCH  batches 1 to {FILES}: " in report
    assert "MATCH      all" in report
    assert "differs" not in report


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_interrupted_leaves_nothing_running(machine: Path, number: signal.Signals, code: int) -> None:
    """Promise: everything stopped afterwards, also on Ctrl-C. SIGINT comes while batches are committed, SIGTERM while
    Spark starts.
    """
    moment = "leads with epoch 1" if number is signal.SIGINT else "driver 1 (pid"
    log = machine / "said"
    with log.open("wb") as out:
        demo = subprocess.Popen(
            txtopo_command("demo"),
            cwd=machine / "here",
            env=environment_of(machine),
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
