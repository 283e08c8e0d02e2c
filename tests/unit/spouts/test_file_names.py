"""Which files are input: their order, names, patterns, links and hidden ones, and what cannot be read."""

from __future__ import annotations

import errno
import glob
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_file_spout import CONTENT, FIELDS, Driver, names, write
from txtopo.audit.unbatched_files import files_of as unbatched
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts import file_coordinator
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.matching_files import find_files, means


def test_files_are_taken_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.csv", "B.csv"):
        write(tmp_path / name)

    assert names(Driver(tmp_path).settled()) == [["B.csv"], ["a.csv"], ["b.csv"], ["c.csv"]]


def test_hidden_names_folders_fifos_and_dead_links_are_no_input(tmp_path: Path) -> None:
    """Names that start with _ or . are no input; directories, FIFOs and devices are none; links to files are."""
    target = write(tmp_path / "_elsewhere")
    for name in (".hidden.csv", "_SUCCESS"):
        write(tmp_path / name)
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "device.csv").symlink_to("/dev/null")
    (tmp_path / "dead.csv").symlink_to(tmp_path / "gone")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    (tmp_path / "link.csv").symlink_to(target)

    assert names(Driver(tmp_path).settled()) == [["link.csv"]]


@pytest.mark.parametrize(
    "name", ["a[1]*?.csv", "with blank.csv", "new\nline.csv", "a:b%20.csv", "umläut.csv", "'\"; drop.csv"]
)
def test_strange_names_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    """Names of files are never patterns, URLs or SQL."""
    folder = tmp_path / "in[put]*"
    folder.mkdir()
    write(folder / name)

    (batch,) = Driver(folder).settled()

    assert batch["files"][0]["path"] == str(folder / name)


def test_a_pattern_selects_files(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.txt", "_d.csv"):
        write(tmp_path / name)

    assert names(Driver(f"{tmp_path}/*.csv").settled()) == [["a.csv"], ["b.csv"]]
    assert names(Driver(tmp_path / "c.txt").settled()) == [["c.txt"]]


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver, started in another folder, reads the same files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.csv")

    (batch,) = Driver("in").settled()

    assert batch["files"][0]["path"] == str(tmp_path / "in" / "a.csv")


def test_a_missing_folder_is_trouble_that_may_pass(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "later")
    with pytest.raises(FileNotFoundError, match="later"):
        driver.look()

    (tmp_path / "later").mkdir()
    write(tmp_path / "later" / "a.csv")

    assert len(driver.settled()) == 1


def test_a_name_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.csv")).write_text(CONTENT)
    driver = Driver(tmp_path)

    with pytest.raises(BatchDataError, match=r"bad\\xff\.csv.*not UTF-8"):
        driver.settled()


def test_a_path_that_cannot_be_remembered_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_coordinator, "PATH_BYTES_MAX", len(str(tmp_path)) + 6)
    write(tmp_path / "a.csv")
    write(tmp_path / "bb.csv")
    driver = Driver(tmp_path)

    with pytest.raises(BatchDataError, match=r"bb\.csv.*longer than"):
        driver.settled()


@pytest.mark.parametrize(
    ("below", "hint"),
    [("", "the folder is empty"), ("sub", "it holds folders"), ("nowhere/*.csv", ""), ("hidden", "start with `_`")],
)
def test_a_once_run_that_finds_nothing_where_nothing_ever_was_is_no_success(
    tmp_path: Path, below: str, hint: str
) -> None:
    """A typo in a path must not look like a source without news, each time it is asked."""
    (tmp_path / "sub" / "in").mkdir(parents=True)
    write(tmp_path / "sub" / "in" / "a.csv")
    (tmp_path / "hidden").mkdir()
    write(tmp_path / "hidden" / "_a.csv")
    (tmp_path / "empty").mkdir()
    path = tmp_path / (below or "empty")
    # What was consumed under another path says nothing about this one.
    driver = Driver(path, once=True, consumed={"/elsewhere/a.csv": b"x"})

    for _ in range(2):
        with pytest.raises(FileNotFoundError) as error:
            driver.look(2.0)
    assert str(error.value).startswith(f"no file matches '{path}'") and hint in str(error.value)
    assert "may_be_empty=True" in str(error.value)


