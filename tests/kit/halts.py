"""Every sentence that a halt, a refused start or the failure of a batch can say, collected from the code: what
docs/operating.md must have.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HALTING = ("Halted", "NoBatchAtFault", "HaltRequired", "Halting")
STARTING = ("committers", "coordinators", "txtopo/spark", "txtopo/app.py", "txtopo/driver/takeover.py")
"""Where a start is refused with a ConfigurationError; elsewhere one is about what somebody typed or wrote in a
topology, and names it.
"""
GAP = "…"
"""Stands for what differs from halt to halt."""
TOLD_MIN = 10
"""Letters besides gaps; a sentence with fewer is another one's, passed on."""
DOUBLES = ("memory", "testing")
"""Files of these names hold what stands in for a store in tests."""


@dataclass(frozen=True, slots=True)
class Halt:
    """One sentence, and where it is said."""

    where: str
    sentence: str


Picks = Callable[[ast.Call, Path], bool]


def halts() -> list[Halt]:
    """Of the halts. A call whose sentence comes from elsewhere, such as one that passes a halt on, is left out."""
    return _collected(lambda call, _: _is_halt(call))


def refused_starts() -> list[Halt]:
    """Of configurations that no run is started with, whatever the topology."""
    return _collected(lambda call, path: _named(call) == "ConfigurationError" and str(path).startswith(STARTING))


def failures() -> list[Halt]:
    """Of failures that become a halt, or a quarantine, once the attempts of a batch are used up."""
    return _collected(lambda call, _: _named(call) == "BatchDataError" or _is_failure(call))


def without_next() -> list[str]:
    """Where a halt is made that does not say what to do next."""
    found = []
    for path, tree in _files():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_halt(node):
                told = [keyword.value for keyword in node.keywords if keyword.arg == "next_command"]
                if not told or (isinstance(told[0], ast.Constant) and not told[0].value):
                    found.append(f"{path}:{node.lineno}")
    return found


@functools.cache
def _files() -> tuple[tuple[Path, ast.Module], ...]:
    """In their order."""
    found = []
    for folder in ("txtopo", "committers", "coordinators"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT)
            if not path.is_symlink() and not any(word in part for part in inside.parts for word in DOUBLES):
                found.append((inside, ast.parse(path.read_text("utf-8"))))
    return tuple(found)


@functools.cache
def _calls() -> tuple[tuple[Path, ast.AST, ast.Call], ...]:
    """Calls of a name, each with its file and with every function around it."""
    found = []
    for path, tree in _files():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for function in functions:
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _named(node)]
            found += [(path, function, call) for call in calls]
    return tuple(found)


def _collected(picks: Picks) -> list[Halt]:
    found = []
    for path, function, call in _calls():
        if picks(call, path):
            texts = sorted(_sentences(_reason(call), function))
            told = [text for text in texts if sum(map(str.isalpha, text)) >= TOLD_MIN]
            found += [Halt(f"{path}:{call.lineno}", text) for text in told]
    return found


def _named(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _kinds(call: ast.Call) -> set[object]:
    kinds = [keyword.value for keyword in call.keywords if keyword.arg == "kind"]
    return {node.value for kind in kinds for node in ast.walk(kind) if isinstance(node, ast.Constant)}


def _is_halt(call: ast.Call) -> bool:
    return _named(call) in HALTING or (_named(call) == "End" and "halted" in _kinds(call))


def _is_failure(call: ast.Call) -> bool:
    return _named(call) == "Failure" and bool({"data", "suspect", "halt"} & _kinds(call))


def _reason(call: ast.Call) -> ast.expr | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("reason", "message")]
    return named[0] if named else call.args[0] if call.args else None


def _sentences(value: ast.expr | None, function: ast.AST, named: frozenset[str] = frozenset()) -> set[str]:
    """A literal with gaps for what is filled in; of a variable, but one of those `named` already, what the function
    assigns to it above.
    """
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return {value.value}
    if isinstance(value, ast.JoinedStr):
        parts = [
            {str(part.value)} if isinstance(part, ast.Constant) else _filled_in(part, function, named)
            for part in value.values
        ]
        return {"".join(one) for one in itertools.product(*parts)}
    if isinstance(value, ast.IfExp):
        return _sentences(value.body, function, named) | _sentences(value.orelse, function, named)
    if isinstance(value, ast.BinOp):
        left, right = _sentences(value.left, function, named), _sentences(value.right, function, named)
        return {one + other for one in left or {GAP} for other in right or {GAP}} if left or right else set()
    if isinstance(value, ast.Name) and value.id not in named:
        assigned = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and node.lineno < value.lineno
            and any(isinstance(target, ast.Name) and target.id == value.id for target in node.targets)
        ]
        return {text for one in assigned for text in _sentences(one, function, named | {value.id})}
    return set()


def _filled_in(part: ast.expr, function: ast.AST, named: frozenset[str]) -> set[str]:
    """What a gap of a sentence may hold, where the function itself puts it together; else nothing but the gap."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return (_sentences(value, function, named) if isinstance(value, ast.Name) else set()) or {GAP}
