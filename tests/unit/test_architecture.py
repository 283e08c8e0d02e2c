"""The arrows between rooms: the diagram of the page is drawn from the code, and what the linter claims to refuse it
refuses.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.rooms import BEGIN, END, PAGE, ROOT, diagram, modules, reduced

PLANTED = {
    "txtopo/driver/planner.py": "import txtopo.committers.postgres.ledger",
    "txtopo/driver/runner.py": "from txtopo.committers.memory import memory_ledger",
    "txtopo/driver/takeover.py": "from txtopo.coordinators.zookeeper_session import open_session",
    "committers/protocol/commit.py": "import sqlalchemy",
    "committers/memory/memory_ledger.py": "from txtopo.committers.postgres import commit_session",
    "committers/count_committer.py": "from txtopo.committers.protocol import rules",
    "txtopo/bolts.py": "import txtopo.spark.executor",
    "txtopo/core/machine.py": "import time",
    "txtopo/core/values.py": "import pathlib",
    "txtopo/core/plan.py": "from txtopo.topology import components",
    "txtopo/tuples/engine.py": "import pyspark",
    "txtopo/topology/builder.py": "from txtopo.app import drive",
    "txtopo/reports/read.py": "from txtopo.audit import verdicts",
    "txtopo/audit/recount.py": "from txtopo.spouts.formats.csv import values as csv_values",
    "txtopo/audit/readers/csv_reader.py": "import pyarrow",
}
"""Imports that the architecture forbids, by the module that gets them."""


def importing(file: str) -> str:
    """The dotted name of a module of the checkout."""
    name = file.removesuffix(".py").replace("/", ".")
    return name if name.startswith("txtopo.") else f"txtopo.{name}"


def imported(statement: str) -> str:
    """The module that an import statement names; of a library its first part only."""
    words = statement.split()
    whole = f"{words[1]}.{words[3]}" if words[0] == "from" else words[1]
    return whole.removesuffix(".drive").removesuffix(".open_session")


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the linter says of a copy of the product in which everything that is forbidden was planted."""
    copy = tmp_path_factory.mktemp("planted")
    for room in ("txtopo", "coordinators", "committers", "migrations"):
        shutil.copytree(ROOT / room, copy / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for file, statement in PLANTED.items():
        with (copy / file).open("a", encoding="utf-8") as module:
            module.write(f"\n{statement}\n")
    (copy / "txtopo" / "stray.py").write_text('"""A module without a layer."""\n', encoding="utf-8")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=copy,
        env={"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "COLUMNS": "400"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("file", PLANTED)
def test_a_forbidden_import_is_refused(refusals: str, file: str) -> None:
    """Each is named with the module that has it and the one that it wants."""
    assert f"{importing(file)} -> {imported(PLANTED[file])} (l." in refusals


def test_a_module_without_a_layer_is_refused(refusals: str) -> None:
    """Whoever adds a module says which modules it may import."""
    assert "stray" in refusals


MAY_IMPORT_BY_NAME = {
    "txtopo/_lazy.py": "the face loads its names when they are used",
    "txtopo/cli/__init__.py": "a command waits for no other command's imports",
    "txtopo/driver/load_application.py": "the user names the application",
    "txtopo/spark/session/python_workers.py": "tasks tell which modules they lack",
    "txtopo/spark/session/worker_daemon.py": "a library that is missing is told by the task that needs it",
}
"""Modules that import by a name that no reader of their imports sees, and why."""


def imports_by_name(source: str) -> bool:
    """Does a module call `import_module` or `__import__`, under whatever alias of importlib?"""
    called = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = {node.attr if isinstance(node, ast.Attribute) else ast.unparse(node) for node in called}
    return bool(names & {"import_module", "__import__"})


def test_no_import_is_hidden_from_the_linter() -> None:
    """An arrow that is a text points wherever it likes."""
    found = {
        file.relative_to(ROOT).as_posix()
        for file in modules().values()
        if imports_by_name(file.read_text(encoding="utf-8"))
    }

    assert found == set(MAY_IMPORT_BY_NAME)


@pytest.mark.parametrize(
    "source",
    [
        "from importlib import import_module\nimport_module('txtopo.app')",
        "import importlib\nimportlib.import_module('txtopo.app')",
        "__import__('txtopo.app')",
    ],
)
def test_an_import_by_name_is_seen(source: str) -> None:
    """Guards that never fire are worth nothing."""
    assert imports_by_name(source)


def test_the_diagram_of_the_page_is_that_of_the_code() -> None:
    """After a new arrow: `python -m tests.kit.rooms`."""
    text = PAGE.read_text(encoding="utf-8")

    assert text[text.index(BEGIN) : text.index(END) + len(END)] == diagram()


def test_an_arrow_that_a_longer_way_implies_is_not_drawn() -> None:
    """What is left says the same about who stands above whom."""
    assert reduced({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}
