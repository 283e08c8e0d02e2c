"""Compressed files: an archive is read completely and exactly, or it is an error, by the emitter and by the audit."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import random
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit.archives import ENDINGS, WRITERS, frame_without_content
from txtopo.audit.unpacking import DamagedError, NoDecoderError, unpacked
from txtopo.errors import InvariantBroken
from txtopo.spouts import codecs
from txtopo.spouts.codecs import CODECS, ArchiveError, Unpacked, codec_named, codec_of
from txtopo.spouts.fingerprint import read_at

LINES = b"".join(b"%d,%d\n" % (number, number * 2_654_435_761 % 2**32) for number in range(6_000))
FIRST, SECOND = LINES[:50_001], LINES[50_001:]
KINDS = tuple(codec.name for codec in CODECS)
FRAMES = ("zstd", "lz4")

every_kind = pytest.mark.parametrize("kind", KINDS)


def emitted(folder: Path, kind: str, data: bytes, step: int = 50_000, read: Callable[..., bytes] = read_at) -> bytes:
    """Return what the emitter reads of these stored bytes."""
    path = folder / "file"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        source = Unpacked(partial(read, descriptor), codec_named(kind))
        found = b""
        while piece := source.read(len(found), step):
            found += piece
            source.forget(len(found))
        assert source.size_and_sha256() == (len(data), hashlib.sha256(data).hexdigest())
        return found
    finally:
        os.close(descriptor)


def audited(kind: str, data: bytes) -> bytes:
    """Return what the audit reads of them."""
    return b"".join(unpacked(io.BytesIO(data).read, kind))


def check_refused(folder: Path, kind: str, data: bytes, what: str) -> None:
    """Both refuse it."""
    with pytest.raises(ArchiveError):
        assert emitted(folder, kind, data) is None, what
    with pytest.raises(DamagedError):
        assert audited(kind, data) is None, what


def check_equal(folder: Path, kind: str, data: bytes, content: bytes) -> None:
    """Both read it, whatever the size of a read."""
    assert audited(kind, data) == content
    for step in (4097, 10_000_000):
        assert emitted(folder, kind, data, step) == content


@every_kind
def test_archives_one_behind_the_other_are_one_content(tmp_path: Path, kind: str) -> None:
    pack = WRITERS[kind]
    first, second, empty = pack(FIRST), pack(SECOND), pack(b"")
    check_equal(tmp_path, kind, first + second, LINES)
    check_equal(tmp_path, kind, empty, b"")
    check_equal(tmp_path, kind, empty + first + empty + second + empty, LINES)
    small = [LINES[at : at + at % 700] for at in range(0, 90_000, 400)]
    check_equal(tmp_path, kind, b"".join(map(pack, small)), b"".join(small))


@every_kind
def test_an_archive_may_end_where_a_read_of_stored_bytes_ends(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = codecs.STORED_BYTES  # Arrow reads as many at a time, and cannot be told to read others.
    noise = random.Random(5).randbytes(size)
    reached = set()
    for taken in range(size - 60, size):
        archive = WRITERS[kind](noise[:taken])
        if kind not in ("gzip", *FRAMES):
            monkeypatch.setattr(codecs, "STORED_BYTES", len(archive) - 2 + taken % 5)
        elif abs(len(archive) - size) > 2:
            continue
        reached.add(len(archive) - codecs.STORED_BYTES)
        check_equal(tmp_path, kind, archive + WRITERS[kind](LINES), noise[:taken] + LINES)
        if len(reached) == 5:
            break
    assert 0 in reached


@every_kind
def test_a_cut_archive_is_an_error_wherever_it_is_cut(tmp_path: Path, kind: str) -> None:
    first, second = WRITERS[kind](FIRST), WRITERS[kind](SECOND)
    for cut in range(1, 65):
        check_refused(tmp_path, kind, (first + second)[:-cut], f"{cut} bytes are missing")
        check_refused(tmp_path, kind, first + second[:cut], f"{cut} bytes of the second archive are there")
    check_refused(tmp_path, kind, first[: len(first) // 2], "half of it is there")


@every_kind
def test_what_is_behind_an_archive_is_an_error(tmp_path: Path, kind: str) -> None:
    archive = WRITERS[kind](FIRST)
    for behind in (b"x", b"garbage", b"\n", b"\0", b"\0" * 511, LINES):
        check_refused(tmp_path, kind, archive + behind, f"{behind[:8]!r} is behind it")


@every_kind
def test_zeros_behind_an_archive_are_an_error_but_for_xz_in_fours(tmp_path: Path, kind: str) -> None:
    archive = WRITERS[kind](FIRST) + b"\0" * 512
    if kind == "xz":
        check_equal(tmp_path, kind, archive + WRITERS[kind](SECOND) + b"\0" * 4, LINES)
        check_refused(tmp_path, kind, archive + b"\0" * 2 + WRITERS[kind](SECOND), "514 zeros are between")
    else:
        check_refused(tmp_path, kind, archive, "zeros are behind it")


@every_kind
def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path: Path, kind: str) -> None:
    whole = WRITERS[kind](FIRST) + WRITERS[kind](SECOND)
    chance = random.Random(7)
    for at in [*range(40), *range(40, len(whole), 997), *range(len(whole) - 40, len(whole))]:
        flipped = whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
        with contextlib.suppress(ArchiveError):
            assert emitted(tmp_path, kind, flipped) == LINES, f"byte {at}"
        with contextlib.suppress(DamagedError):
            assert audited(kind, flipped) == LINES, f"byte {at}"


@every_kind
def test_an_empty_file_and_another_content_are_no_archive(tmp_path: Path, kind: str) -> None:
    for data in (
        b"",
        b"id,n\n1,2\n",
        b"\0" * 100,
        zlib.compress(FIRST),
        WRITERS["xz" if kind != "xz" else "gzip"](FIRST),
    ):
        check_refused(tmp_path, kind, data, f"{data[:8]!r}")


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_without_content_are_skipped(tmp_path: Path, kind: str) -> None:
    frame = frame_without_content(3000)
    first, second = WRITERS[kind](FIRST), WRITERS[kind](SECOND)
    check_equal(tmp_path, kind, frame + first + frame + second + frame, LINES)
    check_refused(tmp_path, kind, first + frame[:-1], "a byte of the frame is missing")


@every_kind
def test_a_small_archive_of_many_zeros_is_an_error_before_memory_is_full(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(WRITERS[kind](bytes(20_000_000)))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        source = Unpacked(partial(read_at, descriptor), codec_named(kind), bytes_max=1_000_000)
        with pytest.raises(ArchiveError, match="more than 1000000 bytes come out"):
            while source.read(source.end, 10_000):
                assert source.end < 1_200_000
                source.forget(source.end)
    finally:
        os.close(descriptor)


@every_kind
def test_a_message_says_where_the_archive_is_damaged(tmp_path: Path, kind: str) -> None:
    archive = WRITERS[kind](FIRST)
    with pytest.raises(ArchiveError, match=rf"its {kind} archive is damaged or cut off: .*, found before byte \d+ of"):
        emitted(tmp_path, kind, archive[:-1])


def test_bytes_are_read_again_until_they_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(WRITERS["gzip"](LINES))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        source = Unpacked(partial(read_at, descriptor), codec_named("gzip"))
        assert source.read(0, 1000) == LINES[:1000]
        assert source.read(70_000, 1000) == LINES[70_000:71_000]
        assert source.read(500, 1000) == LINES[500:1500]
        source.forget(60_000)
        assert source.read(60_000, len(LINES)) == LINES[60_000:]
        assert source.read(len(LINES), 10) == b""
        with pytest.raises(InvariantBroken, match="after it was forgotten"):
            source.read(59_999, 1)
    finally:
        os.close(descriptor)


@every_kind
def test_a_disk_that_cannot_be_read_is_no_damaged_archive(tmp_path: Path, kind: str) -> None:
    def fail(descriptor: int, offset: int, size: int) -> bytes:
        if offset:
            raise OSError(5, "Input/output error")
        return read_at(descriptor, offset, size)

    noise = random.Random(5).randbytes(3 * codecs.STORED_BYTES)
    with pytest.raises(OSError, match="Input/output error") as caught:
        emitted(tmp_path, kind, WRITERS[kind](noise), read=fail)
    assert caught.value.errno == 5


def test_bytes_that_no_decoder_asked_for_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a library says: what it did not read belongs to no archive."""
    codec = dataclasses.replace(codec_named("gzip"), open=lambda stored: io.BytesIO())
    monkeypatch.setattr(codecs, "CODECS", (codec,))
    with pytest.raises(ArchiveError, match="it has other bytes after the end of its gzip archive, at byte 0"):
        emitted(tmp_path, "gzip", WRITERS["gzip"](LINES))


