"""When a file counts as settled: by two checks, or by time stamps of a certain age; and when it is checked again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.files import rewrite_in_place
from tests.unit.spouts.test_file_spout import CONTENT, Driver, names, write
from txtopo.driver import system_clock
from txtopo.driver.system_clock import SystemClock
from txtopo.spouts import stamped_here
from txtopo.spouts.places import local_place
from txtopo.spouts.stamped_here import StampedHere, changed_s


class Day(Driver):
    """A driver whose clock of the day stamps the files; both clocks are moved by the test."""

    def __init__(self, path: Path, *, today: float, **options: Any) -> None:
        self.today = today
        super().__init__(path, age_s=lambda stamp_s: max(0.0, self.today - stamp_s), **options)

    def look(self, after_s: float = 0.0) -> bool:
        self.today += after_s
        return super().look(after_s)


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the file system of the tests is."""
    monkeypatch.setattr(StampedHere, "covers", lambda *_: True)


def stamp(path: Path) -> float:
    return changed_s(path.stat())


def test_a_file_that_is_old_enough_settles_at_first_sight(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")

    assert Day(tmp_path, today=stamp(path) + 2.01).look()
    young = Day(tmp_path, today=stamp(path) + 1.5)
    assert not young.look() and young.spout.settled_s == 2.0
    assert not young.look(0.4)
    assert young.look(0.11)


def test_a_file_of_another_machines_clock_settles_by_two_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a file written now may be stamped with yesterday."""
    path = write(tmp_path / "a.csv")
    monkeypatch.setattr(StampedHere, "covers", lambda *_: False)
    driver = Day(tmp_path, today=stamp(path) + 1e6)

    assert not driver.look() and not driver.look(1.9)
    assert driver.look(0.1)


@pytest.mark.parametrize("mtime_s", [1.0, 4e9])
def test_a_writer_that_sets_mtime_does_not_change_the_age(tmp_path: Path, mtime_s: float) -> None:
    """Set back: ctime says when. Set into the future: such a file has no age, and settles by two checks."""
    path = write(tmp_path / "a.csv")
    os.utime(path, (mtime_s, mtime_s))
    driver = Day(tmp_path, today=path.stat().st_ctime + 1.0)

    assert not driver.look() and not driver.look(0.5)
    assert driver.look(1.5)


def test_a_file_that_is_written_to_between_any_two_checks_is_never_cut(tmp_path: Path) -> None:
    """Also by a writer that keeps size and mtime; the clock of the day runs as the file says."""
    path = write(tmp_path / "a.csv")
    driver = Day(tmp_path, today=stamp(path) + 1.0)

    for number in range(5):
        assert not driver.look()
        rewrite_in_place(path, CONTENT.replace("UA", f"U{number}"))
        driver.today, driver.now = stamp(path) + 1.9, driver.now + 1.9
    assert not driver.look()
    assert driver.look(0.2)


def test_a_file_written_to_between_check_and_fingerprint_is_not_cut(tmp_path: Path) -> None:
    """Old when it was found, and replaced while others were fingerprinted."""
    first, second = write(tmp_path / "a.csv"), write(tmp_path / "b.csv")
    driver = Day(tmp_path, today=stamp(second) + 9.0)
    assert driver.look() and stamp(first) <= stamp(second)
    assert names([driver.coordinator.initialize_transaction(1, None)]) == [["a.csv"]]

    write(tmp_path / "_new", CONTENT + "AA,2\n").replace(second)

    assert not driver.look()


def test_a_file_that_this_process_has_open_for_writing_has_no_age(tmp_path: Path) -> None:
    """A stamp is made when a write begins: the size of an old file may still grow in the same call of `write`."""
    path = write(tmp_path / "a.csv")
    today = stamp(path) + 9.0
    with path.open("a"):
        driver = Day(tmp_path, today=today)
        assert not driver.look() and not driver.look(1.9)
    assert driver.look(0.1), "by two checks"

    with path.open():
        assert Day(tmp_path, today=today).look(), "readers do not matter"


def test_a_young_file_that_is_open_for_writing_is_not_taken_for_older_than_the_first_check(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    with path.open("a"):
        driver = Day(tmp_path, today=stamp(path) + 1.9)
        assert not driver.look() and not driver.look(0.2) and not driver.look(1.7)
        assert driver.look(0.1)


def test_a_file_renamed_into_place_is_as_old_as_its_last_change(tmp_path: Path) -> None:
    path = write(tmp_path / "_a.csv")
    written = stamp(path)
    driver = Day(tmp_path, today=written + 9.0)
    assert not driver.look()

    path = path.rename(tmp_path / "a.csv")
    driver.today = max(driver.today, stamp(path) + 2.01)

    assert driver.look()


def test_where_nothing_has_to_settle_the_first_check_is_enough(tmp_path: Path) -> None:
    """Zero seconds have passed on every clock, also on that of another machine."""
    write(tmp_path / "a.csv")
    driver = Driver(tmp_path, settled_s=0, once=True)

    assert names(driver.batches()) == [["a.csv"]]
    assert driver.coordinator.is_exhausted()


def test_a_once_run_over_old_files_checks_once_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write(tmp_path / name) for name in ("a.csv", "b.csv")]
    driver = Day(tmp_path, today=stamp(paths[1]) + 2.1, once=True)
    listed: list[str] = []
    real = os.scandir

    def scandir(folder: str) -> Any:
        listed.append(folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)

    assert names(driver.batches()) == [["a.csv"], ["b.csv"]]
    assert driver.coordinator.is_exhausted()
    assert not driver.look(10.0)
    assert len(listed) == 1


@pytest.mark.parametrize("once", [True, False])
def test_a_young_file_changes_no_batch(tmp_path: Path, once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files make the same batches, whatever their age is when the driver starts: those after a young one wait
    for it, and an unfinished batch waits for its last files.
    """
    write(tmp_path / "young.csv")
    for name in ("a.csv", "b.csv", "z.csv"):
        write(tmp_path / name)
    young = (tmp_path / "young.csv").stat().st_ino
    monkeypatch.setattr(StampedHere, "covers", lambda self, path, status: status.st_ino != young)
    today = stamp(tmp_path / "z.csv") + 5.0

    alone = Day(tmp_path, today=today, once=once)
    assert names(alone.batches()) == [["a.csv"], ["b.csv"]]
    assert not alone.look(1.9) and not alone.coordinator.is_exhausted()
    alone.now += 0.1
    assert names(alone.batches()) == [["young.csv"], ["z.csv"]]

    threes = Day(tmp_path, today=today, once=once, files_per_batch=3)
    assert not threes.look() and not threes.look(1.9)
    threes.now += 0.1
    assert names(threes.batches()) == [["a.csv", "b.csv", "young.csv"], ["z.csv"]]
    assert threes.coordinator.is_exhausted() == once


@pytest.fixture(params=["planned", "0_first.csv", "z_last.csv"])
def changed_before_the_last_check(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Day:
    """A `once` run whose first check found a young file, and b.csv settled; then b.csv changes, before the last check:
    it waits for the young file, which is before it, or it is next in order, or its batch is about to be planned.
    """
    young = write(tmp_path / ("z_last.csv" if request.param == "planned" else request.param)).stat().st_ino
    paths = [write(tmp_path / name) for name in ("a.csv", "b.csv")]
    old = {path.stat().st_ino for path in paths}
    monkeypatch.setattr(
        StampedHere,
        "covers",
        lambda self, path, status: status.st_ino in old - {young} and status.st_size == len(CONTENT),
    )
    driver = Day(tmp_path, today=stamp(paths[1]) + 5.0, once=True)
    assert driver.look() == (request.param != "0_first.csv")
    driver.now += 1.0
    write(paths[1], CONTENT * 2)
    if request.param == "planned":
        assert names(driver.batches()) == [["a.csv"]]
    return driver


def test_a_file_that_changes_before_the_last_check_of_a_once_run_is_input_once_it_has_settled_again(
    tmp_path: Path, changed_before_the_last_check: Day
) -> None:
    """Promise: it had settled when the run began, so the run does not end without it."""
    driver = changed_before_the_last_check
    driver.now += 1.0
    before = driver.batches()

    assert ["b.csv"] not in names(before) and not driver.coordinator.is_exhausted()
    driver.now += 2.0
    [batch] = driver.batches()
    assert (names([batch]), batch["files"][0]["size"]) == ([["b.csv"]], len(CONTENT * 2))
    assert driver.coordinator.is_exhausted() and driver.said == []


def test_a_file_that_changes_before_and_after_the_last_check_of_a_once_run_is_said_to_be_left(
    tmp_path: Path, changed_before_the_last_check: Day
) -> None:
    driver = changed_before_the_last_check
    driver.now += 1.0
    driver.batches()
    write(tmp_path / "b.csv", CONTENT * 3)
    driver.now += 2.0

    assert driver.batches() == [] and driver.coordinator.is_exhausted()
    assert driver.said == [f"{str(tmp_path / 'b.csv')!r} is still changing: left for the next run"]


def test_a_file_that_had_settled_and_has_gone_at_the_last_check_of_a_once_run_is_said_to_have_gone(
    tmp_path: Path, changed_before_the_last_check: Day
) -> None:
    driver = changed_before_the_last_check
    (tmp_path / "b.csv").unlink()
    driver.now += 1.0
    driver.batches()

    assert driver.coordinator.is_exhausted()
    assert driver.said == [f"{str(tmp_path / 'b.csv')!r} has gone since it was found: no input of this run"]


def test_a_young_file_that_has_gone_at_the_last_check_of_a_once_run_is_said_to_have_gone(tmp_path: Path) -> None:
    """Nothing that a run with an end has found is left without a word."""
    write(tmp_path / "a.csv")
    young = write(tmp_path / "b.csv")
    driver = Driver(tmp_path, once=True)
    assert not driver.look()
    young.unlink()
    driver.now += 2.0

    assert names(driver.batches()) == [["a.csv"]] and driver.coordinator.is_exhausted()
    assert driver.said == [f"{str(young)!r} has gone since it was found: no input of this run"]


def test_a_file_that_never_settles_holds_up_the_others_for_no_longer_than_files_settle(tmp_path: Path) -> None:
    growing, other = write(tmp_path / "a.csv"), write(tmp_path / "b.csv")
    driver = Day(tmp_path, today=stamp(other) + 9.0)
    for _ in range(3):
        write(growing, growing.read_text() + "AA,2\n")
        driver.today = stamp(growing)
        assert not driver.look()
        driver.now += 0.6
    write(growing, growing.read_text() + "AA,2\n")
    driver.now += 0.6

    assert names(driver.batches()) == [["b.csv"]]


def test_the_spout_says_when_a_file_can_settle(tmp_path: Path) -> None:
    """So that the driver asks then, not `spout_poll_s` later."""
    driver = Driver(tmp_path, may_be_empty=True)
    assert not driver.look() and driver.coordinator.ready_in_s() == float("inf")  # type: ignore[attr-defined]

    path = write(tmp_path / "a.csv")
    day = Day(tmp_path, today=stamp(path) + 1.5)
    assert not day.look()
    assert day.coordinator.ready_in_s() == pytest.approx(0.5)  # type: ignore[attr-defined]
    day.now += 0.3
    assert day.coordinator.ready_in_s() == pytest.approx(0.2)  # type: ignore[attr-defined]
    assert day.look(0.25)


def test_a_large_folder_is_not_listed_all_the_time_while_its_files_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of a million files takes seconds; with `settled_s=0` there was one before every batch."""
    for number in range(9):
        write(tmp_path / f"{number}.csv")
    driver = Driver(tmp_path, settled_s=0)
    checks: list[float] = []
    module: Any = local_place
    find_files = module.find_files

    def slow(*arguments: Any) -> Iterator[Any]:
        checks.append(driver.now)
        yield from find_files(*arguments)
        driver.now += 1.0

    monkeypatch.setattr(local_place, "find_files", slow)
    found: list[Any] = []
    while driver.look(2.0):
        found.append(driver.coordinator.initialize_transaction(len(found) + 1, None))

    assert names(found) == [[f"{number}.csv"] for number in range(9)]
    assert checks == [102.0, 105.0, 116.0], "after the first check once more, then after ten seconds"
    while len(checks) < 4:
        assert not driver.look(1.0)
    write(tmp_path / "new.csv")
    while not driver.look(1.0):
        pass
    assert checks[3:] == [126.0, 136.0], "also when no file waits"


def test_a_check_that_was_held_up_and_the_first_one_do_not_delay_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server that stood still for a minute, or the first look at a million files, hid new files for ten more."""
    driver = Driver(tmp_path, may_be_empty=True)
    takes_s = [60.0, 1.0, 60.0, 1.0, 1.0]
    checks: list[float] = []
    module: Any = local_place
    find_files = module.find_files

    def slow(*arguments: Any) -> Iterator[Any]:
        checks.append(driver.now)
        driver.now += takes_s[len(checks) - 1]
        yield from find_files(*arguments)

    monkeypatch.setattr(local_place, "find_files", slow)
    while len(checks) < len(takes_s):
        driver.look(1.0)

    assert [later - before for before, later in pairwise(checks)] == [61.0, 10.0, 61.0, 10.0]


def test_a_file_that_settles_is_not_asked_for_before_a_large_folder_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the driver would ask a hundred times a second in the meantime."""
    driver = Driver(tmp_path, settled_s=2.0)
    module: Any = local_place
    find_files = module.find_files

    def slow(*arguments: Any) -> Iterator[Any]:
        driver.now += 1.0
        yield from find_files(*arguments)

    monkeypatch.setattr(local_place, "find_files", slow)
    assert not driver.look()  # What is found first settles without a pause.
    write(tmp_path / "a.csv")
    assert not driver.look(11.0)

    assert driver.coordinator.ready_in_s() == pytest.approx(9.0)  # type: ignore[attr-defined]
    assert not driver.look(8.5) and driver.look(0.5)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The clock of the day and the monotonic clock, as a new process finds them."""
    found = SimpleNamespace(day=1_000_000.0, monotonic=50.0, held_up_s=0.0)

    def day() -> float:
        found.monotonic += found.held_up_s
        return float(found.day)

    monkeypatch.setattr(system_clock, "time", SimpleNamespace(time=day, monotonic=lambda: found.monotonic))
    monkeypatch.setattr(SystemClock, "_known_since", (found.day, found.monotonic))
    yield found


def passes(clocks: SimpleNamespace, seconds: float) -> None:
    clocks.day += seconds
    clocks.monotonic += seconds


def test_the_age_of_a_stamp_counts_from_the_beginning_of_the_process(clocks: SimpleNamespace) -> None:
    """A clock that was set forward an hour before this process began makes a file look an hour old."""
    clock = SystemClock()
    assert clock.age_s(clocks.day - 3600.0) == 0.0
    passes(clocks, 3.0)
    assert clock.age_s(clocks.day - 3600.0) == pytest.approx(3.0, abs=0.05)
    assert clock.age_s(clocks.day - 1.0) == pytest.approx(1.0, abs=0.05)
    assert clock.age_s(clocks.day + 60.0) == 0.0


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 0.2])
def test_after_the_clock_is_set_no_stamp_has_an_age(clocks: SimpleNamespace, step_s: float) -> None:
    """Set by a program, or moved on while the machine slept."""
    clock = SystemClock()
    passes(clocks, 30.0)
    written = clocks.day
    clocks.day += step_s

    assert clock.age_s(written) == 0.0
    passes(clocks, 5.0)
    assert clock.age_s(written) <= 5.0


