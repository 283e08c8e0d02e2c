"""Growing files: every whole line once, whatever rotation does between two looks, and the same lines in every attempt
(K7, R12).
"""

from __future__ import annotations

import gzip
import os
import pickle
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tails import Log, Reading
from txtopo import CountCommitter, TailSpout, TopologyBuilder
from txtopo.errors import BatchDataError, TopologyError
from txtopo.formats import Csv, Json, Pattern
from txtopo.spouts import NOTHING
from txtopo.spouts.stamped_here import StampedHere
from txtopo.spouts.tail.tail_coordinator import TailCoordinator
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Tally


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "app.log")


def test_whole_lines_become_batches_while_the_file_grows(log: Log) -> None:
    """A line without its end waits; ranges tile, and lines are numbered from the start of the file."""
    reading = Reading(log.path, "line string, _line bigint")
    log.write("a", "b")
    assert reading.look_all() == ["a", "b"]
    log.write("c", "d", end="")
    assert reading.look_all() == ["c"]
    log.write("", "e")
    assert reading.look_all() == ["d", "e"]
    assert reading.look_all() == []

    ranges = [plan["partitions"][0]["range"] for plan in reading.plans]
    assert [(one["start"], one["end"], one["line"], one["lines"]) for one in ranges] == [
        (0, 4, 1, 2),
        (4, 6, 3, 1),
        (6, 10, 4, 2),
    ]
    numbers = [
        number
        for plan in reading.plans
        for batch in reading.spout.emit_part(plan, reading.spout.parts(plan)[0], Tally())
        for number in batch.column(1).to_pylist()
    ]
    assert numbers == [1, 2, 3, 4, 5]
    reading.replay_all()


def test_a_batch_has_about_so_many_bytes_and_cuts_no_line(log: Log) -> None:
    log.write(*(f"line {number:03}" for number in range(300)))
    reading = Reading(log.path, bytes_per_batch=1000)

    assert reading.look_all() == log.written
    assert [len(rows) for rows in reading.rows] == [112, 112, 76]
    reading.replay_all()


def test_a_new_leader_goes_on_where_the_last_batch_ends(log: Log) -> None:
    reading = Reading(log.path)
    log.write("a")
    reading.look_all()
    log.write("b")
    reading.restart()

    assert reading.look_all() == ["b"]


@pytest.mark.parametrize("rotate", ["rename", "copytruncate"])
@pytest.mark.parametrize("seen", [False, True], ids=["restarted", "watching"])
def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_start(log: Log, rotate: str, seen: bool) -> None:
    """What was written before the rotation, and not read yet, is in the rotated file; also its last line."""
    reading = Reading(log.path)
    log.write("a")
    reading.look_all()
    log.write("b")
    log.write("c", end="")
    getattr(log, rotate)()
    log.write("d")
    if not seen:
        reading.restart()

    assert sorted(reading.look_all()) == ["b", "c", "d"]
    log.compress(1)
    log.write("e")
    assert reading.look_all() == ["e"]
    reading.replay_all()


def test_two_rotations_while_no_driver_ran_lose_nothing(log: Log) -> None:
    """A file that was never seen under its own name is found by the names that rotation gives."""
    reading = Reading(log.path)
    log.write("a")
    reading.look_all()
    log.write("b")
    log.rename()
    log.write("c")
    log.rename()
    log.compress(2)
    log.write("d")
    reading.restart()

    assert sorted(reading.look_all()) == ["b", "c", "d"]
    reading.replay_all()


def test_files_that_begin_alike_are_told_apart(log: Log) -> None:
    """A banner longer than what is compared at the start, and days without any difference, are no copies."""
    banner = [f"banner {number:04}" for number in range(200)]
    reading = Reading(log.path)
    for _ in range(3):
        log.write(*banner)
        reading.look_all()
        log.rename()
        log.write(*banner)
        log.rename()
        reading.restart()

    assert reading.look_all() == banner
    assert reading.all_rows == log.written
    reading.replay_all()


def test_an_archive_that_is_being_written_is_not_read(log: Log) -> None:
    """gzip removes the original last: for a while there are both, and the archive is incomplete."""
    reading = Reading(log.path, rotated_s=10)
    log.write("a")
    reading.look_all()
    log.write("b")
    log.rename()
    whole = gzip.compress(log.name(1).read_bytes())
    log.name(1, ".gz").write_bytes(whole[:-4])
    assert reading.look_all() == ["b"]
    log.name(1, ".gz").write_bytes(whole)
    assert reading.look_all() == []
    log.name(1).unlink()
    assert reading.look_all() == []
    reading.now_s += 100
    assert reading.look_all() == []
    reading.replay_all()


