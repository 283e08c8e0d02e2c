"""The wheel: builds, installs one name, and works from an empty folder without the checkout. Its demo as a newcomer
meets it: all totals right, no noise, and a clean machine afterwards.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.commands import (
    OUR_LINE,
    ROOT,
    clean_environment,
    folder_for_demo,
    path_without_java,
    places_of,
    processes_of,
    run_txtopo,
)
from tests.kit.foreign import SEEN, checked, pyright_says, with_programs
from txtopo.demo.flights import find_flights, write_days
from txtopo.demo.recount import Totals, count_by_hand

FILES = 9
FIRST_KILL, SECOND_KILL = 3, 6
TABLE_LINE = re.compile(r"(\w+) +(\w+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "txtopo", "coordinators", "committers", "migrations")


def pip(*arguments: str, cwd: Path) -> None:
    """Run pip without a package index; what it says is shown when it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, since a build writes beside its sources."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder), str(source), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel."""
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--target", str(target), str(wheel), cwd=target)
    return target


def test_the_wheel_installs_one_name_with_everything_in_it(wheel: Path) -> None:
    """Promise: the wheel builds and installs one name; SQL files, migrations and the type marker are in it, tests are
    not.
    """
    names = zipfile.ZipFile(wheel).namelist()

    tops = {name.split("/")[0] for name in names}
    expected = {
        f"txtopo/{path.relative_to(ROOT).as_posix()}"
        for room in ("coordinators", "committers", "migrations")
        for path in (ROOT / room).rglob("*")
        if path.suffix in (".py", ".sql", ".mako")
    } | {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "txtopo").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }

    assert {top for top in tops if not top.endswith(".dist-info")} == {"txtopo"}
    assert len(tops) == 2
    assert expected - set(names) == set()
    assert len(names) == len(set(names))
    assert [name.rpartition("/")[2] for name in names if "/licenses/" in name] == ["LICENSE"]


def test_the_installed_wheel_answers_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """Promise: what is in the wheel is enough: it finds its own migrations."""
    environment = clean_environment(PYTHONPATH=str(installed))

    version = run_txtopo("version", cwd=tmp_path, environment=environment)
    schema = run_txtopo("migrate", "--sql", cwd=tmp_path, environment=environment)
    where = subprocess.run(
        [sys.executable, "-c", "import txtopo; print(txtopo.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert version.returncode == 0, version.stderr
    assert version.stdout.startswith("txtopo   0.")
    assert schema.returncode == 0, schema.stderr
    assert "create table txtopo.ledger" in schema.stdout
    assert Path(where.stdout.strip()).is_relative_to(installed)


@pytest.fixture
def only_here(installed: Path) -> Iterator[str]:
    """A line that works with the wheel, and not with a checkout that is installed beside it."""
    module = installed / "txtopo" / "only_here.py"
    module.write_text("HERE: int = 1\n")
    yield "from txtopo.only_here import HERE as HERE"
    module.unlink()


def test_a_type_checker_sees_the_types_of_the_wheel(installed: Path, only_here: str, tmp_path: Path) -> None:
    """Promise: mypy follows the installed wheel, and not a checkout that is installed beside it."""
    assert checked(tmp_path, only_here, PYTHONPATH=str(installed)) == SEEN


def test_programs_are_right_with_the_types_of_the_wheel(installed: Path, only_here: str, tmp_path: Path) -> None:
    """Promise: pyright finds the same types in the wheel: programs of the public face pass, and a mistake does not."""
    with_programs(tmp_path)
    (tmp_path / "here.py").write_text(f"import txtopo\n{only_here}\n\ntxtopo.Halte()\n")

    said = pyright_says(tmp_path, installed)

    assert {(file, line) for file, line, _ in said} == {("here.py", 4)}
    assert "reportAttributeAccessIssue" in {rule for _, _, rule in said}


@dataclass(frozen=True)
class Shown:
    """A demo that has ended."""

    exit_code: int
    story: list[str]
    """What it wrote on the terminal while it ran."""
    report: str
    left: list[Path]
    """Files that it left where it ran and in the folder of temporary files."""
    running: dict[int, str]
    """Processes of it that still run."""
    recounted: Totals
    """Of the same days, in another way."""


@pytest.fixture(scope="module")
def demo(installed: Path) -> Iterator[Shown]:
    """The demo of the wheel, played once for all tests: in an empty environment and an empty folder, on a machine whose
    Java is hidden.
    """
    with folder_for_demo() as machine, path_without_java(machine / "bin") as path:
        environment = clean_environment(PYTHONPATH=str(installed), PATH=path, **places_of(machine))
        environment.pop("JAVA_HOME", None)
        done = run_txtopo("demo", "--files", str(FILES), cwd=machine / "here", environment=environment)
        running = processes_of(machine)
        write_days(find_flights(), machine / "files", FILES)
        yield Shown(
            exit_code=done.returncode,
            story=done.stderr.splitlines(),
            report=done.stdout,
            left=[*(machine / "tmp").iterdir(), *(machine / "here").iterdir()],
            running=running,
            recounted=count_by_hand(machine / "files"),
        )


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.zookeeper
@pytest.mark.slow
def test_the_demo_survives_two_kills_without_any_java_on_the_machine(demo: Shown) -> None:
    """Promise: kills its own driver between COMMIT and the ZooKeeper update, and before a COMMIT in the middle of
    processing; exit code 0 only if all totals agree.

    Not one line of Spark noise; everything stopped afterwards; the machine's Java hidden.
    """
    assert demo.exit_code == 0, "\n".join(demo.story) + demo.report
    assert [line for line in demo.story if not OUR_LINE.fullmatch(line)] == []
    first = [line for line in demo.story if "kill -9 of driver 1" in line]
    second = [line for line in demo.story if "kill -9 of driver 2" in line]
    assert [f"COMMIT of batch {FIRST_KILL} and" in line for line in first] == [True]
    assert [f"before COMMIT of batch {SECOND_KILL + 1}, with " in line for line in second] == [True]
    assert second[0].partition(";")[0].endswith("begun")
    check_report(demo)


def check_report(demo: Shown) -> None:
    """The table equals a recount of this test's own, and the ledger's story is that of three drivers."""
    lines = demo.report.splitlines()
    rows = [match.groups() for line in lines if (match := TABLE_LINE.fullmatch(line)) and match[1] != "total"]
    numbers = {row[:2]: tuple(int(cell.replace(",", "")) for cell in row[2:]) for row in rows}
    assert numbers == {key: (*value, *value) for key, value in demo.recounted.items()}
    assert f"batches    {FILES} of {FILES} committed" in demo.report
    first, second, third = (line for line in lines if line.startswith("driver "))
    assert first == f"driver 1   epoch 1, committed 1-{FIRST_KILL}"
    assert second.startswith(f"driver 2   epoch 2, committed {FIRST_KILL + 1}-{SECOND_KILL}, took over")
    assert third.startswith(f"driver 3   epoch 3, committed {SECOND_KILL + 1}-{FILES}, took over")
    assert f"  MATCH  batches 1 to {FILES}: " in demo.report
    assert "MATCH      all" in demo.report
    assert "differs" not in demo.report


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.zookeeper
@pytest.mark.slow
def test_the_installed_wheel_runs_the_demo(demo: Shown) -> None:
    """Promise: the wheel runs the demo from an empty environment, and leaves nothing that runs and no file."""
    assert demo.exit_code == 0, "\n".join(demo.story) + demo.report
    assert "MATCH      all" in demo.report
    assert demo.running == {}
    assert demo.left == []
