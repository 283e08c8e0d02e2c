"""The audit counts lines of growing files again with its own code, wherever rotation has put them: never MATCH for
other bytes.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tails import Log, Reading
from txtopo.audit import range_files
from txtopo.audit.born import born_ns
from txtopo.audit.recount import ChangedError, UnknownSourceError, UnreadableError, recount
from txtopo.audit.recount_rejects import KeptReject
from txtopo.formats import Json
from txtopo.reports.stored_description import CommitterTables


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "app.log")


def recounted(reading: Reading, index: int) -> list[Any]:
    """The values of the first field in a batch, as the audit reads them."""
    spout = reading.spout
    committer = CommitterTables(
        name="c",
        target="public.t",
        keys=tuple(field.name for field in spout.fields.items),
        count="n",
        aggregates=(),
        contributions=True,
        spout="log",
        way="direct",
        alone=False,
    )
    kept = [
        KeptReject(line=one.line, reason=one.reason, raw=one.raw, raw_bytes=one.raw_bytes)
        for one in reading.tally.rejects
        if index == 0
    ]
    found, (totals,) = recount(reading.plans[index], [committer], lambda path: iter(kept))
    assert not found.judged.wrong.lines
    return sorted((*key, *count) for key, count in totals.items())


def test_lines_are_recounted_wherever_they_are_now(log: Log) -> None:
    """In the file, in the renamed one, in an archive, in a copy; numbered from the start of their file."""
    reading = Reading(log.path, "line string, _line bigint")
    log.write("a", "b")
    reading.look_all()
    log.write("c")
    log.rename()
    log.write("d")
    reading.look_all()
    log.compress(1)
    log.copytruncate()
    log.write("e")
    reading.look_all()

    assert recounted(reading, 0) == [("a", 1, 1), ("b", 2, 1)]
    assert recounted(reading, 1) == [("c", 3, 1), ("d", 1, 1)]
    assert recounted(reading, 2) == [("e", 1, 1)]


def test_path_line_and_time_are_recounted(log: Log) -> None:
    reading = Reading(log.path, "line string, _file string, _line bigint, _modified timestamp")
    log.write("a")
    reading.look_all()
    log.write("b")
    os.utime(log.path, ns=(0, 1_500_000_000_000_000_000))
    reading.look_all()
    log.rename()

    assert recounted(reading, 1) == [("b", str(log.path), 2, datetime(2017, 7, 14, 2, 40, tzinfo=UTC), 1)]


def test_rejected_lines_are_judged_by_their_number_in_the_file(log: Log) -> None:
    reading = Reading(log.path, "id bigint", format=Json())
    log.write('{"id": 1}', "no")
    reading.look_all()
    log.write('{"id": 3}')
    reading.look_all()

    assert recounted(reading, 0) == [(1, 1)]
    assert recounted(reading, 1) == [(3, 1)]


def test_a_mark_in_the_middle_of_a_file_belongs_to_its_line(log: Log) -> None:
    reading = Reading(log.path)
    log.path.write_bytes(b"\xef\xbb\xbfa\n")
    reading.look_all()
    with log.path.open("ab") as file:
        file.write(b"\xef\xbb\xbfb\n")
    reading.look_all()

    assert reading.rows == [["a"], ["\ufeffb"]]
    assert [recounted(reading, index) for index in (0, 1)] == [[("a", 1)], [("\ufeffb", 1)]]


def test_other_bytes_in_their_place_are_a_difference(log: Log) -> None:
    log.write(*["abc"] * 1000)
    reading = Reading(log.path)
    reading.look_all()
    data = bytearray(log.path.read_bytes())
    data[2000] = ord("X")
    log.path.write_bytes(data)

    with pytest.raises(ChangedError, match=r"bytes 0 to 4000 of .* are not those that were planned"):
        recounted(reading, 0)


@pytest.mark.parametrize("truncated", [False, True])
def test_lines_that_are_nowhere_are_not_known(log: Log, truncated: bool) -> None:
    """A log that was truncated has another content from then on: that is no change of what was read."""
    log.write("a", "b")
    reading = Reading(log.path)
    reading.look_all()
    log.path.write_text("x\ny\nz\n") if truncated else log.path.unlink()

    with pytest.raises(UnreadableError, match="are in no file any more"):
        recounted(reading, 0)


def test_a_source_with_other_ranges_is_not_known(log: Log) -> None:
    log.write("a")
    reading = Reading(log.path)
    reading.look_all()
    reading.plans[0]["partitions"] = [{"range": {"start": 0, "end": 5}}]

    with pytest.raises(UnknownSourceError):
        recounted(reading, 0)


HOUR_NS = 3_600_000_000_000


@pytest.fixture
def long_log(log: Log) -> Reading:
    """A log of 4,000 bytes that was read, and was written to an hour ago."""
    log.write(*["abc"] * 1000)
    now = log.path.stat().st_mtime_ns
    os.utime(log.path, ns=(now - HOUR_NS, now - HOUR_NS))
    reading = Reading(log.path)
    reading.look_all()
    return reading


def as_if_born(monkeypatch: pytest.MonkeyPatch, reading: Reading, after_s: float | None) -> None:
    """As if its file was made so long after its lines were written; None: nobody knows."""
    written = reading.plans[0]["partitions"][0]["range"]["mtime_ns"]
    born = None if after_s is None else written + int(after_s * 1_000_000_000)
    monkeypatch.setattr(range_files, "born_ns", lambda descriptor: born)


@pytest.mark.parametrize("now_there", ["abc\n" * 999 + "xyz\n", "abc\n" * 990, "abc\n" * 300 + "other " * 2000])
def test_another_file_with_the_inode_and_the_first_bytes_of_a_removed_one_is_no_change(
    log: Log, long_log: Reading, now_there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made after the lines were planned. One that was there before was changed."""
    log.path.write_text(now_there)
    for after_s, expected, words in (
        (0.004, UnreadableError, "its rotated file removed$"),
        (None, UnreadableError, "nobody knows whether it was changed or is another one$"),
        (0, ChangedError, "are not those that were planned"),
        (-5, ChangedError, "are not those that were planned"),
    ):
        as_if_born(monkeypatch, long_log, after_s)
        with pytest.raises(expected, match=words):
            recounted(long_log, 0)


def test_lines_that_were_changed_before_their_last_bytes_are_a_difference_wherever_files_have_no_age(
    log: Log, long_log: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_if_born(monkeypatch, long_log, None)
    text = log.path.read_text()
    log.path.write_text(text[:2000] + "X" + text[2001:])
    with pytest.raises(ChangedError, match="are not those that were planned"):
        recounted(long_log, 0)


def test_the_system_says_when_a_file_was_made(tmp_path: Path) -> None:
    """Or nothing, but never another time: what is written to it later does not change it."""
    path = tmp_path / "a"
    path.touch()
    made = path.stat().st_mtime_ns
    with path.open("r+b") as file:
        os.utime(path, ns=(0, made + HOUR_NS))
        assert abs((born_ns(file.fileno()) or made) - made) < 1_000_000_000
        file.write(b"x")
        file.flush()
        assert (born_ns(file.fileno()) or made) <= path.stat().st_ctime_ns
    assert born_ns(-1) is None
