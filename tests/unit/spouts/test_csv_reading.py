"""The emitter half of the file source: what a CSV record is, which values are accepted, and which line is at fault."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from txtopo.audit.recount import recount
from txtopo.audit.recount_rejects import KeptReject
from txtopo.errors import BatchDataError
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.csv import ranges as csv_ranges
from txtopo.spouts.formats.csv import windows as csv_windows
from txtopo.spouts.formats.csv.dialect import LineCounter
from txtopo.topology.components import SpoutContext, Tally


def plan(spout: FileSpout) -> Any:
    now = [0.0]
    context = SpoutContext(topology="t", spout="s", consumed={}, once=True, monotonic=lambda: now[0], say=print)
    coordinator = spout.open_coordinator(context)
    coordinator.is_ready()
    now[0] = 10.0
    assert coordinator.is_ready()
    return coordinator.initialize_transaction(1, None)


def emit(spout: FileSpout, metadata: Any) -> list[tuple[Any, ...]]:
    """All rows of a batch; the tally must agree with them."""
    tally = Tally()
    rows: list[tuple[Any, ...]] = []
    for part in spout.parts(metadata):
        for batch in spout.emit_part(metadata, part, tally):
            assert batch.schema.names == list(spout.fields.names)
            rows.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    assert tally.read == len(rows) + tally.rejected
    return rows


def read(folder: Path, content: bytes, fields: str, **options: Any) -> list[tuple[Any, ...]]:
    (folder / "a.csv").write_bytes(content)
    spout = FileSpout(folder / "a.csv", fields, **options)
    return emit(spout, plan(spout))


def value(folder: Path, text: str, field_type: str) -> Any:
    """What the parser makes of one unquoted value."""
    ((found, _),) = read(folder, f"v,w\n{text},\n".encode(), f"v {field_type}, w string")
    return found


def fault(folder: Path, content: bytes, fields: str, **options: Any) -> BatchDataError:
    """What is said of the first line that does not parse."""
    with pytest.raises(BatchDataError) as caught:
        read(folder, content, fields, on_bad_line="fail", **options)
    return caught.value


@pytest.mark.parametrize(
    ("field_type", "text", "expected"),
    [
        ("string", "NA", "NA"),
        ("string", "null", "null"),
        ("string", " a ", " a "),
        ("string", "", None),
        ("string", '""', ""),
        ("string", "\ufeffa", "\ufeffa"),
        ("int", "-2147483648", -(2**31)),
        ("int", " 7 ", 7),
        ("int", "", None),
        ("int", "007", 7),
        ("int", '"5"', 5),
        ("tinyint", "-128", -128),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("decimal(5,2)", "1.5", Decimal("1.50")),
        ("decimal(5,2)", "1e2", Decimal(100)),
        ("decimal(5,2)", "-999.99", Decimal("-999.99")),
        ("boolean", "true", True),
        ("boolean", "FALSE", False),
        ("date", "2024-02-29", dt.date(2024, 2, 29)),
        ("timestamp", "2013-01-01T10:00:00Z", dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC)),
        ("timestamp", "2013-01-01 10:00:00.123456", dt.datetime(2013, 1, 1, 10, 0, 0, 123456, dt.UTC)),
        ("timestamp", "2013-01-01 10:00:00-0530", dt.datetime(2013, 1, 1, 15, 30, tzinfo=dt.UTC)),
        ("timestamp", "2013-01-01T10:00+02:00", dt.datetime(2013, 1, 1, 8, tzinfo=dt.UTC)),
        ("timestamp", "2013-01-01", dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
        ("timestamp", "", None),
        ("timestamp_ntz", "2013-01-01 10:00:00", dt.datetime(2013, 1, 1, 10)),
        ("double", "1e3", 1000.0),
        ("double", "inf", math.inf),
        ("binary", "a\0b", b"a\0b"),
    ],
)
def test_a_value_is_read_as_its_declared_type(tmp_path: Path, field_type: str, text: str, expected: Any) -> None:
    """Only the empty unquoted field is NULL: NA and null are strings."""
    assert value(tmp_path, text, field_type) == expected


@pytest.mark.parametrize(
    ("field_type", "text"),
    [
        ("int", "\u00a05"),
        ("decimal(5,2)", "\u00a01.5"),
        ("double", "1e"),
        ("double", "1_0"),
        ("int", "+1"),
        ("int", "1.0"),
        ("int", "2147483648"),
        ("int", '""'),
        ("int", "NA"),
        ("int", "1 000"),
        ("int", "٣"),
        ("tinyint", "128"),
        ("bigint", "9223372036854775808"),
        ("bigint", "-9223372036854775809"),
        ("decimal(5,2)", "1.555"),
        ("decimal(5,2)", "1000"),
        ("decimal(5,2)", "nan"),
        ("decimal(5,2)", "1e999999999"),
        ("boolean", "1"),
        ("boolean", "yes"),
        ("date", "2023-02-29"),
        ("date", "0000-00-00"),
        ("date", "01/02/2024"),
        ("date", "294277-01-01"),
        ("timestamp", "2013-01-01T10:00:60Z"),
        ("timestamp", "2013-01-01T10:00:00.1234567Z"),
        ("timestamp", "yesterday"),
        ("timestamp", '""'),
        ("timestamp_ntz", "2013-01-01T10:00:00Z"),
        ("string", "a\0b"),
        ("int not null", ""),
        ("string not null", ""),
        ("timestamp not null", ""),
    ],
)
def test_a_value_that_does_not_fit_names_file_line_and_column(tmp_path: Path, field_type: str, text: str) -> None:
    """A line that does not parse fails the batch with file and line where that is asked for; nothing is rounded or
    guessed.
    """
    error = fault(tmp_path, f"v,w\n{text},\n".encode(), f"v {field_type}, w string")

    assert error.position == f"{tmp_path / 'a.csv'}:2"
    assert str(error).startswith(f"{error.position}: column 'v'")
    assert error.component == "spout"


@pytest.mark.parametrize(
    ("content", "line", "reason", "raw"),
    [
        (b"a,b\n1,x\n2\n3,x\n", 3, "1 columns, the header has 2", "2"),
        (b"a,b\n1,x\n2,x,x\n3,x\n", 3, "3 columns, the header has 2", "2,x,x"),
        (b"a,b\r\n\r\n1,x\r\n\r\nz,x\r\n", 5, "'z' is no int", "z,x"),
        (b'a,b\n1,"x\n\ny"\n2,"x\r\ny"\nz,x\n', 7, "'z' is no int", "z,x"),
        (b'a,b\n1,x\nz,"x\ny"\n', 3, "'z' is no int", 'z,"x\ny"'),
        (b"a,b\r1,x\rz,x\r", 3, "'z' is no int", "z,x"),
        (b'"a\n\n",a,b\n,1,x\n,z,x\n', 5, "'z' is no int", ",z,x"),
        (b"a,b\n1,x\n2,\xff\n", 3, r"\\xff' is not UTF-8", "2,\\xff"),
        (b'a,b\n1,x\n2,"x\n3,x\n', 3, "a quoted value is not closed", '2,"x'),
        (b'a,b\n1,x\n2,"x', 3, "a quoted value is not closed", '2,"x'),
        (b'a,b,c\n1,x,5" pipe\n2,x,"x\n', 3, "a quoted value is not closed", '2,x,"x'),
        (b"a,b\n1,x\n2,x\0\n", 3, "NUL", "2,x\\x00"),
        (b'a,b\n1,x\n2,x\nz,x\n"4",x\ny,x', 4, "'z' is no int", "z,x"),
    ],
)
def test_the_line_is_the_one_where_the_record_starts(
    tmp_path: Path, content: bytes, line: int, reason: str, raw: str
) -> None:
    """Lines are physical and count from 1, the header's; blank lines and line ends inside values count."""
    error = fault(tmp_path, content, "a int, b string")

    assert error.position == f"{tmp_path / 'a.csv'}:{line}"
    assert reason.replace("\\\\", "\\") in str(error)
    assert error.detail == raw


