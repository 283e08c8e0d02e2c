"""The coordinator half of the file source: what is input, when, in which order, and what the plan says of it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kit.files import rewrite_in_place
from txtopo.errors import InvariantBroken
from txtopo.spouts import consumed_files, fingerprint
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.places import local_place
from txtopo.topology.components import SpoutContext, SpoutCoordinator

FIELDS = "carrier string, distance int"
CONTENT = "carrier,distance\nUA,1\n"


class Driver:
    """A driver's view of a spout: a clock that the test moves, and what was said."""

    def __init__(
        self,
        path: Path | str,
        *,
        once: bool = False,
        consumed: Mapping[str, bytes] | None = None,
        recent: list[Any] | None = None,
        age_s: Callable[[float], float] = lambda stamp_s: 0.0,
        **options: Any,
    ) -> None:
        self.now = 100.0
        self.said: list[str] = []
        self.spout = FileSpout(path, options.pop("fields", FIELDS), **options)
        context = SpoutContext(
            topology="t",
            spout="lines",
            consumed={} if consumed is None else consumed,
            once=once,
            monotonic=lambda: self.now,
            say=self.said.append,
            recent=lambda: recent or [],
            age_s=age_s,
        )
        self.coordinator: SpoutCoordinator = self.spout.open_coordinator(context)

    def look(self, after_s: float = 0.0) -> bool:
        self.now += after_s
        return self.coordinator.is_ready()

    def batches(self) -> list[Any]:
        """All that can be cut now."""
        found: list[Any] = []
        while self.coordinator.is_ready():
            found.append(self.coordinator.initialize_transaction(len(found) + 1, None))
        return found

    def settled(self) -> list[Any]:
        """Look, wait, and cut all."""
        self.look()
        self.now += 2.0
        return self.batches()


def names(batches: list[Any]) -> list[list[str]]:
    return [[os.path.basename(file["path"]) for file in batch["files"]] for batch in batches]  # noqa: PTH119


def write(path: Path, content: str = CONTENT) -> Path:
    path.write_text(content, newline="")
    return path


def test_a_file_is_input_once_it_has_settled(tmp_path: Path) -> None:
    """A file is input once size, mtime and ctime are equal in two polls at least 2 s apart."""
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)

    assert not driver.look()
    assert not driver.look(1.9)
    write(path, CONTENT + "AA,2\n")
    assert not driver.look(0.1)
    assert not driver.look(1.9)
    assert driver.look(0.1)


def test_what_was_consumed_is_never_input_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path, consumed={str(path): hashlib.sha256(CONTENT.encode()).digest()})

    assert driver.settled() == []
    write(tmp_path / "b.csv")
    assert names(driver.settled()) == [["b.csv"]]
    assert driver.settled() == []
    assert driver.said == []


def _append(path: Path) -> None:
    with path.open("a") as out:
        out.write("AA,2\n")


def _truncate(path: Path) -> None:
    os.truncate(path, len(CONTENT) - 3)


def _replace(path: Path) -> None:
    write(path.with_name("_new"), CONTENT + "AA,2\n").replace(path)


@pytest.mark.parametrize("change", [_append, _truncate, _replace])
def test_what_was_written_to_a_consumed_file_while_no_driver_looked_is_said(tmp_path: Path, change: Any) -> None:
    """Between two `--once` runs, or behind the last look of one: late rows are not input, and never lost in silence.
    Old plans have no ctime.
    """
    path, other = write(tmp_path / "a.csv"), write(tmp_path / "b.csv")
    before = Driver(tmp_path, once=True).settled()
    (old,) = before[1]["files"]
    del old["ctime_ns"]
    consumed = {str(one): hashlib.sha256(CONTENT.encode()).digest() for one in (path, other)}
    again = Driver(tmp_path, once=True, consumed=consumed, recent=before[::-1])
    assert (again.settled(), again.said) == ([], [])

    change(path)
    other.touch()

    for _ in range(2):
        again = Driver(tmp_path, once=True, consumed=consumed, recent=before[::-1])
        assert again.settled() == [] and again.coordinator.is_exhausted()
        assert again.said == [f"{str(path)!r} was read before and has other content now: ignored, a path is input once"]


