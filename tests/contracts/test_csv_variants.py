"""CSV files that are written in other ways, on the contract of formats."""

from __future__ import annotations

from tests.contracts.format_contract import FormatContract
from txtopo.formats import Csv
from txtopo.spouts.formats.csv import ranges, windows

SIZES = ((ranges, "BLOCK_BYTES"), (windows, "WINDOW_BYTES"))


class TestSpelledCsv(FormatContract):
    """No header line, columns by position, decimal commas, groups of digits, dates of another order."""

    format = Csv(
        header=False,
        columns=["s", "a", "", "c", "t", "d", "f", "h", "o"],
        delimiter=";",
        null_values=["", "-", "1.000"],
        decimal=",",
        grouping=".",
        date_format="%d.%m.%Y",
        timestamp_format="%d.%m.%y %H:%M%z",
        empty_is_null=True,
    )
    other = Csv(delimiter=";")
    fields = "a int not null, s string, c decimal(9,2), t timestamp, d date, f double, o boolean"
    scraps = (
        b"x;1;u;1.234,50;31.01.24 10:00Z;31.01.2024;1,5;;true\n",
        b"y;2.000;;-1.234.567,8;1.2.70 1:02+05:30;1.2.2024;1e3;;FALSE\r\n",
        b'"";3;"";"";"";"";"";"";""\n',
        b"-;4;;-;-;;-;;\n",
        b"x;1.000;;;;;;;\n",
        b'x;"1.000";;1.000;;;;;\n',
        b'x;"";;;;;;;\n',
        b"x;1;;1.5;;;;;\n",
        b"x;1;;1.23,4;;;;;\n",
        b"x;1;;1,234;;;;;\n",
        b"x;1;;;2024-01-31 10:00Z;;;;\n",
        b"x;1;;;;2024-01-31;;;\n",
        b"x;1;;;;31.02.2024;;;\n",
        b"x;1;;;; 29.2.2024 ;1.000,5;;\n",
        b"x;+1;;;;;;;\n",
        b"x;0x1F;;;;;nan;;\n",
        b"x;1;;;;;1.5;;\n",
        b"x;1\n",
        b"\n",
        b"last;3;;0,5;;;;;",
    )
    files = {
        "one record": b"x;1;;;;;;;",
        "byte order mark": b"\xef\xbb\xbfx;1;;;;;;;\n",
        "byte order mark twice": b"\xef\xbb\xbf\xef\xbb\xbfx;1;;;;;;;\n",
        "byte order mark alone": b"\xef\xbb\xbf",
        "blank lines first": b"\n\n\nx;1;;;;;;;\n",
        "CR": b"x;1;;;;;;;\ry;z;;;;;;;\r",
    }
    refused = {
        "header line": (b"s;a;x;c;t;d;f;h;o\nx;1;;;;;;;\n", "it is a header line: say header=True"),
        "JSON": (b'{"a": 1}\n', "it looks like JSON"),
        "gzip": (b"\x1f\x8b\x08" + bytes(9), "it is gzip"),
        "other delimiter": (b"x,1,,,,,,,\n", "is ',' its delimiter"),
    }
    wrong_fields = "a int, z string"
    sizes = SIZES
