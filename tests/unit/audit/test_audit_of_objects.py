"""The audit reads objects of a store again with separate code, and says if one is not the planned one."""

from __future__ import annotations

import gzip
import os
from typing import Any

import pytest

from tests.kit.s3_server import S3
from tests.unit.spouts.test_file_spout import Driver
from txtopo.audit import objects
from txtopo.audit.objects import PlannedObject, ReplacedError
from txtopo.audit.recount import ChangedError, Recounted, UnknownSourceError, UnreadableError, recount
from txtopo.spouts.places.object_place import ObjectPlace

pytest.importorskip("obstore")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small object takes several requests."""
    monkeypatch.setattr(objects, "RANGE_BYTES", 1000)


HEADER = b"carrier,distance\n"


def planned(s3: S3) -> Any:
    (batch,) = Driver(f"{s3.url}/in/", files_per_batch=100).batches()
    return batch


def recounted(metadata: Any) -> Recounted:
    found, _ = recount(metadata, [], lambda path: iter(()))
    return found


def test_objects_are_recounted(s3: S3) -> None:
    s3.put("in/1.csv", HEADER + b"UA,1\n" * 3_000)
    s3.put("in/2.csv", b"")
    s3.put("in/3.csv.gz", gzip.compress(HEADER + b"AA,2\n"))

    found = recounted(planned(s3))
    assert (found.files, found.records) == (3, 3_001)


def test_an_object_that_was_replaced_is_a_difference_and_one_that_was_deleted_is_unknown(s3: S3) -> None:
    for content in (HEADER + b"UA,1\n", b""):
        s3.put("in/1.csv", content)
        metadata = planned(s3)
        s3.put("in/1.csv", HEADER + b"UA,2\n")
        with pytest.raises(ChangedError, match="has changed: planned with tag"):
            recounted(metadata)
        s3.delete("in/1.csv")
        with pytest.raises(UnreadableError, match="there is no such object"):
            recounted(metadata)


def test_an_object_that_is_replaced_while_it_is_recounted_is_a_difference(s3: S3) -> None:
    s3.put("in/1.csv", HEADER + b"UA,1\n" * 4_000)
    metadata = planned(s3)
    reads = []

    def replacing(method: str, path: str, number: int) -> None:
        reads.append(path)
        if len(reads) == 3:
            s3.put("in/1.csv", HEADER + b"UA,2\n" * 4_000)

    s3.proxy.on_request = replacing
    with pytest.raises(ChangedError):
        recounted(metadata)


def test_a_bucket_with_versions_is_recounted_by_version(s3: S3) -> None:
    s3.create(versions=True)
    s3.put("in/1.csv", HEADER + b"UA,1\n")
    metadata = planned(s3)
    s3.put("in/1.csv", HEADER)

    assert recounted(metadata).records == 1


def test_an_answer_that_is_too_short_is_no_end_of_an_object(s3: S3) -> None:
    s3.put("in/1.csv", HEADER + b"UA,1\n" * 100)
    metadata = planned(s3)
    s3.proxy.on_request = lambda method, path, number: "short" if method == "GET" else None

    with pytest.raises(UnreadableError, match="came incompletely"):
        recounted(metadata)


def test_a_plan_without_a_hash_or_a_tag_proves_nothing(s3: S3, tmp_path: Any) -> None:
    (tmp_path / "a.csv").write_bytes(HEADER)
    (batch,) = Driver(tmp_path, settled_s=0).batches()
    del batch["files"][0]["sha256"]

    with pytest.raises(UnknownSourceError):
        recounted(batch)


def test_a_reader_that_needs_a_file_gets_a_copy_of_the_planned_object(s3: S3) -> None:
    content = bytes(range(256)) * 20
    s3.put("in/1.csv", content)
    stat = ObjectPlace(s3.url).stat(f"{s3.url}/in/1.csv")
    file = {"path": f"{s3.url}/in/1.csv", **stat.entries()}
    with PlannedObject(file) as opened:
        descriptor = opened.fileno()
        assert os.pread(descriptor, 10_000, 0) == content
        assert opened.read(10) == content[:10]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)

    s3.put("in/1.csv", content[1:])
    with pytest.raises(ReplacedError):
        PlannedObject(file)


def test_words_of_the_store_are_not_shown(s3: S3) -> None:
    s3.proxy.on_request = lambda method, path, number: "403"
    with pytest.raises(OSError, match="the store says 403"):
        PlannedObject({"path": f"{s3.url}/x", "size": 1, "etag": "e"})