def test_an_archive_that_nobody_saw_before_is_read_when_it_is_complete(log: Log) -> None:
    reading = Reading(log.path, rotated_s=10)
    whole = gzip.compress(b"a\nb")
    log.name(1, ".gz").write_bytes(whole[:-4])
    assert reading.look_all() == []
    assert (reading.coordinator.is_exhausted(), reading.coordinator.ready_in_s()) == (False, 10.0)
    reading.now_s += 5
    log.name(1, ".gz").write_bytes(whole)
    assert reading.look_all() == []
    reading.now_s += 10
    assert reading.look_all() == ["a", "b"]
    reading.replay_all()


def test_a_file_with_two_names_is_one(log: Log) -> None:
    log.write("a")
    log.name(1).hardlink_to(log.path)

    assert Reading(log.path).look_all() == ["a"]


def test_a_range_is_given_for_the_place_that_was_looked_at_alone(log: Log) -> None:
    """Decided by the last range, whatever the last look was for."""
    log.write("a")
    reading = Reading(log.path)
    half = TailCoordinator(reading.spout, reading.context)
    (name,) = half.partition_names({})

    assert half.next_range(name, None)["end"] == 2
    assert half.next_range(name, {"end": 2}) is NOTHING
    assert half.next_range("another", None) is NOTHING


def test_a_copy_that_is_being_written_is_not_read(log: Log) -> None:
    """copytruncate: the copy grows first, then the log is truncated."""
    reading = Reading(log.path, rotated_s=10)
    log.write("a", "b")
    reading.look_all()
    log.write("c")
    log.name(1).write_text("a\n")
    assert reading.look_all() == ["c"]
    log.write("d")
    log.name(1).write_text("a\nb\nc\nd\n")
    assert reading.look_all() == ["d"]
    log.path.write_text("")
    assert reading.look_all() == []
    log.write("e")
    assert reading.look_all() == ["e"]
    reading.now_s += 100
    assert reading.look_all() == []
    reading.replay_all()


def test_a_truncated_log_halts(log: Log) -> None:
    """Nobody knows what stood there: the message has path, offset and what to do; nothing is planned before."""
    reading = Reading(log.path)
    log.write("a", "b")
    reading.look_all()
    log.path.write_text("x\n")

    with pytest.raises(BatchDataError, match=r"app\.log: the log was truncated or replaced: bytes to 4 .* on_truncate"):
        reading.look()
    reading.restart()
    with pytest.raises(BatchDataError, match="truncated or replaced"):
        reading.look()


@pytest.mark.parametrize("grown", [False, True])
def test_a_truncated_log_is_a_new_one_if_the_user_says_so(log: Log, grown: bool) -> None:
    """Also if it has grown past the old end before anybody looked: its bytes before that are others."""
    reading = Reading(log.path, on_truncate="new")
    log.write("a", "b")
    reading.look_all()
    later = ["x"] * (3 if grown else 1)
    log.path.write_text("".join(f"{line}\n" for line in later))

    assert reading.look_all() == later
    assert ["truncated or replaced" in line for line in reading.said] == [True]
    log.write("y")
    assert reading.look_all() == ["y"]
    reading.restart()
    assert reading.look_all() == []


def test_a_log_that_grew_past_its_old_end_with_an_equal_start_is_noticed(log: Log) -> None:
    """The last bytes that were read are compared too, not only the first ones of the file."""
    banner = "banner\n" * 1000
    reading = Reading(log.path)
    log.path.write_text(f"{banner}a\n")
    reading.look_all()
    log.path.write_text(f"{banner}b\nc\n")

    with pytest.raises(BatchDataError, match="truncated or replaced"):
        reading.look()


def test_a_log_whose_first_bytes_are_others_is_noticed(log: Log) -> None:
    """What was read last may stand there by chance."""
    reading = Reading(log.path)
    log.write("a", *["abc"] * 1000)
    reading.look_all()
    log.path.write_text(log.path.read_text().replace("a", "b", 1))

    with pytest.raises(BatchDataError, match="truncated or replaced"):
        reading.look()


