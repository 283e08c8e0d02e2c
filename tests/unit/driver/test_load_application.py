"""Applications: scripts get exit codes and told errors, modules that need Spark to be imported are recognised."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.applications import orders_topology
from tests.kit.tuple_runs import RowsSpout
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.app import spark_executor
from txtopo.config import Settings
from txtopo.driver.load_application import load_application
from txtopo.errors import ConfigurationError
from txtopo.spark.session.ship_modules import check_picklable

ROOT = Path(__file__).resolve().parents[3]


def test_a_script_gets_the_exit_code_and_no_password_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`topology.run()` returns the exit code, having told errors on stderr."""
    dsn = "postgresql://ann:Geheim1@127.0.0.1:1/nowhere"

    code = orders_topology(tmp_path).run(dsn=dsn, zookeeper="127.0.0.1:1/txtopo", once=True)

    said = capsys.readouterr().err
    assert code == 3
    assert said.startswith("txtopo: postgres")
    assert "Geheim1" not in said


def test_an_unknown_setting_of_a_script_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with a suggestion."""
    assert orders_topology(tmp_path).run(atempts_max=1) == 2  # type: ignore[call-arg]
    assert "attempts_max" in capsys.readouterr().err


def test_a_topologys_own_config_is_read_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Storm's names in a topology's config are settings of its run; a wrong one is exit code 2, named with its source."""  # noqa: E501
    builder = TopologyBuilder("orders", config={"topology.max.spout.pending": "many"})
    builder.set_spout("lines", FileSpout(tmp_path, "item string"))
    builder.set_committer_bolt("counts", CountCommitter("orders", ["item"]), "lines")

    assert builder.build().run(dsn="postgresql://127.0.0.1:1/nowhere", zookeeper="127.0.0.1:1/txtopo", once=True) == 2
    assert "the topology's own config: spout_pending_max must be a number" in capsys.readouterr().err


def test_the_number_of_ackers_reaches_the_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`topology.acker.executors`, wherever it is said, is what the tuple runtime has."""
    made: list[int] = []
    monkeypatch.setattr("txtopo.spark.session.spark_session.running_session", object)
    monkeypatch.setattr("txtopo.spark.executor.SparkExecutor", lambda *_, ackers, **more: made.append(ackers))

    spark_executor(orders_topology(tmp_path), b"", Settings(ackers=7))

    assert made == [7]


def test_a_module_that_raises_is_refused_with_its_line(tmp_path: Path) -> None:
    """Also where what raises is a helper's."""
    (tmp_path / "raises_helper.py").write_text("def make():\n    raise KeyError('boom')\n")
    (tmp_path / "raises_app.py").write_text("from raises_helper import make\n\ntopology = make()\n")

    with pytest.raises(
        ConfigurationError, match=r"raises_app\.py: importing it failed: .*raises_helper\.py:2: KeyError: 'boom'"
    ):
        load_application(str(tmp_path / "raises_app.py"))


def test_a_component_that_cannot_travel_to_tasks_is_named() -> None:
    """A copy in this process is no proof: a function is copied as it is, with what it closes over."""

    def opened() -> Any:
        connection = sqlite3.connect(":memory:")
        return lambda: connection

    class Closes(RowsSpout):
        def __init__(self) -> None:
            super().__init__("word string")
            self.find = opened()

    builder = TopologyBuilder("closes")
    builder.set_spout("words", Closes())
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"]), "words")

    with pytest.raises(
        ConfigurationError, match=r"spout 'words': Closes cannot be sent to Spark's tasks: .*sqlite3.Connection"
    ):
        check_picklable(builder.build())


def test_a_module_that_needs_spark_to_be_imported_is_recognised(tmp_path: Path) -> None:
    """With `@udf("string")` at its top it fails without a session, and can be imported again once there is one."""
    (tmp_path / "early.py").write_text(
        'from pyspark.sql import functions as F\n\n@F.udf("string")\ndef clean(x):\n    return x\n'
    )
    program = (
        "import sys\nfrom txtopo.driver.load_application import load_application, needs_spark\nfrom txtopo.errors "
        "import ConfigurationError\n"
        "try:\n    load_application(sys.argv[1])\nexcept ConfigurationError as error:\n    print(needs_spark(error), "
        "'early' in sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "early.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "True False\n"


def test_a_module_without_a_topology_says_what_it_has(tmp_path: Path) -> None:
    """What was looked for and what was found."""
    (tmp_path / "empty_one.py").write_text("x = 1\n")

    with pytest.raises(ConfigurationError, match="'topology' does not exist"):
        load_application(str(tmp_path / "empty_one.py"))
