"""Columns of CSV files: without a header line, and under names that are not written exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_csv_reading import read
from txtopo.errors import BatchDataError, TopologyError
from txtopo.formats import Csv
from txtopo.spouts.file_spout import FileSpout


def rows(folder: Path, content: bytes, fields: str, **options: Any) -> list[tuple[Any, ...]]:
    return read(folder, content, fields, format=Csv(**options), on_bad_line="fail", settled_s=0)


def test_without_a_header_line_the_fields_are_the_columns(tmp_path: Path) -> None:
    assert rows(tmp_path, b"x,1\ny,2\n", "s string, a int", header=False) == [("x", 1), ("y", 2)]
    assert rows(tmp_path, b"x,1,u\n", "s string, a int", header=False, columns=3) == [("x", 1)]
    named = rows(tmp_path, b"x,1,u\n", "a int, s string", header=False, columns=["s", "a", "?"])
    assert named == [(1, "x")]
    assert rows(tmp_path, b"", "s string", header=False) == []


def test_a_file_without_a_header_line_has_the_declared_number_of_columns(tmp_path: Path) -> None:
    with pytest.raises(BatchDataError, match="3 columns, the header has 2"):
        rows(tmp_path, b"x,1,u\n", "s string, a int", header=False)


def test_a_header_line_is_told_from_a_record(tmp_path: Path) -> None:
    """It would be counted as one where all fields are texts."""
    with pytest.raises(BatchDataError, match="it is a header line: say header=True"):
        rows(tmp_path, b" Town,Name\nUlm,Ann\n", "town string, name string", header=False)
    with pytest.raises(BatchDataError, match=r"has the file no header line\? Say Csv\(header=False\)"):
        rows(tmp_path, b"Ulm,Ann\n", "town string, name string")
    with pytest.raises(BatchDataError, match="it looks like XML or HTML"):
        rows(tmp_path, b'<?xml version="1.0"?>\n', "town string, name string")


def test_names_may_differ_in_blanks_and_capitals_where_that_is_chosen(tmp_path: Path) -> None:
    content = b"\t Town ,NAME,x\nUlm,Ann,1\n"
    fields = "name string, town string"
    assert rows(tmp_path, content, fields, trim=True, ignore_case=True) == [("Ann", "Ulm")]
    with pytest.raises(BatchDataError, match=r"say Csv\(trim=True, ignore_case=True\)"):
        rows(tmp_path, content, fields)
    with pytest.raises(BatchDataError, match="column 'name' is missing"):
        rows(tmp_path, content, fields, trim=True)
    with pytest.raises(BatchDataError, match="column 'name' stands 2 times in the header"):
        rows(tmp_path, b"name,NAME,town\n", fields, ignore_case=True)


@pytest.mark.parametrize(
    ("options", "fields", "words"),
    [
        ({"columns": 2}, "a int", "say header=False"),
        ({"header": False, "trim": True}, "a int", "there is none"),
        ({"header": 1}, "a int", "header 1 is neither True nor False"),
        ({"header": False, "columns": 0}, "a int", "columns 0 is neither"),
        ({"header": False, "columns": "ab"}, "a int", "columns 'ab' is neither"),
        ({"header": False, "columns": 1}, "a int, b int", "2 fields are declared, and only 1 columns"),
        ({"header": False, "columns": ["a", "a"]}, "a int", "field 'a' stands 2 times in columns"),
        ({"ignore_case": True}, "a int, A int", "columns 'a' and 'A' are the same name"),
        ({"timestamp_format": "%d.%m.%Y %H%z"}, "a timestamp_ntz", "declare timestamp"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(options: dict[str, Any], fields: str, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        FileSpout("x", fields, format=Csv(**options))


def test_the_layout_of_files_as_ever_is_the_layout_of_earlier_plans() -> None:
    """Plans of earlier releases are read with the defaults of what they do not name."""
    assert Csv().layout() == {"delimiter": ",", "null_values": [""]}
    assert Csv.of({"delimiter": ",", "null_values": [""]}) == Csv()
