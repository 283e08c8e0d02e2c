"""Records that do not parse: kept with file, line, reason and raw text; which ones is a function of plan and declared
schema alone.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from tests.unit.spouts.test_csv_reading import plan
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Failed, Outcome, Processed, RejectedRow, TransactionAttempt
from txtopo.errors import BatchDataError, TopologyError
from txtopo.ports import Assignment
from txtopo.spouts import planned_rows
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.csv import ranges as csv_ranges
from txtopo.spouts.formats.csv import windows as csv_windows
from txtopo.spouts.reject_limit import too_many_rejected
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally

Row = tuple[Any, ...]


def sift(folder: Path, content: bytes, fields: str, **options: Any) -> tuple[list[Row], list[RejectedRow]]:
    """Rows and rejects of a file that holds `content`; the tally must agree with them."""
    (folder / "a.csv").write_bytes(content)
    spout = FileSpout(folder / "a.csv", fields, **options)
    metadata = plan(spout)
    tally = Tally()
    rows: list[Row] = []
    for part in spout.parts(metadata):
        for batch in spout.emit_part(metadata, part, tally):
            rows.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    assert tally.read == len(rows) + len(tally.rejects)
    assert all(reject.path == str(folder / "a.csv") and not reject.spout for reject in tally.rejects)
    return rows, tally.rejects


def test_each_kind_of_malformed_record_is_a_rejected_row_and_reading_goes_on(tmp_path: Path) -> None:
    """A malformed line becomes a rejected row with file, line, reason and raw text; the others are emitted."""
    content = (
        b'a,x,b\r\n1,\xff,ok\r\n2,x\r\n\r\n3,x,y,z\r\nz,,"a\r\nb"\r\n,,\r\n4,,c\0d\r\n5,,\xed\xa0\x80\r\n6,,\xe9\r\n9999999999,,\r\n'
        b'7,,"fine\r\n"\r\n8,,"open\r\n9,,ok\r\n'
    )

    rows, rejects = sift(tmp_path, content, "a int not null, b string", rejected_max=1)

    assert rows == [(1, "ok"), (7, "fine\r\n"), (9, "ok")]
    assert [(reject.line, reject.reason, reject.raw) for reject in rejects] == [
        (3, "2 columns, the header has 3", b"2,x"),
        (5, "4 columns, the header has 3", b"3,x,y,z"),
        (6, "column 'a': 'z' is no int", b'z,,"a\r\nb"'),
        (8, "column 'a' is NULL, declared NOT NULL", b",,"),
        (9, "column 'b': 'c\\x00d' holds the NUL character", b"4,,c\0d"),
        (10, "column 'b': '\\xed\\xa0\\x80' is not UTF-8", b"5,,\xed\xa0\x80"),
        (11, "column 'b': '\\xe9' is not UTF-8", b"6,,\xe9"),
        (12, "column 'a': '9999999999' is no int", b"9999999999,,"),
        (15, "a quoted value is not closed", b'8,,"open'),
    ]
    assert all(reject.raw_bytes == len(reject.raw) for reject in rejects)


def test_a_quote_that_is_not_closed_swallows_no_line_even_where_another_quote_follows(tmp_path: Path) -> None:
    """Rows right, or rejected with file and line, never silently others: that line is a reject, and reading goes on
    behind it.
    """
    content = b'a,b\n1,x\n"2,x\n3,x\n4,x\n"5",x\n6,"x"y\n7,"x" \n"8","x"\n9,"x\ny"\n'

    rows, rejects = sift(tmp_path, content, "a int not null, b string", rejected_max=1)

    assert rows == [(1, "x"), (3, "x"), (4, "x"), (5, "x"), (8, "x"), (9, "x\ny")]
    reason = "a quoted value is not closed where it should be: text follows its closing quote"
    assert [(reject.line, reject.reason, reject.raw) for reject in rejects] == [
        (3, reason, b'"2,x'),
        (7, reason, b'6,"x"y'),
        (8, reason, b'7,"x" '),
    ]


def test_the_first_declared_column_that_is_wrong_gives_the_reason(tmp_path: Path) -> None:
    """However a record was found, what is said of it is the same."""
    content = b"a,b\n1,2\n1,x\ny,x\n200,z\n"

    assert [reject.reason for reject in sift(tmp_path, content, "b int, a tinyint")[1]] == [
        "column 'b': 'x' is no int",
        "column 'b': 'x' is no int",
        "column 'b': 'z' is no int",
    ]
    assert [reject.reason for reject in sift(tmp_path, content, "a tinyint, b int")[1]] == [
        "column 'b': 'x' is no int",
        "column 'a': 'y' is no tinyint",
        "column 'a': '200' is no tinyint",
    ]


def test_a_header_with_more_columns_than_a_pattern_can_count(tmp_path: Path) -> None:
    """1,500 columns and quotes."""
    width = 1500
    header = ",".join(f"c{number}" for number in range(width))
    good, bad = ",".join(['"1"'] * width), ",".join(['"1"'] * (width - 1))

    rows, rejects = sift(tmp_path, f"{header}\n{good}\n{bad}\n{good}\n".encode(), "c7 int")

    assert rows == [(1,), (1,)]
    assert [(reject.line, reject.reason) for reject in rejects] == [(3, "1499 columns, the header has 1500")]


def test_a_line_that_is_not_utf8_in_a_file_with_quotes_is_told_by_nothing_but_its_reject(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is printed about it, whether the file is read whole or as a stream; a character may lie across blocks."""
    content = b'a,b\n1,"x"\n\xff\n' + "2,é\n".encode() * 50
    for size in (csv_ranges.BLOCK_BYTES, 67, 68):
        monkeypatch.setattr(csv_ranges, "BLOCK_BYTES", size)
        rows, rejects = sift(tmp_path, content, "a int, b string")
        assert rows == [(1, "x"), *[(2, "é")] * 50]
        assert [(reject.line, reject.raw) for reject in rejects] == [(3, b"\xff")]
    assert capfd.readouterr().err == ""


