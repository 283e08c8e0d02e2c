"""What the README shows is what there is; and the pages that it leads to: tutorial, how-to, reference, explanation."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tests.kit.pages import blocks_of, is_shown, run_page, steps_of
from txtopo import AppendCommitter, CountCommitter, FileSpout, ReplaceCommitter, TopologyBuilder, UpsertCommitter, cli
from txtopo.cli.verbs import VERBS
from txtopo.config import load_settings
from txtopo.testing import TopologyHarness

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ("README", "tutorial", "configure", "tuple_bolts", "commands", "components", "why")
    ),
)
MIB = 2**20
LENGTH_MAX = 6_900
"""Bytes of the README: a page that is read to its end."""
PARAMETERS: list[tuple[str, Callable[..., Any]]] = [
    ("FileSpout", FileSpout.__init__),
    ("set_bolt", TopologyBuilder.set_bolt),
    ("CountCommitter", CountCommitter.__init__),
    ("AppendCommitter", AppendCommitter.__init__),
    ("UpsertCommitter", UpsertCommitter.__init__),
    ("ReplaceCommitter", ReplaceCommitter.__init__),
]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def code_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def console_lines(page: str) -> list[str]:
    """Commands that are shown to be typed."""
    return re.findall(r"^\$ (.*)$", text_of(page), re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def told(default: Any) -> str:
    """A parameter's default, as pages write it."""
    match default:
        case inspect.Parameter.empty:
            return ""
        case None | ():
            return "none"
        case int() if default >= MIB:
            return f"{default // MIB} MiB"
        case float():
            return f"{default:g}"
        case _:
            return str(default).replace("'", '"')


def test_the_topology_shown_is_the_example() -> None:
    """The code block is the file, to the letter."""
    assert code_blocks() == [(ROOT / "examples" / "access_log.py").read_text(encoding="utf-8")]


def test_the_readme_is_short() -> None:
    """It leads to the other pages, and does not repeat them."""
    assert len(README.encode()) <= LENGTH_MAX


def test_the_tuple_bolt_shown_counts_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tuple_bolts.md: its blocks run as they stand there, and print what the page says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.csv").write_text("line\nTo be or\nnot to be\n")
    names: dict[str, Any] = {}

    printed = [(block.shown or "", said) for block, said in run_page("tuple_bolts.md", names)]

    assert [shown for shown, _ in printed] == [said for _, said in printed]
    with TopologyHarness(names["topology"]) as harness:
        harness.run()
    assert harness.table("words") == {("to",): (2,), ("be",): (2,), ("or",): (1,), ("not",): (1,)}


def test_the_tutorial_shows_an_output_of_each_command_of_txtopo() -> None:
    """What is typed is run by the test of the tutorial; here: nothing was left open."""
    steps = [step for step in steps_of("tutorial.md") if step.text.startswith("txtopo ")]

    assert len(steps) >= 10
    assert [step.text for step in steps if not step.shown] == ["txtopo dev up", "txtopo dev down --wipe"]


@pytest.mark.parametrize(
    ("shown", "said", "is_right"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("…\nb\n", "a\na\nb\n", True),
        ("a\n…\n", "b\n", False),
        ("in 3.5 s at 2026-11-22T10:00:00.123Z\n", "in   12 ms at 2030-01-01T00:00:01Z\n", True),
        ("2 batches\n", "3 batches\n", False),
    ],
)
def test_outputs_are_compared_but_for_times(shown: str, said: str, is_right: bool) -> None:
    """The comparison of the tutorial sees a difference."""
    assert is_shown(shown, said) is is_right