def test_a_new_log_that_repeats_the_old_one_line_by_line_is_read(log: Log) -> None:
    """Both fit the file that is there now: it is the newer one."""
    reading = Reading(log.path, on_truncate="new")
    log.write("a", "b")
    reading.look_all()
    log.path.write_text("a\n")
    assert reading.look_all() == ["a"]
    log.path.write_text("a\nb\n")
    assert reading.look_all() == ["b"]


def test_a_new_log_with_the_lines_of_the_old_one_is_read(log: Log, tmp_path: Path) -> None:
    """A service that writes no times and begins with the same lines each time: another inode is another log."""
    (tmp_path / "elsewhere").mkdir()
    reading = Reading(log.path)
    log.write("a")
    reading.look_all()
    log.path.rename(tmp_path / "elsewhere" / "app.log")
    log.write("a", "b")

    assert reading.look_all() == ["a", "b"]


def test_a_truncated_log_whose_copy_is_not_complete_yet_is_waited_for(log: Log) -> None:
    reading = Reading(log.path, rotated_s=10)
    log.write("a", "b")
    reading.look_all()
    log.path.write_text("")
    log.name(1).write_text("a\n")
    assert reading.look_all() == []
    assert reading.coordinator.ready_in_s() == 10
    log.name(1).write_text("a\nb\nc\n")
    assert reading.look_all() == ["c"]


def test_a_file_that_was_renamed_within_its_folder_is_found_by_its_inode(log: Log) -> None:
    """Under a name that no pattern has."""
    reading = Reading(log.path, rotated=())
    log.write("a")
    reading.look_all()
    log.write("b")
    log.path.rename(log.path.with_name("old"))
    log.path.write_text("c\n")

    assert sorted(reading.look_all()) == ["b", "c"]
    reading.replay_all()


def test_a_log_that_is_gone_before_it_was_read_halts(log: Log) -> None:
    reading = Reading(log.path, settled_s=5)
    log.write("a")
    reading.look()
    reading.now_s += 10
    reading.look_all()
    log.write("b")
    assert not reading.look()
    log.path.unlink()

    with pytest.raises(BatchDataError, match="the log has gone, and 2 bytes at its end were not read"):
        reading.look()


def test_a_log_that_is_gone_after_it_was_read_is_forgotten_at_last(log: Log) -> None:
    """Metadata do not grow with every rotation for ever; a file that comes back soon is known."""
    reading = Reading(log.path)
    for number in range(30):
        log.write(f"day {number}")
        assert reading.look_all() == [f"day {number}"]
        log.path.rename(log.path.with_name("away"))
        if number < 29:
            log.path.with_name("away").unlink()
            assert reading.look_all() == []  # The next file may have the same inode.

    assert len(reading.plans[-1]["names"]) == 21
    log.path.with_name("away").rename(log.path)
    assert reading.look_all() == []


@pytest.mark.parametrize("at", [0, 2000, 3999])
def test_a_range_that_is_no_longer_there_fails_the_batch(log: Log, at: int) -> None:
    """K7: never other bytes than planned, wherever they differ."""
    reading = Reading(log.path)
    log.write(*["abc"] * 1000)
    reading.look_all()
    data = bytearray(log.path.read_bytes())
    data[at] = ord("X")
    log.path.write_bytes(data)

    with pytest.raises(
        BatchDataError, match=r"app\.log:1: bytes 0 to 4000 of the log are not there as they were planned"
    ):
        reading.emitted(0)
    log.path.unlink()
    with pytest.raises(BatchDataError, match="nor in a rotated one"):
        reading.emitted(0)


