"""Files in a store with the protocol of S3: a real server on loopback, and a proxy that fails where a test says."""

from __future__ import annotations

import errno
import gzip
import json
import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.archives import ENDINGS, WRITERS
from tests.kit.s3_server import ACCESS_KEY, S3, SECRET_KEY, Fault
from tests.unit.spouts.test_file_spout import Driver, names
from txtopo.audit.objects import objects_of
from txtopo.core.planned_fingerprint import planned_fingerprint
from txtopo.errors import BatchDataError, TopologyError
from txtopo.formats import Text
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.places import known_places, object_place, ranges_ahead
from txtopo.spouts.places.object_errors import ObjectChangedError, told
from txtopo.spouts.places.object_names import fits
from txtopo.spouts.places.ranges_ahead import RangesAhead
from txtopo.topology.components import Tally

pytest.importorskip("obstore")
FIELDS = "line string not null"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a store as long as a driver does."""
    monkeypatch.setattr(object_place, "READ_S", 1)
    monkeypatch.setattr(object_place, "RETRIES_MAX", 2)


def driver(s3: S3, names: str = "/in/", **options: Any) -> Driver:
    return Driver(f"{s3.url}{names}", fields=FIELDS, format=Text(), **options)


def lines(view: Driver, metadata: Any) -> list[str]:
    """All rows of a batch, read again as a task does."""
    spout = pickle.loads(pickle.dumps(view.spout))
    found: list[str] = []
    for part in spout.parts(metadata):
        for batch in spout.emit_part(metadata, part, Tally()):
            found += batch.column("line").to_pylist()
    return found


def on_get(s3: S3, fault: Fault, times: int, key: str = "") -> None:
    """From now on this many reads of this object fail."""
    left = [times]

    def failing(method: str, path: str, number: int) -> Fault | None:
        if method != "GET" or not path.endswith(key) or not left[0]:
            return None
        left[0] -= 1
        return fault

    s3.proxy.on_request = failing


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/in/", ["00", "01", "empty"]),
        ("/in", ["00", "01", "empty"]),
        ("/in/0*", ["00", "01"]),
        ("/in/**", ["00", "01", "empty", "sub/deep/x", "sub/x"]),
        ("/in/*/", ["sub/x"]),
        ("/in/**/x", ["sub/deep/x", "sub/x"]),
        ("/in/_tmp/*", ["_tmp/x"]),
        ("/in/00", ["00"]),
        ("/in/_x", []),
        ("/other/", []),
    ],
)
def test_a_folder_an_object_or_a_pattern_selects_objects(s3: S3, path: str, found: list[str]) -> None:
    for key in ("00", "01", "_x", ".x", "sub/x", "sub/deep/x", "_tmp/x"):
        s3.put(f"in/{key}", b"a\n")
    s3.put("in/empty", b"")
    for folder in ("in/", "in/sub/"):
        s3.put(folder, b"")
    s3.put("inn/00", b"a\n")

    place = driver(s3, path).spout.place
    files = sorted(url for url, _ in place.find())
    assert files == [f"{s3.url}/in/{name}" for name in found]
    assert sorted(objects_of(f"{s3.url}{path}")) == files, "the audit selects the same, with other code"
    assert all(place.means(url) for url in files)
    assert not place.means(f"{s3.url}x/in/00")


def test_names_are_read_as_they_are(s3: S3) -> None:
    keys = ["a b.txt", "ä.txt", "p%20q.txt", "h#h?.txt", "x[1].txt", "x+y&z=1.txt", "it's.txt"]
    for key in keys:
        s3.put(f"in/{key}", key.encode())
    view = driver(s3)

    assert sorted(line for batch in view.batches() for line in lines(view, batch)) == sorted(keys)


def test_a_name_that_the_client_cannot_read_stops_the_listing(s3: S3) -> None:
    s3.put("in/a", b"a\n")
    s3.put("in//b", b"b\n")

    with pytest.raises(OSError, match="a name that cannot be read") as caught:
        driver(s3).batches()
    assert caught.value.errno == errno.EINVAL


def test_a_plan_has_the_tag_and_reads_only_the_beginning_of_an_object(s3: S3) -> None:
    s3.put("in/b", b"b\n" * 3_000_000)
    s3.put("in/a", b"a\n")
    view = driver(s3)
    first, second = view.batches()

    assert names([first, second]) == [["a"], ["b"]]
    (file,) = first["files"]
    assert file["size"] == 2 and file["etag"] and "sha256" not in file
    assert view.spout.inputs(first)[0].fingerprint == planned_fingerprint(file)
    assert json.loads(json.dumps(first)) == first
    assert len(lines(view, second)) == 3_000_000
    assert sum(1 for _, path in s3.proxy.asked if path.endswith("/in/b")) < 12
    assert view.batches() == []


def test_every_read_says_which_object_it_is_for(s3: S3) -> None:
    s3.put("in/a", b"a\n" * 1_000_000)
    view = driver(s3)
    (batch,) = view.batches()
    s3.proxy.conditions.clear()

    lines(view, batch)
    assert s3.proxy.conditions and set(s3.proxy.conditions) == {batch["files"][0]["etag"]}


def test_keys_in_names_of_folders_and_the_url_are_fields(s3: S3) -> None:
    s3.put("orders/day=2026-11-01/a", b"x\n")
    s3.put("orders/day=2026-11-02/b", b"y\n")
    fields = "day date, line string not null, _file string, _modified timestamp"
    view = Driver(f"{s3.url}/orders/day=*/", fields=fields, format=Text(), partitions="hive", files_per_batch=9)
    (batch,) = view.batches()

    rows = [
        row
        for part in view.spout.parts(batch)
        for found in view.spout.emit_part(batch, part, Tally())
        for row in found.to_pylist()
    ]
    assert [(str(row["day"]), row["line"], row["_file"]) for row in rows] == [
        ("2026-11-01", "x", f"{s3.url}/orders/day=2026-11-01/a"),
        ("2026-11-02", "y", f"{s3.url}/orders/day=2026-11-02/b"),
    ]
    assert all(row["_modified"].year >= 2026 for row in rows)


def test_parts_of_an_object_have_each_line_once(s3: S3) -> None:
    s3.put("in/a", b"".join(b"%d\n" % number for number in range(500)))
    view = driver(s3, part_bytes=97)
    (batch,) = view.batches()

    assert len(view.spout.parts(batch)) > 10
    assert lines(view, batch) == [str(number) for number in range(500)]


def test_a_compressed_object_is_read_in_few_requests(s3: S3) -> None:
    text = b"".join(b"%d\n" % (number * 2_654_435_761 % 2**32) for number in range(100_000))
    s3.put("in/a.gz", gzip.compress(text, 1))
    view = driver(s3)
    (batch,) = view.batches()
    before = len(s3.proxy.asked)

    assert batch["files"][0]["codec"] == "gzip"
    assert lines(view, batch) == text.decode().split()
    assert len(s3.proxy.asked) - before <= 3


@pytest.mark.parametrize("size", [0, 2, 3_000_000])
def test_an_object_that_was_replaced_before_the_attempt_fails_the_batch(s3: S3, size: int) -> None:
    """K7. An object of no bytes is compared too, although nothing of it is read."""
    s3.put("in/a", b"a" * size)
    view = driver(s3)
    (batch,) = view.batches()
    s3.put("in/a", b"b" * (size or 1))

    with pytest.raises(
        BatchDataError, match=r"the source changed after it was planned: .* with tag .*, found"
    ) as caught:
        lines(view, batch)
    assert caught.value.fault == "file changed"
    assert batch["files"][0]["etag"] in str(caught.value)


def test_an_object_that_is_replaced_between_two_reads_never_gives_new_bytes_behind_old_ones(s3: S3) -> None:
    s3.put("in/a", b"old\n" * 2_000_000)
    view = driver(s3)
    (batch,) = view.batches()
    reads = []

    def replacing(method: str, path: str, number: int) -> None:
        if method == "GET":
            reads.append(path)
            if len(reads) == 2:
                s3.put("in/a", b"new\n" * 2_000_000)

    s3.proxy.on_request = replacing
    found: list[str] = []
    with pytest.raises(BatchDataError, match="the source changed"):
        for rows in view.spout.emit_part(batch, view.spout.parts(batch)[0], Tally()):
            found += rows.column("line").to_pylist()
    assert set(found) <= {"old"}


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst", ".lz4"])
def test_a_compressed_object_that_is_replaced_while_it_is_read_is_no_damaged_archive(s3: S3, ending: str) -> None:
    kind = next(kind for kind, one in ENDINGS.items() if one == ending)
    noise = random.Random(7).randbytes(2_000_000).replace(b"\n", b"")
    s3.put(f"in/a{ending}", WRITERS[kind](noise))
    view = driver(s3)
    (batch,) = view.batches()
    reads = []

    def replacing(method: str, path: str, number: int) -> None:
        reads.append(path)
        if len(reads) == 2:
            s3.put(f"in/a{ending}", b"x")

    s3.proxy.on_request = replacing
    with pytest.raises(BatchDataError, match="the source changed"):
        lines(view, batch)
    s3.delete(f"in/a{ending}")
    with pytest.raises(BatchDataError, match="found no file there"):
        lines(view, batch)


def test_a_process_without_credentials_says_where_they_come_from(s3: S3) -> None:
    with (
        pytest.raises(OSError, match=r"no credentials in the environment, .* \(docs/remote.md\)") as caught,
        told("s3://b/k"),
    ):
        raise _Generic(
            "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - status code: 403"
        )
    assert caught.value.errno == errno.EIO


def test_an_object_that_was_replaced_and_put_back_is_as_planned(s3: S3) -> None:
    s3.put("in/a", b"a\n")
    view = driver(s3)
    (batch,) = view.batches()
    s3.put("in/a", b"b\n")
    s3.put("in/a", b"a\n")

    assert lines(view, batch) == ["a"]


def test_an_object_that_was_deleted_fails_the_batch(s3: S3) -> None:
    s3.put("in/a", b"a\n")
    view = driver(s3)
    (batch,) = view.batches()
    s3.delete("in/a")

    with pytest.raises(BatchDataError, match="found no file there") as caught:
        lines(view, batch)
    assert caught.value.fault == "file changed"


def test_a_bucket_with_versions_gives_the_planned_version(s3: S3) -> None:
    s3.create(versions=True)
    s3.put("in/a", b"a\n")
    view = driver(s3)
    (batch,) = view.batches()
    s3.put("in/a", b"b\n")
    assert batch["files"][0]["version"]
    assert lines(view, batch) == ["a"]

    s3.delete("in/a")
    assert lines(view, batch) == ["a"]


def test_an_object_is_input_once(s3: S3) -> None:
    s3.put("in/a", b"a\n")
    view = driver(s3)
    (batch,) = view.batches()
    consumed = {item.path: item.fingerprint for item in view.spout.inputs(batch)}
    s3.put("in/a", b"a\n")
    later = driver(s3, consumed=consumed, recent=[batch])
    assert later.batches() == [] and later.said == []

    s3.put("in/a", b"more\n")
    s3.put("in/b", b"b\n")
    later.now += 31
    assert names(later.batches()) == [["b"]]
    assert later.said == [f"'{s3.url}/in/a' was read before and has other content now: ignored, a path is input once"]


def test_a_store_is_listed_at_most_every_half_minute(s3: S3) -> None:
    view = driver(s3)
    assert not view.look()
    s3.put("in/a", b"a\n")
    asked = len(s3.proxy.asked)
    for _ in range(29):
        assert not view.look(1.0)
    assert len(s3.proxy.asked) == asked
    assert view.look(1.1)


@pytest.mark.parametrize("fault", ["503", "reset", "cut", "hang"])
def test_a_request_that_fails_is_repeated(s3: S3, fault: Fault) -> None:
    s3.put("in/a", b"a\n" * 100)
    view = driver(s3)
    (batch,) = view.batches()
    on_get(s3, fault, 2, "/in/a")

    assert lines(view, batch) == ["a"] * 100


@pytest.mark.parametrize("fault", ["503", "reset", "cut", "hang", "short"])
def test_a_store_that_goes_on_failing_is_no_end_of_a_file(s3: S3, fault: Fault) -> None:
    s3.put("in/a", b"a\n" * 100)
    view = driver(s3)
    (batch,) = view.batches()
    on_get(s3, fault, 99, "/in/a")

    with pytest.raises(OSError, match="the store") as caught:
        lines(view, batch)
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("fault", ["503", "reset"])
def test_a_listing_that_fails_on_its_second_page_is_no_shorter_listing(s3: S3, fault: Fault) -> None:
    for number in range(15):
        s3.put(f"in/{number:02}", b"a\n")
    view = driver(s3, "/in/**", once=True)
    s3.proxy.on_request = lambda method, path, number: fault if "continuation-token" in path else None
    with pytest.raises(OSError, match="the store cannot be reached"):
        view.look()
    s3.proxy.on_request = lambda method, path, number: None

    assert len(view.batches()) == 15


def test_a_refusal_is_nobodys_batch(s3: S3) -> None:
    s3.put("in/a", b"a\n")
    view = driver(s3)
    (batch,) = view.batches()
    on_get(s3, "403", 99)

    with pytest.raises(PermissionError, match="the store refuses it: 403") as caught:
        lines(view, batch)
    assert caught.value.errno == errno.EACCES
    with pytest.raises(PermissionError, match="the store refuses it: 403"):
        driver(s3).look()


def test_a_bucket_that_does_not_exist_is_no_empty_one(s3: S3) -> None:
    with pytest.raises(PermissionError, match="there is no such bucket"):
        Driver("s3://no-such-bucket/in/", fields=FIELDS).look()


def test_an_object_that_is_replaced_while_it_is_planned_is_planned_later(s3: S3) -> None:
    s3.put("in/a", b"a\n")
    view = driver(s3)

    def replacing(method: str, path: str, number: int) -> None:
        if method == "GET" and path.endswith("/in/a"):
            s3.proxy.on_request = lambda method, path, number: None
            s3.put("in/a", b"b\n")

    s3.proxy.on_request = replacing
    assert view.batches() == []
    view.now += 31
    (batch,) = view.batches()
    assert lines(view, batch) == ["b"]


def test_credentials_are_nowhere(s3: S3, capfd: pytest.CaptureFixture[str]) -> None:
    s3.put("in/a", b"a\n")
    view = driver(s3)
    (batch,) = view.batches()
    lines(view, batch)
    on_get(s3, "403", 99)
    with pytest.raises(PermissionError) as caught:
        lines(view, batch)

    shown = [
        pickle.dumps(view.spout).decode("latin-1"),
        json.dumps(batch),
        json.dumps(dict(view.spout.describe())),
        repr(caught.value),
        repr(vars(view.spout)),
        *view.said,
        *capfd.readouterr(),
    ]
    assert not any(secret in text for secret in (ACCESS_KEY, SECRET_KEY) for text in shown)


def _refused() -> None:
    # As the answer of a store has it.
    raise _Generic(
        "Generic S3 error: Error performing GET https://h/b/k in 1ms - Server returned non-2xx status code: 403 "
        f"Forbidden: <Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId></Error>"
    )


_Generic = type("GenericError", (Exception,), {"__module__": "obstore.exceptions"})
_Precondition = type("PreconditionError", (Exception,), {"__module__": "obstore.exceptions"})


def test_an_answer_that_names_the_access_key_is_not_shown() -> None:
    with pytest.raises(PermissionError) as caught, told("s3://b/k"):
        _refused()
    assert str(caught.value) == "[Errno 13] the store refuses it: 403 InvalidAccessKeyId: 's3://b/k'"


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("status code: 500 Internal", errno.EIO),
        ("status code: 429 Slow", errno.EIO),
        ("status code: 404 Not Found: <Code>NoSuchKey</Code>", errno.ENOENT),
        ("status code: 404 Not Found: <Code>NoSuchBucket</Code>", errno.EACCES),
        ("status code: 301 Moved", errno.EACCES),
        ("status code: 400 Bad: <Code>ExpiredToken</Code>", errno.EACCES),
        ("HTTP error: error sending request", errno.EIO),
        ("anything else", errno.EIO),
    ],
)
def test_each_error_of_a_store_has_a_number_that_says_who_is_at_fault(words: str, number: int) -> None:
    with pytest.raises(OSError, match="s3://b/k") as caught, told("s3://b/k"):
        raise _Generic(words)
    assert caught.value.errno == number


def test_a_condition_that_is_not_met_is_a_changed_object_and_a_mistake_of_txtopo_is_none() -> None:
    with pytest.raises(ObjectChangedError), told("s3://b/k"):
        raise _Precondition("412")
    with pytest.raises(TypeError), told("s3://b/k"):
        raise TypeError("mistake")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("s3://", "is not s3://BUCKET/"),
        ("s3:/bucket/x", "write 's3://bucket/x'"),
        ("s3://b*/x", "is not s3://BUCKET/"),
        ("s3://bucket/a//b", "is not s3://BUCKET/"),
        ("s3://bucket/../b", "is not s3://BUCKET/"),
        ("s3://key:word@bucket/x", "credentials come from the environment"),
        ("gs://bucket/x", "Google Cloud Storage is untried"),
        ("abfss://c@account/x", "Azure Storage is untried"),
        ("hdfs://host/x", "HDFS is untried"),
        ("ftp://ann:word@host/x", "URL of scheme ftp"),
    ],
)
def test_a_url_that_is_not_read_is_refused_by_name(path: str, words: str) -> None:
    with pytest.raises(TopologyError) as caught:
        FileSpout(path, FIELDS)
    assert words in str(caught.value)
    assert "word@" not in str(caught.value)


def test_hadoops_names_of_the_scheme_mean_the_same_objects() -> None:
    assert FileSpout("s3a://bucket/x/*.csv", FIELDS).path == "s3://bucket/x/*.csv"


def test_without_its_client_a_store_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_places, "find_spec", lambda name: None)
    with pytest.raises(TopologyError, match=r"pip install 'txtopo\[s3\]'"):
        FileSpout("s3://bucket/x", FIELDS)


@pytest.mark.parametrize(
    ("pattern", "name", "is_selected"),
    [
        ("*", "a", True),
        ("*", "_a", False),
        ("*", "a/b", False),
        ("**", "a/b/c", True),
        ("**", "_a/b", False),
        ("**/*.csv", "a.csv", True),
        ("day=*/*", "day=1/a", True),
        ("day=*/*", "day=1/b/a", False),
        ("*/a", "_x/a", False),
        ("_*/a", "_x/a", True),
        ("**/x/**", "a/x/b", True),
    ],
)
def test_patterns_mean_for_objects_what_they_mean_for_files(pattern: str, name: str, is_selected: bool) -> None:
    assert fits(pattern.split("/"), name.split("/")) == is_selected


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 200)), max_size=20), st.integers(0, 300))
def test_ranges_ahead_give_the_bytes_of_the_file(reads: list[tuple[int, int]], size: int) -> None:
    data = bytes(number % 251 for number in range(size))

    def read_range(offset: int, count: int) -> bytes:
        assert offset >= 0 and count >= 1 and offset + count <= size
        return data[offset : offset + count]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges_ahead, "BLOCK_BYTES_MIN", 7)
        patch.setattr(ranges_ahead, "BLOCK_BYTES_MAX", 28)
        ahead = RangesAhead(read_range, size)
        for offset, count in reads:
            assert ahead.read(offset, count) == data[offset : offset + count]


def test_reads_that_follow_each_other_become_few_requests_of_bounded_size() -> None:
    asked: list[int] = []
    size = 200 * 1024 * 1024

    def read_range(offset: int, count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    ahead = RangesAhead(read_range, size)
    for offset in range(0, size, 64 * 1024):
        ahead.read(offset, 64 * 1024)
    assert sum(asked) == size and len(asked) < 35 and max(asked) == ranges_ahead.BLOCK_BYTES_MAX