def test_an_unclosed_quote_in_a_file_of_one_column_is_found(tmp_path: Path) -> None:
    assert read(tmp_path, b'a\n""\n\n"x"\n', "a string") == [("",), ("x",)]
    assert fault(tmp_path, b'a\nx\n"y\n', "a string").position == f"{tmp_path / 'a.csv'}:3"


def test_columns_that_are_not_declared_are_ignored_whatever_they_hold(tmp_path: Path) -> None:
    """Which line is bad depends on plan and schema alone."""
    assert read(tmp_path, b"x,a,x,\n\xff\0,1,\xfe,\n", "a int") == [(1,)]


def test_other_spellings_of_null_are_declared(tmp_path: Path) -> None:
    """By default only the empty value is NULL; with `null_values` exactly those given are, and only where they are not
    quoted.
    """
    content = b'a,b\nNA,NA\n1,"NA"\n,x\n'

    assert read(tmp_path, content, "a int, b string", null_values=["", "NA"]) == [(None, None), (1, "NA"), (None, "x")]
    assert "line 2" in str(fault(tmp_path, content, "a int")) or fault(tmp_path, content, "a int").position


@pytest.mark.parametrize(
    ("field_type", "text"),
    [
        ("int", "0x1F"),
        ("int", "0xFFFFFFFF"),
        ("bigint", "0X10"),
        ("decimal(5,2)", "02e-95"),
        ("decimal(5,2)", "100e+-2"),
        ("int", "1 0"),
    ],
)
def test_numbers_in_other_notations_are_never_read_as_other_numbers(tmp_path: Path, field_type: str, text: str) -> None:
    """The parser behind this one takes them for 31, -1, 0.00: rows right, or refused with file and line."""
    assert str(fault(tmp_path, f"a\n1\n{text}\n".encode(), f"a {field_type}").position).endswith(":3")


