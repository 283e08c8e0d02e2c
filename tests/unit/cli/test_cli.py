"""The command line itself: help, unknown verbs, exit codes, what goes where, what it costs to start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from txtopo import errors
from txtopo.app import log_folder
from txtopo.cli import cli, main
from txtopo.cli.verbs import ALIASES, HABITS, VERBS
from txtopo.config import load_settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's settings nor its services are seen."""
    for name in [name for name in os.environ if name.startswith("TXTOPO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TXTOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `txtopo version` raise."""

    def fail_with(error: BaseException) -> None:
        def raising() -> None:
            raise error

        monkeypatch.setattr("txtopo.cli.version.version", click.Command("version", callback=raising))

    return fail_with


def test_help_lists_every_command_with_its_example() -> None:
    """Promise: help lists the commands in a sensible order with one example each; variables are shown."""
    said = CliRunner().invoke(cli, ["-h"]).stdout

    listed = re.findall(r"^  ([a-z]+)  ", said.partition("Commands:")[2].partition("Examples:")[0], re.MULTILINE)
    assert listed == list(VERBS)
    for verb in VERBS.values():
        assert f"  {verb.example}\n" in said
    for variable in ("TXTOPO_DSN", "TXTOPO_ZK", "TXTOPO_TARGET", "TXTOPO_CONFIG"):
        assert variable in said


@pytest.mark.parametrize("verb", [*VERBS, "dev up", "dev down", "dev status"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_help_ends_with_an_example(verb: str, flag: str) -> None:
    """Promise: every command's help ends with an example."""
    result = CliRunner().invoke(cli, [*verb.split(), flag])

    assert result.exit_code == 0, result.output
    assert re.search(rf"Example:\n +txtopo {verb}", result.stdout)
    assert "\x1b" not in result.stdout


def test_variables_of_a_command_are_in_its_help() -> None:
    """Promise: every option has an environment variable, shown in help."""
    said = CliRunner().invoke(cli, ["run", "--help"]).stdout

    for variable in (
        "TXTOPO_ONCE",
        "TXTOPO_MASTER",
        "TXTOPO_CONF",
        "TXTOPO_PY_FILES",
        "TXTOPO_WORKERS",
        "TXTOPO_MESSAGE_TIMEOUT_S",
    ):
        assert variable in said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("statsu", "status"),
        ("batch", "batches"),
        ("migrat", "migrate"),
        ("descrbe", "show"),
        ("monitr", "status"),
        ("skp", "skip"),
    ],
)
def test_an_unknown_verb_suggests_the_nearest(capsys: pytest.CaptureFixture[str], typed: str, meant: str) -> None:
    """Promise: unknown verb suggests the nearest; exit code 2."""
    code = main([typed])

    said = capsys.readouterr()
    assert code == 2
    assert f"did you mean {meant}?" in said.err
    assert said.out == ""


@pytest.mark.parametrize("word", HABITS)
def test_a_habit_is_answered_with_the_command_that_does_it(capsys: pytest.CaptureFixture[str], word: str) -> None:
    """Promise: a word of other tools leads to the right command, or to the reason why there is none; every command in
    the answer is one.
    """
    assert main([word]) == 2

    said = capsys.readouterr().err
    assert HABITS[word] in said
    assert "did you mean" not in said
    named = set(re.findall(r"`txtopo ([a-z]+)", HABITS[word]))
    assert named <= set(VERBS)
    assert word not in VERBS and word not in ALIASES


@pytest.mark.parametrize(
    "word", ["kill", "pause", "start", "logs", "ps", "doctor", "history", "rejects", "delete", "kip", "re", "repla"]
)
def test_no_guess_names_a_command_that_changes_something(capsys: pytest.CaptureFixture[str], word: str) -> None:
    """A guess is followed: what leaves a batch out or replaces counts is only named where a letter is missing."""
    assert main([word]) == 2

    guess = re.search(r"did you mean (\w+)", capsys.readouterr().err)
    assert (guess[1] if guess else None) == {"kip": "skip", "repla": "replay"}.get(word)


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    """What people type first."""
    assert main(["help"]) == 0
    assert "Commands:" in capsys.readouterr().out
    assert main(["help", "retry"]) == 0
    assert "txtopo retry flights 17" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """Promise: `_TXTOPO_COMPLETE=bash_source txtopo` prints the script, and the script gets the commands and options
    that fit.
    """
    monkeypatch.setenv("_TXTOPO_COMPLETE", f"{shell}_source")
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", lambda *_: None)
    assert main([]) == 0
    assert "_TXTOPO_COMPLETE=" in capsys.readouterr().out

    monkeypatch.setenv("_TXTOPO_COMPLETE", f"{shell}_complete")
    found = {}
    for words, place in (("txtopo sta", 1), ("txtopo run --on", 2), ("txtopo nonsense ", 2)):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", words.split()[-1] if shell == "fish" else str(place))
        assert main([]) == 0
        found[words] = capsys.readouterr().out
    assert "status" in found["txtopo sta"]
    assert "--on-poison" in found["txtopo run --on"]


@pytest.mark.parametrize("command", ["show f", "events f", "skip f --reason x"])
@pytest.mark.parametrize("typed", ["3..5", "1,3", "3-5", "..4"])
def test_a_range_where_one_batch_is_meant_is_called_a_range(
    capsys: pytest.CaptureFixture[str], command: str, typed: str
) -> None:
    """Not "is not a valid integer range", which says that a range was wanted."""
    assert main([*command.split(), typed]) == 2

    assert f"{typed!r} names several batches: {command.split()[0]} takes one, such as 17" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["retry f", "redrive f", "batches f", "replay f", "audit f"])
def test_a_range_with_another_sign_is_told_how_to_write_it(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """`1-3` and `1:3` are habits of other tools."""
    for typed in ("1-3", "1:3", "1...3"):
        assert main([*command.split(), typed]) == 2
        assert f"{typed!r} is no range of batches: write 1..3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "flights", "0"],
        ["show", "flights", "x"],
        ["batches"],
        ["status", "--nonsense"],
        ["migrate", "--check", "--sql"],
        ["batches", "f", "--state", "odd"],
        ["batches", "f", "--limit", "0"],
        [],
        ["retry"],
        ["retry", "f", "0"],
        ["retry", "f", "--json"],
        ["retry", "f", "--timeout", "-1"],
        ["skip", "f"],
        ["skip", "f", "5"],
        ["skip", "f", "5", "--reason", " "],
        ["redrive", "f"],
        ["replan", "f"],
        ["replan", "f", "5", "--reason", "x"],
        ["replay", "f"],
        ["replay", "f", "4..2"],
        ["replay", "f", "1,x"],
        ["replay", "f", "1", "--verify", "--recompute"],
        ["replay", "f", "1", "--execute", "--reason", "x"],
        ["replay", "f", "1", "--recompute", "--execute"],
        ["replay", "f", "1", "--recompute", "--execute", "--reason", "x", "--json"],
    ],
)
def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Promise: 2 for wrong usage; nothing on stdout."""
    code = main(arguments)

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err


@pytest.mark.parametrize("alias", ALIASES)
def test_habits_of_others_are_understood_and_not_shown(alias: str) -> None:
    """Promise: aliases work; help prints only the canonical name."""
    assert CliRunner().invoke(cli, [alias, "-h"]).exit_code == 0
    assert f"  {alias}  " not in CliRunner().invoke(cli, ["-h"]).stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("no"), 2),
        (errors.TopologyError("no"), 2),
        (errors.PostgresUnavailable("no"), 3),
        (errors.LeadLost("no"), 3),
        (errors.Fenced("no"), 4),
        (errors.Halted("no"), 1),
        (errors.BatchDataError("no", component="c"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
    ],
)
def test_each_error_has_its_exit_code(
    capfd: pytest.CaptureFixture[str], failing: Any, error: BaseException, code: int
) -> None:
    """Promise: 1 means that the check ran and the data is wrong, 3 that it did not run."""
    failing(error)
    stdout = os.dup(1)  # a broken pipe makes the command send the rest of its output nowhere
    try:
        assert main(["version"]) == code
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def test_an_error_that_nobody_reads_keeps_its_exit_code() -> None:
    """Promise: a script sees why a command failed also where the reader of stderr went away, as in `2>&1 | head`."""
    unread, said = os.pipe()
    os.close(unread)
    with os.fdopen(said, "wb") as stderr:
        ended = subprocess.run(
            [sys.executable, "-m", "txtopo.cli", "audit", "flights", "1-3"], stderr=stderr, check=False
        )

    assert ended.returncode == 2


def test_an_error_is_one_line_with_the_next_command(capsys: pytest.CaptureFixture[str], failing: Any) -> None:
    """Promise: what failed, which batch, why, and the next command to type; on stderr, without a trace or a password."""  # noqa: E501
    failing(
        errors.Halted(
            "batch 7 of flights failed at postgresql://me:hush@h/d", txid=7, next_command="txtopo show flights 7"
        )
    )

    assert main(["version"]) == 1

    said = capsys.readouterr()
    assert said.err == "txtopo: batch 7 of flights failed at postgresql://me:***@h/d\n  next: txtopo show flights 7\n"
    assert said.out == ""


@pytest.mark.parametrize("error", [ValueError("postgresql://me:hush@h/d"), errors.InvariantBroken("two leaders")])
def test_an_unexpected_error_leaves_its_trace_in_a_file(
    capsys: pytest.CaptureFixture[str], failing: Any, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: exit code 5, trace written to a file whose name is printed; no password in either."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing(error)

    code = main(["version"])

    said = capsys.readouterr().err
    name = re.search(r"the trace is in (\S+)", said)
    assert code == 5
    assert name is not None
    trace = Path(name[1]).read_text()
    assert "Traceback" in trace
    assert "hush" not in trace + said
    assert "Traceback" not in said


def test_debug_shows_the_trace(capsys: pytest.CaptureFixture[str], failing: Any) -> None:
    """Promise: --debug shows stack traces, on stderr."""
    failing(errors.ConfigurationError("no"))

    assert main(["--debug", "version"]) == 2

    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "app.py:topology"],
        ["status"],
        ["batches", "flights"],
        ["migrate"],
        ["retry", "flights"],
        ["replay", "flights", "1"],
    ],
)
def test_without_any_service_the_ways_out_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Promise: no Postgres given: pass --dsn, set TXTOPO_DSN, or start local services."""
    assert main(arguments) == 2

    assert (
        "no Postgres given: pass --dsn, set TXTOPO_DSN, or start local services with `txtopo dev up`"
        in capsys.readouterr().err
    )


