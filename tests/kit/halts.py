"""Every sentence that a halt can say, collected from the code: what docs/operating.md must have."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HALTING = ("Halted", "HaltRequired", "Halting")
GAP = "…"
"""Stands for what differs from halt to halt."""
DOUBLES = ("memory", "testing")
"""Files of these names hold what stands in for a store in tests."""


@dataclass(frozen=True, slots=True)
class Halt:
    """One sentence, and where it is said."""

    where: str
    sentence: str


def halts() -> list[Halt]:
    """In the order of the files. A call whose sentence comes from elsewhere, such as one that passes a halt on, is left out."""
    found = []
    for folder in ("txtopo", "committers", "coordinators"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT)
            if not path.is_symlink() and not any(word in part for part in inside.parts for word in DOUBLES):
                found += [Halt(f"{inside}:{line}", text) for line, text in _in_file(ast.parse(path.read_text("utf-8")))]
    return found


def _in_file(tree: ast.Module) -> Iterator[tuple[int, str]]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_halt(node):
                for text in sorted(_sentences(_reason(node), function)):
                    yield node.lineno, text


def _is_halt(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Name)
    kinds = [keyword.value for keyword in call.keywords if keyword.arg == "kind"]
    ended = call.func.id == "End" and any(isinstance(kind, ast.Constant) and kind.value == "halted" for kind in kinds)
    return call.func.id in HALTING or ended


def _reason(call: ast.Call) -> ast.expr | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    return named[0] if named else call.args[0] if call.args else None


def _sentences(value: ast.expr | None, function: ast.AST) -> set[str]:
    """A literal with gaps for what is filled in; of a variable what the function assigns to it."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return {value.value}
    if isinstance(value, ast.JoinedStr):
        parts = [
            {str(part.value)} if isinstance(part, ast.Constant) else _filled_in(part, function) for part in value.values
        ]
        return {"".join(one) for one in itertools.product(*parts)}
    if isinstance(value, ast.IfExp):
        return _sentences(value.body, function) | _sentences(value.orelse, function)
    if isinstance(value, ast.BinOp):
        left, right = _sentences(value.left, function), _sentences(value.right, function)
        return {one + other for one in left or {GAP} for other in right or {GAP}} if left or right else set()
    if isinstance(value, ast.Name):
        assigned = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == value.id for target in node.targets)
        ]
        return {text for one in assigned for text in _sentences(one, function)}
    return set()


def _filled_in(part: ast.expr, function: ast.AST) -> set[str]:
    """What a gap of a sentence may hold, where the function itself puts it together; else nothing but the gap."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return (_sentences(value, function) if isinstance(value, ast.Name) else set()) or {GAP}
