"""The folder of the sockets between Spark and its Python workers: private, short, and gone afterwards."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from txtopo.spark.session.python_worker_sockets import ENABLED, FOLDER, FOLDER_BYTES_MAX, SocketFolder


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of this test, with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_nobody_else_may_enter_and_nothing_stays(temporary: Path) -> None:
    """Spark asks for no secret on these sockets: the folder is the lock."""
    sockets = SocketFolder()

    settings = sockets.settings({})

    folder = Path(settings[FOLDER])
    assert settings[ENABLED] == "true"
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "left.sock").touch()
    sockets.remove()
    sockets.remove()
    assert not folder.exists()


@pytest.mark.parametrize(
    "conf", [{ENABLED: "false"}, {FOLDER: "/run/spark"}], ids=["switched off", "a folder of theirs"]
)
def test_what_the_user_says_stands(temporary: Path, conf: dict[str, str]) -> None:
    assert SocketFolder().settings(conf) == {}
    assert list(temporary.iterdir()) == []


def test_a_temporary_folder_with_a_long_path_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The path of a socket is cut off at some hundred bytes, on macOS with its long TMPDIR too."""
    long = tmp_path / ("x" * FOLDER_BYTES_MAX)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    sockets = SocketFolder()

    settings = sockets.settings({})

    try:
        assert Path(settings[FOLDER]).parent == Path("/tmp")
        assert len(settings[FOLDER]) <= FOLDER_BYTES_MAX
    finally:
        sockets.remove()


def test_where_no_folder_will_do_spark_keeps_to_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: str) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)

    assert SocketFolder().settings({}) == {}


def test_without_any_place_for_temporary_files_there_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full disks: Spark says so itself, in words."""

    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    sockets = SocketFolder()

    assert sockets.settings({}).keys() <= {ENABLED, FOLDER}
    sockets.remove()
