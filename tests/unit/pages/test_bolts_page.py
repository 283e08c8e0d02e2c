"""docs/bolts.md, docs/groupings.md and docs/spouts.md: every block runs and prints what stands below it; names, tables
and links are those there are.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

from tests.kit.pages import DOCS, blocks_of, run_page
from txtopo.cli import main
from txtopo.core import limits
from txtopo.topology.check_component import COUNTING_GROUPINGS, REFUSED_GROUPINGS
from txtopo.topology.components import SpoutKind
from txtopo.topology.declarer import BoltDeclarer
from txtopo.topology.guarantees import EFFECTS, PAIRS, SPOUT_KINDS

PAGES = ("bolts.md", "groupings.md", "spouts.md")
PUBLIC = {"txtopo", "txtopo.bolts", "txtopo.errors", "txtopo.spouts", "txtopo.testing"}
each_page = pytest.mark.parametrize("page", PAGES)


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def methods_named(text: str) -> set[str]:
    return set(re.findall(r"\b(\w+_grouping)\(", text))


@each_page
def test_every_block_runs_and_prints_what_the_page_says(page: str) -> None:
    """A new user may copy each of them; those that need Spark are run by the integration tests."""
    seen = 0
    for block, printed in run_page(page):
        assert printed == (block.shown or ""), f"docs/{page}:{block.line}"
        seen += 1

    assert seen == sum(not block.needs_spark for block in blocks_of(page)) >= 7


def test_the_word_count_of_the_page_is_an_application(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put the blocks above into a file `poems.py`, without the harness: then `txtopo explain poems.py:topology` knows
    it.
    """
    codes = [block.code for block in blocks_of("bolts.md")]
    steps = codes[: 1 + next(at for at, code in enumerate(codes) if "topology = builder.build()" in code)]
    (tmp_path / "poems.py").write_text("\n\n".join(steps), encoding="utf-8")
    monkeypatch.delitem(sys.modules, "poems", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])

    assert main(["explain", f"{tmp_path}/poems.py:topology"]) == 0

    monkeypatch.delitem(sys.modules, "poems")
    assert "waves      yes" in capsys.readouterr().out
    assert len(steps) == 4


def test_one_block_needs_spark_and_is_run_by_the_integration_test() -> None:
    """Nothing but the last block of DataFrames."""
    assert [(page, block.shown) for page in PAGES for block in blocks_of(page) if block.needs_spark] == [
        ("bolts.md", "(2,)\n")
    ]


@each_page
def test_blocks_import_from_public_places_only(page: str) -> None:
    """What a page shows is what users may rely on."""
    libraries = {"re", "collections", "pyarrow.compute"}
    for block in blocks_of(page):
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.ImportFrom):
                assert node.module in PUBLIC | libraries, f"docs/{page}:{block.line}"
            elif isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= libraries, f"docs/{page}:{block.line}"


@each_page
def test_links_lead_somewhere(page: str) -> None:
    """Pages, examples, and headings of this page."""
    text = text_of(page)
    headings = {
        re.sub(r"[^\w -]", "", found.lower()).replace(" ", "-") for found in re.findall(r"^#+ (.+)$", text, re.M)
    }

    for link in re.findall(r"\]\(([^)]+)\)", text):
        target, _, anchor = link.partition("#")
        assert (DOCS / target).exists() if target else anchor in headings, link


def test_all_groupings_are_in_the_table_and_have_a_section() -> None:
    """Each method of the declarer, and none besides."""
    text = text_of("groupings.md")
    table = "\n".join(re.findall(r"^\| `.*", text, re.M))
    there = {name for name, _ in inspect.getmembers(BoltDeclarer) if name.endswith("_grouping")}

    assert methods_named(table) == there
    for name in there:
        assert re.search(rf"^## .*\b{name.removesuffix('_grouping')}\b", text, re.M), name


def test_what_committers_that_count_take_is_as_the_page_says() -> None:
    """All but `all`, `direct`, `partial_key` and `custom`."""
    assert {"all", "direct", "partial_key", "custom"} == set(REFUSED_GROUPINGS) - {"global"}
    assert "global" in COUNTING_GROUPINGS
    assert "all but `all`, `direct`, `partial_key` and `custom`" in text_of("groupings.md")


def test_the_table_of_guarantees_is_the_one_that_is_checked() -> None:
    """Each cell of spout and committer."""
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (\w+) \|$", text_of("spouts.md"), re.M)
    told = {(kind, effects): given for kind, *cells in rows for effects, given in zip(EFFECTS, cells, strict=True)}
    kinds: tuple[SpoutKind, ...] = SPOUT_KINDS

    assert told == PAIRS
    assert [row[0] for row in rows] == list(kinds)


@pytest.mark.parametrize("module", ["txtopo.bolts", "txtopo.spouts", "txtopo.testing"])
def test_public_names_load_and_others_are_an_attribute_error(module: str) -> None:
    """Names load when they are used, each from its home."""
    place = importlib.import_module(module)

    for name in place.__all__:
        assert getattr(place, name) is not None
        assert name in dir(place)
    with pytest.raises(AttributeError, match="nothing"):
        _ = place.nothing


@pytest.mark.parametrize("module", ["txtopo.bolts", "txtopo.spouts"])
def test_every_public_class_is_on_a_page(module: str) -> None:
    """Nothing that a user may use has to be found in the code."""
    text = "\n".join(map(text_of, PAGES))
    of_types = {
        "BasicOutputCollector",
        "OutputCollector",
        "BatchOutputCollector",
        "ArrowOutputCollector",
        "CommitCollector",
        "CommitTransaction",
        "SpoutOutputCollector",
        "DEFAULT_STREAM",
        "TupleBolt",
        "EmitterContext",
        "is_tick",
    }

    assert {
        name for name in set(importlib.import_module(module).__all__) - of_types if not re.search(rf"\b{name}\b", text)
    } == set()


def test_numbers_on_the_pages_are_those_of_the_code() -> None:
    """attempts_max, dead_letter_max, the timeout, ackers, the size of a batch of messages."""
    from txtopo.spouts import ReliableSpout

    bolts, spouts = text_of("bolts.md"), text_of("spouts.md")

    assert f"`attempts_max` ({limits.ATTEMPTS_MAX})" in bolts
    assert f"`dead_letter_max` ({limits.DEAD_LETTER_MAX})" in bolts
    assert f"`topology.message.timeout.secs` ({limits.MESSAGE_TIMEOUT_S:.0f})" in bolts
    assert f"`topology.acker.executors`, {limits.ACKERS})" in bolts
    assert f"`batch_size` ({ReliableSpout.batch_size})" in spouts
    assert f"`max_fails` ({ReliableSpout.max_fails})" in spouts
