"""Growing files: every byte of every file that a program wrote is in exactly one range, after any history of writes,
rotations, looks and new leaders (I4, K7). The model knows the files by what was written, not by name or inode.
"""

from __future__ import annotations

import bz2
import gzip
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.tails import Reading
from txtopo.errors import BatchDataError
from txtopo.spouts.tail.identity import planned_bytes

PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress}
BANNERS = (b"", b"service starts\n", b"".join(b"banner %04d\n" % number for number in range(120)))
"""The last one is longer than what is compared at the start of a file."""


class Program:
    """A program with one log, what logrotate does with it, and a disk that uses inodes again immediately."""

    def __init__(self, path: Path, banner: bytes, number: int) -> None:
        self.path = path
        self.banner = banner
        self.number = number
        self.lines = 0
        self.files: list[bytearray] = [bytearray()]
        """What was written, by file; the last one is the log."""
        self.rotated: list[Path] = []
        """Rotated files as they are named now, the newest one first."""
        self.spare = path.parent.parent / "spare" / path.name
        """Inodes of removed files."""
        self.spare.mkdir(parents=True)
        self.removed = 0

    def write(self, count: int, *, is_whole: bool) -> None:
        if not self.path.exists():
            free = sorted(self.spare.iterdir())
            free[0].rename(self.path) if free else self.path.touch()
        data = b"" if self.files[-1] else self.banner
        for _ in range(count):
            self.lines += 1
            data += b"%d: line %d of the day\n" % (self.number, self.lines)
        self._append(self.path, self.files[-1], data if is_whole else data[:-3])

    def end_line(self) -> None:
        """What follows a line that was written in part."""
        if self.files[-1] and not self.files[-1].endswith(b"\n"):
            self._append(self.path, self.files[-1], b"!\n")

    def write_late(self) -> None:
        """The program has not noticed yet that its log was renamed."""
        if self.rotated and self.rotated[0].suffix == ".1" and self.files[-2].endswith(b"\n"):
            self.lines += 1
            self._append(self.rotated[0], self.files[-2], b"%d: late %d\n" % (self.number, self.lines))

    def rename(self) -> None:
        if self._is_worth_it():
            self._shift()
            self.path.rename(self._name(1))
            self._rotated()

    def copytruncate(self) -> None:
        if self._is_worth_it():
            self._shift()
            shutil.copyfile(self.path, self._name(1))
            with self.path.open("r+b") as file:
                file.truncate(0)
            self._rotated()

    def compress(self, which: int, ending: str, *, is_kept: bool = False) -> None:
        """Compress a rotated file. `is_kept`: the program that does it dies before it removes the original."""
        plain = [at for at, path in enumerate(self.rotated) if path.suffix not in PACKED]
        if plain:
            at = plain[which % len(plain)]
            path = self.rotated[at]
            packed = path.with_name(path.name + ending)
            packed.write_bytes(PACKED[ending](path.read_bytes()))
            if not is_kept:
                self._spare(path)
                self.rotated[at] = packed

    def remove_oldest(self, is_read: Callable[[bytes], bool]) -> None:
        if self.rotated and is_read(bytes(self.files[0])):
            path = self.rotated.pop()
            for one in path.parent.glob(f"{path.with_suffix('').name if path.suffix in PACKED else path.name}*"):
                self._spare(one)
            self.files.pop(0)
            self.removed += 1

    def _is_worth_it(self) -> bool:
        return bool(self.files[-1]) and len(self.rotated) < 8

    def _append(self, path: Path, file: bytearray, data: bytes) -> None:
        with path.open("ab") as out:
            out.write(data)
        file += data

    def _spare(self, path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(0)
        path.rename(self.spare / f"{self.removed:03}_{self.lines:05}_{path.name}")

    def _name(self, number: int, ending: str = "") -> Path:
        return self.path.with_name(f"{self.path.name}.{number}{ending}")

    def _shift(self) -> None:
        for number in range(len(self.rotated), 0, -1):
            for ending in ("", *PACKED):
                if (path := self._name(number, ending)).exists():
                    path.rename(self._name(number + 1, ending))

    def _rotated(self) -> None:
        endings = [path.suffix if path.suffix in PACKED else "" for path in self.rotated]
        self.rotated = [self._name(1), *(self._name(at, ending) for at, ending in enumerate(endings, 2))]
        self.files.append(bytearray())


class Night:
    """Programs that write, and a spout that follows their logs."""

    def __init__(self, folder: Path, banner: bytes, **options: Any) -> None:
        (folder / "logs").mkdir()
        self.programs = [Program(folder / "logs" / f"{name}.log", banner, at) for at, name in enumerate("ab")]
        rotated = ("*.log.[0-9]*",)
        self.reading = Reading(folder / "logs" / "*.log", rotated=rotated, **options)
        self.written: Counter[bytes] = Counter()
        """Contents of the files that were removed."""
        self.read: list[tuple[str, bytearray]] = []
        """Name and content of each partition, in the order of their first ranges."""

    def step(self, kind: str, which: int, number: int) -> None:
        program = self.programs[which]
        match kind:
            case "write":
                program.end_line()
                program.write(1 + number % 3, is_whole=number % 4 > 0)
            case "rename" | "copytruncate" | "write_late":
                getattr(program, kind)()
            case "compress" | "compress and die":
                program.compress(number, sorted(PACKED)[number % 2], is_kept=kind == "compress and die")
            case "remove":
                oldest = bytes(program.files[0])
                before = program.removed
                program.remove_oldest(lambda data: data in [bytes(content) for _, content in self.read])
                self.written[oldest] += program.removed - before
            case "wait":
                self.reading.now_s += number
            case "look":
                self.look()
            case "restart":
                self.reading.restart()

    def look(self) -> bool:
        if not self.reading.look():
            return False
        plan = self.reading.plans[-1]
        for name, entry in zip(plan["names"], plan["partitions"], strict=True):
            if "range" in entry:
                self._note(name, entry["range"])
        return True

    def _note(self, name: str, found: Any) -> None:
        if found["start"] == 0:
            self.read.append((name, bytearray()))
        content = next(content for known, content in reversed(self.read) if known == name)
        assert found["start"] == len(content), "ranges of a partition tile"
        assert found["line"] == content.count(b"\n") + 1
        content += planned_bytes(found, self.reading.spout.rotated)
        assert found["end"] == len(content)

    def end(self) -> None:
        """All programs end their last lines, and everything becomes old enough."""
        for program in self.programs:
            program.end_line()
        for _ in range(3):
            self.reading.now_s += 100
            while self.look():
                assert len(self.reading.plans) < 2000, "the source never ends"

    def check(self) -> None:
        for program in self.programs:
            self.written.update(bytes(file) for file in program.files if file)
        assert Counter(bytes(content) for _, content in self.read) == +self.written
        lines = Counter(
            line.decode() for file, times in self.written.items() for line in file.splitlines() for _ in range(times)
        )
        assert Counter(self.reading.all_rows) == lines
        if not any(program.removed for program in self.programs):
            self.reading.replay_all()


KINDS = (
    *("write", "write", "write", "look", "look", "rename", "copytruncate", "compress"),
    *("compress and die", "write_late", "remove", "wait", "restart"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1), st.integers(0, 11)), max_size=40)


