"""What every place of files promises, as tests: subclass `PlaceContract`, give it a place with a fixture `held`, and
all of it is run.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.kit.places import Held
from tests.unit.spouts.test_file_spout import Driver
from txtopo.core.os_errors import fault_of
from txtopo.errors import BatchDataError
from txtopo.formats import Text
from txtopo.spouts import file_spout
from txtopo.spouts.places.place import FilePlace, OpenFile

OLD, NEW = b"old\n" * 500_000, b"new\n" * 500_000
"""Of the same size, and more than one read."""
HOSTILE_NAMES = (
    *("a b", " a", "a ", "ä", "a\u0308", "p%20q", "p+q", "h#h?&=", "it's", 'a"b', "a\\b", "a;b,c", "~a", "-a"),
    *("x[1]", "x*", "{a}", "$HOME", "%s", "<a>&amp;", "\U0001f600", "a" * 200, "a\tb", "a\nb", "a\x01b", "a..b"),
)
KEPT_S = 31.0
"""Longer than a file settles, and than the pause between two listings."""


class Watching(Driver):
    """A driver over a place."""

    def found(self) -> list[Any]:
        """Plan all that is there once it has settled."""
        self.look()
        self.now += KEPT_S
        return self.batches()


def watching(place: FilePlace, **options: Any) -> Watching:
    """A driver over this place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_spout, "place_of", lambda path: place)
        return Watching(place.path, fields="line string not null", format=Text(), **options)


def all_of(file: OpenFile, size: int = 256 * 1024) -> bytes:
    """The content, read piece by piece."""
    content = b""
    while data := file.read(len(content), size):
        content += data
    return content


