"""One pass over a file finds its fingerprint, what its parser must know, and its header, whatever the chunks."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo.spouts import fingerprint
from txtopo.spouts.fingerprint import Content, open_regular, read_content
from txtopo.spouts.formats.csv import content_scan
from txtopo.spouts.formats.csv.content_scan import ContentScan
from txtopo.spouts.formats.csv.dialect import HEADER_BYTES_MAX

_HEXADECIMAL = re.compile(rb"0[xX](?<![0-9A-Za-z]0[xX])")


def may_hold_hexadecimal(chunk: bytes) -> bool:
    """What release 0.1.0 wrote into plans."""
    return _HEXADECIMAL.search(chunk) is not None


def content_of(path: Path, *, hexadecimal: bool = True) -> tuple[Content, Mapping[str, bool]]:
    with open_regular(str(path)) as descriptor:
        scan = ContentScan(hexadecimal=hexadecimal)
        return read_content(descriptor, scan), scan.facts()


@given(
    st.lists(st.sampled_from([b"0x", b"0X", b"x", b"X", b"0", b"9", b"A", b"z", b",", b"\n", b'"', b"\0", b"\xff"])),
    st.integers(1, 5),
)
def test_hexadecimal_numbers_are_found_where_the_pattern_of_the_first_release_found_them(
    parts: list[bytes], rare: int
) -> None:
    chunk = b"".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_scan, "RARE_LETTERS_MAX", rare)
        assert content_scan.may_hold_hexadecimal(bytearray(chunk) + b"0x1", len(chunk)) == may_hold_hexadecimal(chunk)


@given(data=st.binary(max_size=40) | st.text('0xX1a,"\0\n').map(str.encode), size=st.integers(1, 9))
def test_a_file_read_in_small_chunks_and_short_reads_has_the_same_content(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "chunks.csv"
    path.write_bytes(data)
    whole = os.preadv
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    across = any(one[-1:] + two[:1] in (b"0x", b"0X") for one, two in itertools.pairwise(chunks))

    def short(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return whole(descriptor, [buffers[0][:3]], offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "CHUNK_BYTES", size)
        patch.setattr(os, "preadv", short)
        found, facts = content_of(path)

    assert found == Content(sha256=hashlib.sha256(data).hexdigest(), size=len(data), start=data[:size])
    assert facts == {
        "quotes": b'"' in data,
        "nul": b"\0" in data,
        "hexadecimal": across or any(map(may_hold_hexadecimal, chunks)),
    }


def test_a_file_is_read_once_for_fingerprint_and_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n1\n" * (HEADER_BYTES_MAX // 3))
    read, whole = [0], os.preadv

    def counted(*arguments: Any) -> int:
        read[0] += (count := whole(*arguments))
        return count

    monkeypatch.setattr(os, "preadv", counted)
    content, facts = content_of(path)

    assert read == [content.size] == [path.stat().st_size]
    assert content.start == path.read_bytes()[:HEADER_BYTES_MAX]
    assert content_of(path, hexadecimal=False) == (content, facts)
