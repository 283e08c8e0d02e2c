"""Line formats behind FileSpout: the same rows, rejects and places wherever a file is cut; what is planned; what is
refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.spouts.test_file_spout import Driver
from txtopo import FileSpout, TopologyError
from txtopo.errors import BatchDataError
from txtopo.formats import Csv, Format, Json, Pattern, Text
from txtopo.spouts.formats.lines import line_windows
from txtopo.topology.components import Tally

CASES: dict[str, tuple[Format, str, list[str], str]] = {
    "text": (Text(), "line string", ["", "a", "é\u2028x", "\0", "x" * 30], ""),
    "pattern": (
        Pattern(r"(?P<n>\d+) (?P<t>.*)"),
        "n int, t string",
        ["", "1 a", "22 é\u2028", "no", "9" * 20 + " x"],
        "",
    ),
    "json": (
        Json(),
        "n int, t string",
        ["", " ", '{"n":1}', '{"t":"é","n":2}', '{"n":"3"}', "{", '{"n":1,"n":1}'],
        " \t",
    ),
}


def read(spout: FileSpout, metadata: Any) -> tuple[list[Any], list[tuple[int, str, bytes]], int]:
    """Rows, rejects, and how many records were read."""
    rows: list[Any] = []
    tally = Tally()
    for part in spout.parts(metadata):
        for batch in spout.emit_part(metadata, part, tally):
            batch.validate(full=True)
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return rows, [(one.line, one.reason, one.raw) for one in tally.rejects], tally.read


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("numbered", [False, True])
def test_rows_rejects_and_places_are_the_same_wherever_a_file_is_cut(
    case: str, numbered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every record is in one section, whatever the size of parts and windows; each has the line where it stands."""
    format_, ddl, good, blank = CASES[case]
    path = tmp_path / "a.log"

    @settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        lines=st.lists(st.sampled_from(good), max_size=8),
        end=st.sampled_from(["\n", "\r\n"]),
        final=st.booleans(),
        part_bytes=st.integers(1, 40),
        window=st.integers(1, 50),
        mark=st.booleans(),
    )
    def cut(lines: list[str], end: str, final: bool, part_bytes: int, window: int, mark: bool) -> None:
        text = end.join(lines) + (end if final and lines else "")
        path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + text.encode())
        fields = f"{ddl}, _line bigint" if numbered else ddl
        driver = Driver(path, format=format_, fields=fields, part_bytes=part_bytes, settled_s=0)
        monkeypatch.setattr(line_windows, "WINDOW_BYTES", window)
        try:
            (metadata,) = driver.settled()
            found = read(driver.spout, metadata)
            assert numbered <= (len(driver.spout.parts(metadata)) == 1)
            raw = [line.removesuffix("\r") for line in text.split("\n")]
            raw = raw if raw[-1] else raw[:-1]
            records = {at: line for at, line in enumerate(raw, 1) if case == "text" or line.strip(blank)}
            pair = format_._pair(Driver(path, format=format_, fields=ddl).spout.fields)  # type: ignore[attr-defined]
            judged = {at: pair.sift([line.encode()]) for at, line in records.items()}
            kept = {at: one.batch for at, one in judged.items() if not one.refused}
            expected = [
                (*batch.to_pylist()[0].values(), at) if numbered else tuple(batch.to_pylist()[0].values())
                for at, batch in kept.items()
            ]
            refused = [(at, one.refused[0], records[at].encode()) for at, one in judged.items() if one.refused]
            assert found == (expected, refused, len(records))
            _check_places(driver.spout, metadata, list(kept))
        finally:
            monkeypatch.undo()

    cut()


def _check_places(spout: FileSpout, metadata: Any, kept: list[int]) -> None:
    places = []
    for part in spout.parts(metadata):
        rows = sum(batch.num_rows for batch in spout.emit_part(metadata, part, Tally()))
        found = [spout.locate(metadata, part, number) for number in range(rows + 1)]
        assert found.pop() is None
        places += [int(one.position.rpartition(":")[2]) for one in found if one is not None]
    assert places == kept


