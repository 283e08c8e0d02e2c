"""docs/glossary.md: each word once, in order, and none that is used nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^\| \*\*(.+?)\*\* \|", PAGE, re.MULTILINE)
ELSEWHERE = "\n".join(
    path.read_text(encoding="utf-8").lower()
    for folder, ending in [("docs", "md"), ("txtopo", "py"), ("committers", "py"), ("coordinators", "py")]
    for path in sorted((ROOT / folder).rglob(f"*.{ending}"))
    if path.name != "glossary.md"
)


def test_words_are_in_order_and_each_is_there_once() -> None:
    """A reader finds a word where it is looked for."""
    assert sorted(set(WORDS), key=lambda word: word.lower().split(",")[0]) == WORDS
    assert len(WORDS) > 60


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_used(word: str) -> None:
    """The same word in code, tables, commands and reports: a word that nobody says needs no meaning."""
    for name in word.lower().split(", "):
        assert name in ELSEWHERE or name.replace(" ", "_") in ELSEWHERE