def test_a_process_that_is_held_up_while_it_reads_the_clocks_knows_no_age(clocks: SimpleNamespace) -> None:
    passes(clocks, 30.0)
    clocks.held_up_s = 10.0

    assert SystemClock().age_s(clocks.day - 20.0) == 0.0
    assert SystemClock._known_since == (1_000_000.0, 50.0)


def test_a_stamp_in_whole_seconds_was_rounded_down() -> None:
    whole: Any = SimpleNamespace(st_mtime_ns=7_000_000_000, st_ctime_ns=5_000_000_000)
    fine: Any = SimpleNamespace(st_mtime_ns=1, st_ctime_ns=7_250_000_000)

    assert changed_s(whole) == 8.0 and changed_s(fine) == 7.25


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("0 0 1:1 / {root} rw - ext4 /dev/sda rw", True),
        ("0 0 1:1 / {root} rw shared:1 - nfs4 server:/x rw", False),
        ("0 0 1:1 / / rw - ext4 /dev/sda rw\n0 0 1:1 / {root} rw - fuse.sshfs x rw", False),
        ("0 0 1:1 / {root} rw - nfs4 server:/x rw\n0 0 1:1 / {root} rw - tmpfs none rw", True),
        ("0 0 1:1 / {root} rw - ext4 /dev/sda rw\n0 0 1:1 / {root}x rw - nfs4 server:/x rw", True),
        ("0 0 1:1 / /proc rw - ext4 /dev/sda rw", False),
        ("0 0 {device} / {root} rw - ext4 /dev/sda rw\n0 0 1:1 / {root} rw - nfs4 server:/x rw", False),
        ("0 0 1:1 / {root} rw - ext4 /dev/sda rw\n0 0 {device} / {above} rw - nfs4 server:/x rw", False),
        ("0 0 {device} / /elsewhere rw - ext4 /dev/sda rw", True),
        ("0 0 1:1 / {root} rw - ext4 /dev/sda rw\n0 0 1:1 / /x\x0cy\x1cz\x85\u2028/w rw - tmpfs none rw", True),
        ("0 0 1:1 / {root} rw - ext4 /dev/sda rw\n\n0 0 1:1\n0 0 1:1 / {root} rw -", True),
        ("", False),
    ],
)
def test_only_known_local_file_systems_stamp_with_this_machines_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, expected: bool
) -> None:
    monkeypatch.undo()
    folder = tmp_path / "with blank"
    folder.mkdir()
    path = write(folder / "a.csv")
    table = tmp_path / "mountinfo"
    status = path.stat()
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    root = str(folder).replace(" ", r"\040")
    table.write_bytes(mounts.format(root=root, above=tmp_path, device=device).encode())
    monkeypatch.setattr(stamped_here, "_MOUNTS", table)

    assert StampedHere().covers(str(path), path.stat()) is expected
    other: Any = SimpleNamespace(st_dev=path.stat().st_dev + 1)
    assert not StampedHere().covers(str(path), other), "a file of another device, e.g. a link, is not below this mount"


def test_a_system_without_a_table_of_mounts_has_no_certain_stamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(stamped_here, "_MOUNTS", tmp_path / "none")

    assert not StampedHere().covers(str(tmp_path), tmp_path.stat())


def test_the_real_clock_tells_the_age_of_a_real_file(tmp_path: Path) -> None:
    before = time.time()
    age_s = SystemClock().age_s(changed_s(write(tmp_path / "a.csv").stat()))

    assert 0.0 <= age_s <= time.time() - before
