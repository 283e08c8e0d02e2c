"""Programs of other people under mypy --strict and pyright: what is right passes, and mistakes are found before it
runs.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.kit.foreign import PARTS_OF_PYSPARK, PROGRAMS, mypy_says, pyright_says, with_programs
from tests.kit.wrong_programs import WRONG

Found = dict[tuple[str, int], set[str]]
"""What is said, by file and line."""
EXPECTED = [
    (number, *found.groups())
    for number, line in enumerate(WRONG.splitlines(), 1)
    if (found := re.search(r"  # ([\w-]+) (report\w+): ", line)) is not None
]
"""Line, code of mypy and rule of pyright of each mistake."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs, in a folder outside of the checkout."""
    folder = tmp_path_factory.mktemp("programs")
    with_programs(folder)
    (folder / "wrong.py").write_text(WRONG, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def of_mypy(folder: Path) -> Found:
    """What mypy says of all programs, in one run."""
    found: Found = {}
    said = mypy_says(folder, *sorted(folder.glob("*.py")), without=PARTS_OF_PYSPARK)
    for file, line, code in re.findall(r"^(.+):(\d+): error: .*\[([\w-]+)\]$", said, re.MULTILINE):
        found.setdefault((Path(file).name, int(line)), set()).add(code)
    assert sum(map(len, found.values())) <= said.count(" error: ") <= len(EXPECTED), said
    return found


@pytest.fixture(scope="module")
def of_pyright(folder: Path) -> Found:
    """What pyright says of all programs, in one run."""
    found: Found = {}
    for file, line, rule in pyright_says(folder):
        found.setdefault((file, line), set()).add(rule)
    return found


@pytest.mark.parametrize("checker", ["of_mypy", "of_pyright"])
def test_programs_that_are_right_pass(checker: str, request: pytest.FixtureRequest) -> None:
    """Promise: the face is typed, so that a strict program needs no `Any` for it and no `ignore`."""
    found: Found = request.getfixturevalue(checker)

    assert len(PROGRAMS) == 10
    assert {place: said for place, said in found.items() if place[0] != "wrong.py"} == {}


@pytest.mark.parametrize(("checker", "at"), [("of_mypy", 1), ("of_pyright", 2)])
def test_every_mistake_is_found(checker: str, at: int, request: pytest.FixtureRequest) -> None:
    """Misspelt names, wrong types, wrong returns: each at its line, with its code, and nothing else."""
    found: Found = request.getfixturevalue(checker)
    said = {line: codes for (file, line), codes in found.items() if file == "wrong.py"}
    wanted = {mistake[0]: mistake[at] for mistake in EXPECTED if mistake[at] != "-"}

    assert {line: codes for line, codes in said.items() if wanted.get(line) not in codes} == {}
    assert sorted(said) == sorted(wanted)


def test_their_own_tests_pass(tmp_path: Path) -> None:
    """What they show with a harness or a feeder is so, not only typed so."""
    ran = []
    for program in PROGRAMS:
        module = import_module(f"tests.kit.programs.{program.stem}")
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_"):
                folder = tmp_path / f"{program.stem}_{name}"
                folder.mkdir()
                test(*([folder] if inspect.signature(test).parameters else []))
                ran.append(name)
    assert len(ran) == 5
