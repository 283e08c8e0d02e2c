"""The wheel: builds, installs one name, and works from an empty folder without the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.acceptance.commands import ROOT, clean_environment, processes_of, run_txtopo
from tests.kit.fix_postgres import folder_for_services
from tests.kit.foreign import SEEN, checked

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


def test_a_type_checker_sees_the_types_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Promise: mypy follows the installed wheel, and not a checkout that is installed beside it."""
    only_here = installed / "txtopo" / "only_here.py"
    only_here.write_text("HERE: int = 1\n")
    try:
        said = checked(tmp_path, "from txtopo.only_here import HERE", PYTHONPATH=str(installed))
    finally:
        only_here.unlink()

    assert said == SEEN


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.zookeeper
@pytest.mark.slow
def test_the_installed_wheel_runs_the_demo(installed: Path) -> None:
    """Promise: the wheel runs the demo from an empty environment."""
    with folder_for_services() as folder:
        environment = clean_environment(PYTHONPATH=str(installed), TMPDIR=str(folder))

        done = run_txtopo("demo", "--files", "8", cwd=folder, environment=environment)

        assert done.returncode == 0, done.stderr + done.stdout
        assert "MATCH      all" in done.stdout
        assert processes_of(folder) == {}
        assert list(folder.iterdir()) == []
