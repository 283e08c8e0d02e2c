"""What is read ahead of the planner is what it would read itself: no plan, no error and no order depends on threads."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_file_spout import CONTENT, Driver, names, write
from txtopo.errors import BatchDataError
from txtopo.spouts import read_ahead
from txtopo.spouts.fingerprint import FileStat
from txtopo.spouts.read_ahead import ReadAhead
from txtopo.spouts.settled_files import SettledFile


@pytest.fixture(autouse=True)
def _every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "FILE_BYTES_MIN", 1)


@pytest.fixture
def read_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths that other threads than the planner's opened."""
    found: list[str] = []
    opened = os.open

    def noted(path: Any, *arguments: Any) -> int:
        if threading.current_thread().name == "txtopo-read-ahead":
            found.append(os.path.basename(path))  # noqa: PTH119
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", noted)
    yield found


def file_of(name: str, size: int = 5) -> SettledFile:
    return SettledFile(path=name, stat=FileStat(size=size, mtime_ns=1, inode=1, ctime_ns=1))


class Held:
    """Reads files when the test lets it."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def __call__(self, file: SettledFile) -> str:
        self.read.append(file.path)
        self.begun.release()
        assert self.go.acquire(timeout=30)
        if file.path.startswith("bad"):
            raise OSError("no")
        return file.path.upper()


def test_the_next_files_are_read_in_their_order_while_the_caller_reads_the_first() -> None:
    held = Held()
    ahead = ReadAhead(held, threads=1)
    a, b, bad, d = (file_of(name) for name in ("a", "b", "bad", "d"))

    assert ahead.taken(a, [b, bad, d]) is None
    assert held.begun.acquire(timeout=30)
    held.go.release()
    assert ahead.taken(b, [bad, d]) == "B"
    assert held.begun.acquire(timeout=30)
    held.go.release()
    assert ahead.taken(bad, [d]) is None, "the caller meets the error in the file's turn"
    held.go.release()
    assert ahead.taken(d, []) in ("D", None)
    assert held.read[:2] == ["b", "bad"]
    ahead.close()


def test_a_file_that_no_thread_has_begun_is_left_to_the_caller_and_read_once() -> None:
    held = Held()
    ahead = ReadAhead(held, threads=1)
    a, b, c = (file_of(name) for name in "abc")

    ahead.taken(a, [b, c])
    assert held.begun.acquire(timeout=30)
    assert ahead.taken(c, []) is None
    held.go.release(2)
    ahead.close()
    assert held.read == ["b"]


def test_what_is_read_ahead_is_limited_and_small_files_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "FILE_BYTES_MIN", 5)
    monkeypatch.setattr(read_ahead, "FILES_MAX", 4)
    monkeypatch.setattr(read_ahead, "BYTES_MAX", 20)
    held = Held()
    ahead = ReadAhead(held, threads=1)

    def wanted(sizes: list[int]) -> list[int]:
        ahead.taken(file_of("a"), [file_of(str(at), size) for at, size in enumerate(sizes)])
        return [file.stat.size for file in ahead._readings]

    assert wanted([5, 4, 5, 5, 5, 5]) == [5, 5, 5]
    assert wanted([9, 9, 9]) == [9, 9]
    assert wanted([99, 9]) == [99]
    held.go.release(9)
    ahead.close()


def test_without_room_for_a_thread_the_caller_reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    held = Held()
    ahead = ReadAhead(held, threads=2)
    assert [ahead.taken(file_of(name), [file_of("b")]) for name in "ab"] == [None, None]
    assert held.read == []


def test_a_planner_that_is_closed_while_it_plans_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for files for as long as the process runs."""
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    ahead = ReadAhead(Held(), threads=2)
    ahead.close()

    assert ahead.taken(file_of("a"), [file_of("b"), file_of("c")]) is None
    assert started == []
    assert ahead.taken(file_of("b"), []) is None


def test_of_a_large_batch_only_the_files_that_may_be_read_ahead_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all of them, planning would take time by the square of their number."""
    passed: list[int] = []
    monkeypatch.setattr(ReadAhead, "taken", lambda self, file, following: passed.append(len(following)))
    for number in range(20):
        write(tmp_path / f"{number:02}.csv")

    assert len(Driver(tmp_path, files_per_batch=20).settled()) == 1

    assert passed == [*[read_ahead.FILES_MAX] * 12, *range(7, -1, -1)]


@pytest.mark.parametrize("files_per_batch", [1, 3])
def test_plans_are_the_same_with_and_without_reading_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_elsewhere: list[str], files_per_batch: int
) -> None:
    for number in range(12):
        write(tmp_path / f"{number:02}.csv", CONTENT + f"0x{number},{number}\n" * number)
    whole = ReadAhead.taken

    def taken(self: Any, file: SettledFile, following: Any) -> Any:
        result = whole(self, file, following)
        for reading in list(self._readings.values())[:1]:  # Else the planner may be faster, with files so small.
            assert reading.done.wait(30)
        return result

    monkeypatch.setattr(ReadAhead, "taken", taken)
    ahead = Driver(tmp_path, files_per_batch=files_per_batch).settled()
    assert len(read_elsewhere) == 11
    monkeypatch.setattr(read_ahead, "FILE_BYTES_MIN", 1 << 60)
    read_elsewhere.clear()

    assert Driver(tmp_path, files_per_batch=files_per_batch).settled() == ahead
    assert not read_elsewhere


@pytest.mark.parametrize("files_per_batch", [1, 2])
def test_a_file_that_changes_after_it_was_read_ahead_has_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_per_batch: int
) -> None:
    """Its fingerprint would be that of content which nobody will ever read."""
    write(tmp_path / "a.csv")
    later = write(tmp_path / "b.csv")
    whole = ReadAhead.taken
    changed: list[Any] = []

    def taken(self: Any, file: SettledFile, following: Any) -> Any:
        result = whole(self, file, following)
        if file.path == str(later) and not changed:
            changed.append(result)
            write(later, CONTENT.replace("1", "2"))
        elif following:
            next(iter(self._readings.values())).done.wait(30)
        return result

    monkeypatch.setattr(ReadAhead, "taken", taken)
    driver = Driver(tmp_path, files_per_batch=files_per_batch)

    assert names(driver.settled()) == [["a.csv"]]
    assert changed != [None]
    ((second,),) = (batch["files"] for batch in driver.settled())
    assert second["sha256"] == hashlib.sha256(later.read_bytes()).hexdigest()


def test_the_error_of_the_first_file_that_cannot_be_planned_comes_first(tmp_path: Path) -> None:
    """However soon a later one was read."""
    for name in ("b.csv", "c.csv", "d.csv"):
        write(tmp_path / name, "distance\n1\n")
    write(tmp_path / "a.csv")
    driver = Driver(tmp_path)

    driver.look()
    driver.now += 2.0
    assert driver.look()
    assert names([driver.coordinator.initialize_transaction(1, None)]) == [["a.csv"]]
    for _ in range(2):
        assert driver.look()
        with pytest.raises(BatchDataError, match=r"b\.csv: column 'carrier' is missing"):
            driver.coordinator.initialize_transaction(2, None)


def test_threads_end_with_the_coordinator(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name)
    driver = Driver(tmp_path)
    before = set(threading.enumerate())
    driver.settled()
    threads = set(threading.enumerate()) - before

    driver.coordinator.close()

    for thread in threads:
        thread.join(30)
    assert threads and not any(thread.is_alive() for thread in threads)