def test_a_long_reject_is_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`raw` is the first REJECTED_RAW_BYTES_MAX bytes; `raw_bytes` tells of the whole record."""
    monkeypatch.setattr(csv_ranges, "REJECTED_RAW_BYTES_MAX", 10)

    _, (reject,) = sift(tmp_path, b"a\n" + b"x" * 30 + b"\r\n", "a int")

    assert (reject.raw, reject.raw_bytes) == (b"x" * 10, 30)


def test_more_rejects_than_a_task_can_keep_fail_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is named, and how many of how many records were rejected so far."""
    monkeypatch.setattr(planned_rows, "REJECTED_BYTES_MAX", 20)
    monkeypatch.setattr(planned_rows, "REJECT_BYTES_MIN", 0)
    content = b"a\n1\n" + b"bad\n" * 6

    assert len(sift(tmp_path, content, "a int")[1]) == 6
    with pytest.raises(
        BatchDataError, match=r"a\.csv:3: column 'a': 'bad' is no int; 7 of 8 records rejected"
    ) as error:
        sift(tmp_path, content + b"bad\n", "a int")
    assert error.value.position == f"{tmp_path / 'a.csv'}:3"
    assert error.value.detail == "bad"


def test_short_rejects_count_with_the_memory_that_each_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many lines of one byte would be many times their size in memory."""
    monkeypatch.setattr(planned_rows, "REJECTED_BYTES_MAX", 6 * planned_rows.REJECT_BYTES_MIN)
    assert len(sift(tmp_path, b"a\n" + b"x\n" * 6, "a int")[1]) == 6
    with pytest.raises(BatchDataError, match="7 of 7 records rejected"):
        sift(tmp_path, b"a\n" + b"x\n" * 7, "a int")


def test_with_fail_the_first_bad_line_fails_the_batch(tmp_path: Path) -> None:
    """The other policy."""
    with pytest.raises(BatchDataError, match=r"a\.csv:3: column 'a': 'bad' is no int"):
        sift(tmp_path, b"a\n1\nbad\nworse\n", "a int", on_bad_line="fail")


@pytest.mark.parametrize(
    "options",
    [
        {"on_bad_line": "skip"},
        {"rejected_max": 1.1},
        {"rejected_max": -0.1},
        {"rejected_max": True},
        {"rejected_max": "1"},
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Before anything starts."""
    with pytest.raises(TopologyError, match=next(iter(options))):
        FileSpout(tmp_path, "a int", **options)


