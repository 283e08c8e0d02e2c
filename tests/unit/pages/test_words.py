"""docs/glossary.md lists words not to use, and no page uses one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TITLE = "## Words not to use\n"


def banned() -> list[str]:
    """The words in the first column of the table, each by itself."""
    _, _, section = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition(TITLE)
    first_cells = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    return [word for cell in first_cells if cell not in ("not", "---") for word in cell.split(", ")]


def prose(text: str) -> str:
    """The sentences of a page in one line: without code, quoted output, addresses of links, and the table of words."""
    text = text.partition(TITLE)[0]
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"\s+", " ", text)


def used(words: list[str], text: str) -> list[str]:
    """Those of the words that the text uses, in upper or lower case."""
    return [word for word in words if re.search(rf"\b{re.escape(word)}\b", prose(text), re.IGNORECASE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_none_of_the_words_not_to_use(page: Path) -> None:
    """A reader whose second language is English understands every page. The second column has the word to use."""
    assert used(banned(), page.read_text(encoding="utf-8")) == []


def test_the_table_of_words_is_found() -> None:
    """The test above is not one of nothing."""
    assert len(banned()) > 15
    assert len(PAGES) > 10


def test_a_word_is_found_in_sentences_only() -> None:
    """Across the end of a line too; never in code, in quoted output, in a longer word or in the table itself."""
    words = ["mended", "none of it"]

    assert used(words, "The bolt was Mended, and none\nof it ran.") == words
    assert (
        used(words, f"`it was mended` [x](#mended) recommended\n```text\nmended\n```\n{TITLE}\n| mended | fix |") == []
    )
