"""A redo of a batch of files: the same files as they are now, without moving the source."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_file_spout import CONTENT, Driver, names, write
from txtopo.errors import BatchDataError
from txtopo.spouts import fingerprint
from txtopo.spouts.places import local_place


def redo(driver: Driver, batch: Any) -> Any:
    return driver.coordinator.initialize_redo(batch)


def test_a_redo_reads_the_same_files_as_they_are_now(tmp_path: Path) -> None:
    """The same paths in the same order, with fingerprints, headers, schema and format as they are now."""
    first = write(tmp_path / "b.csv")
    second = write(tmp_path / "c.csv")
    old = Driver(tmp_path, files_per_batch=2)
    (batch,) = old.settled()
    write(tmp_path / "a.csv")
    write(first, 'x;distance;carrier\n;2;"A"\n')
    driver = Driver(
        tmp_path, consumed={str(first): b"old", str(second): b"old"}, fields="distance bigint", delimiter=";"
    )
    write(second, "distance\n1\n")

    again = redo(driver, batch)

    assert names([again]) == [["b.csv", "c.csv"]]
    assert again["schema"] == "`distance` bigint"
    assert again["format"]["delimiter"] == ";"
    assert again["headers"] == [["x", "distance", "carrier"], ["distance"]]
    described = again["files"][0]
    status = first.stat()
    assert described == {
        "path": str(first),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
        "ctime_ns": status.st_ctime_ns,
        "sha256": hashlib.sha256(first.read_bytes()).hexdigest(),
        "quotes": True,
        "nul": False,
        "hexadecimal": False,
        "header": 0,
        "data": 19,
    }


def test_a_redo_of_an_unchanged_batch_has_its_metadata(tmp_path: Path) -> None:
    for name, content in (("a.csv", CONTENT), ("b.csv", ""), ("c.csv", "distance,carrier\n")):
        write(tmp_path / name, content)
    driver = Driver(tmp_path, files_per_batch=3)
    (batch,) = driver.settled()

    assert redo(driver, batch) == batch


def test_a_redo_never_moves_the_source(tmp_path: Path) -> None:
    """What waits goes on waiting, what was redone is no input again, and it is not said to have changed."""
    first = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    (batch,) = driver.settled()
    write(tmp_path / "b.csv")
    driver.look()
    write(first, CONTENT * 2)
    driver.look()

    redo(driver, batch)

    driver.now += 2.0
    assert names(driver.batches()) == [["b.csv"]]
    assert driver.settled() == []
    assert driver.said == []
    write(first, CONTENT * 3)
    assert driver.settled() == []
    assert len(driver.said) == 1


@pytest.mark.parametrize("kind", ["gone", "folder", "fifo", "under a file"])
def test_a_redo_of_a_file_that_is_gone_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.csv")
    driver = Driver(folder, files_per_batch=2)
    write(folder / "b.csv")
    (batch,) = driver.settled()
    (folder / "b.csv").unlink()
    if kind == "folder":
        (folder / "b.csv").mkdir()
    elif kind == "fifo":
        os.mkfifo(folder / "b.csv")
    elif kind == "under a file":
        (folder / "a.csv").unlink()
        folder.rmdir()
        write(folder)

    with pytest.raises(BatchDataError, match=r"[ab]\.csv: cannot be read again, there is no file") as error:
        redo(driver, batch)

    assert error.value.component == "lines"


def test_a_redo_without_a_column_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """The watch says of the file what it would have said anyway."""
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    (batch,) = driver.settled()
    write(path, "carrier\nUA\n")

    with pytest.raises(BatchDataError, match=r"a\.csv: column 'distance' is missing"):
        redo(driver, batch)

    assert driver.settled() == []
    assert len(driver.said) == 1


def test_a_redo_of_a_file_that_is_being_written_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    (batch,) = driver.settled()
    read_content = fingerprint.read_content

    def read_and_write(descriptor: int, *scan: Any) -> Any:
        content = read_content(descriptor, *scan)
        write(path, CONTENT * 2)
        return content

    monkeypatch.setattr(local_place, "read_content", read_and_write)
    with pytest.raises(OSError, match=r"a\.csv: the file is still changing"):
        redo(driver, batch)
    monkeypatch.undo()

    assert redo(driver, batch)["files"][0]["size"] == len(CONTENT * 2)
