"""What a folder with very many counted files costs: at the start of a driver, and while files are added all day."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_consumed_files import Ledger
from tests.unit.spouts.test_file_spout import CONTENT, names, write
from tests.unit.spouts.test_settled_files import Day
from txtopo.errors import PostgresUnavailable
from txtopo.spouts import consumed_files, fingerprint, matching_files, settled_files
from txtopo.spouts.places import local_place
from txtopo.spouts.stamped_here import StampedHere, changed_s

FINGERPRINT = hashlib.sha256(CONTENT.encode()).digest()


class Folder:
    """A folder of counted files with a driver that has just started, and what its checks ask for."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, count: int = 20, *, recent: int = 0) -> None:
        self.path, self.patch = path, patch
        patch.setattr(consumed_files, "LOOKED_AT_MAX", 5)
        patch.setattr(settled_files, "ASKED_MIN", 1)
        patch.setattr(StampedHere, "covers", lambda *_: True)
        self.stamps: dict[int, float] = {}
        self.today = 1e9
        patch.setattr(settled_files, "changed_s", lambda status: self.stamps[status.st_ino])
        self.files = [self.write(f"{number:03}.csv") for number in range(count)]
        for file in self.files:
            os.utime(file, (1, 1))
        self.today += 3600.0
        self.ledger = Ledger(dict.fromkeys(map(str, self.files), FINGERPRINT))
        self.looked: list[str] = []
        self._stat = matching_files._stat
        patch.setattr(matching_files, "_stat", self._noted)
        plans = [{"files": [{"path": str(file), "size": len(CONTENT), "mtime_ns": 10**9}]} for file in self.files]
        self.recent = plans[count - recent :]
        self.driver = self.new_driver()

    def write(self, name: str, content: str = CONTENT) -> Path:
        """Write a file at the time of the driver's clock."""
        path = write(self.path / name, content)
        driver: Day | None = getattr(self, "driver", None)
        self.stamps[path.stat().st_ino] = self.today if driver is None else driver.today
        return path

    def _noted(self, path: str) -> Iterator[Any]:
        if path.endswith(".csv"):
            self.looked.append(os.path.basename(path))  # noqa: PTH119
        return self._stat(path)

    def new_driver(self, pattern: str = "", **options: Any) -> Day:
        path = self.path / pattern
        return Day(path, today=self.today, consumed=self.ledger.consumed(), recent=self.recent, **options)

    def check(self, after_s: float = 2.0) -> tuple[list[str], bool]:
        """Return the names whose metadata were read, and whether a batch can be cut."""
        self.looked.clear()
        is_ready = self.driver.look(after_s)
        return sorted(self.looked), is_ready

    def round(self) -> list[str]:
        """Return the names whose metadata were read in one round after the first check."""
        return sorted(name for _ in range(len(self.files) // 5) for name in self.check()[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, monkeypatch, recent=3)


@pytest.mark.parametrize("pattern", ["", "*.csv", "**", "**/*.csv"])
def test_the_first_check_reads_the_metadata_of_the_last_planned_files_only(folder: Folder, pattern: str) -> None:
    """A million others are passed over with their names: one read of the ledger says that they were counted."""
    folder.driver = folder.new_driver(pattern)
    first = folder.check()

    assert first == (["017.csv", "018.csv", "019.csv"], False)
    assert folder.ledger.asked == [20]
    assert folder.round() == folder.round() == [file.name for file in folder.files]
    assert folder.ledger.asked == [20] and folder.driver.said == []


def test_new_files_of_the_first_check_are_input_and_late_rows_of_the_last_batches_are_reported(folder: Folder) -> None:
    """What the first check of a `once` run must find before the run ends."""
    for name in ("010_new.csv", "zzz.csv"):
        folder.write(name)
    folder.write("018.csv", CONTENT * 2)
    folder.today += 3600.0
    folder.driver = folder.new_driver(once=True)

    assert names(folder.driver.batches()) == [["010_new.csv"], ["zzz.csv"]]
    assert folder.driver.coordinator.is_exhausted()
    assert len(folder.driver.said) == 1 and "018.csv" in folder.driver.said[0]


def test_a_write_after_the_first_check_is_reported_when_its_turn_comes(folder: Folder) -> None:
    """Nobody has read the metadata of this file before."""
    folder.check()
    folder.write("002.csv", CONTENT * 2)
    folder.round()
    folder.check()

    assert len(folder.driver.said) == 1 and "002.csv" in folder.driver.said[0]


@pytest.mark.parametrize("asked_min", [1, 100])
def test_a_file_that_replaces_one_that_was_left_is_compared_by_the_next_check(folder: Folder, asked_min: int) -> None:
    """Also if its stamps are old, as after a rename on some file systems: the folder has another inode."""
    folder.check()
    folder.patch.setattr(settled_files, "ASKED_MIN", asked_min)
    other = folder.write("_other", CONTENT * 2)
    folder.stamps[other.stat().st_ino] = 1.0
    other.rename(folder.files[4])

    assert "004.csv" in folder.check()[0]
    folder.check()
    assert len(folder.driver.said) == 1 and "004.csv" in folder.driver.said[0]


@pytest.mark.parametrize("unknown", ["file system", "young process"])
def test_where_no_age_is_known_the_first_check_reads_the_metadata_of_all(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, unknown: str
) -> None:
    if unknown == "file system":
        monkeypatch.setattr(StampedHere, "covers", lambda *_: False)
    else:
        folder.today = 0.05
        folder.driver = folder.new_driver()

    assert folder.check(0.0)[0] == [file.name for file in folder.files]
    folder.write("002.csv", CONTENT * 2)
    folder.round()
    folder.check()
    assert len(folder.driver.said) == 1 and "002.csv" in folder.driver.said[0]


def test_if_the_clock_is_set_after_the_first_check_contents_are_compared(folder: Folder) -> None:
    """Then no stamp says whether a file has changed since. All their fingerprints are read together."""
    folder.check()
    folder.write("002.csv", CONTENT * 2)
    folder.driver.today = 0.0

    read: list[str] = []
    compare = fingerprint.read_content

    def noted(descriptor: int, **options: Any) -> Any:
        read.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        return compare(descriptor, **options)

    folder.patch.setattr(local_place, "read_content", noted)
    folder.round()
    folder.check()
    assert sorted(read) == [file.name for file in folder.files[:17]]
    assert len(folder.driver.said) == 1 and "002.csv" in folder.driver.said[0]
    assert len(folder.ledger.asked) <= 1 + 2 * 5, "not one read for each file"


def test_if_the_clock_is_set_after_a_round_metadata_are_compared(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file has had its turn: its state is known, and no stamp matters."""
    folder.check()
    folder.round()
    folder.driver.today = 0.0
    monkeypatch.setattr(local_place, "read_content", lambda *_, **__: pytest.fail("a file was read"))
    folder.round()
    folder.check()
    assert folder.driver.said == []


def test_the_metadata_of_files_that_wait_to_be_planned_are_not_read_again(folder: Folder) -> None:
    """A backlog of a million files: each is compared when it is planned."""
    folder.check()
    new = [folder.write(f"new_{number}.csv").name for number in range(3)]
    assert set(new) <= set(folder.check()[0]) and folder.check()[1], "they settle"

    for _ in range(3):
        looked, is_ready = folder.check()
        assert is_ready and not set(new[1:]) & set(looked), "the first one is planned already"
    assert names(folder.driver.batches()) == [[name] for name in new]


def test_a_first_check_that_failed_takes_no_file_for_new_and_does_not_ask_again(folder: Folder) -> None:
    folder.patch.setattr(matching_files, "NAMES_PER_PIECE", 8)
    among = folder.ledger.among

    def once_away(paths: Sequence[str]) -> Any:
        if len(folder.ledger.asked) == 1 and not folder.ledger.away:
            folder.ledger.away = 2
        folder.ledger.away -= folder.ledger.away > 1
        return among(paths)

    folder.patch.setattr(folder.ledger, "among", once_away)
    folder.driver = folder.new_driver(once=True)
    with pytest.raises(PostgresUnavailable):
        folder.check()
    folder.patch.setattr(folder.ledger, "among", among)
    folder.ledger.away = 0

    assert folder.check() == (["017.csv", "018.csv", "019.csv"], False)
    assert sum(folder.ledger.asked) <= 20 + 3, "what the failed check was told is kept"
    assert folder.driver.coordinator.is_exhausted() and folder.driver.said == []


def test_a_file_that_only_looks_like_one_that_was_counted_is_no_file(folder: Folder) -> None:
    """Hidden names, folders, links and other kinds are judged by their metadata, as ever."""
    folder.write("_hidden.csv")
    (folder.path / "below.csv").mkdir()
    os.mkfifo(folder.path / "pipe.csv")
    (folder.path / "link.csv").symlink_to(folder.files[0])
    folder.today += 3600.0
    folder.driver = folder.new_driver()

    assert folder.check()[1]
    assert names(folder.driver.batches()) == [["link.csv"]]


def test_many_small_folders_are_asked_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement for each of 10,000 folders by day would take longer than their metadata."""
    files = []
    for number in range(30):
        (tmp_path / f"{number}").mkdir()
        files.append(write(tmp_path / f"{number}" / "a.csv"))
    ledger = Ledger(dict.fromkeys(map(str, files), FINGERPRINT))
    monkeypatch.setattr(StampedHere, "covers", lambda *_: True)
    driver = Day(f"{tmp_path}/**", today=changed_s(files[-1].stat()) + 9, consumed=ledger.consumed())  # type: ignore[arg-type]

    assert not driver.look() and not driver.look(2.0)
    assert ledger.asked == [30] and driver.said == []


def test_a_folder_that_gets_files_all_day_costs_the_same_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty times more counted files than a check compares, and new ones at every check: how many metadata are read,
    how often the ledger is asked and for how many names depends on what is new, not on what is there.
    """
    folder = Folder(tmp_path, monkeypatch, count=100)
    monkeypatch.setattr(settled_files, "ASKED_MIN", 200)
    folder.check()
    looked: list[str] = []
    checks = planned = 0
    find_files = matching_files.find_files

    def counted(*arguments: Any) -> Any:
        nonlocal checks
        checks += 1
        return find_files(*arguments)

    monkeypatch.setattr(local_place, "find_files", counted)
    for minute in range(60):
        for number in range(3):
            folder.write(f"{minute:03}_{number}.csv")
        folder.ledger.asked.clear()
        folder.looked.clear()
        folder.driver.look(60.0)
        folder.driver.today, folder.driver.now = folder.driver.today + 2.0, folder.driver.now + 2.0
        batches = folder.driver.batches()
        planned += len(batches)
        looked += folder.looked
        for batch in batches:
            folder.ledger.rows |= {file["path"]: bytes.fromhex(file["sha256"]) for file in batch["files"]}
        assert folder.ledger.asked == [3], "the ledger is asked once, for what is new"

    assert planned == 180 and folder.driver.said == [] and checks <= 60 * 4
    rounds = 5 * checks + 280  # the last round may be unfinished
    assert len(looked) <= rounds + 2 * planned, "each check its share of the counted files, and twice what is new"
    assert len(looked) < 0.2 * checks * 190, "of all that was there"