def test_a_machine_without_memory_is_no_damaged_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def read(self, size: int, /) -> bytes:
            raise pa.ArrowMemoryError("malloc of size 64 failed")

    codec = dataclasses.replace(codec_named("gzip"), open=lambda stored: Full())
    monkeypatch.setattr(codecs, "CODECS", (codec,))
    with pytest.raises(MemoryError):
        emitted(tmp_path, "gzip", WRITERS["gzip"](LINES))


def test_the_ending_of_a_name_tells_the_codec() -> None:
    for kind, ending in ENDINGS.items():
        for path in (f"/data/day{ending}", f"/data/day.csv{ending.upper()}"):
            found = codec_of(path)
            assert found is not None
            assert found.name == kind
    assert codec_of("/data/day.gz/file") is None
    assert codec_of("/data/gz") is None
    assert codec_of("/data/.gz") is None  # a hidden file of this name, which no ending tells
    assert codec_of("day.GZ") is codec_named("gzip")


@pytest.mark.parametrize("kind", FRAMES)
def test_the_audit_names_the_package_that_is_not_installed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(NoDecoderError, match=r"which is not installed: pip install 'txtopo\[audit\]'"):
        audited(kind, WRITERS[kind](FIRST))


def test_the_audit_does_not_read_a_kind_that_it_does_not_know() -> None:
    with pytest.raises(NoDecoderError, match="'snappy'"):
        audited("snappy", b"")
