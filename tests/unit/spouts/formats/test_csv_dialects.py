"""CSV files with other quotes, escapes, comments and encodings: records, lines, and what is refused."""

from __future__ import annotations

import csv
import encodings.aliases
import io
import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_csv_reading import emit, plan, read
from txtopo.audit.readers import csv_reader
from txtopo.errors import BatchDataError, TopologyError
from txtopo.formats import Csv
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.csv import recoded_file, windows
from txtopo.spouts.formats.csv.encodings import is_of_single_bytes


def rows(folder: Path, content: bytes, fields: str, **options: Any) -> list[tuple[Any, ...]]:
    return read(folder, content, fields, format=Csv(**options), on_bad_line="fail", settled_s=0)


def test_an_escape_takes_the_next_character_into_the_value(tmp_path: Path) -> None:
    content = b's,a\n"say \\"hi\\"",1\na\\,b,2\n\\\\N,3\n\\N,4\ntwo\\\nlines,5\n"\\\n""",6\n'
    found = rows(tmp_path, content, "s string, a int", escape="\\", null_values=["\\N"])
    assert found == [('say "hi"', 1), ("a,b", 2), ("\\N", 3), (None, 4), ("two\nlines", 5), ('\n"', 6)]


def test_what_databases_write_without_quotes(tmp_path: Path) -> None:
    content = b's\ta\n"\t1\n"x\\\ty"\t2\n\\N\t\\N\nN\\A\t\\3\n'
    options = {"delimiter": "\t", "quote": None, "escape": "\\", "null_values": ["\\N", "NA"]}
    found = rows(tmp_path, content, "s string, a int", **options)
    assert found == [('"', 1), ('"x\ty"', 2), (None, None), ("NA", 3)]


def test_a_file_without_quotes_is_divided_whatever_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"s\n" + b'"x\n' * 100)
    spout = FileSpout(tmp_path / "a", "s string", format=Csv(quote=None), part_bytes=50, settled_s=0)
    metadata = plan(spout)
    assert len(spout.parts(metadata)) > 4
    assert emit(spout, metadata) == [('"x',)] * 100


def test_comments_are_lines_and_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'#a,b\n\n# it\'s "one\ns,a\n#x,1\ny,2\n "#",3\n"\n#z",4\n#\nz,x\n'
    for size in (1, 30, 1000):
        monkeypatch.setattr(windows, "WINDOW_BYTES", size)
        (tmp_path / "a").write_bytes(content)
        spout = FileSpout(tmp_path / "a", "s string, a int", format=Csv(comment="#"), rejected_max=1, settled_s=0)
        metadata = plan(spout)
        assert emit(spout, metadata) == [("y", 2), (' "#"', 3), ("\n#z", 4)]
        with pytest.raises(BatchDataError, match=r"a:11: column 'a': 'x' is no int"):
            emit(FileSpout(tmp_path / "a", "s string, a int", format=Csv(comment="#"), on_bad_line="fail"), metadata)


