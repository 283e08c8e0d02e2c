"""The pages of formats: every block runs and prints what stands below it; names and tables are true."""

from __future__ import annotations

import inspect
import json
import re

import pytest

from tests.kit.pages import DOCS, run_page
from tests.unit.spouts.formats.test_json_lines import one
from txtopo.formats import Csv, Pattern
from txtopo.spouts.formats.lines import json_values, line_windows, pattern_lines
from txtopo.spouts.formats.lines.known_patterns import KNOWN_PATTERNS


@pytest.mark.parametrize(
    ("page", "blocks"), [("logs.md", 3), ("json.md", 1), ("csv.md", 1), ("parquet.md", 1), ("recipes.md", 10)]
)
def test_every_block_of_a_format_runs_and_prints_what_the_page_says(page: str, blocks: int) -> None:
    seen = 0
    for block, printed in run_page(page):
        assert printed == (block.shown or ""), f"docs/{page}:{block.line}"
        seen += 1
    assert seen == blocks


def test_the_known_patterns_of_the_page_have_the_fields_that_it_says() -> None:
    page = (DOCS / "logs.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page, re.MULTILINE))
    assert set(rows) == set(KNOWN_PATTERNS)
    for name in ("apache_combined", "syslog"):
        assert tuple(re.findall(r"`(\w+)`", rows[name])) == Pattern(name).fields
    combined = Pattern("apache_combined").fields
    assert Pattern("apache_common").fields == combined[:-2]
    assert Pattern("nginx").fields == tuple(name for name in combined if name != "ident")


def test_the_spellings_of_json_are_accepted_or_not_as_the_page_says() -> None:
    page = (DOCS / "json.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)[2:]
    kinds = {"integers": "int", "decimals": "decimal(10,2)", "`float`, `double`": "double", "`boolean`": "boolean"}
    tried = 0
    for types, accepted, refused in rows:
        if types in kinds:
            for texts, is_accepted in ((accepted, True), (refused, False)):
                for text in re.findall(r"`([^`]+)`", texts):
                    found = one(f'{{"a":{text}}}', f"a {kinds[types]}")
                    assert ("is no" not in str(found)) is is_accepted, (types, text, found)
                    tried += 1
    assert tried == 16


def test_the_limits_of_lines_are_as_the_pages_say() -> None:
    assert pattern_lines.LINE_BYTES_MAX == 1024 * 1024
    assert line_windows.LINE_BYTES_MAX == 64 * 1024 * 1024
    assert json_values.NESTED_MAX == 200
    assert json_values.LINE_BYTES_MAX == 16 * 1024 * 1024


def test_the_table_of_csv_options_is_complete() -> None:
    """Every option is there, with the default that it has."""
    table = re.findall(r"^\| `(\w+)` \| (.*?) \|", (DOCS / "csv.md").read_text(encoding="utf-8"), re.MULTILINE)
    options = inspect.signature(Csv).parameters.values()
    assert {name: default.strip("`") for name, default in table} == {
        option.name: _written(option.default) for option in options
    }


def _written(default: object) -> str:
    match default:
        case None:
            return "none"
        case bool():
            return str(default)
        case tuple():
            return json.dumps(list(default))
        case _:
            return json.dumps(default)
