"""The headers of pages: the sizes that Parquet's own writer gave them, and bytes that are no headers."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from txtopo.spouts.formats.parquet import pages
from txtopo.spouts.formats.parquet.pages import Chunk, PageHeaderError, PageSizes, page_sizes


def written(values: pa.Array, **options: Any) -> tuple[bytes, Chunk]:
    """A file, and its only column as pyarrow reads the footer."""
    file = io.BytesIO()
    parquet.write_table(pa.table({"a": values}), file, **options)
    found = parquet.ParquetFile(file).metadata.row_group(0).column(0)
    start = found.dictionary_page_offset or found.data_page_offset
    return file.getvalue(), Chunk(start, found.total_compressed_size, found.total_uncompressed_size, frozenset())


def sizes(data: bytes, chunk: Chunk) -> PageSizes:
    """The sizes in a file that is these bytes."""
    return page_sizes(lambda offset, size: data[offset : offset + size], chunk)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("has_dictionary", [False, True])
@pytest.mark.parametrize("has_checksums", [False, True])
def test_every_page_is_found(version: str, compression: str, has_dictionary: bool, has_checksums: bool) -> None:
    """All values are in them, and with their headers they are as large as the footer says. Headers have statistics."""
    texts = pa.array([None if number % 9 == 4 else f"{number % 700:0300}" for number in range(5000)])
    data, chunk = written(
        texts,
        data_page_version=version,
        compression=compression,
        use_dictionary=has_dictionary,
        write_page_checksum=has_checksums,
        data_page_size=20_000,
        write_batch_size=10,
    )
    found = list(pages._pages(lambda offset, size: data[offset : offset + size], chunk))
    assert len(found) > (1 if has_dictionary else 50)
    assert sum(number or 0 for _, number in found) == 5000
    assert [number for _, number in found].count(None) == has_dictionary
    headers = chunk.unpacked - sum(size for size, _ in found)
    assert 0 < headers < 800 * len(found)


def test_the_largest_and_the_densest_page_count() -> None:
    data, chunk = written(
        pa.array(["x"] * 5000 + ["y" * 9000] * 3 + ["x"] * 5000),
        use_dictionary=False,
        data_page_size=1000,
        write_batch_size=1,
        compression="zstd",
    )
    found = sizes(data, chunk)
    assert 9000 < found.largest < 11_000 and 4000 < found.densest < 9100


def test_a_page_that_is_stored_as_it_is_has_the_size_of_its_bytes() -> None:
    """Its reader takes those, whatever the other number in the header says."""
    page = bytes([0x15, 0, 0x15, 2 * 3, 0x15, 2 * 50, 0x2C, 0x15, 2 * 4, 0, 0]) + bytes(50)
    assert sizes(bytes(4) + page, chunk_at(0, len(page))) == PageSizes(largest=50, densest=13)


def chunk_at(start: int, size: int) -> Chunk:
    """A column behind the first four bytes of a file."""
    return Chunk(4 + start, size, size, frozenset())


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ([0], "there is no header of a page at byte 4"),
        ([0x15, 0, 0x15, 2, 0], "there is no header"),
        ([0x15, 0, 0x15, 1, 0x15, 2, 0], "there is no header"),
        ([0x15, 0, 0x15, 2, 0x15, 1, 0], "there is no header"),
        ([0x15, 0], "the header of a page at byte 4 has no end"),
        ([0x18, 100, 1], "the header of a page at byte 4 has no end"),
        ([0x1D], "a value of kind 13"),
        ([0x15, *[0xFF] * 11], "a number of more than 64 bits"),
        ([0x1C] * 40, "nested too deep"),
        ([0x19, 0x1C] * 40, "nested too deep"),
    ],
)
def test_bytes_that_are_no_header_are_refused(header: list[int], reason: str) -> None:
    with pytest.raises(PageHeaderError, match=reason):
        sizes(bytes(4) + bytes(header), chunk_at(0, 1))


@given(st.binary(max_size=60))
def test_any_bytes_have_sizes_or_are_refused(data: bytes) -> None:
    """Nothing else, and it ends."""
    try:
        assert sizes(bytes(4) + data, chunk_at(0, len(data))).largest >= 0
    except PageHeaderError as error:
        assert "page" in str(error)


def test_a_long_header_is_read_to_its_end() -> None:
    """Writers may put texts of any length into it."""
    text = [0x18, 0xC0, 0x9A, 0x0C, *[7] * 200_000]  # field 4, 200,000 bytes
    header = bytes([0x15, 0, 0x15, 4, 0x15, 2, *text, 0x11, 0x13, 5, 0x1B, 0x00, 0x19, 0x21, 1, 2, 0])
    assert sizes(bytes(4) + header + b"x", chunk_at(0, len(header) + 1)) == PageSizes(largest=2, densest=0)
