"""The page of guarantees cites tests that exist, for every rule; assertions that guard them cannot be stripped."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
ROWS = [row for row in re.findall(r"^\|(.+)\|$", PAGE, re.MULTILINE) if "---" not in row and "test |" not in row + "|"]


def known_tests() -> set[str]:
    """Names of all test functions, contracts included."""
    names: set[str] = set()
    for folder in ("tests", "txtopo/testing"):
        for path in (ROOT / folder).rglob("*.py"):
            names.update(re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")))
    return names


def test_every_cited_test_exists() -> None:
    """Each sentence names its test."""
    cited = set(re.findall(r"`(test_\w+)`", PAGE))

    assert cited - known_tests() == set()
    assert len(cited) > 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[0].strip()[:40])
def test_every_promise_cites_a_test_or_says_that_it_is_not_made(row: str) -> None:
    """No promise without proof."""
    assert "`test_" in row or "not applied" in row


def test_every_rule_of_the_protocol_is_listed() -> None:
    """R1 to R31."""
    assert [f"R{number}" for number in range(1, 32)] == re.findall(r"^\| (R\d+) \|", PAGE, re.MULTILINE)


def test_every_rule_that_is_applied_is_named_beside_the_code() -> None:
    """A rule is found by its name."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for room in ("txtopo", "coordinators", "committers")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "testing" not in path.parts
    )
    applied = {row.split("|")[0].strip() for row in ROWS if re.match(r" R\d+ ", row) and "not applied" not in row}

    assert {rule for rule in applied if not re.search(rf"\b{rule}\b", code)} == set()


def test_invariants_stay_on_when_python_strips_assertions() -> None:
    """R18."""
    program = (
        "from txtopo.errors import invariant, InvariantBroken\ntry:\n    invariant(False, 'x')\nexcept "
        "InvariantBroken:\n    print('on')"
    )

    done = subprocess.run([sys.executable, "-O", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "on\n"


@pytest.mark.parametrize("room", ["txtopo", "coordinators", "committers", "migrations"])
def test_the_product_has_no_assert_statement(room: str) -> None:
    """R18: nothing that matters hangs on a statement that -O strips."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / room).rglob("*.py"))
        if "testing" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]

    assert found == []


def test_every_rule_and_hazard_named_in_the_code_is_on_the_page_of_the_protocol() -> None:
    """A reader finds what R9 or Z5 means without leaving the repository."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    known = set(re.findall(r"\b[RIZPK]\d{1,2}\b", page))
    named: set[str] = set()
    for room in ("txtopo", "coordinators", "committers", "migrations"):
        for path in sorted((ROOT / room).rglob("*.py")) + sorted((ROOT / room).rglob("*.sql")):
            comments = re.findall(r'#.*|--.*|"""(?:.|\n)*?"""', path.read_text(encoding="utf-8"))
            named |= {name for text in comments for name in re.findall(r"\b[RIZPK][1-9]\d?\b", text)}

    assert named - known == set()
    assert len(named) > 30