@pytest.mark.parametrize("field_type", ["float", "double"])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_number_that_becomes_infinite_is_no_number_and_infinity_is_one(
    tmp_path: Path, field_type: str, quoted: bool
) -> None:
    """Elsewhere it would be read as infinity without a word, which bolts may not emit."""
    texts = ["1e400", "-1e400", "1" * 400, "inf", "-INF", "Infinity", "nan", "1.5", " 2 "]
    lines = [f'"{text}",x' if quoted else f"{text},x" for text in texts]
    (tmp_path / "a.csv").write_text("\n".join(["v,w", *lines]) + "\n")
    spout = FileSpout(tmp_path, f"v {field_type}, w string")
    metadata, tally = plan(spout), Tally()
    found = [
        value
        for part in spout.parts(metadata)
        for batch in spout.emit_part(metadata, part, tally)
        for value in batch.column(0).to_pylist()
    ]

    assert [str(value) for value in found] == ["inf", "-inf", "inf", "nan", "1.5", "2.0"]
    assert [reject.line for reject in tally.rejects] == [2, 3, 4]
    assert all(f"is no {field_type}" in reject.reason for reject in tally.rejects)
    counted, _ = recount(
        metadata,
        [],
        lambda path: (
            KeptReject(line=one.line, reason=one.reason, raw=one.raw, raw_bytes=one.raw_bytes) for one in tally.rejects
        ),
    )
    assert (counted.records, counted.judged.rejected, counted.judged.wrong.number) == (9, 3, 0)


def test_a_float_of_32_bits_has_its_own_end(tmp_path: Path) -> None:
    assert value(tmp_path, "3.4028235e38", "float") == pytest.approx(3.4028235e38)
    assert "'3.5e38' is no float" in str(fault(tmp_path, b"v\n3.5e38\n", "v float"))
    assert value(tmp_path, "3.5e38", "double") == 3.5e38


def test_a_value_that_is_not_utf8_is_escaped_once(tmp_path: Path) -> None:
    error = fault(tmp_path, "v\nMünchen\n".encode("latin-1"), "v string")

    assert str(error).endswith(r"column 'v': 'M\xfcnchen' is not UTF-8")


def test_the_value_that_is_no_number_is_named(tmp_path: Path) -> None:
    """File, line, column and value."""
    assert "'0x1F'" in str(fault(tmp_path, b"a\n0x1F\n", "a int"))
    assert "'1,5'" in str(fault(tmp_path, b'a\n"1,5"\n', "a decimal(5,2)"))


