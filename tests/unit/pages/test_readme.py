"""What the README shows is what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from txtopo.cli.verbs import VERBS
from txtopo.config import load_settings
from txtopo.testing import TopologyHarness

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_topology_shown_is_the_example() -> None:
    """The code block is the file, to the letter."""
    assert code_blocks()[0] == (ROOT / "examples" / "flights.py").read_text(encoding="utf-8")


def test_the_tuple_bolt_shown_counts_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second block runs as it stands there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.csv").write_text("line\nTo be or\nnot to be\n")
    _, shown = code_blocks()
    names: dict[str, Any] = {"__name__": "words"}
    exec(compile(shown, "words.py", "exec"), names)

    with TopologyHarness(names["topology"]) as harness:
        harness.run()

    assert harness.table("words") == {("to",): (2,), ("be",): (2,), ("or",): (1,), ("not",): (1,)}


def test_the_settings_shown_are_read(tmp_path: Path) -> None:
    """The configuration in the README is a configuration."""
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "txtopo.toml").write_text(text)

    settings = load_settings({}, cwd=tmp_path, environment={}, target=None)

    assert settings.master == "spark://spark.example.com:7077"


def test_every_command_shown_exists() -> None:
    """No command is promised that is not there."""
    shown = set(re.findall(r"(?:`|^\$ |next: )txtopo ([a-z]+)", README, re.MULTILINE))

    assert len(shown) > 8
    assert shown <= set(VERBS), shown - set(VERBS)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)", README))
def test_links_lead_somewhere(link: str) -> None:
    """Every page that is named exists."""
    assert (ROOT / link).exists()


@pytest.mark.parametrize("target", re.findall(r"^\$ make (\w+)", README, re.MULTILINE))
def test_the_two_commands_are_targets(target: str) -> None:
    """`make demo` and `make test`."""
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
