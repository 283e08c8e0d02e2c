"""docs/glossary.md lists words not to use: no page uses one of them, no docstring and no message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
AT_THE_TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in AT_THE_TOP), *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = (
    *("audit", "cli", "committers", "coordinators", "core", "demo", "driver", "local", "migrations"),
    *("operating", "ports", "reports", "spark", "spouts", "testing", "topology", "tuples"),
)
MODULES = [
    *sorted((ROOT / "txtopo").glob("*.py")),
    *(m for room in ROOMS for m in sorted((ROOT / "txtopo" / room).rglob("*.py"))),
    *sorted((ROOT / "examples").rglob("*.py")),
]
STATEMENTS = sorted((ROOT / "committers" / "postgres" / "sql").glob("*.sql"))
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


@lru_cache(maxsize=1)
def nodes_of(source: str) -> list[ast.AST]:
    """Of one module after the other: to go through a tree takes longer than to parse it."""
    return list(ast.walk(ast.parse(source)))


def docstrings(source: str) -> Iterator[str]:
    """What `help()` shows of a module: docstrings of modules, classes and functions, and those below attributes."""
    for node in nodes_of(source):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def help_texts(source: str) -> Iterator[str]:
    """What a command shows with `--help`: the texts of its keywords `help` and `short_help`."""
    for node in nodes_of(source):
        if (
            isinstance(node, ast.keyword)
            and node.arg in ("help", "short_help")
            and isinstance(node.value, ast.Constant)
        ):
            yield str(node.value.value)


def messages(source: str) -> Iterator[str]:
    """All other texts of a module: what errors, halts, status lines, reasons and next commands are made of. Values that
    are put into a text are shown as `…`. SQL and names are among them; they do not use the words either.
    """
    nodes = nodes_of(source)
    inside = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    for text in joined:
        inside |= {id(part) for part in text.values}
        formats = [
            part.format_spec for part in text.values if isinstance(part, ast.FormattedValue) and part.format_spec
        ]
        inside |= {id(part) for one in formats for part in ast.walk(one)}
        if id(text) not in inside:
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "`…`" for part in text.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def answers(statement: str) -> list[str]:
    """The texts in a statement that the server stores for people."""
    return re.findall(r"'([^']* [^']*)'", statement)


def used(words: list[str], text: str) -> list[str]:
    """Those of the words that the text uses, in upper or lower case."""
    sentences = prose(text)
    found = {one.lower() for one in re.findall(rf"\b(?:{'|'.join(map(re.escape, words))})\b", sentences, re.IGNORECASE)}
    return [word for word in words if word.lower() in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_none_of_the_words_not_to_use(page: Path) -> None:
    """A reader whose second language is English understands every page. The second column has the word to use."""
    assert used(banned(), page.read_text(encoding="utf-8")) == []


def test_a_docstring_uses_none_of_the_words_not_to_use() -> None:
    """What an editor and `help()` show is a page like any other."""
    words, found = banned(), []
    for module in MODULES:
        source = module.read_text(encoding="utf-8")
        texts = "\n\n".join([*docstrings(source), *help_texts(source)])
        found += [f"{module.relative_to(ROOT)}: {word}" for word in used(words, texts)]

    assert found == []


def test_a_message_uses_none_of_the_words_not_to_use() -> None:
    """An error is read by more people than any page, and at night."""
    words, found = banned(), []
    for module in MODULES:
        texts = "\n|\n".join(messages(module.read_text(encoding="utf-8")))
        found += [f"{module.relative_to(ROOT)}: {word}" for word in used(words, texts)]
    for statement in STATEMENTS:
        texts = "\n|\n".join(answers(statement.read_text(encoding="utf-8")))
        found += [f"{statement.relative_to(ROOT)}: {word}" for word in used(words, texts)]

    assert found == []


def test_messages_are_found() -> None:
    """Whole sentences, however they are put together; neither docstrings nor format specifications."""
    source = '''"""Not this."""\nraise Halted(f"batch {n:>5} is" f" {'at once' if x else y} done", next="a b")\n'''

    assert sorted(messages(source)) == ["a b", "at once", "batch `…` is `…` done"]
    assert used(["is done"], "batch `…` is\ndone") == ["is done"]
    assert answers("update t set a = 'one two', b = 'three'") == ["one two"]
    assert any(answers(statement.read_text(encoding="utf-8")) for statement in STATEMENTS)


def test_docstrings_and_help_texts_are_found() -> None:
    """The test above is not one of nothing."""
    source = '"""One."""\nclass A:\n    """Two."""\n    a = 1\n    """Three."""\n    b = option(help="Four.")\n'

    assert sorted([*docstrings(source), *help_texts(source)]) == ["Four.", "One.", "Three.", "Two."]
    assert len(MODULES) > 60


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
