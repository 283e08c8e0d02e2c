"""Which files were input before: looked up in the ledger, with bounded memory, whatever the ledger holds."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_file_spout import CONTENT, Driver, names, write
from txtopo.errors import PostgresUnavailable
from txtopo.spouts import consumed_files, matching_files, settled_files
from txtopo.spouts.consumed_files import ConsumedFiles
from txtopo.spouts.fingerprint import FileStat
from txtopo.topology import consumed_inputs
from txtopo.topology.components import SpoutContext
from txtopo.topology.consumed_inputs import ConsumedInputs

FILES = 100_000


class Ledger:
    """A ledger with made-up rows: a path is in it if the test says so. Counts what is asked."""

    def __init__(self, rows: Mapping[str, bytes] | None = None) -> None:
        self.rows = dict(rows or {})
        self.asked: list[int] = []
        self.away = 0

    def among(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        if self.away:
            self.away -= 1
            raise PostgresUnavailable("gone")
        self.asked.append(len(paths))
        assert "\0" not in "".join(paths).encode().decode()  # as a statement needs it
        return {path: self.rows[path] for path in paths if path in self.rows}

    def new_among(self, paths: Sequence[str]) -> set[str]:
        return {*paths} - self.among(paths).keys()

    def after(self, path: str, count: int) -> Sequence[tuple[str, bytes]]:
        self.asked.append(count)
        return [item for item in sorted(self.rows.items()) if item[0] > path][:count]

    def consumed(self, **uncommitted: bytes) -> ConsumedInputs:
        return ConsumedInputs(self.among, self.after, uncommitted, self.new_among)


def context(consumed: Mapping[str, bytes]) -> SpoutContext:
    return SpoutContext(topology="t", spout="s", consumed=consumed, once=False, monotonic=float, say=print)


def stat(number: int) -> FileStat:
    return FileStat(size=number, mtime_ns=number * 10**9, inode=number + 2**40, ctime_ns=number * 10**9 + 2**60)


def paths() -> Iterator[str]:
    return (f"/data/{number // 1000:05}/orders_of_the_day_{number:09}.csv" for number in range(FILES))


def test_a_hundred_thousand_consumed_files_need_few_bytes_and_few_statements() -> None:
    """A dictionary of their paths with states and fingerprints took 470 bytes each besides the paths."""
    files = ConsumedFiles(context(Ledger().consumed()))
    tracemalloc.start()
    for number, path in enumerate(paths()):
        files.note(path, stat(number))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held / FILES < 80, "24 bytes, and twenty thousand that are not sorted yet"
    assert all(files.is_unchanged(path, stat(number)) for number, path in enumerate(paths()) if number % 97 == 0)
    assert not files.is_unchanged(next(paths()), stat(1))


def test_what_is_gone_from_the_source_needs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the paths that the ledger holds, nor the states of files that were moved away."""
    monkeypatch.setattr(consumed_files, "GONE_MAX", 10)
    files = ConsumedFiles(context(Ledger().consumed()))
    for number in range(100):
        files.note(f"/{number}", stat(number))
    files.begin()
    assert all(files.is_unchanged(f"/{number}", stat(number)) for number in range(10))
    files.checked(10)

    assert len(files._states) == 10
    assert all(files.is_unchanged(f"/{number}", stat(number)) for number in range(10))
    assert not files.is_unchanged("/50", stat(50)), "it is compared by content if it comes back"