def test_the_settings_shown_are_read(tmp_path: Path) -> None:
    """docs/configure.md: the configuration shown is a configuration, and its target another one."""
    (text,) = re.findall(r"```toml\n(.*?)```", text_of("docs/configure.md"), re.DOTALL)
    (tmp_path / "txtopo.toml").write_text(text)

    settings = load_settings({}, cwd=tmp_path, environment={}, target=None)
    staging = load_settings({}, cwd=tmp_path, environment={}, target="staging")

    assert settings.master == "spark://spark.example.com:7077"
    assert (settings.on_poison, staging.on_poison) == ("halt", "quarantine_batch")
    assert staging.zookeeper == settings.zookeeper


def test_a_topologys_own_settings_are_taken() -> None:
    """docs/configure.md: the block runs."""
    names: dict[str, Any] = {}

    assert [said for _, said in run_page("configure.md", names)] == [""]
    assert names["builder"]._config == {"on_poison": "quarantine_batch"}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_shown_exists(page: str) -> None:
    """No command is promised that is not there."""
    shown = set(re.findall(r"(?:`|^\$ |next: )txtopo ([a-z]+)", text_of(page), re.MULTILINE))

    assert shown <= set(VERBS), shown - set(VERBS)


def test_the_page_of_commands_has_every_command() -> None:
    """docs/commands.md: each command once, and no other."""
    listed = re.findall(r"^\| `txtopo ([a-z]+)", text_of("docs/commands.md"), re.MULTILINE)

    assert sorted(listed) == sorted(VERBS)


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in console_lines(page)}))
def test_a_command_line_shown_parses(line: str) -> None:
    """Flags and arguments too."""
    program, *arguments = shlex.split(line)
    if program != "txtopo":
        return
    command: click.Command | None = cli.cli
    context = click.Context(cli.cli)
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.get_command(context, name)
    assert command is not None
    with command.make_context(name, arguments, obj={}):
        pass


@pytest.mark.parametrize(
    ("page", "link"),
    [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)]+)\)", text_of(page))],
)
def test_links_lead_somewhere(page: str, link: str) -> None:
    """Every page and every heading that is named exists."""
    name, _, anchor = link.partition("#")
    target = ROOT / Path(page).parent / name if name else ROOT / page

    assert target.exists()
    assert not anchor or anchor in anchors(target)


def test_the_map_has_every_page_once() -> None:
    """docs/README.md: whoever adds a page says there, in one line, what it is for."""
    listed = re.findall(r"^\| \[([^]]+)\]\(([^)]+)\) \| [^|]+ \|$", text_of("docs/README.md"), re.MULTILINE)

    assert all(name == link for name, link in listed)
    assert sorted(name for name, _ in listed) == sorted(
        path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"
    )


@pytest.mark.parametrize(("name", "function"), PARAMETERS)
def test_every_parameter_is_on_the_page_of_components(name: str, function: Callable[..., Any]) -> None:
    """docs/components.md: the parameters in order, with their defaults."""
    (table,) = re.findall(rf"^## {name}\(.*?\n(.*?)(?=^## |\Z)", text_of("docs/components.md"), re.M | re.DOTALL)
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| ", table, re.MULTILINE))
    parameters = list(inspect.signature(function).parameters.values())[1:]

    assert list(listed) == [one.name for one in parameters]
    assert [listed[one.name].strip("`") for one in parameters] == [told(one.default) for one in parameters]


def test_the_examples_of_these_pages_have_types() -> None:
    """An editor that reads them completes names: no parameter without a type, and none of them `Any`."""
    codes = [*code_blocks(), *(block.code for name in ("tutorial.md", "tuple_bolts.md") for block in blocks_of(name))]
    functions = [node for code in codes for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    types = [argument.annotation for one in functions for argument in one.args.args if argument.arg != "self"]

    assert len(functions) >= 2
    assert all(one is not None and "Any" not in ast.unparse(one) for one in [*types, *(f.returns for f in functions)])


@pytest.mark.parametrize("target", re.findall(r"^\$ make (\w+)", README, re.MULTILINE))
def test_the_two_commands_are_targets(target: str) -> None:
    """`make demo` and `make test`."""
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
