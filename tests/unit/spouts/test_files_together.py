"""Small files of a part are parsed together, and nothing else is different."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.format_contract import emission, plan
from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError
from txtopo.formats import Json, Pattern, Text
from txtopo.spouts import file_parts
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats import line_format
from txtopo.spouts.formats.csv import ranges, values
from txtopo.spouts.formats.csv.csv_format import Csv
from txtopo.spouts.formats.csv.values import Decoder
from txtopo.spouts.formats.line_format import LineFormat

ROWS = [("a", 1), ("b", 2), ("c", 3)]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each call of the parser may take at a time."""
    calls: list[int] = []
    plain = Decoder.stream

    def stream(self: Decoder, source: Any, block_bytes: int, *rest: Any, **named: Any) -> Any:
        calls.append(block_bytes)
        return plain(self, source, block_bytes, *rest, **named)

    monkeypatch.setattr(Decoder, "stream", stream)
    return calls


def spout_of(folder: Path, *contents: str, fields: str = "name string, size int", **options: Any) -> FileSpout:
    """A source of these files, in one batch."""
    for number, content in enumerate(contents):
        (folder / f"{number}.csv").write_text(content, newline="")
    return FileSpout(folder, fields, files_per_batch=9, settled_s=0, rejected_max=1, **options)


def test_small_files_with_one_header_are_parsed_once(tmp_path: Path, parsed: list[int]) -> None:
    spout = spout_of(tmp_path, "name,size\na,1\n", "name,size\nb,2", "name,size\n", "name,size\r\nc,3\r\n")
    found = emission(spout, plan(spout))
    assert (found.rows, found.read, len(parsed)) == (ROWS, 3, 1)