@settings(max_examples=120, deadline=None)
@given(STEPS, st.sampled_from(BANNERS), st.sampled_from([1, 40, 10_000]), st.sampled_from([(0, 0), (1, 10)]))
def test_every_byte_of_every_file_is_in_one_range(
    steps: list[tuple[str, int, int]], banner: bytes, bytes_per_batch: int, waits: tuple[float, float]
) -> None:
    """Renamed, copied and truncated, compressed, removed after it was read; a file that is made gets the inode of one
    that was removed.
    """
    settled_s, rotated_s = waits
    with tempfile.TemporaryDirectory() as folder:
        night = Night(Path(folder), banner, bytes_per_batch=bytes_per_batch, settled_s=settled_s, rotated_s=rotated_s)
        for step in steps:
            night.step(*step)
        night.end()
        night.check()


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path, b"service starts\n")


def test_a_log_that_only_begins_like_another_one_is_no_copy(night: Night) -> None:
    """Nobody looked between the rotation and the compression of a log that begins like the one of today."""
    one = night.programs[0]
    one.write(2, is_whole=True)
    one.rename()
    one.compress(0, ".gz")
    hidden = one.rotated[0].rename(one.path.parent / "_hidden")
    one.write(0, is_whole=True)
    night.end()
    assert night.reading.all_rows == ["service starts"]
    hidden.rename(one.rotated[0])

    night.end()
    night.check()
    assert night.reading.said == []


def test_two_rotated_files_of_which_one_is_the_beginning_of_the_other_are_two(night: Night) -> None:
    one = night.programs[0]
    one.write(1, is_whole=True)
    one.rename()
    night.end()
    other = one.path.with_name("a.log.7")
    other.write_bytes(b"service starts\n")
    night.end()

    assert sorted(night.reading.all_rows) == ["0: line 1 of the day", "service starts", "service starts"]
    assert night.reading.said == []


