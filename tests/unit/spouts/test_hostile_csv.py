"""Hostile CSV files: each record is rejected or read as it is alone, wherever its file is cut."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from tests.unit.spouts.test_rejected_rows import Row, sift
from txtopo.core.fields import parse_fields
from txtopo.formats import Csv
from txtopo.spouts.formats.csv import ranges as csv_ranges
from txtopo.spouts.formats.csv import windows as csv_windows
from txtopo.spouts.formats.csv.value_checks import converted, impossible_values, refused_values
from txtopo.spouts.formats.csv.values import BadValueError, Decoder

FIELDS = "a int not null, s string, c decimal(5,2), t timestamp, o boolean, f double, d date, h timestamp_ntz, y binary"
HEADER = ["s", "a", "x", "c", "t", "o", "f", "d", "h", "y"]
GOOD = {
    "s": ["", "x", "NA", "é", "5'", "\ufeff", 'q"q'],
    "a": ["1", "-7", " 5", "2147483647", "007"],
    "x": ["", "\xff", "u"],
    "c": ["", "1.5", "-999.99", "1e2", " 1 ", "1.500"],
    "t": ["", "2024-02-29", "2024-01-31T10:00:00Z", "2024-01-31 10:00", "2024-01-31 10:00:00.123456+05:30"],
    "o": ["", "true", "FALSE"],
    "f": ["", "1e-3", "nan", "+1.5", "inf", "1."],
    "d": ["", "2024-01-31", " 2000-02-29"],
    "h": ["", "2024-01-31 10:00", "2024-01-31"],
    "y": ["", "b", "n\0n"],
}
BAD = {
    "s": ["\0", "\udcff", "\udced\udca0\udc80"],
    "a": ["", "+1", "1.0", "2147483648", "0x1F", "x", "\u00a05"],
    "c": ["1.555", "1000", "x", "02e-95", "nan"],
    "t": ["2023-02-29", "x", "2024-01-31Z", "2024-01-31 10:61"],
    "o": ["1", "yes", " true"],
    "f": ["x", "1e", "1_0", "."],
    "d": ["2023-02-29", "31.01.2024", "0000-00-00"],
    "h": ["2024-01-31 10:00Z", "x"],
}


def hostile(chance: random.Random) -> bytes:
    """A file with bad values, wrong widths, blank lines and quotes of all kinds, sometimes none of one kind."""
    quotes, bad, widths, blanks = (chance.random() * chance.choice([0, 0.2, 0.6]) for _ in range(4))
    line_end = chance.choice(["\n", "\n", "\r\n", "\r"])
    lines = [",".join(HEADER)]
    for _ in range(chance.randrange(30)):
        cells = []
        for name in HEADER:
            text = chance.choice(BAD[name] if name in BAD and chance.random() < bad / 4 else GOOD[name])
            if chance.random() < quotes:
                inside = text + chance.choice(["", "", "\n", "\r\n", '"', ","] if name in "sxy" else [""])
                text = chance.choice(['"{}"', '"{}"', '"{}"', '"{}', '{}"', '"{}"z']).format(inside.replace('"', '""'))
            elif not quotes:
                text = text.replace('"', "")
            cells.append(text)
        if chance.random() < widths / 2:
            cells = chance.choice([cells[:-1], [*cells, "more"], cells[:1]])
        lines.append(",".join(cells))
        if chance.random() < blanks:
            lines.append("")
    return (line_end.join(lines) + chance.choice(["", line_end])).encode("utf-8", "surrogateescape")


@dataclass
class OracleRecord:
    line: int
    raw: bytes
    columns: int
    closed: bool = True


def oracle_records(data: bytes) -> Iterator[OracleRecord]:
    """One byte after another, as RFC 4180 says it; blank lines left out, the line of a quote without a good end by
    itself.
    """
    at, line = 0, 1
    while at < len(data):
        start, columns, quoted, begins, broken = at, 1, False, True, False
        while at < len(data) and not broken and (quoted or data[at] not in b"\r\n"):
            sign = data[at : at + 1]
            if quoted:
                if sign == b'"' and data[at + 1 : at + 2] == b'"':
                    at += 1
                elif sign == b'"':
                    quoted, broken = False, data[at + 1 : at + 2] not in (b"", b",", b"\r", b"\n")
            elif sign == b'"' and begins:
                quoted = True
            columns += sign == b"," and not quoted
            begins = sign == b"," and not quoted
            at += 1
        if quoted or broken:
            at = start
            while at < len(data) and data[at] not in b"\r\n":
                at += 1
        raw = data[start:at]
        if raw:
            yield OracleRecord(line, raw, columns, not (quoted or broken))
        line += 1 + raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")
        at += 2 if data[at : at + 2] == b"\r\n" else 1


def oracle(data: bytes) -> tuple[list[Row], list[tuple[int, bytes]]]:
    """Rows, and (line, raw) of the rejects: every record is parsed alone."""
    decoder = Decoder(tuple(HEADER), parse_fields(FIELDS), may_hold_nul=True, may_hold_hexadecimal=True)
    rows: list[Row] = []
    rejects = []
    for record in list(oracle_records(data))[1:]:
        try:
            if not record.closed or record.columns != len(HEADER):
                raise BadValueError
            (batch,) = decoder.decode(record.raw + b"\n")
            rows.append(tuple(column[0].as_py() for column in batch.columns))
        except (BadValueError, pa.ArrowInvalid):
            rejects.append((record.line, record.raw))
    return rows, rejects


@pytest.mark.parametrize("seed", range(4))
def test_every_record_of_hostile_files_is_emitted_or_rejected_as_it_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Which lines are rejected does not depend on block borders, on parts, or on which path met them."""
    chance = random.Random(seed)
    seen = 0
    for _ in range(40):
        content = hostile(chance)
        rows, rejects = oracle(content)
        seen += bool(rejects)
        reasons = set()
        for _ in range(2):
            size = chance.choice([24, 120, 600, 100_000])
            monkeypatch.setattr(csv_ranges, "BLOCK_BYTES", size)
            monkeypatch.setattr(csv_windows, "WINDOW_BYTES", chance.choice([24, 120, 600, 100_000]))
            part_bytes = chance.choice([1, 20, 100, 10_000])

            found, kept = sift(tmp_path, content, FIELDS, part_bytes=part_bytes)

            assert repr(found) == repr(rows), content  # nan is not equal to itself
            assert [(reject.line, reject.raw) for reject in kept] == rejects, content
            reasons.add(tuple(reject.reason for reject in kept))
        assert len(reasons) == 1, content
    assert seen > 10


