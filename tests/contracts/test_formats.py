"""The formats that txtopo brings, and one of a user, on the contract of formats."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import parquet

from tests.contracts.format_contract import FormatContract
from txtopo.formats import Csv, Json, Parquet, Pattern, Text
from txtopo.spouts.codecs import CODECS
from txtopo.spouts.formats.csv import ranges, windows
from txtopo.spouts.formats.lines import line_pair, line_windows
from txtopo.spouts.formats.lines.known_patterns import KNOWN_PATTERNS
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


class TestCsvWithLines(TestCsv):
    """Each row has the line where its record starts."""

    fields = f"{CSV_FIELDS}, _line bigint"
    wrong_fields = "a int, _line int"
    codec = "xz"


LINES = ((line_windows, "WINDOW_BYTES"), (line_pair, "CHUNK_LINES"))
ENDS = (b"\n", b"\r\n", b"\r", b"", b"\r\r\n", b"\n\n")
NO_LINES = {"gzip": (b"\x1f\x8b\x08" + bytes(9), "it is gzip"), "UTF-16": (b"\xff\xfea\0", "it is UTF-16")}


def files_of(record: bytes) -> dict[str, bytes]:
    """Files of this line that are read in an odd way somewhere."""
    mark = b"\xef\xbb\xbf"
    return {
        "one line": record,
        "byte order mark": mark + record + b"\n" + mark + record + b"\n",
        "byte order mark alone": mark,
        "half a byte order mark": mark[:2],
        "CR at the end": record + b"\r",
        "two CR at the end": record + b"\r\r",
        "CRLF": (record + b"\r\n") * 3,
        "CR alone": (record + b"\r") * 3,
        "line ends alone": b"\n\r\n\n",
    }


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
    files = files_of(b"a")
    refused = NO_LINES
    sizes = LINES
    codec = "zstd"


class TestBytesOfLines(TestText):
    """Lines in any encoding: only a NULL could be refused, and there is none."""

    fields = "line binary not null, _line bigint"
    wrong_fields = "line binary, _line int"
    rejects_something = False
    codec = "lz4"


AT = b"[10/Oct/2025:13:55:36 -0700]"
ACCESS = (
    b"10.0.0.1 - ann " + AT + b' "GET /a?x=1 HTTP/1.1" 200 2326 "http://e.org/" "Mozilla/5.0 (X11)"',
    b'10.0.0.2 - - [29/Feb/2024:23:59:59 +0530] "-" 408 - "-" "-"',
    b'::1 - ann lee [01/Jan/0002:00:00:00 +0000] "POST /\\"q\\" HTTP/1.0" 500 0 "" "a \\\\ b \\x41\\xc3\\xa9\\n\\q"',
    b"h - u " + AT + b' "\\x16\\x03\\x00" 400 007 "-" "\\xff \\x0"',
    b"h - a [b] " + AT + b" c " + AT + b' "GET  / HTTP/1.1" 200 1 "r" "\\x22\\x5c"',
    b"h - u " + AT + b' "GET /\\ a HTTP/1.1" 200 1 "r" "\\""',
    b"h - u " + AT + b' "GET /\\" HTTP/1.1" 200 1 "\xef\xbb\xbf" "\xe2\x80\xa8\x0c"',
    b"h - u " + AT + b' "get / HTTP/1.1" 200 1 "" ""',
    b"h - u " + AT + b' "GET / HTTP/" 200 -1 "" ""',
    b"h - u " + AT + b' "GET / HTTP/x" 200 1 "" ""',
    b'h - u [31/Sep/2025:13:55:36 -0700] "-" 200 1 "-" "-"',
    b'h - u [10/Okt/2025:24:55:36 -0700] "-" 200 1 "-" "-"',
    b'h - u [10/Oct/2025:13:55:36 +2460] "-" 200 1 "-" "-"',
    b"h i u " + AT + b' "-" 200 99999999999999999999 "-" "-"',
    b"h i  " + AT + b' "-" 200 1 "-" "-"',
    b"h - u " + AT + b' "-" 2000 1 "-" "-"',
    b"h - u " + AT + b' "-" 200 1 "-" "-',
    b"h - u " + AT + b' "-" 200 1 "-" "-" ',
    b"h - u " + AT + b' "-" 200 1 "-" "\\"',
    b"h - u " + AT + b' "-" 200 1 "n\0l" "\xff"',
    b"h - u " + AT + b' "-" 200 1 "n\0l" "-"',
    b" - u " + AT + b' "-" 200 1 "-" "-"',
    b"-",
)


class TestApacheCombined(FormatContract):
    """Escapes are undone after the match; a user may hold anything."""

    format = Pattern("apache_combined")
    other = Pattern("apache_combined", null_values=["200", "GET"])
    fields = (
        "host string, ident string, user string, time timestamp, request string, method string, path string, "
        "protocol string, status smallint, size bigint, referer string, agent string, _line bigint"
    )
    wrong_fields = "host string, bytes int"
    scraps = (*(line + b"\n" for line in ACCESS), *ENDS)
    files = files_of(ACCESS[0])
    refused = NO_LINES
    sizes = LINES
    codec = "bzip2"


class TestApacheCombinedAsOtherTypes(TestApacheCombined):
    """The same lines as bytes, days and texts, with other texts for NULL."""

    format = Pattern("apache_combined", null_values=["GET", "200", "10/Oct/2025:13:55:36 -0700"])
    other = Pattern("apache_combined")
    fields = "request binary, time date, method string, status string, agent binary, referer binary, size string"
    codec = "gzip"


class TestApacheCommon(TestApacheCombined):
    format = Pattern("apache_common")
    other = Pattern("apache_common", null_values=["GET"])
    fields = "time timestamp_ntz, host string, status int, size int not null, path string, user string"
    scraps = (*(line.rsplit(b' "', 2)[0] + b"\n" for line in ACCESS), *ENDS)
    files = files_of(ACCESS[0].rsplit(b' "', 2)[0])
    codec = "xz"


class TestNginx(TestApacheCombined):
    """Other escapes, and no ident."""

    format = Pattern("nginx")
    other = Pattern("nginx", null_values=["200"])
    fields = "host string, user string, time string, protocol string, path binary, request string, agent string"
    codec = "zstd"


SYSLOG = (
    b"Nov 23 09:07:01 web1 sshd[812]: Accepted: publickey for ann",
    b"<34>Nov  3 09:07:01 web1 kernel: [0.0] up",
    b"2026-11-23T09:07:01.123456+01:00 web1 systemd-logind[1]: New session",
    b"2026-11-23T09:07:01.1234567Z web1 a: b",
    b"2026-02-30T09:07:01Z web1 a/b:",
    b"Nov 23 09:07:01 web1 last message repeated 2 times",
    b"Nov 23 09:07:01 web1 a[7] b: c",
    b"Nov 23 09:07:01 web1 a[: b]: c",
    b"Nov 23 09:07:01 web1 a[]:c",
    b"Nov 23 09:07:01 web1 a:b",
    b"Nov 23 09:07:01 web1 : b",
    b"Nov 23 09:07:01 web1 a[99999999999]: \xe2\x80\xa8\r-",
    b"<1234>Nov 23 09:07:01 web1 a: b",
    b"<>Nov 23 09:07:01 web1 a: b",
    b"<5>2026-11-23T09:07:01+0100 - -:",
    b"Nov 23 09:07:01 web1 ",
    b"Nov 23 09:07:01 web1",
    b"Nov 23 09:07:01  a",
    b"nov 23 09:07:01 web1 a: b",
    b"Nov 23 09:07:01 web1 n\0l: x",
)


class TestSyslog(FormatContract):
    """Two kinds of times; a message may look like a program."""

    format = Pattern("syslog")
    other = Pattern("syslog", null_values=["web1"])
    fields = "priority int, time string, host string, program string, pid int, message string"
    wrong_fields = "facility string"
    scraps = (*(line + b"\n" for line in SYSLOG), *ENDS)
    files = files_of(SYSLOG[0])
    refused = NO_LINES
    sizes = LINES
    codec = "lz4"


class TestSyslogWithInstants(TestSyslog):
    """A time without a year is no instant."""

    fields = "time timestamp, message binary, _line bigint"
    codec = "xz"


class TestExpression(FormatContract):
    """A user's own: optional groups, an empty line that matches, values of all types."""

    format = Pattern(r"(?P<id>\S*) ?(?P<b>\w*)(?: (?P<c>.*))?", null_values=["-", "NA"])
    other = Pattern(r"(?P<id>\S*) (?P<b>\w*)(?P<c>)")
    fields = "c string, id int, b decimal(5,2), _line bigint"
    wrong_fields = "d string"
    scraps = (
        b"1 2\n",
        b"12 15 x\n",
        b"- NA -\n",
        b"7 \n",
        b"7 1_0 y\n",
        b"007 1e2 \xc3\xa9 z\n",
        b"0x1F 1\n",
        b"1.0\n",
        b"2147483648 1\n",
        b"1 1234\n",
        b"1 2 n\0l\n",
        b"1 2 \xff\n",
        b"1 2  \xe2\x80\xa8\n",
        "1 é x\n".encode(),
        "٣ 1\n".encode(),
        *ENDS,
    )
    files = files_of(b"1 2 x")
    refused = NO_LINES
    sizes = LINES
    codec = "bzip2"