def test_the_options_are_described(tmp_path: Path) -> None:
    """They belong to what a spout is."""
    described = FileSpout(tmp_path, "a int", on_bad_line="fail", rejected_max=0.5).describe()

    assert (described["on_bad_line"], described["rejected_max"]) == ("fail", 0.5)
    assert FileSpout(tmp_path, "a int").rejected_max == 0.1


def test_a_bad_line_of_a_file_that_changed_meanwhile_is_a_changed_source(tmp_path: Path) -> None:
    """It must never be committed as a reject."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n1\n2\n")
    spout = FileSpout(path, "a int")
    metadata = plan(spout)
    (part,) = spout.parts(metadata)
    path.write_bytes(b"a\nx\n2\n")
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        list(spout.emit_part(metadata, part, Tally()))

    path.write_bytes(b"a\n1\n2\n")
    emitter = spout.emit_part(metadata, part, tally := Tally())
    with path.open("r+b") as file:
        next(emitter)
        file.write(b"a\nx\n")
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        list(emitter)
    assert not tally.rejects


def test_a_file_that_changes_behind_a_reject_fails_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reject was found the file is still compared with its plan."""
    monkeypatch.setattr(csv_windows, "WINDOW_BYTES", 16)
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\nx\n" + b"1\n" * 50)
    spout = FileSpout(path, "a int")
    metadata = plan(spout)
    emitter = spout.emit_part(metadata, spout.parts(metadata)[0], tally := Tally())

    next(emitter)
    next(emitter)
    assert tally.rejected == 1
    path.write_bytes(b"a\nx\n" + b"2\n" * 50)

    with pytest.raises(BatchDataError, match="changed after it was planned"):
        list(emitter)
    os.utime(path, (1, 1))
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        list(spout.emit_part(metadata, spout.parts(metadata)[0], Tally()))


@pytest.mark.parametrize("window", [16, 100_000])
def test_any_emitted_record_is_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """File and line of the number-th record that is emitted of a part, rejects not counted."""
    monkeypatch.setattr(csv_windows, "WINDOW_BYTES", window)
    (tmp_path / "a.csv").write_bytes(b'a,b\n1,x\nbad,x\n\n2,"y\ny"\n3,\xc3\xa9\n')
    (tmp_path / "b.csv").write_bytes(b"")
    (tmp_path / "c.csv").write_bytes(b"b,a\n" + b"z" * 400 + b",4\n")
    spout = FileSpout(tmp_path, "a int, b string", files_per_batch=3)
    metadata = plan(spout)
    (part,) = spout.parts(metadata)

    found = [spout.locate(metadata, part, number) for number in range(5)]

    a, c = tmp_path / "a.csv", tmp_path / "c.csv"
    assert [(place.position, place.raw) for place in found if place] == [
        (f"{a}:2", "1,x"),
        (f"{a}:5", '2,"y\ny"'),
        (f"{a}:7", "3,é"),
        (f"{c}:2", "z" * 300 + "…"),
    ]
    assert found[4] is None


def test_a_record_of_a_later_part_is_located(tmp_path: Path) -> None:
    """Lines count from the start of the file."""
    (tmp_path / "a.csv").write_text("a\n" + "".join(f"{number}\n" for number in range(100)))
    spout = FileSpout(tmp_path, "a int", part_bytes=50)
    metadata = plan(spout)

    for part in spout.parts(metadata):
        rows = [row for batch in spout.emit_part(metadata, part, Tally()) for row in batch.column(0).to_pylist()]
        for number, row in enumerate(rows):
            place = spout.locate(metadata, part, number)
            assert place is not None and place.position == f"{tmp_path / 'a.csv'}:{row + 2}"