def test_files_of_this_driver_are_known_until_the_ledger_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned is not mirrored yet: a file must not become input again meanwhile."""
    monkeypatch.setattr(consumed_files, "RECENT_MAX", 4)
    ledger = Ledger()
    files = ConsumedFiles(context(ledger.consumed()))
    for number in range(6):
        files.consume(f"/{number}", stat(number), b"%d" % number)
    ledger.rows = {"/0": b"0"}
    files.checked(6)

    everyone = [f"/{number}" for number in range(6)]
    assert files.new_among([*everyone, "/new"]) == {"/new"}
    assert list(files._recent) == everyone[1:]
    assert files.fingerprints(["/0", "/5"]) == {"/0": b"0", "/5": b"5"}


def test_the_ledger_is_asked_in_pieces_and_only_for_names_that_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumed_inputs, "PATHS_PER_READ", 3)
    ledger = Ledger({f"/{number}": b"f" for number in range(0, 8, 2)})
    consumed = ledger.consumed(**{"/7": b"planned"})

    asked = [*(f"/{number}" for number in range(8)), os.fsdecode(b"/bad\xff"), "/a\0b"]
    assert consumed.among(asked) == {"/0": b"f", "/2": b"f", "/4": b"f", "/6": b"f", "/7": b"planned"}
    assert ledger.asked == [3, 3, 2]
    assert consumed == {"/0": b"f", "/2": b"f", "/4": b"f", "/6": b"f", "/7": b"planned"} and len(consumed) == 5
    assert "/0" in consumed and "/1" not in consumed
    assert consumed and not Ledger().consumed()


def test_what_is_no_text_is_not_called_new() -> None:
    """A custom spout that asks for a `Path` must not take every input for a new one."""
    consumed: Mapping[Any, bytes] = Ledger({"/a": b"f"}).consumed()

    with pytest.raises(TypeError, match=r"ask for str\(path\), not for a PosixPath"):
        _ = Path("/a") in consumed


def test_a_new_driver_reads_only_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows of files that were moved away are never read, and what was found once is not asked for again."""
    monkeypatch.setattr(settled_files, "PATHS_PER_READ", 2)
    monkeypatch.setattr(settled_files, "ASKED_MIN", 100)
    known = [write(tmp_path / f"{name}.csv") for name in "abc"]
    ledger = Ledger({str(path): hashlib.sha256(CONTENT.encode()).digest() for path in known})
    driver = Driver(tmp_path, consumed=ledger.consumed())

    assert not driver.look() and ledger.asked == [2, 1]
    write(tmp_path / "d.csv")
    assert names(driver.settled()) == [["d.csv"]]
    assert driver.settled() == [] and driver.said == []
    assert ledger.asked == [2, 1, 1]


