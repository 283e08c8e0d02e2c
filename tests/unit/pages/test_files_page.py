"""docs/files.md tells what the reader does: every spelling in its table is tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.spouts.test_csv_reading import fault, read
from txtopo.core.limits import REJECTED_BYTES_MAX, REJECTED_MAX
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.csv.windows import RECORD_BYTES_MAX

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
LEFT_OUT = {"…+05:30", "1,000", "1,50", "1,5"}
"""No whole values, or with a comma in them (tried quoted, below)."""


def rows() -> list[tuple[str, str, bool]]:
    """(type, text, is accepted) of every spelling in the table."""
    found = []
    for line in re.findall(r"^\| (`.*) \|$", PAGE, re.MULTILINE):
        cells = [cell.strip() for cell in line.split(" | ")]
        types, accepted, refused = (*cells, "", "")[:3]
        for name in re.findall(r"`([^`]+)`", types):
            found += [(name, text, True) for text in re.findall(r"`([^`]+)`", accepted) if text not in LEFT_OUT]
            found += [(name, text, False) for text in re.findall(r"`([^`]+)`", refused) if text not in LEFT_OUT]
    return [row for row in found if not (row[0] == "tinyint" and row[1] == "1,000")]


@pytest.mark.parametrize(("kind", "text", "accepted"), rows())
def test_a_spelling_is_accepted_or_refused_as_the_page_says(
    tmp_path: Path, kind: str, text: str, accepted: bool
) -> None:
    """Accepted values and those that are not."""
    content = f"a\n{text}\n".encode()

    if accepted:
        assert read(tmp_path, content, f"a {kind}")[0][0] is not None
    else:
        assert fault(tmp_path, content, f"a {kind}").position


@pytest.mark.parametrize(("kind", "text"), [("int", "1,000"), ("decimal(10,2)", "1,50"), ("double", "1,5")])
def test_a_comma_is_no_decimal_point(tmp_path: Path, kind: str, text: str) -> None:
    """Neither for thousands nor for decimals."""
    assert fault(tmp_path, f"a;b\n{text};1\n".encode(), f"a {kind}", delimiter=";").position


def test_the_spouts_on_the_page_can_be_built() -> None:
    """Every example is tried as it stands there."""
    examples = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "FileSpout(" in text]

    assert len(examples) == 4
    for text in examples:
        exec(text, {"FileSpout": FileSpout})


def test_rejects_and_their_limits_are_as_the_page_says(tmp_path: Path) -> None:
    """`rejected_max` (0.1), 64 MiB."""
    assert FileSpout(tmp_path, "a int").rejected_max == REJECTED_MAX == 0.1
    assert RECORD_BYTES_MAX == REJECTED_BYTES_MAX == 64 * 1024 * 1024


def test_the_table_was_found() -> None:
    """The rows above are not none."""
    assert len(rows()) > 20
