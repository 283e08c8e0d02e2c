"""The formats that txtopo brings, and one of a user, on the contract of formats."""

from __future__ import annotations

from tests.contracts.format_contract import FormatContract
from txtopo.formats import Csv, Text
from txtopo.spouts.formats.csv import ranges, windows
from txtopo.spouts.formats.lines import line_windows

CSV_FIELDS = "a int not null, s string, c decimal(5,2), t timestamp, o boolean, d date, f double, y binary"


class TestCsv(FormatContract):
    """Records may have line ends inside quotes; CR alone ends lines too."""

    format = Csv()
    other = Csv(delimiter=";", null_values=["NA", "x"])
    fields = CSV_FIELDS
    head = b"s,a,x,c,t,o,d,f,y\n"
    scraps = (
        b"x,1,u,1.50,2024-02-29 10:00,true,2024-01-31,1.5,b\n",
        b",-2147483648,,,,,,,\r\n",
        b"NA,2147483647,,-999.99,2024-01-31T10:00:00.123456+05:30,FALSE,0001-01-01,nan,\xff\n",
        b"x,2147483648,,,,,,,\n",
        b"x,1,u,1.505,,,,,\n",
        b"x,,u,1,,,,,\n",
        b"x,0x1F,u,1,,,,,\n",
        b"n\0l,1,u,1,,,,,\n",
        b"\xff,1,u,1,,,,,\n",
        b"\xef\xbb\xbfx,1,,,,,,,\n",
        b"1,2\n",
        b"\n",
        b"\r\n",
        b"\r",
        b'"say ""hi"",\nthere",7,,,,,,,\n',
        b'"open,1,,,,,,,\n',
        b'"closed"too early,1,,,,,,,\n',
        b"last,3,,,,,,,",
    )
    files = {
        "one record": head + b"x,1,,,,,,,",
        "CR": head.replace(b"\n", b"\r") + b"x,1,,,,,,,\rx,z,,,,,,,\r",
        "CRLF": head.replace(b"\n", b"\r\n") + b"x,1,,,,,,,\r\nx,z,,,,,,,\r\n",
        "byte order mark": b"\xef\xbb\xbf" + head + b"x,1,,,,,,,\n",
        "byte order mark alone": b"\xef\xbb\xbf",
        "line ends alone": b"\n\r\n\n",
        "all NULL": head + b",1,,,,,,,\n" * 5,
        "never closed": head + b'x,1,,,,,,,\n"' + b"x,1,,,,,,,\n" * 9,
        "header twice": head + head,
    }
    refused = {
        "column missing": (b"s,x\n1,2\n", "column 'a' is missing"),
        "column twice": (b"a," + head, "column 'a' stands 2 times"),
        "gzip": (b"\x1f\x8b\x08" + bytes(9), "it is gzip"),
        "JSON": (b'{"a": 1}\n', "it looks like JSON"),
    }
    sizes = ((ranges, "BLOCK_BYTES"), (windows, "WINDOW_BYTES"))


class TestText(FormatContract):
    """Every line is a record, also an empty one."""

    format = Text()
    fields = "line string"
    wrong_fields = "line string, number int"
    scraps = (
        b"a line\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"n\0l\n",
        b"\xff\n",
        b"\xe2\x80\xa8\x0b\x85\n",
        "é\n".encode(),
        b"last",
    )
    files = {"one line": b"a", "byte order mark": b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", "mark alone": b"\xef\xbb\xbf"}
    refused = {"gzip": (b"\x1f\x8b\x08" + bytes(9), "it is gzip")}
    sizes = ((line_windows, "WINDOW_BYTES"),)
    is_recounted = False
