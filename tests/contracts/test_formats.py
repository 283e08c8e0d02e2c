"""The formats that txtopo brings, and one of a user, on the contract of formats."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.contracts.format_contract import FormatContract
from txtopo.formats import Csv, Parquet, Text
from txtopo.spouts.formats.csv import ranges, windows
from txtopo.spouts.formats.lines import line_windows
from txtopo.spouts.formats.parquet import parquet_file

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


class TestParquet(FormatContract):
    """Records are rows, three in a row group. What does not fit is a value, since the types of columns are checked."""

    format = Parquet(paths={"u": ("user", "id")})
    other = Parquet()
    fields = (
        "a int not null, s string, c decimal(5,2), t timestamp, n timestamp_ntz, o boolean, d date, f double, "
        "y binary, u bigint, _row bigint"
    )
    wrong_fields = "a int, _row string"
    schema = pa.schema(
        {
            "s": pa.string(),
            "x": pa.string(),
            "a": pa.int64(),
            "c": pa.decimal128(10, 3),
            "t": pa.timestamp("ns", "UTC"),
            "n": pa.timestamp("ms"),
            "o": pa.bool_(),
            "d": pa.date32(),
            "f": pa.float32(),
            "y": pa.binary(),
            "user": pa.struct({"name": pa.string(), "id": pa.uint64()}),
            "u": pa.list_(pa.int8()),
        }
    )
    scraps = (
        {"a": 1, "s": "x", "x": "other", "c": Decimal("1.5"), "o": True, "f": 0.1, "y": b"\xff\0", "user": {"id": 7}},
        {"a": -(2**31), "t": 1000, "n": dt.datetime(2024, 2, 29, 10), "d": dt.date(1, 1, 1), "user": {}},
        {"a": 2**31 - 1, "s": "é\u2028", "c": Decimal("-999.990"), "f": float("nan"), "user": {"name": "n"}},
        {"a": 5, "d": dt.date(9999, 12, 31), "n": dt.datetime(9999, 12, 31, 23, 59, 59, 999000), "f": float("-inf")},
        {"a": 2**31, "n": dt.datetime(2024, 1, 1, 0, 0, 0, 1000), "d": dt.date(2024, 1, 1)},
        {"a": None, "s": "NULL"},
        {"a": 1, "s": "n\0l", "y": b""},
        {"a": 1, "c": Decimal("1.505"), "f": float("inf"), "t": -1_000_000_000},
        {"a": 1, "c": Decimal("1000")},
        {"a": 1, "t": 1_700_000_000_123_456_789, "user": {"id": 2**64 - 1}},
        {"a": 1, "user": {"id": 2**63}},
        {"a": 1, "d": -719163, "f": float("nan")},
        {"a": 1, "d": 2**31 - 1},
        {"a": 1, "n": 253_402_300_800_000},
    )
    unit = "row"
    examples = 15
    sizes = ((parquet_file, "ROWS_MAX"), (parquet_file, "BATCH_BYTES"))

    def content(self, scraps: Sequence[Any]) -> bytes:
        return self.written(scraps)

    def written(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema = schema) -> bytes:
        """A file of these rows."""
        file = BytesIO()
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
        parquet.write_table(pa.Table.from_arrays(columns, schema=schema), file, row_group_size=3, data_page_size=20)
        return file.getvalue()

    def bare(self) -> Mapping[str, bytes]:
        return {"no row": self.written([])}

    @property
    def refused(self) -> Mapping[str, tuple[bytes, str]]:  # type: ignore[override]
        """Made here, since they are files of this class."""
        one = self.written(self.scraps[:1])

        def typed(name: str, found: pa.DataType) -> bytes:
            at = self.schema.get_field_index(name)
            return self.written([], self.schema.set(at, pa.field(name, found)))

        return {
            "nothing": (b"", "it holds no byte"),
            "CSV": (b"a,s\n1,x\n", "it is no Parquet file"),
            "gzip": (b"\x1f\x8b\x08" + bytes(99), "it is gzip"),
            "encrypted": (b"PARE" + one[4:-4] + b"PARE", "encrypted"),
            "cut off": (one[:-1], "it is a Parquet file that is cut off"),
            "magic alone": (b"PAR1PAR1", "cut off"),
            "footer": (one[:-8] + bytes(4) + b"PAR1", "damaged"),
            "column missing": (self.written([], self.schema.remove(2)), "column 'a' is missing; the file has 's', 'x'"),
            "column twice": (
                self.written([], self.schema.append(pa.field("s", pa.string()))),
                "column 's' stands 2 times",
            ),
            "wrong type": (typed("a", pa.float64()), "column 'a' has type double, declared as int"),
            "no zone": (typed("t", pa.timestamp("us")), "declare it as timestamp_ntz"),
            "zone": (typed("n", pa.timestamp("us", "Asia/Tokyo")), "declare it as timestamp"),
            "no struct": (typed("user", pa.int8()), "so there is no 'id' in it"),
            "nested": (typed("s", pa.struct({"x": pa.string()})), "it is nested"),
            "inside missing": (typed("user", pa.struct({"x": pa.string()})), r"column \('user', 'id'\) is missing"),
        }