@pytest.mark.parametrize("pattern", ["", "*.csv", "**/*.csv"])
def test_a_path_whose_files_were_counted_and_moved_away_has_an_end(tmp_path: Path, pattern: str) -> None:
    """Nothing new is the normal end, and it is said that nothing is there."""
    driver = Driver(f"{tmp_path}/{pattern}", once=True, consumed={str(tmp_path / "a.csv"): b"x"})

    assert not driver.look() and driver.coordinator.is_exhausted()
    assert [line.endswith("now; all that did are counted") for line in driver.said] == [True]


def test_a_pattern_walks_folders_as_glob_does(tmp_path: Path) -> None:
    for path in ("a.csv", "x/b.csv", "x/y/c.csv", "x/y/d.txt", ".dot/e.csv", "x/.g.csv", "x[1]/h.csv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / path)
    for pattern in ("**/*.csv", "*/*.csv", "**", "x/**", "x/**/*", "*/y/?.csv", "[ax]*/*.csv", "x/*/c.csv", "**/y/**"):
        expected = {
            path
            for path in glob.glob(f"{tmp_path}/{pattern}", recursive=True)  # noqa: PTH207
            if Path(path).is_file() and not Path(path).name.startswith(("_", "."))
        }
        found = [path for path, _ in find_files(f"{tmp_path}/{pattern}")]
        assert set(found) == expected and len(found) == len(expected), pattern
        assert all(means(f"{tmp_path}/{pattern}", path) for path in expected)
        assert not means(f"{tmp_path}/{pattern}", "/elsewhere/a.csv")


def test_hidden_folders_are_walked_by_their_name_alone(tmp_path: Path) -> None:
    """What Spark writes lies below `_temporary` first and is renamed then: it would be counted under both names."""
    for path in ("a.csv", "_temporary/0/part-0.csv", "x/_y/b.csv", ".z/c.csv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / path)

    for pattern, found in {
        "**/*.csv": ["a.csv"],
        "**": ["a.csv"],
        "*/*.csv": [],
        "x/**": [],
        "[_x]*/*/*.csv": [],
        "_temporary/**": ["_temporary/0/part-0.csv"],
        "_*/*/*.csv": ["_temporary/0/part-0.csv"],
        "x/_y/*": ["x/_y/b.csv"],
        ".*/*.csv": [".z/c.csv"],
    }.items():
        assert [path for path, _ in find_files(f"{tmp_path}/{pattern}")] == [f"{tmp_path}/{name}" for name in found], (
            pattern
        )
        assert sorted(unbatched(f"{tmp_path}/{pattern}")) == [f"{tmp_path}/{name}" for name in found], pattern


def test_a_link_to_a_folder_above_is_walked_once(tmp_path: Path) -> None:
    """Else its files were counted under every path that leads to them."""
    (tmp_path / "in" / "x").mkdir(parents=True)
    write(tmp_path / "in" / "x" / "a.csv")
    (tmp_path / "in" / "x" / "again").symlink_to(tmp_path / "in")

    assert names(Driver(f"{tmp_path}/in/**/*.csv").settled()) == [["a.csv"]]
    assert list(unbatched(f"{tmp_path}/in/**/*.csv")) == [f"{tmp_path}/in/x/a.csv"], "an audit names no others"


@pytest.mark.parametrize("pattern", ["", "*.csv", "**/*.csv"])
def test_a_folder_that_cannot_be_listed_is_trouble_and_no_file_less(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.csv")
    driver = Driver(f"{tmp_path}/{pattern}", once=True)
    scandir = os.scandir

    def away(path: str) -> Any:
        raise OSError(errno.ESTALE, "Stale file handle", path)

    monkeypatch.setattr(os, "scandir", away)
    with pytest.raises(OSError, match="Stale file handle"):
        driver.look()
    monkeypatch.setattr(os, "scandir", scandir)

    assert len(driver.settled()) == 1


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("hdfs:/data", "URL of scheme hdfs"),
        ("file:///data/in", "write '/data/in'"),
        ("file:/data/in", "write '/data/in'"),
        ("kafka:topic", "URL of scheme kafka"),
        ("jdbc:postgresql://host/db", "URL of scheme jdbc"),
        ("~nobody-of-that-name/x", "names the home of an unknown user"),
    ],
)
def test_what_is_no_path_of_a_file_system_is_refused_by_name(path: str, words: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(words)):
        FileSpout(path, FIELDS)


def test_a_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert FileSpout("~/in/*.csv", FIELDS).path == f"{tmp_path}/in/*.csv"
    assert FileSpout("./s3:/x", FIELDS).path.endswith("/s3:/x")
