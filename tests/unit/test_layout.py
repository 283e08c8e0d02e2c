"""The tree keeps the shape it was given: packages, links, sizes, docstrings, and nothing that runs foreign code."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("coordinators", "committers", "migrations")
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "compile"}
FORBIDDEN_LOADS = {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}
MAY_BE_TWICE = {"Coordinator", "Aggregator"}
"""`Coordinator` is Storm's word for the half of a spout that a user writes, and the name of the port.
`Aggregator` is Trident's word for what a user writes, and what counts the result rows of a committer."""
MODULES_TWICE = {
    "executor": "the port, and Spark's",
    "ledger": "the port, and that of Postgres",
    "recount": "counts a source again: the audit, and the demo with code of its own",
    "values": "immutable values of the core; the values of a record, as its folder `csv` says",
}
"""Names of two modules, and why that misleads nobody. A command's module has the name of the command besides."""
MAY_PICKLE = "txtopo/spark/"
"""Spark pickles functions for its executors; nothing else may."""


def modules() -> Iterator[Path]:
    """Every module of the product, once: through the real folders, not through the links."""
    for room in ("txtopo", *ROOMS):
        for file in sorted((ROOT / room).rglob("*.py")):
            inside = file.relative_to(ROOT)
            if not any((ROOT / parent).is_symlink() for parent in inside.parents):
                yield file


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


MODULES = {name_of(file): file for file in modules()}


@pytest.fixture(scope="module")
def trees() -> dict[str, list[ast.AST]]:
    """The nodes of every module, the module first: each is parsed once, and gone through once."""
    return {name: nodes_of(file.read_text(encoding="utf-8")) for name, file in MODULES.items()}


def nodes_of(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def package_of(folder: Path) -> str:
    inside = folder.relative_to(ROOT)
    return ".".join(inside.parts if inside.parts[0] == "txtopo" else ("txtopo", *inside.parts))


def test_every_folder_with_modules_is_in_the_wheel() -> None:
    """A package missing from the list in pyproject.toml is silently absent from the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]

    found = {package_of(file.parent) for file in MODULES.values()}

    assert found == set(settings["packages"])
    assert settings["package-dir"] == {"txtopo": "txtopo"} | {f"txtopo.{room}": room for room in ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_each_link_leads_to_its_room(room: str) -> None:
    """Tools see one tree because `txtopo/<room>` is a link to the folder at the top."""
    link = ROOT / "txtopo" / room

    assert link.is_symlink()
    assert link.readlink() == Path("..") / room
    assert link.resolve() == (ROOT / room).resolve()


def test_every_module_says_its_duty(trees: dict[str, list[ast.AST]]) -> None:
    """The first sentence of a module says what it is for."""
    found = {name: ast.get_docstring(cast(ast.Module, nodes[0])) for name, nodes in trees.items()}

    assert [name for name, words in found.items() if not (words or "").strip()] == []


def test_no_module_and_no_function_is_too_long(trees: dict[str, list[ast.AST]]) -> None:
    """A module has at most 500 lines, a function at most 70."""
    modules = {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in MODULES.items()}
    functions = {
        f"{name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, nodes in trees.items()
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {name: lines for name, lines in modules.items() if lines > MODULE_LINES_MAX} == {}
    assert {name: lines for name, lines in functions.items() if lines > FUNCTION_LINES_MAX} == {}


def test_rooms_are_imported_by_their_long_name(trees: dict[str, list[ast.AST]]) -> None:
    """A bare `import coordinators` works from the root of the checkout, and makes a second copy of every class."""
    assert [name for name, nodes in trees.items() if imported_roots(nodes) & set(ROOMS)] == []


def test_nothing_outside_the_spark_room_unpickles_or_evaluates(trees: dict[str, list[ast.AST]]) -> None:
    """What comes from shared storage is read as data, never run."""
    checked = {name: nodes for name, nodes in trees.items() if not name.startswith(MAY_PICKLE)}

    assert [name for name, nodes in checked.items() if imported_roots(nodes) & FORBIDDEN_MODULES] == []
    assert [name for name, nodes in checked.items() if called_names(nodes) & (FORBIDDEN_CALLS | FORBIDDEN_LOADS)] == []


def test_no_class_name_is_used_twice(trees: dict[str, list[ast.AST]]) -> None:
    """A name means one thing: classes have no twins in another module, but for the user's half of a port."""
    homes: dict[str, list[str]] = {}
    for name, (module, *_) in trees.items():
        for node in cast(ast.Module, module).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)

    assert {name: found for name, found in homes.items() if len(found) > 1 and name not in MAY_BE_TWICE} == {}


def test_no_two_modules_have_one_name_with_two_meanings() -> None:
    """A name leads to one module; commands are looked for by what one types."""
    names = [file.stem for name, file in MODULES.items() if not name.startswith("txtopo/cli/")]

    twice = {name for name in names if names.count(name) > 1 and not name.startswith("__")}
    assert twice == set(MODULES_TWICE)


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from cloudpickle import dumps", "import coordinators.memory", "from committers import x"],
)
def test_the_import_guard_sees_every_spelling(source: str) -> None:
    """Guards that never fire are worth nothing."""
    assert imported_roots(nodes_of(source)) & (FORBIDDEN_MODULES | set(ROOMS))


@pytest.mark.parametrize("source", ["eval('1')", "exec(code)", "builtins.exec(code)", "yaml.load(text)"])
def test_the_call_guard_sees_every_spelling(source: str) -> None:
    """Guards that never fire are worth nothing."""
    assert called_names(nodes_of(source)) & (FORBIDDEN_CALLS | {"builtins.exec", "yaml.load"})


def imported_roots(nodes: list[ast.AST]) -> set[str]:
    """First parts of the names of all modules imported anywhere among the nodes."""
    roots: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            roots.add(node.module.split(".")[0])
    return roots


def called_names(nodes: list[ast.AST]) -> set[str]:
    """Plain and dotted names of everything called anywhere; `re.compile` counts as that, not as `compile`."""
    names = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    return names | {name.removeprefix("builtins.") for name in names}