def test_an_archive_beside_the_file_that_it_was_made_of_is_told_and_not_read(night: Night) -> None:
    """Whoever compressed it died before the original was removed; also if the archive is cut off."""
    one = night.programs[0]
    one.write(2, is_whole=True)
    one.rename()
    night.end()
    one.compress(0, ".gz", is_kept=True)
    archive = one.rotated[0].with_name("a.log.1.gz")
    night.end()
    archive.write_bytes(archive.read_bytes()[:-5])
    night.end()

    night.check()
    (said,) = night.reading.said
    assert said == f"{archive}: all of it is the beginning of {one.rotated[0]}: regarded as a copy, not read"


def test_an_archive_goes_to_the_log_that_has_most_of_it(night: Night) -> None:
    """Two logs begin alike, both were read and compressed, and the shorter one was removed: the lines that follow in
    the longer one are not those of the shorter one.
    """
    one = night.programs[0]
    one.write(0, is_whole=True)
    night.end()
    one.rename()
    one.write(2, is_whole=True)
    night.end()
    one.rename()
    one.compress(0, ".gz")
    one.compress(0, ".gz")
    one.remove_oldest(lambda data: True)
    night.written[b"service starts\n"] += 1
    night.reading.restart()

    night.end()
    night.check()


@pytest.mark.parametrize("is_watching", [True, False])
def test_a_new_log_with_the_inode_of_a_removed_one_is_no_truncated_log(night: Night, is_watching: bool) -> None:
    """The oldest file is removed, and a new log is made, between two looks: most disks give it the same inode."""
    one, other = night.programs
    one.write(1, is_whole=True)
    night.end()
    one.rename()
    one.write(1, is_whole=True)
    if is_watching:
        night.end()
    else:
        night.look()
        night.reading.restart()
    night.step("remove", 0, 0)
    other.spare = one.spare
    other.write(3, is_whole=True)
    assert one.removed == 1 and not list(one.spare.iterdir())

    night.end()
    night.check()
    assert night.reading.said == []


def test_a_log_with_the_inode_of_one_that_is_compressed_since_is_read_from_its_start(night: Night) -> None:
    """Also if it has the same lines: a driver has seen where the other one went."""
    one = night.programs[0]
    one.write(0, is_whole=True)
    night.end()
    one.rename()
    one.compress(0, ".gz")
    night.end()
    one.write(0, is_whole=True)
    assert not list(one.spare.iterdir())

    night.end()
    night.check()
    assert night.reading.all_rows == ["service starts"] * 2


def test_bytes_that_nobody_read_are_lost_aloud_although_the_inode_is_used_again(night: Night) -> None:
    one, other = night.programs
    one.write(1, is_whole=True)
    night.end()
    one.write(1, is_whole=False)
    night.look()
    one.rename()
    one.remove_oldest(lambda data: True)
    other.spare = one.spare
    other.write(3, is_whole=True)

    with pytest.raises(BatchDataError, match="the log has gone, and 18 bytes at its end were not read"):
        night.look()


def test_a_file_that_is_renamed_while_it_is_looked_for_is_found(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotation goes on while a task looks for the lines of its batch."""
    one = night.programs[0]
    one.write(2, is_whole=True)
    night.end()
    one.rename()
    from txtopo.spouts.tail import identity

    found_files = identity.found_files
    rotations: list[Callable[[], None]] = [lambda: one.compress(0, ".gz"), one._shift]

    def then_rotated(pattern: str) -> Any:
        found = found_files(pattern)
        if "*" in pattern and rotations:
            rotations.pop(0)()
        return found

    monkeypatch.setattr(identity, "found_files", then_rotated)
    night.reading.replay_all()
    assert not rotations


def test_a_file_and_the_archive_of_it_that_are_both_new_are_read_once(night: Night) -> None:
    """Whoever compressed it died before the first driver came."""
    one = night.programs[0]
    one.write(2, is_whole=True)
    one.rename()
    one.compress(0, ".gz", is_kept=True)

    night.end()
    night.check()


def test_a_log_that_is_being_copied_when_the_first_driver_comes_is_read_once(tmp_path: Path) -> None:
    night = Night(tmp_path, b"", rotated_s=10)
    one = night.programs[0]
    one.write(2, is_whole=True)
    shutil.copyfile(one.path, one.path.with_name("a.log.1"))
    while night.look():
        pass
    one.path.write_bytes(b"")
    one._rotated()
    one.write(2, is_whole=True)

    night.end()
    night.check()