@pytest.mark.parametrize("once", [True, False])
def test_a_consumed_file_that_never_settles_again_is_said(tmp_path: Path, once: bool) -> None:
    """A log that grows between any two looks."""
    path = write(tmp_path / "a.csv")
    (batch,) = Driver(tmp_path).settled()
    consumed = {str(path): hashlib.sha256(CONTENT.encode()).digest()}
    driver = Driver(tmp_path, once=once, consumed=consumed, recent=[batch])

    for _ in range(4):
        _append(path)
        assert not driver.look(2.0)

    assert driver.said == [
        f"{str(path)!r} was read before and is being written to again: ignored, a path is input once"
    ]


def test_what_was_planned_is_compared_with_its_last_plan_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redo is newer than what it redoes; and of a million batches not all are read."""
    path = write(tmp_path / "a.csv")
    (first,) = Driver(tmp_path).settled()
    _append(path)
    (redone,) = Driver(tmp_path).settled()
    consumed = {str(path): bytes.fromhex(redone["files"][0]["sha256"])}
    again = Driver(tmp_path, consumed=consumed, recent=[redone, first])
    assert (again.settled(), again.said) == ([], [])

    monkeypatch.setattr(consumed_files, "FILES_COMPARED_MAX", 1)
    read: list[int] = []

    def plans() -> Iterator[Any]:
        for number in range(5):
            read.append(number)
            yield redone

    consumed_files._as_planned(
        SpoutContext(topology="t", spout="lines", consumed={}, once=True, monotonic=float, say=print, recent=plans)
    )
    assert read == [0]


def test_a_consumed_path_rewritten_in_place_is_said_to_differ(tmp_path: Path) -> None:
    """Also where size, mtime and inode are as before."""
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    assert len(driver.settled()) == 1

    rewrite_in_place(path, CONTENT.replace("UA", "ZZ"))

    assert driver.settled() == []
    assert len(driver.said) == 1


def test_a_file_rewritten_in_place_has_to_settle_again(tmp_path: Path) -> None:
    """A writer that keeps size and mtime is noticed by its ctime, while a file settles and while it is hashed."""
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    driver.look()
    driver.now += 1.0
    rewrite_in_place(path, CONTENT.replace("UA", "ZZ"))

    assert not driver.look(1.0)
    assert driver.look(2.0)


def test_a_consumed_path_with_other_content_is_ignored_and_said_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    assert len(driver.settled()) == 1

    os.utime(path, (1, 1))
    assert driver.settled() == []
    assert driver.said == []
    for number in range(3):
        write(path, CONTENT + f"AA,{number}\n")
        assert driver.settled() == []

    assert len(driver.said) == 1
    assert str(path) in driver.said[0]


def test_a_batch_closes_at_files_or_bytes_whichever_comes_first(tmp_path: Path) -> None:
    for name, size in (("a", 30), ("b", 30), ("c", 30), ("d", 100), ("e", 30), ("f", 30)):
        write(tmp_path / name, "carrier,distance\n".ljust(size, "\n"))

    assert names(Driver(tmp_path, files_per_batch=2).settled()) == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert names(Driver(tmp_path, files_per_batch=9, bytes_per_batch=60).settled()) == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e", "f"],
    ]


def test_a_once_run_looks_twice_and_leaves_what_still_changes(tmp_path: Path) -> None:
    """A run with --once looks twice; it is exhausted only after the second look; files still changing are left for the
    next run.
    """
    write(tmp_path / "a.csv")
    changing = write(tmp_path / "b.csv")
    driver = Driver(tmp_path, once=True)

    assert not driver.look() and not driver.coordinator.is_exhausted()
    write(changing, CONTENT + "AA,2\n")
    write(tmp_path / "new.csv")
    assert not driver.look(1.0) and not driver.coordinator.is_exhausted()
    assert driver.look(1.0) and not driver.coordinator.is_exhausted()

    assert names(driver.batches()) == [["a.csv"]]
    assert driver.coordinator.is_exhausted()
    assert not driver.look(10.0)
    assert [line.split("/")[-1] for line in driver.said] == [
        "b.csv' is still changing: left for the next run",
        "new.csv' has not settled: left for the next run",
    ]


def test_where_nothing_may_be_read_a_once_run_ends_after_one_look_and_any_other_goes_on(tmp_path: Path) -> None:
    driver = Driver(tmp_path, once=True, may_be_empty=True)
    assert not driver.look() and driver.coordinator.is_exhausted()

    forever = Driver(tmp_path)
    assert not forever.look() and not forever.look(2.0) and not forever.coordinator.is_exhausted()
    assert driver.said == forever.said == [f"no file matches '{tmp_path}' (the folder is empty)"]


@pytest.mark.parametrize("changed", [(write, CONTENT * 2), (rewrite_in_place, CONTENT.replace("1", "2"))])
def test_a_file_that_changes_while_it_is_hashed_has_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: tuple[Any, str]
) -> None:
    change, content = changed
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    read_content = fingerprint.read_content

    def read_and_write(descriptor: int, *scan: Any) -> Any:
        found = read_content(descriptor, *scan)
        change(path, content)
        return found

    monkeypatch.setattr(local_place, "read_content", read_and_write)
    assert driver.settled() == []
    monkeypatch.undo()

    assert names(driver.settled()) == [["a.csv"]]


@pytest.fixture
def changed_while_it_waited(tmp_path: Path) -> Driver:
    """A `once` run whose file b.csv had settled, and changed before its batch was planned."""
    path = write(tmp_path / "b.csv")
    write(tmp_path / "a.csv")
    write(tmp_path / "c.csv")
    driver = Driver(tmp_path, once=True)
    driver.look()
    assert driver.look(2.0)
    driver.coordinator.initialize_transaction(1, None)
    write(path, CONTENT * 2)
    write(tmp_path / "new.csv")
    return driver


def test_a_file_that_changes_while_a_once_run_has_it_waiting_is_input_once_it_has_settled_again(
    tmp_path: Path, changed_while_it_waited: Driver
) -> None:
    """Promise: it was input of this run when the run began, so the run does not end without it. No other file joins."""
    driver = changed_while_it_waited
    coordinator: Any = driver.coordinator

    assert names(driver.batches()) == [["c.csv"]]
    assert not coordinator.is_exhausted() and coordinator.ready_in_s() == 2.0
    assert not driver.look(1.9) and not driver.coordinator.is_exhausted()
    assert driver.look(0.1)
    [batch] = driver.batches()
    assert (names([batch]), batch["files"][0]["size"]) == ([["b.csv"]], len(CONTENT * 2))
    assert coordinator.is_exhausted() and coordinator.ready_in_s() == math.inf
    assert driver.said == []


@pytest.mark.parametrize("settles", [False, True], ids=["does not settle", "settles, and changes once more"])
def test_a_file_that_changes_again_and_again_is_said_to_be_left_by_a_once_run(
    tmp_path: Path, changed_while_it_waited: Driver, settles: bool
) -> None:
    """A run with an end waits once for a file that changed, not for ever."""
    driver, path = changed_while_it_waited, tmp_path / "b.csv"
    assert driver.look()
    if settles:
        assert driver.look(2.0)  # c.csv is still to be planned
    write(path, CONTENT * 3)

    assert names([driver.coordinator.initialize_transaction(2, None)]) == [["c.csv"]]
    assert not driver.look(0.0 if settles else 2.0)
    assert driver.coordinator.is_exhausted()
    assert driver.said == [f"{str(path)!r} is still changing: left for the next run"]


def test_a_file_without_its_column_that_is_repaired_before_its_turn_is_input_of_the_same_once_run(
    tmp_path: Path,
) -> None:
    """The files before it were a batch without it, so it is read twice; in between it may change."""
    write(tmp_path / "a.csv")
    bad = write(tmp_path / "b.csv", "other\n1\n")
    driver = Driver(tmp_path, once=True, files_per_batch=2)
    driver.look()
    assert driver.look(2.0)
    write(bad)

    assert names(driver.batches()) == [["a.csv"]]
    driver.now += 2.0
    assert names(driver.batches()) == [["b.csv"]]
    assert driver.coordinator.is_exhausted() and driver.said == []


def test_a_file_that_has_gone_when_it_should_have_settled_again_is_said_to_have_gone(
    tmp_path: Path, changed_while_it_waited: Driver
) -> None:
    driver, path = changed_while_it_waited, tmp_path / "b.csv"
    driver.batches()
    path.unlink()

    assert not driver.look(2.0)
    assert driver.coordinator.is_exhausted()
    assert driver.said == [f"{str(path)!r} has gone since it was found: no input of this run"]


def test_a_file_that_is_renamed_after_the_second_look_of_a_once_run_is_said_to_have_gone(tmp_path: Path) -> None:
    path = write(tmp_path / "b.csv")
    write(tmp_path / "a.csv")
    driver = Driver(tmp_path, once=True)
    driver.look()
    assert driver.look(2.0)
    driver.coordinator.initialize_transaction(1, None)
    path.rename(tmp_path / "c.csv")

    assert not driver.look() and driver.coordinator.is_exhausted()
    assert driver.said == [f"{str(path)!r} has gone since it was found: no input of this run"]


def test_a_file_whose_rights_change_while_it_waits_for_its_batch_is_input(tmp_path: Path) -> None:
    """Promise: new rights, another owner or a hard link of a file that waits change its ctime alone: a run with --once
    counts it, and plans it as it was read.
    """
    paths = [write(tmp_path / f"{name}.csv") for name in "abc"]
    driver = Driver(tmp_path, once=True)
    driver.look()
    assert driver.look(2.0)
    before = paths[2].stat().st_ctime_ns
    while paths[2].stat().st_ctime_ns == before:
        paths[2].chmod(0o600)

    batches = driver.batches()

    assert names(batches) == [["a.csv"], ["b.csv"], ["c.csv"]]
    assert batches[2]["files"][0]["ctime_ns"] == paths[2].stat().st_ctime_ns
    assert driver.coordinator.is_exhausted()
    assert driver.said == []


def test_a_batch_is_only_cut_after_the_spout_said_yes(tmp_path: Path) -> None:
    with pytest.raises(InvariantBroken):
        Driver(tmp_path).coordinator.initialize_transaction(1, None)


def test_a_backlog_is_not_listed_again_for_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting 365 waiting files must not list the folder 365 times."""
    for number in range(20):
        write(tmp_path / f"{number:02}.csv")
    driver = Driver(tmp_path)
    scans: list[Any] = []
    scandir = os.scandir

    def counting(path: Any) -> Any:
        scans.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)

    assert len(driver.settled()) == 20

    assert len(scans) <= 3


def test_a_spout_travels_to_tasks(tmp_path: Path) -> None:
    spout = pickle.loads(pickle.dumps(FileSpout(tmp_path, FIELDS, delimiter=";")))

    assert spout.describe() == FileSpout(tmp_path, FIELDS, delimiter=";").describe()
    assert json.loads(json.dumps(spout.describe())) == spout.describe()


def test_the_size_of_a_batch_is_that_of_its_files(tmp_path: Path) -> None:
    """Waves are bounded by bytes, which the plan knows."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(CONTENT)
    driver = Driver(tmp_path, files_per_batch=2)

    (batch,) = driver.settled()

    assert driver.spout.batch_bytes(batch) == 2 * len(CONTENT)