def test_a_byte_that_is_no_character_is_shown_and_never_read_as_another(tmp_path: Path) -> None:
    """In cp1255, D9 and 81 are no characters; together they would be a letter of UTF-8."""
    assert rows(tmp_path, "ש,1\n".encode("cp1255"), "s string, a int", header=False, encoding="cp1255") == [("ש", 1)]
    with pytest.raises(BatchDataError, match=r"'a\\xd9\\x81' is not CP1255"):
        rows(tmp_path, b"a\xd9\x81,1\n", "s string, a int", header=False, encoding="cp1255")


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "cp437", "koi8-r", "mac-roman", "iso8859-15", "ascii", "cp037"]
)
def test_every_character_of_an_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    texts = [bytes([byte]).decode(encoding, "ignore") for byte in range(32, 256)]
    texts = [text for text in texts if text and text not in ',"\r\n\0']
    content = "".join(f"{text}{text},1\n" for text in texts).encode(encoding)
    found = rows(tmp_path, content, "s string, a int", header=False, encoding=encoding)
    assert [text for text, _ in found] == [2 * text for text in texts]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quote": '""'}, "quote '\"\"' is not one ASCII character"),
        ({"quote": ","}, "quote ',' is not one ASCII character other than the delimiter"),
        ({"escape": '"'}, "escape '\"' is not one ASCII character other than the quote"),
        ({"comment": "\n"}, "comment '\\\\n' is not one"),
        ({"comment": "é"}, "comment 'é' is not one"),
        ({"encoding": "latin-9000"}, "encoding 'latin-9000' is unknown"),
        ({"encoding": None}, "encoding None is unknown"),
        ({"encoding": "rot13"}, "is none of text files"),
        ({"encoding": "idna"}, "is none of text files"),
        ({"encoding": "unicode_escape"}, "is none of text files"),
        ({"encoding": "utf-7"}, "is none of text files"),
        ({"quote": None, "escape": "\\", "null_values": ['""']}, "may begin with"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        Csv(**options)


def test_a_name_of_an_encoding_has_one_spelling_in_plans() -> None:
    assert Csv(encoding="Latin1").layout()["encoding"] == Csv(encoding="ISO-8859-1").layout()["encoding"] == "iso8859-1"
    assert Csv(encoding="UTF8") == Csv(encoding="utf-8-sig") == Csv()


def test_what_the_standard_library_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of quotes, escapes, delimiters and line ends, in windows of any size; `csv` is the judge."""
    chance, tried = random.Random(5), 0
    for _ in range(150):
        dialect: dict[str, Any] = {
            "delimiter": chance.choice([",", ";", "\t"]),
            "escapechar": chance.choice(["\\", "|", "^", "]", "-"]),
            "quotechar": chance.choice(['"', "'", None]),
        }
        quoting = csv.QUOTE_MINIMAL if dialect["quotechar"] else csv.QUOTE_NONE
        signs = ["a", "é", "€", "N", " ", "#", '"', "'", "\n", "\r", dialect["escapechar"], dialect["delimiter"]]
        written = [["".join(chance.choices(signs, k=chance.randrange(6))) for _ in range(2)] for _ in range(6)]
        stream = io.StringIO(newline="")
        rules = {**dialect, "quoting": quoting, "doublequote": chance.choice([True, False])}
        try:
            csv.writer(stream, lineterminator=chance.choice(["\n", "\r\n"]), **rules).writerows(written)
        except csv.Error:
            continue
        if list(csv.reader(io.StringIO(stream.getvalue(), newline=""), **rules)) != written:
            continue
        tried += 1
        monkeypatch.setattr(windows, "WINDOW_BYTES", chance.choice([3, 20, 4000]))
        options = {"delimiter": dialect["delimiter"], "escape": dialect["escapechar"], "quote": dialect["quotechar"]}
        content = stream.getvalue().encode("cp1252")
        found = rows(
            tmp_path, content, "s string, t string", header=False, encoding="cp1252", null_values=["?"], **options
        )
        assert [list(row) for row in found] == written, content
    assert tried > 60


@pytest.mark.parametrize(
    "encoding",
    ["utf-16", "utf-16-be", "utf-32", "utf-32-le", "shift_jis", "gb18030", "big5", "euc_jp", "iso2022_jp", "hz"],
)
def test_an_encoding_with_several_bytes_for_a_character_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Whatever is read at a time, also half a character."""
    lines = [f"\u65e5\u672c{number} \u4e00|{number}" for number in range(50)]
    content = "\n".join(["s|a", *lines]).encode(encoding)
    for size in (1, 7, 1000):
        monkeypatch.setattr(recoded_file, "CHUNK_BYTES", size)
        monkeypatch.setattr(windows, "WINDOW_BYTES", size)
        found = rows(tmp_path, content, "s string, a int", encoding=encoding, delimiter="|")
        assert [f"{text}|{number}" for text, number in found] == lines


def test_a_file_of_another_encoding_is_named(tmp_path: Path) -> None:
    for options, content, words in (
        ({}, "a\n1\n".encode("utf-16"), r"it is UTF-16, not UTF-8: say Csv\(encoding='utf-16'\)"),
        ({"encoding": "cp1252"}, "a\n1\n".encode("utf-16"), "it is UTF-16, not CP1252"),
        ({"encoding": "utf-16"}, "a\n1\n".encode("utf-16-le"), "encoding='utf-16-le' or 'utf-16-be'"),
        ({"encoding": "utf-16-le"}, b"\x1f\x8b\x08" + bytes(9), "it is gzip"),
        ({"encoding": "gbk"}, "a\n1\n".encode("utf-16-le"), "it holds NUL characters, so it is not GBK"),
    ):
        with pytest.raises(BatchDataError, match=words):
            rows(tmp_path, content, "a int", **options)


def test_every_encoding_of_python_is_read_or_refused(tmp_path: Path) -> None:
    """What one has in common with the audit: whether records are found in its bytes or in its text."""
    known = 0
    for encoding in sorted({*encodings.aliases.aliases.values()}):
        try:
            format_ = Csv(encoding=encoding, delimiter=";")
        except TopologyError:
            continue
        known += 1
        name = format_.layout().get("encoding", "utf-8")
        assert name == "utf-8" or is_of_single_bytes(name) == csv_reader._has_single_bytes(name), name
        assert rows(tmp_path, "s;a\nx;1\n".encode(encoding), "a int", encoding=encoding, delimiter=";") == [(1,)]
    assert known > 80
