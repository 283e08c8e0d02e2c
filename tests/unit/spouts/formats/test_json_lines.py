"""JSON lines, line by line: which values are taken, which lines are rejected, and why. Numbers are never rounded."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from txtopo.core.fields import parse_fields
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.formats.lines import json_lines, json_values
from txtopo.spouts.formats.lines.line_pair import judged
from txtopo.spouts.formats.lines.strict_json import shape_of

DEEP = 200


def one(line: str | bytes, ddl: str, paths: Any = None) -> Any:
    """The value of the first field, or the reason; both paths agree."""
    pair = Json(paths=paths or {})._pair(parse_fields(ddl))
    lines = [line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line]
    whole, sifted = pair.whole(lines), pair.sift(lines)
    assert whole is None or repr(whole.to_pylist()) == repr(sifted.batch.to_pylist())
    assert judged(pair, lines) == sifted
    return sifted.refused[0] if sifted.refused else sifted.batch.column(0)[0].as_py()


@pytest.mark.parametrize(
    ("line", "ddl", "value"),
    [
        ('{"a":9223372036854775807}', "a bigint", 2**63 - 1),
        ('{"a":-0}', "a int", 0),
        ('{"a":null}', "a int", None),
        ("{}", "a int", None),
        ('{"a":0.1234567890123456789}', "a decimal(38,19)", Decimal("0.1234567890123456789")),
        ('{"a":"12.50"}', "a decimal(10,2)", Decimal("12.50")),
        ('{"a":1e3}', "a decimal(10,2)", Decimal("1000.00")),
        (
            '{"a":12345678901234567890123456789012345678}',
            "a decimal(38,0)",
            Decimal(12345678901234567890123456789012345678),
        ),
        ('{"a":0.1}', "a double", 0.1),
        ('{"a":5}', "a double", 5.0),
        ('{"a":-0}', "a double", -0.0),
        ('{"a":-0,"b":[-0.0]}', "a double", -0.0),
        ('{"a":true}', "a boolean", True),
        ('{"a":"2026-01-31"}', "a date", date(2026, 1, 31)),
        ('{"a":"2026-01-01T10:00:00.5+02:00"}', "a timestamp", datetime(2026, 1, 1, 8, 0, 0, 500000, UTC)),
        ('{"a":"\\ud83d\\ude00 \\u00e9\\/"}', "a string", "😀 é/"),
        ('{"a":"x\u2028y\u0085z"}', "a string", "x\u2028y\u0085z"),
        ('{"a":[1, 2.50, {"b" : "\\u00e9", "b":null}]}', "a string", '[1,2.50,{"b":"é","b":null}]'),
        ('{"a":{ }}', "a string", "{}"),
        ('{"\\u0061":1}', "a int", 1),
        ('{"x":1,"x":2,"a":3,"y":{"a":4}}', "a int", 3),
        ('{"a":1,"n":123456789012345678901234567890,"f":1e999}', "a int", 1),
        ('{"a":1,"n":' + "9" * 5000 + "}", "a int", 1),
        ('{"a":1,"x":"\\ud800"}', "a int", 1),
        ('{"a":1,"n":' + "[" * (DEEP - 1) + "]" * (DEEP - 1) + "}", "a int", 1),
        ('{"a":1,"n":"' + "[" * 500 + '"}', "a int", 1),
        (' \t{"a" : 1 } \r', "a int", 1),
    ],
)
def test_a_value_is_what_is_written(line: str, ddl: str, value: Any) -> None:
    found = one(line, ddl)
    assert (found, str(found)) == (value, str(value))


@pytest.mark.parametrize(
    ("line", "ddl", "reason"),
    [
        ('{"a":1.0}', "a int", "column 'a': 1.0 is no int"),
        ('{"a":1e2}', "a bigint", "1e2 is no bigint"),
        ('{"a":"12"}', "a bigint", "column 'a': \"12\" is no bigint"),
        ('{"a":true}', "a int", "true is no int"),
        ('{"a":1}', "a boolean", "1 is no boolean"),
        ('{"a":1}', "a string", "1 is no string"),
        ('{"a":1735689600}', "a timestamp", "1735689600 is no timestamp"),
        ('{"a":[]}', "a int", "[] is no int"),
        ('{"a":9223372036854775808}', "a bigint", "'9223372036854775808' is no bigint"),
        ('{"a":300}', "a tinyint", "'300' is no tinyint"),
        ('{"a":1.005}', "a decimal(10,2)", "'1.005' is no decimal(10,2)"),
        ('{"a":"NaN"}', "a decimal(10,2)", "'NaN' is no decimal"),
        ('{"a":"1_0"}', "a decimal(10,2)", "'1_0' is no decimal"),
        ('{"a":1e400}', "a double", "'1e400' is no double"),
        ('{"a":1e39}', "a float", "'1e39' is no float"),
        ('{"a":"0.5"}', "a double", '"0.5" is no double'),
        ('{"a":"31.01.2026"}', "a date", "'31.01.2026' is no date"),
        ('{"a":"2026-01-01T10:00:00.123456789Z"}', "a timestamp", "is no timestamp"),
        ('{"a":"x\\u0000"}', "a string", "holds the NUL character"),
        ('{"a":"\\ud800"}', "a string", "a lone surrogate"),
        ('{"a":null}', "a int not null", "column 'a' is NULL, declared NOT NULL"),
        ("{}", "a int not null", "column 'a' is NULL, declared NOT NULL"),
        ('{"a":1,"a":1}', "a int", 'the key "a" stands twice in an object'),
        ('{"a":1,"\\u0061":2}', "a int", 'the key "a" stands twice'),
        ('{"a":null,"a":null}', "a int", 'the key "a" stands twice'),
        ("null", "a int", "the line is null, not an object"),
        ("[{}]", "a int", "the line is an array, not an object"),
        ('"a"', "a int", "the line is a text"),
        ('{"a":1}{"a":2}', "a int", "the line is no JSON: extra data at character 8"),
        ('{"a":1', "a int", "the line is no JSON: expecting ',' delimiter"),
        ('{"a":NaN}', "b int", "NaN is no value of it"),
        ('{"a":-Infinity}', "a double", "-Infinity is no value of it"),
        ("{'a':1}", "a int", "the line is no JSON"),
        ('{"a":01}', "a int", "the line is no JSON"),
        ('{"a":"x\ty"}', "a string", "invalid control character"),
        ('\ufeff{"a":1}', "a int", "the line is no JSON"),
        (b'{"a":1,"b":"\xff"}', "a int", "the line is not UTF-8"),
        (b'{"a":1}\0', "a int", "the line is no JSON"),
        ('{"a":1,"n":' + "[" * DEEP + "]" * DEEP + "}", "a int", "more than 200 objects or arrays"),
        ('{"a":1,"n":' + "[" * 100_000, "a int", "more than 200 objects or arrays"),
    ],
)
def test_a_line_that_is_no_such_record_is_rejected_with_the_reason(line: str | bytes, ddl: str, reason: str) -> None:
    assert reason in one(line, ddl)


def test_a_path_is_followed_through_objects_and_null_but_not_through_values() -> None:
    paths = {"who": ("user", "id"), "dotted": "user.id"}
    assert one('{"user":{"id":7},"user.id":8,"id":9}', "who int", paths) == 7
    assert one('{"user":{"id":7},"user.id":8,"id":9}', "dotted int", paths) == 8
    assert one('{"user":null}', "who int", paths) is None
    assert one('{"user":{}}', "who int", paths) is None
    assert one('{"user":5}', "who int", paths) == 'the key "user" is a number, not an object'
    assert one('{"user":[]}', "who int", paths) == 'the key "user" is an array, not an object'
    assert one('{"user":{"id":1,"id":1}}', "who int", paths) == 'the key "id" stands twice in an object'
    assert one('{"user":{"id":1},"user":{"id":2}}', "who int", paths) == 'the key "user" stands twice in an object'


@pytest.mark.parametrize(
    "lines",
    [
        ['{"a":1}', '{"a":1,"a":2}', "{}"],
        ['{"\\u0061":1}', '{"a":1,"a":2}'],
        ['{"a":1,"x":{"a":5}}', '{"x":"a"}', '{"b":"a"}'],
    ],
)
def test_a_line_without_a_key_does_not_hide_one_that_has_it_twice(lines: list[str]) -> None:
    """Counted over the block, both together have as many keys as lines."""
    pair = Json()._pair(parse_fields("a int, b string"))
    encoded = [line.encode() for line in lines]
    whole, sifted = pair.whole(encoded), pair.sift(encoded)
    assert bool(sifted.refused) == ('"a":2' in lines[1])
    assert (whole is None) is bool(sifted.refused)
    if whole is not None:
        assert whole.equals(sifted.batch)


def test_plain_lines_take_the_fast_path() -> None:
    """Without this, a mistake that sends every line to the exact path shows in the speed alone."""
    pair = Json(paths={"n": ("o", "id")})._pair(
        parse_fields("id bigint, price decimal(9,2), at timestamp, n int, s string")
    )
    lines = [
        json.dumps({"id": at, "price": at / 4, "at": "2026-01-01", "o": {"id": at}, "s": 'say "id"'}).encode()
        for at in range(50)
    ]
    pair._exact = None  # type: ignore[attr-defined]
    batch = pair.whole(lines)
    assert batch is not None and batch.num_rows == 50


def test_a_line_that_would_fill_the_memory_is_rejected_before_it_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By both paths, also between other lines; the line before the limit is a record."""
    monkeypatch.setattr(json_values, "LINE_BYTES_MAX", 20)
    pair = Json()._pair(parse_fields("a int"))
    lines = [b'{"a":1,"b":"12345"} ', b'{"a":2,"b":"12345"}  ', b'{"a":3}']
    assert pair.whole(lines) is None and pair.whole([lines[0], lines[2]]) is not None
    found = judged(pair, lines)
    assert (found.batch.to_pylist(), found.refused) == ([{"a": 1}, {"a": 3}], {1: "the line is longer than 20 bytes"})


