"""The coordinator half of the file source: what is input, when, in which order, and what the plan says of it."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import math
import os
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kit.files import rewrite_in_place
from txtopo.audit.recount import recount
from txtopo.audit.unbatched_files import files_of as unbatched
from txtopo.errors import BatchDataError, InvariantBroken, TopologyError
from txtopo.spouts import consumed_files, file_coordinator, fingerprint
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.matching_files import find_files, means
from txtopo.topology.components import SpoutContext, SpoutCoordinator, Tally

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


def test_files_are_taken_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.csv", "B.csv"):
        write(tmp_path / name)

    assert names(Driver(tmp_path).settled()) == [["B.csv"], ["a.csv"], ["b.csv"], ["c.csv"]]


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
        ("s3://bucket/x/*.csv", "URL of scheme s3"),
        ("S3A://bucket/x", "URL of scheme S3A"),
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


def test_metadata_names_files_header_schema_and_fingerprints(tmp_path: Path) -> None:
    """Metadata of a batch: file names with size, mtime and content fingerprint, the header and the declared schema;
    JSON only.
    """
    first = write(tmp_path / "a.csv", "\ufeffdistance,carrier,x\r\n1,UA,\r\n")
    second = write(tmp_path / "b.csv", 'carrier,distance\n"U\0A",1\n')
    third = write(tmp_path / "c.csv", "")
    write(tmp_path / "d.csv", "distance,carrier,x\n")
    driver = Driver(tmp_path, files_per_batch=9)

    (batch,) = driver.settled()

    assert json.loads(json.dumps(batch)) == batch
    assert batch["format"] == {"kind": "csv", "delimiter": ",", "null_values": [""], "part_bytes": 64 * 1024 * 1024}
    assert batch["schema"] == "`carrier` string, `distance` int"
    assert batch["headers"] == [["distance", "carrier", "x"], ["carrier", "distance"]]
    files = batch["files"]
    assert [file["header"] for file in files] == [0, 1, None, 0]
    assert [(file["quotes"], file["nul"], file["data"]) for file in files] == [
        (False, False, 23),
        (True, True, 17),
        (False, False, 0),
        (False, False, 19),
    ]
    for file, path in zip(files, (first, second, third), strict=False):
        status = path.stat()
        assert (file["path"], file["size"], file["mtime_ns"], file["inode"], file["ctime_ns"]) == (
            str(path),
            status.st_size,
            status.st_mtime_ns,
            status.st_ino,
            status.st_ctime_ns,
        )
        assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    inputs = driver.spout.inputs(batch)
    assert [(found.path, found.fingerprint.hex()) for found in inputs] == [
        (file["path"], file["sha256"]) for file in files
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"carrier,dist\nUA,1\n", r"column 'distance' is missing; the header has 'carrier', 'dist'"),
        (b"carrier,distance,carrier\n", r"column 'carrier' stands 2 times"),
        (b'"carrier,distance\n', r"not closed"),
        (b"carrier,distance,\xff\n", r"not UTF-8"),
        (b"\x1f\x8b\x08\x00", r"gzip, not UTF-8 text; convert it, and deliver it under a new name \(docs/files\.md\)$"),
        (b"carrier;distance\nUA;1\n", r"is ';' its delimiter\? Say FileSpout\(…, delimiter=';'\)"),
        (b"\xfd7zXZ\x00\x00\x04", r"xz"),
        (b"BZh91AY&SY\x00", r"bzip2"),
        (b"PAR1\x15\x04\x15\x10", r"Parquet"),
        ("carrier,distance\n".encode("utf-32"), r"UTF-32"),
        (b'{"carrier": "UA", "distance": 1}\n', r"looks like JSON"),
        (b'[{"carrier": "UA"}]\n', r"looks like JSON"),
        (b"May 16 10:05:00 host kernel: up, and more\n", r"has the file no header line\?"),
        (b"Carrier , distanCE\n", r"exactly, including blanks and case"),
        (b"x" * 3000 + b",y\n", r"missing; the header has 'x{300,400}…;"),
        ("carrier,distance\nUA,1\n".encode("utf-16-le"), r"column 'carrier' is missing; the header has 'c\\x00a"),
        ("carrier,distance\n".encode("utf-16"), r"UTF-16"),
        (b"x" * 2_000_000, r"header record is longer"),
    ],
)
def test_a_file_without_a_fitting_header_cannot_be_a_batch(tmp_path: Path, content: bytes, complaint: str) -> None:
    """A missing column halts with file and column; asking again gives the same answer, the file is never skipped."""
    (tmp_path / "a.csv").write_bytes(content)
    driver = Driver(tmp_path, once=True)

    for _ in range(2):
        with pytest.raises(BatchDataError, match=rf"a\.csv: .*{complaint}") as error:
            driver.settled()
        assert error.value.component == "lines"
        assert error.value.position == f"{tmp_path / 'a.csv'}:1"
        assert not driver.coordinator.is_exhausted()


@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_anything_in_it_is_a_batch_without_records(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)

    (batch,) = Driver(tmp_path).settled()

    assert (batch["headers"], batch["files"][0]["header"]) == ([], None)
    tally = Tally()
    spout = FileSpout(tmp_path, FIELDS)
    assert [list(spout.emit_part(batch, part, tally)) for part in spout.parts(batch)] == [[]]
    assert tally.read == 0
    assert recount(batch, [], lambda path: iter(()))[0].records == 0


@pytest.mark.parametrize("names", ["PAR1,distance", "BZhou,distance", "ORC,distance"])
def test_a_header_may_begin_with_the_letters_of_another_format(tmp_path: Path, names: str) -> None:
    write(tmp_path / "a.csv", f"{names}\nUA,1\n")

    assert len(Driver(tmp_path, fields="distance int").settled()) == 1


def test_files_before_a_bad_one_are_a_batch_and_the_repaired_one_follows(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    bad = write(tmp_path / "b.csv", "carrier\n")
    driver = Driver(tmp_path, files_per_batch=5)
    driver.look()

    assert driver.look(2.0)
    assert names([driver.coordinator.initialize_transaction(1, None)]) == [["a.csv"]]
    assert driver.look()
    with pytest.raises(BatchDataError):
        driver.coordinator.initialize_transaction(2, None)
    write(bad)

    driver.look()
    assert names(driver.settled()) == [["b.csv"]]


@pytest.mark.parametrize("changed", [(write, CONTENT * 2), (rewrite_in_place, CONTENT.replace("1", "2"))])
def test_a_file_that_changes_while_it_is_hashed_has_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: tuple[Any, str]
) -> None:
    change, content = changed
    path = write(tmp_path / "a.csv")
    driver = Driver(tmp_path)
    read_content = fingerprint.read_content

    def read_and_write(descriptor: int, **options: bool) -> Any:
        found = read_content(descriptor, **options)
        change(path, content)
        return found

    monkeypatch.setattr(file_coordinator, "read_content", read_and_write)
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

    def read_and_write(descriptor: int, **options: bool) -> Any:
        content = read_content(descriptor, **options)
        write(path, CONTENT * 2)
        return content

    monkeypatch.setattr(file_coordinator, "read_content", read_and_write)
    with pytest.raises(OSError, match=r"a\.csv: the file is still changing"):
        redo(driver, batch)
    monkeypatch.undo()

    assert redo(driver, batch)["files"][0]["size"] == len(CONTENT * 2)


def test_the_size_of_a_batch_is_that_of_its_files(tmp_path: Path) -> None:
    """Waves are bounded by bytes, which the plan knows."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(CONTENT)
    driver = Driver(tmp_path, files_per_batch=2)

    (batch,) = driver.settled()

    assert driver.spout.batch_bytes(batch) == 2 * len(CONTENT)
