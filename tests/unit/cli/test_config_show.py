"""`txtopo config show`: every setting with its value, its source down to the line, and no secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from txtopo.cli import main
from txtopo.cli.config import passed_on
from txtopo.config import Settings, known_settings

APPLICATION = """
from txtopo import CountCommitter, FileSpout, TopologyBuilder

builder = TopologyBuilder("orders", config={
    "topology.max.spout.pending": 32, "topology.message.timeout.secs": 60, "topology.acker.executors": None, "limit": 3, "api_key": "hush",
    "store": {"password": "hush", "url": "postgresql://me:hush@h/d"},
})
builder.set_spout("lines", FileSpout("orders", "item string"))
builder.set_committer_bolt("counts", CountCommitter("orders", ["item"]), "lines")
topology = builder.build()
"""  # noqa: E501


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's settings nor its services are seen."""
    for name in [name for name in os.environ if name.startswith("TXTOPO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TXTOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, dict[str, Any]]:
    """The JSON document, and its settings by name."""
    code = main(["config", "show", "--json", *arguments])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    document = json.loads(said.out)
    return document, {one["name"]: one for one in document["settings"]}


def application(folder: Path, name: str) -> str:
    (folder / f"{name}.py").write_text(APPLICATION)
    return f"{name}.py:topology"


def test_every_setting_is_listed_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: every setting; one line of meaning each."""
    document, settings = shown(capsys)
    main(["config", "show"])
    text = capsys.readouterr().out

    names = {name for name in Settings.__dataclass_fields__ if name != "sources"}
    assert set(settings) == names
    assert document["schema"] == "txtopo.config/1"
    assert all(one["meaning"].strip() and "\n" not in one["meaning"] for one in settings.values())
    assert all(f"\n{name} " in text for name in names)
    assert {one["source"] for one in settings.values()} == {"default"}


def test_storms_names_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: Storm's name where there is one."""
    _, settings = shown(capsys)

    assert {one["storm"]: name for name, one in settings.items() if one["storm"]} == {
        "topology.max.spout.pending": "spout_pending_max",
        "topology.message.timeout.secs": "message_timeout_s",
        "topology.acker.executors": "ackers",
        "topology.quarantined.in.row.max": "quarantined_in_row_max",
    }


def test_units_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: its unit; people read MiB."""
    _, settings = shown(capsys)
    main(["config", "show"])
    text = capsys.readouterr().out

    assert (settings["message_timeout_s"]["unit"], settings["wave_bytes_max"]["unit"], settings["workers"]["unit"]) == (
        "s",
        "bytes",
        None,
    )
    assert settings["wave_bytes_max"]["value"] == 32 * 1024**2
    assert "wave_bytes_max          32 MiB" in text
    assert "message_timeout_s       300 s" in text


TOML = """\
# workers = 9
[default]
"topology.max.spout.pending" = 12
attempts_max = 9 # twice below
[target.prod]
attempts_max = 5
topology . "message.timeout.secs" = 7

[default.conf]
spark.executor.memory = "1g"
"""


def test_each_value_tells_where_it_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Promise: default, the line of txtopo.toml, environment, flag."""
    (tmp_path / "txtopo.toml").write_text(TOML)
    monkeypatch.setenv("TXTOPO_WORKERS", "3")

    _, settings = shown(capsys, "-t", "prod", "--zk", "zk:1/x")

    file = f"{tmp_path}/txtopo.toml"
    assert {name: (one["value"], one["source"]) for name, one in settings.items() if one["source"] != "default"} == {
        "spout_pending_max": (12, f"{file}:3 [default]"),
        "attempts_max": (5, f"{file}:6 [target.prod]"),
        "message_timeout_s": (7.0, f"{file}:7 [target.prod]"),
        "conf.spark.executor.memory": ("1g", f"{file}:10 [default]"),
        "workers": (3, "environment TXTOPO_WORKERS"),
        "zookeeper": ("zk:1/x", "flag --zk"),
    }


def test_a_line_that_is_not_found_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A setting may be written in more ways than one reads back; the file and the table are named all the same."""
    (tmp_path / "txtopo.toml").write_text("[default]\ntopology = { max = { spout = { pending = 12 } } }\n")

    _, settings = shown(capsys)

    assert settings["spout_pending_max"]["source"] == f"{tmp_path}/txtopo.toml [default]"


def test_the_config_of_an_application_counts_where_nothing_else_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Promise: Storm's names are accepted in a topology's own config; the rest of it goes to components."""
    monkeypatch.setenv("TXTOPO_MESSAGE_TIMEOUT_S", "90")

    document, settings = shown(capsys, "--app", application(tmp_path, "config_of_orders"))

    assert document["topology"] == "orders"
    assert (settings["spout_pending_max"]["value"], settings["spout_pending_max"]["source"]) == (
        32,
        "the topology's own config",
    )
    assert settings["message_timeout_s"]["source"] == "environment TXTOPO_MESSAGE_TIMEOUT_S"
    assert settings["ackers"]["source"] == "default"
    assert document["components"]["limit"] == 3
    assert set(document["components"]) == {"limit", "api_key", "store"}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_secret_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: list[str]) -> None:
    """Promise: no secret shown: neither of the connection string, nor of Spark's settings, nor of the topology's
    config.
    """
    (tmp_path / "txtopo.toml").write_text(
        '[default]\ndsn = "postgresql://me:hush@h/d?user=x&password=hush"\n[default.conf]\n'
        '"spark.hadoop.fs.s3a.secret.key" = "hush"\n"spark.x" = "postgresql://me:hush@h/d"\n'
    )

    assert main(["config", "show", "--app", application(tmp_path, "secret_orders"), *form]) == 0

    said = capsys.readouterr().out
    assert "hush" not in said
    assert "postgresql://me:***@h/d" in said
    assert "conf.spark.hadoop.fs.s3a.secret.key" in said


def test_names_of_secrets_are_known() -> None:
    """As Spark redacts its own settings; a value within lists and tables too."""
    config = {"aws.accessKey": "x", "tokens": ["x"], "a": [{"passwd": "x", "b": 1}], "topology.acker.executors": 1}

    assert passed_on(config) == {"aws.accessKey": "***", "tokens": "***", "a": [{"passwd": "***", "b": 1}]}


def test_both_names_of_a_setting_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Promise: both names for one setting given: refused, exit code 2."""
    (tmp_path / "txtopo.toml").write_text("[default]\nackers = 1\ntopology.acker.executors = 1\n")

    assert main(["config", "show"]) == 2
    assert "ackers is given twice, under two names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["orders", "--app", "operating/orders.py"], "give a TOPOLOGY or --app, not both"),
        (["--app", "nowhere.py:topology"], "no such file"),
        (["orders"], "no Postgres given"),
    ],
)
def test_what_cannot_be_shown_is_2(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    """Exit code 2: usage or configuration."""
    assert main(["config", "show", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_every_meaning_is_one_line_of_the_source() -> None:
    """What a setting means is written below it, once."""
    by_name = {info.name: info for info in known_settings()}

    assert by_name["workers"].meaning == "Waves that are processed concurrently."
    assert all(info.meaning.endswith(".") for info in by_name.values())
    assert (by_name["zookeeper"].variable, by_name["workers"].variable) == ("TXTOPO_ZK", "TXTOPO_WORKERS")
