"""docs/development.md, CONTRIBUTING.md and SECURITY.md name files, targets and markers that exist."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.needs import SERVICES
from txtopo.cli.verbs import VERBS
from txtopo.core import plan

ROOT = Path(__file__).resolve().parents[3]
DEVELOPMENT = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
EVERY_PAGE = (*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").glob("*.md")))
MODULES = [
    path.relative_to(ROOT)
    for room in ("txtopo", "coordinators", "committers", "migrations", "tests", "benchmarks", "examples")
    for path in (ROOT / room).rglob("*.py")
]
READERS_OWN = {"file.py", "helper.py", "poems.py", "shops.py"}
"""Programs that a page asks its reader to write."""
PAGES = {"docs/development.md": DEVELOPMENT, "CONTRIBUTING.md": CONTRIBUTING, "SECURITY.md": SECURITY}
TO_BE_WRITTEN = re.compile(r"NAME|000N")
"""In paths of files that the reader is to make; their folder must exist."""
TASKS = (
    "A source",
    "A committer",
    "A kind of committer",
    "A kind of bolt",
    "A verb",
    "A setting",
    "A check of the audit",
    "A crash point",
    "A rule of the protocol",
    "A migration",
)


def paths(page: str) -> set[str]:
    """Everything that a page names as a file or a folder of the checkout."""
    spans = " ".join(re.findall(r"`([^`\n]+)`", page) + re.findall(r"^\$ (.*)$", page, re.MULTILINE))
    named = re.findall(r"(?:^|(?<=\s))((?:[\w.]+/)+[\w.]*|[A-Za-z_.]+\.(?:md|toml|yaml))(?=\s|$)", spans)
    return {path for path in named if not path.startswith(".venv/")}


def links(page: str) -> set[str]:
    """Files that a page links to."""
    return {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", page)}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    """A file that moves takes its recipe along."""
    named = {path if not TO_BE_WRITTEN.search(path) else str(Path(path).parent) for path in paths(PAGES[page])}

    assert {path for path in named if not (ROOT / path).exists()} == set()
    assert {link for link in links(PAGES[page]) if not (ROOT / page).parent.joinpath(link).exists()} == set()


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    """By its path, or by the end of it; programs that the reader writes are none."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    spans = " ".join(re.findall(r"`([^`\n]+)`", prose))
    named = set(re.findall(r"(?<![\w./*~])[\w*][\w/*]*\.py\b", spans)) - READERS_OWN

    assert {name for name in named if not TO_BE_WRITTEN.search(name) and not any(map(_ends(name), MODULES))} == set()


def _ends(name: str) -> Callable[[Path], bool]:
    return lambda module: module.match(name)


def test_modules_are_found_on_pages() -> None:
    """The test above is not one of nothing, and sees what is gone."""
    assert len(MODULES) > 300
    assert any(map(_ends("core/machine.py"), MODULES))
    assert not any(map(_ends("core/no_such_module.py"), MODULES))


def test_the_recipes_name_many_files() -> None:
    """A pattern that found nothing would find nothing missing."""
    assert len(paths(DEVELOPMENT)) > 50


@pytest.mark.parametrize("task", TASKS)
def test_there_is_a_recipe(task: str) -> None:
    """Each names at least one module and one test or page."""
    (recipe,) = re.findall(rf"^\*\*{task}\.\*\* (.*?)(?=^\*\*|^## )", DEVELOPMENT, re.MULTILINE | re.DOTALL)

    assert len(paths(recipe)) >= 2


@pytest.mark.parametrize("page", PAGES)
def test_every_target_is_one(page: str) -> None:
    """`make …` on a page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", PAGES[page])) - {"sure"} <= targets


def test_every_folder_of_tests_is_on_the_map() -> None:
    """Whoever adds a folder says what it shows and what it needs."""
    there = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists()}

    assert set(re.findall(r"^\| `(tests/\w+)` \|", DEVELOPMENT, re.MULTILINE)) == there


def test_every_marker_is_explained() -> None:
    """Markers of pyproject.toml, and no others."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = {line.partition(":")[0] for line in settings["tool"]["pytest"]["ini_options"]["markers"]}

    assert set(SERVICES) <= markers
    assert {marker for marker in markers if f"`{marker}`" not in DEVELOPMENT} == set()


def test_commands_of_the_security_page_are_commands() -> None:
    """`txtopo audit`, and so on."""
    assert set(re.findall(r"`txtopo ([a-z]+)", SECURITY)) <= set(VERBS)


def test_versions_on_the_page_are_those_of_the_code() -> None:
    """The page names the constants that a change of a format would change."""
    codec = (ROOT / "coordinators" / "codec.py").read_text(encoding="utf-8")

    assert "`PLAN_VERSION` in `txtopo/core/plan.py`" in DEVELOPMENT
    assert plan.PLAN_VERSION == 1
    assert "`NODE_VERSION` in `coordinators/codec.py`" in DEVELOPMENT
    assert re.search(r"^NODE_VERSION = 1$", codec, re.MULTILINE)


def test_the_licence_is_the_standard_text() -> None:
    """Apache License 2.0, unchanged: sha-256 of the text as packages carry it, without a blank line at its top."""
    text = (ROOT / "LICENSE").read_bytes()

    assert hashlib.sha256(text).hexdigest() == "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_hooks_before_a_commit_download_nothing() -> None:
    """Every repository of the hooks is `local`."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")

    assert set(re.findall(r"repo: (\S+)", hooks)) == {"local"}
    assert set(re.findall(r"language: (\S+)", hooks)) == {"system"}