def test_the_depth_of_a_line_is_counted_in_little_memory() -> None:
    """A list of its brackets would take eight times the line."""
    text = '{"a":1,"b":[' + "[]," * 50_000 + "[]]}"
    tracemalloc.start()
    try:
        assert json_values._depth(text) == 3
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(text)


@pytest.mark.parametrize("scrap", ["\\u0041", '\\"', "\\\\", '{\\"a\\":\\"b\\"}', "[]"])
def test_no_line_takes_longer_than_its_length_allows(scrap: str) -> None:
    """With time by the square of the length, these lines take hours."""
    text = scrap * (8_000_000 // len(scrap))
    line = f'{{"a":1,"b":"{text}"}}'.encode()
    pair = Json()._pair(parse_fields("a int"))
    whole, sifted = pair.whole([line]), pair.sift([line])
    assert whole is not None and whole.to_pylist() == sifted.batch.to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("key", ['a\\"b', "\\u0061", "a\\\\", '\\"', "\\n\\tb c"])
def test_an_escape_anywhere_in_a_key_is_found(key: str) -> None:
    for line in (f'{{"{key}":1}}', f'{{"x":"\\"","{key}" \t:1}}', f'{{"x":{{"{key}":[]}}}}'):
        assert json_lines._ESCAPED_KEY.search(line.encode()), line


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of any size are read by the shape of their lines."""
    monkeypatch.setattr(json_lines, "SHAPED_BYTES_MIN", 0)


def test_few_lines_or_many_other_keys_are_read_in_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs less."""
    pair = Json()._pair(parse_fields("a bigint"))
    assert pair.block(b'{"a": 1}\n' * 9) is None
    monkeypatch.setattr(json_lines, "SHAPED_BYTES_MIN", 80)
    assert pair.block(b'{"a": 1}\n' * 9) is not None
    assert pair.block(b'{"a": 1, "b": 1, "c": 1}\n' * 9) is not None
    assert pair.block(b'{"a": 1, "b": 1, "c": 1, "d": 1}\n' * 9) is None
    assert shape_of(b"{" + b",".join(b'"k%d": 1' % number for number in range(1002)) + b"}") is None


@pytest.mark.usefixtures("any_size")
def test_lines_of_another_shape_keep_their_place_among_plain_ones() -> None:
    """A quarter of them at most: with more, all are read in the other way."""
    pair = Json()._pair(parse_fields("a bigint, b string, c decimal(9,2)"))
    lines = [f'{{"a": {number}, "b": "t{number}", "c": {number}.5}}'.encode() for number in range(16)]
    lines[3] = b'{"b": "q\\"q", "a": 3}'
    lines[7] = b'{"a": 7, "b": null, "c": "7.5"}'
    lines[15] = b' {"a":15,"a\\\\":1}\t'
    found = pair.block(b"\n".join(lines))
    assert found is not None and found == pair.sift(lines).batch
    assert found.column("a").to_pylist() == list(range(16)) and found.column("b").to_pylist()[3] == 'q"q'
    assert pair.block(b"\n".join(lines[:11])) is not None
    assert pair.block(b"\n".join(lines[:4])) is not None
    assert pair.block(b"\n".join([*lines[:4], lines[7]])) is None
    assert pair.block(b"\n".join([*lines[:12], b""])) == pair.sift(lines[:12]).batch
    assert pair.block(b"\n".join([*lines[:12], b" ", b""])) is None


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        (b'{"a": 1}', ["a"]),
        (b'{ "a" :\t1 , "b":"x" }', ["a", "b"]),
        (b'{"a": 1, "a": 1}', None),
        (b'{"a": 1', None),
        (b'{"a": 1}}', None),
        (b'{"a": 1} ', None),
        (b' {"a": 1}', None),
        (b',"a": 1}', None),
        (b'{"a": 1{"b": 1}', None),
        (b'{"a": 01}', None),
        (b'{"a": 1.}', None),
        (b'{"a": [1]}', None),
        (b'{"a": "\\n"}', None),
        (b'{"a": "\t"}', None),
        (b'{"": 1}', None),
        (b'{"a\\u0062": 1}', None),
        (b"{}", None),
        (b"", None),
        (b"\xef\xbb\xbf" + b'{"a": 1}', None),
    ],
)
def test_only_plain_lines_have_a_shape(line: bytes, keys: list[str] | None) -> None:
    shape = shape_of(line)
    assert (None if shape is None else [one.key for one in shape.members]) == keys


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("int", [b"1.0", b'"1"', b"true", b"01", b"-", b"99999999999", b"1e2"]),
        ("boolean", [b"1", b'"true"', b"True"]),
        ("double", [b'"1"', b"NaN", b".5", b"1.", b"1e400"]),
        ("string", [b"1", b"true", b'"\\ud800"', b'"\xff"', b'"\x00"']),
        ("timestamp", [b"1", b'"31.01.2024"']),
        ("decimal(4,2)", [b"1.505", b'"NaN"', b'"null"', b"true", b'""']),
    ],
)
def test_no_block_has_a_value_of_another_type(declared: str, values: list[bytes]) -> None:
    """Neither in its first line, which gives the shape, nor in a later one."""
    pair = Json()._pair(parse_fields(f"a {declared}"))
    good = {"int": b"1", "boolean": b"true", "double": b"1", "string": b'"x"', "timestamp": b'"2024-01-01"'}
    lines = [b'{"a": ' + good.get(declared, b"1") + b"}"] * 9
    assert pair.block(b"\n".join(lines)) is not None
    for value in values:
        bad = b'{"a": ' + value + b"}"
        assert pair.sift([bad]).refused
        assert pair.block(b"\n".join([bad, *lines])) is None
        assert pair.block(b"\n".join([*lines, bad])) is None
        assert pair.block(bad) is None
