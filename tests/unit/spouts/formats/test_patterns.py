"""Lines by patterns: the well-known logs field by field, expressions of users, and what is refused when it is built."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from txtopo import TopologyError
from txtopo.core.fields import parse_fields
from txtopo.spouts.formats.lines.line_pair import judged
from txtopo.spouts.formats.lines.nested_repeats import nested_repeat
from txtopo.spouts.formats.lines.pattern_lines import LINE_BYTES_MAX
from txtopo.spouts.formats.pattern import Pattern

ALL = (
    "host string, ident string, user string, time timestamp, request string, method string, path string, "
    "protocol string, status int, size bigint, referer string, agent string"
)
AT = datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)


def one(pattern: Pattern, line: str | bytes, ddl: str) -> Any:
    """The row of a line, or the reason."""
    fields = parse_fields(ddl)
    pattern.check(fields)
    pair = pattern._pair(fields)
    lines = [line.encode() if isinstance(line, str) else line]
    sifted = pair.sift(lines)
    assert judged(pair, lines) == sifted
    return sifted.refused[0] if sifted.refused else tuple(sifted.batch.to_pylist()[0].values())


def test_the_fields_of_an_access_log() -> None:
    line = (
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif?x=1 HTTP/1.0" 200 2326 '
        '"http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
    )
    row = (
        *("127.0.0.1", None, "frank", AT, "GET /apache_pb.gif?x=1 HTTP/1.0", "GET", "/apache_pb.gif?x=1", "HTTP/1.0"),
        *(200, 2326, "http://www.example.com/start.html", "Mozilla/4.08 [en] (Win98; I ;Nav)"),
    )
    assert one(Pattern("apache_combined"), line, ALL) == row
    assert one(Pattern("apache_common"), line.split(' "http')[0], ALL.split(", referer")[0]) == row[:-2]
    assert one(Pattern("nginx"), line, ALL.replace("ident string, ", "")) == (row[0], *row[2:])
    assert one(Pattern("apache_common"), line, "status int") == "the line does not match the pattern"


@pytest.mark.parametrize(
    ("pattern", "written", "text"),
    [
        ("apache_combined", r"a \"b\" \\ \t \xc3\xa9", 'a "b" \\ \t é'),
        ("apache_combined", r"\\x41", r"\x41"),
        ("apache_combined", r"\xff", r"\xff"),
        ("apache_combined", r"a\x00b", r"a\x00b"),
        ("apache_combined", r"\q", r"\q"),
        ("nginx", r"a \x22b\x22 \x5C \xC3\xA9 \n", 'a "b" \\ é \\n'),
        ("nginx", "-", None),
        ("nginx", "", ""),
    ],
)
def test_escapes_are_undone_after_the_match(pattern: str, written: str, text: str | None) -> None:
    """Bytes that are no text stay as the log has them."""
    line = f'h - - [10/Oct/2000:13:55:36 -0700] "-" 408 - "-" "{written}"'
    assert one(Pattern(pattern), line, "agent string") == (text,)


def test_bytes_and_parts_of_odd_requests() -> None:
    line = r'h - ann lee [10/Oct/2000:13:55:36 -0700] "\x16\x03\x00" 400 0 "-" "x\xff"'
    assert one(Pattern("apache_combined"), line, "user string, request string, method string, path string") == (
        *("ann lee", r"\x16\x03\x00"),
        *(None, None),
    )
    assert one(Pattern("apache_combined"), line, "request binary, agent binary") == (b"\x16\x03\0", b"x\xff")


def test_a_time_is_an_instant_a_local_time_a_day_or_text() -> None:
    line = 'h - - [10/Oct/2000:23:55:36 -0700] "-" 200 -'
    assert one(Pattern("apache_common"), line, "time timestamp_ntz") == (datetime(2000, 10, 10, 23, 55, 36),)
    assert one(Pattern("apache_common"), line, "time date") == (date(2000, 10, 10),)
    assert one(Pattern("apache_common"), line, "time string") == ("10/Oct/2000:23:55:36 -0700",)
    assert "is no timestamp" in one(Pattern("apache_common"), line.replace("Oct", "Okt"), "time timestamp")
    assert "is no timestamp" in one(Pattern("apache_common"), line.replace("10/Oct", "31/Sep"), "time timestamp")


@pytest.mark.parametrize("host", ["\ufeffh", "h\r", "\rh", "h\u2028", "h\0"])
@pytest.mark.parametrize("first", [True, False])
def test_the_fast_path_keeps_what_a_csv_parser_drops_or_ends_a_line_at(host: str, first: bool) -> None:
    """A mark in the first line is no byte order mark of the block, and a lone CR ends no line."""
    pair = Pattern("apache_common")._pair(parse_fields("host string, request string"))
    ends = ' - - [10/Oct/2000:13:55:36 -0700] "GET /{} HTTP/1.1" 200 1'
    odd, plain = (
        [f"{host}{ends.format('a')}".encode()],
        [f"p{ends.format(host)}".encode(), f"p{ends.format('b')}".encode()],
    )
    lines = odd + plain if first else plain + odd
    sifted = pair.sift(lines)
    assert bool(sifted.refused) is ("\0" in host)
    assert judged(pair, lines) == sifted
    whole = pair.whole(lines)
    assert whole is None or whole.equals(sifted.batch)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("Nov 23 09:07:01 web1 sshd[812]: Accepted: yes", (None, "web1", "sshd", 812, "Accepted: yes")),
        ("<34>Nov  3 09:07:01 web1 kernel: up", (34, "web1", "kernel", None, "up")),
        ("2026-11-23T09:07:01.5+01:00 web1 a/b:", (None, "web1", "a/b", None, None)),
        (
            "Nov 23 09:07:01 web1 last message repeated 2 times",
            (None, "web1", None, None, "last message repeated 2 times"),
        ),
    ],
)
def test_the_fields_of_a_syslog_file(line: str, row: tuple[Any, ...]) -> None:
    found = one(
        Pattern("syslog", null_values=[""]), line, "priority int, host string, program string, pid int, message string"
    )
    assert found == row


def test_a_syslog_time_without_a_year_is_text_only() -> None:
    line = "Nov 23 09:07:01 web1 a: b"
    assert one(Pattern("syslog"), line, "time string") == ("Nov 23 09:07:01",)
    assert "is no timestamp" in one(Pattern("syslog"), line, "time timestamp")
    iso = one(Pattern("syslog"), "2026-11-23T09:07:01Z web1 a: b", "time timestamp")
    assert iso == (datetime(2026, 11, 23, 9, 7, 1, tzinfo=UTC),)


def test_an_expression_of_a_user() -> None:
    pattern = Pattern(r"(?P<level>[A-Z]+) (?P<n>\d*)(?: (?P<rest>.*))?")
    assert one(pattern, "INFO 12 größer", "rest string, n int, level string") == ("größer", 12, "INFO")
    assert one(pattern, "INFO ", "level string, n int, rest string") == ("INFO", None, None)
    assert one(pattern, "INFO 12x", "n int") == "the line does not match the pattern"
    assert one(pattern, "INFO ٣", "n int") == "the line does not match the pattern"
    assert one(pattern, b"INFO 1 \xff", "n int") == "the line is not UTF-8"
    assert one(pattern, "INFO 99999999999", "n int") == "column 'n': '99999999999' is no int"
    assert one(pattern, "INFO 1 a\0", "n int") == (1,)
    assert "holds the NUL character" in one(pattern, "INFO 1 a\0", "rest string")
    assert one(Pattern("(?P<a>.*)", null_values=["-"]), "-", "a string") == (None,)


def test_empty_lines_are_records_only_if_the_pattern_matches_them() -> None:
    assert not Pattern(r"(?P<a>\w+)")._pair(parse_fields("a string")).is_record(b"")
    assert Pattern(r"(?P<a>\w*)")._pair(parse_fields("a string")).is_record(b"")
    assert not Pattern("nginx")._pair(parse_fields("host string")).is_record(b"")


def test_a_very_long_line_is_rejected_before_it_is_matched() -> None:
    """By both paths: its time may grow with the square of its length."""
    line = 'h - - [10/Oct/2000:13:55:36 -0700] "-" 200 - "-" "' + "x" * LINE_BYTES_MAX + '"'
    assert one(Pattern("apache_combined"), line, "status int") == "the line is longer than 1048576 bytes"
    assert one(Pattern("(?P<a>.*)"), "x" * (LINE_BYTES_MAX + 1), "a string") == "the line is longer than 1048576 bytes"
    assert one(Pattern("(?P<a>.).*"), "x" * LINE_BYTES_MAX, "a string") == ("x",)


@pytest.mark.parametrize("name", ["apache_combined", "apache_common", "nginx", "syslog"])
@pytest.mark.parametrize(
    "scrap", [" ", " [", '"', "\\", '\\"', ":", "]", "<1>", "a ", '" "', "10/Oct/2000:13:55:36 -0700]"]
)
def test_no_line_takes_longer_than_its_length_allows(name: str, scrap: str) -> None:
    """With time by the square of the length, these lines take hours."""
    pair = Pattern(name)._pair(parse_fields("host string"))
    head = 'h - u [10/Oct/2000:13:55:36 -0700] "' if name != "syslog" else "Nov 23 09:07:01 h p: "
    for before in ("", "h - ", head):
        pair.sift([(before + scrap * LINE_BYTES_MAX)[:LINE_BYTES_MAX].encode()])


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("apache", "neither a known one"),
        ("(a", "not an expression of Python's re"),
        ("a+", "no named group"),
        (r"(?u)(?P<a>.)", "ASCII and UNICODE flags"),
        (r"(?P<a>(x+)+)y", "can take for ever"),
        (5, "is not text"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        Pattern(pattern)


def test_a_field_that_is_no_group_is_refused_with_the_groups() -> None:
    with pytest.raises(TopologyError, match=r"no group 'bytes'; it has host, user, time"):
        Pattern("nginx").check(parse_fields("host string, bytes int"))
    with pytest.raises(TopologyError, match="null_values"):
        Pattern("nginx", null_values="-")


@pytest.mark.parametrize(
    ("pattern", "is_found"),
    [
        *[
            (text, True)
            for text in (r"(a+)+", r"(?P<x>(a*)*)b", r"(\w+|,)*", r"(\s*\w+\s*)*", r"((a+)b?)+", r"x(?:(?:a+)){2,}")
        ],
        *[
            (text, False)
            for text in (r"(a++)+", r"(?>a+)+", r"(?:\d+\.)*", r'(?:[^"\\]|\\.)*', r"(a+)?", r"(?:\S+ )*x", r"a*b*")
        ],
    ],
)
def test_repeats_of_repeats_are_found_where_nothing_separates_them(pattern: str, is_found: bool) -> None:
    assert (nested_repeat(pattern) is not None) is is_found