def rejected(count: int) -> list[RejectedRow]:
    return [
        RejectedRow(path="/in/a.csv", line=3, reason="2 columns, the header has 3", raw=b"1\xff", raw_bytes=2)
    ] * count


def test_more_rejects_than_allowed_are_a_data_failure() -> None:
    """A wrong schema must not commit empty counts: named are the first reject and the share."""
    failure = too_many_rejected("lines", 0.1, 5000, rejected(1234))

    assert failure is not None and failure.kind == "data" and failure.component == "lines"
    assert failure.message == (
        "/in/a.csv:3: 2 columns, the header has 3; 1,234 of 5,000 records rejected (24.7 %), at most 10 % are "
        "allowed (rejected_max)"
    )
    assert (failure.position, failure.detail) == ("/in/a.csv:3", "1\\xff")


@pytest.mark.parametrize(
    ("share", "read", "count", "fails"),
    [
        (0.1, 10, 1, False),
        (0.1, 19, 2, True),
        (0.29, 100, 29, False),
        (0.29, 100, 30, True),
        (0, 5, 0, False),
        (0, 5, 1, True),
        (1, 5, 5, False),
        (0.1, 0, 0, False),
        (0.07, 100, 7, False),
    ],
)
def test_the_share_is_compared_exactly(share: float, read: int, count: int, fails: bool) -> None:
    """As it is written, not as binary fractions have it."""
    assert (too_many_rejected("lines", share, read, rejected(count)) is not None) is fails


@pytest.mark.parametrize(
    ("content", "rows", "rejects"),
    [
        pytest.param(b"x,b,a\n,u,1\n", [(1, "u")], [], id="reordered headers and extra columns"),
        pytest.param(b'a,b\n1,"u\nv"\n2,"w"\n', [(1, "u\nv"), (2, "w")], [], id="quoted newlines"),
        pytest.param(b'a,b\n1,"say ""u"""\n', [(1, 'say "u"')], [], id="doubled quotes"),
        pytest.param(b"\n\na,b\n\n1,u\n\n\nz,u\n\n", [(1, "u")], [8], id="blank lines"),
        pytest.param(b"a,b\r\n1,u\r\n2\r\n", [(1, "u")], [3], id="CRLF"),
        pytest.param(b"\xef\xbb\xbfa,b\r\n1,u\r\nz,u", [(1, "u")], [3], id="a byte order mark"),
        pytest.param("a,b\n1,é\n2,u\n".encode("latin-1"), [(2, "u")], [2], id="Latin-1"),
        pytest.param('a,b\n1,"é"\n2,"u"\n'.encode("cp1252"), [(2, "u")], [2], id="Latin-1 with quotes"),
        pytest.param(b"a,b\n" + "1,é\n".encode("utf-16-le"), [], [2, 3], id="UTF-16 behind a header of ASCII"),
        pytest.param(b"", [], [], id="an empty file"),
        pytest.param(b"a,b\r\n", [], [], id="a header only"),
        pytest.param(b"a,b", [], [], id="a header without a line end"),
        pytest.param(
            b'a,b\n1,NA\n2,null\n3,NaN\n4,\n5,""\nNA,u\nnull,\nNaN,\n',
            [(1, "NA"), (2, "null"), (3, "NaN"), (4, None), (5, "")],
            [7, 8, 9],
            id="NA, null, NaN",
        ),
    ],
)
def test_hostile_files_give_the_right_rows_or_rejects(
    tmp_path: Path, content: bytes, rows: list[Row], rejects: list[int]
) -> None:
    """Rows right, or rejected with file and line, never silently others."""
    found, kept = sift(tmp_path, content, "a int, b string")

    assert found == rows
    assert [reject.line for reject in kept] == rejects


