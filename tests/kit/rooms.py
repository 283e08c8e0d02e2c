"""The rooms of the product and the arrows between them, read from the imports: the diagram in docs/ARCHITECTURE.md is
made of this.

`python -m tests.kit.rooms` writes it anew.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- arrows: written by `python -m tests.kit.rooms` -->"
END = "<!-- end of arrows -->"
TOP_ROOMS = ("coordinators", "committers")
LOOSE = {"_lazy", "_version", "errors", "config", "__init__"}
"""Modules that nearly every room imports: arrows to them say nothing."""


def modules() -> Mapping[str, Path]:
    """Every module of the product by its dotted name, each once: through the real folders, not through the links."""
    found: dict[str, Path] = {}
    for top in ("txtopo", *TOP_ROOMS):
        for file in sorted((ROOT / top).rglob("*.py")):
            inside = file.relative_to(ROOT)
            if any((ROOT / parent).is_symlink() for parent in inside.parents):
                continue
            parts = inside.with_suffix("").parts
            name = ".".join(parts if parts[0] == "txtopo" else ("txtopo", *parts))
            found[name.removesuffix(".__init__")] = file
    return found


def room_of(module: str) -> str | None:
    """The room that a module stands in; None for what nearly every room imports."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in LOOSE:
        return None
    if parts[1] == "committers" and len(parts) > 3:
        return f"committers/{parts[2]}"
    return parts[1]


def arrows() -> set[tuple[str, str]]:
    """(importing room, imported room), those inside functions included."""
    known = modules()
    found: set[tuple[str, str]] = set()
    for name, file in known.items():
        for target in imported(ast.parse(file.read_text(encoding="utf-8")), known):
            upper, lower = room_of(name), room_of(target)
            if upper is not None and lower is not None and upper != lower:
                found.add((upper, lower))
    return found


def imported(tree: ast.Module, known: Mapping[str, Path]) -> set[str]:
    """Modules of the product that a module imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module in known:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
    return found


def reduced(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Without the arrows that a longer way implies: the picture stays readable, and says the same about who stands
    above whom.
    """
    below: dict[str, set[str]] = {}
    for upper, lower in pairs:
        below.setdefault(upper, set()).add(lower)

    def reach(room: str, seen: set[str]) -> set[str]:
        for lower in below.get(room, set()) - seen:
            seen.add(lower)
            reach(lower, seen)
        return seen

    return {
        (upper, lower)
        for upper, lower in pairs
        if not any(lower in reach(other, set()) for other in below[upper] - {lower})
    }


def diagram() -> str:
    """The block of the page, with its markers."""
    rooms = sorted({room for pair in arrows() for room in pair})
    lines = [f"    {_key(room)}[{room}]" for room in rooms]
    lines += [f"    {_key(upper)} --> {_key(lower)}" for upper, lower in sorted(reduced(arrows()))]
    return "\n".join([BEGIN, "```mermaid", "flowchart TD", *lines, "```", END])


def _key(room: str) -> str:
    return room.replace("/", "_")


def write() -> None:
    """Put the diagram into the page."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN, 1)
    PAGE.write_text(head + diagram() + rest.split(END, 1)[1], encoding="utf-8")


if __name__ == "__main__":
    write()