def test_what_was_old_enough_when_a_driver_came_does_not_wait(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the last change says so, where this machine sets it; so a restart and a run once are quick."""
    monkeypatch.setattr(StampedHere, "covers", lambda *_: True)
    log.write("a")
    log.name(1).write_text("x\ny")
    reading = Reading(log.path, settled_s=5, rotated_s=50)
    reading.age_s = 10
    assert sorted(reading.look_all()) == ["a", "x"]
    reading.restart()
    reading.age_s = 100
    assert reading.look_all() == ["y"]


def test_young_bytes_wait_and_the_coordinator_says_for_how_long(log: Log) -> None:
    reading = Reading(log.path, settled_s=2)
    log.write("a")
    assert not reading.look()
    assert (reading.coordinator.is_exhausted(), reading.coordinator.ready_in_s()) == (False, 2.0)
    reading.now_s += 1
    log.write("b")
    assert not reading.look()
    reading.now_s += 1
    assert reading.look()
    assert reading.all_rows == ["a"]
    reading.now_s += 2
    assert reading.look_all() == ["b"]
    assert (reading.coordinator.is_exhausted(), reading.coordinator.ready_in_s()) == (True, float("inf"))


def test_a_run_once_ends_with_what_was_there_when_it_began(log: Log) -> None:
    """A log that grows as fast as it is read would keep such a run for ever."""
    log.write("a")
    log.write("b", end="")
    reading = Reading(log.path, once=True)
    assert reading.look()
    log.write("", "c")
    log.path.with_name("app.log.1").write_text("later\n")
    assert reading.look_all() == []
    assert reading.coordinator.is_exhausted()
    assert reading.all_rows == ["a"]
    assert reading.said == [f"{log.path}: its last line has no end yet: left for the next run"]
    reading.restart()
    assert sorted(reading.look_all()) == ["b", "c", "later"]


def test_a_path_without_a_file_is_no_source_without_input(log: Log) -> None:
    with pytest.raises(FileNotFoundError, match="no file matches"):
        Reading(log.path, once=True).look()
    reading = Reading(log.path)
    assert not reading.look()
    assert not reading.look()
    assert reading.said == [f"no file matches {str(log.path)!r}"]
    log.write("a")
    assert reading.look_all() == ["a"]


def test_many_logs_of_a_folder(tmp_path: Path) -> None:
    """Each is a partition, appended in the order of its first line; a rename within the folder changes nothing."""
    reading = Reading(tmp_path)
    one, two = Log(tmp_path / "b.log"), Log(tmp_path / "a.log")
    one.write("b1")
    reading.look_all()
    two.write("a1")
    reading.look_all()
    one.path.rename(tmp_path / "b.old")
    two.write("a2")
    reading.look_all()

    assert reading.all_rows == ["b1", "a1", "a2"]
    assert [entry.get("range", entry.get("after"))["path"] for entry in reading.plans[-1]["partitions"]] == [
        str(tmp_path / "b.log"),
        str(tmp_path / "a.log"),
    ]


def test_rejected_lines_have_their_number_in_the_whole_file(log: Log) -> None:
    reading = Reading(log.path, "id bigint", format=Json())
    log.write('{"id": 1}')
    reading.look_all()
    log.write('{"id": 2}', "no", '{"id": 4}')
    reading.look_all()

    assert reading.all_rows == [1, 2, 4]
    assert [(one.path, one.line, one.raw) for one in reading.tally.rejects] == [(str(log.path), 3, b"no")]
    place = reading.spout.locate(reading.plans[1], reading.spout.parts(reading.plans[1])[0], 1)
    assert place is not None
    assert (place.position, place.raw) == (f"{log.path}:4", '{"id": 4}')


def test_rows_know_path_line_and_time_of_their_file(log: Log) -> None:
    """As they were when the lines were planned, whatever rotation does then."""
    fields = "line string, _file string, _line bigint, _modified timestamp"
    reading = Reading(log.path, fields)
    log.write("a", "b")
    os.utime(log.path, ns=(0, 1_500_000_000_000_000_000))
    reading.look_all()
    log.rename()
    (part,) = reading.spout.parts(reading.plans[0])
    (batch,) = reading.spout.emit_part(reading.plans[0], part, Tally())

    time = datetime(2017, 7, 14, 2, 40, tzinfo=UTC)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("a", str(log.path), 1, time),
        ("b", str(log.path), 2, time),
    ]


def test_a_mark_at_the_start_is_no_part_of_the_first_line(log: Log) -> None:
    log.path.write_bytes(b"\xef\xbb\xbfa\nb\n")
    reading = Reading(log.path)

    assert reading.look_all() == ["a", "b"]
    reading.replay_all()


def test_a_damaged_archive_halts_when_it_should_be_complete(log: Log) -> None:
    log.name(1, ".gz").write_bytes(gzip.compress(b"a\n")[:-4])

    with pytest.raises(BatchDataError, match=r"app\.log\.1\.gz: its gzip archive is damaged or cut off"):
        Reading(log.path).look()


def test_a_plan_has_the_settings_with_which_it_is_read(log: Log) -> None:
    """R12: another format now changes nothing for what is planned; a redo takes the settings of today."""
    log.write("a 1")
    reading = Reading(log.path, "word string, n int", format=Pattern(r"(?P<word>\w) (?P<n>\d)"))
    reading.look_all()
    later = TailSpout(log.path, "n int, word string", format=Pattern(r"(?P<n>\w) (?P<word>\d)"))
    (part,) = later.parts(reading.plans[0])
    (batch,) = later.emit_part(reading.plans[0], part, Tally())

    assert batch.to_pylist() == [{"n": 1, "word": "a"}]
    redo = reading.coordinator.initialize_redo({**reading.plans[0], "schema": "n int"})
    assert redo["schema"] == reading.plans[0]["schema"]


def test_it_is_pickled_and_described(log: Log) -> None:
    spout = TailSpout(log.path, "line string")

    assert pickle.loads(pickle.dumps(spout)).describe() == spout.describe()
    assert spout.describe()["rotated"] == [f"{log.path}.[0-9]*", f"{log.path}-[0-9]*"]
    assert spout.inputs({}) == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"format": Csv()}, "whose records are lines"),
        ({"format": "csv"}, "neither 'text' nor 'json'"),
        ({"bytes_per_batch": 0}, "bytes_per_batch 0"),
        ({"settled_s": -1}, "settled_s -1"),
        ({"rotated_s": "1"}, "rotated_s '1'"),
        ({"on_truncate": "skip"}, "on_truncate 'skip'"),
        ({"on_bad_line": "skip"}, "on_bad_line 'skip'"),
        ({"rejected_max": 2}, "rejected_max 2"),
        ({"rotated": "app.log"}, "is the path itself"),
    ],
)
def test_settings_are_checked(log: Log, settings: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        TailSpout(log.path, "line string", **settings)


def test_only_files_of_this_machine_grow() -> None:
    with pytest.raises(TopologyError, match="is no path of this machine"):
        TailSpout("s3://bucket/app.log", "line string")


def test_a_topology_counts_a_growing_log(log: Log) -> None:
    builder = TopologyBuilder("growing")
    builder.set_spout("log", TailSpout(log.path, "level string", settled_s=0))
    builder.set_committer_bolt("levels", CountCommitter("levels", ["level"], count="n")).fields_grouping(
        "log", ["level"]
    )
    log.write("INFO", "INFO", "WARN")

    with TopologyHarness(builder.build(), once=False) as harness:
        harness.run()
        log.write("WARN")
        log.rename()
        log.write("INFO")
        harness.run()
        assert harness.table("levels") == {("INFO",): (3,), ("WARN",): (2,)}


class Night:
    """A log that is written, rotated and compressed in any order, and read in between."""

    def __init__(self, log: Log, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = log
        self.reading = Reading(log.path, bytes_per_batch=self.chance.choice([1, 30, 10_000]))
        self.banner = self.chance.choice([[], ["service starts"], [f"banner {at:03}" for at in range(200)]])
        self.number = 0

    def write(self) -> None:
        if not self.log.path.exists() or not self.log.path.stat().st_size:
            self.log.write(*self.banner) if self.banner else None
        for _ in range(self.chance.randint(1, 3)):
            self.number += 1
            self.log.write(f"line {self.number}", end=self.chance.choice(["\n", "\n", "\r\n"]))

    def rename(self) -> None:
        self.log.rename()

    def copytruncate(self) -> None:
        self.log.copytruncate()

    def compress(self) -> None:
        plain = [at for at in range(1, 11) if self.log.name(at).exists()]
        if plain:
            self.log.compress(self.chance.choice(plain))

    def look(self) -> None:
        self.reading.look()

    def restart(self) -> None:
        self.reading.restart()

    def run(self) -> None:
        steps = [self.write, self.write, self.look, self.rename, self.compress, self.restart, self.copytruncate]
        for _ in range(30):
            self.chance.choice(steps)()
            if any(self.log.name(10, ending).exists() for ending in ("", ".gz")):
                break  # The next rotation would remove a file.
        self.reading.restart()
        self.reading.look_all()


@pytest.mark.parametrize("seed", range(60))
def test_every_line_is_read_once_whatever_rotation_does(log: Log, seed: int) -> None:
    """Histories of writes, looks, new leaders, both kinds of rotation and compression. Every batch is replayed."""
    night = Night(log, seed)
    night.run()

    assert sorted(night.reading.all_rows) == sorted(log.written), seed
    night.reading.replay_all()