def test_a_line_that_is_too_long_fails_the_batch_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_windows, "WINDOW_BYTES", 8)
    monkeypatch.setattr(line_windows, "LINE_BYTES_MAX", 32)
    for end in ("\n", ""):
        (tmp_path / "a.log").write_text("short\n" + "x" * 32 + "\r\n" + "x" * 33 + end, newline="")
        driver = Driver(tmp_path / "a.log", format="text", fields="line string", settled_s=0)
        (metadata,) = driver.settled()
        with pytest.raises(BatchDataError, match=r"a\.log:3: the line is longer than 32 bytes") as told:
            read(driver.spout, metadata)
        assert told.value.fault == "line too long"


def test_the_plan_has_everything_that_reading_depends_on(tmp_path: Path) -> None:
    """R12: a batch is read with the pattern and the paths of its plan, whatever the topology says now."""
    (tmp_path / "a.log").write_text('{"u":{"id":1},"n":5}\n')
    planning = Driver(tmp_path, format=Json(paths={"n": ("u", "id")}), fields="n int", settled_s=0)
    (metadata,) = planning.settled()
    assert metadata["format"] == {"kind": "json", "paths": {"n": ["u", "id"]}, "part_bytes": 64 * 1024 * 1024}
    assert metadata["headers"] == [] and "file_fields" not in metadata["format"]
    for now in (Json(), Text(), Pattern("(?P<n>.*)")):
        ddl = "n string" if isinstance(now, Text) else "n int"
        spout = FileSpout(tmp_path, ddl, format=now)
        if ddl == "n int":
            assert read(spout, metadata)[0] == [(1,)]
    driver = Driver(tmp_path, format=Pattern("nginx"), fields="host string, _line bigint", settled_s=0)
    (metadata,) = driver.settled()
    assert metadata["format"]["pattern"] == "nginx" and metadata["format"]["null_values"] == ["-"]
    assert metadata["format"]["file_fields"] == ["_line"]


@pytest.mark.parametrize(
    ("path", "options", "format_"),
    [
        ("a/*.jsonl", {}, Json()),
        ("a/b.NDJSON", {}, Json()),
        ("a/b.json", {}, Json()),
        ("a/b.json", {"format": "csv"}, Csv()),
        ("a/b.json", {"delimiter": "|"}, Csv(delimiter="|")),
        ("a/b.csv", {}, Csv()),
        ("a/b.log", {}, Csv()),
        ("a.json/", {}, Json()),
        ("a", {"format": "json"}, Json()),
    ],
)
def test_the_ending_names_the_format_where_that_is_plain(path: str, options: dict[str, Any], format_: Format) -> None:
    assert FileSpout(path, "a int", **options).format == format_


@pytest.mark.parametrize(
    ("format_", "fields", "words"),
    [
        (Text(), "a string, b string", "one field of type string or binary"),
        (Text(), "a int", "one field of type string or binary"),
        (Text(), "_line bigint", "at least one field other than _line"),
        (Json(), "a string, _line int", "_line is the number of the line: declare it as bigint, not int"),
        (Json(), "a binary", "JSON has no bytes: declare a as string"),
        (Json(paths={"b": "c"}), "a int", "paths has 'b', which is no declared field"),
        ("pattern", "a int", "format 'pattern' needs more than its name"),
    ],
)
def test_fields_that_a_format_cannot_give_are_refused(format_: Any, fields: str, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        FileSpout("x", fields, format=format_)


@pytest.mark.parametrize("paths", [5, {"a": ()}, {"a": 5}, {"a": ("b", 5)}, {5: "a"}])
def test_paths_that_cannot_be_meant_are_refused(paths: Any) -> None:
    with pytest.raises(TopologyError, match="paths"):
        Json(paths=paths)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'[\n{"a":1},\n{"a":2}\n]\n', "a JSON array over several lines"),
        (b'\xef\xbb\xbf [{"a":1},\n{"a":2}]', "a JSON array over several lines"),
        (b"PAR1\x15\x04", "it is Parquet, not UTF-8 text"),
        (b"\xff\xfe{\0", "it is UTF-16"),
    ],
)
def test_a_file_of_another_format_is_named_as_what_it_is(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(BatchDataError, match=words):
        Driver(tmp_path / "a.json", fields="a int", settled_s=0).settled()
    (tmp_path / "a.json").write_bytes(b'[1]\n{"a":1}\n')
    (metadata,) = Driver(tmp_path / "a.json", fields="a int", settled_s=0).settled()
    assert metadata["files"][0]["data"] == 0