class Called:
    """Stands in for the runtime: remembers what `run` was told."""

    def __init__(self) -> None:
        self.settings: Any = None
        self.application = ""

    def __call__(self, application: str, settings: Any) -> int:
        self.application, self.settings = application, settings
        return 4


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    """`run` ends here."""
    import types

    called = Called()
    module = types.ModuleType("txtopo.app")
    module.run_application = called  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "txtopo.app", module)
    return called


def test_run_hands_over_its_settings_and_returns_the_exit_code(called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: flags of both sides of the verb, variables and files reach the run, each with its source."""
    monkeypatch.setenv("TXTOPO_WORKERS", "7")
    monkeypatch.setenv("TXTOPO_ZK", "zk:1/env")
    Path("txtopo.toml").write_text("[default]\nattempts_max = 9\n[target.prod]\nmaster = 'spark://x:7077'")

    code = main(
        [
            "--dsn",
            "postgresql://a/b",
            "-t",
            "prod",
            "run",
            "app.py:topology",
            "--once",
            "--conf",
            "spark.a=1",
            "--conf",
            "spark.b=2",
            "--py-files",
            "a.py,b.py",
            "--message-timeout",
            "5m",
            "--dsn",
            "postgresql://c/d",
            "-q",
        ]
    )

    settings = called.settings
    assert (code, called.application) == (4, "app.py:topology")
    assert (settings.dsn, settings.zookeeper, settings.once, settings.workers) == (
        "postgresql://c/d",
        "zk:1/env",
        True,
        7,
    )
    assert (settings.attempts_max, settings.master, settings.message_timeout_s, settings.quiet) == (
        9,
        "spark://x:7077",
        300,
        True,
    )
    assert settings.conf == {"spark.a": "1", "spark.b": "2"}
    assert settings.py_files == ("a.py", "b.py")
    assert settings.source("workers") == "environment TXTOPO_WORKERS"
    assert settings.source("once") == "flag --once"


def test_a_wrong_flag_of_run_is_2_and_named(called: Called, capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: wrong values name their source; nothing is started."""
    assert main(["run", "app.py:topology", "--workers", "0", "--conf", "spark.x"]) == 2

    said = capsys.readouterr().err
    assert "flag --workers: workers must be from 1 to 64, not 0" in said
    assert "flag --conf" in said
    assert called.settings is None


def test_versions_are_told_without_starting_anything(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: txtopo, python, pyspark, pyarrow, java; --json has a schema."""
    assert main(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["version"]) == 0

    assert found["schema"] == "txtopo.version/1"
    assert found["python"] == sys.version.split()[0]
    assert found["pyspark"].startswith("4.3")
    assert found["txtopo"] != "unknown"
    assert f"pyspark  {found['pyspark']}" in capsys.readouterr().out


def test_migration_sql_needs_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: --sql prints instead of doing; it is data, on stdout."""
    assert main(["migrate", "--sql"]) == 0

    assert "create table txtopo.fence" in capsys.readouterr().out.lower()


def test_local_services_that_do_not_run_are_told_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: `dev status` tells by its exit code; its JSON parses either way."""
    assert main(["dev", "status"]) == 1
    assert main(["dev", "status", "--json"]) == 1

    assert json.loads(capsys.readouterr().out) == {"schema": "txtopo.dev/1", "running": False, "services": None}


CLOSED = ["pyspark", "pyarrow", "pandas", "sqlalchemy", "psycopg2", "kazoo", "alembic", "rich"]


@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        (["--version"], [*CLOSED, "txtopo.config"]),
        (["--help"], [*CLOSED, "txtopo.config"]),
        (["version"], CLOSED),
        (["status", "--dsn", "postgresql://127.0.0.1:9/x"], ["pyspark", "pyarrow", "pandas", "kazoo", "alembic"]),
        (["migrate", "--check", "--dsn", "postgresql://127.0.0.1:9/x"], ["pyspark", "pyarrow", "pandas", "kazoo"]),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], closed: list[str]) -> None:
    """Promise: `txtopo --version` costs below 150 ms CPU; imports are the whole cost. No command but run and demo
    imports Spark.
    """
    program = (
        "import sys; from txtopo.cli import main; main(sys.argv[2:]); "
        "print([name for name in sys.argv[1].split(',') if name in sys.modules], file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(closed), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stderr.splitlines()[-1] == "[]"


def test_piped_output_has_no_escape_codes() -> None:
    """Promise: colour only on a terminal, on either stream."""
    done = subprocess.run(
        [sys.executable, "-m", "txtopo.cli", "status"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "TERM": "xterm-256color"},
    )

    assert done.returncode == 2
    assert "\x1b" not in done.stdout + done.stderr


def test_an_internal_error_beside_a_full_disk_is_told_with_its_trace_and_5(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no file can be written Python would end with 1, which says that the topology has halted."""
    failing(RuntimeError("of a test"))
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")

    assert main(["version"]) == 5
    told = capsys.readouterr().err
    assert "RuntimeError: of a test\n" in told and "the trace is above, since no file could be written: " in told


def test_a_log_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in its way, a disk that is full or only read: nothing is started, exit code 2."""
    (tmp_path / "logs").touch()
    settings = load_settings({"log_folder": str(tmp_path / "logs" / "here")}, cwd=tmp_path, environment={}, target=None)

    with pytest.raises(errors.ConfigurationError, match=r"log folder .*/logs/here: Not a directory; name another one"):
        log_folder(settings)