class TestJson(FormatContract):
    """Objects with repeated keys, numbers as written, paths, nested values as text."""

    format = Json(paths={"who": ("user", "id")})
    other = Json(paths={"who": "id"})
    fields = (
        "who int, id bigint, name string, price decimal(20,4), at timestamp, ok boolean, x double, day date, "
        "local timestamp_ntz, _line bigint"
    )
    wrong_fields = "a binary"
    scraps: ClassVar[Sequence[bytes]] = (
        b'{"id": 1, "name": "ann", "price": 1.50, "at": "2026-01-01T00:00:00Z", "ok": true, "user": {"id": 7}}\n',
        b'{"id":null,"name":"\\u00e9 \\"q\\"","price":"12.25","ok":false,"user":null,"x":-0,"day":"2024-02-29"}\n',
        b'{"user":{"id":3,"id2":{"id":[1]}},"name":["a", 1.0, {"b" : "\\u00e9"}],"id":-9223372036854775808}\n',
        b"{}\n",
        b' {"price":1e2,"x":123456789012345678901234567890,"more":[[],{}]} \n',
        b'{"id":1,"id":1}\n',
        b'{"other":1,"other":2,"user":{"x":1,"x":2}}\n',
        b'{"user":{"id":1,"id":null}}\n',
        b'{"\\u0069d":2}\n',
        b'{"user":5}\n',
        b'{"user":[]}\n',
        b'{"name":"a\\u0000"}\n',
        b'{"name":"\\ud800"}\n',
        b'{"name":{"k\\u0000":"\\ud83d\\ude00"}}\n',
        b'{"name":true}\n',
        b'{"id":1.0}\n{"id":"1"}\n{"id":9223372036854775808}\n{"id":true}\n',
        b'{"price":"NaN"}\n{"price":" 1 "}\n{"price":0.12345}\n{"price":""}\n',
        b'{"x":1e400}\n{"x":"1"}\n{"x":0.1}\n{"x":NaN}\n',
        b'{"at":"2026-01-01 10:00:00.1234567"}\n{"at":5}\n{"local":"2026-01-01T10:00Z"}\n{"local":"2026-01-01"}\n',
        b'{"ok":"true"}\n{"ok":1}\n{"day":"2026-02-30"}\n',
        b"null\n[{}]\n5\n",
        b'{"id":1}{"id":2}\n',
        b'{"id":01}\n{"id":-0}\n{\n',
        b'{"name":"x\ty"}\n{"name":"\xff"}\n{"name":"\xe2\x80\xa8\x7f"}\n',
        b" \t\r\n",
        b'{"id":1}\0\n',
        *ENDS,
    )
    files = files_of(b'{"id":1}')
    refused = {**NO_LINES, "array": (b'[\n{"id":1},\n{"id":2}\n]\n', "a JSON array over several lines")}
    sizes = LINES
    codec = "gzip"


class TestJsonNotNull(TestJson):
    """A key that is not there is NULL; the value of a key and of one below it."""

    format = Json(paths={"w": ("user", "id"), "u": "user"})
    other = Json(paths={"w": "id"})
    fields = "id int not null, name string not null, u string, w int"
    of_first_field = Json()
    scraps: ClassVar[Sequence[bytes]] = (
        *TestJson.scraps,
        b'{"id":5,"name":"b"}\n',
        b'{"id":5,"name":"","user":{"id":4}}\n',
    )
    codec = "lz4"


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


def test_every_codec_and_every_known_pattern_is_tried() -> None:
    classes: list[type[FormatContract]] = [FormatContract]
    for one in classes:
        classes += one.__subclasses__()
    tried = {one.codec for one in classes[1:]}
    assert tried == {codec.name for codec in CODECS}
    assert {one.format.pattern for one in classes[1:] if isinstance(one.format, Pattern)} > {*KNOWN_PATTERNS}