def test_without_the_ledger_no_file_is_taken_for_new(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    ledger = Ledger({str(path): hashlib.sha256(CONTENT.encode()).digest()})
    ledger.away = 2
    driver = Driver(tmp_path, consumed=ledger.consumed(), settled_s=0, once=True)

    for _ in range(2):
        with pytest.raises(PostgresUnavailable):
            driver.look()
    assert not driver.look() and driver.coordinator.is_exhausted() and driver.said == []


@pytest.mark.parametrize("once", [True, False])
def test_an_outage_between_two_files_changes_no_order_and_skips_no_check(tmp_path: Path, once: bool) -> None:
    """The ledger is away for the one statement that reads the fingerprint of a file that has changed."""
    old = write(tmp_path / "b.csv")
    ledger = Ledger({str(old): b"other"})
    everyone = [f"{letter}.csv" for letter in "gfedca"]
    for name in everyone:
        write(tmp_path / name)
    planned = {"path": str(old), "size": 1, "mtime_ns": 1}
    driver = Driver(tmp_path, consumed=ledger.consumed(), recent=[{"files": [planned]}], once=once)
    assert not driver.look()

    ledger.away = 1
    with pytest.raises(PostgresUnavailable):
        driver.look(2.0)

    assert names(driver.batches()) == [[name] for name in sorted(everyone)]
    assert not driver.look(2.0) and driver.coordinator.is_exhausted() is once
    assert driver.said == [f"{str(old)!r} was read before and has other content now: ignored, a path is input once"]


def test_the_last_plans_are_read_only_where_a_consumed_file_is_still_there(tmp_path: Path) -> None:
    """Up to 10,000 of them, before the first batch is planned."""
    path = write(tmp_path / "b.csv")
    ledger = Ledger({str(tmp_path / "a.csv"): b"f"})
    plans: list[Any] = []
    spout = Driver(tmp_path).spout
    read: list[bool] = []

    def recent() -> list[Any]:
        read.append(True)
        return plans

    for expected in (0, 1):
        found = context(ledger.consumed())
        coordinator = spout.open_coordinator(dataclasses.replace(found, recent=recent))
        assert not coordinator.is_ready() and not coordinator.is_ready()
        assert len(read) == expected
        ledger.rows[str(path)] = b"f"


def test_a_consumed_file_that_comes_back_is_compared(tmp_path: Path) -> None:
    """Moved away and back, with one row more: no driver has seen it in this state."""
    path, aside = write(tmp_path / "a.csv"), tmp_path / "_a.csv"
    ledger = Ledger({str(path): hashlib.sha256(CONTENT.encode()).digest()})
    path.rename(aside)
    driver = Driver(tmp_path, consumed=ledger.consumed())
    assert not driver.look()

    aside.rename(path)
    assert driver.settled() == [] and driver.said[1:] == []
    write(path, CONTENT + "AA,2\n").rename(aside)
    driver.look(2.0)
    aside.rename(path)

    assert driver.settled() == []
    assert driver.said[-1].endswith("has other content now: ignored, a path is input once")


def test_a_name_that_a_changing_folder_gives_twice_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POSIX allows it: an entry that is renamed while the folder is read."""
    path = write(tmp_path / "a.csv")
    monkeypatch.setattr(matching_files, "_names_in", lambda *_: iter([path.name, path.name]))

    for settled_s in (0, 2.0):
        assert names(Driver(tmp_path, settled_s=settled_s).settled()) == [["a.csv"]]


def test_a_folder_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of a million names would take as much memory as the driver."""
    for number in range(5):
        write(tmp_path / f"{number}.csv")
    monkeypatch.setattr(matching_files, "NAMES_PER_PIECE", 2)
    pieces: list[int] = []

    def pass_over(folder: str, paths: Sequence[str], inodes: Sequence[int]) -> list[bool]:
        assert inodes == [os.stat(path).st_ino for path in paths] and folder == str(tmp_path)  # noqa: PTH116
        pieces.append(len(paths))
        return [path.endswith("3.csv") for path in paths]

    found = {os.path.basename(path) for path, _ in matching_files.find_files(str(tmp_path), pass_over)}  # noqa: PTH119
    assert (found, pieces) == ({f"{number}.csv" for number in (0, 1, 2, 4)}, [2, 2, 1])


class Turns:
    """A folder with more counted files than a check compares, and which ones each check compared."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int = 20) -> None:
        monkeypatch.setattr(consumed_files, "LOOKED_AT_MAX", 5)
        self.paths = [write(folder / f"{number:02}.csv") for number in range(count)]
        fingerprint = hashlib.sha256(CONTENT.encode()).digest()
        self.looked: list[str] = []
        self._stat = matching_files._stat
        monkeypatch.setattr(matching_files, "_stat", self._noted)
        self.driver = Driver(folder, consumed=dict.fromkeys(map(str, self.paths), fingerprint))
        assert not self.check()[1]

    def _noted(self, path: str) -> Any:
        if path.endswith(".csv"):
            self.looked.append(os.path.basename(path))  # noqa: PTH119
        return self._stat(path)

    def check(self) -> tuple[list[str], bool]:
        """Check once; return the names that were compared, and whether a batch can be cut."""
        self.looked.clear()
        is_ready = self.driver.look(2.0)
        return sorted(self.looked), is_ready


@pytest.mark.parametrize("pattern", ["", "*.csv", "**"])
def test_checks_look_at_counted_files_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """A folder of a million counted files is listed at each check; only some of them are compared."""
    turns = Turns(tmp_path, monkeypatch)
    everyone = [path.name for path in turns.paths]
    turns.driver = Driver(f"{tmp_path}/{pattern}", consumed={str(path): b"f" for path in turns.paths})

    first, _ = turns.check()
    rounds = [sorted(name for _ in range(4) for name in turns.check()[0]) for _ in range(3)]

    assert first == everyone
    assert rounds == [everyone] * 3, "each file once in four checks"
    assert turns.driver.said == []


def test_a_write_to_a_counted_file_is_reported_within_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come late are not counted, and never left out in silence."""
    turns = Turns(tmp_path, monkeypatch)
    for path in turns.paths:
        write(path, CONTENT + "AA,1\n")

    for _ in range(4 + 1):  # The last one settles at the check after its turn.
        assert not turns.check()[1]

    assert len(turns.driver.said) == len(turns.paths)


def test_new_files_and_files_that_replace_counted_ones_are_found_by_the_next_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever's turn it is: the folder itself has their inodes."""
    turns = Turns(tmp_path, monkeypatch)
    write(tmp_path / "new.csv")
    write(tmp_path / "_other", CONTENT + "AA,1\n").rename(turns.paths[7])

    looked, _ = turns.check()
    assert {"new.csv", turns.paths[7].name} <= set(looked)
    assert names([*turns.driver.settled()]) == [["new.csv"]]
    assert len(turns.driver.said) == 1 and "07.csv" in turns.driver.said[0]