@pytest.mark.parametrize("name", ["a[1]*?.csv", "with blank.csv", "new\nline.csv", "a:b%20.csv"])
def test_a_reject_names_its_file_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    """Names with glob signs, blanks, newlines and colons."""
    (tmp_path / name).write_bytes(b"a\n1\nz\n")
    spout = FileSpout(tmp_path, "a int")
    metadata = plan(spout)
    tally = Tally()

    (batch,) = spout.emit_part(metadata, spout.parts(metadata)[0], tally)

    assert batch.column(0).to_pylist() == [1]
    assert [(reject.path, reject.line) for reject in tally.rejects] == [(str(tmp_path / name), 3)]


def test_a_file_that_was_touched_after_planning_has_the_same_rejects(tmp_path: Path) -> None:
    """A mere touch is no change."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n1\nz\n")
    spout = FileSpout(path, "a int")
    metadata = plan(spout)
    os.utime(path, (1, 1))

    list(spout.emit_part(metadata, spout.parts(metadata)[0], tally := Tally()))

    assert [(reject.line, reject.raw) for reject in tally.rejects] == [(3, b"z")]


def process(folder: Path, content: bytes, **options: Any) -> Outcome:
    """What the executor without Spark makes of one file."""
    (folder / "a.csv").write_bytes(content)
    spout = FileSpout(folder / "a.csv", "a int", **options)
    builder = TopologyBuilder("rejecting")
    builder.set_spout("lines", spout)
    builder.set_committer_bolt("counts", CountCommitter("c", ["a"])).fields_grouping("lines", ["a"])
    executor = InProcessExecutor(builder.build(), b"\0" * 32)
    attempt = TransactionAttempt(txid=1, attempt=0)
    (outcome,) = executor.process([Assignment(attempt=attempt, metadata={"lines": plan(spout)})])
    return outcome


def test_an_executor_hands_over_the_rejected_rows_with_the_name_of_the_spout(tmp_path: Path) -> None:
    """Counted, and each of them; edges count what was sent."""
    outcome = process(tmp_path, b"a\nz\n" + b"1\n" * 9)

    assert isinstance(outcome, Processed)
    assert (outcome.read, outcome.rejected) == (10, 1)
    assert [(row.spout, row.path, row.line, row.raw) for row in outcome.rejected_rows] == [
        ("lines", str(tmp_path / "a.csv"), 2, b"z")
    ]
    assert [(edge.sent, edge.received) for edge in outcome.edges] == [(9, 9)]


def test_an_executor_fails_a_batch_with_too_many_rejected_rows(tmp_path: Path) -> None:
    """More than `rejected_max` of a batch rejected fails the batch."""
    outcome = process(tmp_path, b"a\n1\nz\n", rejected_max=0.4)

    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.component) == ("data", "lines")
    assert outcome.failure.position == f"{tmp_path / 'a.csv'}:3"
    assert "1 of 2 records rejected (50.0 %), at most 40 % are allowed (rejected_max)" in outcome.failure.message


def test_bad_lines_are_not_searched_for_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five percent of bad lines cost some passes over the file, not a search for each (benchmarks/rejected_rows.py
    measures it).
    """
    chance = random.Random(1)
    bad = ["C,1\n", "C,x{}\n", "C,99999999{}\n", ",{}\n"]
    lines = [
        chance.choice(bad).format(1000 + number) if chance.random() < 0.05 else f"C{number % 7},{number}\n"
        for number in range(20_000)
    ]
    path = tmp_path / "bad.csv"
    path.write_text("carrier,distance\n" + "".join(lines))
    spout = FileSpout(path, "carrier string not null, distance int")
    metadata = plan(spout)
    parsed: list[int] = []
    open_csv = pyarrow.csv.open_csv

    def noted(source: Any, **options: Any) -> Any:
        parsed.append(1)
        return open_csv(source, **options)

    monkeypatch.setattr(pyarrow.csv, "open_csv", noted)
    tally = Tally()
    for part in spout.parts(metadata):
        list(spout.emit_part(metadata, part, tally))

    assert tally.read == 20_000
    assert tally.rejected > 500
    assert len(parsed) < 60