def test_a_file_that_holds_0x_in_a_text_reads_its_numbers_all_the_same(tmp_path: Path) -> None:
    """The careful way gives what the fast way gives."""
    assert read(tmp_path, b"a,b\n0x1F, 7\nx,-3\ny,\n", "a string, b int") == [("0x1F", 7), ("x", -3), ("y", None)]


def test_another_delimiter(tmp_path: Path) -> None:
    assert read(tmp_path, b'a;b\n1,5;"x;y"\n', "b string, a string", delimiter=";") == [("x;y", "1,5")]
    assert read(tmp_path, b"a|b\n1|2\n", "b int, a int", delimiter="|") == [(2, 1)]
    assert read(tmp_path, b"a\tb\n1\t\n", "b int, a int", delimiter="\t") == [(None, 1)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("final", [True, False])
def test_parts_cover_each_record_once_wherever_they_are_cut(tmp_path: Path, line_end: str, final: bool) -> None:
    """Files without quotes are cut at line ends into parts."""
    lines = ["a,b", *[f"{number},{'x' * (number % 9)}" for number in range(40)]]
    content = line_end.join(lines) + (line_end if final else "")
    expected = [(number, "x" * (number % 9) or None) for number in range(40)]

    for part_bytes in (*range(1, 30), 64, 10_000):
        assert read(tmp_path, content.encode(), "a int, b string", part_bytes=part_bytes) == expected


def test_a_bad_line_in_a_later_part_has_its_line_in_the_file(tmp_path: Path) -> None:
    lines = ["a", *map(str, range(100)), "bad", "1"]

    assert fault(tmp_path, "\n".join(lines).encode(), "a int", part_bytes=50).position == f"{tmp_path / 'a.csv'}:102"


def test_a_file_with_quotes_is_never_cut(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a\n"1\n2"\n' * 50)
    spout = FileSpout(tmp_path, "a string", part_bytes=10)

    assert len(spout.parts(plan(spout))) == 1


def test_small_files_share_a_part_and_large_ones_have_several(tmp_path: Path) -> None:
    """A small batch is one part, for one file a task costs ten times more."""
    for name, rows in (("a", 3), ("b", 3), ("c", 100), ("d", 3), ("e", 0)):
        (tmp_path / name).write_text("a\n" + "1\n" * rows)
    spout = FileSpout(tmp_path, "a int", files_per_batch=9, part_bytes=60)
    metadata = plan(spout)

    files = [[piece[0] for piece in part["pieces"]] for part in spout.parts(metadata)]

    assert files == [[0, 1], [2], [2], [2], [2, 3, 4]]
    assert len(emit(spout, metadata)) == 109
    small = FileSpout(tmp_path, "a int", files_per_batch=9)
    assert len(small.parts(plan(small))) == 1


@pytest.mark.parametrize("quotes", [False, True])
def test_a_record_larger_than_a_block_is_read_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quotes: bool
) -> None:
    """Rows that were emitted before the larger record came are not emitted again."""
    monkeypatch.setattr(csv_ranges, "BLOCK_BYTES", 256)
    monkeypatch.setattr(csv_windows, "WINDOW_BYTES", 256)
    mark = '"' if quotes else ""
    records = [
        (number, "x" * 3000 if number == 150 else "y\n" if quotes and number % 7 == 0 else "y") for number in range(200)
    ]
    content = "a,b\n" + "".join(f"{number},{mark}{text}{mark}\n" for number, text in records)

    assert read(tmp_path, content.encode(), "a int, b string") == records


def test_a_record_beyond_the_bound_is_refused_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_ranges, "BLOCK_BYTES", 256)
    monkeypatch.setattr(csv_windows, "WINDOW_BYTES", 256)
    monkeypatch.setattr(csv_windows, "RECORD_BYTES_MAX", 1024)

    error = fault(tmp_path, b"a\n1\n" + b"x" * 9000 + b"\n2\n", "a string")

    assert error.position == f"{tmp_path / 'a.csv'}:3"
    assert "longer than 1024 bytes" in str(error)