def texts_of(kind: str, chance: random.Random) -> list[bytes]:
    """Spellings near the accepted ones of a type."""
    accepted = [text for texts in GOOD.values() for text in texts] + [text for texts in BAD.values() for text in texts]
    edges = [str(edge + by) for bits in (7, 15, 31, 63) for edge in (2**bits, -(2**bits)) for by in (-1, 0, 1)]
    times = [
        "2024-12-31 24:00",
        "2024-12-31T23:59:60Z",
        "2024-12-31 10",
        "2024-12-31 1000",
        "2024-12-31 10:00-0530",
        "2024-12-31 10:00+05",
    ]
    numbers = [
        "nan(1)",
        "infinity",
        "-.5",
        ".5e1",
        "--1",
        "+-1",
        "1e400",
        "-0",
        "00000000000000000000001",
        "1E2",
        "1e-2",
        "99.995e1",
        "tRUE",
    ]
    found = [
        *accepted,
        *edges,
        *times,
        *numbers,
        "0000-12-31",
        "0001-01-01",
        "9999-12-31",
        "0001-01-01 00:00+01",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31 23:00-01:01",
        "True",
        "False",
        "TRUE",
        "false",
        "1900-02-29",
        "2000-02-29",
        "2024-04-31",
    ]
    for _ in range(1500):
        text = list(chance.choice(found[: len(accepted) + 40]))
        for _ in range(chance.randrange(1, 3)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randrange(2)] = chance.choice(
                ["", *"0123456789", *"+-.eE:TZ _ntf\t", "\u00a0", "\n", "0x"]
            )
        found.append("".join(text))
    return sorted({text.encode("utf-8", "surrogateescape") for text in found})


