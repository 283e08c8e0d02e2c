"""docs/tutorial.md: every command runs as it is typed there, on real stores and real Spark, and says what the page
shows.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.files import settle_soon
from tests.kit.pages import is_shown, steps_of
from txtopo.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
HOME = "/home/ann/shop"
"""Where the page's reader is."""
ELSEWHERE = ("make ", ". ", "txtopo dev ", "mkdir -p ")
"""Commands that install, and start and stop services: other tests run them."""


def run_step(command: str) -> tuple[int, str]:
    """Exit code and everything that was printed, in order."""
    if not command.startswith("txtopo "):
        subprocess.run(["bash", "-c", command], check=True)
        return 0, ""
    sys.modules.pop("shops", None)  # each command is a separate process for the reader, and loads the file again
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(shlex.split(command)[1:])
    return code, said.getvalue().replace(str(Path.cwd()), HOME)


def test_every_step_of_the_tutorial_does_what_the_page_says(
    spark_session: SparkSession, database: str, zookeeper_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: a newcomer who types the page sees the page: counts, a bad file, its replay, an audit that agrees and
    one that does not.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("TXTOPO_DSN", database)
    monkeypatch.setenv("TXTOPO_ZK", zookeeper_root)
    monkeypatch.setenv("TXTOPO_ZOOKEEPER_SESSION_S", "4")
    settle_soon(monkeypatch)
    application = Path("shops.py")
    codes = []

    for step in steps_of("tutorial.md"):
        if step.kind == "python" and not application.exists():
            application.write_text(step.text)
        elif step.kind == "python":  # one line that replaces the one that gave its name a value
            name = step.text.partition(" = ")[0]
            lines = application.read_text().splitlines(keepends=True)
            application.write_text("".join(step.text if line.startswith(f"{name} = ") else line for line in lines))
        elif not step.text.startswith(ELSEWHERE):
            code, said = run_step(step.text)
            codes += [code] if step.text.startswith("txtopo ") else []
            assert step.shown is None or is_shown(step.shown, said), f"docs/tutorial.md:{step.line}\n{said}"

    sys.modules.pop("shops", None)
    assert codes == [0, 0, 0, 1, 1, 0, 0, 0, 0, 1]  # a halt, the status of it, and the file that was changed