class PlaceContract:
    """A subclass has a fixture `held`."""

    @pytest.fixture
    def planned(self, held: Held) -> Callable[[str, bytes], Mapping[str, Any]]:
        """Write a file, and return its entry of a plan."""

        def planning(name: str, data: bytes) -> Mapping[str, Any]:
            held.put(name, data)
            (batch,) = watching(held.place(name)).found()
            (file,) = batch["files"]
            assert file["path"] == f"{held.base}/{name}"
            found: Mapping[str, Any] = file
            return found

        return planning

    @pytest.mark.parametrize(
        ("names", "found"),
        [
            ("in/", ["0", "1", "empty"]),
            ("in", ["0", "1", "empty"]),
            ("in/[0-9]", ["0", "1"]),
            ("in/**", ["0", "1", "empty", "sub/deep/x", "sub/x"]),
            ("in/**/x", ["sub/deep/x", "sub/x"]),
            ("in/s*/*", ["sub/x"]),
            ("in/_tmp/*", ["_tmp/x"]),
            ("in/0", ["0"]),
        ],
    )
    def test_a_path_selects_the_same_names_everywhere(self, held: Held, names: str, found: list[str]) -> None:
        """Hidden names are no input; `means` says the same of names alone."""
        for name in ("0", "1", "_x", ".x", "sub/x", "sub/deep/x", "_tmp/x"):
            held.put(f"in/{name}", b"a\n")
        held.put("in/empty", b"")
        held.put("inn/0", b"a\n")
        place = held.place(names)

        urls = sorted(url for url, _ in place.find())
        assert urls == [f"{held.base}/in/{name}" for name in found]
        assert all(place.means(url) and place.exists(url) for url in urls)
        assert not place.means(f"{held.base}/inn/0")

    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
    def test_a_name_is_read_as_it_is_or_stops_the_listing(self, held: Held, name: str) -> None:
        """A file is neither left out because of its name, nor taken for another one."""
        held.put("in/plain", b"plain")
        held.put(f"in/{name}", b"hostile")
        place = held.place("in/")
        try:
            urls = sorted(url for url, _ in place.find())
        except OSError as error:
            assert fault_of(error) == "data", error
            return
        assert urls == sorted([f"{held.base}/in/plain", f"{held.base}/in/{name}"])
        with place.opened(f"{held.base}/in/{name}") as file:
            assert all_of(file) == b"hostile"

    def test_any_range_of_a_file_can_be_read(self, held: Held) -> None:
        """In any order; fewer bytes only at its end."""
        data = random.Random(7).randbytes(700_000)
        held.put("in/a", data)
        chance = random.Random(8)
        with held.place("in/").opened(f"{held.base}/in/a") as file:
            assert all_of(file, 100_000) == data
            for _ in range(40):
                offset, size = chance.randrange(800_000), chance.choice([0, 1, 5000, 400_000])
                assert file.read(offset, size) == data[offset : offset + size]

    @pytest.mark.parametrize("data", [b"", b"a\n", OLD], ids=["empty", "short", "long"])
    def test_listing_asking_and_opening_say_the_same_of_a_file(self, held: Held, data: bytes) -> None:
        """Otherwise a file that nobody touched would count as changed."""
        held.put("in/a", data)
        place = held.place("in/")
        ((url, status),) = place.find()
        with place.opened(url) as file:
            assert place.stat_of(status) == place.stat(url) == file.stat()
            assert file.stat().size == file.examine(None).size == len(data)

    @pytest.mark.parametrize("data", [b"", b"a\n", OLD], ids=["empty", "short", "long"])
    def test_a_planned_file_gives_its_bytes_in_every_process(self, held: Held, planned: Any, data: bytes) -> None:
        """A place is pickled, and has neither a connection nor a password."""
        file = planned("in/a", data)
        state = pickle.dumps(held.place("in/"))
        assert len(state) < 1000
        with pickle.loads(state).verified(file) as stored:
            assert all_of(stored) == data

    @pytest.mark.parametrize("other", [NEW, OLD[:-4], OLD + b"new\n", b"", None], ids=["same", "-", "+", "0", "gone"])
    @pytest.mark.parametrize("before_read", [0, 1, 2, 3])
    def test_a_file_that_changed_since_it_was_planned_never_gives_other_bytes(
        self, held: Held, planned: Any, other: bytes | None, before_read: int
    ) -> None:
        """K7: before it is opened (0), or before its first, second and third read; the batch fails, or has exactly what
        was planned.
        """
        file = planned("in/a", OLD)

        def change() -> None:
            held.delete("in/a") if other is None else held.put("in/a", other)

        def changing(number: int) -> bool:
            if number == before_read:
                change()
            return False

        held.on_read(changing)
        if not before_read:
            change()
        content = b""
        try:
            with held.place("in/").verified(file) as stored:
                for offset in range(0, len(OLD), 500_000):
                    content += stored.read(offset, 500_000)
                    assert OLD.startswith(content), "never new bytes after old ones"
        except BatchDataError as error:
            assert error.fault == "file changed"
        else:
            assert content == OLD and before_read

    def test_a_file_that_was_put_back_is_as_planned(self, held: Held, planned: Any) -> None:
        file = planned("in/a", b"a\n")
        held.put("in/a", b"b\n")
        held.put("in/a", b"a\n")
        with held.place("in/").verified(file) as stored:
            assert all_of(stored) == b"a\n"

    def test_a_storage_that_cannot_be_reached_is_no_end_of_a_file(self, held: Held, planned: Any) -> None:
        """The batch is not at fault, and nobody takes what was read before for all."""
        file = planned("in/a", OLD)
        held.on_read(lambda number: number > 1)
        with pytest.raises(OSError) as caught, held.place("in/").verified(file) as stored:
            all_of(stored)
        assert fault_of(caught.value) == "source" and str(file["path"]) in str(caught.value)

        held.on_read(lambda number: False)
        with held.place("in/").verified(file) as stored:
            assert all_of(stored) == OLD

    def test_a_listing_that_fails_has_no_files(self, held: Held) -> None:
        """Half of one would make other batches of the same files."""
        for number in range(15):
            held.put(f"in/{number:02}", b"a\n")
        view = watching(held.place("in/**"), files_per_batch=100)
        held.break_listing(is_broken=True)
        for _ in range(2):
            with pytest.raises(OSError) as caught:
                view.look(KEPT_S)
            assert fault_of(caught.value) == "source"
        held.break_listing(is_broken=False)

        (batch,) = view.found()
        assert len(batch["files"]) == 15

    def test_every_file_is_planned_once_in_the_order_of_names(self, held: Held) -> None:
        """Whatever appears, is replaced or removed between two looks; a replaced one is reported."""
        view = watching(held.place("in/"))
        names: list[str] = []
        for day in range(3):
            for name in ("b", "c", "a"):
                held.put(f"in/{day}{name}", b"%d\n" % day)
            if day == 1:
                held.put("in/0a", b"other\n")
                held.delete("in/0b")
            names += [os.path.basename(file["path"]) for batch in view.found() for file in batch["files"]]  # noqa: PTH119

        view.found()
        assert names == ["0a", "0b", "0c", "1a", "1b", "1c", "2a", "2b", "2c"]
        assert view.said == [
            f"'{held.base}/in/0a' was read before and has other content now: ignored, a path is input once"
        ]

    def test_a_look_reads_only_what_is_new(self, held: Held) -> None:
        """However many files were planned before: nothing is asked of each of them."""
        view = watching(held.place("in/"), files_per_batch=100)
        costs: list[int] = []
        for look in range(6):
            for number in range(5):
                held.put(f"in/{look}_{number}", b"" if number == 4 else b"a\n")
            before = held.reads
            assert sum(len(batch["files"]) for batch in view.found()) == 5
            costs.append(held.reads - before)
        assert max(costs) <= 5 * 5, costs
        before = held.reads
        assert view.found() == [] and held.reads == before