@pytest.mark.parametrize(
    ("contents", "options"),
    [
        (["name,size\na,1\n", "size,name\n2,b\n", "name,size\nc,3\n"], {}),
        (['name,size\n"a",1\n', 'name,size\n"b",2\n', 'name,size\n"c",3\n'], {}),
        (
            ["name,size\na,1\n", "name,size\nb,2\n", "name,size\nc,3\n"],
            {"fields": "name string, size int, _line bigint"},
        ),
    ],
)
def test_others_are_read_one_by_one(
    tmp_path: Path, contents: list[str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another header, quotes, and fields that are not in the records."""
    monkeypatch.setattr(ranges, "rows_together", _never)
    spout = spout_of(tmp_path, *contents, **options)
    assert [row[:2] for row in emission(spout, plan(spout)).rows] == ROWS


def test_files_above_the_limit_are_read_apart(
    tmp_path: Path, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_parts, "TOGETHER_BYTES_MAX", 9)
    spout = spout_of(tmp_path, "name,size\na,1\n", "name,size\nb,2\n", "name,size\nc,3\n")
    assert emission(spout, plan(spout)).rows == ROWS
    assert len(parsed) == 2


def test_a_bad_record_is_rejected_with_its_file_and_line(tmp_path: Path) -> None:
    spout = spout_of(tmp_path, "name,size\na,1\n", "name,size\nb,2\nx,many\n", "name,size\nc,3\n")
    found = emission(spout, plan(spout))
    (reject,) = found.rejects
    assert (found.rows, reject.position, found.read) == (ROWS, f"{tmp_path}/1.csv:3", 4)


def test_what_was_found_in_one_file_alone_is_looked_for_there(tmp_path: Path) -> None:
    """A NUL character, and a number that the parser would read as 31: rejected, as each file alone says."""
    spout = spout_of(tmp_path, "name,size\na,1\n", "name,size\nb,2\n\0,8\n", "name,size\nc,3\nd,0x1F\n")
    found = emission(spout, plan(spout))
    assert (found.rows, [one.line for one in found.rejects]) == (ROWS, [3, 3])


@pytest.mark.parametrize("when", ["before", "while it is read"])
def test_a_file_that_changed_fails_the_batch(tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K7, also for a file in the middle; its size is the same."""
    spout = spout_of(tmp_path, "name,size\na,1\n", "name,size\nb,2\n", "name,size\nc,3\n")
    metadata = plan(spout)
    changed = tmp_path / "1.csv"

    def change() -> None:
        changed.write_text("name,size\nb,7\n")
        os.utime(changed, ns=(0, 0))

    if when == "before":
        change()
    else:
        _after_reading(monkeypatch, changed, change)
    with pytest.raises(BatchDataError, match=r"1\.csv: the source changed after it was planned"):
        emission(spout, metadata)


def test_files_with_one_header_share_a_decoder(tmp_path: Path) -> None:
    """Also in batches of one file each; another type of a field is another decoder."""
    values.decoder_of.cache_clear()
    for fields in ("name string, size int", "name string, size bigint"):
        spout = spout_of(tmp_path, "name,size\na,1\n", "name,size\nb,2\n", "name,size\nc,3\n", fields=fields)
        metadata = plan(spout)
        for file in metadata["files"]:
            emission(spout, {**metadata, "files": [file]})
    assert values.decoder_of.cache_info().misses == 2


@pytest.mark.parametrize(
    ("format_", "fields", "lines"),
    [
        (Json(), "name string, size int", '{{"name":"{}","size":{}}}'),
        (Pattern(r"(?P<name>\w) (?P<size>\d+)"), "name string, size int", "{} {}"),
        (Text(), "line string", "{} {}"),
    ],
    ids=["json", "pattern", "text"],
)
def test_small_files_of_lines_are_judged_once(
    format_: LineFormat, fields: str, lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without an end of the last line, with a byte order mark, and without a line."""
    texts = [lines.format(*row) for row in ROWS]
    contents = [f"{texts[0]}\n", f"\ufeff{texts[1]}\r\n", "", texts[2]]
    spout = spout_of(tmp_path, *contents, fields=fields, format=format_)
    metadata = plan(spout)
    alone = [emission(spout, {**metadata, "files": [file]}) for file in metadata["files"]]
    monkeypatch.setattr(LineFormat, "emit", _never)
    found = emission(spout, metadata)
    assert found.rows == [row for one in alone for row in one.rows]
    assert (len(found.rows), found.read, found.rejects) == (3, 3, [])
    monkeypatch.setattr(line_format, "TOGETHER_FILE_BYTES_MAX", 2)
    with pytest.raises(AssertionError, match="not read together"):
        emission(spout, metadata)


def test_files_of_lines_share_what_judges_them() -> None:
    """Made anew for each file, a type for JSON lines costs more than the lines of a small one."""
    fields = parse_fields("name string, size int")
    pair = line_format._kept_pair(Json(), fields)
    assert line_format._kept_pair(Json(), fields) is pair
    for other, of in ((Json(paths={"size": "s"}), fields), (Json(), parse_fields("name string, size bigint"))):
        assert line_format._kept_pair(other, of) is not pair


def _never(*of: Any) -> None:
    raise AssertionError("these files are not read together")


def _after_reading(monkeypatch: pytest.MonkeyPatch, path: Path, change: Callable[[], None]) -> None:
    """Change the file after its bytes were read for the first time."""
    from txtopo.spouts.places.local_place import LocalFile

    plain, left = LocalFile.read, [change]

    def read(self: LocalFile, offset: int, size: int) -> bytes:
        data = plain(self, offset, size)
        if self.path == str(path) and left:
            left.pop()()
        return data

    monkeypatch.setattr(LocalFile, "read", read)


def test_nobody_changes_a_format_by_its_layout() -> None:
    """It is made once, and each batch asks for it."""
    found = Csv(columns=["a", "b"], header=False)
    for value in found.layout().values():
        if isinstance(value, list):
            value.append("more")
    assert found.layout() == Csv(columns=["a", "b"], header=False).layout()
