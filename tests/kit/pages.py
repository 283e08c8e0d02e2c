"""Runs the Python blocks of a page of the docs as one program, and compares what each prints with the text block behind
it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILE = "/home/ann/poems.py"
"""Where errors say that the code stands."""
GAP = "…"
"""A line of its own in an output that is shown: lines that are not shown."""
_VOLATILE = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\b\d+(\.\d+)? (ms|s|min)\b", "SPAN"),
    (r"\b[0-9a-f]{12,}\b", "DIGEST"),
    (r"\b\d+ comparisons\b", "N comparisons"),  # with each migration there is more to compare
    (r" +", " "),  # columns are as wide as what stands in them
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the reader of a page does: type a command, or write code into a file."""

    line: int
    """Where its block begins."""
    kind: str
    """`console` or `python`."""
    text: str
    shown: str | None
    """What the page says that the command prints; None: nothing is shown."""


def steps_of(page: str) -> list[Step]:
    """All commands and Python blocks of `docs/<page>`, in order. A text block after a console block is the output of
    its last command.
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    found: list[Step] = []
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(2)) + 1
        if block[1] == "text":
            found[-1] = replace(found[-1], shown=block[2])
        elif block[1] == "python":
            found.append(Step(line=line, kind="python", text=block[2], shown=None))
        else:
            typed = [command.removeprefix("$ ") for command in block[2].splitlines()]
            found += [Step(line=line, kind="console", text=command, shown=None) for command in typed]
    return found


def is_shown(shown: str, said: str) -> bool:
    """Is what a page shows what a command said, but for times, durations, digests, numbers of comparisons, widths of
    columns, and lines that stand as a gap?
    """
    pattern = "".join("(?:.*\n)*?" if line == GAP else re.escape(_constant(line)) + "\n" for line in shown.splitlines())
    return re.fullmatch(pattern, "".join(f"{_constant(line)}\n" for line in said.splitlines())) is not None


def _constant(line: str) -> str:
    for pattern, instead in _VOLATILE:
        line = re.sub(pattern, instead, line)
    return line.strip()


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
