"""The law of the pairs of line formats: wherever `whole` answers, `sift` gives the same rows and refuses no line.
Hostile lines are good ones with hostile scraps in them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txtopo.core.fields import parse_fields
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.formats.line_format import LineFormat
from txtopo.spouts.formats.lines import json_lines, line_pair
from txtopo.spouts.formats.lines.line_pair import judged
from txtopo.spouts.formats.pattern import Pattern
from txtopo.spouts.formats.text import Text

ACCESS = [
    b'10.0.0.1 - ann [10/Oct/2025:13:55:36 -0700] "GET /a?x=1 HTTP/1.1" 200 2326 "http://e.org/" "Mozilla/5.0 (X11)"',
    b'10.0.0.2 - - [29/Feb/2024:23:59:59 +0530] "-" 408 - "-" "-"',
    b'::1 - ann lee [01/Jan/0001:00:00:00 +0000] "POST /\\"q\\" HTTP/1.0" 500 0 "" "a \\\\ b \\x41\\xc3\\xa9"',
    b'h i u [10/Oct/2025:13:55:36 -0700] "\\x16\\x03\\x00" 400 99999999999999999999 "-" "\\xff"',
]
COMMON = [line.rsplit(b' "', 2)[0] for line in ACCESS]
SYSLOG = [
    b"Nov 23 09:07:01 web1 sshd[812]: Accepted publickey for ann",
    b"<34>Nov  3 09:07:01 web1 kernel: [0.0] up",
    b"2026-11-23T09:07:01.123456+01:00 web1 systemd-logind[1]: New session",
    b"Nov 23 09:07:01 web1 last message repeated 2 times",
]
JSON = [
    b'{"id": 1, "name": "ann", "price": 1.50, "at": "2026-01-01T00:00:00Z", "ok": true, "user": {"id": 7}, "x": 1e5}',
    b'{"id":null,"name":"\\u00e9 \\"q\\"","price":"12.25","at":null,"ok":false,"user":null,"x":-0,"f":0.1}',
    b'{"user":{"id":3,"id2":{"id":[1,{"a":null}]}},"name":["a", 1.0, {"b":"c"}],"id":-9223372036854775808}',
    b"{}",
    b' {"price":1e2,"x":123456789012345678901234567890,"more":[[],{}]} ',
]
PLAIN_JSON = [
    b'{"id": 1, "name": "ann", "price": 1.50, "at": "2026-01-01T00:00:00Z", "ok": true, "x": -0, "more": [1], "f": 2}',
    b'{"id": 1, "name": "ann", "price": 1.50, "at": "2026-01-01T00:00:00Z", "ok": true, "x": -0, "more": 1e9, "f": 2}',
    b'{"id": -7, "name": "", "price": -2e-1, "at": "2026-01-01 10:00", "ok": null, "x": 1e5, "more": null, "f": 0.1}',
    b'{"id": null, "name": "a, }: [null]", "price": null, "at": "2026-01-01", "ok": false, "x": 7, "more": 0, "f": 1}',
    b'{"id": 0, "name": "\xc3\xa9\xe2\x80\xa8", "price": 0, "at": "2026-01-01", "ok": true, "x": 1, "more": 0, "f": 1}',
    b'{"id": 1, "name": null, "price": 1.50, "at": "2026-01-01T00:00:00Z", "ok": true, "x": -0, "more": 1e9, "f": 2}',
]
SCRAPS = [
    *[
        b"\0",
        b"\r",
        b"\xff",
        b"\xc3\xa9",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b'"',
        b"\\",
        b'\\"',
        b" ",
        b"  ",
        b"-",
        b"",
    ],
    *[b"[", b"]", b"{", b"}", b",", b":", b"null", b"true", b"NaN", b"-0", b"1.0", b"1e400", b"007", b"+5", b"0x1F"],
    *[b'"id":1,', b'"id":"1",', b'"\\u0069d":2,', b'"\\ud800"', b'"\\u0000"', b'"price":"NaN",', b'"price":" 1 ",'],
    *[b'"price":"1_0",', b'"user":5,', b'"user":{"id":1},', b'"at":5,', b'"at":"2026-01-01",', b"[" * 150, b"]" * 150],
    *[b'"name":1,', b'"a\\/b":1,', b"99999999999999999999", b"0.1234567890123456789", b"2026-02-30", b" HTTP/1.1"],
    *[b"\\x00", b"\\xe9", b"\\x22", b"\\n", b"31/Feb/2025", b"/Foo/", b"GET ", b'"-"', b"<1>", b"\x1f", b"\x7f", b"\t"],
]
CASES: dict[str, tuple[LineFormat, str, list[bytes]]] = {
    "text": (Text(), "line string not null", [b"", b"a", b"a b", "é".encode()]),
    "bytes": (Text(), "line binary", [b"", b"a", b"\xff"]),
    "apache_combined": (
        Pattern("apache_combined"),
        "host string, user string, time timestamp, request string, status smallint, size bigint, agent string",
        ACCESS,
    ),
    "its parts": (
        Pattern("apache_combined"),
        "method string not null, path string, protocol string, referer binary, time date, agent binary",
        ACCESS,
    ),
    "as texts": (Pattern("apache_combined", null_values=[]), "time string, size string, referer string", ACCESS),
    "other nulls": (
        Pattern("apache_combined", null_values=["GET", "200"]),
        "method string, status int, time date",
        ACCESS,
    ),
    "apache_common": (Pattern("apache_common"), "ident string, time timestamp_ntz, status int, size int", COMMON),
    "nginx": (Pattern("nginx"), "user string, request string, time timestamp, agent string", ACCESS),
    "syslog": (
        Pattern("syslog"),
        "priority int, time string, host string, program string, pid int, message string",
        SYSLOG,
    ),
    "expression": (
        Pattern(r"(?P<id>\S*) (?P<b>\w*)(?: (?P<c>.*))?"),
        "c string, id int, b decimal(5,2)",
        [b"1 2", b"12 1.5 x", b" ", b"7 99 "],
    ),
    "json": (
        Json(paths={"who": ("user", "id"), "x2": "x"}),
        "id bigint, name string, price decimal(20,4), at timestamp, ok boolean, who int, x double, x2 double, f float",
        JSON,
    ),
    "json not null": (Json(), "id int not null, name string not null, price decimal(4,1)", JSON),
    "json plain": (
        Json(),
        "id int, name string, price decimal(9,2), at timestamp, ok boolean, x double, f float, z bigint",
        PLAIN_JSON[1:-1],
    ),
    "json as texts": (
        Json(paths={"y": "x"}),
        "id bigint, price decimal(9,2), at string, name string not null, x float, y float",
        [line.replace(b": 1.50", b': "1.50"').replace(b'"at": "', b'"at":"') for line in PLAIN_JSON],
    ),
    "json value and object": (Json(paths={"u": "user", "w": ("user", "id")}), "u string, w int", JSON),
}


@st.composite
def hostile(draw: st.DrawFn, good: Sequence[bytes]) -> list[bytes]:
    lines = []
    for _ in range(draw(st.integers(1, 6))):
        line = draw(st.sampled_from(good))
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
            at = draw(st.integers(0, len(line)))
            line = line[:at] + draw(st.sampled_from(SCRAPS)) + line[at + draw(st.integers(0, 3)) :]
        lines.append(line.replace(b"\n", b""))
    return lines


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_at_once_is_what_is_read_line_by_line(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "SHAPED_BYTES_MIN", 0)
    format_, ddl, good = CASES[case]
    pair = format_._pair(parse_fields(ddl))
    answered = answered_by_block = 0

    @settings(deadline=None, max_examples=150)
    @given(hostile(good))
    def law(lines: list[bytes]) -> None:
        nonlocal answered, answered_by_block
        lines = [line for line in lines if pair.is_record(line)]
        if not lines:
            return
        whole, sifted = pair.whole(lines), pair.sift(lines)
        assert sifted.batch.num_rows + len(sifted.refused) == len(lines)
        if whole is not None:
            answered += 1
            assert not sifted.refused
            assert whole.equals(sifted.batch), (whole.to_pylist(), sifted.batch.to_pylist())
            whole.validate(full=True)
        for end in (b"", b"\n"):
            block = pair.block(b"\n".join(lines) + end) if lines[-1] or end else None
            if block is not None:
                answered_by_block += 1
                assert not sifted.refused
                assert block.equals(sifted.batch), (block.to_pylist(), sifted.batch.to_pylist())
        # No line is judged by its neighbours.
        alone = [pair.sift([line]) for line in lines]
        assert {at: one.refused[0] for at, one in enumerate(alone) if one.refused} == sifted.refused
        assert [row for one in alone for row in one.batch.to_pylist()] == sifted.batch.to_pylist()

    law()
    assert answered or case == "json value and object"
    assert answered_by_block or not case.startswith(("json plain", "json as"))


@pytest.mark.parametrize("case", CASES)
def test_lines_with_a_bad_one_among_them_are_read_as_if_each_was_sifted(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    format_, ddl, good = CASES[case]
    pair = format_._pair(parse_fields(ddl))
    monkeypatch.setattr(line_pair, "CHUNK_LINES", 3)
    lines = [line for line in good * 4 if pair.is_record(line)]
    lines[5:5] = [b"\xff\0"]
    assert judged(pair, lines) == pair.sift(lines)


@pytest.mark.parametrize(
    "case", ["text", "bytes", "apache_combined", "other nulls", "apache_common", "nginx", "json plain"]
)
def test_a_block_of_plain_lines_is_read_without_its_lines(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is left to `whole` and `sift` as soon as a line may end otherwise, may be skipped, or is no record."""
    monkeypatch.setattr(json_lines, "SHAPED_BYTES_MIN", 0)
    format_, ddl, good = CASES[case]
    pair = format_._pair(parse_fields(ddl))
    lines = [line for line in good if not pair.sift([line]).refused and b"\r" not in line and line] * 3
    data = b"".join(line + b"\n" for line in lines)
    assert pair.block(data) == pair.block(data[:-1]) == pair.sift(lines).batch
    assert pair.block(data.replace(b"\n", b"\r\n")) is None
    if case not in ("text", "bytes"):
        assert pair.block(data + b"\n" + data) is None
        assert pair.block(data + b"no record\n") is None
        assert pair.block(data + b"\xff\n") is None
