"""The audit's readers of lines beside the exact path of the emitter, line by line, on hostile lines."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.spouts.formats.test_line_pairs import CASES, hostile
from txtopo.audit.readers import pattern_reader, plain_lines
from txtopo.audit.readers.json_reader import JsonReader
from txtopo.audit.readers.known_readers import PlannedReader
from txtopo.audit.readers.line_reader import LineReader
from txtopo.audit.readers.plain_lines import plain_lines as lines_of
from txtopo.audit.readers.reader import HashedFile, Read, TooLongError
from txtopo.core.fields import parse_fields
from txtopo.spouts.formats.format import Format
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.formats.lines import json_values
from txtopo.spouts.formats.lines import pattern_lines as emitter_patterns
from txtopo.spouts.formats.pattern import Pattern


def reads(format_: Format, ddl: str, content: bytes) -> list[Read]:
    """What the audit reads in a file."""
    reader = PlannedReader({"kind": format_.kind, **format_.layout(), "part_bytes": 1}, parse_fields(ddl))
    return list(reader.read({"path": "a.log"}, HashedFile(io.BytesIO(content))))


def plain(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("case", CASES)
def test_the_audit_judges_a_line_as_the_exact_path_does(case: str) -> None:
    """Promise: two pieces of code that share nothing; where the spelling leaves room for doubt, the audit knows it."""
    format_, ddl, good = CASES[case]
    pair = format_._pair(parse_fields(ddl))
    singles = [field.type.kind == "float" for field in parse_fields(ddl).items]
    compared = 0

    @settings(deadline=None, max_examples=120)
    @given(hostile(good))
    def same(lines: list[bytes]) -> None:
        nonlocal compared
        # In front of the first line, a mark would be that of the file.
        numbered = {at: line for at, line in enumerate(lines, 2) if pair.is_record(line.removesuffix(b"\r"))}
        found = reads(format_, ddl, b"\n" + b"".join(line + b"\n" for line in lines))
        found = found[1:] if found and found[0].number == 1 else found
        assert [(one.number, one.raw) for one in found] == [
            (at, line.removesuffix(b"\r")) for at, line in numbered.items()
        ]
        sifted = pair.sift([one.raw for one in found])
        rows = iter(sifted.batch.to_pylist())
        for at, one in enumerate(found):
            row = None if at in sifted.refused else list(next(rows).values())
            if one.is_doubtful():
                continue
            compared += 1
            assert (one.reason is None) == (row is not None), (one, sifted.refused.get(at))
            if row is not None:
                expected = [plain(value) for value, single in zip(row, singles, strict=True) if not single]
                kept = [plain(value) for value, single in zip(one.values, singles, strict=True) if not single]
                assert kept == expected, one

    same()
    assert compared > 150


@pytest.mark.parametrize("depth", [199, 200, 1000, 100_000])
@pytest.mark.parametrize("brackets", ["[]", "{}", '""'])
def test_lines_are_as_deep_for_the_audit_as_for_the_emitter(depth: int, brackets: str) -> None:
    first, last = brackets[0], brackets[1]
    inner = (first + '"a":' if first == "{" else first) * (depth - (first == "{"))
    text = f'"{"[" * depth}"' if first == '"' else inner + ("{" if first == "{" else "") + last * depth
    line = f'{{"id":1,"deep":{text}}}'.encode()
    (read,) = reads(Json(), "id int", line)
    sifted = Json()._pair(parse_fields("id int")).sift([line])
    assert (read.reason is None) == (not sifted.refused) == (depth == 199 or first == '"')


def test_the_limits_of_both_are_equal() -> None:
    from txtopo.audit.readers import json_reader
    from txtopo.spouts.formats.lines import line_windows

    assert json_reader.NESTED_MAX == json_values.NESTED_MAX
    assert json_reader.LINE_BYTES_MAX == json_values.LINE_BYTES_MAX
    assert pattern_reader.LINE_BYTES_MAX == emitter_patterns.LINE_BYTES_MAX
    assert plain_lines.LINE_BYTES_MAX == line_windows.LINE_BYTES_MAX


def test_a_line_longer_than_is_taken_apart_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    from txtopo.audit.readers import json_reader

    monkeypatch.setattr(json_reader, "LINE_BYTES_MAX", 8)
    found = reads(Json(), "a int", b'{"a":1} \n{"a":1}  \n')
    assert [one.reason for one in found] == [None, "the line is too long"]


def test_a_line_longer_than_an_expression_is_tried_on_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_reader, "LINE_BYTES_MAX", 5)
    found = reads(Pattern("(?P<a>.*)"), "a string", b"12345\r\n123456\n")
    assert [one.reason for one in found] == [None, "longer than 5 bytes"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
def test_lines_are_the_same_wherever_the_file_is_cut(chunk: int) -> None:
    mark = b"\xef\xbb\xbf"
    for content, lines in {
        b"": [],
        mark: [],
        mark[:2]: [mark[:2]],
        b"\n": [b""],
        mark + mark + b"\r\n\r\r\na\rb\x0c\n\nlast\r": [mark, b"\r", b"a\rb\x0c", b"", b"last"],
        "\u2028\u0085\n".encode(): ["\u2028\u0085".encode()],
    }.items():
        pieces = (content[at : at + chunk] for at in range(0, len(content), chunk))
        assert list(lines_of(pieces)) == lines


def test_a_line_without_end_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_lines, "LINE_BYTES_MAX", 10)
    taken = 0

    def pieces() -> Any:
        nonlocal taken
        while taken < 1000:
            taken += 1
            yield b"xxxx"

    with pytest.raises(TooLongError):
        list(lines_of(pieces()))
    assert taken < 10
    assert list(lines_of(iter([b"x" * 10 + b"\r\n"]))) == [b"x" * 10]
    with pytest.raises(TooLongError):
        list(lines_of(iter([b"x" * 11 + b"\n"])))


@pytest.mark.parametrize(
    ("layout", "ddl"),
    [
        ({"kind": "pattern", "pattern": "(", "null_values": []}, "a string"),
        ({"kind": "pattern", "pattern": "(?P<b>.)", "null_values": []}, "a string"),
        ({"kind": "pattern", "pattern": "(?P<a>.)"}, "a string"),
        ({"kind": "json"}, "a string"),
        ({"kind": "text", "encoding": "latin-1"}, "a string"),
        ({"kind": "text"}, "a string, b string"),
    ],
)
def test_a_layout_that_is_not_known_completely_is_not_read(layout: dict[str, Any], ddl: str) -> None:
    with pytest.raises((ValueError, LookupError)):
        PlannedReader(layout, parse_fields(ddl))


def test_a_line_is_doubtful_only_where_no_plain_value_is_wrong() -> None:
    ddl = "a int, b decimal(9,2)"
    (sure, unsure) = reads(Json(), ddl, b'{"a":"x","b":1e400}\n{"a":1,"b":1e400}\n')
    assert (sure.is_doubtful(), unsure.is_doubtful()) == (False, True)
    assert isinstance(JsonReader({"paths": {}}, parse_fields(ddl)), LineReader)
