"""Very many files: what listing them, and watching them while more come every minute, asks for and keeps in memory."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kit.long_listing import PAGE, LongListing
from tests.unit.spouts.test_consumed_files import Ledger
from txtopo.spouts import matching_files
from txtopo.spouts.consumed_files import LOOKED_AT_MAX
from txtopo.spouts.places import object_place
from txtopo.spouts.places.known_places import place_of
from txtopo.spouts.places.place import FilePlace
from txtopo.spouts.settled_files import FileWatch
from txtopo.topology.components import SpoutContext

FILES, COUNTED, NEW = 20_000, 4_000, 100


class Watched:
    """A source whose files are all counted, watched by a driver that plans what is new, without reading it."""

    def __init__(self, place: FilePlace, consumed: Sequence[str]) -> None:
        self.now = 100.0
        self.ledger = Ledger(dict.fromkeys(consumed, bytes(32)))
        context = SpoutContext(
            topology="t",
            spout="s",
            consumed=self.ledger.consumed(),
            once=False,
            monotonic=lambda: self.now,
            say=pytest.fail,
        )
        self.watch = FileWatch(place, 0.0, context)

    def minute(self) -> int:
        """Look until no file is new; returns how many were."""
        self.now += 60.0
        self.watch.look()
        found = 0
        while files := self.watch.next_files(1000):
            for file in files:
                self.watch.consume(file, file.stat, bytes(32))
                self.ledger.rows[file.path] = bytes(32)
            found += len(files)
            self.watch.look()
        return found


def listed(count: int, folder: str = "in") -> list[str]:
    return [f"{folder}/{number:07}.csv" for number in range(count)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[LongListing]:
    """A store of the test's own, at the endpoint of the environment."""
    pytest.importorskip("obstore")
    listing = LongListing([])
    with listing.serving() as port:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }.items():
            monkeypatch.setenv(name, value)
        yield listing


_buckets = iter(range(1_000_000))


def place_in(store: LongListing, names: str) -> FilePlace:
    """The place in a bucket of its own: clients are kept by bucket."""
    return place_of(f"s3://long-{os.getpid()}-{next(_buckets)}/{names}")


def found(place: FilePlace) -> tuple[list[str], int]:
    """The names, and the bytes that listing them needed at most at a time beside the names."""
    names: list[str] = []
    tracemalloc.start()
    try:
        peak = 0
        for url, _ in place.find():
            names.append(url)
            if len(names) % 500 == 1:
                held, highest = tracemalloc.get_traced_memory()
                peak = max(peak, highest - held)
                tracemalloc.reset_peak()
        return names, peak
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("names", ["in/", "in/**"])
@pytest.mark.parametrize("count", [3_000, pytest.param(FILES, marks=pytest.mark.attack)])
def test_a_long_listing_asks_for_its_pages_alone_and_keeps_one_in_memory(
    store: LongListing, names: str, count: int
) -> None:
    """Five times as many objects need five times as many requests, and no more memory."""
    peaks = []
    for objects in (count, 5 * count):
        store.keys, store.pages, store.others[:] = listed(objects), 0, []
        urls, peak = found(place_in(store, names))
        assert [url.partition("/in/")[2] for url in urls] == [key.removeprefix("in/") for key in store.keys]
        assert store.pages in (objects // PAGE, objects // PAGE + 1) and len(store.others) <= 1
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0] + 100_000, peaks


def test_subfolders_of_a_folder_are_passed_over(store: LongListing) -> None:
    """Small ones with the page that has them, large ones by going on behind them."""
    files = listed(2_500)
    store.keys = sorted(
        [*files, *listed(5_000, "in/0001200"), *listed(3_000, "in/a"), *(f"in/s{at}/x" for at in range(900))]
    )
    urls, _ = found(place_in(store, "in/"))

    assert [url.partition("/in/")[2] for url in urls] == [key.removeprefix("in/") for key in files]
    assert store.pages <= 12


def test_very_many_large_subfolders_are_not_listed_one_by_one(
    store: LongListing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_place, "SUBFOLDERS_MAX", 3)
    store.keys = sorted([*listed(50), *(f"in/s{at:04}/{number:05}" for at in range(9) for number in range(1_100))])
    urls, _ = found(place_in(store, "in/"))

    assert len(urls) == 50 and len(set(urls)) == 50
    assert store.pages <= 7


def test_objects_that_come_every_minute_are_found_with_the_pages_of_a_listing_alone(store: LongListing) -> None:
    """Of objects that were counted nothing is asked, neither of the store nor of the ledger."""
    store.keys = listed(COUNTED)
    watched = Watched(place_in(store, "in/"), [])
    bucket = watched.watch._place.path.removesuffix("in/")
    watched.ledger.rows = dict.fromkeys((bucket + key for key in store.keys), bytes(32))
    assert watched.minute() == 0
    for minute in range(1, 4):
        store.keys, store.pages, watched.ledger.asked[:] = listed(COUNTED + minute * NEW), 0, []
        assert watched.minute() == NEW
        assert store.pages <= 1 + len(store.keys) // PAGE
        assert sum(watched.ledger.asked) == NEW and store.others == []


@pytest.mark.attack
def test_files_that_come_every_minute_cost_a_bounded_number_of_looks_at_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of 20,000 counted files, and one with twice as many: each check reads the names, and the metadata of
    some; the ledger is asked for what is new.
    """
    looked = 0
    stat = matching_files._stat

    def counting(path: str) -> Any:
        nonlocal looked
        looked += 1
        return stat(path)

    monkeypatch.setattr(matching_files, "_stat", counting)
    made = 0
    for total in (FILES, 2 * FILES):
        while made < total:
            os.close(os.open(tmp_path / f"{made:07}.csv", os.O_CREAT | os.O_WRONLY))
            made += 1
        watched = Watched(place_of(tmp_path), [str(tmp_path / f"{number:07}.csv") for number in range(made)])
        assert watched.minute() == 0
        watched.now += 1000.0
        watched.watch.look()
        for _ in range(4):
            for _ in range(NEW):
                os.close(os.open(tmp_path / f"{made:07}.csv", os.O_CREAT | os.O_WRONLY))
                made += 1
            looked, watched.ledger.asked[:] = 0, []
            watched.now += 60.0
            watched.watch.look()
            assert looked <= 1.1 * LOOKED_AT_MAX + 2 * NEW
            assert watched.minute() == NEW
            assert sum(watched.ledger.asked) <= 2 * NEW


def test_a_line_end_in_a_name_stops_the_listing(store: LongListing) -> None:
    """The client reads no control characters; the server of the other tests takes none."""
    store.keys = ["in/a\nb", "in/c"]
    with pytest.raises(OSError, match="a name that cannot be read") as caught:
        list(place_in(store, "in/").find())
    assert caught.value.errno == errno.EINVAL
