"""Runs the Python blocks of a page of the docs as one program, and compares what each prints with the text block behind
it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILE = "/home/ann/poems.py"
"""Where errors say that the code stands."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of Python on a page."""

    line: int
    """Where its code begins."""
    code: str
    shown: str | None
    """What the page says that it prints; None: no text block follows."""

    @property
    def needs_spark(self) -> bool:
        """Does it use the session that the reader has as `spark`?"""
        return re.search(r"\bspark\b", self.code) is not None


def blocks_of(page: str) -> list[Block]:
    """All Python blocks of `docs/<page>`, in their order. A text block right behind one is its output."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    blocks: list[Block] = []
    for at, block in enumerate(found):
        after = found[at + 1] if at + 1 < len(found) else None
        is_shown = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        if block[1] == "python":
            line = text.count("\n", 0, block.start(2)) + 1
            blocks.append(Block(line=line, code=block[2], shown=after[2] if after is not None and is_shown else None))
    return blocks


def run_page(page: str, namespace: dict[str, Any] | None = None) -> Iterator[tuple[Block, str]]:
    """Run the blocks one after the other in one namespace, and give each with what it printed; those that need Spark
    only if there is a `spark`.
    """
    namespace = {} if namespace is None else namespace
    namespace["__name__"] = "poems"
    for block in blocks_of(page):
        if block.needs_spark and "spark" not in namespace:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, FILE, "exec"), namespace)
        yield block, printed.getvalue()