@pytest.mark.parametrize(
    "kind",
    [
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "boolean",
        "date",
        "timestamp",
        "timestamp_ntz",
        "decimal(5,2)",
        "decimal(38,0)",
        "string",
    ],
)
def test_the_slow_path_accepts_exactly_what_the_parser_does(kind: str) -> None:
    """No value is refused by its pattern or converted in another way than the parser of CSV files reads it."""
    (field,) = parse_fields(f"a {kind}").items
    decoder = Decoder(("a",), parse_fields(f"a {kind}"), may_hold_nul=True, may_hold_hexadecimal=True)
    texts = texts_of(kind, random.Random(7))
    column = pa.array(texts, pa.binary())
    parsed: dict[bytes, Any] = {}
    for text in texts:
        try:
            (batch,) = decoder.decode(b'"' + text.replace(b'"', b'""') + b'"\n')
            parsed[text] = batch.column(0)[0].as_py()
        except (BadValueError, pa.ArrowInvalid):
            pass

    assert 4 < len(parsed) < len(texts)
    assert set(refused_values(field, column, decoder)) == {at for at, text in enumerate(texts) if text not in parsed}
    screened = impossible_values(field, column, decoder).to_pylist()
    assert not [text for text, wrong in zip(texts, screened, strict=True) if wrong and text in parsed]
    for text in texts:
        try:
            (value,) = converted(field, pa.array([text], pa.binary()), decoder).to_pylist()
        except (BadValueError, pa.ArrowInvalid):
            continue
        assert text in parsed
        assert repr(value) == repr(parsed[text])


@pytest.mark.parametrize("around", [0, 1, 20, 400])
def test_lines_with_quotes_that_are_refused_cost_what_they_are(around: int) -> None:
    """Not a window of 4 MiB each: half a megabyte of them took minutes. Nothing else is read otherwise."""
    good, bad = b'1,"ok"\n', b'1,"5" pipe"\n'
    data = (bad + good * around) * (500_000 // (len(bad) + around * len(good)))
    asked = 0

    def read(offset: int, size: int) -> bytes:
        nonlocal asked
        found = data[offset : offset + size]
        asked += len(found)
        return found

    found = list(csv_windows.windows(read, 0, len(data), Csv()._dialect, 2))
    refused = [window for window in found if window.refused is not None]
    assert b"".join(window.data for window in found) == data
    assert len(refused) == data.count(bad) and {window.data for window in refused} == {bad}
    most = csv_windows.AFTER_REFUSED_BYTES
    assert asked < csv_windows.WINDOW_BYTES + len(refused) * 2 * most + 6 * len(data)


def test_a_record_of_many_lines_takes_the_memory_of_its_bytes() -> None:
    """An object for each of its lines would take thirty times as much."""
    data = b'1,"' + b"x\n" * 1_000_000 + b'"\r\n2,y\n'
    tracemalloc.start()
    try:
        first, second = csv_windows.windows(lambda at, size: data[at : at + size], 0, len(data), Csv()._dialect, 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (first.data + second.data, first.records and first.records.lines_count) == (data, 1_000_001)
    assert peak < 5 * len(data)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b""])
def test_a_long_record_is_the_same_as_a_window_of_its_own(
    end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rejects have the right lines, and so have those after it."""
    content = b'a,b\n1,"x\ny\r\nz"\nbad,"p\n"\n3,"q"\n\nbad,r\n4,"\r"\nbad,"s\n\n"' + end
    found = []
    for size in (1 << 20, 1, 8):
        monkeypatch.setattr(csv_windows, "LONG_RECORD_BYTES", size)
        rows, rejects = sift(tmp_path, content, "a int, b string")
        found.append((rows, [(one.line, one.raw) for one in rejects]))
    assert found[0] == found[1] == found[2]
    assert [line for line, _ in found[0][1]] == [5, 9, 12]