@pytest.mark.parametrize("window", [16, 64, 1000])
def test_faults_are_found_across_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(csv_windows, "WINDOW_BYTES", window)
    content = "a,b\r\n" + "".join(f'{number},"x\r\n""y"\r\n\r\n' for number in range(50)) + 'z,"y"\r\n'

    assert fault(tmp_path, content.encode(), "a int, b string").position == f"{tmp_path / 'a.csv'}:152"


def test_a_large_file_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, not whole files, are in memory; closing an emitter half-way is no trouble."""
    monkeypatch.setattr(csv_ranges, "BLOCK_BYTES", 1000)
    (tmp_path / "a.csv").write_text("a\n" + "12345678\n" * 5000)
    spout = FileSpout(tmp_path, "a int")
    metadata = plan(spout)
    tally = Tally()
    emitter = spout.emit_part(metadata, spout.parts(metadata)[0], tally)

    first = next(emitter)
    emitter.close()  # type: ignore[attr-defined]

    assert 0 < first.num_rows == tally.read < 5000
    assert len(emit(spout, metadata)) == 5000


TEXT = st.text(alphabet="abé,;\"'\n\r \ufeff\u2028x1", max_size=6)
RECORDS = st.lists(st.tuples(st.one_of(st.none(), TEXT), TEXT, st.integers(-9, 99)), max_size=12)


@settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    records=RECORDS,
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    blank_lines=st.booleans(),
    part_bytes=st.integers(1, 60),
)
@example(records=[(None, "", 0), ("", '"', 1), ("\ufeff", "\r\n", 2)], line_end="\r\n", blank_lines=True, part_bytes=1)
def test_records_are_those_that_pythons_csv_module_reads(
    tmp_path: Path, records: list[tuple[str | None, str, int]], line_end: str, blank_lines: bool, part_bytes: int
) -> None:
    """A record is what RFC 4180 says, blank lines left out; NULL is the empty field without quotes."""
    out = io.StringIO()
    out.write("n,s,i" + line_end)
    for null, text, number in records:
        cells = [
            "" if null is None else _quoted(null),
            _quoted(text) if number % 2 or not text or _needs_quotes(text) else text,
            str(number),
        ]
        out.write(",".join(cells) + line_end + (line_end if blank_lines else ""))
    content = out.getvalue().encode()

    rows = read(tmp_path, content, "n string, s string, i int", part_bytes=part_bytes)

    assert rows == records
    by_csv = [row for row in csv.reader(io.StringIO(content.decode(), newline="")) if row][1:]
    assert [[null or "", text, str(number)] for null, text, number in rows] == by_csv


@settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(records=RECORDS, at=st.integers(0, 12), line_end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_the_first_bad_line_is_where_pythons_csv_module_finds_it(
    tmp_path: Path, records: list[tuple[str | None, str, int]], at: int, line_end: str
) -> None:
    """The line is exact whatever stands before it."""
    lines = ["n,s,i"] + [",".join([_quoted(null or ""), _quoted(text), str(number)]) for null, text, number in records]
    at = min(at, len(records)) + 1
    lines.insert(at, "n,s,bad")
    content = line_end.join(lines)
    before = line_end.join(lines[:at]) + line_end
    line = (
        1
        + len(before.replace("\r\n", "\n").replace("\r", "\n"))
        - len(before.replace("\r\n", "\n").replace("\r", "\n").replace("\n", ""))
    )

    assert fault(tmp_path, content.encode(), "n string, s string, i int").position == f"{tmp_path / 'a.csv'}:{line}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _needs_quotes(text: str) -> bool:
    return any(sign in text for sign in ',"\r\n')


def test_a_byte_order_mark_inside_the_file_is_part_of_its_value(tmp_path: Path) -> None:
    """The slow path accepts exactly what the fast path does."""
    assert fault(tmp_path, "a\n\ufeff1\n".encode(), "a int").position == f"{tmp_path / 'a.csv'}:2"


def test_lines_are_counted_across_pieces_of_a_file() -> None:
    """CRLF is one line end, also where a piece ends between CR and LF."""
    lines = LineCounter()

    for piece in (b"a\r", b"\nb\r", b"c\n", b"", b"\n\r\n"):
        lines.feed(piece)

    assert lines.line == 6
